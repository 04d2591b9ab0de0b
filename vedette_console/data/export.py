"""The alerts of a search as lines, newest first, a few files at a time, however many there are: NDJSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson

from spark_jobs.tables.ask import Row
from spark_jobs.tables.schema import ALERTS
from vedette_console.data.alerts import files_of, now_or
from vedette_console.data.query import parse
from vedette_console.data.reader import Reader
from vedette_console.data.rows import NEWEST
from vedette_console.data.sql import condition
from vedette_console.web import Problem

FORMATS = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
"""Media types."""
PIECE = 256 * 1024
"""Bytes of a piece, about."""
MAPS = ("fields", "group_by")
COLUMNS = (
    "counted_at", "level", "rule_id", "rule_title", "fleet", "site", "host", "agent_id", "alert_id", "kind", "source",
    "count", "tags", "entities", "fields", "raw", "event_time", "received_at", "received_date", "bundle", "flags",
)  # fmt: skip
"""Of CSV."""
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")  # what spreadsheets take for them


def check(q: str, format: str, now: datetime | None = None) -> None:
    """Raises Problem 400 for a search or format that ``lines`` would refuse, before the first line is sent."""
    parse(q, now_or(now))
    if format not in FORMATS:
        raise Problem(400, f"there is no format {format}", where="format", what_to_do="write ndjson or csv")


def lines(reader: Reader, q: str = "", format: str = "ndjson", now: datetime | None = None) -> Iterator[bytes]:
    """The lines in pieces of about ``PIECE`` bytes."""
    check(q, format, now)
    asked = parse(q, now_or(now))
    test, write = condition(asked), _csv_line if format == "csv" else _json_line
    piece = bytearray(_csv(COLUMNS) if format == "csv" else b"")
    # File by file, so that memory holds the sorted alerts of one file.
    for file in files_of(reader, asked):
        reader.show("alerts", ALERTS, [file])
        for row in reader.stream(f"SELECT * EXCLUDE (batch) FROM alerts WHERE {test} ORDER BY {NEWEST}"):
            piece += write(row)
            if len(piece) >= PIECE:
                yield bytes(piece)
                piece.clear()
    if piece:
        yield bytes(piece)


def _whole(row: Row) -> dict[str, Any]:
    return {key: dict(value) if key in MAPS and value is not None else value for key, value in row.items()}


def _json_line(row: Row) -> bytes:
    return orjson.dumps(_whole(row), default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z)


def _csv_line(row: Row) -> bytes:
    values = _whole(row)
    return _csv([_cell(values[name]) for name in COLUMNS])


def _cell(value: Any) -> str:
    """A cell that a spreadsheet takes for a text."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
    if isinstance(value, dict | list):
        return orjson.dumps(value, default=str, option=orjson.OPT_UTC_Z).decode()
    cell = str(value)
    return f"'{cell}" if cell.startswith(_FORMULA) and isinstance(value, str) else cell


def _csv(cells: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode(errors="replace")
