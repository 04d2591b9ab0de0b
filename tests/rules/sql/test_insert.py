"""INSERT INTO a sink's table: what is stored without CAST, as Flink has it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differences import walk
from tests.rules.sql.plans import plan, read
from vedette.plan.query import Type
from vedette.rules.sql.lower.insert import becomes

SINK = "WITH ('connector' = 'sink', 'name' = 'lake')"
LAKE = f"CREATE TABLE lake (a STRING, b INT, t TIMESTAMP_LTZ(3)) {SINK};\n"

KINDS = {
    "CHAR": Type("CHAR", 3), "VARCHAR": Type("VARCHAR", 5), "STRING": Type("STRING"), "BOOLEAN": Type("BOOLEAN"),
    "BINARY": Type("BINARY", 3), "BYTES": Type("BYTES"), "DECIMAL": Type("DECIMAL", 10, 2), "TINYINT": Type("TINYINT"),
    "SMALLINT": Type("SMALLINT"), "INT": Type("INT"), "BIGINT": Type("BIGINT"), "FLOAT": Type("FLOAT"),
    "DOUBLE": Type("DOUBLE"), "DATE": Type("DATE"), "TIME": Type("TIME", 0), "TIMESTAMP": Type("TIMESTAMP", 3),
    "TIMESTAMP_LTZ": Type("TIMESTAMP_LTZ", 3), "INTERVAL_SECOND": Type("INTERVAL_SECOND"),
    "ARRAY": Type("ARRAY", args=(Type("INT"),)), "MAP": Type("MAP", args=(Type("STRING"), Type("INT"))),
}  # fmt: skip
IMPLICIT = {
    "CHAR": "CHAR", "VARCHAR": "CHAR VARCHAR STRING", "STRING": "CHAR VARCHAR STRING", "BOOLEAN": "BOOLEAN",
    "BINARY": "BINARY", "BYTES": "BINARY BYTES",
    "DECIMAL": "DECIMAL TINYINT SMALLINT INT BIGINT FLOAT DOUBLE", "TINYINT": "TINYINT", "SMALLINT": "TINYINT SMALLINT",
    "INT": "TINYINT SMALLINT INT", "BIGINT": "TINYINT SMALLINT INT BIGINT",
    "FLOAT": "TINYINT SMALLINT INT BIGINT FLOAT DECIMAL",
    "DOUBLE": "DECIMAL TINYINT SMALLINT INT BIGINT FLOAT DOUBLE", "DATE": "DATE TIMESTAMP", "TIME": "TIME TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP TIMESTAMP_LTZ", "TIMESTAMP_LTZ": "TIMESTAMP TIMESTAMP_LTZ",
    "INTERVAL_SECOND": "INTERVAL_SECOND", "ARRAY": "ARRAY", "MAP": "MAP",
}  # fmt: skip
"""By type of a column what ``LogicalTypeCasts`` of Flink 2.3 casts to it by itself."""


@walk(("source", "to"), [(source, to) for source in KINDS for to in KINDS])
def test_what_becomes_what(source: str, to: str) -> None:
    assert becomes(KINDS[source], KINDS[to]) is (source in IMPLICIT[to].split())


@walk(
    ("source", "to", "stored"),
    [
        (Type("NULL"), KINDS["INT"], True),
        (Type("ARRAY", args=(Type("INT"),)), Type("ARRAY", args=(Type("BIGINT"),)), True),
        (Type("ARRAY", args=(Type("BIGINT"),)), Type("ARRAY", args=(Type("INT"),)), False),
        (Type("MAP", args=(Type("STRING"), Type("INT"))), Type("MAP", args=(Type("STRING"), Type("STRING"))), False),
        (Type("ROW", args=(("x", Type("INT")),)), Type("ROW", args=(("y", Type("DOUBLE")),)), True),
        (Type("ROW", args=(("x", Type("INT")),)), Type("ROW", args=(("x", Type("INT")), ("y", Type("INT")))), False),
        (Type("ARRAY", args=(Type("INT"),)), Type("STRING"), False),
        (Type("CHAR", 3), Type("CHAR", 5), True),
    ],
)
def test_nested(source: Type, to: Type, stored: bool) -> None:
    assert becomes(source, to) is stored


def test_by_place_and_by_name() -> None:
    """Columns go by place or by name; the others are NULL, and values are cast to their columns' types."""
    by_name = "INSERT INTO lake (t, a) SELECT event_time, kind FROM events"
    assert plan(LAKE + by_name).startswith("Calc($3, None, $1)") or "None" in plan(LAKE + by_name)
    rules = read(
        f"CREATE TABLE l (n BIGINT, d DOUBLE) {SINK}; INSERT INTO l SELECT 1, CAST(2 AS DECIMAL(3, 1)) FROM events"
    )
    assert not rules.refused
    (statement,) = rules.statements
    assert statement.sink == "lake"
    assert [(column.name, str(column.type)) for column in statement.root.columns] == [("n", "BIGINT"), ("d", "DOUBLE")]


def test_several_split_and_union() -> None:
    """Statements that read one table, a view and a stream, into one sink and alerts, also as a set."""
    rules = read(
        LAKE + "INSERT INTO s SELECT kind, event_time FROM events WHERE kind = 'a';"
        "INSERT INTO s SELECT kind, event_time FROM events WHERE kind = 'b';"
        "EXECUTE STATEMENT SET BEGIN INSERT INTO lake (a, t) SELECT * FROM s;"
        "INSERT INTO lake (a) SELECT kind FROM events; INSERT INTO alerts SELECT kind FROM s; END;"
    )
    assert not rules.refused, rules.refused
    assert [statement.sink for statement in rules.statements] == ["lake", "lake", ""]
    assert len({statement.id for statement in rules.statements}) == 3


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("INSERT INTO lake SELECT kind, kind, NULL FROM events", "b of lake is INT, the 2. of the query STRING"),
        ("INSERT INTO lake SELECT kind FROM events", "1 columns for 3 of lake"),
        ("INSERT INTO lake (a, c) SELECT kind, kind FROM events", "lake has no column c"),
        ("INSERT INTO lake (a, a) SELECT kind, kind FROM events", "the column a twice"),
        ("SELECT a FROM lake", "lake is a sink, which is only written to"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'sink')", "the sink x needs the 'name' of a [[sink]]"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'sink', 'name' = 'a b')", "the sink x needs the 'name'"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'sink', 'name' = 'l', 'format' = 'json')", "no option 'format'"),
        (f"CREATE TABLE x (a INT, b AS a + 1) {SINK}", "the sink x has plain columns only"),
        (f"CREATE TABLE x (a TIMESTAMP(3), WATERMARK FOR a AS a) {SINK}", "the sink x has plain columns only"),
        (f"CREATE TABLE x (a ARRAY<MAP<INT, INT>>) {SINK}", "a: the keys of a MAP in JSON are texts"),
    ],
)  # fmt: skip
def test_refused(sql: str, reason: str) -> None:
    """With a reason; and what else the file has stays."""
    rules = read(f"{LAKE}{sql};\nINSERT INTO lake (a) SELECT kind FROM events;")
    assert reason in rules.refused[0].reason
    assert len(rules.refused) == 1
    assert [statement.sink for statement in rules.statements] == ["lake"]


def test_a_sink_that_is_refused_takes_nothing() -> None:
    rules = read("CREATE TABLE x (a INT) WITH ('connector' = 'sink');\nINSERT INTO x SELECT 1 FROM events;")
    assert [refusal.reason for refusal in rules.refused][1:] == [
        "x cannot be used: line 1, which says what it is, is refused"
    ]
    assert not rules.statements


def test_the_example() -> None:
    """``examples/etl`` routes one table to two sinks and alerts."""
    rules = read((Path(__file__).parents[3] / "examples" / "etl" / "route.sql").read_text())
    assert not rules.refused, rules.refused
    assert [statement.sink for statement in rules.statements] == ["lake", "control", "control", ""]
