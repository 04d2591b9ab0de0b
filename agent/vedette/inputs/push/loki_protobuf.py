"""Loki's protobuf (``logproto.PushRequest``) to the same entries as its JSON. Loaded with the first such request.

    PushRequest { repeated Stream streams = 1; }
    Stream      { string labels = 1; repeated Entry entries = 2; }
    Entry       { Timestamp timestamp = 1; string line = 2; repeated LabelPair structuredMetadata = 3; }
    LabelPair   { string name = 1; string value = 2; }

Texts are declared as bytes here: Loki's senders do not look whether a line is UTF-8, and one that is not spoils no
other. Labels are a selector in Prometheus' notation, ``{job="auth", path="C:\\\\x"}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from vedette.inputs.push.base import LokiEntry, Refused
from vedette.inputs.push.pieces import ABOUT_BYTES
from vedette.inputs.push.texts import LABELS, named

_MESSAGES = {
    "PushRequest": ("streams Stream",),
    "Stream": ("labels", "entries Entry"),
    "Entry": ("timestamp Timestamp", "line", "metadata LabelPair"),
    "Timestamp": ("seconds int64", "nanos int64"),
    "LabelPair": ("name", "value"),
}
"""By message its fields in the order of their numbers: a name, and a type other than bytes."""


def _made() -> Any:
    file = FileDescriptorProto(name="vedette/loki.proto", package="vedette.loki", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, text in enumerate(fields, 1):
            called, _, kind = text.partition(" ")
            field = message.field.add(name=called, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            if kind in _MESSAGES:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".vedette.loki.{kind}"
                if kind != "Timestamp":
                    field.label = FieldDescriptorProto.LABEL_REPEATED
            else:
                field.type = FieldDescriptorProto.TYPE_INT64 if kind else FieldDescriptorProto.TYPE_BYTES
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("vedette.loki.PushRequest"))


PushRequest = _made()

_LABEL = re.compile(r'\s*([\w.:]+)\s*=\s*(?:"((?:[^"\\\n]|\\.)*)"|`([^`]*)`)\s*(,|\}\s*$)')
_ESCAPE = re.compile(r"""\\(?:([abfnrtv\\'"])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3}))""")
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def entries_of(body: bytes) -> Iterator[LokiEntry | None]:
    """None: at the beginning of a stream. Raises Refused for what is no PushRequest."""
    request = PushRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise Refused(400, f"the body is no PushRequest: {error}") from error
    for i, stream in enumerate(request.streams):
        if len(stream.labels) > ABOUT_BYTES:
            raise Refused(413, f"streams[{i}].labels: more than {ABOUT_BYTES} bytes")
        labels = named(labels_of(_text(stream.labels), f"streams[{i}].labels"), LABELS)
        yield None
        for entry in stream.entries:
            time = entry.timestamp
            more = {}
            if entry.metadata:
                more = named({_text(pair.name): _text(pair.value) for pair in entry.metadata}, LABELS)
            yield labels, time.seconds * 1_000_000_000 + time.nanos, _text(entry.line), more


def labels_of(text: str, where: str) -> dict[str, Any]:
    """The labels of a selector, its values as Go quotes them. Raises Refused."""
    text = text.strip()
    labels: dict[str, Any] = {}
    if text in ("", "{}"):
        return labels
    at = 1
    more = "," if text[0] == "{" else ""
    while more == ",":
        label = _LABEL.match(text, at)
        if label is None:
            break
        name, quoted, raw, more = label.groups()
        labels[name] = raw if quoted is None else _ESCAPE.sub(_unescaped, quoted)
        at = label.end()
    if at < len(text):
        raise Refused(400, f'{where}: expects {{name="value", …}}')
    return labels


def _unescaped(escape: re.Match[str]) -> str:
    plain, *codes, octal = escape.groups()
    if plain:
        return _PLAIN.get(plain, plain)
    code = int(octal, 8) if octal else int(next(digits for digits in codes if digits), 16)
    return chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else "\ufffd"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
