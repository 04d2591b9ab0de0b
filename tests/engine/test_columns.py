"""Columns of statements, as the native kernel reads them out of JSON: always what the decoders say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differences import walk
from vedette.decode.decoder import ABSENT
from vedette.decode.values import Value
from vedette.engine.join import Joiner
from vedette.engine.kernel import LOADED
from vedette.engine.match import Context, Engine, Match
from vedette.model.event import Chunk, Frame
from vedette.model.times import time_of
from vedette.rules import build

pytestmark = pytest.mark.skipif(LOADED is None, reason="no native kernel")

FIELDS = ("a", "a.b", "user", "user.name", "hostname", "ts", "message", "src_ip", "peer", "event.code", "EventID")
SQL = f"INSERT INTO alerts SELECT {', '.join(f'`{name}`' for name in FIELDS)} FROM events"
RECEIVED = 1_795_168_800_000_000


def engine() -> Engine:
    rules = build.empty()
    rules.front_ends[".sql"].add(SQL, "test.sql")
    plan = build.from_rules(rules)
    assert not plan.refused, plan.refused
    return Engine(plan, route=False)


def columns(one: Engine, texts: list[bytes]) -> list[tuple[Match, tuple[Any, ...] | None]]:
    """Of each event its match, and what the kernel says of it, once their structures are learned."""
    chunk, found = Chunk("in", "json", RECEIVED, b"".join(text + b"\n" for text in texts)), []
    for _ in range(3):
        events = list(one.candidates(Frame(0, chunk), Joiner()))
    for event in events:
        (match,) = one.matches(chunk, event)
        found.append((match, one.columns(match, chunk)))
    return found


def agree(one: Engine, match: Match, values: tuple[Any, ...] | None) -> int:
    """How many of the columns the kernel has said, all of them rightly."""
    if values is None:
        return 0
    assert one.places.keys() == set(FIELDS)
    said = 0
    for name, place in one.places.items():
        expected: Value | object = match.record.get(name)
        expected = None if expected is ABSENT else expected
        if values[place] is not ...:
            assert (values[place], type(values[place])) == (expected, type(expected)), name
            said += 1
    time, host = values[:2]
    if time is not ... and (time is None or time_of(time) is not None):
        assert time_of(time) == match.record.event_time
    if host is not ...:
        assert (host or None) == match.record.host
    return said


SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.integers(1_700_000_000, 1_800_000_000),
    st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8),
    st.sampled_from(["2026-11-22T10:00:00Z", "ä\n\"\\", "203.0.113.7", "", "\U0001f600"]),
)  # fmt: skip
VALUE = st.one_of(SCALAR, SCALAR, st.lists(SCALAR, max_size=3), st.dictionaries(st.sampled_from("bc"), SCALAR))
NAMES = ("a", "b", "user", "host", "hostname", "ts", "@timestamp", "message", "source", "EventID", "device")
EVENT = st.dictionaries(st.sampled_from(NAMES), VALUE, min_size=1)


@settings(max_examples=150)
@given(st.lists(EVENT, min_size=1, max_size=6), st.booleans())
def test_the_kernel_says_what_decoders_say(events: list[dict[str, Any]], ascii: bool) -> None:
    one = engine()
    for match, values in columns(one, [json.dumps(event, ensure_ascii=ascii).encode() for event in events * 2]):
        agree(one, match, values)
    assert not one.kernel_wrong


NUMBERS = "0 -0 7 -7 1.0 1.50 0.00001 1e5 1E-3 9223372036854775808 18446744073709551615 18446744073709551616 1.7e308"


@walk("number", NUMBERS.split())
def test_every_way_to_write_a_number(number: str) -> None:
    one = engine()
    for match, values in columns(one, [b'{"a":%s,"ts":1795168800}' % number.encode()] * 2):
        assert agree(one, match, values) >= len(FIELDS) - 2  # but where the event came from, and perhaps the number


def test_columns_are_read_without_decoding() -> None:
    one = engine()
    text = b'{"ts": 1795168800, "host": "web1", "user": {"name": "eve"}, "a": true, "message": "h\\u00e9"}'
    (match, values), *_ = columns(one, [text, text])
    assert agree(one, match, values) == len(FIELDS) - 2  # but the object, and where the event came from
    assert values is not None
    assert values[:2] == (1795168800, "web1")
    assert values[one.places["message"]] == "hé"
    assert values[one.places["user.name"]] == "eve"


def test_a_kernel_that_reads_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one = engine()
    text = b'{"a": "x", "host": "web1"}'
    chunk = Chunk("in", "json", RECEIVED, text + b"\n")
    (match, values), *_ = columns(one, [text, text])
    assert values is not None
    native = one._native
    assert native is not None
    monkeypatch.setattr(native, "values", lambda event, view: tuple("wrong" for _ in values))
    for _ in range(1000):
        one.columns(match, chunk, Context())
    assert "came out differently" in one.kernel_wrong
    assert one.columns(match, chunk, Context()) is None
