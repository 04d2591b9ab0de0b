"""SQL as Apache Flink answers it: the vectors of ``sql/*.json`` (``flink.py`` has their format) through the front end
and the operators.

Of a statement the rows are equal as a bag (Flink gives the rows of one time in the order of a hash), of an expression
the value for each event. What Flink refuses is refused here; of what dies there the row is dropped and counted. An
entry with ``ours`` says where this is meant to differ: ``refused`` (by name, where rules are written), ``accepted``
(what Flink refuses), or the values.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vedette.plan.query import Row, Type
from vedette.rules.ruleset import RuleSet
from vedette.rules.sql.frontend import Sql
from vedette.stream.functions import dates, numbers
from vedette.stream.keyed import Budget
from vedette.stream.network import Network
from vedette.stream.reader import converter

FILES = sorted((Path(__file__).parent / "sql").glob("*.json"))


@cache
def vectors(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text("utf-8"))


def open_in(file: Path, key: str) -> dict[int, str]:
    return OPEN.get(file.stem, {}) if key == "statements" else {}


OPEN = {
    "expand-union": {1: "equal parts of a UNION ALL", 3: "WITH ORDINALITY", 11: "WITH ORDINALITY"},
    "pattern-quantifiers": dict.fromkeys(range(33), "DEFINE of what PATTERN does not have, X{2,}"),
}
"""Statements that are not answered yet, by file and number."""


def entries(key: str) -> list[Any]:
    return [
        pytest.param(
            file,
            number,
            id=f"{file.stem}-{number}",
            marks=[pytest.mark.xfail(reason=OPEN[file.stem][number])] if number in open_in(file, key) else [],
        )
        for file in FILES
        for number in range(len(vectors(file).get(key, ())))
    ]


def declarations(given: dict[str, Any]) -> str:
    """The tables and views of a file, in our words for where they come from."""
    text = ""
    for table in given["tables"]:
        first = table["columns"].split()[0]
        mark = f", WATERMARK FOR {first} AS {table['watermark']}" if table.get("watermark") else ""
        text += f"CREATE TABLE {table['name']} ({table['columns']}{mark}) WITH ('connector' = 'vedette');\n"
    return text + "".join(f"{one};\n" for one in given.get("before", ()))


def plain(value: Any, of: Type) -> Any:
    """A value as vectors have it."""
    if value is None:
        return None
    match of.name:
        case "DECIMAL":
            return format(value, "f")
        case "FLOAT":
            return numbers.single(value)
        case "DATE":
            return dates.date_text(value)
        case "TIME":
            return short(dates.time_text(value, 3))
        case "TIMESTAMP" | "TIMESTAMP_LTZ":
            return short(dates.stamp_text(value, 6).replace(" ", "T"))
        case "BINARY" | "VARBINARY" | "BYTES":
            return value.hex()
        case "ARRAY":
            return [plain(one, of.args[0]) for one in value]
        case "ROW":
            return [plain(one, kind) for one, (_, kind) in zip(value, of.args, strict=True)]
        case "MAP":
            pairs = ([plain(key, of.args[0]), plain(one, of.args[1])] for key, one in value.items())
            return sorted(pairs, key=repr)
    return value


def short(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def same(ours: Any, flink: Any) -> bool:
    """Equal, of floats but for the last digits (Java's logarithms and powers are not to the last bit Python's)."""
    if isinstance(ours, float) and isinstance(flink, float):
        return ours == flink or (ours != ours and flink != flink) or abs(ours - flink) <= 1e-14 * abs(flink)
    if isinstance(ours, list) and isinstance(flink, list):
        return len(ours) == len(flink) and all(map(same, ours, flink))
    return type(ours) is type(flink) and ours == flink


def type_text(text: str) -> str:
    """A type as ``Type`` writes it, of Flink's text."""
    text = re.sub(r" NOT NULL| \*ROWTIME\*|`", "", text)
    return re.sub(r"INTERVAL (SECOND|MONTH).*", r"INTERVAL_\1", text).replace("CHAR(0)", "CHAR")


Found = tuple[list[tuple[str, Type]], list[Row], int]
"""Columns, rows, and how many rows failed."""


class Refused(Exception):
    pass


def rows_of(given: dict[str, Any], sql: str) -> Found:
    """Columns and rows of a statement over the events of a file, and how many rows failed. Raises Refused."""
    rules = RuleSet()
    Sql(rules).add(declarations(given) + sql + ";\n", "vectors.sql")
    if rules.refused:
        raise Refused(rules.refused[0].reason)
    statements = rules.statements
    network = Network(statements, Budget())
    offset = 0
    for table in given["tables"]:
        for event in table["events"]:
            offset += 1
            for rule, scans in network.scans.items():
                for at, scan in enumerate(scans):
                    if scan.table == table["name"]:
                        values = [
                            None if event.get(source.path) is None else converter(named.type)(event[source.path])
                            for named, source in zip(scan.columns, scan.sources, strict=True)
                        ]
                        network.feed(rule, (offset, *values), at)
    found = [row for _, row in network.finish()]
    failed = sum(operator.failed for operator in network.operators.values())
    columns = [(one.name, one.type) for one in statements[0].root.columns]
    return columns, found, failed


def answers(given: dict[str, Any], one: dict[str, Any], sql: str) -> Found | None:
    """As ``rows_of``, None where it is right that there are none."""
    meant = one.get("ours")
    said = meant if isinstance(meant, str) else "refused" if "refused" in one or one.get("updates") else ""
    try:
        found = rows_of(given, sql)
    except Refused as error:
        if not said.startswith("refused") and "dies" not in one:
            pytest.fail(f"{sql}: refused, {error}")
        return None
    assert not said.startswith("refused"), f"{sql}: should be refused: {one.get('refused') or meant}"
    if said.startswith("accepted"):
        return None
    if "dies" in one:
        assert found[2], f"{sql}: no row failed, in Flink: {one['dies']}"
        return None
    return found


@pytest.mark.parametrize(("file", "number"), entries("statements"))
def test_a_statement_gives_flinks_rows(file: Path, number: int) -> None:
    """Types and rows of each statement."""
    given = vectors(file)
    one = given["statements"][number]
    found = answers(given, one, one["sql"])
    if found is None:
        return
    columns, rows, failed = found
    assert failed == 0
    assert [str(of) for _, of in columns] == [type_text(of) for _, of in one["columns"]]
    ours = [[plain(value, of) for value, (_, of) in zip(row[1:], columns, strict=True)] for row in rows]
    left = list(one["rows"])
    for row in ours:
        match = next((other for other in left if same(row, other)), None)
        assert match is not None, f"{one['sql']}\n  not Flink's: {row}\n  left there: {left[:5]}"
        left.remove(match)
    assert not left, f"{one['sql']}\n  missing: {left[:5]}"


@pytest.mark.parametrize(("file", "number"), entries("expressions"))
def test_an_expression_has_flinks_value(file: Path, number: int) -> None:
    """Type and value of each expression, for each event."""
    given = vectors(file)
    one = given["expressions"][number]
    found = answers(given, one, f"SELECT {one['sql']} AS e FROM {given['tables'][0]['name']}")
    if found is None:
        return
    ((_, of),), rows, failed = found
    assert failed == 0
    assert str(of) == type_text(one["type"]), one["sql"]
    ours = [plain(row[1], of) for row in rows]
    wanted = one.get("ours", one["values"])
    if of.name == "FLOAT":  # Java 17 writes more digits than it takes
        wanted = [value and numbers.single(value) for value in wanted]
    assert same(ours, wanted), f"{one['sql']}\n  ours:  {ours}\n  Flink: {wanted}"
