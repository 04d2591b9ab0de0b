"""Sample landings: rows by the envelope's schema, written with pyarrow as any collector could."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import md5
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vedette.delivery import columns, envelope

DAY = "2026-11-20"
NOON = 1_795_176_000_000_000
"""UTC microseconds of DAY, 12:00:00."""

MINUTE = 60_000_000
HOUR = 60 * MINUTE

_SCALARS = {
    columns.STRING: pa.string(),
    columns.BINARY: pa.binary(),
    columns.BOOL: pa.bool_(),
    columns.INT32: pa.int32(),
    columns.INT64: pa.int64(),
    columns.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}
_files = itertools.count()


def arrow(kind: columns.Type) -> pa.DataType:
    """The Arrow type of a column of the envelope."""
    match kind:
        case columns.Scalar():
            return _SCALARS[kind]
        case columns.List(of):
            return pa.list_(arrow(of))
        case columns.Map():
            return pa.map_(pa.string(), pa.string())
        case columns.Struct(parts):
            return pa.struct([(part.name, arrow(part.type)) for part in parts])


def arrow_schema(schema: columns.Schema) -> pa.Schema:
    return pa.schema([(column.name, arrow(column.type)) for column in schema])


ALERTS = arrow_schema(envelope.LANDED_ALERT)


def alert(number: int, **changes: Any) -> dict[str, Any]:
    """Alert ``number`` of agent-1: detected at noon plus ``number`` seconds, landed two seconds later."""
    at = NOON + number * 1_000_000
    row: dict[str, Any] = {
        "schema_version": 1,
        "alert_id": md5(str(number).encode()).hexdigest(),
        "parent_id": None,
        "seq": number,
        "kind": "detection",
        "rule_id": "rule-a",
        "rule_title": "Failed logins",
        "rule_digest": "d1",
        "level": "high",
        "tags": ["attack.t1110"],
        "agent_id": "agent-1",
        "site": "plant",
        "fleet": "north",
        "host": "web1",
        "event_time": at,
        "detected_at": at,
        "source": "syslog",
        "logsource": {"product": "linux", "category": None, "service": "sshd"},
        "fields": {"user": "root"},
        "entities": [{"kind": "ip", "value": "203.0.113.9"}],
        "raw": f"<38>event {number}",
        "raw_ref": {"log_id": "0" * 32, "offset": number * 100, "length": 80},
        "contributing": [],
        "group_by": {},
        "count": 1,
        "first_time": None,
        "last_time": None,
        "bundle": None,
        "flags": [],
        "ingest": {"collector_id": "c1", "topic": "vedette/v1/north/agent-1/alerts"},
        **changes,
    }
    row.setdefault("received_at", row["detected_at"] + 2_000_000)
    row.setdefault("received_date", envelope.received_date(row["detected_at"]))
    return row


def land(
    landing: Path,
    rows: Iterable[Mapping[str, Any]],
    *,
    table: str = "alerts",
    schema: pa.Schema = ALERTS,
    name: str = "",
) -> Path:
    """One landed file: in the folder of its first row's hour, its modification time later than all before it."""
    rows = list(rows)
    at = datetime.fromtimestamp(rows[0].get("received_at", NOON) / 1e6, UTC)
    return place(landing, pa.Table.from_pylist(rows, schema), at=at, table=table, name=name)


def place(landing: Path, data: pa.Table | bytes, *, at: datetime, table: str = "alerts", name: str = "") -> Path:
    """A file of the landing with any content."""
    folder = landing / table / f"dt={at:%Y-%m-%d}" / f"hh={at:%H}"
    folder.mkdir(parents=True, exist_ok=True)
    number = next(_files)
    file = folder / (name or f"{number:026}.parquet")
    if isinstance(data, bytes):
        file.write_bytes(data)
    else:
        pq.write_table(data, file, compression="zstd")
    os.utime(file, (NOON // 10**6 + number, NOON // 10**6 + number))
    return file
