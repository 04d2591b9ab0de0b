"""A record of OpenTelemetry as the event that is stored: one JSON object, the same whichever way it came. Pure.

Its time stands as ``@timestamp`` (nanoseconds), then the fields of its body (``texts.py``; a map's are its own),
``log.level`` and its attributes, then those of its scope and its resource, by ECS's names. What a record says of itself
goes before what its scope and its resource say. The native kernel makes the same bytes (``otlp_native.py``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import orjson

from vedette.inputs.push.base import EVENT_BYTES, TURN_BYTES, Refused
from vedette.inputs.push.pieces import ABOUT_BYTES
from vedette.inputs.push.texts import of_text

LEVELS = ("", *(level for level in ("trace", "debug", "info", "warn", "error", "fatal") for _ in range(4)))
"""By severity number."""
MAX_DEPTH = 20
"""Levels of values in values."""

Log = tuple[int, int, str, Any, dict[str, Any], str, bytes | str, bytes | str]
"""A record, its values plain: time in nanoseconds since 1970, severity by number and by text, body, attributes by their
names in ECS, event name, trace and span."""
Scope = tuple[dict[str, Any], Iterable[Log]]
"""The fields of scope and resource, and the records."""


def events_of(scopes: Iterable[Scope]) -> Generator[list[bytes], None, None]:
    """Yield the events of all records, some at a time; raises Refused for a scope that is too large."""
    events = list[bytes]()
    turn = 0
    for about, logs in scopes:
        turn += EVENT_BYTES
        tail = b"," + orjson.dumps(about)[1:]
        if len(tail) > ABOUT_BYTES:
            raise Refused(413, f"a resource and scope of more than {ABOUT_BYTES} bytes")
        if turn > TURN_BYTES:
            yield events
            events = []
            turn = 0
        for log in logs:
            event = _record(about, tail, log)
            events.append(event)
            turn += EVENT_BYTES + len(event)
            if turn > TURN_BYTES:
                yield events
                events = []
                turn = 0
    yield events


def surroundings(resource: dict[str, Any], scope: dict[str, Any], name: str, version: str) -> dict[str, Any]:
    """Return the fields that all records of a scope have; of attributes by their names in ECS."""
    about = {"otel.scope.name": name, "otel.scope.version": version}
    return resource | scope | {key: text for key, text in about.items() if text}


def _record(about: dict[str, Any], tail: bytes, log: Log) -> bytes:
    """Return the event of a record; ``about``: the fields of its scope, the same for many, and their JSON in ``tail``,
    behind a comma."""
    time, severity, level, body, attributes, event, trace, span = log
    if type(body) is str:
        fields = of_text(body)
    elif type(body) is dict:
        fields = dict(body)
    else:
        fields = {} if body is None else {"message": body}
    if time:
        fields["@timestamp"] = time
    if level or severity:
        fields["log.level"] = level or LEVELS[severity if 0 <= severity < len(LEVELS) else 0]
    if event:
        fields["event.action"] = event
    if trace:
        fields["trace.id"] = trace if isinstance(trace, str) else trace.hex()
    if span:
        fields["span.id"] = span if isinstance(span, str) else span.hex()
    if attributes:
        if "SYSLOG_IDENTIFIER" in attributes and isinstance(text := attributes.get("message"), str):
            attributes["MESSAGE"] = text
        fields.update(attributes)
    if not about:
        return orjson.dumps(fields)
    if about.keys().isdisjoint(fields):
        return orjson.dumps(fields)[:-1] + tail if fields else b"{" + tail[1:]
    return orjson.dumps(about | fields)
