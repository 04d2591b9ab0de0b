"""Title, level and tags of each rule, so that no single member of the fleet decides them for the region.

What the region itself published (``published``) stands, also in a later run that sees no list. Of any other
rule the level is the highest that an alert says, and its tactics are all that alerts name: so one member can raise a
rule, never lower it. Title and tags are those of which several agents speak in a batch; where no two agree the table's
stay, and of a new rule the newest are taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.common.attack import TACTICS, of_tags
from spark_jobs.common.entities import LEVELS
from spark_jobs.intake.published import Listed
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.schema import RULES

_SCHEMA = pa.schema([*arrow_schema(RULES.columns), ("rows", pa.int64()), ("odd", pa.int64())])
_COUNTS = (*RULES.sums, "rows", "odd")

_Row: TypeAlias = Mapping[str, Any]
_Texts: TypeAlias = tuple[str | None, tuple[str | None, ...] | None]
"""A title, and tags."""


def resolved(named: pa.Table, former: pa.Table | None = None, listed: Listed | None = None) -> pa.Table:
    """The rows of ``RULES`` for the rules in ``named`` (``sums.rule_texts``), with the number of alerts (``rows``) and
    of ``odd`` times among them. ``former`` are rows of the table: ``last_time`` is no earlier than theirs, so that an
    upsert takes the texts."""
    of_rules: dict[str, list[_Row]] = defaultdict(list)
    for row in _plain(named):
        of_rules[row["rule_id"]].append(row)
    before: dict[str, _Row] = {}
    if former is not None and former.num_rows:
        mine = pc.is_in(former["rule_id"], value_set=pa.array(of_rules, pa.string()))
        before = {row["rule_id"]: row for row in _plain(former.filter(mine))}
    rows = [_of_rule(id, those, before.get(id), (listed or {}).get(id)) for id, those in of_rules.items()]
    return pa.Table.from_arrays([_column(rows, field) for field in _SCHEMA], schema=_SCHEMA)


def _of_rule(rule_id: str, rows: Sequence[_Row], former: _Row | None, listed: _Row | None) -> dict[str, Any]:
    last_times = [row["last_time"] for row in ([*rows, former] if former else rows)]
    return {
        "rule_id": rule_id,
        **(_texts(rows, former) if listed is None else _published(listed)),
        **{name: sum(row[name] for row in rows) for name in _COUNTS},
        "first_time": min(row["first_time"] for row in rows),
        "last_time": max(time for time in last_times if time is not None),
        "first_landed": min(row["first_landed"] for row in rows),
    }


def _published(rule: _Row) -> dict[str, Any]:
    tactics, techniques = of_tags(rule["tags"])
    return {
        "rule_title": rule["title"], "level": rule["level"], "tags": rule["tags"], "tactics": tactics,
        "techniques": techniques, "published": True,
    }  # fmt: skip


def _texts(rows: Iterable[_Row], former: _Row | None) -> dict[str, Any]:
    if former and former["published"]:
        return {name: former[name] for name in ("rule_title", "level", "tags", "tactics", "techniques", "published")}
    levels = {former["level"] or ""} if former else set[str]()
    tactics = set[str]((former["tactics"] if former else None) or ())
    agents, newest = defaultdict[_Texts, set[int]](set), dict[_Texts, int]()
    for row in rows:
        texts = row["rule_title"], None if row["tags"] is None else tuple(row["tags"])
        agents[texts].update((row["least_agent"], row["most_agent"]))
        newest[texts] = max(row["last_time"], newest.get(texts, row["last_time"]))
        levels.add(row["level"])
        tactics.update(of_tags(row["tags"])[0])
    agreed = [texts for texts, those in agents.items() if len(those) > 1]
    if former and not agreed:
        title, tags = former["rule_title"], former["tags"]
    else:
        title, tags = max(agreed or agents, key=lambda texts: (newest[texts], repr(texts)))
    return {
        "rule_title": title,
        "level": max(levels, key=lambda level: (LEVELS.index(level) if level in LEVELS else -1, level)),
        "tags": tags,
        "tactics": [tactic for tactic in TACTICS if tactic in tactics],
        "techniques": of_tags(tags)[1],
        "published": False,
    }


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Times as microseconds: those at the ends of the calendar are none of Python's."""
    columns = [
        column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in rows.columns
    ]
    plain: list[dict[str, Any]] = pa.table(columns, names=rows.column_names).to_pylist()
    return plain


def _column(rows: Iterable[_Row], field: pa.Field) -> pa.Array:
    values = [row[field.name] for row in rows]
    if pa.types.is_timestamp(field.type):
        return pa.array(values, pa.int64()).cast(field.type)
    return pa.array(values, field.type)
