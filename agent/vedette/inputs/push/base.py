"""A protocol of pushes, as the HTTP input needs it: which paths are its own, how it reads a body, how it says no.

Facts only: no sockets, no clock. Readers give the events of a request, one plain representation each (a line as it was
sent, or one JSON object), and last the answer that is sent when they are stored. A body that cannot be read raises
``Refused``, also behind some events: nothing of it is stored, since events are stored with the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

import orjson

from vedette.inputs.framing import Run

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
TEXT = "text/plain; charset=utf-8"
LOKI_PATH = "/loki/api/v1/push"
"""Its protobuf is packed by Snappy, which some senders name as the encoding, and others do not."""
LokiEntry = tuple[dict[str, Any], int, str, dict[str, Any]]
"""Labels, time in nanoseconds, line and structured metadata."""
SLICE = 64
TURN_BYTES = 64 << 10
EVENT_BYTES = 512
"""The most that a reader gives at once: events, or their bytes and what each costs besides. Between two steps of a
reader the event loop gets its turn; none may take more than 4 ms of CPU time (``tests/inputs/test_http_steps.py``)."""


class Request(NamedTuple):
    """A request whose body is unpacked."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    max_body: int = 8 << 20
    """Bytes that the body may have, however it is packed."""
    texts: bool = True
    """Events may be lines, not JSON alone."""

    @property
    def content_type(self) -> str:
        """In lower case, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


REASON = 300
"""Characters of a reason: it quotes what was sent, and is answered and logged."""


class Refused(ValueError):
    """A request that is not taken: the status, and why."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason[:REASON]
        super().__init__(self.reason)


Reading = Generator[list[bytes] | Run, None, Answer]
"""Events, then the answer. A run is of the native kernel, at most about a chunk, none of its events above MAX_EVENT."""


class Protocol(NamedTuple):
    """One of ``http_listen.PROTOCOLS``."""

    name: str
    paths: re.Pattern[str]
    """Method and path of the requests that are its own."""
    read: Callable[[Request], Reading]
    refuse: Callable[[Refused, Request], Answer]
    """In the sender's own words; the request may have no body."""
    public: re.Pattern[str] = re.compile(r"(?!)")
    """Those of them that bring no events and are answered without a token."""
    secret: Callable[[Request], str] = lambda request: request.headers.get("authorization", "")
    """The token, as the value of ``Authorization``."""


def answer(status: int, value: object) -> Answer:
    """One in JSON."""
    return Answer(status, orjson.dumps(value))


def member(value: object, name: str, kind: type, where: str) -> Any:
    """``value[name]``, an empty ``kind`` if there is none; raises Refused where it is anything else."""
    if not isinstance(value, dict):
        raise Refused(400, f"{where} is not a JSON object")
    item = value.get(name)
    if item is None:
        return kind()
    if not isinstance(item, kind):
        raise Refused(400, f"{where}.{name} is not {'an array' if kind is list else 'an object'}")
    return item
