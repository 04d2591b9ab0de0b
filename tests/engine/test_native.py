"""The native kernel on events: with it, without it and by ``tests/reference.py`` the same matches, always.

``VEDETTE_DEEP=N`` draws N examples of each claim.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from bench import services
from tests import reference
from tests.deep import DEEP
from tests.differences import walk
from tests.engine import drawn
from tests.engine.by_kernel import HEAD, ROUNDS, agree, counts, needs_kernel
from tests.engine.structures import ORIGINS, Draw, header, message, spoiled
from tests.engine.test_property import PARTS, chunks, matches_of, readable, rule, scalars
from tests.lookup.tables import lookup_of, reference_lookups
from vedette.decode.decoder import record
from vedette.decode.formats import services as services_format
from vedette.engine.cache import Cache
from vedette.engine.match import Context, Engine
from vedette.lookup.table import Lookup
from vedette.model.event import LogSource
from vedette.plan import plan as plans
from vedette.plan.ir import KEYWORDS, And, Expr, Leaf, Not, Op, Or, Predicate, text

pytestmark = needs_kernel

EXAMPLES = DEEP or 50


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
        draw.decoded += [(name, str(text(leaf))) for name, value in fields.items() for leaf in scalars(value)]
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
    assert matches_of(off, chunks(events, ends), context) == expected, where
    order = list(range(len(events)))
    for _ in range(ROUNDS):
        random.shuffle(order)
        matches = matches_of(on, chunks([events[n] for n in order], ends), context)
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


def test_a_name_in_several_places_in_any_order() -> None:
    """The same place of a Windows event's name wins for the kernel, whichever order it has learned."""
    members = [
        ('"winlog.channel"', "c"), ('"winlog.log_name"', "d"), ('"winlog.event_data.Image"', "%s"),
        ('"winlog.user_data.Image"', "%s"), ('"winlog.event_data.Channel"', "e"),
    ]  # fmt: skip
    plan = plans.build(
        [rule(0, Leaf(0)), rule(1, Leaf(1))],
        [Predicate("Image", Op.EXACT, "user"), Predicate("Channel", Op.EXACT, "c")],
    )
    on = Engine(plan, route=False, cache=Cache(0))
    for order in permutations(members):
        event = "{" + ",".join(f'{name}:"{value}"' for name, value in order) + "}"
        user_first = event.index("user_data") < event.index("event_data.Image")
        values = [("user", "data"), ("data", "user"), ("user", "user")]
        texts = [event % (value if user_first else value[::-1]) for value in values]
        events = [drawn.Drawn("json", text.encode(), "") for text in texts] * 3
        for _ in range(2):
            assert matches_of(on, chunks(events, ends_wanted=False)) == {
                match for i in range(9) for match in ([(i, 0)] if i % 3 != 1 else []) + [(i, 1)]
            }
    read, rest, *_ = counts(on)
    assert rest < read / 2


def test_one_lesson_for_all_ways_to_write_an_event() -> None:
    """In whatever order and spelling names are written; of one that occurs twice the last counts, whether it decides or
    not."""
    members = ['"EventID":1', '"Channel":"System"', '"a":"%s"', '"b":{"c":"%s","d":[{"e":1,"f":"%s"},2]}']
    inner = '"b":{"d":[{"f":"%s","e":1},2],"c":"%s"}'
    plan = plans.build(
        [rule(i, Leaf(i)) for i in range(4)],
        [Predicate("a", Op.EXACT, "x"), Predicate("b.c", Op.EXACT, "x"), Predicate("b.d.f", Op.EXACT, "x"),
         Predicate("EventID", Op.EXACT, "2")],
    )  # fmt: skip
    written = ["{" + ",".join(order) + "}" for order in permutations(members)]
    written += [event.replace(members[3], inner) for event in written]
    written += [
        event.replace('"EventID"', '"\\u0045ventI\\u0044"').replace('"c"', '"\\u0063"') for event in written[:9]
    ]
    written += ['{"a":"x","a":[],"b":{"c":"x"},"EventID":2,' + event[1:] for event in written[:9]]
    written += ['{"EventID":2,"\\u0061":1,"b":[{"c":"x"}],' + event[1:] for event in written[:9]]
    texts = [event % value for event in written for value in (("x", "y", "z"), ("z", "x", "y"), ("y", "z", "x"))]
    batch = [drawn.Drawn("json", text.encode(), "") for text in texts]
    on, off = (Engine(plan, route=False, cache=Cache(0), kernel=kernel) for kernel in (True, False))
    expected = matches_of(off, chunks(batch, ends_wanted=False))
    assert {rule for _, rule in expected} == {0, 1, 2}
    assert matches_of(on, chunks(batch, ends_wanted=False)) == expected
    assert counts(on)[1:] == (0, 1, 0, 0)


def test_keyword_searches_beside_one_that_python_does() -> None:
    """A pattern that Hyperscan does not take is a group of its own, beside the other keyword searches."""
    words, ahead = Predicate(KEYWORDS, Op.CONTAINS, "cmd"), Predicate(KEYWORDS, Op.REGEX, "a(?=b)", True)
    for wanted in (Leaf(0), Leaf(1), And((Leaf(0), Leaf(1)))):
        agree(['{"a":"x"}', '{"a":"cmd ab"}'], wanted, words, ahead)


def test_keyword_searches_of_an_event_without_a_text() -> None:
    """An empty text is in every text, and not in an event that has none, be it that its only one does not count."""
    events = ['{"a":[]}', '{"a":[[]]}', '{"a":"x"}', '{"a":""}', '{"a":"x","a":{}}', '{"a":{"b":"x"},"a":[{}]}']
    agree(events, Leaf(0), Predicate(KEYWORDS, Op.CONTAINS, ""))


def test_no_keyword_is_null() -> None:
    """SQL asks whether one is, of a column that is called ""."""
    plan = plans.build([rule(0, Leaf(0)), rule(1, Not(Leaf(0)))], [Predicate(KEYWORDS, Op.NULL)])
    events = [drawn.Drawn("json", b'{"a":"x"}', "")] * 2
    for kernel in (True, False):
        engine = Engine(plan, route=False, cache=Cache(0), kernel=kernel)
        assert matches_of(engine, chunks(events, ends_wanted=False)) == {(0, 1), (1, 1)}


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
    exprs: list[Expr] = [expr for exprs_of_test in shapes for expr in exprs_of_test]
    predicates = [*tests, Predicate(KEYWORDS, Op.CONTAINS, "")]
    plan = plans.build([rule(i, expr) for i, expr in enumerate(exprs)], predicates)
    for first in events:  # whichever is learned from
        asked = [drawn.Drawn("json", text.encode(), "") for text in [first, first, *events]]
        on, off = (Engine(plan, route=False, cache=Cache(0), kernel=kernel) for kernel in (True, False))
        expected = matches_of(off, chunks(asked, ends_wanted=False))
        for _ in range(ROUNDS):
            assert matches_of(on, chunks(asked, ends_wanted=False)) == expected
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
    assert matches_of(on, chunks(events, ends_wanted=False)) == expected  # while it learns
    before = on.tally.candidates
    assert matches_of(on, chunks(events, ends_wanted=False)) == expected
    assert on.tally.candidates - before == len(expected)


def test_a_lookup_that_is_damaged_leaves_its_rule_undecided(tmp_path: Path) -> None:
    """A probe that the file's bytes do not allow is never "no match", and no other rule's matter."""
    path = tmp_path / "t.vlookup"
    with lookup_of(path, "name n:int", "name:nocase", [(f"u{i}", i) for i in range(50)]) as lookup:
        at, size, _ = lookup.header.sections["i0.dir"]
    data = bytearray(path.read_bytes())
    data[at : at + size] = b"\xff" * size
    path.write_bytes(data)
    predicates = [Predicate("x", Op.LOOKUP, "t", option="name"), Predicate("y", Op.EXACT, "1")]
    plan = plans.build([rule(0, Leaf(0)), rule(1, Leaf(1))], predicates).with_lookups({"t": Lookup.open(path)})
    on = Engine(plan, route=False, cache=Cache(0), quarantine_after=10**9)
    events = [drawn.Drawn("json", f'{{"x":"u{i}","y":"{i % 2}"}}'.encode(), "") for i in range(20)]
    for _ in range(ROUNDS):
        assert matches_of(on, chunks(events, ends_wanted=False)) == {(i, 1) for i in range(1, 20, 2)}
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
    asked = [drawn.Drawn("json", event, "") for event in events]
    on, off = (Engine(plan, route=False, cache=Cache(0), kernel=kernel) for kernel in (True, False))
    for first in range(0, len(asked), 300):
        batch = chunks(asked[first : first + 300], ends_wanted=False)
        assert matches_of(on, batch) == matches_of(off, batch) != set()
    read, rest, learned, refused, panics = counts(on)
    assert read == 900
    assert rest <= 60
    assert learned <= 30
    assert (refused, panics) == (0, 0)


def test_what_a_decoder_makes_of_a_computed_field_is_not_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of which only its place is known cannot be looked into."""
    compute = services_format.compute

    def looking(fields: dict[str, Any], *arguments: Any) -> bool:
        done = compute(fields, *arguments)
        fields["src_port"] = fields["src_ip"][:2]
        return done

    monkeypatch.setattr("vedette.decode.formats.services.compute", looking)
    plan = plans.build([rule(0, Leaf(0))], [Predicate("src_port", Op.EXACT, "10")])
    on = Engine(plan, route=False, cache=Cache(0))
    events = [
        drawn.Drawn("json", text, "") for text in (*(b'{"client_ip":"11.0.0.1"}',) * 3, b'{"client_ip":"10.0.0.1"}')
    ]
    for _ in range(2):
        assert matches_of(on, chunks(events, ends_wanted=False)) == {(3, 0)}
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
        assert matches_of(on, batch) == matches_of(off, batch)


@pytest.mark.parametrize("number", ["1e400", "-1e999", "1" + "0" * 400])
def test_a_number_beyond_a_float_is_a_text(number: str) -> None:
    """It is not of the same structure as a number: decoders take it for a text."""
    zeek = '{{"ts":1,"uid":"C","id.orig_h":"x","trans_depth":1,"uri":{}}}'
    agree([zeek.format("1e20"), zeek.format(number)], Leaf(0), Predicate("cs-uri-stem", Op.EXISTS))


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


def test_long_lists_compared() -> None:
    """Fields of very many texts are compared by Python."""
    long = ",".join(map(str, range(1000)))
    events = [f'{{"a":[{long}],"b":["x",{long.replace(",", "0,")}]}}', f'{{"a":[{long}],"b":[-1,{long}]}}']
    agree(['{"a":[1],"b":[2,1]}', '{"a":[1],"b":[2]}', *events], Leaf(0), Predicate("a", Op.FIELD_EXACT, "b"))
