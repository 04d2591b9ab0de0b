"""OTLP's protobuf to the same records as its JSON, by the library's own parser. Loaded with the first such request."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from vedette.inputs.push.base import Refused
from vedette.inputs.push.otlp_events import MAX_DEPTH, Log, Scope, surroundings
from vedette.inputs.push.texts import ECS, named

MAX_ATTRIBUTES = 4096
MAX_VALUES = 8192
"""Within one value."""
MAX_DOUBLES = 64
"""Names that may be given twice in one list: the specification has none."""
_ecs = ECS.get


def scopes(body: bytes) -> Iterator[Scope]:
    """Raises Refused for what is no ExportLogsServiceRequest."""
    request = ExportLogsServiceRequest()
    try:
        request.ParseFromString(body)
    except (DecodeError, RecursionError) as error:
        raise Refused(400, f"the body is no ExportLogsServiceRequest: {error}") from error
    for of_resource in request.resource_logs:
        yield {}, ()  # is counted as a step
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_logs:
            scope = of_scope.scope
            said = surroundings(resource, _attributes(scope.attributes), scope.name, scope.version)
            yield said, map(_log, of_scope.log_records)


def _log(log: Any) -> Log:
    body = log.body
    level = log.severity_text
    return (
        log.time_unix_nano or log.observed_time_unix_nano,
        0 if level else log.severity_number,
        level,
        body.string_value or _value(body),
        _attributes(log.attributes),
        log.event_name,
        log.trace_id,
        log.span_id,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    if len(pairs) > MAX_ATTRIBUTES:
        raise Refused(413, f"more than {MAX_ATTRIBUTES} attributes")
    attributes = {}
    for pair in pairs:
        name = pair.key
        value = pair.value
        # Mostly texts: not to ask for the kind first is 0.1 µs less.
        attributes[_ecs(name, name)] = value.string_value or _value(value)
    if len(attributes) < len(pairs):  # two that are called alike
        if len(pairs) - len(attributes) > MAX_DOUBLES:
            raise Refused(400, "names are given twice in one list")
        return named(_pairs(pairs, 0, Left()))
    return attributes


class Left:
    """How many values a value may still hold."""

    def __init__(self) -> None:
        self.values = MAX_VALUES

    def take(self, count: int) -> None:
        self.values -= count
        if self.values < 0:
            raise Refused(413, f"a value of more than {MAX_VALUES} values")


def _pairs(pairs: Any, depth: int, left: Left) -> dict[str, Any]:
    left.take(len(pairs))
    values = {pair.key: _value(pair.value, depth, left) for pair in pairs}
    if len(pairs) - len(values) > MAX_DOUBLES:
        raise Refused(400, "names are given twice in one list")
    return values


def _value(value: Any, depth: int = 0, left: Left | None = None) -> Any:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind is None:
        return None
    if depth > MAX_DEPTH:
        raise Refused(400, "a value is nested too deep")
    left = left or Left()
    if kind == "kvlist_value":
        return _pairs(value.kvlist_value.values, depth + 1, left)
    if kind == "array_value":
        left.take(len(value.array_value.values))
        return [_value(each, depth + 1, left) for each in value.array_value.values]
    plain = getattr(value, kind)
    return base64.b64encode(plain).decode() if isinstance(plain, bytes) else plain
