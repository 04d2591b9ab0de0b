"""inputs/batches.py: what is a batch, and that its events are the payload's own bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.inputs.batches import split

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
