"""Lines: NDJSON, arrays, text."""

from __future__ import annotations

import pytest

from tests.inputs.push.reading import read


@pytest.mark.parametrize(
    ("body", "kind", "events"),
    [
        (b'{"a":1}\n{"a":2}\n', "application/x-ndjson", [b'{"a":1}', b'{"a":2}']),
        (b'{"a":1}\r\n\r\n{bad\r\n', "application/x-ndjson", [b'{"a":1}', b"{bad"]),
        (b'[{"a":1}, {"b": [2]}]', "application/json", [b'{"a":1}', b'{"b": [2]}']),
        (b'{\n "a": 1\n}', "application/json", [b'{\n "a": 1\n}']),
        (b"<13>Nov 23 06:16:34 h app: one\n<13>Nov 23 06:16:34 h app: two", "text/plain",
         [b"<13>Nov 23 06:16:34 h app: one", b"<13>Nov 23 06:16:34 h app: two"]),
        (b"one line", "", [b"one line"]),
        (b" \n\n", "text/plain", []),
    ],
)  # fmt: skip
def test_lines(body: bytes, kind: str, events: list[bytes]) -> None:
    """An event is a line or an element, its bytes those of the body; JSON over several lines is one."""
    found, said = read("/events", body, kind)
    assert [event.rstrip(b"\r") for event in found] == events
    assert (said.status, said.body) == (200, b'{"events":%d}' % len(events))
