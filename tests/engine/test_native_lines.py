"""The native kernel on lines: what it decides by header, message, program and keywords, and what it leaves open."""

from __future__ import annotations

from itertools import product

import pytest

from tests.engine import drawn
from tests.engine.by_kernel import HEAD, ROUNDS, agree, needs_kernel
from tests.engine.test_property import chunks, matches_of, rule
from vedette.engine.cache import Cache
from vedette.engine.join import Joiner
from vedette.engine.match import Engine
from vedette.model.event import Chunk, Frame
from vedette.plan import plan as plans
from vedette.plan.ir import KEYWORDS, And, Expr, Leaf, Not, Op, Or, Predicate

pytestmark = needs_kernel


@pytest.mark.parametrize(
    ("line", "literal", "decoded"),
    [
        (f"{HEAD}CEF:0|a|b|1|2|n|5|msg=x\\=y", "cef", "x=y"),
        ("<38>Nov 20 10:00:00 web1 app: x y CEF:0|a|b|1|2|n|5|msg=x\\=y", "cef", "x=y"),
        ('<38>1 2026-11-20T10:00:00Z web1 app 1 - [a b="x\\"y"] cef', "cef", 'x"y'),
        ("<38>Nov 20 10:00:00 web1 %ASA-6-302013: cef", "cef", "302013"),
        (f'{HEAD}<Event><EventData><Data Name="a">cef x&lt;y</Data></EventData></Event>', "cef", "x<y"),
        (f"{HEAD}message repeated 5 times: [ cef]", "cef", "repeated"),
        (f'{HEAD}{{"a":"x\\u0041","b":"cef"}}', "cef", "xa"),
        (f'{HEAD}  {{"a":"x\\u0041","b":"cef"}}', "cef", "xa"),
    ],
)
def test_keywords_search_more_than_a_message(line: str, literal: str, decoded: str) -> None:
    """What decoders make of a line is searched, too: the kernel does not say that it is not there."""
    words = Predicate(KEYWORDS, Op.CONTAINS, literal), Predicate(KEYWORDS, Op.CONTAINS, decoded)
    agree([line, line, f"{HEAD}x"], And((Leaf(0), Leaf(1))), *words, codec="syslog")
    agree([line.replace(literal, "x"), line, f"{HEAD}{literal}"], And((Leaf(0), Not(Leaf(1)))), *words, codec="syslog")


@pytest.mark.parametrize(
    "line",
    [
        "<38>Nov 20 10:00:00 UTC app: cmd",
        "<38>Nov 20 10:00:00 +0100 app: cmd",
        "<38>Nov 20 10:00:00 WEB app: cmd",
        "<189>Nov 20 10:00:00 relay sw1: 7: Nov 20 10:00:00: %SYS-5-A: cmd",
        "<189>Nov 20 10:00:00 relay 7: cmd %SYS-5-A: cmd",
        "<189>Nov 20 10:00:00 sw1 AEST: %SYS-5-A: cmd",
        "<189>1 2026-11-20T10:00:00Z sw1 - - - - %SYS-5-A: cmd",
        "<38>Nov 20 10:00:00 web1 sshd cmd",
        "\ufeff<38>Nov 20 10:00:00 web1 app: cmd",
        "\0\0<38>Nov 20 10:00:00 web1 app: cmd",
        "\ufeffcmd",
    ],
)
def test_headers_that_few_write(line: str) -> None:
    """What the kernel does not read of them it leaves to Python."""
    there, app, begins = (
        Predicate("hostname", Op.EXISTS),
        Predicate("program", Op.EXACT, "app"),
        Predicate("message", Op.PREFIX, "cmd"),
    )
    lines = [f"{HEAD}cmd", f"{HEAD}cmd x", f"{HEAD}cmd", line]
    for codec, predicate in product(("syslog", "auto"), (there, app, begins)):
        holds = Predicate("message", Op.CONTAINS, "cmd")
        agree(lines, And((Leaf(0), Leaf(1))), holds, predicate, codec=codec)
        agree(["<38>x cmd", *lines], Or((Leaf(0), Not(Leaf(1)))), holds, predicate, codec=codec)


def test_a_document_names_its_program() -> None:
    """Pairs from the start of a message may have the name of a part of the header."""
    asked = Predicate("message", Op.CONTAINS, "b=1"), Predicate("program", Op.EXACT, "app")
    lines = [f"{HEAD}a=1 b=1", f"{HEAD}a=1 program=x b=1", f"{HEAD}words program=x b=1", f"{HEAD}b=1"]
    for wanted in (And((Leaf(0), Leaf(1))), And((Leaf(0), Not(Leaf(1))))):
        for codec in ("syslog", "auto", "keyvalue"):
            other = [] if codec == "auto" or wanted.args[1] == Leaf(1) else [f"{HEAD.replace('app', 'b')}b=1"]
            agree([*lines, *other], wanted, *asked, codec=codec)


def lefts(lines: list[str], expr: Expr, *predicates: Predicate, codec: str = "syslog") -> list[int]:
    """Of each line, how many rules Python is asked to evaluate, once the kernel knows what it can."""
    on = Engine(plans.build([rule(0, expr)], list(predicates)), route=False, cache=Cache(0))
    batch = Chunk("in", codec, 0, b"".join(line.encode() + b"\n" for line in lines))
    for _ in range(ROUNDS):
        found_now = {event.start: len(event.rules) for event in on.candidates(Frame(0, batch), Joiner())}
    return [found_now.get(start, 0) for start, _ in batch.spans()]


def test_lines_that_surely_do_not_match_cost_python_nothing() -> None:
    """By message, program and keywords, under both headers, in texts and in documents; also rules without a literal."""
    wanted = And((Leaf(0), Not(Leaf(1))))
    asked = Predicate("message", Op.CONTAINS, "cmd"), Predicate("program", Op.EXACT, "app")
    modern = '<38>1 2026-11-20T10:00:00Z web1 {} 1 - [a b="c"] cmd'
    heads = [HEAD + "cmd", HEAD + "  cmd\r", modern.format("app"), HEAD + '{"a":"cmd"}']
    assert lefts(heads, wanted, *asked) == [0, 0, 0, 0]
    assert lefts([line.replace("app", "x") for line in heads], wanted, *asked) == [1, 1, 1, 1]
    words = Predicate(KEYWORDS, Op.CONTAINS, "web1")  # of structured data keywords search more
    assert lefts([heads[0], heads[2]], And((Leaf(0), Leaf(1))), asked[0], words) == [0, 1]
    exact = Predicate("message", Op.EXACT, "c")
    assert lefts(["cmd", "x"], And((Leaf(0), Leaf(1))), asked[0], exact, codec="text") == [0, 0]
    always = Predicate("message", Op.REGEX, "[a-z]{3}=[0-9]{4}", True)
    assert lefts([HEAD + "abc=1234", HEAD + "abc=123", "abc=1234"], Leaf(0), always) == [1, 0, 1]
    assert lefts([HEAD + "a", HEAD.replace("app", "b") + "a"], Not(Leaf(0)), asked[1]) == [0, 1]


def test_a_time_of_receipt_that_dates_nothing() -> None:
    """Within an hour of 1970 decoders read a header in another way, so nothing is known of it."""
    plan = plans.build([rule(0, Not(Leaf(0)))], [Predicate("message", Op.EXACT, "cmd")])
    lines = b"<38>Nov 20 10:00:00 web1 app: cmd\n<38>Nov 20 10:00:00 a=b app: cmd\n"
    for received_at in (0, 5, 1_763_632_800_000_000):
        by = [
            {m.start for m in Engine(plan, kernel=kernel).evaluate(Chunk("in", "syslog", received_at, lines))}
            for kernel in (True, False)
        ]
        assert by[0] == by[1]


@pytest.mark.parametrize("codec", ["auto", "syslog"])
def test_lines_of_every_kind_by_turns(codec: str) -> None:
    """A chunk in which objects, lines and documents alternate is answered in order, each event once."""
    asked = [Predicate("message", Op.CONTAINS, "cmd"), Predicate("a", Op.CONTAINS, "cmd")]
    plan = plans.build([rule(0, Or((Leaf(0), Leaf(1))))], asked)
    kinds = ['{"a":"cmd"}', HEAD + "cmd", HEAD + '{"a":"cmd"}', "cmd", '{"a":"x"}', HEAD + "x", "{cmd", "", '{"b":1}']
    lines = [kinds[i % len(kinds)] for i in range(400)]
    for ends in (False, True):
        events = [drawn.Drawn(codec, line.encode() or b"\n", "") for line in lines]
        on, off = Engine(plan, route=False), Engine(plan, route=False, kernel=False)
        expected = matches_of(off, chunks(events, ends))
        assert expected
        for _ in range(ROUNDS):
            assert matches_of(on, chunks(events, ends)) == expected
