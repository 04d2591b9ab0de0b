"""Elasticsearch's ``_bulk``."""

from __future__ import annotations

import orjson
import pytest

from tests.inputs.push.reading import read
from vedette.inputs.http_listen import protocol_of
from vedette.inputs.push.base import Refused, Request
from vedette.inputs.push.bulk import BULK


def test_documents() -> None:
    """Each document is an event, as it was sent; each action is answered by itself."""
    body = (
        b'{"index":{"_index":"logs","_id":"1"}}\n{"message": "one",  "n":1}\n'
        b'{"create":{}}\n{"message":"two"}\r\n'
        b'{"update":{"_id":"3"}}\n{"doc":{"message":"three"}}\n'
        b'{"index":{}}\n{broken\n'
        b'{"delete":{"_id":"1"}}\n'
        b'{"index":{}}\n[1]\n\n'
    )
    events, said = read("/app/_bulk", body, "application/x-ndjson")
    assert events == [b'{"message": "one",  "n":1}', b'{"message":"two"}', b'{"message":"three"}']
    found = orjson.loads(said.body)
    assert found["errors"] is True
    rows = [next(iter(item.items())) for item in found["items"]]
    assert [(action, row["status"]) for action, row in rows] == [
        ("index", 201), ("create", 201), ("update", 201), ("index", 400), ("delete", 400), ("index", 400),
    ]  # fmt: skip
    assert [row["_index"] for _, row in rows[:2]] == ["logs", "app"]
    assert "failed to parse" in rows[3][1]["error"]["reason"]
    assert ("X-Elastic-Product", "Elasticsearch") in said.headers


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "request body is required"),
        (b'{"index":{}}', "must be terminated by a newline"),
        (b'{"explode":{}}\n{}\n', r"Malformed action/metadata line \[1\]"),
        (b'{"index":{}}\n{}\n{"index"\n{}\n', r"Malformed action/metadata line \[3\]"),
    ],
)
def test_a_malformed_request(body: bytes, says: str) -> None:
    """One malformed action spoils the request, as there, and nothing of it is taken."""
    with pytest.raises(Refused, match=says) as caught:
        read("/_bulk", body)
    said = BULK.refuse(caught.value, Request("POST", "/_bulk", {}, {}, body))
    assert orjson.loads(said.body)["status"] == said.status == 400


def test_what_clients_ask_first() -> None:
    """Product, version and license, in the form of a server that they know."""
    for path in ("/", "/_license", "/_cat/health"):
        row = protocol_of("GET", path)
        assert row is BULK
        with pytest.raises(StopIteration) as done:
            next(row.read(Request("GET", path, {}, {}, b"")))
        assert done.value.value.status == 200
        assert ("X-Elastic-Product", "Elasticsearch") in done.value.value.headers
