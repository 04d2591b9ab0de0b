"""The sample of what the native kernel leaves out: a wrong "no" is noticed, and its events go without the kernel.

The kernel is wrong here as a defect would make it wrong: it is taught a structure, or given a text to look for, that is
not the plan's. What compares is the engine as it runs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import pytest

from tests.differences import walk
from tests.engine.test_property import rule
from tests.engine.test_rows import ALL
from tests.engine.test_rows import chunk as of_rows
from tests.engine.test_rows import plan as of_statements
from vedette.engine import kernel
from vedette.engine.cache import Cache
from vedette.engine.join import Joiner
from vedette.engine.lessons import Lesson, Lessons, View
from vedette.engine.match import Engine
from vedette.engine.native import Native
from vedette.engine.prefilter import Candidate
from vedette.engine.proof import LEFT_OUT_SAMPLE, Sample, Sampled, sampled
from vedette.engine.rows import Batch
from vedette.model.event import Chunk, Frame
from vedette.plan import plan as plans
from vedette.plan.ir import Leaf, Op, Predicate

native = pytest.mark.skipif(kernel.LOADED is None, reason=f"the native kernel is {kernel.why_not}")

SIZE = 1000
"""Events of a chunk."""


def lines(text: bytes, codec: str = "json") -> Chunk:
    """The same event many times."""
    return Chunk("in", codec, 0, (text + b"\n") * SIZE)


def matched(engine: Engine, chunk: Chunk, times: int = 1) -> int:
    return sum(1 for _ in range(times) for _ in engine.evaluate(chunk))


# --- which events


def test_one_event_in_so_many() -> None:
    """However chunks are cut, each 10,000th event."""
    data = b"".join(b"%05d\n" % number for number in range(25_000))
    for size in (7, 1000, 25_000):
        sample, found = Sample(), []
        for first in range(0, 25_000, size):
            part = Chunk("in", "text", 0, data[first * 6 : (first + size) * 6])
            if (span := sample.span(part)) is not None:
                found.append(part.data[slice(*span)])
        assert found[:1] == [b"09999"]
        assert found == [b"09999", b"19999"][: len(found)]
        assert len(found) == 2 or size > LEFT_OUT_SAMPLE


def test_an_empty_line_is_none() -> None:
    sample = Sample()
    assert sample.span(Chunk("in", "text", 0, b"\n" * LEFT_OUT_SAMPLE)) is None
    assert sample.span(Chunk("in", "text", 0, b"x\n" * LEFT_OUT_SAMPLE)) == (
        2 * LEFT_OUT_SAMPLE - 2,
        2 * LEFT_OUT_SAMPLE - 1,
    )
    ends = array("I", range(1, LEFT_OUT_SAMPLE + 1))
    assert sample.span(Chunk("in", "text", 0, b"x" * LEFT_OUT_SAMPLE, ends)) == (LEFT_OUT_SAMPLE - 1, LEFT_OUT_SAMPLE)


def flat(candidates: Iterable[Any]) -> list[tuple[int, int, list[int], bool]]:
    """Start, end, rules of each event, and whether it is of the sample."""
    events = []
    for each in candidates:
        for start, end in each.spans if isinstance(each, Batch) else [each[:2]]:
            events.append((start, end, sorted(each.rules), type(each.rules) is Sampled))
        if isinstance(each, Batch):
            assert each.start == each.spans[0][0]
            assert len(each.spans) == len(each.rows) == len(each.hosts)
            assert each.rows == [start for start, _ in each.spans]
    return events


ONE, TWO = Candidate(0, 4, frozenset({1})), Candidate(10, 14, frozenset({2}))
BATCH = Batch(15, 34, frozenset({3}), [(15, 19), (20, 24), (30, 34)], [15, 20, 30], [None] * 3)


@walk("span", [(0, 4), (5, 9), (10, 14), (15, 19), (20, 24), (25, 29), (30, 34), (35, 39)])
def test_an_event_of_the_sample_stands_in_its_place(span: tuple[int, int]) -> None:
    """With the rules that are left of it, or none; a batch is cut there, and all others are as they were."""
    plain = flat([ONE, TWO, BATCH])
    rules = [rules for start, end, rules, _ in plain if (start, end) == span]
    wanted = sorted([*(event for event in plain if event[:2] != span), (*span, *(rules or [[]]), True)])
    assert flat(sampled([ONE, TWO, BATCH], *span)) == wanted


# --- a kernel that is right


@native
def test_a_kernel_that_is_right_is_not_found_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in 10,000 events that it leaves out is evaluated, and nothing else comes of it."""
    engine = Engine(plans.build([rule(0, Leaf(0))], [Predicate("a", Op.EXACT, "x")]), route=False, cache=Cache(0))
    times, among = [], engine.evaluator.among
    given = lines(b'{"a":"y"}')
    matched(engine, given, 2)
    monkeypatch.setattr(engine.evaluator, "among", lambda *asked: (times.append(0), among(*asked))[1])
    assert matched(engine, given, 30) == 0
    assert len(times) == 3
    assert engine.kernel()["wrong"] == 0


@native
def test_an_event_of_the_sample_on_which_evaluation_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would have asked: it is no failed event."""
    engine = Engine(plans.build([rule(0, Leaf(0))], [Predicate("a", Op.EXACT, "x")]), route=False, cache=Cache(0))
    given, asked = lines(b'{"a":"y"}'), []
    matched(engine, given, 2)

    def raising(*_: object) -> list[int]:
        asked.append(0)
        raise LookupError("defect")

    monkeypatch.setattr(engine.evaluator, "among", raising)
    assert matched(engine, given, 10) == 0
    assert len(asked) == 1


@native
def test_a_rule_in_quarantine_is_not_asked_for_the_sample() -> None:
    engine = Engine(plans.build([rule(0, Leaf(0))], [Predicate("a", Op.EXACT, "x")]), route=False, cache=Cache(0))
    engine.quarantine([engine.plan.rules[0].digest])
    assert matched(engine, lines(b'{"a":"y"}'), 11) == 0
    assert engine.tally.skipped == {}


# --- a kernel that is wrong


def taught(monkeypatch: pytest.MonkeyPatch, *named: bytes) -> None:
    """The kernel learns of events with these bytes that no rule is about them."""
    lesson = Lessons.lesson

    def wrong(self: Lessons, raw: bytes, view: View) -> tuple[list[int], Lesson | None]:
        deciding, learned = lesson(self, raw, view)
        return deciding, learned._replace(rules=b"") if learned and any(name in raw for name in named) else learned

    monkeypatch.setattr(Lessons, "lesson", wrong)


@native
@pytest.mark.parametrize("head", [b"", b"<38>Nov 20 10:00:00 web1 app: "], ids=["object", "message"])
def test_a_structure_that_is_left_out_wrongly(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    """The event of the sample matches, and from then on each of that structure; others stay with the kernel."""
    taught(monkeypatch, b'"a"')
    predicates = [Predicate("a", Op.EXACT, "x"), Predicate("b", Op.EXACT, "x")]
    engine = Engine(plans.build([rule(0, Leaf(0)), rule(1, Leaf(1))], predicates), route=False, cache=Cache(0))
    wrong, right, codec = lines(head + b'{"a":"x"}', "auto"), lines(head + b'{"b":"x"}', "auto"), "auto"
    matched(engine, wrong)
    matched(engine, right)
    assert matched(engine, wrong) == 0  # learned
    assert matched(engine, wrong, 7) == 1
    assert engine.kernel()["wrong"] == 1
    assert engine.kernel_wrong == "rules 0 matched although the kernel said that they do not"
    assert matched(engine, wrong, 3) == 3 * SIZE
    matched(engine, right)
    before = engine.kernel()["undecided"]
    assert matched(engine, right, 12) == 12 * SIZE
    assert engine.kernel()["undecided"] == before
    assert engine.kernel()["wrong"] == 1
    assert matched(engine, lines(head + b'{"a":"%s"}' % (b"y" * 9), codec)) == 0


@native
def test_lines_that_are_left_out_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line has no structure, so its whole input goes without the kernel; another input does not."""
    monkeypatch.setattr(Native, "_direct", lambda self: [(0, 2, False, "nothing of the kind")])
    words = [Predicate("message", Op.CONTAINS, "cmd"), Predicate("message", Op.CONTAINS, "exe")]
    engine = Engine(plans.build([rule(0, Leaf(0)), rule(1, Leaf(1))], words), route=False, cache=Cache(0))
    given, other = (lines(b"<38>Nov 20 10:00:00 web1 app: cmd", codec) for codec in ("syslog", "auto"))
    assert matched(engine, given, 10) == 1
    assert engine.kernel()["wrong"] == 1
    assert matched(engine, given, 12) == 12 * SIZE
    assert matched(engine, other, 9) == 0
    assert matched(engine, other, 2) == 1 + SIZE
    assert engine.kernel()["wrong"] == 2
    assert all(scan.sets for scan in engine._distrusted.values())
    engine.remember(Cache(0))
    assert not any(scan.sets for scan in engine._distrusted.values())


@native
def test_rows_that_are_left_out_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that only give rows come as batches: the sample's event is one by itself, in its order."""

    def starts(engine: Engine, chunk: Chunk) -> list[int]:
        found: list[int] = []
        for event in engine.gathered(Frame(0, chunk), Joiner()):
            if isinstance(event, Batch):
                found += (start for start, _ in event.spans)
            elif engine.matches(chunk, event):
                found.append(event.start)
        return found

    given = of_rows([b'{"a": "x"}'] * SIZE)
    every = [start for start, _ in given.spans()]
    engine = Engine(of_statements(ALL), route=False)
    assert [starts(engine, given) for _ in range(21)] == [every] * 21
    assert engine.kernel()["wrong"] == 0
    taught(monkeypatch, b'"a"')
    engine = Engine(of_statements(ALL), route=False)
    starts(engine, given)
    found = [starts(engine, given) for _ in range(10)]
    assert found[:8] == [[]] * 8
    assert found[8:] == [every[-1:], every]
    assert engine.kernel()["wrong"] == 1


@native
def test_structures_without_the_kernel_are_bounded() -> None:
    """Of more than 64 structures, and of what has none, the engine is told that this is no help."""
    engine = Engine(plans.build([rule(0, Leaf(0))], [Predicate("a", Op.EXACT, "x")]), route=False)
    part = engine._native
    assert part is not None
    assert not part.distrust(b"text")
    assert part.distrust(b'{"n":"x"}')
    assert not part.distrust(b'{"n":"y"}')  # of the same structure
    assert [part.distrust(b'{"n%d":"x"}' % number) for number in range(70)] == [True] * 63 + [False] * 7
