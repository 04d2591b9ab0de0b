"""Where an alert's event lies on its host: looked up by its day, agent and id in the tables, or in the landing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vedette.region.evidence import COLUMNS, Found, find
from vedette_console.fleet.given import Given

REF = ("log_id", "offset", "length")


def locate(given: Given, day: str, agent: str, alert: str) -> Found | None:
    """None: there is no such alert. Blocking; raises OSError, LookupError, ValueError."""
    row = _in_tables(f"{given.tables.rstrip('/')}/alerts", day, agent, alert) if given.tables else None
    if row is not None:
        ref = row.get("raw_ref")
        if not isinstance(ref, dict) or not all(ref.get(name) is not None for name in REF):
            raise LookupError(f"alert {alert} refers to no event of a raw log")
        return Found(alert, str(row["agent_id"]), {name: ref[name] for name in REF})
    if given.landing is None or not Path(given.landing).is_dir():
        return None
    try:  # it has landed, and is not ingested yet
        return find(alert, given.landing)
    except LookupError:
        return None


def _in_tables(table: str, day: str, agent: str, alert: str) -> dict[str, Any] | None:
    import pyarrow.compute as pc
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        found = DeltaTable(table)
    except TableNotFoundError:
        return None
    dataset = found.to_pyarrow_dataset(partitions=[("received_date", "=", day)])
    columns = [name for name in COLUMNS if name in dataset.schema.names]
    chosen = (pc.field("alert_id") == alert) & (pc.field("agent_id") == agent)
    rows: list[dict[str, Any]] = dataset.head(1, columns=columns, filter=chosen).to_pylist()
    return rows[0] if rows else None
