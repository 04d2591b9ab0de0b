"""Events that a shipper puts into JSON as a text, beside what it knows of them: as events of their own. Pure.

A row of ``CARRIERS`` is a name of such a text, and names of which one stands beside it. The event is then

* JSON with what stood beside it, where the text is a JSON object, has a syslog header that names a program
  (``push/texts.py``), is pairs, or mere words, which are its ``message`` if it has no other;
* a line, where the text is of another format (CEF, XML, an access log …), so that it is read as anywhere: behind a
  header of RFC 5424 with what its own header said, the shipper's time, and what stood beside it as the element
  ``carrier``. Where an input takes no lines such a text is the ``message``.

Nothing is lost. The text's word goes first, and the shipper's of the same name is in ``carrier``; but under a name that
the shipper vouches for its own is the event's, and the text's is in ``carried``. Such are the names that make a row;
host, time and container of what a container printed, however they are written: who runs in it chose every word.

What is not surely of a row stays as it is, byte for byte, and so does what is more than is read at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

from vedette.decode import access, ownlog, syslog
from vedette.decode.decoder import CONTAINERS, HOST_FIELDS, JSON_MESSAGE, head_of
from vedette.decode.formats.base import NOWHERE
from vedette.decode.formats.table import format_at, shape_of
from vedette.decode.programs import ACCESS_LOG, key_values, starts_with_pair
from vedette.decode.values import descend, from_json, from_strict
from vedette.inputs.containers import escaped
from vedette.inputs.push.pieces import FREE, few
from vedette.inputs.push.texts import of_text
from vedette.model.times import time_of


class Carrier(NamedTuple):
    text: str
    signs: frozenset[str] = frozenset()
    """Names of which one stands beside the text; the shipper vouches for what they say."""


CARRIERS = (
    Carrier("_raw", frozenset(("_time", "sourcetype", "cribl_pipe", "cribl_breaker"))),  # Cribl, Splunk
    Carrier("full_message", frozenset(("short_message",))),  # GELF
    Carrier("short_message", frozenset(("version",))),
    Carrier("log", frozenset(("stream", "container_id", "container_name", "kubernetes"))),  # Fluent Bit, Fluentd
    Carrier("message", frozenset(("source_type", "logGroup", "input"))),  # Vector, CloudWatch, Filebeat
)
_hint = re.compile(rb'"(?:_raw|short_message|log|source_type|filebeat)"').search
"""One of these is in each event of a row; CloudWatch's are known by what contains them. Faster than five searches."""
_TIMES = ("@timestamp", "timestamp", "time", "_time", "date")
_HOSTS = ("host", "hostname", "host.name", "kubernetes.host", "kubernetes.node.name", "kubernetes.pod_node_name")
_CLAIMS = frozenset(map(head_of, (*CONTAINERS, "hostname", "Computer")))
"""What a container's text never says; ``host`` may as well be a request's."""
_CLAIMED = tuple(frozenset(map(head_of, names)) for names in (_TIMES, ("host",)))
"""What it does not say where the shipper does."""
_SPLUNK = frozenset(("result", "preview", "offset", "lastrow", "sid", "search_name", "app", "owner", "results_link"))
"""All that stands beside a result of Splunk's."""
_UNNAMED = Carrier("event.original")
_DEPTH = 3
"""Carriers in each other."""
MAX_BESIDE = 256 << 10
"""Characters of the element ``carrier``; a text beside more is no line."""
_LEVELS = 4
"""Objects in each other of which it has the values; what is in them is JSON."""
_UNSAFE = re.compile(r'[^\x21-\x7e]|["=\]]')
_NO_HEADER = syslog.Header(None, None, None, None, None, 0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def may(data: bytes) -> bool:
    """Whether there may be a carrier in ``data``; cheap."""
    return _hint(data) is not None


def members(data: bytes) -> dict[str, Any]:
    """Of an object in JSON, with a writer's slips only where it is soon read; raises ValueError for anything else."""
    value = from_json(data) if len(data) <= FREE else from_strict(data)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def apart(event: bytes, texts: bool, about: Mapping[str, Any] | None = None) -> bytes:
    """The event that ``event`` carries, else ``event`` as it is.

    ``texts``: it may be a line. ``about``: what stood beside the list of which it is an element."""
    if not few(event) or (about is None and not may(event)):
        return event
    try:
        value: dict[str, Any] = {**(about or {}), **members(event)}
        within = value.get("result")
        if isinstance(within, dict) and "_raw" in within and value.keys() <= _SPLUNK:
            del value["result"]
            value = joined(value, within)
        result = event if about is None else b""
        for _ in range(_DEPTH):
            if (carrier := _carrier(value)) is None:
                break
            text = value[carrier.text].rstrip("\r\n\0")
            what = said(text, _beside(value, carrier), texts, carrier)
            if isinstance(what, bytes):
                return what
            if what == value:  # words that are the message already
                break
            value, result = what, b""
        return result or orjson.dumps(value)
    except (ValueError, TypeError, RecursionError):  # what JSON can say and cannot be written again
        return event


def _carrier(value: dict[str, Any]) -> Carrier | None:
    for row in CARRIERS:
        if isinstance(value.get(row.text), str) and value[row.text] and not row.signs.isdisjoint(value):
            return row
    return None


def said(text: str, beside: dict[str, Any], texts: bool, carrier: Carrier = _UNNAMED) -> dict[str, Any] | bytes:
    """What a text says, with what stands beside it: as an object, or as a line where ``texts`` allows it.

    Beside what has a log source of its own the text is but its message: it hides nothing of it."""
    contained = _contained(beside)
    if contained and _host(beside, _HOSTS[:3]) is None and (host := _host(beside)):
        beside = {**beside, "hostname": host}
    words = {**beside, carrier.text if "message" in beside else "message": text}
    if (shape := shape_of(beside)) is not None and shape.sources != NOWHERE:
        return words
    fields = of_text(text)
    if text[:1] == "{" and fields != {"message": text}:
        return joined(beside, fields, carrier.signs)
    tells = "MESSAGE" in fields
    if texts and (line := _line(text, beside, tells, contained)):
        return line
    if tells:
        return joined(beside, {**fields, "message": fields["MESSAGE"]} if "message" in beside else fields)
    if not starts_with_pair(text):
        return words
    own = _own(beside).union(map(head_of, words))
    return words | {name: value for name, value in key_values(text).items() if head_of(name) not in own}


def joined(beside: dict[str, Any], fields: dict[str, Any], signs: frozenset[str] = frozenset()) -> dict[str, Any]:
    """What stands beside a text, and the fields that it gives."""
    own = _own(beside).union(map(head_of, signs & beside.keys()))
    result = dict(beside)
    if "container" in own and CONTAINERS.isdisjoint(beside):
        result["container"] = {}  # for the decoder
    lost = dict[str, dict[str, Any]](carrier={}, carried={})
    for name, value in fields.items():
        if name in beside and beside[name] == value:
            continue
        if head_of(name) in own:
            lost["carried"][name] = value
            continue
        if name in beside:
            lost["carrier"][name] = beside[name]
        result[name] = value
    for name, values in lost.items():
        if values:
            result[name] = {**values, name: result[name]} if name in result else values
    return result


def _own(beside: dict[str, Any]) -> set[str]:
    """First parts of names that no text says."""
    own = {"carrier", "carried"}
    if _contained(beside):
        heads = set(map(head_of, beside))
        own = own.union(_CLAIMS, *(names for names in _CLAIMED if not names.isdisjoint(heads)))
        if _host(beside) is None:
            own.update(map(head_of, HOST_FIELDS))
    return own


def _contained(beside: Mapping[str, Any]) -> bool:
    """Whether a container printed the text."""
    return beside.get("stream") in ("stdout", "stderr") or not CONTAINERS.isdisjoint(map(head_of, beside))


def _host(beside: dict[str, Any], names: tuple[str, ...] = _HOSTS) -> str | None:
    return next((host for name in names if isinstance(host := descend(beside, name), str) and host), None)


def _beside(value: dict[str, Any], carrier: Carrier) -> dict[str, Any]:
    beside = {name: inner for name, inner in value.items() if name != carrier.text}
    if "short_message" in value:  # GELF: names of a sender's own begin with an underscore
        short = beside.pop("short_message", "")
        if str(short) not in value[carrier.text]:
            beside["short_message" if "message" in beside else "message"] = short
        names = {name: name[1:] for name in beside if name[:1] == "_" and name[1:] not in beside}
        beside = {names.get(name, name): inner for name, inner in beside.items()}
    for name in ("_time", "date"):
        if name in beside and "@timestamp" not in beside and time_of(beside[name]) is not None:
            beside["@timestamp"] = beside.pop(name)
    return beside


def _line(text: str, beside: dict[str, Any], tells: bool, contained: bool) -> bytes:
    """The text as a line, where it is of a format; empty for any other. ``tells``: its header names a program;
    ``contained``: its header's host is not believed."""
    header: syslog.Header | None = None
    raw = text.encode("utf-8", "replace")
    if program := ownlog.program_of(raw):
        header = (ownlog.header(raw) or _NO_HEADER)._replace(app=program)
    elif header := syslog.parse(raw) if tells or raw[:1] == b"<" else None:
        if header.app is not None and not header.app.startswith("%") and not header.structured_data:
            header = header if format_at(raw, header.message_start) is not None else None
    elif access.looks_like(raw):
        header = _NO_HEADER._replace(app=ACCESS_LOG)
    elif format_at(raw, 0) is not None:
        header = _NO_HEADER
    if header is None or (contained and JSON_MESSAGE.match(raw, header.message_start)):
        return b""
    elements: dict[str, Mapping[str, Any]] = {"carrier": beside} if beside else {}
    elements |= {
        f"carried.{name}" if name == "carrier" or contained else name: values
        for name, values in header.structured_data.items()
    }
    if contained:
        header = header._replace(host=None)
        elements["container"] = {}
    try:
        host = header.host or _host(beside, ("hostname", *_HOSTS) if contained else _HOSTS)  # ``host`` may be a text's
        return _head(header._replace(host=host), elements, beside) + raw[header.message_start :]
    except OverflowError:
        return b""


def _head(header: syslog.Header, elements: Mapping[str, Mapping[str, Any]], beside: dict[str, Any]) -> bytes:
    """A header of RFC 5424 that says what ``header`` does, and what stands beside the text."""
    times = (time for name in _TIMES if name in beside and (time := time_of(beside[name])) is not None)
    time = next(times, header.timestamp)
    stamp = "-" if time is None else (_EPOCH + timedelta(microseconds=time)).isoformat().replace("+00:00", "Z")
    data = "".join(f"[{name}{_parameters(values)}]" for name, values in elements.items())
    names = (_UNSAFE.sub("_", name or "")[:255] or "-" for name in (header.host, header.app, header.pid, header.msgid))
    priority = 14 if header.priority is None else header.priority
    return f"<{priority}>1 {stamp} {' '.join(names)} {data or '-'} ".encode("utf-8", "replace")


def _parameters(element: Mapping[str, Any]) -> str:
    """The values of ``element``, by their paths. Raises OverflowError."""
    parameters: list[str] = []
    left = MAX_BESIDE
    stack = [("", 0, element)]
    while stack:
        path, level, values = stack.pop()
        for name, value in values.items():
            name = f"{path}{name}"
            if isinstance(value, dict) and value and level < _LEVELS:
                stack.append((f"{name}.", level + 1, value))
                continue
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            left -= len(name) + len(text)
            if left < 0:
                raise OverflowError
            parameters.append(f' {_UNSAFE.sub("_", name) or "_"}="{escaped(text)}"')
    return "".join(parameters)
