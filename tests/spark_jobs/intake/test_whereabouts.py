"""From the landing into tables and console: all goes by the region's site, and a difference is shown."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.jobs import ingest
from spark_jobs.tables.schema import AGENTS, ALERTS, HEARTBEATS, WIN_5M, Table
from spark_jobs.tables.tables import open_tables
from tests.spark_jobs.found import AT
from tests.spark_jobs.landed import ALERTS as LANDED
from tests.spark_jobs.landed import NOON, alert, arrow_schema, land
from vedette.delivery import envelope
from vedette_console.data import agents, alerts
from vedette_console.data.reader import Pool
from vedette_console.security.principal import Grant, Principal, Role

LINZ, VIENNA = (Principal(site, "user", (Grant(Role.VIEWER, "north", site),)) for site in ("linz", "vienna"))
WHEN = AT + timedelta(hours=2)


def without(column: str, schema: pa.Schema) -> pa.Schema:
    return schema.remove(schema.get_field_index(column))


def beat(agent: str, **changes: Any) -> dict[str, Any]:
    row = envelope.status_row(b"{}", fleet="north", agent_id=agent, received_at=NOON, collector_id="c", topic="t")
    return {**row, "state": "running", **changes}


@pytest.mark.long
@pytest.mark.spark
async def test_the_regions_site_in_tables_and_console(spark: SparkSession, tmp_path: Path) -> None:
    """An agent of linz states vienna in an alert and a heartbeat: rows, counts and accounts are linz's, with what it
    states beside; only linz's user sees them, with the note. Files from before that column are read as they are."""
    landing, tables = tmp_path / "landing", open_tables(str(tmp_path / "tables"))
    stated = {"site": "linz", "stated_site": "vienna"}
    land(landing, [alert(1, agent_id="liar", **stated), alert(2, agent_id="own", site="vienna")])
    land(landing, [alert(3, agent_id="old", site="vienna")], schema=without("stated_site", LANDED))
    status = arrow_schema(envelope.STATUS)
    land(landing, [beat("liar", **stated), beat("own", site="vienna")], table="status", schema=status)
    land(landing, [beat("old", site="vienna")], table="status", schema=without("stated_site", status))
    ingest.take_over(spark, tables, ingest.landing_sources(str(landing)))

    def of(table: Table) -> dict[str, tuple[str, str | None]]:
        rows = tables.arrow(table, ["agent_id", "site", "stated_site"]).to_pylist()
        return {row["agent_id"]: (row["site"], row["stated_site"]) for row in rows}

    expected = {"liar": ("linz", "vienna"), "own": ("vienna", None), "old": ("vienna", None)}
    assert [of(table) for table in (ALERTS, HEARTBEATS, AGENTS)] == [expected] * 3
    counts = tables.arrow(WIN_5M, ["site", "alerts"]).to_pylist()
    assert {row["site"]: row["alerts"] for row in counts} == {"linz": 1, "vienna": 2}

    pool = Pool(tables.root)
    try:
        for who, names in ((LINZ, {"liar"}), (VIENNA, {"own", "old"})):
            page = await pool.ask(alerts.search, who, now=WHEN)
            assert {row.agent_id for row in page.items} == names
            listed = await pool.ask(agents.agents, who, now=WHEN)
            assert {row.agent_id for row in listed.items} == names
        account = await pool.ask(agents.agent, LINZ, "north", "liar", now=WHEN)
        assert "states another site than it is enrolled at: vienna" in account.troubles
    finally:
        await pool.close()
