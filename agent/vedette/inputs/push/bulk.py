"""Elasticsearch's ``_bulk``: ``/_bulk`` and ``/INDEX/_bulk``, and what its clients ask of a server first.

Each document is an event, its bytes as they were sent; one that carries an event (``carried.py``) is that. An action
is answered by itself: a document that is not a JSON object gets 400, the others are stored. There is nothing to update
or delete here: of an ``update`` its ``doc`` or ``upsert`` is an event, a ``delete`` gets 400.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from vedette.inputs import carried
from vedette.inputs.push.base import (
    EVENT_BYTES,
    TEXT,
    TURN_BYTES,
    Answer,
    Protocol,
    Reading,
    Refused,
    Request,
    answer,
)
from vedette.inputs.push.pieces import bounded
from vedette.model.event import MAX_EVENT

MAX_ACTIONS = 32_768
MAX_ACTION = 16 << 10
"""Bytes of an action, without its document."""
_CREATED = {"_version": 1, "result": "created", "_shards": {"total": 1, "successful": 1, "failed": 0}, "status": 201}

_VERSION = "8.17.0"
"""The version of the protocol that is spoken: clients refuse one that they do not know."""
_PRODUCT = (("X-Elastic-Product", "Elasticsearch"),)
_ROOT = {
    "name": "vedette",
    "cluster_name": "vedette",
    "version": {
        "number": _VERSION,
        "build_flavor": "default",
        "lucene_version": "9.12.0",
        "minimum_wire_compatibility_version": "7.17.0",
        "minimum_index_compatibility_version": "7.0.0",
    },
    "tagline": "You Know, for Search",
}
_LICENSE = {"license": {"status": "active", "uid": "vedette", "type": "basic", "mode": "basic"}}


_KINDS = {
    401: "security_exception",
    403: "security_exception",
    413: "content_too_large",
    429: "es_rejected_execution_exception",
}


def _read(request: Request) -> Reading:
    if request.path.endswith("/_bulk"):
        reply = yield from _bulk(request)
        return reply
    if request.path == "/_cat/health":
        return Answer(200, b"vedette green\n", TEXT, _PRODUCT)
    return answer(200, _LICENSE if request.path == "/_license" else _ROOT)._replace(headers=_PRODUCT)


def _bulk(request: Request) -> Reading:
    """A malformed action spoils the request. Actions are bounded, as the answer has each."""
    body = request.body
    index = request.path.split("/")[1] if request.path != "/_bulk" else ""
    events = list[bytes]()
    items = list[bytes]()
    blocks = list[bytes]()
    failed = False
    count = turn = 0
    for count, (action, about, start, end) in enumerate(_actions(body), 1):
        if count > MAX_ACTIONS:
            raise Refused(413, f"more than {MAX_ACTIONS} actions in one request")
        event, reason = _document(action, body[start:end].rstrip(b"\r"))
        item: dict[str, Any] = {"_index": about.get("_index", index), "_id": about.get("_id")}
        if event is None:
            failed = True
            item |= {"status": 400, "error": {"type": "document_parsing_exception", "reason": reason}}
        else:
            events.append(carried.apart(event, request.texts))
            item |= _CREATED
        items.append(orjson.dumps({action: item}))
        turn += EVENT_BYTES + end - start
        if turn > TURN_BYTES:
            yield events
            events = []
            turn = 0
            blocks.append(b",".join(items))
            items = []
    if not count:
        raise Refused(400, "request body is required")
    yield events
    blocks.append(b",".join(items))
    errors = b"true" if failed else b"false"
    said = b'{"took":0,"errors":%b,"items":[%b]}' % (errors, b",".join(filter(None, blocks)))
    return Answer(200, said, headers=_PRODUCT)


def _actions(body: bytes) -> Iterator[tuple[str, dict[str, Any], int, int]]:
    """Each action, what it says, and where its document stands; raises Refused."""
    at = 0
    line = 0
    size = len(body)
    while at < size:
        end = body.find(b"\n", at)
        end = size if end < 0 else end
        text = body[at:end]
        at = end + 1
        line += 1
        if not text or text.isspace():
            continue
        try:
            if len(text) > MAX_ACTION:
                raise ValueError(f"more than {MAX_ACTION} bytes")
            ((action, about),) = orjson.loads(text).items()
            if action not in ("index", "create", "update", "delete") or not isinstance(about, dict):
                raise ValueError(f"Unknown action {action!r}")
        except (ValueError, AttributeError) as error:
            raise Refused(400, f"Malformed action/metadata line [{line}]: {error}") from error
        start = end = at
        if action != "delete":
            if at >= size:
                raise Refused(400, "The bulk request must be terminated by a newline")
            end = body.find(b"\n", at)
            end = size if end < 0 else end
            at = end + 1
            line += 1
        yield action, about, start, end


def _document(action: str, document: bytes) -> tuple[bytes | None, str]:
    """The event, or why it is none."""
    if action == "delete":
        return None, "nothing is deleted here"
    if len(document) > MAX_EVENT and action != "update" and document[:1] == b"{":
        return document, ""  # is cut: not worth reading
    try:
        value = bounded(document, "a document")
    except Refused as error:
        return None, f"failed to parse: {error.reason}"
    if action == "update" and isinstance(value, dict):
        value = value.get("doc") or value.get("upsert")
        document = orjson.dumps(value)
    if not isinstance(value, dict):
        return None, "the document is not a JSON object"
    return document, ""


def _refuse(refused: Refused, request: Request) -> Answer:
    error = {"type": _KINDS.get(refused.status, "illegal_argument_exception"), "reason": refused.reason}
    return answer(refused.status, {"error": {"root_cause": [error], **error}, "status": refused.status})._replace(
        headers=_PRODUCT
    )


BULK = Protocol(
    "bulk", re.compile(r"(?:POST|PUT) (?:/[^/_][^/]*)?/_bulk|(?:GET|HEAD) /(?:_license|_cat/health)?"), _read, _refuse
)
