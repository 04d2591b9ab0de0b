"""Events that a shipper puts into JSON as a text, beside what it knows of them: as events of their own. Pure.

A row of ``CARRIERS`` is a name of such a text, and names of which one stands beside it. The event is then

* JSON with what stood beside it, where the text is a JSON object (its own names go first, but for these, and but for
  host, time and container of what a container printed), has a syslog header that names a program (``push/texts.py``),
  is pairs, or mere words, which are its ``message``;
* a line, where the text is of another format (CEF, XML, an access log …), so that it is read as anywhere: behind a
  header of RFC 5424 with what its own header said, the shipper's time, and what stood beside it as the element
  ``carrier``. Where an input takes no lines such a text is the ``message``.

What is not surely of a row stays as it is, byte for byte, and so does what is more than is read at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

from vedette.decode import access, ownlog, syslog
from vedette.decode.formats.base import NOWHERE
from vedette.decode.formats.table import format_at, shape_of
from vedette.decode.programs import ACCESS_LOG, key_values, starts_with_pair
from vedette.decode.values import from_json, from_strict
from vedette.inputs.containers import escaped
from vedette.inputs.push.pieces import FREE, few
from vedette.inputs.push.texts import of_text
from vedette.model.times import time_of


class Carrier(NamedTuple):
    text: str
    signs: frozenset[str]
    """Names of which one stands beside the text; the shipper vouches for what they say: it goes before the text's."""


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
_HOSTS = ("host", "hostname", "host.name")
_CONTAINERS = frozenset(("kubernetes", "docker", "container", "container_id", "container_name"))
_VOUCHED = (_HOSTS, _TIMES, (*_CONTAINERS, "hostname", "_HOSTNAME", "Computer"))
"""What a text does not say of itself where the shipper does, if it is what a container printed: whoever runs in it
chose every word. Of each of these one that stands beside the text is enough; ``host`` may as well be a request's."""
_DEPTH = 3
"""Carriers in each other."""
MAX_BESIDE = 16 << 10
"""Characters of the element ``carrier``; what is more is left out."""
_LEVELS = 4
"""Objects in each other of which it has the values."""
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
        value: dict[str, Any] = members(event)
        within = value.get("result")
        value = within if isinstance(within, dict) and "_raw" in within else {**(about or {}), **value}
        result = event if about is None else b""
        for _ in range(_DEPTH):
            if (carrier := _carrier(value)) is None:
                break
            text = value[carrier.text].rstrip("\r\n\0")
            beside = _beside(value, carrier)
            what = said(text, beside, texts)
            if isinstance(what, bytes):
                return what
            what.update((name, beside[name]) for name in carrier.signs & beside.keys())
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


def said(text: str, beside: Mapping[str, Any], texts: bool) -> dict[str, Any] | bytes:
    """What a text says, with what stands beside it: as an object, or as a line where ``texts`` allows it.

    Beside what has a log source of its own the text is but its message: it hides nothing of it."""
    if (shape := shape_of(beside)) is not None and shape.sources != NOWHERE:
        return {**beside, "message": text}
    fields = of_text(text)
    if contained := not _CONTAINERS.isdisjoint(beside):
        own = {name for names in _VOUCHED if not beside.keys().isdisjoint(names) for name in names}
        fields = {name: value for name, value in fields.items() if name not in own}
    if text[:1] == "{" and fields != {"message": text}:
        return {**beside, **fields}
    tells = "MESSAGE" in fields
    if texts and (line := _line(text, beside, tells, contained)):
        return line
    if not tells and starts_with_pair(text):
        return {**key_values(text), **beside, **fields}
    return {**beside, **fields}


def _beside(value: dict[str, Any], carrier: Carrier) -> dict[str, Any]:
    beside = {name: inner for name, inner in value.items() if name != carrier.text}
    if "short_message" in value:  # GELF: names of a sender's own begin with an underscore
        beside.pop("short_message", None)
        beside = {name[name.startswith("_") :]: inner for name, inner in beside.items()} | {
            name: inner for name, inner in beside.items() if name[:1] != "_"
        }
    for name in ("_time", "date"):
        if name in beside and "@timestamp" not in beside and time_of(beside[name]) is not None:
            beside["@timestamp"] = beside.pop(name)
    return beside


def _line(text: str, beside: Mapping[str, Any], tells: bool, contained: bool) -> bytes:
    """The text as a line, where it is of a format; empty for any other. ``tells``: its header names a program;
    ``contained``: its header's host is not believed."""
    raw = text.encode("utf-8", "replace")
    if program := ownlog.program_of(raw):
        header = ownlog.header(raw)
        return (
            _head((header or _NO_HEADER)._replace(app=program), beside) + raw[header.message_start if header else 0 :]
        )
    header = syslog.parse(raw) if tells or raw[:1] == b"<" else None
    if header is None and access.looks_like(raw):
        header = _NO_HEADER._replace(app=ACCESS_LOG)
    elif header is None:
        header = _NO_HEADER if format_at(raw, 0) is not None else None
    elif header.app is not None and not header.app.startswith("%") and not header.structured_data:
        header = header if format_at(raw, header.message_start) is not None else None
    if header is None:
        return b""
    return _head(header._replace(host=None) if contained else header, beside) + raw[header.message_start :]


def _head(header: syslog.Header, beside: Mapping[str, Any]) -> bytes:
    """A header of RFC 5424 that says what ``header`` does, and what stands beside the text."""
    times = (time for name in _TIMES if name in beside and (time := time_of(beside[name])) is not None)
    time = next(times, header.timestamp)
    stamp = "-" if time is None else (_EPOCH + timedelta(microseconds=time)).isoformat().replace("+00:00", "Z")
    host = header.host or next((beside[name] for name in _HOSTS if isinstance(beside.get(name), str)), "")
    elements = [f"[carrier{''.join(_parameters(beside))}]" if beside else ""]
    elements += [f"[{name}{''.join(_parameters(values))}]" for name, values in header.structured_data.items()]
    names = (_UNSAFE.sub("_", name or "")[:255] or "-" for name in (host, header.app, header.pid, header.msgid))
    priority = 14 if header.priority is None else header.priority
    return f"<{priority}>1 {stamp} {' '.join(names)} {''.join(elements) or '-'} ".encode("utf-8", "replace")


def _parameters(beside: Mapping[str, Any]) -> list[str]:
    """The values of ``beside``, by their paths, as parameters of an element."""
    parameters: list[str] = []
    left = MAX_BESIDE
    stack = [("", 0, beside)]
    while stack:
        path, level, values = stack.pop()
        for name, value in values.items():
            name = f"{path}{name}"
            if isinstance(value, dict):
                if level < _LEVELS:
                    stack.append((f"{name}.", level + 1, value))
                continue
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            size = len(name) + len(text)
            if name and size <= left:
                left -= size
                parameters.append(f' {_UNSAFE.sub("_", name)}="{escaped(text)}"')
    return parameters
