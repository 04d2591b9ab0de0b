"""Splunk's HTTP Event Collector: ``/services/collector[/event|/raw|/health|/ack]``.

Events are concatenated JSON objects. Each is stored as one JSON object: its ``event`` (an object's fields, or those of
its text), ``fields``, ``time`` as ``@timestamp``, ``host`` as ``host.name``, ``source``, ``sourcetype``, ``index``.
Raw is a line an event, as it was sent. With a channel the answer has an ``ackId``. As a request is answered when the
raw log holds it, whatever is asked of ``/ack`` is acknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from itertools import count
from typing import Any

import orjson

from vedette.decode.values import decoder
from vedette.inputs.carried import joined, said
from vedette.inputs.push.base import SLICE, Answer, Protocol, Reading, Refused, Request, answer
from vedette.inputs.push.lines import cut_up
from vedette.inputs.push.pieces import LIMIT, bounded, few, loaded, values
from vedette.inputs.push.texts import ECS, named
from vedette.model.event import MAX_EVENT

_CODES = {400: 6, 401: 2, 403: 4, 404: 404, 413: 27, 429: 9, 500: 8}
_SUCCESS: Mapping[str, object] = {"text": "Success", "code": 0}
_NAMES = {"host": "host.name", "source": "source", "sourcetype": "sourcetype", "index": "index", "time": "@timestamp"}
_decode = decoder().raw_decode
_numbers = count()


class _BadEvent(Refused):
    def __init__(self, number: int, reason: str, code: int = 6) -> None:
        super().__init__(400, reason)
        self.number = number
        self.code = code


def _read(request: Request) -> Reading:
    path = request.path.rstrip("/").removesuffix("/1.0")
    channel = request.headers.get("x-splunk-request-channel") or request.query.get("channel", "")
    if path.endswith("/health"):
        return answer(200, {"text": "HEC is healthy", "code": 17})
    if path.endswith("/ack"):
        asked = loaded(request.body)
        numbers = asked.get("acks") if isinstance(asked, dict) else None
        if not channel or not isinstance(numbers, list) or not all(type(ack) is int for ack in numbers):
            raise Refused(400, "acks: expects a list of numbers, and a channel")
        return answer(200, {"acks": {str(ack): True for ack in numbers}})
    number = 0
    for events in cut_up(request.body) if path.endswith("/raw") else _events(request):
        number += len(events)
        yield events
    if not number:
        raise _BadEvent(0, "No data", 5)
    return answer(200, {**_SUCCESS, "ackId": next(_numbers)} if channel else _SUCCESS)


def _events(request: Request) -> Generator[list[bytes], None, None]:
    """Some at a time; raises Refused."""
    number = 0
    events = list[bytes]()
    try:
        for value in _at_once(request.body) if few(request.body) else _one_by_one(request.body):
            if value is None:
                yield []
                continue
            events.append(value if type(value) is bytes else _event(value, number, request))
            number += 1
            if len(events) == SLICE:
                yield events
                events = []
    except _BadEvent:
        raise
    except Refused as refused:
        raise _BadEvent(number, f"Invalid data format: {refused.reason}") from refused
    yield events


def _at_once(body: bytes) -> Iterator[Any]:
    """The JSON values of a body, one after the other; raises Refused."""
    text = body.decode("utf-8", "replace").strip()
    at = 0
    while at < len(text):
        try:
            value, at = _decode(text, at)
        except (ValueError, RecursionError) as error:
            raise Refused(400, str(error)) from error
        yield value
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1


def _one_by_one(body: bytes) -> Iterator[Any]:
    """The same of a large body; None is the event loop's turn, bytes an event that is cut."""
    for span in values(body):
        if span is None:
            yield None
        else:
            text = body[span[0] : span[1]]
            yield bounded(text, "an event") if len(text) <= MAX_EVENT else text
            if len(text) > LIMIT:
                yield None


def _event(value: Any, number: int, request: Request) -> bytes:
    if not isinstance(value, dict):
        raise _BadEvent(number, "Invalid data format")
    if "event" not in value:
        raise _BadEvent(number, "Event field is required", 12)
    event = value["event"]
    more = value.get("fields")
    if event is None or event == "":
        raise _BadEvent(number, "Event field cannot be blank", 13)
    query = request.query
    fields = dict[str, Any]()
    if query:
        fields = {name: query[key] for key, name in _NAMES.items() if key in query}
    if len(value) > 1:
        fields |= {name: value[key] for key, name in _NAMES.items() if value.get(key) is not None}
    if isinstance(more, dict):
        fields |= named(more, ECS)
    if isinstance(event, dict):
        return orjson.dumps(joined(fields, event))
    what = said(event if isinstance(event, str) else orjson.dumps(event).decode(), fields, request.texts)
    return what if isinstance(what, bytes) else orjson.dumps(what)


def _refuse(refused: Refused, request: Request) -> Answer:
    said: dict[str, object] = {"text": refused.reason, "code": _CODES.get(refused.status, 6)}
    if isinstance(refused, _BadEvent):
        said |= {"code": refused.code, "invalid-event-number": refused.number}
    return answer(refused.status, said)


HEC = Protocol(
    "hec",
    re.compile(
        r"POST /services/collector(?:/(?:event|raw|ack))?(?:/1\.0)?/?|GET /services/collector/health(?:/1\.0)?/?"
    ),
    _read,
    _refuse,
    public=re.compile(r"GET .*"),
)
