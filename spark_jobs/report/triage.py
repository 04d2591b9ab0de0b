"""The decisions of people about findings: which decision holds, and what it means for the report.

A decision is a row of ``TRIAGE``; the newest of a finding holds until it expires. One that dates itself after now was
made while a clock was ahead, and does not count (``MADE``). A finding that was closed and is
active again is shown as one that is not closed, with the decision beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import pyarrow as pa

from spark_jobs.report.figures import Line, lines
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.ask import Reader
from spark_jobs.tables.schema import TRIAGE
from spark_jobs.tables.tables import Tables, texts

MAX_TEXT = 500
"""Characters that are kept of a text of a decision."""

MADE = "updated_at <= current_timestamp + INTERVAL '5' MINUTE"
"""SQL: whether a row of ``TRIAGE`` was made by now, as far as clocks of those who decide agree."""

STATES = ("new", "acknowledged", "assigned", "true-positive", "false-positive")
CLOSED = ("true-positive", "false-positive")

NEW = Line(state="new", assignee="", reason="", author="", expires_at=None, updated_at=None)
"""Of a finding about which nothing was decided."""


def mistake(state: str, assignee: str, reason: str, option: str = "") -> str:
    """Say what a decision lacks, or has too much; empty for none. ``option`` stands before names of values."""
    if state == "assigned" and not assignee.strip():
        return f"{option}state assigned needs {option}assignee"
    if assignee and state != "assigned":
        return f"{option}assignee belongs to {option}state assigned"
    if state in CLOSED and not reason.strip():
        return f"{option}state {state} needs {option}reason"
    return ""


def decide(
    tables: Tables, finding: str, kind: str, state: str, *, author: str, now: datetime, assignee: str = "",
    reason: str = "", expires: datetime | None = None,
) -> Line:  # fmt: skip
    """Keep what ``author`` decides at ``now`` about a finding; the decision as it is kept."""
    row = {
        "finding_id": finding, "kind": kind, "state": state, "assignee": assignee[:MAX_TEXT],
        "reason": reason[:MAX_TEXT], "author": author[:MAX_TEXT], "expires_at": expires, "updated_at": now,
    }  # fmt: skip
    tables.append(TRIAGE, pa.Table.from_pylist([row], arrow_schema(TRIAGE.columns)))
    return Line(**row)


def decisions(reader: Reader, findings: Collection[str] | None, now: datetime) -> dict[str, Line]:
    """The decisions that hold at ``now`` about those of ``findings`` (ids; None: all), by id."""
    if findings is not None and not findings:
        return {}
    asked = "" if findings is None else f"AND finding_id IN ({texts(set(findings))})"
    reader.view("triage", TRIAGE)
    rows = lines(
        reader,
        f"""SELECT finding_id, state, coalesce(assignee, '') AS assignee, coalesce(reason, '') AS reason,
            coalesce(author, '') AS author, expires_at, updated_at FROM (
                SELECT *, row_number() OVER (PARTITION BY finding_id ORDER BY updated_at DESC, state) AS place
                FROM triage WHERE {MADE} {asked}) t
        WHERE place = 1""",
    )
    return {row.finding_id: row for row in rows if row.expires_at is None or row.expires_at > now}


def closed(finding: Line, last: datetime | None) -> bool:
    """Whether ``finding`` (with its ``triage``) is closed, and was not active at ``last``, after the decision."""
    return finding.triage.state in CLOSED and (last is None or last <= finding.triage.updated_at)


def words(triage: Line) -> str:
    """A decision in a few words; empty for a new finding."""
    if triage.state == "new":
        return ""
    who = f" to {triage.assignee}" if triage.state == "assigned" else ""
    until = f", until {triage.expires_at:%-d %b %Y}" if triage.expires_at else ""
    why = f": {triage.reason}" if triage.reason else ""
    return f"{triage.state.replace('-', ' ')}{who} by {triage.author}, {triage.updated_at:%-d %b %H:%M}{until}{why}"
