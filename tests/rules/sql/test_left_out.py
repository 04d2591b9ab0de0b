"""What stands behind a refused statement gets no other meaning by it: it is refused, too, and says why."""

from __future__ import annotations

from tests.differences import walk
from tests.rules.sql.plans import plan, read

OWN = "WITH ('connector' = 'vedette')"
TABLE = f"CREATE TABLE t (a STRING) {OWN};\n"
READS = "INSERT INTO alerts SELECT a FROM {} WHERE a = 'x';"
EVENTS = READS.format("events")


def refused(sql: str) -> list[tuple[int, str]]:
    return [(one.line, one.reason) for one in read(sql).refused]


@walk(
    ("declaration", "name"),
    [
        ("CREATE TABLE events (a STRING) WITH ('connector' = 'kafka')", "events"),
        ("CREATE TABLE events (a BLOB) WITH ('connector' = 'vedette')", "events"),
        ("CREATE TABLE IF NOT EXISTS `events` (a STRING, PRIMARY KEY (a) NOT ENFORCED) WITH ('x' = 'y')", "events"),
        (f"CREATE TEMPORARY TABLE /* all */ events (a STRING, a INT) {OWN}", "events"),
        (f"CREATE OR REPLACE TABLE events (a STRING) {OWN}", "events"),
        ("CREATE TABLE events LIKE t", "events"),
        ("CREATE TABLE events AS SELECT a FROM t", "events"),
        ("CREATE VIEW events AS SELECT nosuch FROM t", "events"),
        ("CREATE VIEW events AS SELECT a FROM t ORDER BY a", "events"),
        ("CREATE MATERIALIZED VIEW t AS SELECT a FROM t", ""),
        ("INSERT INTO events SELECT a FROM t", "events"),
        (f"CREATE TABLE t (a INT) {OWN}", "t"),
        ("CREATE VIEW t AS SELECT a AS a FROM t", "t"),
        ("INSERT INTO t SELECT a FROM t", "t"),
        ("EXECUTE STATEMENT SET BEGIN INSERT OVERWRITE t SELECT a FROM t", "t"),
        ("CREATE TABLE c.d.events (a STRING) WITH ('connector' = 'kafka')", ""),
        ("CREATE CATALOG c WITH ('type' = 'jdbc')", ""),
        ("USE CATALOG c", ""),
        ("USE d", ""),
        ("SET 'table.local-time-zone' = 'Asia/Tokyo'", ""),
        ("DROP TABLE events", ""),
        ("ALTER TABLE events ADD (b STRING)", ""),
        ("LOAD MODULE hive", ""),
        ("CRAETE TABLE events (a STRING) WITH ('connector' = 'kafka')", ""),
    ],
)
def test_what_reads_it_is_refused(declaration: str, name: str) -> None:
    """A rule that reads the name of a refused declaration, and any rule behind one that may say anything."""
    rules = read(f"{TABLE}{declaration};\n{READS.format(name or 'events')}")
    assert (rules.statements, rules.rules, rules.predicates) == ([], [], [])
    assert [one.line for one in rules.refused] == [2, 3]
    expected = f"{name} cannot be used: line 2, which says what it is" if name else "line 2 is refused, and may change"
    assert expected in rules.refused[1].reason
    assert rules.refused[1].column


@walk("bad", ["SELECT nosuch FROM t", "INSERT INTO alerts SELECT a, a FROM t", "VALUES (1)", "WITH x AS (SELECT"])
def test_a_rule_is_refused_by_itself(bad: str) -> None:
    """No rule hangs on another one."""
    assert len(read(f"{TABLE}{bad};\n{EVENTS}").statements) == 1


def test_other_names_are_untouched() -> None:
    """What does not read the name runs."""
    rules = read(f"CREATE TABLE events (a BLOB) {OWN};\n{TABLE}{READS.format('t')}")
    assert [one.line for one in rules.refused] == [1]
    assert len(rules.statements) == 1


def test_a_stream_lacks_no_part() -> None:
    """Of what is inserted into a stream either all is read or nothing."""
    sql = f"{TABLE}INSERT INTO s SELECT a FROM t;\nINSERT INTO s SELECT b FROM t;\n{READS.format('s')}"
    assert refused(sql) == [
        (3, "there is no column b"),
        (4, "s cannot be used: line 3, which says what it is, is refused"),
    ]


def test_over_views() -> None:
    """A view of what is refused is refused, and what reads the view; a name that WITH gives is another one."""
    sql = f"CREATE TABLE t (a BLOB) {OWN};\nCREATE VIEW v AS SELECT a FROM t;\n{READS.format('v')}"
    assert [line for line, _ in refused(sql)] == [1, 2, 3]
    sql = f"CREATE TABLE t (a BLOB) {OWN};\nWITH t AS (SELECT a FROM events) SELECT a FROM t"
    assert [line for line, _ in refused(sql)] == [1]


@walk(
    ("declaration", "call"),
    [
        ("CREATE FUNCTION upper AS 'x.F' USING JAR 'x.jar'", "UPPER(a)"),
        ("CREATE TEMPORARY SYSTEM FUNCTION upper AS 'x.F' LANGUAGE PYTHON", "upper(a)"),
    ],
)
def test_functions(declaration: str, call: str) -> None:
    """A function that is refused is not the one of Flink with its name."""
    found = refused(f"{declaration};\nSELECT {call} AS b FROM events;\nSELECT a FROM events")
    assert [line for line, _ in found] == [1, 2]
    assert "UPPER cannot be called: " in found[1][1]


@walk("declaration", ["CREATE FUNCTION count AS 'x.F' USING JAR 'y'", "CREATE FUNCTION sum AS 'x.F' LANGUAGE PYTHON"])
def test_aggregates(declaration: str) -> None:
    """Calls of Flink's aggregates ask for no other: nothing behind it runs."""
    query = "SELECT COUNT(*) OVER (ORDER BY event_time) AS n FROM events"
    assert [line for line, _ in refused(f"{declaration};\n{query}")] == [1, 2]


def test_alerts_is_not_what_the_file_says() -> None:
    """Columns that a refused CREATE TABLE alerts names would be the alert's."""
    sql = f"CREATE TABLE alerts (who STRING) WITH ('connector' = 'kafka');\n{EVENTS}"
    assert [line for line, _ in refused(sql)] == [1, 2]


def test_a_declared_table_shadows_the_built_in_one() -> None:
    """With its own columns and input; once it was read, the name has its meaning."""
    own = f"CREATE TABLE events (a STRING) WITH ('connector' = 'vedette', 'input' = 'plant');\n{EVENTS}"
    assert plan(own) == "Calc($1 | =($1, 'x'))\n  Scan(events: a; of plant)"
    assert plan(f"CREATE TABLE IF NOT EXISTS {own.removeprefix('CREATE TABLE ')}") == plan(own)
    assert plan(f"{TABLE}CREATE VIEW events AS SELECT a FROM t;\n{EVENTS}").endswith("Scan(t: a)")
    assert plan(f"{TABLE}INSERT INTO alerts SELECT a FROM t;\n{own}") == plan(own)
    assert [line for line, _ in refused(own.replace(" a FROM", " b FROM"))] == [2]
    assert refused(f"{EVENTS}\n{own}") == [
        (2, "events is read already, as the table of all events"),
        (3, "events cannot be used: line 2, which says what it is, is refused"),
    ]


def test_if_not_exists() -> None:
    """What the file has declared before stays, as in Flink."""
    again = "CREATE TABLE IF NOT EXISTS t (b INT) WITH ('connector' = 'vedette');\n"
    assert plan(f"{TABLE}{again}{READS.format('t')}") == plan(f"{TABLE}{READS.format('t')}")
    again = "CREATE VIEW IF NOT EXISTS t AS SELECT a AS b FROM t;\n"
    assert plan(f"{TABLE}{again}{READS.format('t')}") == plan(f"{TABLE}{READS.format('t')}")
