"""OpenTelemetry's logs, OTLP/HTTP: ``/v1/logs``, JSON and protobuf.

A record is stored as one JSON object, the same whichever way it came: its time as ``@timestamp`` (nanoseconds), the
fields of its body (``texts.py``; a map's are its own), ``log.level``, its attributes, then those of its scope and its
resource, by ECS's names. What a record says of itself goes before what its scope and its resource say.

The native kernel makes the same bytes (``otlp_native.py``); what is here reads without it, and what it leaves.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Generator, Iterable, Iterator, Set
from typing import Any

import orjson

from vedette.inputs.push import otlp_native as native
from vedette.inputs.push.base import (
    EVENT_BYTES,
    JSON,
    PROTOBUF,
    TURN_BYTES,
    Answer,
    Protocol,
    Reading,
    Refused,
    Request,
    answer,
    member,
)
from vedette.inputs.push.pieces import ABOUT_BYTES, records
from vedette.inputs.push.texts import named, of_text
from vedette.inputs.push.wire import messages

LEVELS = ("", *(level for level in ("trace", "debug", "info", "warn", "error", "fatal") for _ in range(4)))
"""By severity number."""
_NUMBERS = {
    f"SEVERITY_NUMBER_{level.upper()}{number % 4 + 1 if number % 4 else ''}": number + 1
    for number, level in enumerate(LEVELS[1:])
}
"""Names of severity numbers, as some write them in JSON: ``SEVERITY_NUMBER_INFO2``."""
MAX_DEPTH = 20
"""Of values in values."""
MAX_ATTRIBUTES = 4096
MAX_VALUES = 8192
"""Within one value."""
MAX_DOUBLES = 64
"""Names that may be given twice in one list: the specification has none."""


Log = tuple[int, int, str, Any, dict[str, Any], str, bytes | str, bytes | str]
"""A record, its values plain: time in nanoseconds since 1970, severity by number and by text, body, attributes by their
names in ECS, event name, trace and span."""
Scope = tuple[dict[str, Any], Iterable[Log]]
"""What scope and resource say, and the records."""


def _read(request: Request) -> Reading:
    json = request.content_type == JSON
    if not json and request.content_type != PROTOBUF:
        raise Refused(415, f"{request.content_type or 'no content type'}: send {JSON} or {PROTOBUF}")
    count, whole = (yield from native.events(_KERNEL, request.body, json)) if _KERNEL else (0, False)
    if not whole:
        yield from native.behind(count, read_json(request.body) if json else read_protobuf(request.body))
    return answer(200, {}) if json else Answer(200, b"", PROTOBUF)


def read_protobuf(body: bytes) -> Generator[list[bytes], None, None]:
    """The events of a body; raises Refused."""
    from vedette.inputs.push.otlp_protobuf import scopes

    for message in messages(body, (1, 2, 2)):
        yield from _events(scopes(message) if message is not None else ())


def read_json(body: bytes) -> Generator[list[bytes], None, None]:
    """The events of a body; raises Refused."""
    for part in records(body, ("resourceLogs", "scopeLogs", "logRecords")):
        if type(part) is bytes:
            yield [part]
        else:
            yield from _events(_scopes(part) if part is not None else ())


def _events(scopes: Iterable[Scope]) -> Generator[list[bytes], None, None]:
    events, turn = list[bytes](), 0
    for about, logs in scopes:
        turn += EVENT_BYTES
        names, tail = about.keys(), b"," + orjson.dumps(about)[1:]
        if len(tail) > ABOUT_BYTES:
            raise Refused(413, f"a resource and scope of more than {ABOUT_BYTES} bytes")
        if turn > TURN_BYTES:
            yield events
            events, turn = [], 0
        for log in logs:
            event = _record(names, about, tail, *log)
            events.append(event)
            turn += EVENT_BYTES + len(event)
            if turn > TURN_BYTES:
                yield events
                events, turn = [], 0
    yield events


def surroundings(resource: dict[str, Any], scope: dict[str, Any], name: str, version: str) -> dict[str, Any]:
    """The fields that all records of a scope have; of attributes by their names in ECS."""
    found = resource | scope
    return found | {key: value for key, value in (("otel.scope.name", name), ("otel.scope.version", version)) if value}


def _record(
    names: Set[str],
    about: dict[str, Any],
    tail: bytes,
    time: int,
    severity: int,
    level: str,
    body: Any,
    attributes: dict[str, Any],
    event: str,
    trace: bytes | str,
    span: bytes | str,
) -> bytes:
    """The event of a record; of ``about``, the same for many, the ``names`` and ``tail``: its JSON behind a comma."""
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
    if names.isdisjoint(fields):
        return orjson.dumps(fields)[:-1] + tail if fields else b"{" + tail[1:]
    return orjson.dumps(about | fields)


# --- JSON


def _scopes(body: Any) -> Iterator[Scope]:
    for i, of_resource in enumerate(member(body, "resourceLogs", list, "the body")):
        where = f"resourceLogs[{i}]"
        resource = _attributes(member(of_resource, "resource", dict, where), f"{where}.resource")
        for j, of_scope in enumerate(member(of_resource, "scopeLogs", list, where)):
            at = f"{where}.scopeLogs[{j}]"
            scope = member(of_scope, "scope", dict, at)
            said = surroundings(
                resource, _attributes(scope, f"{at}.scope"), str(scope.get("name", "")), str(scope.get("version", ""))
            )
            logs = member(of_scope, "logRecords", list, at)
            yield said, (_log(log, f"{at}.logRecords[{k}]") for k, log in enumerate(logs))


def _log(log: Any, where: str) -> Log:
    attributes = _attributes(log, where)
    severity = log.get("severityNumber")
    return (
        _number(log.get("timeUnixNano"), where) or _number(log.get("observedTimeUnixNano"), where),
        _NUMBERS[severity] if isinstance(severity, str) and severity in _NUMBERS else _number(severity, where),
        str(log.get("severityText") or ""),
        _value(log.get("body"), where),
        attributes,
        str(log.get("eventName") or ""),
        str(log.get("traceId") or ""),
        str(log.get("spanId") or ""),
    )


def _attributes(of: Any, where: str) -> dict[str, Any]:
    return named(_pairs(member(of, "attributes", list, where), f"{where}.attributes", 0))


def _pairs(pairs: Any, where: str, depth: int) -> dict[str, Any]:
    try:
        return {str(pair.get("key", "")): _value(pair.get("value"), where, depth) for pair in pairs}
    except (TypeError, AttributeError) as error:
        raise Refused(400, f"{where}: expects a list of key and value") from error


def _number(value: Any, where: str) -> int:
    """A number as protobuf's JSON has it: in digits, if it is of 64 bits."""
    if value is None:
        return 0
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(400, f"{where}: expects a number, not {value!r}") from error
    return number if -(1 << 63) <= number < 1 << 64 else 0


def _value(value: Any, where: str, depth: int = 0) -> Any:
    """A plain value of an AnyValue."""
    if value is None:
        return None
    if not isinstance(value, dict) or depth > MAX_DEPTH:
        raise Refused(400, f'{where}: expects a value such as {{"stringValue": "…"}}')
    for name, item in value.items():
        if name in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
            return item if isinstance(item, str | bool | int | float) else None
        if name == "intValue":
            return _number(item, where)
        if name == "arrayValue":
            return [_value(each, where, depth + 1) for each in member(item, "values", list, where)]
        if name == "kvlistValue":
            return _pairs(member(item, "values", list, where), where, depth + 1)
    return None


def _refuse(refused: Refused, request: Request) -> Answer:
    """A ``google.rpc.Status``, in the form that was sent."""
    if request.content_type == PROTOBUF:
        reason = refused.reason.encode()[:100]
        return Answer(refused.status, b"\x08\x03\x12%c%b" % (len(reason), reason), PROTOBUF)
    return answer(refused.status, {"code": 3, "message": refused.reason})


def text_of(value: bytes) -> str:
    """Bytes as JSON has them."""
    return base64.b64encode(value).decode()


_KERNEL = native.reader(LEVELS, _NUMBERS)
OTLP = Protocol("otlp", re.compile(r"POST /v1/logs"), _read, _refuse)
