"""Elasticsearch's ``_bulk``: ``/_bulk`` and ``/INDEX/_bulk``, and what its clients ask of a server first.

Each document is an event, its bytes as they were sent. An action is answered by itself: a document that is not a JSON
object gets 400, the others are stored. There is nothing to update or delete here: of an ``update`` its ``doc`` or
``upsert`` is an event, a ``delete`` gets 400.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from vedette.inputs.push.base import SLICE, TEXT, Answer, Protocol, Reading, Refused, Request, answer

_VERSION = "8.17.0"
"""Of the protocol that is spoken: clients refuse one that they do not know."""
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
        found = yield from _bulk(request)
        return found
    if request.path == "/_cat/health":
        return Answer(200, b"vedette green\n", TEXT, _PRODUCT)
    return answer(200, _LICENSE if request.path == "/_license" else _ROOT)._replace(headers=_PRODUCT)


def _bulk(request: Request) -> Reading:
    lines = request.body.split(b"\n")
    items: list[dict[str, Any]] = []
    events: list[bytes] = []
    failed = False
    index = request.path.split("/")[1] if request.path != "/_bulk" else ""
    at, count = 0, len(lines)
    actions: list[tuple[str, dict[str, Any], bytes]] = []
    while at < count:  # first all actions: a malformed one spoils the request
        line = lines[at]
        at += 1
        if not line or line.isspace():
            continue
        try:
            ((action, about),) = orjson.loads(line).items()
            if action not in ("index", "create", "update", "delete") or not isinstance(about, dict):
                raise ValueError(f"Unknown action {action!r}")
        except (ValueError, AttributeError) as error:
            raise Refused(400, f"Malformed action/metadata line [{at}]: {error}") from error
        document = b""
        if action != "delete":
            if at >= count:
                raise Refused(400, "The bulk request must be terminated by a newline")
            document = lines[at].rstrip(b"\r")
            at += 1
        actions.append((action, about, document))
    if not actions:
        raise Refused(400, "request body is required")
    for action, about, document in actions:
        event, reason = _document(action, document)
        said: dict[str, Any] = {"_index": about.get("_index", index), "_id": about.get("_id")}
        if event is None:
            failed = True
            said |= {"status": 400, "error": {"type": "document_parsing_exception", "reason": reason}}
        else:
            events.append(event)
            created = {"_version": 1, "result": "created", "_shards": {"total": 1, "successful": 1, "failed": 0}}
            said |= {**created, "status": 201}
        items.append({action: said})
        if len(events) >= SLICE:
            yield events
            events = []
    if events:
        yield events
    return answer(200, {"took": 0, "errors": failed, "items": items})._replace(headers=_PRODUCT)


def _document(action: str, document: bytes) -> tuple[bytes | None, str]:
    """The event, or why it is none."""
    if action == "delete":
        return None, "nothing is deleted here"
    try:
        value = orjson.loads(document)
    except ValueError as error:
        return None, f"failed to parse: {error}"
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
