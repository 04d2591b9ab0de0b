"""What Flink answered (``sql/*.json``, kept by ``flink.py``) against the same text here: compiled, fed, compared.

Each statement goes the whole way of a rule: text, plan, plan as bytes, decoded events, network of operators. Rows are
compared as a bag; where Flink refuses, so does the front end, and so where its result would be updated. Of failing rows
(Flink's job dies) the others are given here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from vedette.decode.decoder import from_mapping
from vedette.plan.plan import Plan
from vedette.plan.query import Statement, Type
from vedette.rules import build
from vedette.rules.ruleset import RuleSet
from vedette.rules.sql.frontend import Sql
from vedette.stream.reader import Event
from vedette.stream.statements import Statements

FOLDER = Path(__file__).parent / "sql"
EPOCH = datetime(1970, 1, 1)
DIFFERENT = (
    "Y may take no row behind X",
    "HOP's size is not shorter than its slide",
    "ROWS from the first row on is not there",
)
"""Refused here by name, though Flink plans them."""


NOT_REPEATABLE = {
    ("expand-union.json", 1): "of three parts of a UNION ALL, Flink's window has the rows of the first alone",
    ("join-two-tables.json", 12): "which kept rows a late row joins depends on which table Flink reads first",
}
"""Answers that follow from the order in which Flink read its files."""


def vectors() -> list[tuple[str, int]]:
    files = sorted(FOLDER.glob("*.json"))
    counts = ((path.name, len(json.loads(path.read_text("utf-8")).get("statements", ()))) for path in files)
    return [(name, at) for name, count in counts for at in range(count)]


def declared(table: dict[str, Any]) -> str:
    columns = table["columns"]
    if mark := table.get("watermark"):
        columns += f", WATERMARK FOR {columns.split()[0]} AS {mark}"
    return f"CREATE TABLE `{table['name']}` ({columns}) WITH ('connector' = 'vedette', 'input' = '{table['name']}');\n"


def compiled(vector: dict[str, Any], statement: dict[str, Any]) -> RuleSet:
    before = "".join(f"{one};\n" for one in vector.get("before", ()))
    names = ", ".join(f"`c{at}`" for at in range(len(statement.get("columns", ()))))
    columns = f" ({names})" if names else ""
    rules = build.empty()
    sql = "".join(map(declared, vector["tables"])) + before + f"INSERT INTO alerts{columns} {statement['sql']}"
    front = rules.front_ends[".sql"]
    assert isinstance(front, Sql)
    front.add(sql, "vector.sql")
    return rules


def given(plan: Plan, vector: dict[str, Any]) -> list[tuple[Statement, tuple[Any, ...]]]:
    """The rows of the plan's statement, in the order given."""
    running = Statements(plan.statements)
    found = []
    offset = 0
    for table in vector["tables"]:
        for event in table["events"]:
            offset += 1
            one = Event(from_mapping(event), offset, input=table["name"], host=None, time=0)
            for rule in plan.rules:
                if running.wants(rule.id):
                    running.feed(running.read(rule.id, one))
            found += running.take()
    found += running.finish()
    return [(one.statement, one.row) for one in found]


def plain(value: Any, of: Type) -> Any:
    """A value of a row as something to compare."""
    if value is None:
        return None
    match of.name:
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return EPOCH + timedelta(microseconds=value)
        case "DATE":
            return (EPOCH + timedelta(days=value)).date()
        case "TIME":
            return (EPOCH + timedelta(milliseconds=value)).time()
        case "DOUBLE" | "FLOAT":
            return "NaN" if math.isnan(value) else float(f"{value:.12g}") if math.isfinite(value) else value
        case "DECIMAL":
            return Decimal(value)
        case "BYTES" | "BINARY" | "VARBINARY":
            return value.hex()
        case "ARRAY":
            return tuple(plain(one, of.args[0]) for one in value)
        case "ROW":
            return tuple(plain(one, kind) for one, (_, kind) in zip(value, of.args, strict=True))
        case "MAP":
            return frozenset((plain(key, of.args[0]), plain(one, of.args[1])) for key, one in value.items())
    return value


def kept(value: Any, of: Type) -> Any:
    """A value of a vector as something to compare."""
    if value is None:
        return None
    match of.name:
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            moment = datetime.fromisoformat(value)
            return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
        case "DATE":
            return date.fromisoformat(value)
        case "TIME":
            return time.fromisoformat(value)
        case "DOUBLE" | "FLOAT":
            return plain(float(value), of)
        case "DECIMAL":
            return Decimal(value)
        case "ARRAY":
            return tuple(kept(one, of.args[0]) for one in value)
        case "ROW":
            return tuple(kept(one, kind) for one, (_, kind) in zip(value, of.args, strict=True))
        case "MAP":
            return frozenset((kept(key, of.args[0]), kept(one, of.args[1])) for key, one in value)
    return value


@pytest.mark.parametrize(("file", "number"), vectors())
def test_rows_are_those_of_flink(file: str, number: int) -> None:
    """The same text over the same events gives the rows that Flink gave, or is refused where Flink refuses it."""
    vector = json.loads((FOLDER / file).read_text("utf-8"))
    statement = vector["statements"][number]
    rules = compiled(vector, statement)
    if "refused" in statement or statement.get("updates"):
        assert rules.refused
        return
    if rules.refused and any(one in rules.refused[0].reason for one in DIFFERENT):
        return
    assert not rules.refused, rules.refused[0]
    plan = Plan.from_bytes(build.from_rules(rules).to_bytes())
    types = [one.type for one in plan.statements[0].root.columns]
    rows = Counter(
        tuple(plain(value, kind) for value, kind in zip(row[1:], types, strict=True)) for _, row in given(plan, vector)
    )
    expected = Counter(
        tuple(kept(value, kind) for value, kind in zip(row, types, strict=True)) for row in statement.get("rows", ())
    )
    if "dies" not in statement and (file, number) not in NOT_REPEATABLE:
        assert rows == expected
