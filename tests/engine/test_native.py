"""The native kernel on JSON events: with it, without it and by ``tests/reference.py`` the same matches, always.

A structure is learned from one of its events and applied to the others, so each test asks about many events of a
structure, several times. ``VEDETTE_DEEP=N`` draws N examples of each claim.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bench import services
from tests import reference
from tests.deep import DEEP
from tests.differences import walk
from tests.engine import drawn
from tests.engine.structures import ORIGINS, Draw, header, message, spoiled
from tests.engine.test_property import PARTS, chunks, found, readable, rule, scalars
from tests.lookup.tables import made as made_lookup
from tests.lookup.tables import reference_lookups
from vedette.decode.decoder import record
from vedette.decode.formats import services as services_format
from vedette.engine import kernel
from vedette.engine.cache import Cache
from vedette.engine.join import Joiner
from vedette.engine.match import SURE_SAMPLE, Context, Engine
from vedette.lookup.table import Lookup
from vedette.model.event import Chunk, Frame, LogSource
from vedette.plan import plan as plans
from vedette.plan.ir import KEYWORDS, And, Expr, Leaf, Not, Op, Or, Predicate, text

pytestmark = pytest.mark.skipif(kernel.LOADED is None, reason=f"the native kernel is {kernel.why_not}")

EXAMPLES = DEEP or 50
ROUNDS = 6
"""Times that events are asked about: a structure is learned when it comes again, and names that decide one by one."""


def counts(engine: Engine) -> tuple[int, ...]:
    """``Engine.kernel``, in its order, of a kernel that was not wrong."""
    *found, wrong = engine.kernel().values()
    assert not wrong
    return tuple(found)


def objects(draw: Draw) -> tuple[list[drawn.Drawn], list[str]]:
    """JSON events of a few structures, and names of their fields."""
    random = draw.random
    codec = random.choice(("json", "json", "auto", "windows", "zeek", "mqtt"))
    structures = [draw.structure() for _ in range(random.choice((1, 1, 2)))]
    origin = random.choice((lambda: "", lambda: "", lambda: random.choice(ORIGINS)))
    events = [
        drawn.Drawn(codec, spoiled(draw, random.choice(structures).event()) or b"{}", origin())
        for _ in range(random.randint(8, 20))
    ]
    return events, [name for structure in structures for name in structure.names] or ["a"]


LINE_FIELDS = ("message", "message", "message", "program", "program", "hostname", "severity", "a", "s@1.p")


def lines(draw: Draw) -> tuple[list[drawn.Drawn], list[str]]:
    """Lines under a few headers, some with a JSON object of a few structures as message."""
    random = draw.random
    codec = random.choice(("syslog", "syslog", "auto", "auto", "text", "access", "cef", "keyvalue", "json", "mqtt"))
    structures = [draw.structure() for _ in range(random.choice((1, 1, 2)))]
    headers = ["<38>Nov 20 10:00:00 web1 app[12]: ", *(header(draw) for _ in range(random.randint(1, 4)))]
    origin = random.choice(("", "", "10.1.2.3"))
    events = []
    for _ in range(random.randint(8, 20)):
        text = random.choice(headers) + message(draw, random.choice(structures).event())
        events.append(drawn.Drawn(codec, spoiled(draw, text.replace("\n", " ")) or b"x", origin))
    names = [name for structure in structures for name in structure.names]
    return events, [*LINE_FIELDS, *LINE_FIELDS, *names]


def example(seed: int, make: Callable[[Draw], tuple[list[drawn.Drawn], list[str]]], *, route: bool) -> int:
    """One example: the same matches three ways; gives how many objects the kernel decided."""
    draw = Draw(seed)
    random = draw.random
    events, names = make(draw)
    codec = events[0].codec
    ends = random.random() < 0.4
    own = LogSource(*(random.choice(["", "", *part]) for part in PARTS)) if random.random() < 0.2 else LogSource()
    for event in events[:6]:
        fields = record(event.raw, codec, origin=event.origin).fields()
        draw.known += [(name, str(text(leaf))) for name, value in fields.items() for leaf in scalars(value)]
    predicates = list(dict.fromkeys(draw.predicate(names) for _ in range(random.randint(1, 12))))
    predicates = [p for p in predicates if p.op is not Op.REGEX or readable(p)] or [Predicate("a", Op.EXISTS)]
    rules = []
    for i in range(random.randint(1, 8)):
        source = record(random.choice(events).raw, codec, logsource=own).source
        near = (
            LogSource(*(random.choice(["", *sorted(part)]) for part in source))
            if random.random() < 0.8
            else LogSource()
        )
        rules.append(replace(rule(i, draw.expr(len(predicates))), logsource=near))
    plan = plans.build(rules, predicates).with_lookups(reference_lookups())
    context = Context(None, own)
    expected = {
        (number, i)
        for number, event in enumerate(events)
        for i in reference.matches(
            plan, record(event.raw, event.codec, origin=event.origin, logsource=own), route=route
        )
    }
    on = Engine(plan, route=route, cache=Cache(0))
    off = Engine(plan, on.databases(), route=route, kernel=False)
    where = f"example({seed}, {make.__name__}, route={route}): {[e.raw for e in events]}, {predicates}, "
    where += f"{[r.expr for r in rules]}"
    assert found(off, chunks(events, ends), context) == expected, where
    order = list(range(len(events)))
    for _ in range(ROUNDS):
        random.shuffle(order)
        matches = found(on, chunks([events[n] for n in order], ends), context)
        assert {(order[number], i) for number, i in matches} == expected, where
    events_read, rest, *_, panics = counts(on)
    assert panics == 0, where
    return events_read - rest


@pytest.mark.parametrize("route", [True, False])
def test_random_structures(route: bool) -> None:
    """Events of random structures under random rules, of any log source: the kernel leaves out no match."""
    decided = sum(example(seed, objects, route=route) for seed in range(EXAMPLES))
    assert decided > 20 * EXAMPLES  # of some 14 events, six times


@pytest.mark.parametrize("route", [True, False])
def test_random_lines(route: bool) -> None:
    """Lines with and without a header, of texts, objects and formats, under random rules: no match is left out."""
    decided = sum(example(seed, lines, route=route) for seed in range(EXAMPLES))
    assert decided > EXAMPLES // 2


def agree(
    events: list[str], expr: Expr, *predicates: Predicate, codec: str = "json", origins: tuple[str, ...] = ("",)
) -> None:
    """One rule over events of one structure, of which the first is the one that is learned from."""
    plan = plans.build([rule(0, expr)], list(predicates))
    made = [drawn.Drawn(codec, written.encode(), origins[0]) for written in events[:1]] * 2
    made += [drawn.Drawn(codec, written.encode(), origin) for written in events for origin in origins]
    expected = {
        n
        for n, event in enumerate(made)
        if reference.matches(plan, record(event.raw, event.codec, origin=event.origin))
    }
    assert expected  # else nothing is to be left out wrongly
    on = Engine(plan, route=False, cache=Cache(0))
    for _ in range(ROUNDS):
        for lesson in made[:2], made:
            matches = {n for n, _ in found(on, chunks(lesson, ends_wanted=False))}
            assert matches == {n for n in expected if n < len(lesson)}


HEAD = "<38>Nov 20 10:00:00 web1 app: "


@pytest.mark.parametrize(
    ("line", "held", "also"),
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
def test_keywords_search_more_than_a_message(line: str, held: str, also: str) -> None:
    """What decoders make of a line is searched, too: the kernel does not say that it is not there."""
    words = Predicate(KEYWORDS, Op.CONTAINS, held), Predicate(KEYWORDS, Op.CONTAINS, also)
    agree([line, line, f"{HEAD}x"], And((Leaf(0), Leaf(1))), *words, codec="syslog")
    agree([line.replace(held, "x"), line, f"{HEAD}{held}"], And((Leaf(0), Not(Leaf(1)))), *words, codec="syslog")


def test_a_document_names_its_program() -> None:
    """Pairs from the start of a message may have the name of a part of the header."""
    asked = Predicate("message", Op.CONTAINS, "b=1"), Predicate("program", Op.EXACT, "app")
    lines = [f"{HEAD}a=1 b=1", f"{HEAD}a=1 program=x b=1", f"{HEAD}words program=x b=1", f"{HEAD}b=1"]
    for wanted in (And((Leaf(0), Leaf(1))), And((Leaf(0), Not(Leaf(1))))):
        for codec in ("syslog", "auto", "keyvalue"):
            made = lines if codec == "auto" or wanted.args[1] == Leaf(1) else [*lines, f"{HEAD.replace('app', 'b')}b=1"]
            agree(made, wanted, *asked, codec=codec)


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
        made = [drawn.Drawn(codec, line.encode() or b"\n", "") for line in lines]
        on, off = Engine(plan, route=False), Engine(plan, route=False, kernel=False)
        expected = found(off, chunks(made, ends))
        assert expected
        for _ in range(ROUNDS):
            assert found(on, chunks(made, ends)) == expected


def test_a_name_in_several_places_in_any_order() -> None:
    """The same place of a Windows event's name wins for the kernel, whichever order it has learned."""
    members = [
        ('"winlog.channel"', "c"), ('"winlog.log_name"', "d"), ('"winlog.event_data.Image"', "%s"),
        ('"winlog.user_data.Image"', "%s"), ('"winlog.event_data.Channel"', "e"),
    ]  # fmt: skip
    plan = plans.build(
        [rule(0, Leaf(0)), rule(1, Leaf(1))],
        [Predicate("Image", Op.EXACT, "user"), Predicate("Channel", Op.EXACT, "e")],
    )
    on = Engine(plan, route=False, cache=Cache(0))
    for order in permutations(members):
        event = "{" + ",".join(f'{name}:"{value}"' for name, value in order) + "}"
        user_first = event.index("user_data") < event.index("event_data.Image")
        values = [("user", "data"), ("data", "user"), ("user", "user")]
        texts = [event % (value if user_first else value[::-1]) for value in values]
        made = [drawn.Drawn("json", text.encode(), "") for text in texts] * 3
        for _ in range(2):
            assert found(on, chunks(made, ends_wanted=False)) == {
                match for i in range(9) for match in ([(i, 0)] if i % 3 != 1 else []) + [(i, 1)]
            }
    read, rest, *_ = counts(on)
    assert rest < read / 2


def test_keyword_searches_beside_one_that_python_does() -> None:
    """A pattern that Hyperscan does not take is a group of its own, beside the other keyword searches."""
    words, ahead = Predicate(KEYWORDS, Op.CONTAINS, "cmd"), Predicate(KEYWORDS, Op.REGEX, "a(?=b)", True)
    for wanted in (Leaf(0), Leaf(1), And((Leaf(0), Leaf(1)))):
        agree(['{"a":"x"}', '{"a":"cmd ab"}'], wanted, words, ahead)


def test_keyword_searches_of_an_event_without_a_text() -> None:
    """An empty text is in every text, and not in an event that has none."""
    agree(['{"a":[]}', '{"a":[[]]}', '{"a":"x"}', '{"a":""}'], Leaf(0), Predicate(KEYWORDS, Op.CONTAINS, ""))


@pytest.mark.parametrize(("codec", "name"), [("json", "peer"), ("mqtt", "topic_level_2"), ("mqtt", "topic_level_3")])
def test_where_an_event_came_from_is_no_part_of_its_structure(codec: str, name: str) -> None:
    """Whether there is an origin differs between events of one structure."""
    for wanted in (Leaf(0), Not(Leaf(1)), Leaf(1), Not(Leaf(0))):
        agree(
            ['{"a":"x"}', '{"a":"y"}'],
            wanted,
            Predicate(name, Op.EXISTS),
            Predicate(name, Op.NULL),
            codec=codec,
            origins=("", "a/b/c", "a"),
        )


def test_what_decoders_make_anew_is_left_open() -> None:
    """A part of a value, cut out by a decoder, is no value of the event: Python tests it."""
    zeek = '{"ts":1,"uid":"C","id.orig_h":"x","trans_depth":1,"method":"x","uri":"/a?b"}'
    agree([zeek, zeek.replace('"x"', '"y"')], Leaf(0), Predicate("cs-uri-stem", Op.EXACT, "/a"))
    client = '{"remote_ip":"[::1]:22","a":"x"}'
    agree([client, client.replace('"x"', '"y"')], Leaf(0), Predicate("src_ip", Op.EXACT, "::1"))


COMPUTED = (
    ("cs-uri-stem", "/a", '{"ts":1,"uid":"C","id.orig_h":"x","trans_depth":1,"uri":%s}', ("/a?b", "/a", "?/a", "/b")),
    ("c-uri-query", "b?c", '{"ts":1,"uid":"C","id.orig_h":"x","trans_depth":1,"uri":%s}', ("/a?b?c", "b?c", "?", "/a")),
    ("cs-uri-query", "b", '{"remote_addr":"x","status":1,"request":%s}',
     ("GET /a?b HTTP/1.1", "GET /a?b", "GET /a HTTP/1.1", "- /a?b HTTP/1.1", "G T /a?b HTTP/1.1", "GET /?b HTTP/x")),
    ("cs-uri", "/a b", '{"remote_addr":"x","status":1,"request":%s}',
     ("GET /a b HTTP/2.0", "GET /a HTTP/2.0", "GET /a b", "GET - HTTP/1.1", "GET  HTTP/1.1")),
    ("cs-method", "GET", '{"remote_addr":"x","status":1,"request":%s}', ("GET / HTTP/1.1", "GET", "GET2 / HTTP/1.1")),
    ("cs-uri-query", "b", '{"remote_addr":"x","status":1,"request":"GET /?b HTTP/1.1","request_uri":%s}',
     ("/a", "/a?", "/a?c", "-", "/a?b")),
    ("user", "-", '{"remote_addr":"x","status":1,"request":"-","remote_user":%s}', ("-", "a", "")),
    ("src_ip", "10.1.2.3", '{"ts":1,"uid":"C","id.resp_h":"x","id.orig_h":%s}',
     ("10.1.2.3", "::ffff:10.1.2.3", "[10.1.2.3]", "10.1.2.4", "::1")),
    ("src_ip", "10.1.2.3", '{"remoteIp":"","client_ip":%s}',
     ("10.1.2.3", "10.1.2.3:80", "[::ffff:10.1.2.3]:22", "web", "10.1.2.4")),
    ("src_port", "80", '{"client_ip":%s}', ("10.1.2.3:80", "10.1.2.3", "[::1]:80", "80", "10.1.2.3:8080")),
    ("source.ip", "10.1.2.3", '{"client_ip":%s,"id.orig_h":"10.1.2.3"}', ("10.1.2.4", "web", "10.1.2.3")),
    ("url.query", "b", '{"request":{"method":"GET","uri":%s},"status":1,"c-uri-query":"b"}', ("/a", "/a?c", "/a?b")),
)  # fmt: skip
"""A field that a decoder computes, a value of it, an event, and what may stand in its place."""


@walk(("field", "value", "event", "texts"), COMPUTED)
def test_computed_fields(field: str, value: str, event: str, texts: tuple[str, ...]) -> None:
    """Parts of a value that differs in every event, there or not: one structure, the same matches, of every kind of
    predicate."""
    tests = [
        Predicate(field, Op.EXACT, value), Predicate(field, Op.EXACT, value, True),
        Predicate(field, Op.PREFIX, value[:2]), Predicate(field, Op.SUFFIX, value[-1:]),
        Predicate(field, Op.CONTAINS, value[1:]), Predicate(field, Op.EXISTS), Predicate(field, Op.NULL),
        Predicate(field, Op.REGEX, f"^{re.escape(value)}$", True), Predicate(field, Op.NUMBER, 80),
        Predicate(field, Op.CIDR, "10.1.2.0/24"), Predicate(field, Op.FIELD_EXACT, "host"), Predicate(field, Op.GTE, 8),
    ]  # fmt: skip
    events = [event % json.dumps(text) for text in texts]
    true = len(tests)
    shapes = [
        (Leaf(i), Not(Leaf(i)), And((Leaf(true), Not(Leaf(i)))), Or((Leaf(i), Not(Leaf(true))))) for i in range(true)
    ]
    exprs: list[Expr] = [one for made in shapes for one in made]
    predicates = [*tests, Predicate(KEYWORDS, Op.CONTAINS, "")]
    plan = plans.build([rule(i, expr) for i, expr in enumerate(exprs)], predicates)
    for first in events:  # whichever is learned from
        made = [drawn.Drawn("json", one.encode(), "") for one in [first, first, *events]]
        on, off = (Engine(plan, route=False, cache=Cache(0), kernel=kernel) for kernel in (True, False))
        expected = found(off, chunks(made, ends_wanted=False))
        for _ in range(ROUNDS):
            assert found(on, chunks(made, ends_wanted=False)) == expected
        assert counts(on)[2] > 0


SERVICES = ("zeek", "nginx", "nginx, request line", "caddy", "application")


@pytest.mark.parametrize(
    ("head", "asked", "hit"),
    [
        ("", ("users", "name"), "\u00c9VA"),
        ("", ("names", "name"), "SSHD"),
        ("", ("domains", "name"), "www.Example."),
        ("", ("addresses", "a"), " ::ffff:10.1.2.3"),
        ("", ("numbers", "n"), "4688"),
        ("", ("all", "c"), "10.200.0.1"),
        ("", ("all", "l..h"), "450"),
        (HEAD, ("all", "t"), "cmd.exe"),
    ],
)
def test_lookups_are_probed_before_events_are_decoded(head: str, asked: tuple[str, str], hit: str) -> None:
    """Of a rule that has nothing but a lookup only events whose value is a key are candidates."""
    plan = plans.build([rule(0, Leaf(0))], [Predicate("x", Op.LOOKUP, asked[0], option=asked[1])])
    on = Engine(plan.with_lookups(reference_lookups()), route=False, cache=Cache(0))
    texts = [hit if i % 20 == 7 else f"203.0.999.{i}" for i in range(100)]
    events = [
        drawn.Drawn("auto", f'{head}{{"x":{json.dumps(text)},"y":{i}}}'.encode(), "") for i, text in enumerate(texts)
    ]
    expected = {(i, 0) for i in range(7, 100, 20)}
    assert found(on, chunks(events, ends_wanted=False)) == expected  # while it learns
    before = on.tally.candidates
    assert found(on, chunks(events, ends_wanted=False)) == expected
    assert on.tally.candidates - before == len(expected)


def test_a_lookup_that_is_damaged_leaves_its_rule_undecided(tmp_path: Path) -> None:
    """A probe that the file's bytes do not allow is never "no match", and no other rule's matter."""
    path = tmp_path / "t.vlookup"
    with made_lookup(path, "name n:int", "name:nocase", [(f"u{i}", i) for i in range(50)]) as found_:
        at, size, _ = found_.header.sections["i0.dir"]
    data = bytearray(path.read_bytes())
    data[at : at + size] = b"\xff" * size
    path.write_bytes(data)
    predicates = [Predicate("x", Op.LOOKUP, "t", option="name"), Predicate("y", Op.EXACT, "1")]
    plan = plans.build([rule(0, Leaf(0)), rule(1, Leaf(1))], predicates).with_lookups({"t": Lookup.open(path)})
    on = Engine(plan, route=False, cache=Cache(0), quarantine_after=10**9)
    events = [drawn.Drawn("json", f'{{"x":"u{i}","y":"{i % 2}"}}'.encode(), "") for i in range(20)]
    for _ in range(ROUNDS):
        assert found(on, chunks(events, ends_wanted=False)) == {(i, 1) for i in range(1, 20, 2)}
    assert on.tally.undecided == {0: 20 * ROUNDS}
    assert on.kernel()["panics"] > 0


@pytest.mark.parametrize("kind", SERVICES)
def test_values_that_never_come_twice_are_learned_once(kind: str) -> None:
    """URIs, addresses and times of services' logs are no part of their structure."""
    if kind == "application":
        events = [
            f'{{"msg":"x","client_ip":"10.1.{i // 250}.{i % 250}:{i}","user":"u{i}"}}'.encode() for i in range(900)
        ]
    else:
        events = list(services.events(kind, 3, 900))
    predicates = [Predicate("cs-uri-query", Op.CONTAINS, "f"), Predicate("src_ip", Op.SUFFIX, ".7")]
    predicates += [Predicate("cs-user-agent", Op.CONTAINS, "curl"), Predicate("query", Op.CONTAINS, "a1")]
    plan = plans.build([rule(i, Leaf(i)) for i in range(len(predicates))], predicates)
    made = [drawn.Drawn("json", event, "") for event in events]
    on, off = (Engine(plan, route=False, cache=Cache(0), kernel=kernel) for kernel in (True, False))
    for first in range(0, len(made), 300):
        batch = chunks(made[first : first + 300], ends_wanted=False)
        assert found(on, batch) == found(off, batch) != set()
    read, rest, learned, refused, panics = counts(on)
    assert read == 900
    assert rest <= 60
    assert learned <= 30
    assert (refused, panics) == (0, 0)


def test_what_a_decoder_makes_of_a_computed_field_is_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of which only its place is known cannot be looked into."""
    compute = services_format.compute

    def looking(fields: dict[str, Any], *given: Any) -> bool:
        done = compute(fields, *given)
        fields["src_port"] = fields["src_ip"][:2]
        return done

    monkeypatch.setattr("vedette.decode.formats.services.compute", looking)
    plan = plans.build([rule(0, Leaf(0))], [Predicate("src_port", Op.EXACT, "10")])
    on = Engine(plan, route=False, cache=Cache(0))
    events = [
        drawn.Drawn("json", text, "") for text in (*(b'{"client_ip":"11.0.0.1"}',) * 3, b'{"client_ip":"10.0.0.1"}')
    ]
    for _ in range(2):
        assert found(on, chunks(events, ends_wanted=False)) == {(3, 0)}
    assert counts(on)[3] == 1


def test_fields_that_decide_are_compared() -> None:
    """A value that is part of the structure is still compared with one that is not, and with another such."""
    events = ['{"EventID":1,"Channel":"1","a":"x"}', '{"EventID":1,"Channel":"1","a":"1"}']
    for own, other in (("EventID", "a"), ("a", "EventID"), ("EventID", "Channel")):
        agree(events, Leaf(0), Predicate(own, Op.FIELD_EXACT, other))


def test_an_array_with_nothing_but_space_in_it_is_empty() -> None:
    """Decoders ask whether a list holds anything: that is part of the structure."""
    empty = '{"Image":"/usr/bin/x","CommandLine":"x","Provider_Name":[ ]}'  # of Linux, but for a provider
    events = [empty, empty.replace("[ ]", '["x"]')]
    source = LogSource("windows", "", "")
    plan = plans.build([replace(rule(0, Leaf(0)), logsource=source)], [Predicate("Image", Op.EXISTS)])
    off = Engine(plan, kernel=False)
    on = Engine(plan, cache=Cache(0))
    for written in (events[0], events[0], events[0], events[1]):
        batch = chunks([drawn.Drawn("json", written.encode(), "")], ends_wanted=False)
        assert found(on, batch) == found(off, batch)


@pytest.mark.parametrize("number", ["1e400", "-1e999", "1" + "0" * 400])
def test_a_number_beyond_a_float_is_a_text(number: str) -> None:
    """It is not of the same structure as a number: decoders take it for a text."""
    zeek = '{{"ts":1,"uid":"C","id.orig_h":"x","trans_depth":1,"uri":{}}}'
    agree([zeek.format("1e20"), zeek.format(number)], Leaf(0), Predicate("cs-uri-stem", Op.EXISTS))


# --- bounds: what a hostile stream costs


def asked(events: list[str], *, chunk: int = 500) -> tuple[Engine, tuple[int, ...], int]:
    """Counts after ``events``, and how often Python was asked to learn."""
    plan = plans.build(
        [rule(0, Leaf(0)), rule(1, Leaf(1))], [Predicate("a", Op.CONTAINS, "x"), Predicate("b.c", Op.EXISTS)]
    )
    engine = Engine(plan, cache=Cache(0))
    native = engine._native
    assert native is not None
    lessons = []
    lesson = native._lesson
    with mock.patch.object(native, "_lesson", lambda *given: (lessons.append(0), lesson(*given))[1]):
        for first in range(0, len(events), chunk):
            made = [drawn.Drawn("json", written.encode(), "") for written in events[first : first + chunk]]
            found(engine, chunks(made, ends_wanted=False))
    return engine, counts(engine), len(lessons)


BOUGHT, SAVED, TRIES = 200, 512, 8
"""Events that pay for learning a structure; what is learned on credit; lessons for one structure, at most."""


def pairs(events: Iterable[str]) -> list[str]:
    """Each twice: a structure that comes only once is not learned at all."""
    return [event for event in events for _ in range(2)]


HOSTILE = {
    "each another structure": [f'{{"n{i}":"x"}}' for i in range(4000)],
    "each structure twice": pairs(f'{{"n{i}":"x"}}' for i in range(2000)),
    "deciding values ever new": pairs(f'{{"EventID":{i},"Channel":"c{i}"}}' for i in range(2000)),
    "another name decides each time": pairs(
        f'{{"EventID":1,"n{i}":{{"#text":"x"}},"winlog.event_data.n{i}":"x"}}' for i in range(1500)
    ),
    "names that are names": pairs(
        f'{{"Event":{{"System":{{"EventID":1}},"EventData":{{"Data":[{{"@Name":"n{i}","#text":"x"}}]}}}}}}'
        for i in range(1500)
    ),
    "names that occur twice": pairs(f'{{"n{i}":1,"n{i}":2}}' for i in range(1500)),
}


@pytest.mark.parametrize("stream", HOSTILE)
def test_learning_is_paid_for(stream: str) -> None:
    """Whatever structures come, one is learned per 200 events, and some on credit in the beginning."""
    events = HOSTILE[stream]
    _, (read, rest, learned, refused, panics), lessons = asked(events)
    assert read == len(events)
    assert rest <= read
    assert learned + refused <= SAVED + len(events) // BOUGHT
    assert lessons <= TRIES * (learned + refused)
    assert panics == 0


@pytest.mark.parametrize(
    "event",
    [
        '{"a":"' + "x" * (1 << 20) + '"}',
        "{" + ",".join(f'"n{i}":1' for i in range(100_000)) + "}",
        '{"a":[' + ",".join(f'{{"n":{i}}}' for i in range(4097)) + "]}",
        '{"a":' + "[" * 70 + "]" * 70 + "}",
        '{"a":' + '{"b":' * 70 + "1" + "}" * 71,
        '{"a":' + "[" * 60 + "1," * 10_000 + "{}" + "]" * 60 + "}",
    ],
    ids=["1 MiB", "100,000 names", "4,097 values", "70 arrays deep", "70 objects deep", "an object deep in arrays"],
)
def test_what_is_too_large_is_left_to_others(event: str) -> None:
    """Events beyond the reader's bounds go the way of text, each time, without a lesson."""
    _, (read, rest, learned, refused, panics), lessons = asked([event] * 3, chunk=1)
    assert (read, rest, learned, refused, panics, lessons) == (3, 3, 0, 0, 0, 0)


MEMORY = """
import resource
from tests.engine.test_native import asked, counts, drawn, found, chunks
def held(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
engine, *_ = asked(['{"n":1}'] * 110_000, chunk=10_000)  # which pay for many
before = held()
for i in range(500):
    event = drawn.Drawn("json", f'{{"{str(i) * 20_000}":"x"}}'.encode(), "")
    for _ in range(2):
        found(engine, chunks([event], ends_wanted=False))
assert counts(engine)[2] > 450, counts(engine)
print(held() - before)
"""


def test_layouts_take_bounded_memory() -> None:
    """Structures whose names alone fill the bound many times are forgotten in time."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stdout) < 24 << 20  # of some 27 MiB of names


@pytest.mark.parametrize("wanted", [4625, 4625.0])
def test_keywords_search_numbers_as_texts(wanted: float) -> None:
    """``4625.0`` is another text than ``4625``, though it is the same number."""
    predicate = Predicate(KEYWORDS, Op.NUMBER, wanted)
    for number in ("4625", "4625.0"):
        agree(['{"a":1.5}', f'{{"a":{number}}}', '{"a":"4625"}'], Not(Leaf(0)), predicate)
        agree(['{"a":1.5}', f'{{"a":{number}}}', f'{{"a":{wanted}}}'], Leaf(0), predicate)


def test_a_whole_number_beyond_64_bits() -> None:
    """Its digits are not its text: a reader keeps it as a float."""
    for digits in ("18446744073709551616", "-9223372036854775809", "99999999999999999999"):
        agree(['{"a":1}', f'{{"a":{digits}}}'], Not(Leaf(0)), Predicate("a", Op.CONTAINS, digits))


def test_numbers_beyond_a_float() -> None:
    """Numbers that no float holds are compared like all others."""
    for wanted in (10**400, -(10**400), float("inf"), float("nan")):
        agree(['{"a":"x"}', '{"a":1}', '{"a":1e20}'], Not(Leaf(0)), Predicate("a", Op.NUMBER, wanted))


@pytest.mark.parametrize("network", ["10.0.0.0/255.0.0.0", "10.0.0.0/0.255.255.255", "10.1.1.1", "fe80::%eth0/64"])
def test_every_way_to_write_a_network(network: str) -> None:
    """A network may be written with its mask, or with none; one with a scope is Python's."""
    events = ['{"a":"x"}', '{"a":"10.1.1.1"}', '{"a":"11.1.1.1"}', '{"a":"fe80::1%eth0"}', '{"a":"fe80::1"}']
    agree(events, Not(Leaf(0)), Predicate("a", Op.CIDR, network))
    agree(events, Or((Leaf(0), Leaf(1))), Predicate("a", Op.CIDR, network), Predicate("a", Op.EXACT, "x"))


def test_a_hostile_chunk_takes_little_memory() -> None:
    """Where many rules may match in a few bytes each, what follows is left to others, to the same end."""
    predicates = [Predicate("a", Op.EXACT, f"{i}.5") for i in range(1500)]
    plan = plans.build([rule(i, Leaf(i)) for i in range(1500)], predicates)
    on = Engine(plan, route=False, cache=Cache(0))
    events = [drawn.Drawn("json", text, "") for text in (b'{"a":1e1}',) * 1000 + (b'{"a":75e-1}', b'{"a":8.5}')]
    assert not found(on, chunks(events[:3], ends_wanted=False))
    left = counts(on)[1]
    for ends in (False, True):
        assert found(on, chunks(events, ends_wanted=ends)) == {(1000, 7), (1001, 8)}
    assert counts(on)[1] - left > 200


def test_long_lists_compared() -> None:
    """Fields of very many texts are compared by Python."""
    long = ",".join(map(str, range(1000)))
    events = [f'{{"a":[{long}],"b":["x",{long.replace(",", "0,")}]}}', f'{{"a":[{long}],"b":[-1,{long}]}}']
    agree(['{"a":[1],"b":[2,1]}', '{"a":[1],"b":[2]}', *events], Leaf(0), Predicate("a", Op.FIELD_EXACT, "b"))


def test_only_objects_are_counted() -> None:
    """Lines of text in between are none that the kernel left undecided."""
    on = Engine(plans.build([rule(0, Leaf(0))], [Predicate("a", Op.EXACT, "x")]), route=False)
    found(on, chunks([drawn.Drawn("auto", text, "") for text in (b"text", b'{"a":1}', b"[1]")], ends_wanted=False))
    assert counts(on)[:2] == (1, 1)


def test_a_decoder_that_raises_teaches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its event is left to evaluation, which says of which event it is; other events of the chunk go on."""
    plan = plans.build([rule(0, Leaf(0))], [Predicate("user", Op.EXACT, "administrator")])
    on = Engine(plan, route=False, cache=Cache(0))

    def raising(*_: object) -> None:
        raise LookupError("defect")

    monkeypatch.setattr("vedette.decode.formats.services.compute", raising)
    texts = (*(b'{"client_ip":"1","user":"y"}',) * 3, b'{"user":"administrator"}')
    events = [drawn.Drawn("json", text, "") for text in texts]
    for _ in range(2):
        assert found(on, chunks(events, ends_wanted=False)) == {(3, 0)}
    assert counts(on)[3] == 1


@pytest.fixture
def matching() -> Engine:
    """An engine whose kernel knows that events match two rules."""
    predicates = [Predicate("a", Op.EXACT, "x"), Predicate("b", Op.CONTAINS, "y")]
    on = Engine(plans.build([rule(0, Leaf(0)), rule(1, Not(Leaf(1)))], predicates), route=False, cache=Cache(0))
    for _ in range(3):
        found(on, chunks([drawn.Drawn("json", b'{"a":"z","b":"y"}', "")], ends_wanted=False))
    return on


MATCHING = [drawn.Drawn("json", b'{"a":"x","b":"z"}', "")] * 1500


def evaluations(engine: Engine) -> tuple[set[tuple[int, int]], int]:
    """The matches of ``MATCHING``, and how many of them were evaluated."""
    times = []
    among = engine.evaluator.among
    with mock.patch.object(engine.evaluator, "among", lambda *given: (times.append(0), among(*given))[1]):
        return found(engine, chunks(MATCHING, ends_wanted=False)), len(times)


def test_what_surely_matches_is_not_evaluated(matching: Engine) -> None:
    """But for a sample, in which the kernel is found right."""
    both = {(n, i) for n in range(1500) for i in range(2)}
    assert evaluations(matching) == (both, 1500 // SURE_SAMPLE)
    assert matching.kernel()["wrong"] == 0
    assert matching.tally.matches == 3000


def test_a_kernel_that_is_wrong_is_found_out(matching: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation counts, and is asked about all events from then on."""
    monkeypatch.setattr(matching.evaluator, "among", lambda *_: [1])
    matches = found(matching, chunks(MATCHING, ends_wanted=False))
    assert {(n, 1) for n in range(1500)} == {one for one in matches if one[1] == 1}
    assert len(matches) == 1500 + SURE_SAMPLE - 1
    assert matching.kernel()["wrong"] == 1
    assert matching.kernel_wrong == "rules 0 came out differently than the kernel said"


def test_rules_in_quarantine_are_not_matched(matching: Engine) -> None:
    """Whatever the kernel knows, they are asked no more, and counted."""
    matching.quarantine([matching.plan.rules[0].digest])
    assert found(matching, chunks(MATCHING, ends_wanted=False)) == {(n, 1) for n in range(1500)}
    assert matching.tally.skipped[0] == 1500
