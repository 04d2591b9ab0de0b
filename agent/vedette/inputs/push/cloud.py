"""Deliveries of clouds: Amazon Data Firehose to ``/firehose``, Google's Pub/Sub to ``/pubsub``.

Both send data in base64 within JSON, which may be gzip (CloudWatch's subscriptions): of a request UNPACKED bytes at
most. What they hold is read as the body of ``lines.py``: lines, JSON, containers of records, what carries events.
Firehose wants the request's id in the answer; its access key is a token, as is ``token`` in the address for Pub/Sub.
"""

from __future__ import annotations

import re
import time
from base64 import b64decode
from collections.abc import Generator
from typing import Any

import orjson

from vedette.inputs.http_reader import Body, unpacked
from vedette.inputs.push.base import Answer, Protocol, Reading, Refused, Request, answer, member
from vedette.inputs.push.lines import parted
from vedette.inputs.push.pieces import FREE, loaded, records
from vedette.model.event import MAX_EVENT

UNPACKED = 64 << 20
"""Bytes that the data of a request may have, unpacked; those of a record ``max_body``."""
_STEP = 1 << 20
"""Of base64, decoded at once."""
_long_data = re.compile(rb'"data"[ \t\r\n]*:[ \t\r\n]*"([^"]{%d})' % FREE).search
_MOST = MAX_EVENT * 8 // 3 + 1024
"""Bytes of a record of Firehose's: an event in base64, of which each letter may be escaped. What is longer is cut."""
_GZIP = b"\x1f\x8b"
_ID = "x-amz-firehose-request-id"


def _read(request: Request) -> Reading:
    left = UNPACKED
    own = request.headers.get(_ID, "")
    for about, data in _pubsub(request) if request.path == "/pubsub" else _firehose(request):
        if isinstance(about.get("requestId"), str):
            own = about["requestId"]
        if data is None:
            yield []
            continue
        body = yield from _whole(data, min(left, request.max_body))
        left -= len(body)
        if body := body.strip(b" \t\r\n\0"):
            yield from parted(body, True, request.texts)
    return Answer(204) if request.path == "/pubsub" else answer(200, {"requestId": own, "timestamp": _now()})


def _firehose(request: Request) -> Generator[tuple[dict[str, Any], bytes | None], None, None]:
    """What stands beside the records, and the data of each; None is the event loop's turn."""
    for part in records(request.body, ("records",), _MOST):
        if isinstance(part, bytes):
            text = part.partition(b'"data"')[2].partition(b'"')[2].partition(b'"')[0].replace(b"\\/", b"/")
            part = {"records": [{"data": text[: len(text) // 4 * 4].decode("ascii", "replace") or None}]}
        if part is None:
            yield {}, None
            continue
        for record in member(part, "records", list, "the body"):
            yield part, _decoded(record, "a record")


def _pubsub(request: Request) -> Generator[tuple[dict[str, Any], bytes | None], None, None]:
    """The data of the one message, or, where it has none, the message; long data are cut out, and decoded in steps."""
    body, data = request.body, b""
    if (long := _long_data(body)) and (end := body.find(b'"', long.end())) > 0:
        data = body[long.start(1) : end].replace(b"\\/", b"/")
        body = body[: long.start(1)] + body[end:]
    yield {}, None
    message = member(loaded(body), "message", dict, "the body")
    if not message:
        raise Refused(400, "the body has no message")
    if data and "data" not in message:
        raise Refused(413, "data that are not the message's are long")
    if not data or message["data"]:
        yield {}, _decoded(message, "the message") if message.get("data") else orjson.dumps(message)
        return
    parts = list[bytes]()
    for at in range(0, len(data), _STEP):
        parts.append(_decoded({"data": data[at : at + _STEP].decode("latin-1")}, "the message"))
        yield {}, None
    yield {}, b"".join(parts)


def _decoded(value: object, where: str) -> bytes:
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, str):
        raise Refused(400, f"{where} has no data")
    try:
        return b64decode(data, validate=True)
    except ValueError as error:
        raise Refused(400, f"{where}: its data are no base64: {error}") from error


def _whole(data: bytes, most: int) -> Generator[list[bytes], None, bytes]:
    """The data without their gzip, in steps."""
    if not data.startswith(_GZIP):
        return data
    packed = Body()
    packed.add(data)
    steps = unpacked(Request("", "", {}, {"content-encoding": "gzip"}, b"", most), packed)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            whole: Body = done.value
            return whole.whole()
        yield []


def _now() -> int:
    return time.time_ns() // 1_000_000


def _refuse(refused: Refused, request: Request) -> Answer:
    said = {"requestId": request.headers.get(_ID, ""), "timestamp": _now(), "errorMessage": refused.reason}
    return answer(refused.status, said)


def _secret(request: Request) -> str:
    """As the value of ``Authorization``."""
    pubsub = request.path == "/pubsub"
    own = request.query.get("token") if pubsub else request.headers.get("x-amz-firehose-access-key")
    return f"Bearer {own}" if own else request.headers.get("authorization", "")


CLOUD = Protocol("cloud", re.compile(r"POST /(?:firehose|pubsub)"), _read, _refuse, secret=_secret)
