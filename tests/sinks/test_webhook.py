"""Webhooks against a real HTTP server: what it gets, and what its answers and faults come to."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.sinks.kit import Act, answers, drips, hostile, outgoing, resets, serving, silent
from tests.waits import eventually
from vedette.sinks.base import Answer, Verdict
from vedette.sinks.settings import WebhookSink
from vedette.sinks.webhook import BATCH, Webhook


async def delivered(count: int = 1, **settings: Any) -> list[Answer]:
    """The answers for so many alerts, through a receiver of its own."""
    receiver = Webhook(WebhookSink("w", **settings), "1.2")
    try:
        return await receiver.deliver([outgoing(seq) for seq in range(1, count + 1)])
    finally:
        await receiver.close()


async def test_an_alert_arrives(tmp_path: Path) -> None:
    """As the JSON of its row, with its id in the headers that receivers deduplicate by, and the token."""
    token = tmp_path / "token"
    token.write_text("t0ken\nnot this\n")
    with serving() as server:
        (answer,) = await delivered(url=server.url, token_file=token)
        assert answer == (Verdict.TAKEN, "HTTP 200 ok", 0.0)
        (request,) = server.requests
    assert request.path == "/hook?key=hush"
    assert json.loads(request.body) == dict(outgoing().row)
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == request.headers["webhook-id"] == outgoing().id
    assert request.headers["authorization"] == "Bearer t0ken"
    assert request.headers["user-agent"] == "vedette/1.2"
    assert "webhook-signature" not in request.headers


@pytest.mark.parametrize("line", ["whsec_" + base64.b64encode(b"k" * 32).decode(), "k" * 32])
async def test_the_signature(line: str, tmp_path: Path) -> None:
    """``openssl`` gives the same HMAC of id, time and body, and for another body another one."""
    secret = tmp_path / "secret"
    secret.write_text(line + "\n")
    with serving() as server:
        await delivered(url=server.url, secret_file=secret)
        (request,) = server.requests
    at = request.headers["webhook-timestamp"]
    assert abs(int(at) - time.time()) < 60

    def openssl(body: bytes) -> str:
        data = f"{request.headers['webhook-id']}.{at}.".encode() + body
        command = ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"key:{'k' * 32}", "-binary"]
        done = subprocess.run(command, input=data, capture_output=True, check=True)
        return "v1," + base64.b64encode(done.stdout).decode()

    assert request.headers["webhook-signature"] == openssl(request.body)
    assert request.headers["webhook-signature"] != openssl(request.body + b" ")


async def test_many_over_few_connections() -> None:
    """A batch goes over four connections at most, which are kept for the next; each alert arrives once."""
    with serving() as server:
        receiver = Webhook(WebhookSink("w", url=server.url), "1")
        for begin in (0, BATCH):
            answers = await receiver.deliver([outgoing(begin + i) for i in range(BATCH)])
            assert {one.verdict for one in answers} == {Verdict.TAKEN}
        await receiver.close()
        assert sorted(json.loads(one.body)["seq"] for one in server.requests) == list(range(2 * BATCH))
        assert len({one.connection for one in server.requests}) <= 4


@pytest.mark.parametrize(
    ("act", "verdict", "text"),
    [
        (answers(204), Verdict.TAKEN, "HTTP 204"),
        (answers(500, b"oh\nno"), Verdict.LATER, "HTTP 500 oh no"),
        (answers(503), Verdict.LATER, "HTTP 503"),
        (answers(400, b"invalid_payload"), Verdict.REFUSED, "HTTP 400 invalid_payload"),
        (answers(413), Verdict.REFUSED, "HTTP 413"),
        (answers(422), Verdict.REFUSED, "HTTP 422"),
        (answers(401), Verdict.LATER, "HTTP 401"),
        (answers(404, b"x" * 9000), Verdict.LATER, "HTTP 404 " + "x" * 491),
        (answers(302, Location="http://127.0.0.1:1/"), Verdict.LATER, "HTTP 302"),
    ],
)
async def test_answers(act: Act, verdict: Verdict, text: str) -> None:
    """2xx takes an alert, 4xx that is about the alert refuses it, and all else is asked again; no redirect is
    followed."""
    with serving() as server:
        server.act = act
        (answer,) = await delivered(url=server.url)
        assert (answer.verdict, answer.text) == (verdict, text)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [("7", 7, 7), ("999999", 3600, 3600), ("soon", 0, 0), ("in half an hour", 1000, 1800)],
)
async def test_a_receiver_that_wants_a_pause(header: str, least: float, most: float) -> None:
    """``Retry-After`` is a number or a date, believed up to an hour; after it the rest of the batch is not tried."""
    if header == "in half an hour":
        header = formatdate(time.time() + 1800, usegmt=True)
    with serving() as server:
        server.act = answers(429, Retry_After=header)
        found = await delivered(BATCH, url=server.url)
        assert found[0].verdict is Verdict.LATER
        assert least <= found[0].wait <= most
        assert len(server.requests) <= 4
        assert found[-1].verdict is Verdict.UNTRIED


@pytest.mark.parametrize("act", [silent, drips])
async def test_a_slow_receiver(act: Act) -> None:
    """Neither silence nor an answer that comes a byte at a time holds a request longer than ``timeout``; the next one
    goes over a new connection."""
    with serving() as server:
        server.acts = [act]
        receiver = Webhook(WebhookSink("w", url=server.url, timeout=0.5), "1")
        (answer,) = await receiver.deliver([outgoing()])
        assert answer == (Verdict.LATER, "no answer within 0.5 s", 0.0)
        while answer.verdict is not Verdict.TAKEN:  # the connection's thread may not have seen yet that it is over
            (answer,) = await receiver.deliver([outgoing()])
        await receiver.close()


async def test_cancelled_under_way() -> None:
    """A delivery that is cancelled ends at once, and so does its thread, while the server says nothing."""
    with serving() as server:
        server.act = silent
        receiver = Webhook(WebhookSink("w", url=server.url, timeout=3600.0), "1")
        task = asyncio.create_task(receiver.deliver([outgoing()]))
        await eventually("the request", lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.act = answers(200)
        (answer,) = await receiver.deliver([outgoing()])
        assert answer.verdict is Verdict.TAKEN
        await receiver.close()


async def test_a_connection_that_is_reset() -> None:
    """It is asked again, and then arrives under the same id."""
    with serving() as server:
        server.acts = [resets]
        receiver = Webhook(WebhookSink("w", url=server.url), "1")
        (first,), (second,) = [await receiver.deliver([outgoing()]) for _ in range(2)]
        await receiver.close()
        assert (first.verdict, second.verdict) == (Verdict.LATER, Verdict.TAKEN)
        assert len({one.headers["idempotency-key"] for one in server.requests}) == 1


async def test_nobody_is_there() -> None:
    (answer,) = await delivered(url="http://127.0.0.1:1/hush")
    assert answer.verdict is Verdict.LATER
    assert "refused" in answer.text
    assert "hush" not in answer.text


async def test_tls(tmp_path: Path) -> None:
    """Certificate and name are checked, against the authority that is configured; a client certificate is shown."""
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    cert, key = authority.issue("agent")
    with serving(authority.issue("server"), authority.ca) as server:
        (answer,) = await delivered(url=server.url, ca_file=authority.ca, cert_file=cert, key_file=key)
        assert answer.verdict is Verdict.TAKEN
        (answer,) = await delivered(url=server.url, ca_file=authority.ca)  # no certificate of its own
        assert answer.verdict is Verdict.LATER
        for wrong in ({"ca_file": other.ca}, {}):
            (answer,) = await delivered(url=server.url, cert_file=cert, key_file=key, **wrong)
            assert answer.verdict is Verdict.LATER
            assert "certificate verify failed" in answer.text
        assert len(server.requests) == 1
    for certificate in (authority.issue("elsewhere", host="example.net"), authority.issue("old", expired=True)):
        with serving(certificate) as server:
            (answer,) = await delivered(url=server.url, ca_file=authority.ca)
            assert answer.verdict is Verdict.LATER
            assert "certificate verify failed" in answer.text
            assert not server.requests


async def test_files_are_read_again_after_a_failure(tmp_path: Path) -> None:
    """A token that was renewed, and an authority that was missing, are taken up without a reload."""
    authority = Authority(tmp_path / "ca")
    token, ca, url = tmp_path / "token", tmp_path / "missing.pem", tmp_path / "url"
    with serving(authority.issue("server")) as server:
        settings = WebhookSink("w", url_file=url, token_file=token, ca_file=ca)
        receiver = Webhook(settings, "1")
        texts = []
        for step in (lambda: None, lambda: url.write_text(server.url), lambda: token.write_text("t\n"),
                     lambda: ca.write_bytes(authority.ca.read_bytes())):  # fmt: skip
            step()
            (answer,) = await receiver.deliver([outgoing()])
            texts.append((answer.verdict, answer.text))
        await receiver.close()
    assert [verdict for verdict, _ in texts] == [Verdict.LATER] * 3 + [Verdict.TAKEN]
    assert "url" in texts[0][1]
    assert "token" in texts[1][1]


def _pagerduty(body: Any) -> None:
    assert (body["routing_key"], body["event_action"]) == ("t", "trigger")
    assert body["payload"]["severity"] == "error"
    assert body["payload"]["custom_details"]["alert_id"] == hostile().id
    assert len(body["dedup_key"]) <= 255
    assert len(body["payload"]["summary"]) <= 1024


def _slack(body: Any) -> None:
    header, section, raw = body["blocks"]
    assert len(header["text"]["text"]) <= 150
    assert len(section["fields"]) <= 10
    assert "<" not in raw["text"]["text"]
    assert raw["text"]["text"].count("```") == 2
    assert "<" not in body["text"]


def _teams(body: Any) -> None:
    (attachment,) = body["attachments"]
    assert body["type"] == "message"
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert attachment["content"]["type"] == "AdaptiveCard"
    title, *rows = attachment["content"]["body"]
    assert {one["type"] for one in (title, *rows)} == {"RichTextBlock"}, "a TextBlock and a FactSet render Markdown"
    assert {run["type"] for one in (title, *rows) for run in one["inlines"]} == {"TextRun"}
    facts = {one["inlines"][0]["text"].strip(): one["inlines"][-1]["text"] for one in rows}
    assert facts["ip"] == "192.0.2.7"
    assert facts["Alert"] == hostile().id


@pytest.mark.parametrize(("template", "check"), [("slack", _slack), ("teams", _teams), ("pagerduty", _pagerduty)])
async def test_templates(template: Any, check: Any, tmp_path: Path) -> None:
    """Each is valid JSON within the bounds of its receiver, whatever the alert holds; a token is where it belongs."""
    token = tmp_path / "token"
    token.write_text("t")
    with serving() as server:
        receiver = Webhook(WebhookSink("w", url=server.url, template=template, token_file=token), "1")
        long = hostile()._replace(row={**hostile().row, "raw": "<" * 2048, "rule_title": "t" * 1024})
        assert {one.verdict for one in await receiver.deliver([hostile(), long])} == {Verdict.TAKEN}
        await receiver.close()
        for request in server.requests:
            check(json.loads(request.body))
            assert ("authorization" in request.headers) == (template != "pagerduty")
            assert len(request.body) < 28 << 10  # Teams' bound, the tightest
