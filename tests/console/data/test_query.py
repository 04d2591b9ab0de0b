"""The search language: what it means, where it is wrong, and that its SQL says what the reference says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.tables.schema import ALERTS
from tests.console.data import naive
from tests.console.made import row, rows_of
from vedette_console.data import query, sql
from vedette_console.data.query import All, Not, Pattern, Term, parse, quoted
from vedette_console.web import Problem

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)

# What SQL, LIKE, the language itself and Unicode could trip over. Not İ and Σ, whose lower case depends on who asks.
LETTERS = "aB9'\"\\%_*?.-:/()[]{}; \n\t\x01é ÄßЖ漢😀$"
TEXTS = st.text(LETTERS, max_size=6) | st.sampled_from(
    ["", "root", "Root", "10", "-2.5", "attack.t1110", "x' OR 1=1 --"]
)
KINDS = st.sampled_from(["ip", "user", "hash", "odd'kind"])
ROWS = st.builds(
    lambda **changes: row(1, **changes),
    kind=st.sampled_from(["detection", "correlation", "fold", None]),
    level=st.sampled_from(["low", "high", "critical", "made up", None]),
    rule_id=TEXTS | st.none(),
    rule_title=TEXTS | st.none(),
    host=TEXTS | st.none(),
    site=TEXTS | st.none(),
    raw=TEXTS | st.none(),
    count=st.integers(0, 20) | st.none(),
    tags=st.lists(TEXTS | st.sampled_from(["attack.T1110.001", "attack.initial_access"]), max_size=3) | st.none(),
    flags=st.lists(TEXTS, max_size=2) | st.none(),
    fields=st.dictionaries(TEXTS, TEXTS | st.none(), max_size=3) | st.none(),
    entities=st.lists(st.fixed_dictionaries({"kind": KINDS, "value": TEXTS}), max_size=3) | st.none(),
)
PATTERNS = st.lists(TEXTS.filter(lambda text: "*" not in text), min_size=1, max_size=3).map(
    lambda parts: Pattern((parts[0], *(part for part in parts[1:-1] if part), *parts[1:][-1:]))
)
PLAIN = sorted(set(query.FIELDS) - {"since", "from", "to", "fields.NAME", *query.NUMBERS})
TERMS = st.one_of(
    st.builds(Term, st.sampled_from(PLAIN), PATTERNS),
    st.builds(lambda pattern, name: Term("fields.NAME", pattern, name=name), PATTERNS, TEXTS.filter(bool)),
    st.builds(
        lambda field, op, number, name: Term(field, op=op, number=number, name=name),
        st.sampled_from(["count", "seq", "fields.NAME"]), st.sampled_from([">=", "<=", ">", "<"]),
        st.sampled_from([-3.0, 0.0, 2.5, 10.0]), st.just("a"),
    ),
    st.builds(lambda op, number: Term("level", op=op, number=number), st.sampled_from([">=", "<"]), st.integers(1, 5)),
)  # fmt: skip
TREES = st.recursive(
    TERMS,
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.lists(parts, min_size=2, max_size=3).map(lambda those: All(tuple(those))),
        st.lists(parts, min_size=2, max_size=3).map(lambda those: query.Any(tuple(those))),
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def duck() -> Iterator[Any]:
    with duckdb.connect() as opened:
        yield opened


@settings(max_examples=150, deadline=None)
@given(tree=TREES, rows=st.lists(ROWS, min_size=1, max_size=6))
def test_the_sql_finds_what_the_reference_finds(duck: Any, tree: query.Tree, rows: list[dict[str, Any]]) -> None:
    """Any tree over any alerts, hostile texts in both."""
    search = query.Search(tree)
    table = rows_of(ALERTS, [{**row, "seq": number} for number, row in enumerate(rows)])
    duck.register("alerts", table)
    numbers = duck.sql(f"SELECT seq FROM alerts WHERE {sql.condition(search)} ORDER BY seq").fetchall()
    assert [n for (n,) in numbers] == [n for n, row in enumerate(table.to_pylist()) if naive.matches(search, row)]


@settings(max_examples=200, deadline=None)
@given(st.text(LETTERS + "ANDORNT>=<", max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """With a column within the text and something to do; nothing else is raised."""
    problem = None
    try:
        search = parse(text, NOW)
    except Problem as raised:
        problem = raised.body
    if problem is None:
        assert sql.condition(search)
        return
    assert 1 <= int(problem.where.removeprefix("column ")) <= len(text) + 1
    assert problem.what_to_do


@given(st.text(LETTERS, min_size=1, max_size=12))
def test_a_quoted_value_comes_back(value: str) -> None:
    """What ``quoted`` writes is read as that text."""
    assert parse(f"host:{quoted(value)}", NOW).tree == Term("host", Pattern((value,)))
    assert parse(query.term("fields.a", value), NOW).tree == Term("fields.NAME", Pattern((value,)), name="a")


def test_what_is_written_is_meant() -> None:
    """AND binds closer than OR; a blank is AND; minus and NOT deny; quotes take stars literally."""
    high, web = Term("level", Pattern(("high",))), Term("host", Pattern(("web", "")))
    text = Term("text", Pattern(("a *b",)))
    assert parse("", NOW).tree == All()
    assert parse("level:high host:web*", NOW).tree == All((high, web))
    assert parse("level:high AND host:web*", NOW).tree == All((high, web))
    assert parse("level:high OR host:web* -level:high", NOW).tree == query.Any((high, All((web, Not(high)))))
    assert parse('NOT (level:high OR "a *b")', NOW).tree == Not(query.Any((high, text)))
    assert parse("level>=high", NOW).tree == Term("level", op=">=", number=4)
    assert parse("ip:fe80::1", NOW).tree == Term("ip", Pattern(("fe80::1",)))
    assert parse('fields."a b">=2.5', NOW).tree == Term("fields.NAME", op=">=", number=2.5, name="a b")
    assert parse(r'"C:\Windows \"x\""', NOW).tree == Term("text", Pattern((r'C:\Windows "x"',)))


def test_times_bound_the_search() -> None:
    """The latest beginning and the earliest end hold; ``to`` a day includes it."""
    search = parse("since:24h from:2026-11-20T08:00 to:2026-11-20 x", NOW)
    assert search.since == datetime(2026, 11, 20, 8, tzinfo=UTC)
    assert search.until == datetime(2026, 11, 21, tzinfo=UTC)
    open_ends = parse("from:0001-01-01 to:9999-12-31 x", NOW)
    assert (open_ends.since, open_ends.until) == (parse("x", NOW).since, parse("x", NOW).until)
    assert parse("since:2w", NOW).since == NOW - timedelta(days=14)
    assert parse("(since:1h) level:high", NOW).tree == Term("level", Pattern(("high",)))


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("level:high foo:bar", 12, 'write "foo:bar" to look for that text'),
        ("host:", 6, "host:VALUE"),
        ("(level:high", 1, "write ) where it ends"),
        ("level:high)", 11, "leave out this )"),
        ("()", 1, "write terms between"),
        ('host:"web', 6, 'write " where'),
        ("level:high OR", 14, "write a term after OR"),
        ("OR level:high", 1, "before"),
        ("AND level:high", 1, "before AND"),
        ("NOT", 4, "write a term after NOT"),
        ("level>=severe", 8, "write one of informational, low"),
        ("host>=5", 7, "write host:VALUE"),
        ("count>many", 7, "write a number"),
        ("host=web", 1, "write host:"),
        ("host!=web", 1, "write -host:"),
        ("since:soon", 7, "since:24h"),
        ("from:yesterday", 6, "2026-11-20"),
        ("since>=1h", 1, "write since:"),
        ("level:high OR since:1h", 1, "outside of OR"),
        ("-since:1h", 1, "from: and to:"),
        ('a"b"', 2, "put the whole value in quotes"),
        ('host:""', 6, "-FIELD:*"),
        ("x " * 101, 201, "search for less"),
        ("(" * 31 + "x" + ")" * 31, 31, "search for less"),
        ("x" * 4_001, 4_001, "search for less"),
    ],
)
def test_what_is_wrong_is_said_where(text: str, column: int, said: str) -> None:
    """By the column, from 1, with what to write."""
    with pytest.raises(Problem) as raised:
        parse(text, NOW)
    assert (raised.value.status, raised.value.body.where) == (400, f"column {column}")
    assert said in raised.value.body.what_to_do
