"""Rows that the native kernel makes of JSON events: always those made of what decoders say, in the same order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.engine.cache import Cache
from vedette.engine.join import Joiner
from vedette.engine.kernel import LOADED
from vedette.engine.match import Context, Engine
from vedette.engine.rows import Batch
from vedette.model.event import Chunk, Frame
from vedette.model.times import clamp
from vedette.plan.plan import Plan
from vedette.plan.query import Row, scans_of
from vedette.rules import build
from vedette.stream.reader import Event, Reader

pytestmark = pytest.mark.skipif(LOADED is None, reason="no native kernel")

RECEIVED = 1_795_168_800_000_000
OFFSET = 1 << 40
COLUMNS = {
    "a": "STRING", "b": "BIGINT", "c": "DOUBLE", "d": "BOOLEAN", "e": "TIMESTAMP_LTZ(3)", "f": "TINYINT", "g": "FLOAT",
    "h": "TIMESTAMP(6)", "i": "TIMESTAMP_LTZ(0)", "device": "VARCHAR(9)", "user.name": "STRING",
}  # fmt: skip
TABLE = f"""CREATE TABLE t ({", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())},
    `at` TIMESTAMP_LTZ(3) METADATA FROM 'event_time', came TIMESTAMP_LTZ(3) METADATA FROM 'received_at',
    place BIGINT METADATA FROM 'offset', whose STRING METADATA FROM 'host', door STRING METADATA FROM 'input',
    WATERMARK FOR e AS e - INTERVAL '1' SECOND) WITH ('connector' = 'vedette');"""
ALL = "INSERT INTO alerts SELECT * FROM t;"
COUNT = """INSERT INTO alerts SELECT a, COUNT(*) AS n, MAX(c) AS most FROM TABLE(
    TUMBLE(TABLE t, DESCRIPTOR(e), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, a;"""
OTHER = "INSERT INTO alerts SELECT b FROM t WHERE b > 5;"


def plan(*statements: str) -> Plan:
    rules = build.empty()
    rules.front_ends[".sql"].add(TABLE + "".join(statements), "test.sql")
    made = build.from_rules(rules)
    assert not made.refused, made.refused
    return made


def chunk(texts: list[bytes], *, received_at: int = RECEIVED, origin: str = "") -> Chunk:
    return Chunk("in", "json", received_at, b"".join(text + b"\n" for text in texts), origins=(origin,))


def expected(one: Plan, engine: Engine, chunk: Chunk, context: Context) -> Iterator[tuple[int, list[Row], str | None]]:
    """By event that rules match its start, its rows, and its host, by decoders and the evaluator in Python."""
    reader, scans = (
        Reader(scan for every in scans_of(one.statements).values() for scan in every),
        scans_of(one.statements),
    )
    rows: dict[int, tuple[list[Row], str | None]] = {}
    for match in engine.evaluate(chunk, context):
        record, host = match.record, match.record.host or context.host
        time = clamp(record.event_time, chunk.received_at)[0]
        event = Event(record, OFFSET + match.start, input="in", host=lambda h=host: h, time=lambda t=time: t)  # type: ignore[misc]
        found = rows.setdefault(match.start, ([], host))[0]
        found += (reader.row(scan, event) for scan in scans[one.rules[match.rule].id])
    return ((start, *found) for start, found in sorted(rows.items()))


def check(one: Plan, texts: list[bytes], *, host: str | None = None, **about: Any) -> int:
    """How many events the kernel gave rows of, all of them rightly and in order."""
    given, context = chunk(texts, **about), Context(host=host)
    slow = list(expected(one, Engine(one, route=False, kernel=False, cache=Cache(0)), given, context))
    engine = Engine(one, route=False)
    for _ in range(4):  # what is learned of a chunk is known in the next
        starts, said = [], 0
        known = {start: (rows, of) for start, rows, of in slow}
        for event in engine.gathered(Frame(OFFSET, given), Joiner(), context):
            if not isinstance(event, Batch):
                if engine.matches(given, event, context):
                    starts.append(event.start)
                continue
            assert (event.spans[0][0], event.spans[-1][1]) == (event.start, event.end)
            for (start, _), row, host_of in zip(event.spans, event.rows, event.hosts, strict=True):
                starts.append(start)
                if row is not None:
                    said += 1
                    rows, whose = known[start]
                    assert repr([row] if len(rows) == 1 else list(row)) == repr(rows)
                    assert (host_of or None) == (whose or None)
        assert starts == [start for start, _, _ in slow]
    assert not engine.kernel_wrong
    return said


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.integers(-200, 200), st.integers(631_152_000 - 2, 631_152_000 + 2),
    st.integers(1_795_168_000_000, 1_795_170_000_000), st.integers(1_795_168_000_000_000, 1_795_170_000_000_000_000),
    st.floats(allow_nan=False, allow_infinity=False), st.floats(1_795_168_000, 1_795_170_000),
)  # fmt: skip
TIMES = st.one_of(
    st.datetimes().map(lambda time: time.isoformat() + "Z"),
    st.from_regex(
        r"(19|20|21)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]([01][0-9]|2[0-4]):[0-5][0-9]:[0-6][0-9]"
        r"([.,][0-9]{1,9})?(Z|z|[+-][0-2][0-9]:[0-6][0-9]|[+-][01][0-9][0-5][0-9])?",
        fullmatch=True,
    ),
)
TEXTS = st.one_of(
    st.text(max_size=6),
    TIMES,
    st.sampled_from(["7", "-7", "007", "1e3", "1.5", "true", "FALSE", "", " 5", "٣", "\ud83d\ude00"]),
)
SCALAR = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUE = st.one_of(SCALAR, SCALAR, SCALAR, st.lists(SCALAR, max_size=2), st.dictionaries(st.just("x"), SCALAR))
NAMES = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "device", "host", "ts", "user")
EVENT = st.dictionaries(st.sampled_from(NAMES), VALUE, min_size=1)
PLANS = [plan(ALL), plan(COUNT), plan(ALL, COUNT), plan(ALL, COUNT, OTHER)]


@settings(max_examples=100)
@given(
    st.sampled_from(PLANS), st.lists(EVENT, min_size=1, max_size=8), st.booleans(),
    st.sampled_from([(None, ""), ("web9", ""), (None, "203.0.113.7")]), st.sampled_from([RECEIVED, 0, 1]),
)  # fmt: skip
def test_rows_are_those_of_what_decoders_say(
    one: Plan, events: list[dict[str, Any]], ascii: bool, whose: tuple[str | None, str], received_at: int
) -> None:
    texts = [json.dumps(event, ensure_ascii=ascii).encode("utf-8", "replace") for event in events * 3]
    check(one, texts, host=whose[0], origin=whose[1], received_at=received_at)


@settings(max_examples=100)
@given(st.lists(st.one_of(NUMBERS, TEXTS), min_size=1, max_size=6))
def test_times_are_read_alike(times: list[Any]) -> None:
    texts = [json.dumps({"e": time, "h": time, "i": time, "ts": time}).encode() for time in times * 3]
    check(plan(ALL), texts)


def test_events_of_one_kind_are_one_batch() -> None:
    text = b'{"e": 1795168800123, "device": "pump-%d", "a": "x", "b": 7, "c": 1.5, "d": true}'
    assert check(plan(COUNT), [text % number for number in range(20)]) == 20
    assert check(plan(ALL, COUNT, OTHER), [text % number for number in range(20)]) == 20
    assert check(plan(ALL), [b'{"e": "2026-11-22T10:00:00.5+01:00", "f": -128, "g": 1e3}'] * 9) == 9


def test_what_does_not_fit_is_left_to_decoders() -> None:
    for value in ('"x"', "[1]", "1e400", "300"):
        assert check(plan(ALL), [b'{"f": %s}' % value.encode()] * 9) == 0, value


def test_events_stay_in_order_when_a_structure_is_learned() -> None:
    """Some are decided before it is known, and others after."""
    known, new = b'{"a": "x", "b": 1}', b'{"a": "x", "c": 2.5}'
    for texts in ([known, new] * 6, [known] * 3 + [b"no object"] + [new, known] * 4):
        check(plan(ALL), texts)
        engine, given = Engine(plan(ALL), route=False), chunk([known] * 3)
        list(engine.candidates(Frame(0, given), Joiner()))
        found = [event.start for event in engine.candidates(Frame(0, chunk(texts)), Joiner())]
        assert found == sorted(found)


def test_one_event_of_many_proves_that_the_kernel_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    one = plan(ALL)
    engine = Engine(one, route=False)
    given = chunk([b'{"a": "x"}'] * 700)
    singles = 0
    for _ in range(4):
        for event in engine.gathered(Frame(0, given), Joiner()):
            if not isinstance(event, Batch):
                singles += len(engine.matches(given, event)) if type(event.rules) is not frozenset else 0
    assert singles >= 2
    native = engine._native
    assert native is not None
    monkeypatch.setattr(native, "values", lambda event, view: ("wrong",) * (2 + len(native.columns)))
    for _ in range(3):
        for event in engine.gathered(Frame(0, given), Joiner()):
            if not isinstance(event, Batch):
                (match,) = engine.matches(given, event)
                engine.columns(match, given)
    assert "came out differently" in engine.kernel_wrong
    assert not any(isinstance(event, Batch) for event in engine.gathered(Frame(0, given), Joiner()))
