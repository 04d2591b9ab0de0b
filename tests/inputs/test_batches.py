"""inputs/batches.py: what is a batch, and that its events are the payload's own bytes."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.inputs.batches import at_once, events_of, spread
from vedette.inputs.batches import split as batch
from vedette.inputs.framing import run_of
from vedette.inputs.push.lines import parted
from vedette.model.event import MAX_EVENT, Flag


def split(payload: bytes) -> list[bytes] | None:
    """The events of a batch; None: it is none."""
    run = batch(payload)
    return None if run is None else list(events_of(run))


scalars = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8) | st.sampled_from(["},{", "\\", '"'])
)
objects = st.dictionaries(
    st.text(max_size=4),
    st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_size=4,
)


@pytest.mark.parametrize("blanks", [8192, 8193, 70_000])
def test_blanks_without_number_before_an_element(blanks: int) -> None:
    """However large the array is, and its elements are."""
    elements = [b'{"a":"%b"}' % (b"x" * size) for size in (300_000, 9, 300_000, 9)]
    assert split(b"[" + (b"," + b" \n" * (blanks // 2) + b" ").join(elements) + b"]") == elements


@pytest.mark.parametrize(
    ("payload", "events"),
    [
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\r\n\r\n{"b":2}', [b'{"a":1}\r', b'{"b":2}']),
        (b'{"a":1}\n\n  \n{"b":', [b'{"a":1}', b'{"b":']),
        (b'[{"a":1}]', [b'{"a":1}']),
        (b' [{"a":1}]', None),
        (b'[{"a":[{},{}]} ,\n{"b":"},{"}]\n', [b'{"a":[{},{}]}', b'{"b":"},{"}']),
        (b'{\n"a": 1\n}', None),
        (b'{"a":1}\n', None),
        (b'{"a":1}\nand text', None),
        (b"[1,2]", None),
        (b'[{"a":1},2]', None),
        (b"[]", None),
        (b"[{]", None),
        (b"two\nlines", None),
        (b"", None),
    ],
)
def test_what_is_a_batch(payload: bytes, events: list[bytes] | None) -> None:
    """Lines that each begin an object, and arrays of objects alone; all else is one event."""
    assert split(payload) == events


@settings(max_examples=100)
@given(st.lists(objects, min_size=2, max_size=6), st.sampled_from([None, 1]), st.booleans())
def test_arrays_and_lines_give_their_objects(values: list[object], indent: int | None, ascii_only: bool) -> None:
    """Whatever stands in the objects and however they are printed, each event is one of them, in order."""
    array = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
    found = split(array)
    assert found is not None
    assert [json.loads(event) for event in found] == values
    lines = [json.dumps(value, ensure_ascii=ascii_only).encode() for value in values]
    assert split(b"\n".join(lines)) == lines


def test_nesting_without_end_is_one_event() -> None:
    """What a reader of objects cannot follow is left whole."""
    deep = b'[{"a":' + b"[" * 900 + b"{},{}" + b"]" * 900 + b"}]"
    assert split(deep) in (None, [deep[1:-1]])
    assert split(b"[" * 100_000) is None


LARGE = [b'{"a":"%b"}' % (b"x" * (9 << 10)), b'{"deep":' + b"[" * 30 + b"]" * 30 + b"}", b'{"a":[{},{}]}', b"{}"]


@pytest.mark.parametrize("between", [b"\n", b"\n \r\n\n", b",", b" , "])
def test_a_large_batch(between: bytes) -> None:
    """Is cut up piece by piece, and has the events of a small one; what is cut is flagged."""
    long = b'{"a":"%b"}' % (b"x" * (MAX_EVENT + 9))
    events = [*LARGE * 3, *(b'{"n": %d}' % n for n in range(50_000)), long, *LARGE]
    payload = between.join(events)
    run = batch(b"[" + payload + b"]" if b"," in between else payload)
    assert run is not None
    assert [event.strip() for event in events_of(run)] == [event[:MAX_EVENT] for event in events]
    assert [bits for _, bits in run.marks] == [Flag.CUT]
    assert run.data[run.marks[0][0] :].startswith(long[:MAX_EVENT])
    for end in (b"{]", b"7]", b"{}"):
        assert batch(b"[" + b",".join(events) + b"," + end) is None
    assert batch(b"\n".join(events) + b"\n7") is None


@pytest.mark.parametrize("payload", [b"{}\n" * 100_000, b"{}\n \n" * 100_000, b"[" + b"{}," * 99_999 + b"{}]"])
def test_tiny_events_are_few_objects(payload: bytes) -> None:
    """However many there are: memory for a few of them at a time, and four bytes for where each ends."""
    tracemalloc.start()
    try:
        run = batch(payload)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert run is not None
    assert len(run.ends or ()) == 100_000
    assert most < 3.5 * (1 << 20)


def delivery(events: list[bytes], name: int = 100) -> bytes:
    """Of CloudWatch."""
    beside = b'{"messageType":"DATA_MESSAGE","logGroup":"g","logStream":"%b","logEvents":[' % (b"s" * name)
    return beside + b",".join(events) + b"]}"


def test_a_delivery_that_grows() -> None:
    """What stands beside the events is put into each; however long they are together then, each is one, whole."""
    events = [b'{"id":"%056d","timestamp":1795832973500,"message":"m"}' % i for i in range(3500)]
    payload = delivery(events, 300)
    run = batch(payload)
    assert run is not None
    assert not run.marks
    assert len(run.data) > MAX_EVENT
    assert [json.loads(event)["id"] for event in events_of(run)] == [json.loads(event)["id"] for event in events]
    assert at_once(spread(run_of([payload]))) == run
    assert len(events_in(posted(payload))) == len(events)


def test_a_delivery_that_grows_too_much() -> None:
    """Beyond GROWTH times its size by what stands beside its events it is one event, as it is."""
    for payload in (delivery([b"{}"] * 8000, 40_000), delivery([b"{}"] * 100_000, 500_000)):
        assert batch(payload) is None
        assert at_once(spread(run_of([payload]))) == run_of([payload])
        assert events_in(posted(payload)) == [payload]


def posted(body: bytes) -> list[Any]:
    return [events for events in parted(body, True, True) if events]


def events_in(pieces: list[Any]) -> list[bytes]:
    return [event for piece in pieces for event in (piece if isinstance(piece, list) else events_of(piece))]
