"""OpenTelemetry's logs, OTLP/HTTP: ``/v1/logs``, JSON and protobuf.

The native kernel makes events of a body where it can (``otlp_native.py``). The readers of JSON (here) and of protobuf
(``otlp_protobuf.py``) do without it, and read what it leaves: they give records, of which ``otlp_events.py`` makes the
same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any

from vedette.inputs.push import otlp_native as native
from vedette.inputs.push.base import (
    JSON,
    PROTOBUF,
    Answer,
    Protocol,
    Reading,
    Refused,
    Request,
    answer,
    member,
)
from vedette.inputs.push.otlp_events import LEVELS, MAX_DEPTH, Log, Scope, events_of, surroundings
from vedette.inputs.push.pieces import records
from vedette.inputs.push.texts import named
from vedette.inputs.push.wire import messages

_NUMBERS = {
    f"SEVERITY_NUMBER_{level.upper()}{number % 4 + 1 if number % 4 else ''}": number + 1
    for number, level in enumerate(LEVELS[1:])
}
"""Names of severity numbers, as some write them in JSON: ``SEVERITY_NUMBER_INFO2``."""


def _read(request: Request) -> Reading:
    json = request.content_type == JSON
    if not json and request.content_type != PROTOBUF:
        raise Refused(415, f"{request.content_type or 'no content type'}: send {JSON} or {PROTOBUF}")
    count, whole = (yield from native.events(_KERNEL, request.body, json)) if _KERNEL else (0, False)
    if not whole:
        yield from native.behind(count, read_json(request.body) if json else read_protobuf(request.body))
    return answer(200, {}) if json else Answer(200, b"", PROTOBUF)


def read_protobuf(body: bytes) -> Generator[list[bytes], None, None]:
    """Yield the events of a body; raises Refused."""
    from vedette.inputs.push.otlp_protobuf import scopes

    for message in messages(body, (1, 2, 2)):
        yield from events_of(scopes(message) if message is not None else ())


def read_json(body: bytes) -> Generator[list[bytes], None, None]:
    """Yield the events of a body; raises Refused."""
    for part in records(body, ("resourceLogs", "scopeLogs", "logRecords")):
        if type(part) is bytes:
            yield [part]
        else:
            yield from events_of(_scopes(part) if part is not None else ())


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


_KERNEL = native.reader(LEVELS, _NUMBERS)
OTLP = Protocol("otlp", re.compile(r"POST /v1/logs"), _read, _refuse)
