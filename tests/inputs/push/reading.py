"""What tests of protocols share: a request read to its end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson

from vedette.inputs.framing import Run
from vedette.inputs.http_listen import protocol_of
from vedette.inputs.push.base import Answer, Request


def read(path: str, body: bytes | object, kind: str = "application/json", **headers: str) -> tuple[list[bytes], Answer]:
    """Events and answer of a POST; ``body``: bytes, or what is sent as JSON."""
    path, _, query = path.partition("?")
    asked = dict(pair.split("=") for pair in query.split("&")) if query else {}
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    request = Request("POST", path, asked, {"content-type": kind, **headers}, data)
    protocol = protocol_of("POST", path)
    assert protocol is not None
    reading, events = protocol.read(request), list[bytes]()
    while True:
        try:
            some = next(reading)
            events += split(some) if isinstance(some, Run) else some
        except StopIteration as done:
            return events, done.value


def split(joined: Run) -> list[bytes]:
    """Its events."""
    return [joined.data[start:end] for start, end in pairwise((0, *joined.ends))]


def objects(events: list[bytes]) -> list[Any]:
    """Events as JSON."""
    return [orjson.loads(event) for event in events]
