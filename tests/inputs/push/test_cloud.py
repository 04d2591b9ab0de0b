"""Deliveries of clouds: Firehose's records and Pub/Sub's messages, whose data are in base64, perhaps packed."""

from __future__ import annotations

import gzip
import json
import time
from base64 import b64encode
from typing import Any

import pytest

from tests.inputs.intake import Bin
from tests.inputs.push.reading import objects, read
from tests.inputs.test_carried import SSHD, TRAIL, WATCH, known
from tests.inputs.test_http_listen import http_input, send
from vedette.inputs.push import cloud
from vedette.inputs.push.base import Refused, Request
from vedette.inputs.push.cloud import CLOUD
from vedette.model.counters import Counters
from vedette.model.event import MAX_EVENT

ID = "ed4acda5-034f-9f42-bba1-f29aea6d7d8f"
AUDIT = {"logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity", "protoPayload": {"methodName": "m"}}
VPC = "2 111111111111 eni-1 192.0.2.7 198.51.100.9 49152 22 6 9 840 1795832973 1795832999 REJECT OK"


def firehose(*data: bytes) -> dict[str, Any]:
    records = [{"data": b64encode(one).decode()} for one in data]
    return {"requestId": ID, "timestamp": 1795832973500, "records": records}


def pubsub(data: bytes) -> dict[str, Any]:
    message = {"attributes": {"a": "b"}, "data": b64encode(data).decode(), "messageId": "7",
               "publishTime": "2026-11-28T02:29:33Z"}  # fmt: skip
    return {"message": message, "subscription": "projects/p/subscriptions/s"}


def test_records_of_firehose() -> None:
    """Lines, JSON, containers and CloudWatch's packed events, each an event; the answer names the request."""
    watch = gzip.compress(json.dumps(WATCH).encode())
    trail = json.dumps({"Records": [TRAIL, TRAIL]}).encode()
    events, said = read("/firehose", firehose(f"{VPC}\n{VPC}\n".encode(), trail, watch, SSHD.encode()))
    assert events[:2] == [VPC.encode()] * 2
    assert objects(events[2:4]) == [TRAIL] * 2
    assert known(events[4]).get("eventName") == "ConsoleLogin"
    assert [known(event).get("program") for event in events[5:]].count("sshd") == 2
    assert (said.status, said.content_type) == (200, "application/json")
    answer = json.loads(said.body)
    assert answer.keys() == {"requestId", "timestamp"}
    assert answer["requestId"] == ID
    assert abs(answer["timestamp"] - time.time() * 1000) < 600_000


def test_a_large_delivery() -> None:
    """Of many records, and of one that unpacks to much, nothing is missing; JSON may escape base64's stroke."""
    events, _ = read("/firehose", firehose(*(b"%d" % i for i in range(20_000))))
    assert events == [b"%d" % i for i in range(20_000)]
    body = json.dumps(firehose(b"\xff\xfe?" * 9)).replace("/", "\\/").encode()
    assert read("/firehose", body)[0] == [b"\xff\xfe?" * 9]
    lines = gzip.compress(b"\n".join([VPC.encode()] * 90_000))
    assert len(read("/firehose", firehose(lines))[0]) == 90_000


@pytest.mark.parametrize("size", [780_000, 790_000, 1_024_000, MAX_EVENT, 2 * MAX_EVENT, 4 * MAX_EVENT])
@pytest.mark.parametrize("escaped", [False, True])
def test_a_large_record(size: int, escaped: bool) -> None:
    """Of the size of an event, and above, which is cut as any, beside others; none is refused, nor the others."""
    large = (b"\xff" * size).replace(b"\xff\xff", b"?\xff")
    body = json.dumps(firehose(b"a", large, b"b"))
    events, said = read("/firehose", (body.replace("/", "\\/") if escaped else body).encode())
    assert (said.status, len(events), events[0], events[2]) == (200, 3, b"a", b"b")
    assert events[1] == large[: MAX_EVENT + 1][: len(events[1])]
    assert len(events[1]) >= min(size, MAX_EVENT)


def test_messages_of_pubsub() -> None:
    """A message is its data; one without data is what is beside. Any status of success acknowledges it."""
    for data in (json.dumps(AUDIT).encode(), gzip.compress(json.dumps(AUDIT).encode())):
        events, said = read("/pubsub", pubsub(data))
        assert (objects(events), said.status, said.body) == ([AUDIT], 204, b"")
    (event,), _ = read("/pubsub", {"message": {"attributes": {"a": "b"}, "messageId": "7"}, "subscription": "s"})
    assert json.loads(event)["attributes"] == {"a": "b"}


def test_a_large_message_of_pubsub() -> None:
    """Its data are read as those of a small one, however they are written in JSON; what else is long is refused."""
    lines = [b"line \xff\xff\xff%06d" % number for number in range(90_000)]
    message = pubsub(b"\n".join(lines))
    assert "/" in message["message"]["data"]
    for body in (json.dumps(message), json.dumps(message, indent=1).replace("/", "\\/")):
        events, said = read("/pubsub", body.encode())
        assert (events == lines, said.status) == (True, 204)
    beside: dict[str, Any] = {"attributes": {"data": "a" * 50_000}, "messageId": "7"}
    assert read("/pubsub", {"message": {**beside, "data": "eA=="}})[0] == [b"x"]
    for wrong in (beside, {"data": "", "x": "a" * (2 * MAX_EVENT)}, {"data": "eA==", "x": [1] * 100_000}):
        with pytest.raises(Refused) as caught:
            read("/pubsub", {"message": wrong})
        assert caught.value.status == 413
    with pytest.raises(Refused, match="base64"):
        read("/pubsub", {"message": {"data": "%" * 50_000}})


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/firehose", b"[]", 400),
        ("/firehose", b"no", 400),
        ("/firehose", {"requestId": ID, "records": {}}, 400),
        ("/firehose", {"requestId": ID, "records": [{"data": "%%%"}]}, 400),
        ("/firehose", {"requestId": ID, "records": [{"x": 1}]}, 400),
        ("/firehose", {"requestId": ID, "records": [7]}, 400),
        ("/firehose", {"requestId": ID, "records": [{"x": "y" * MAX_EVENT * 3}]}, 400),
        ("/firehose", firehose(gzip.compress(b"x" * 999)[:20]), 400),
        ("/firehose", firehose(b"\x1f\x8b no gzip"), 400),
        ("/pubsub", {"message": "x"}, 400),
        ("/pubsub", {"message": {"data": 7}}, 400),
        ("/pubsub", {}, 400),
    ],
)
def test_refused(path: str, body: object, status: int) -> None:
    """In the sender's words, with the request's id, which its header has, too."""
    with pytest.raises(Refused) as caught:
        read(path, body)
    assert caught.value.status == status
    said = CLOUD.refuse(caught.value, Request("POST", path, {}, {"x-amz-firehose-request-id": ID}, b""))
    answer = json.loads(said.body)
    assert answer["errorMessage"] == caught.value.reason
    assert answer["requestId"] == ID


def test_what_unpacks_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is refused, also where many records do it together, and nothing of it is text."""
    monkeypatch.setattr(cloud, "UNPACKED", 100_000)
    for records in ([gzip.compress(b"\n" * 200_000)], [gzip.compress(b"\n" * 30_000)] * 4):
        with pytest.raises(Refused) as caught:
            read("/firehose", firehose(*records))
        assert caught.value.status == 413


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/firehose", {"X_Amz_Firehose_Access_Key": "secret"}, 200),
        ("/firehose", {"X_Amz_Firehose_Access_Key": "other"}, 403),
        ("/firehose", {}, 401),
        ("/pubsub?token=secret", {"Authorization": "Bearer a.jwt.of-google"}, 204),
        ("/pubsub?token=secret", {}, 204),
        ("/pubsub", {"Authorization": "Bearer secret"}, 204),
        ("/pubsub?token=other", {"Authorization": "Bearer secret"}, 403),
        ("/events?token=secret", {}, 401),
        ("/events", {"X_Amz_Firehose_Access_Key": "secret"}, 401),
    ],
)
async def test_tokens(path: str, headers: dict[str, str], status: int, tmp_path: Any) -> None:
    """Come as these senders can send them, and not so for other protocols."""
    tokens = tmp_path / "tokens"
    tokens.write_text("secret\n")
    tokens.chmod(0o600)
    body = json.dumps(pubsub(b"x") if "pubsub" in path else firehose(b"x")).encode()
    async with http_input(Bin(), Counters(), token_file=tokens) as (_, port):
        said = await send(port, path, body, Content_Type="application/json", **headers)
    assert said.status == status
