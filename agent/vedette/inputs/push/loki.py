"""Loki's push API: ``/loki/api/v1/push``, JSON, and protobuf in Snappy as its own agents send it.

A line is stored as one JSON object: the fields of its text (``texts.py``), its time as ``@timestamp``, structured
metadata and the labels of its stream.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import orjson

from vedette.inputs.carried import said
from vedette.inputs.push.base import (
    EVENT_BYTES,
    LOKI_PATH,
    PROTOBUF,
    TEXT,
    TURN_BYTES,
    Answer,
    LokiEntry,
    Protocol,
    Reading,
    Refused,
    Request,
    member,
)
from vedette.inputs.push.pieces import ABOUT_BYTES, records
from vedette.inputs.push.snappy import unpack
from vedette.inputs.push.texts import LABELS, named
from vedette.inputs.push.wire import messages


def _read(request: Request) -> Reading:
    if request.method == "GET":
        return Answer(200, b"ready\n", TEXT)
    if request.content_type == PROTOBUF:
        try:
            body = yield from unpack(request.body, request.max_body)
        except OverflowError as error:
            raise Refused(413, f"max_body is exceeded, unpacked: {error}") from error
        except ValueError as error:
            raise Refused(400, f"the body is no Snappy block: {error}") from error
        from vedette.inputs.push.loki_protobuf import entries_of

        for message in messages(body, (1, 2)):
            yield from _events(entries_of(message) if message is not None else (), request.texts)
    elif request.content_type in ("application/json", ""):
        for part in records(request.body, ("streams", "values")):
            if type(part) is bytes:
                yield [part]
            else:
                yield from _events(_entries(part) if part is not None else (), request.texts)
    else:
        raise Refused(415, f"{request.content_type}: send application/json or {PROTOBUF}")
    return Answer(204)


def _events(entries: Iterable[LokiEntry | None], texts: bool) -> Generator[list[bytes], None, None]:
    events = list[bytes]()
    turn = 0
    for entry in entries:
        turn += EVENT_BYTES
        if entry is not None:
            event = _event(*entry, texts)
            events.append(event)
            turn += len(event)
        if turn > TURN_BYTES:
            yield events
            events = []
            turn = 0
    yield events


def _entries(body: Any) -> Iterator[LokiEntry | None]:
    """None: at the beginning of a stream. Raises Refused."""
    for i, stream in enumerate(member(body, "streams", list, "the body")):
        labels = named(member(stream, "stream", dict, f"streams[{i}]"), LABELS)
        few_labels(labels, i)
        yield None
        for j, entry in enumerate(member(stream, "values", list, f"streams[{i}]")):
            where = f"streams[{i}].values[{j}]"
            if not isinstance(entry, list) or len(entry) not in (2, 3) or not isinstance(entry[1], str):
                raise Refused(400, f"{where}: expects [time, line] or [time, line, metadata]")
            more = entry[2] if len(entry) == 3 else {}
            if not isinstance(more, dict):
                raise Refused(400, f"{where}: metadata are not a JSON object")
            try:
                yield labels, int(entry[0]), entry[1], named(more, LABELS)
            except (TypeError, ValueError) as error:
                raise Refused(400, f"{where}: expects a time in nanoseconds, not {entry[0]!r}") from error


def few_labels(labels: dict[str, Any], stream: int) -> None:
    """Each of a stream's events has them: raises Refused for too many."""
    if len(labels) > 8 and sum(len(name) + len(str(value)) for name, value in labels.items()) > ABOUT_BYTES:
        raise Refused(413, f"streams[{stream}]: labels of more than {ABOUT_BYTES} bytes")


def _event(labels: dict[str, Any], time: int, line: str, more: dict[str, Any], texts: bool) -> bytes:
    time = time if -(1 << 63) <= time < 1 << 63 else 0
    what = said(line, {"@timestamp": time, **labels, **more}, texts)
    return what if isinstance(what, bytes) else orjson.dumps(what)


def _refuse(refused: Refused, request: Request) -> Answer:
    return Answer(refused.status, refused.reason.encode() + b"\n", TEXT)


LOKI = Protocol("loki", re.compile(f"POST {LOKI_PATH}|GET /ready"), _read, _refuse, public=re.compile(r"GET .*"))
