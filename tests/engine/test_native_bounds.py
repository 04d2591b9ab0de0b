"""The native kernel's bounds: what a stream, hostile or odd, can make it learn, keep and count."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from unittest import mock

import pytest

from tests.engine import drawn
from tests.engine.by_kernel import agree, counts, needs_kernel
from tests.engine.test_property import chunks, matches_of, rule
from vedette.decode.formats import services
from vedette.decode.formats.table import CLIENTS
from vedette.engine.cache import Cache
from vedette.engine.match import Engine
from vedette.plan import plan as plans
from vedette.plan.ir import Leaf, Op, Predicate

pytestmark = needs_kernel


def asked(events: list[str], *, chunk: int = 500) -> tuple[Engine, tuple[int, ...], int]:
    """Counts after ``events``, and how often Python was asked to learn."""
    predicates = [Predicate("a", Op.CONTAINS, "x"), Predicate("b.c", Op.EXISTS), Predicate("src_port", Op.EXISTS)]
    plan = plans.build([rule(number, Leaf(number)) for number in range(3)], predicates)
    engine = Engine(plan, cache=Cache(0))
    native = engine._native
    assert native is not None
    lessons = []
    lesson = native._lessons.lesson
    with mock.patch.object(native._lessons, "lesson", lambda *event: (lessons.append(0), lesson(*event))[1]):
        for first in range(0, len(events), chunk):
            batch = [drawn.Drawn("json", written.encode(), "") for written in events[first : first + chunk]]
            matches_of(engine, chunks(batch, ends_wanted=False))
    return engine, counts(engine), len(lessons)


BOUGHT, EARNED, SAVED = 200, 8, 512
"""Events that pay for learning a structure, and of how many a decided one pays for; what is learned on credit."""


def pairs(events: Iterable[str]) -> list[str]:
    """Each twice: when half of the credit is used, a structure that comes only once is not learned at all."""
    return [event for event in events for _ in range(2)]


HOSTILE = {
    "each another structure": [f'{{"n{i}":"x"}}' for i in range(4000)],
    "each structure twice": pairs(f'{{"n{i}":"x"}}' for i in range(2000)),
    "deciding values ever new": pairs(f'{{"EventID":{i},"Channel":"c{i}"}}' for i in range(2000)),
    "another name decides each time": pairs(f'{{"EventID":{{"n{i}":"x"}}}}' for i in range(1500)),
    "names that are names": pairs(
        f'{{"Event":{{"System":{{"EventID":1}},"EventData":{{"Data":[{{"@Name":"n{i}","#text":"x"}}]}}}}}}'
        for i in range(1500)
    ),
    "names that occur twice": pairs(f'{{"n{i}":1,"n{i}":2}}' for i in range(1500)),
}


@pytest.mark.parametrize("stream", HOSTILE)
def test_learning_is_paid_for(stream: str) -> None:
    """Whatever structures come, each is learned once, for 200 events that are not decided or 22 that are, and some on
    credit in the beginning."""
    events = HOSTILE[stream]
    _, (read, rest, learned, refused, panics), lessons = asked(events)
    assert read == len(events)
    assert rest <= read
    assert lessons == learned + refused
    assert lessons <= SAVED + (read + EARNED * (read - rest)) // BOUGHT
    assert panics == 0


def again(engine: Engine, event: str, times: int) -> tuple[int, int]:
    """How many further events are undecided, and how many structures learned, after ``event`` came so often."""
    before = counts(engine)
    matches_of(engine, chunks([drawn.Drawn("json", event.encode(), "")] * times, ends_wanted=False))
    return counts(engine)[1] - before[1], counts(engine)[2] - before[2]


def test_names_without_end_cost_no_lessons_in_the_end() -> None:
    """A sender that makes up names uses up the credit, and is learned of no more; others are as before."""
    engine, (_, _, learned, *_), lessons = asked(['{"a":"x"}', *(f'{{"n{i}":"x"}}' for i in range(20_000))])
    assert learned == lessons <= SAVED + 20_000 // BOUGHT
    assert again(engine, '{"a":"x"}', 50) == (0, 0)


def sysmon(number: int) -> str:
    """An event whose channel and id decide; nothing looks into the others."""
    return f'{{"Channel":"Sysmon","EventID":1,"Image":"C:/{number}","CommandLine":"c {number}","User":"u{number}"}}'


@pytest.mark.parametrize(
    "event",
    [
        '{"Image":"/x","CommandLine":"y"}',
        '{"EventID":{"Image":"x","CommandLine":"y","User":"z"}}',
        '{"client_ip":{"User":"x"}}',
        '{"EventID":1,"Channel":"c","Provider_Name":[{"CommandLine":1}]}',
        '{"Channel":"","EventID":1,"Image":"/x","CommandLine":"y","User":"z"}',
    ],
)
def test_what_decides_in_an_event_decides_in_no_other(event: str) -> None:
    """Values under the names of an event that decoders look into stay free in events of another outline."""
    _, (read, rest, learned, refused, panics), _ = asked([sysmon(0), event, *map(sysmon, range(1000))], chunk=50)
    assert (read, rest, learned, refused, panics) == (1002, 0, 2, 0, 0)


CHAIN = CLIENTS[:12]


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoders look into the values of CHAIN up to the first that is not "on"."""
    monkeypatch.setattr(services, "compute", lambda fields, value, *_: str(value) != "on")


def chained(*values: str) -> str:
    """An event of one outline, with these values first."""
    return json.dumps(dict(zip(CHAIN, values + ("x",) * (len(CHAIN) - len(values)), strict=True)))


def varied() -> Engine:
    """After events of one outline, in all of which but the first another value decides and is ever new."""
    events = [chained("known"), *(chained("on", str(i)) for i in range(300))]
    engine, (_, rest, learned, refused, panics), _ = asked(events, chunk=1)
    assert (rest, learned, refused, panics) == (301 - 128, 128, 0, 0)
    return engine


@pytest.mark.usefixtures("chain")
def test_what_decides_may_depend_on_values() -> None:
    """A sender of the same outline stops at 128 lessons about it, and known events stay known."""
    engine = varied()
    assert again(engine, chained("known", "y"), 50) == (0, 0)
    assert again(engine, chained("new"), 5) == (5, 0)


@pytest.mark.long
@pytest.mark.usefixtures("chain")
def test_lessons_about_an_outline_are_counted_anew() -> None:
    """After 65,536 events others of the same outline are learned."""
    engine = varied()
    for _ in range(16):
        again(engine, '{"a":"x"}', 1 << 12)
    assert again(engine, chained("new"), 5) == (0, 1)


@pytest.mark.usefixtures("chain")
def test_the_sets_of_values_that_decide_are_bounded() -> None:
    """Where others decide each time, those are forgotten that saved nothing, and what is known stays so."""
    engine, *_ = asked([chained("known", str(i)) for i in range(30)])
    hostile = [chained(*("on",) * number) for number in range(1, len(CHAIN))]
    for event in hostile:
        assert again(engine, event, 1) == (0, 1)
    assert again(engine, chained("known", "y"), 50) == (0, 0)
    assert [again(engine, event, 5) for event in (hostile[-1], hostile[0])] == [(0, 0), (0, 1)]


def test_sets_of_values_that_pay_leave_room_for_others() -> None:
    """Which text decides follows from the names beside it: a sender takes all sets of an outline, and all save much."""

    def listed(names: list[str], text: str) -> str:
        data = [{"@Name": name, "#text": text} for name in names]
        return json.dumps({"Event": {"System": {"EventID": 1, "Channel": "c"}, "EventData": {"Data": data}}})

    names = [f"n{number}" for number in range(12)]
    hostile = [listed([*names[:at], "EventID", *names[at + 1 :]], "7") for at in range(12)]
    engine, (_, rest, learned, refused, _), _ = asked([event for event in hostile[:8] for _ in range(50)])
    assert (rest, learned, refused) == (0, 8, 0)
    assert again(engine, listed(names, "x"), 60) == (0, 1)
    assert [again(engine, event, 1) for event in hostile[8:]] == [(0, 1)] * 4
    assert again(engine, listed(names, "y"), 60) == (0, 0)


def test_where_little_is_left_a_known_outline_was_met() -> None:
    """What decides in one of its events, and is new in each of the others, does not make these new."""

    def listed(name: str, text: str) -> str:
        data = [{"@Name": name, "#text": text}, {"@Name": "b", "#text": text}]
        return json.dumps({"Event": {"System": {"EventID": 1, "Channel": "c"}, "EventData": {"Data": data}}})

    engine, *_ = asked([listed("EventID", "7"), *pairs(f'{{"n{i}":"x"}}' for i in range(420))], chunk=10)
    for number in range(5):
        again(engine, listed("a", f"t{number}"), 1)
    assert again(engine, listed("a", "t"), 1) == (0, 0)


def test_of_a_long_value_that_decides_nothing_is_learned() -> None:
    """Its events are left to others, at the price of the lessons that their outline has; shorter ones are learned."""
    long = [f'{{"EventID":1,"Channel":"{"c" * 2000}{i}"}}' for i in range(300)]
    engine, (_, rest, learned, refused, panics), _ = asked(long, chunk=1)
    assert (rest, learned, refused, panics) == (300, 0, 128, 0)
    assert again(engine, '{"Channel":"c","EventID":1,"a":"x"}', 5) == (0, 1)


@pytest.mark.parametrize("name", ["\\u0001", "a\\nb", "\\u001fEventID"])
def test_a_control_character_in_a_name_is_left_to_others(name: str) -> None:
    """The kernel marks structures by such."""
    event = f'{{"{name}":"x","b":1}}'
    agree([event, event.replace("x", "y")], Leaf(0), Predicate(json.loads(f'"{name}"'), Op.EXACT, "x"))
    _, (_, rest, learned, *_), lessons = asked([event] * 3)
    assert (rest, learned, lessons) == (3, 0, 0)


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
from tests.engine.test_native_bounds import asked, chunks, counts, drawn, matches_of
def resident(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
engine, *_ = asked(['{"n":1}'] * 110_000, chunk=10_000)  # which pay for many
before = resident()
for i in range(500):
    event = drawn.Drawn("json", f'{{"{str(i) * 20_000}":"x"}}'.encode(), "")
    for _ in range(2):
        matches_of(engine, chunks([event], ends_wanted=False))
assert counts(engine)[2] > 450, counts(engine)
print(resident() - before)
"""


def test_layouts_take_bounded_memory() -> None:
    """Structures whose names alone fill the bound many times are forgotten in time."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stdout) < 24 << 20  # of some 27 MiB of names


def test_what_saves_something_is_kept_when_memory_is_short() -> None:
    """Structures that fill the bound are forgotten; one whose events come again and again is not learned again."""
    useful = ['{"a":"x"}'] * 30
    events = [f'{{"{str(i) * 20_000}":"x"}}' for i in range(100, 500)]
    engine, (_, rest, learned, *_), _ = asked([each for event in events for each in (event, *useful)], chunk=31)
    assert (rest, learned) == (0, 401)
    assert again(engine, events[0], 1) == (0, 1)


def test_a_hostile_chunk_takes_little_memory() -> None:
    """Where many rules may match in a few bytes each, what follows is left to others, to the same end."""
    predicates = [Predicate("a", Op.EXACT, f"{i}.5") for i in range(1500)]
    plan = plans.build([rule(i, Leaf(i)) for i in range(1500)], predicates)
    on = Engine(plan, route=False, cache=Cache(0))
    events = [drawn.Drawn("json", text, "") for text in (b'{"a":1e1}',) * 1000 + (b'{"a":75e-1}', b'{"a":8.5}')]
    assert not matches_of(on, chunks(events[:3], ends_wanted=False))
    left = counts(on)[1]
    for ends in (False, True):
        assert matches_of(on, chunks(events, ends_wanted=ends)) == {(1000, 7), (1001, 8)}
    assert counts(on)[1] - left > 200


def test_only_objects_are_counted() -> None:
    """Lines of text in between are none, nor is an array; the object is decided at once."""
    on = Engine(plans.build([rule(0, Leaf(0))], [Predicate("a", Op.EXACT, "x")]), route=False)
    matches_of(on, chunks([drawn.Drawn("auto", text, "") for text in (b"text", b'{"a":1}', b"[1]")], ends_wanted=False))
    assert counts(on)[:2] == (1, 0)


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
        assert matches_of(on, chunks(events, ends_wanted=False)) == {(3, 0)}
    assert counts(on)[3] == 1
