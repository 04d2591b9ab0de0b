"""User functions in SQL: what their modules say is what is checked; calls become steps of their own in the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.differences import walk
from tests.rules.sql.plans import _lines
from vedette.plan.plan import Plan
from vedette.plan.query import Apply, nodes
from vedette.rules import build
from vedette.rules.ruleset import RuleSet
from vedette.udf.host import Host

MODULE = """
from pyflink.table import DataTypes
from pyflink.table.udf import AggregateFunction, udaf, udf, udtf
from .text import cut

twice = udf(lambda n: n * 2, result_type=DataTypes.BIGINT(), input_types=[DataTypes.BIGINT()])
high = udf(lambda n, than=1: n > than, result_type='BOOLEAN')
words = udtf(lambda text: ((w, len(w)) for w in cut(text)), result_types=['STRING', 'INT'])

class Sum(AggregateFunction):
    def create_accumulator(self): return [0]
    def accumulate(self, accumulator, n): accumulator[0] += n
    def get_value(self, accumulator): return accumulator[0]

total = udaf(Sum(), result_type='BIGINT', accumulator_type='ARRAY<BIGINT>')
"""
HEAD = """
CREATE TABLE e (ts TIMESTAMP(3), host STRING, n INT, WATERMARK FOR ts AS ts) WITH ('connector' = 'vedette');
CREATE TEMPORARY FUNCTION twice AS 'own.twice' LANGUAGE PYTHON;
CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS high AS 'own.high' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION words AS 'own.words' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION total AS 'own.total' LANGUAGE PYTHON;
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    made = Host()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "functions" / "own"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MODULE)
    (package / "text.py").write_text("def cut(text): return text.split()\n")
    (package / "unused.py").write_text("1 / 0\n")
    return tmp_path


def read(folder: Path, sql: str, host: Host | None, head: str = HEAD) -> RuleSet:
    (folder / "own.sql").write_text(head + sql)
    return build.load([folder], functions=host)


def plan(folder: Path, sql: str, host: Host) -> str:
    rules = read(folder, sql, host)
    assert not rules.refused, rules.refused
    text = "\n".join(_lines(rules.statements[-1].root, rules, 0))
    for digest in rules.modules:
        text = text.replace(f", {digest}", "")
    return text


def test_where_functions_are_evaluated(folder: Path, host: Host) -> None:
    """Plain conditions first, then the functions of WHERE, then those of SELECT; what WHERE has computed is not
    computed again; functions within each other are steps behind each other."""
    sql = "SELECT host, twice(n) AS a, twice(twice(n)) AS b FROM e WHERE high(twice(n), 5) AND host = 'x'"
    found = [line.strip().partition("(")[0] for line in plan(folder, sql, host).splitlines()]
    assert found == ["Calc", "Apply", "Calc", "Apply", "Apply", "Calc", "Scan"]
    rules = read(folder, sql, host)
    steps = [node for node in nodes(rules.statements[0].root) if isinstance(node, Apply)]
    assert [[call.options[0] for call in one.functions] for one in steps] == [
        ["own.twice"],
        ["own.high"],
        ["own.twice"],
    ]
    assert "$1, $3, $5" in plan(folder, sql, host).splitlines()[0]


def test_a_plan_carries_what_is_called(folder: Path, host: Host) -> None:
    """The modules of a function and those that it imports, no others; over bytes, too. Without a call: none."""
    rules = read(folder, "SELECT twice(n) AS a FROM e", host)
    made = Plan.from_bytes(build.from_rules(rules).to_bytes())
    (modules,) = made.modules
    assert [one.name for one in modules.modules] == ["own", "own.text"]
    assert build.from_rules(read(folder, "SELECT n FROM e", host)).modules == ()


def test_a_changed_module_is_another_statement(folder: Path, host: Host) -> None:
    """Also one that it imports; one that it does not is none of its business."""

    def digest() -> tuple[str, str]:
        made = build.from_rules(read(folder, "SELECT twice(n) AS a FROM e", host))
        return made.digest, made.statements[0].digest

    before = digest()
    (folder / "functions" / "own" / "unused.py").write_text("2 / 0\n")
    assert digest() == before
    (folder / "functions" / "own" / "text.py").write_text("def cut(text): return text.split(',')\n")
    after = digest()
    assert after[0] != before[0]
    assert after[1] != before[1]


def test_a_plan_without_its_modules_is_none(folder: Path, host: Host) -> None:
    made = build.from_rules(read(folder, "SELECT twice(n) AS a FROM e", host))
    with pytest.raises(ValueError, match="lacks modules that its statements call"):
        Plan.from_bytes(replace(made, modules=()).to_bytes())


@walk(
    ("sql", "line", "column", "reason", "hint"),
    [
        ("SELECT twice(host) AS a FROM e", 7, 8, "TWICE: argument 1 is BIGINT, not STRING", "CAST(… AS BIGINT)"),
        ("SELECT n,\n twice(n, n) AS a FROM e", 8, 2, "TWICE takes 1 argument, not 2", ""),
        ("SELECT high() AS a FROM e", 7, 8, "HIGH takes 1 to 2 arguments, not 0", ""),
        ("SELECT high(INTERVAL '1' DAY) AS a FROM e", 7, 8, "HIGH: argument 1 is an interval", ""),
        ("SELECT n FROM e WHERE twice(n)", 7, 23, "a condition is BOOLEAN, this is BIGINT", ""),
        ("SELECT words(host) AS a FROM e", 7, 8, "WORDS gives rows: it stands in FROM", "LATERAL TABLE(words(…)) AS t"),
        ("SELECT w FROM e, LATERAL TABLE(twice(n)) AS t (w)", 7, 32, "TWICE gives a value, not rows",
         "SELECT twice(…)"),
        ("SELECT w FROM e, LATERAL TABLE(words(host)) AS t (w)", 7, 0, "1 names for 2 columns", ""),
        ("SELECT w FROM e, LATERAL TABLE(gone(host)) AS t (w)", 7, 32, "there is no table function GONE", None),
        ("SELECT n FROM e WHERE total(n) > 1", 7, 23, "the aggregate TOTAL cannot stand here", None),
        ("SELECT host, total(DISTINCT n) AS t FROM e GROUP BY host, TUMBLE(ts, INTERVAL '1' MINUTE)", 7, 14,
         "TOTAL cannot stand in DISTINCT: it is a user function", "GROUP BY a window"),
        ("SELECT host, total(n) AS t FROM e GROUP BY host, SESSION(ts, INTERVAL '1' MINUTE)", 7, 1,
         "the aggregate TOTAL has no merge, which SESSION needs", "def merge(self, accumulator, accumulators)"),
        ("SELECT total(n) OVER (ORDER BY ts) AS t FROM e", 7, 8, "TOTAL cannot stand before OVER", "GROUP BY a window"),
        ("SELECT * FROM e MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(A.n) AS x PATTERN (A B)\n"
         " DEFINE A AS high(n), B AS B.n = 1) AS t", 8, 14, "HIGH cannot stand in MATCH_RECOGNIZE", None),
        ("SELECT a.n FROM e a JOIN e b ON a.host = b.host AND high(a.n, b.n)\n AND a.ts = b.ts", 7, 53,
         "HIGH cannot stand in ON", None),
        ("CREATE TEMPORARY FUNCTION twice AS 'own.high' LANGUAGE PYTHON", 7, 27, "TWICE is declared already", None),
        ("CREATE TEMPORARY FUNCTION ascii AS 'own.high' LANGUAGE PYTHON", 7, 27, "ASCII is a function of Flink", None),
        ("CREATE TEMPORARY FUNCTION j AS 'a.b.C' LANGUAGE JAVA", 7, 27, "J is written in JAVA", None),
        ("CREATE TEMPORARY FUNCTION j AS 'own'", 7, 27, "J is written in Java", None),
        ("CREATE TEMPORARY FUNCTION j AS 'gone.f' LANGUAGE PYTHON", 7, 27, "J: there is no module gone", None),
        ("CREATE TEMPORARY FUNCTION j AS 'own.gone' LANGUAGE PYTHON", 7, 27, "J: TypeError: the module own has no gone",
         None),
        ("CREATE TEMPORARY FUNCTION j AS 'own.unused.f' LANGUAGE PYTHON", 7, 27,
         "J: own.unused.py:1: ZeroDivisionError: division by zero", None),
        ("CREATE TEMPORARY FUNCTION j AS 'own/../x' LANGUAGE PYTHON", 7, 27, "is no module.attribute", None),
        ("DROP TEMPORARY FUNCTION twice", 7, 1, "a statement does not begin with 'DROP'", None),
    ],
)  # fmt: skip
def test_what_is_refused(
    folder: Path, host: Host, sql: str, line: int, column: int, reason: str, hint: str | None
) -> None:
    """By name, line and column, with what to write instead."""
    refused = read(folder, sql, host).refused
    assert len(refused) == 1, refused
    assert reason in refused[0].reason, refused
    assert refused[0].line == line, refused
    assert not column or refused[0].column == column, refused
    assert hint is None or refused[0].hint == hint, refused


def test_where_functions_are_not_allowed(folder: Path) -> None:
    """Statements that call some are refused by name, each; all others load; nothing is executed."""
    rules = read(folder, "SELECT twice(n) AS a FROM e;\nSELECT n FROM e;\nSELECT w FROM e, LATERAL TABLE(words(host)) "
                 "AS t (w, l)", None)  # fmt: skip
    assert len(rules.statements) == 1
    assert [one.line for one in rules.refused] == [7, 9]
    assert all("functions in Python are not allowed here" in one.reason for one in rules.refused)


def test_a_function_that_is_none_is_named_at_each_call(folder: Path, host: Host) -> None:
    sql = "CREATE TEMPORARY FUNCTION j AS 'own.gone' LANGUAGE PYTHON;\nSELECT j(n) AS a FROM e;"
    refused = read(folder, sql, host).refused
    assert [one.line for one in refused] == [7, 8]
    assert "J cannot be called" in refused[1].reason
