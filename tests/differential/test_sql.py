"""SQL as Apache Flink answers it: the vectors of ``sql/*.json`` (``flink.py`` has their format) against the same text.

Each goes the whole way of a rule: text, plan, the plan as bytes, decoded events, the network of operators. Of a
statement the rows are equal as a bag (Flink gives the rows of one time in the order of a hash), of an expression the
value for each event. What Flink refuses is refused here, and so is what would update its result; what dies there is
refused, or its row is dropped and counted. An entry with ``ours`` says where this is meant to differ: ``refused`` (by
name, where rules are written), ``accepted`` (what Flink refuses), ``final`` (what Flink updates: the rows that are left
of it), or the rows or values; each has to be as it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from tests.differences import differences
from tests.differential.flink import remaining
from tests.lookup.tables import lookup_of
from vedette.decode.decoder import from_mapping
from vedette.lookup.table import Lookup
from vedette.plan.plan import Plan
from vedette.plan.query import Row, Type
from vedette.rules import build
from vedette.stream.reader import Event
from vedette.stream.statements import Statements
from vedette.stream.values import dates, numbers
from vedette.udf.host import Host

FOLDER = Path(__file__).parent / "sql"
FILES = sorted(FOLDER.glob("*.json"))


def declarations(case: dict[str, Any], sql: str) -> str:
    """The tables and views of a file, in our words for where they come from, and the functions that ``sql`` names."""
    text = ""
    for table in case["tables"]:
        if "keys" in table:
            options = f"'connector' = 'vedette', 'lookup' = '{table['name']}'"
            text += f"CREATE TABLE {table['name']} ({table['columns']}) WITH ({options});\n"
            continue
        first = table["columns"].split()[0]
        mark = f", WATERMARK FOR {first} AS {table['watermark']}" if table.get("watermark") else ""
        options = f"'connector' = 'vedette', 'input' = '{table['name']}'"
        text += f"CREATE TABLE {table['name']} ({table['columns']}{mark}) WITH ({options});\n"
    asked = (one for one in case.get("before", ()) if "PYTHON" not in one or one.split()[3] in sql)
    return text + "".join(f"{one};\n" for one in asked)


LOOKUP_TYPES = {"STRING": "text", "INT": "int", "BIGINT": "int", "DOUBLE": "float", "BOOLEAN": "bool"}


def lookups_of(case: dict[str, Any], folder: Path) -> dict[str, Lookup]:
    """The lookups of a file, built as ``vedette lookup build`` builds them; of several keys the first is the index."""
    found = {}
    for table in case["tables"]:
        if "keys" not in table:
            continue
        columns = [column.split() for column in table["columns"].split(", ")]
        types = {name: LOOKUP_TYPES[kind] for name, kind in columns}
        keys = " ".join(f"{key}:{'text' if types[key] == 'text' else 'number'}" for key in table["keys"].split()[:1])
        rows = [tuple(row.get(name) for name in types) for row in table["events"]]
        if valid := any("since" in row or "until" in row for row in table["events"]):
            types |= {"since": "time", "until": "time"}
            times = ([row.get(name) for name in ("since", "until")] for row in table["events"])
            rows = [(*row, *(time and stamp(time) for time in pair)) for row, pair in zip(rows, times, strict=True)]
        found[table["name"]] = lookup_of(
            folder / f"{table['name']}.vlookup", " ".join(map(":".join, types.items())), keys, rows,
            valid=("since", "until") if valid else None, duplicates="refuse" if " " not in table["keys"] else "keep",
        )  # fmt: skip
    return found


def stamp(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000) * 1000


RECEIVED = stamp("2100-01-01T00:00:00")
"""From then on events of tables with PROCTIME() are received, one each millisecond."""


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
    text = re.sub(r"MULTISET<(\w+)>", r"MAP<\1, INT>", text)
    return re.sub(r"INTERVAL (SECOND|MONTH).*", r"INTERVAL_\1", text).replace("CHAR(0)", "CHAR")


Found = tuple[list[tuple[str, Type]], list[Row], int]
"""Columns, rows, and how many rows failed."""


class Refused(Exception):
    pass


class Vectors(NamedTuple):
    """A file, and what its statements share."""

    case: dict[str, Any]
    lookups: dict[str, Lookup]
    host: Host | None
    """For functions in Python."""


@contextmanager
def opened(case: dict[str, Any], host: Host | None = None) -> Iterator[Vectors]:
    with TemporaryDirectory() as folder, ExitStack() as stack:
        lookups = lookups_of(case, Path(folder))
        for lookup in lookups.values():
            stack.enter_context(lookup)
        yield Vectors(case, lookups, host)


def rows_of(vectors: Vectors, sql: str) -> Found:
    """Columns and rows of a statement over the events of a file, and how many rows failed. Raises Refused."""
    case, lookups, host = vectors
    rules = build.empty(functions=host)
    rules.lookups = dict(lookups)
    rules.front_ends[".sql"].add(declarations(case, sql) + sql + ";\n", str(FOLDER / "vectors.sql"))
    if rules.refused:
        raise Refused(rules.refused[0].reason)
    plan = build.from_rules(rules)
    if plan.refused:
        raise Refused(plan.refused[0].reason)
    plan = Plan.from_bytes(plan.to_bytes()).with_lookups(lookups)
    running = Statements(plan.statements, lookups, functions=host, modules=plan.modules)
    wanted = [rule.id for rule in plan.rules if running.wants(rule.id)]
    found: list[Row] = []
    offset = 0
    for table in case["tables"]:
        for event in () if "keys" in table else table["events"]:
            offset += 1
            received = RECEIVED + offset * 1000 if "PROCTIME" in table["columns"] else 0
            record = from_mapping(event, received_at=received)
            one = Event(record, offset, input=table["name"], host=lambda: None, time=lambda: 0)
            for rule in wanted:
                running.feed(running.read(rule, one))
            found += [one.row for one in running.take()]
    found += [one.row for one in running.finish()]
    assert not running.failures()
    (counted,) = running.status()["statements"]
    (statement,) = plan.statements
    columns = [(one.name, one.type) for one in statement.root.columns if one.name]
    return columns, [row[: 1 + len(columns)] for row in found], counted["failed"]


def answers(vectors: Vectors, one: dict[str, Any], sql: str) -> Found | None:
    """As ``rows_of``, None where it is right that there are none."""
    meant = one.get("ours")
    said = meant if isinstance(meant, str) else "refused" if "refused" in one or one.get("updates") else ""
    try:
        found = rows_of(vectors, sql)
    except Refused as error:
        if not said.startswith("refused") and ("dies" not in one or meant):
            pytest.fail(f"refused, {error}")
        return None
    assert not said.startswith("refused"), f"should be refused: {one.get('refused') or meant}"
    if said.startswith("accepted"):
        return None
    if "dies" in one and not isinstance(meant, list):
        assert found[2], f"no row failed, in Flink: {one['dies']}"
        return None
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_flinks_answers(file: Path) -> None:
    """Types and rows of each statement of a file, type and value of each expression."""
    # Over 3 s: in some files: hundreds of statements, and functions in processes of their own.
    given = json.loads(file.read_text("utf-8"))
    with closing(Host()) as host, opened(given, host if "modules" in given else None) as vectors, differences() as case:
        for one in given.get("statements", ()):
            with case(one["sql"]):
                a_statement_gives_flinks_rows(vectors, one)
        every = given.get("expressions", ())
        plainly = [one for one in every if not one.keys() & DIFFERS]
        for batch in (plainly[start : start + TOGETHER] for start in range(0, len(plainly), TOGETHER)):
            together = values_together(vectors, batch)
            for at, one in enumerate(batch):
                with case(one["sql"]):
                    if together is None:
                        an_expression_has_flinks_value(vectors, one)
                    else:
                        they_are_flinks(one, *together[at])
        for one in every:
            if one.keys() & DIFFERS:
                with case(one["sql"]):
                    an_expression_has_flinks_value(vectors, one)


def a_statement_gives_flinks_rows(vectors: Vectors, one: dict[str, Any]) -> None:
    found = answers(vectors, one, one["sql"])
    if found is None:
        return
    columns, rows, failed = found
    assert failed == 0
    assert [str(of) for _, of in columns] == [type_text(of) for _, of in one["columns"]]
    ours = [[plain(value, of) for value, (_, of) in zip(row[1:], columns, strict=True)] for row in rows]
    if one.get("ours") == "final":
        left = remaining(one["rows"]) if one.get("updates") else list(one["rows"])
    else:
        left = list(one["ours"] if "ours" in one else one["rows"])
    for row in ours:
        match = next((other for other in left if same(row, other)), None)
        assert match is not None, f"not Flink's: {row}\nleft there: {left[:5]}"
        left.remove(match)
    assert not left, f"missing: {left[:5]}"


DIFFERS = {"ours", "refused", "dies"}
"""Of an entry that is not plainly the same here and there."""
TOGETHER = 40
"""Expressions of one statement, where Flink answers each and we do not differ."""


def values_together(vectors: Vectors, batch: list[dict[str, Any]]) -> list[tuple[Type, list[Any]]] | None:
    """Type and values of each; None when one is refused or fails, which each by itself then shows."""
    columns = ", ".join(f"{one['sql']} AS e{number}" for number, one in enumerate(batch))
    try:
        found, rows, failed = rows_of(vectors, f"SELECT {columns} FROM {vectors.case['tables'][0]['name']}")
    except (Refused, AssertionError):
        return None
    return None if failed else [(of, [row[at] for row in rows]) for at, (_, of) in enumerate(found, 1)]


def an_expression_has_flinks_value(vectors: Vectors, one: dict[str, Any]) -> None:
    """For each event."""
    found = answers(vectors, one, f"SELECT {one['sql']} AS e FROM {vectors.case['tables'][0]['name']}")
    if found is None:
        return
    ((_, of),), rows, failed = found
    assert failed == 0
    they_are_flinks(one, of, [row[1] for row in rows])


def they_are_flinks(one: dict[str, Any], of: Type, values: list[Any]) -> None:
    """The type of an expression, and its value for each event."""
    assert str(of) == type_text(one["type"])
    ours = [plain(value, of) for value in values]
    wanted = one.get("ours", one["values"])
    if of.name == "FLOAT":  # Java 17 writes more digits than it takes
        wanted = [value and numbers.single(value) for value in wanted]
    assert same(ours, wanted), f"ours:  {ours}\nFlink: {wanted}"
