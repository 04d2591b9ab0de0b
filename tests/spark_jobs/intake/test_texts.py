"""Title, level and tactics of rules: no single member of the fleet decides them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.intake.published import Published
from spark_jobs.intake.texts import resolved
from spark_jobs.jobs import reconcile
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import ENTITY_SITE_5M, HOST_1H, RULES, WIN_5M
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.landed import HOUR, NOON, alert, land

PING: dict[str, Any] = {"rule_title": "Ping", "level": "informational", "tags": ["attack.reconnaissance"]}
THEFT: dict[str, Any] = {"rule_title": "Data Leaves", "level": "high", "tags": ["attack.exfiltration", "attack.t1048"]}
LISTED: dict[str, Any] = {"id": "listed", "title": "Web Shell", "level": "critical", "tags": ["attack.initial-access"]}
COUNTED = (WIN_5M, HOST_1H, ENTITY_SITE_5M, RULES)


def content(tables: Tables) -> dict[str, list[str]]:
    return {table.name: sorted(map(repr, tables.arrow(table).to_pylist())) for table in COUNTED}


def evil(number: int) -> list[dict[str, Any]]:
    """Alerts of a member at the site of ``edge-0`` that dates itself ahead and plays two rules down."""
    about = {"agent_id": "evil", "site": "s0", "event_time": NOON + 11 * HOUR, **PING}
    return [alert(number + n, rule_id=rule, **about) for n, rule in enumerate(("unlisted", "listed"))]


@pytest.mark.spark
def test_a_member_lowers_no_rule_of_the_region(spark: SparkSession, tmp_path: Path) -> None:
    """In one batch with the others, in a later one alone, and when all is counted again: title, level and tactics stay
    those that the region published, else those of several agents; the level of counts is the alerts' own."""
    landing, tables = tmp_path / "landing", open_tables(str(tmp_path / "tables"))
    publish(landing, 1, LISTED)
    edges = [
        alert(10 * n + m, agent_id=f"edge-{n}", site=f"s{n}", rule_id=rule, **THEFT)
        for n in range(2)
        for m, rule in enumerate(("unlisted", "listed"))
    ]
    for rows in ([*edges, *evil(50)], evil(60)):
        land(landing, rows)
    run(spark, "ingest", f"--landing={landing}", f"--tables={tables.root}", "--bytes-per-batch=1")
    rules = {row["rule_id"]: row for row in tables.arrow(RULES).to_pylist()}
    texts = ("rule_title", "level", "tactics", "techniques", "published")
    assert [rules["unlisted"][name] for name in texts] == [
        "Data Leaves", "high", ["reconnaissance", "exfiltration"], ["T1048"], False,
    ]  # fmt: skip
    assert [rules["listed"][name] for name in texts] == ["Web Shell", "critical", ["initial-access"], [], True]
    assert (rules["listed"]["alerts"], rules["listed"]["tags"]) == (4, LISTED["tags"])
    for table in (WIN_5M, HOST_1H, ENTITY_SITE_5M):
        rows = [row for row in tables.arrow(table).to_pylist() if row["level"] != "informational"]
        assert sorted((row["rule_id"], row["site"], row["level"], row["alerts"]) for row in rows) == [
            (rule, site, "high", 1) for rule in ("listed", "unlisted") for site in ("s0", "s1")
        ]
    assert {row["rule_title"] for row in tables.arrow(WIN_5M).to_pylist()} == {"Data Leaves", "Web Shell"}
    before = content(tables)
    reconcile.recount(spark, tables)
    assert content(tables) == before


def said(*agents: int, at: int = 0, **texts: Any) -> dict[str, Any]:
    """A row of ``sums.rule_texts``."""
    ends = {"least_agent": min(agents), "most_agent": max(agents)}
    times = {"first": at, "last": at, "first_landed": at}
    return {"rule_id": "r", "alerts": 1, "matches": 1, "rows": 1, "odd": 0, **times, **ends, **texts}


def after(*batches: list[dict[str, Any]], listed: dict[str, Any] | None = None) -> dict[str, Any]:
    """The rule's row after these batches, one after the other."""
    former = arrow_schema(RULES.columns).empty_table()
    for rows in batches:
        named = pa.Table.from_pylist(rows)
        for name in ("first", "last"):
            times = named.column(name).cast(pa.timestamp("us", "UTC"))
            named = named.drop_columns(name).append_column(f"{name}_time", times)
        former = resolved(named, former, listed).select(RULES.names)
    (row,) = former.to_pylist()
    return dict(row)


def test_titles_change_when_several_agents_say_so() -> None:
    """One that came first gives way to two that agree, whatever its time. A title that a single agent says changes
    nothing; a level goes up."""
    first = after([said(1, at=99, **PING)])
    assert (first["rule_title"], first["level"]) == ("Ping", "informational")
    second = after([said(1, at=99, **PING)], [said(2, **THEFT)])
    assert (second["rule_title"], second["level"]) == ("Ping", "high")
    assert second["tactics"] == ["reconnaissance", "exfiltration"]
    third = after([said(1, at=99, **PING)], [said(2, **THEFT)], [said(2, 3, **THEFT)], [said(1, at=999, **PING)])
    assert (third["rule_title"], third["level"], third["tags"]) == ("Data Leaves", "high", THEFT["tags"])
    parted = after([said(1, at=99, **PING), said(2, **THEFT), said(3, **{**THEFT, "level": "low"})])
    assert (parted["rule_title"], parted["level"]) == ("Data Leaves", "high")


def test_a_level_that_is_none_is_below_all() -> None:
    assert after([said(1, 2, **{**THEFT, "level": "zzz"}), said(3, **PING)])["level"] == "informational"


def test_what_was_published_stands_without_its_list(tmp_path: Path) -> None:
    """The newest list that has a rule says its texts; without a list they stay."""
    published = Published(str(tmp_path / "rules"))
    assert published.rules() == {}
    publish(tmp_path, 2, {**LISTED, "id": "r", "title": "New"}, created="2026-11-21T00:00:00Z")
    publish(tmp_path, 9, {**LISTED, "id": "r", "title": "Old"}, created="2026-11-20T00:00:00Z", name="other")
    publish(tmp_path, 3, created="2026-11-22T00:00:00Z")
    row = after([said(1, 2, **PING)], listed=dict(published.rules()))
    assert (row["rule_title"], row["level"], row["published"]) == ("New", "critical", True)
    named = pa.Table.from_pylist([said(1, 2, **PING)]).rename_columns({"first": "first_time", "last": "last_time"})
    (again,) = resolved(named, pa.Table.from_pylist([row], arrow_schema(RULES.columns))).to_pylist()
    assert (again["rule_title"], again["level"], again["tactics"]) == ("New", "critical", ["initial-access"])


def test_a_list_that_is_none_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was read before stays, and the log says so once."""
    publish(tmp_path, 1, LISTED)
    published = Published(str(tmp_path / "rules"))
    before = published.rules()
    assert before.keys() == {"listed"}
    for number, text in enumerate(("{", "[]", "7", '{"version": 1}', '{"version": 1, "rules": [{"id": "a"}]}')):
        (tmp_path / "rules" / f"bad-{number}.json").write_text(text)
        with caplog.at_level(logging.WARNING):
            assert (published.rules(), published.rules()) == (before, before)
        assert len(caplog.records) == number + 1


def publish(landing: Path, version: int, *rules: dict[str, Any], **about: str) -> None:
    """A rule list, as `vedette region publish --landing` writes it."""
    (landing / "rules").mkdir(parents=True, exist_ok=True)
    listed = {"name": "main", "version": version, "rules": rules, **about}
    (landing / "rules" / f"{version}.json").write_text(json.dumps(listed))
