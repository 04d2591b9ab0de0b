"""Audit records of one event are judged as one, whichever of them a literal is in, and however the log is cut."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple
from unittest import mock

import hypothesis.strategies as st
import msgpack
from hypothesis import given, settings

from vedette.engine import join
from vedette.engine.join import HELD_BYTES, MAX_BYTES, MAX_OPEN, MAX_RECORDS, REST, Joiner, gather
from vedette.engine.match import Context, Engine
from vedette.model.event import Chunk, Flag, Frame
from vedette.plan import plan as plans
from vedette.plan.plan import Plan
from vedette.rules import build
from vedette.state.state import State

RULE = """
title: hidden file run
logsource: {product: linux, service: auditd}
detection:
  ran: {type: EXECVE, a1|contains: payload}
  file: {type: PATH, name|startswith: /tmp/hidden}
  known: {exe|endswith: /backup}
  condition: ran and file and not known
"""


def plan() -> Plan:
    rules = build.read(RULE)
    return plans.build(rules.rules, rules.predicates, rules.refused)


def record(kind: str, number: int, body: str) -> str:
    return f"type={kind} msg=audit(1795168800.250:{number}): {body}"


RUN = record("EXECVE", 1, 'a0="sh" a1="payload"')
FILE = record("PATH", 1, 'name="/tmp/hidden/x"')


def lines(*texts: str, codec: str = "auto") -> Chunk:
    return Chunk("test", codec, 0, "".join(text + "\n" for text in texts).encode())


def test_one_event() -> None:
    """A rule over two records fires once, at the first of them, with the text of both."""
    other = record("EXECVE", 2, 'a0="payload"')
    chunk = lines("noise", RUN, other, FILE, record("PROCTITLE", 1, "proctitle=6C73"))
    for prefilter in (True, False):
        (match,) = Engine(plan(), prefilter=prefilter).evaluate(chunk)
        assert chunk.data[match.start : match.end].decode() == RUN
        assert match.record.get("type") == ["EXECVE", "PATH", "PROCTITLE"]
        assert match.record.get("proctitle") == "ls"


def test_not_one_event() -> None:
    """Records of other ids, of other hosts and origins, and text that only looks like records, stay apart."""
    elsewhere = record("PATH", 2, 'name="/tmp/hidden/x"')
    assert not list(Engine(plan()).evaluate(lines(RUN, elsewhere)))
    assert not list(Engine(plan()).evaluate(lines("node=a " + RUN, "node=b " + FILE)))
    assert not list(
        Engine(plan()).evaluate(lines(f"<14>Nov 20 10:00:00 a x: {RUN}", f"<14>Nov 20 10:00:00 b x: {FILE}"))
    )
    assert not list(Engine(plan()).evaluate(lines("said: " + RUN, FILE)))
    first, second = RUN.encode(), FILE.encode()
    ends = array("I", [len(first), len(first) + len(second)])
    chunk = Chunk("test", "auto", 0, first + second, ends, ("10.0.0.1", "10.0.0.2"), array("H", [0, 1]))
    assert not list(Engine(plan()).evaluate(chunk))
    same = Chunk("test", "auto", 0, first + second, ends, ("10.0.0.1", "10.0.0.2"), array("H", [1, 1]))
    assert len(list(Engine(plan()).evaluate(same))) == 1


def test_all_records_count() -> None:
    """A record without a literal of the rule takes part: here it is the exception that the rule makes."""
    assert not list(Engine(plan()).evaluate(lines(record("SYSCALL", 1, 'exe="/bin/backup"'), RUN, FILE)))


class Judged(NamedTuple):
    """An event that a rule matched: its place in the log, the rules, its text."""

    offset: int
    rules: tuple[str, ...]
    raw: bytes


ALWAYS = """
---
title: anything but a path
logsource: {product: linux, service: auditd}
detection:
  path: {type: PATH}
  condition: not path
---
title: noise
logsource: {product: linux}
detection:
  keywords: [noise]
  condition: keywords
"""


@cache
def engine() -> Engine:
    rules = build.read(RULE + ALWAYS)
    return Engine(plans.build(rules.rules, rules.predicates, rules.refused), route=False)


def frames(chunks: Iterable[Chunk], offset: int = 0) -> list[Frame]:
    made = []
    for chunk in chunks:
        made.append(Frame(offset, chunk))
        offset = made[-1].end
    return made


def judged(one: join.Joined) -> Iterator[Judged]:
    matches = engine().matches(one.frame.chunk, one)
    if matches:
        rules = engine().plan.rules
        yield Judged(one.frame.offset + one.start, tuple(rules[m.rule].title for m in matches), matches[0].record.raw)


def judge(chunks: Iterable[Chunk], joiner: Joiner, *, rest: bool = True) -> list[Judged]:
    """As the pipeline does, with the clock of the frames."""
    found: list[Judged] = []
    for frame in frames(chunks):
        joiner.advance(frame.chunk.received_at)
        while (event := engine().due(joiner, {})) is not None:
            found += judged(event)
            joiner.evaluated()
        for event in engine().candidates(frame, joiner):
            found += judged(event)
    while rest and (event := engine().due(joiner, {}, before=REST)) is not None:
        found += judged(event)
        joiner.evaluated()
    return found


def raws(evaluated: Iterable[Judged]) -> list[int]:
    """How many records each event has."""
    return [event.raw.count(b"type=") for event in evaluated]


CWD = record("CWD", 1, 'cwd="/"')
END = record("PROCTITLE", 1, "proctitle=6C73")


def at(second: float, *texts: str, name: str = "test") -> Chunk:
    return Chunk(name, "auto", int(second * 1_000_000), "".join(text + "\n" for text in texts).encode())


END_LATER = at(3600.1, END)


def test_complete_with_its_last_record() -> None:
    """What follows the last record of an event is another event; messages of user space never wait."""
    found = judge(
        [at(1, CWD, END, CWD, END, record("EOE", 1, ""), record("USER_LOGIN", 1, "acct=x"))], joiner := Joiner()
    )
    assert raws(found) == [2, 2, 1, 1]
    assert not joiner
    assert raws(judge([at(1, record("1300", 1, "x=1"), record("1327", 1, "x=1"), CWD)], Joiner())) == [2, 1]


def test_waits_for_so_long() -> None:
    """Without its last record an event is judged when, by frames of any input, more than HOLD has gone by since its
    first record; not when the agent was down for longer, nor because a clock was set back."""

    def other(second: float) -> Chunk:
        return at(second, record("PATH", 2, "x=1"), name="other")

    assert raws(judge([at(1, CWD), other(2), at(3, CWD)], Joiner())) == [2]
    assert raws(judge([at(1, CWD), other(2), at(3.001, CWD)], Joiner())) == [1, 1]
    assert raws(judge([at(1, CWD), other(2), other(3.001)], Joiner(), rest=False)) == [1]
    assert judge([at(1, CWD), other(2), other(3)], joiner := Joiner(), rest=False) == []
    assert joiner.offsets()[0] == 0
    assert raws(judge([at(1, CWD), at(3600, CWD), END_LATER], Joiner())) == [3]
    assert raws(judge([at(3600, CWD), at(1, CWD), other(2), at(2.9, CWD)], Joiner())) == [3]
    assert raws(judge([at(3600, CWD), at(1, CWD), other(2), at(3.1, CWD)], Joiner())) == [2, 1]


def test_inputs_stay_apart() -> None:
    """Records of one id in two inputs are two events."""
    assert raws(judge([at(1, CWD, name="a"), at(1, CWD, name="b"), at(1, END, name="a")], Joiner())) == [2, 1]


def test_first_record_counts() -> None:
    """Place, receipt, codec, origin and flags of a joined event are its first record's, also over frames."""
    first, second, cut = CWD.encode(), END.encode(), int(Flag.CUT)
    earlier = Chunk("in", "auditd", 7, b"x" + first, array("I", [1, 1 + len(first)]), ("10.0.0.1",), marks=((1, cut),))
    later = Chunk("in", "auditd", 9, second, array("I", [len(second)]), ("10.0.0.1",))
    joiner, found = Joiner(), []
    for frame in frames([earlier, later], 100):
        found += list(engine().candidates(frame, joiner))
    event = found[-1]
    chunk = event.frame.chunk
    assert (event.frame.offset + event.start, event.end - event.start, event.at) == (101, len(first), 0)
    assert chunk.data[event.start : event.end] == first
    assert event.raw == first + b"\n" + second
    assert (chunk.input, chunk.codec, chunk.received_at, chunk.origin(event.start)) == ("in", "auditd", 7, "10.0.0.1")
    assert chunk.flags(event.start) == Flag.CUT


def test_bounds() -> None:
    """An event has so many records and bytes at most; what is beyond is an event of its own, and nothing is dropped."""
    assert raws(judge([at(1, *[CWD] * (MAX_RECORDS + 3))], Joiner())) == [MAX_RECORDS, 3]
    long = record("CWD", 1, "x=" + "y" * (MAX_BYTES // 3))
    assert raws(judge([at(1, *[long] * 5, END)], Joiner())) == [2, 2, 2]
    longer = record("CWD", 1, "x=" + "y" * MAX_BYTES)
    assert raws(judge([at(1, CWD, longer, CWD)], Joiner())) == [1, 1, 1]
    assert judge([at(1, longer)], joiner := Joiner(), rest=False)
    assert not joiner


def test_room_is_bounded() -> None:
    """Of too many open events, or bytes of them, the oldest are judged as they are; each is judged once."""
    many = [record("CWD", i, "x=1") for i in range(MAX_OPEN + 5)]
    found = judge([at(1, *many)], joiner := Joiner(), rest=False)
    assert (len(found), len(joiner), joiner.evicted) == (5, MAX_OPEN, 5)
    assert [one.offset for one in found] == sorted(one.offset for one in found)
    large = [record("CWD", i, "x=" + "y" * 50_000) for i in range(50)]
    found = judge([at(1, *large[:25]), at(1, *large[25:])], joiner := Joiner(), rest=False)
    assert joiner.bytes <= HELD_BYTES
    assert len(found) + len(joiner) == 50
    assert joiner.bytes == sum(len(large[i]) for i in range(len(found), 50))


def test_events_of_several_lines() -> None:
    """A datagram that holds several records is complete when its last one is."""
    whole = f"{CWD}\n{END}".encode()
    chunk = Chunk("test", "auto", 1, whole, array("I", [len(whole)]))
    assert raws(judge([chunk], Joiner(), rest=False)) == [2]


def test_gather() -> None:
    """An event is read back from the log with all its records, up to what ended it."""
    elsewhere = record("CWD", 2, "x=1")
    log = frames([at(1, "noise", CWD), at(1, elsewhere, name="other"), at(1, elsewhere, END, CWD)], 50)
    assert gather(log, 56) == f"{CWD}\n{END}".encode()
    assert gather(log, 50) is None
    assert gather(log[2:], log[2].offset) == elsewhere.encode()
    assert gather([log[0], *frames([at(9, END)], 2 << 20)], 56) == CWD.encode()


KINDS = {
    "EXECVE": ' a1="payload"',
    "PATH": ' name="/tmp/hidden"',
    "SYSCALL": ' exe="/backup"',
    "CWD": " cwd=6C",
    "PROCTITLE": " proctitle=7061796C6F6164",
    "EOE": "",
    "USER_CMD": ' cmd="payload"',
}
SHAPES = ("{}", "node=a {}", "node=b {}", "<14>Nov 20 10:00:00 a x: {}", "<14>Nov 20 10:00:00 b x: {}")


class Line(NamedTuple):
    text: bytes
    origin: int
    cut: bool
    """Whether a frame ends behind it."""
    crash: bool


@st.composite
def streams(draw: st.DrawFn) -> list[Line]:
    def line() -> Line:
        if draw(st.integers(0, 5)) == 0:
            text = draw(st.sampled_from(["noise", "nothing", "audit(1.2:3) noise"]))
        else:
            kind = draw(st.sampled_from(sorted(KINDS)))
            shape = draw(st.sampled_from(SHAPES)) if draw(st.integers(0, 4)) == 0 else "{}"
            text = shape.format(record(kind, draw(st.integers(0, 1)), KINDS[kind]))
        return Line(text.encode(), draw(st.integers(0, 4)) // 4, draw(st.booleans()), draw(st.booleans()))

    return [line() for _ in range(draw(st.integers(0, 16)))]


def cut(stream: list[Line], way: str) -> list[Chunk]:
    """The stream as ``l``ines, with ``e``nds or ``o``rigins; with ``-`` cut behind the lines that say so."""
    runs: list[list[Line]] = [[]]
    for line in stream:
        runs[-1].append(line)
        if line.cut and way[0] == "-":
            runs.append([])
    return [chunk_of(run, way[-1]) for run in runs if run]


def chunk_of(run: list[Line], way: str) -> Chunk:
    data, ends = b"", array("I")
    for line in run:
        data += line.text + (b"" if way == "e" else b"\n")
        ends.append(len(data))
    origin_of = None if way == "l" else array("H", [line.origin for line in run])
    origins = ("10.0.0.1", "10.0.0.2")
    if origin_of is not None and len(set(origin_of)) == 1:  # as an input writes it
        origins, origin_of = (origins[origin_of[0]], ""), None
    return Chunk("test", "auto", 5, data, ends if way == "e" else None, origins, origin_of)


@settings(max_examples=100)
@given(streams(), st.sampled_from("leo"), st.sampled_from([1, 2, MAX_OPEN]))
def test_cuts_change_nothing(stream: list[Line], way: str, most: int) -> None:
    """However a stream is cut into frames, the matches are those of one frame that holds all of it, in its order."""
    with mock.patch.object(join, "MAX_OPEN", most):
        assert judge(cut(stream, "-" + way), Joiner()) == judge(cut(stream, way), Joiner())


@settings(max_examples=100)
@given(streams(), st.sampled_from("leo"), st.booleans(), st.sampled_from([1, 2, MAX_OPEN]))
def test_crashes_change_nothing(stream: list[Line], way: str, rewrite: bool, most: int) -> None:
    """Gone on with from the deltas and the cursor, at the end of a frame or before any event within one, the joiner
    gives the same events, each once."""
    with mock.patch.object(join, "MAX_OPEN", most):
        go_on_after_crashes(stream, way, rewrite)


def go_on_after_crashes(stream: list[Line], way: str, rewrite: bool) -> None:
    log = frames(cut(stream, "-" + way))
    parts: list[bytes] = []
    crashes = iter([*(line.crash for line in stream), *[False] * 100])

    def restored() -> State:
        if rewrite:
            state.rewrite()
            parts.clear()
        parts.append(state.delta())
        parts[:] = [part for part in parts if part]
        fresh = State(engine().plan, log_id="l")
        fresh.restore(parts)
        assert (fresh.joiner.offsets(), fresh.joiner.bytes) == (state.joiner.offsets(), state.joiner.bytes)
        return fresh

    state, found = State(engine().plan, log_id="l"), []
    for frame in log:
        first, done = 0, False
        while not done:
            for event in engine().candidates(frame, state.joiner, Context(), first):
                if next(crashes):
                    first = event.at
                    break
                found += judged(event)
            else:
                done = True
            if not done or next(crashes):
                state = restored()
    while (event := engine().due(state.joiner, {}, before=REST)) is not None:
        found += judged(event)
        state.joiner.evaluated()
    assert found == judge(cut(stream, "-" + way), Joiner())


@settings(max_examples=60)
@given(streams(), st.sampled_from("leo"))
def test_prefilter_changes_nothing(stream: list[Line], way: str) -> None:
    """With the prefilter and without, the same events match."""
    chunk = chunk_of(stream, way) if stream else at(0, "noise")
    on, off = (list(Engine(plan(), prefilter=way).evaluate(chunk)) for way in (True, False))
    assert [(m.rule, m.start, m.end, m.record.raw) for m in on] == [(m.rule, m.start, m.end, m.record.raw) for m in off]


def test_deltas_are_small() -> None:
    """A delta tells what changed; an event that came and went between two leaves nothing in it."""
    joiner = Joiner()
    judge([at(1, CWD, END)], joiner, rest=False)
    assert not joiner.changed
    log = frames([at(1, CWD), at(1, record("CWD", 2, "x=1")), at(1, END)])
    list(engine().candidates(log[0], joiner))
    ((offset, row),) = joiner.delta()[1]
    assert (offset, row[-1]) == (0, [CWD.encode()])
    list(engine().candidates(log[1], joiner))
    assert [offset for offset, _ in joiner.delta()[1]] == [log[1].offset]
    list(engine().candidates(log[2], joiner))
    assert joiner.delta()[1] == [[0, None]]
    assert not joiner.changed
    assert joiner.offsets() == [log[1].offset]


def test_state_of_a_version_before() -> None:
    """What an agent remembered that did not join over frames is read: no audit event is open."""
    state = State(plan(), log_id="l")
    state.observe("in", "h", 5)
    part = msgpack.packb(msgpack.unpackb(state.delta())[:-1])
    fresh = State(plan(), log_id="l")
    fresh.restore([part])
    assert (len(fresh.clock), len(fresh.joiner)) == (1, 0)
