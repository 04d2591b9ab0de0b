"""Columns of statements and fields to show, as the native kernel reads them out of JSON: always what decoders say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differences import walk
from vedette.decode.decoder import ABSENT, Record
from vedette.decode.values import Value
from vedette.engine.join import Joiner
from vedette.engine.kernel import LOADED
from vedette.engine.match import Context, Engine, Match
from vedette.model.event import Chunk, Frame, LogSource
from vedette.model.times import time_of
from vedette.rules import build

pytestmark = pytest.mark.skipif(LOADED is None, reason="no native kernel")

FIELDS = ("a", "a.b", "user", "user.name", "hostname", "ts", "message", "src_ip", "peer", "event.code", "EventID")
SQL = f"INSERT INTO alerts SELECT {', '.join(f'`{name}`' for name in FIELDS)} FROM events"
SHOWS = """\
title: Shows {number}
id: 6a1f0000-0000-4000-8000-00000000000{number}
status: test
logsource: {{product: linux}}
detection: {{other: {{a: nothing is this}}, condition: {condition}}}
fields: [{fields}]
level: low
"""
RECEIVED = 1_795_168_800_000_000


def engine() -> Engine:
    rules = build.empty()
    rules.front_ends[".sql"].add(SQL, "test.sql")
    plan = build.from_rules(rules)
    assert not plan.refused, plan.refused
    return Engine(plan, route=False)


def showing(*fields_of: tuple[str, ...]) -> Engine:
    """Rules that match nearly all events, each of which shows some fields."""
    rules = build.empty()
    for number, fields in enumerate(fields_of or (FIELDS[:4], FIELDS[3:], ())):
        text = SHOWS.format(number=number, condition="not other", fields=", ".join(fields))
        rules.front_ends[".yml"].add(text, f"{number}.yml")
    plan = build.from_rules(rules)
    assert not plan.refused, plan.refused
    return Engine(plan, route=False)


def shown(one: Engine, texts: list[bytes]) -> list[tuple[Match, dict[str, str]]]:
    """Of each match what is shown, once the structures of these events are learned."""
    chunk = Chunk("in", "json", RECEIVED, b"".join(text + b"\n" for text in texts))
    for _ in range(3):
        events = list(one.candidates(Frame(0, chunk), Joiner()))
    return [(match, one.shown(match.rule, match.record)) for event in events for match in one.matches(chunk, event)]


def decoded(one: Engine, match: Match) -> dict[str, str]:
    """What is shown of a match by decoders alone."""
    record = Record(match.record.raw, one.plan.codecs["json"], "", RECEIVED, None, LogSource(), None)
    return one.shown(match.rule, record)


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


@settings(max_examples=150)
@given(st.lists(EVENT, min_size=1, max_size=6), st.booleans())
def test_the_kernel_shows_what_decoders_show(events: list[dict[str, Any]], ascii: bool) -> None:
    one = showing()
    for match, fields in shown(one, [json.dumps(event, ensure_ascii=ascii).encode() for event in events * 2]):
        assert list(fields.items()) == list(decoded(one, match).items())
    assert not one.kernel_wrong


def test_fields_are_shown_without_decoding() -> None:
    one = showing(("b", "user.name"), ("user.name", "hostname", "ts", "src_ip"), ())
    text = b'{"a": true, "user": {"name": "eve"}, "hostname": "web1", "ts": 1.50, "src_ip": "h\\u00e9", "b": null}'
    found = shown(one, [text, text])
    expected = {"user.name": "eve"}, {"user.name": "eve", "hostname": "web1", "ts": "1.5", "src_ip": "hé"}, {}
    assert [fields for _, fields in found] == [{"a": "true", **fields} for fields in expected] * 2
    assert all(match.record.shown is not None and match.record._fields is None for match, _ in found)


def test_of_a_record_that_is_decoded_already_the_kernel_reads_nothing() -> None:
    one = showing()
    found = shown(one, [b'{"a": "x", "user": "eve"}'])
    match = found[0][0]
    match.record.shown = None
    match.record.fields()
    assert one.shown(match.rule, match.record) == found[0][1]
    assert match.record.shown is None


def test_a_rule_that_the_kernel_was_not_asked_about_is_shown_by_decoders() -> None:
    """As where a number is of another engine's rules, or was left out by the kernel."""
    one, other = showing(), showing(FIELDS[3:], FIELDS[:4], ())
    for match, fields in shown(one, [b'{"a": "x", "user": {"name": "eve"}, "hostname": "web1", "ts": 1.50}']):
        match.record.sure, match.record.shown = ("json", LogSource(), [0]), None
        assert one.shown(match.rule, match.record) == fields
        assert other.shown(match.rule, match.record) == decoded(other, match)


def test_a_kernel_that_shows_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one = showing()
    text = b'{"a": "x", "user": "eve"}'
    native = one._native
    assert native is not None
    assert shown(one, [text, text])
    monkeypatch.setattr(native, "shown", lambda event, view, rules: {"a": "wrong"})
    found = shown(one, [text] * 1000)
    assert "came out differently" in one.kernel_wrong
    match, fields = found[-1]
    assert fields == decoded(one, match)


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
