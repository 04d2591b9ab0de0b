"""OTLP over HTTP in JSON: against a real HTTP server, and a real OpenTelemetry Collector where there is one."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.broker import own_port
from tests.senders import COLLECTOR, needs_collector
from tests.sinks.kit import Handler, Request, answers, hostile, outgoing, serving
from tests.waits import DEADLINE, eventually
from vedette.model.counters import Log
from vedette.sinks import opening
from vedette.sinks.base import Receiver, Verdict
from vedette.sinks.otlp import MAX_ANSWER
from vedette.sinks.settings import OtlpSink


def opened(url: str, **settings: Any) -> Receiver:
    return opening.opened(OtlpSink("o", url=url, **settings), "1.2")


def records(request: Request) -> list[dict[str, Any]]:
    document = json.loads(gzip.decompress(request.body))
    return [
        record
        for resource in document["resourceLogs"]
        for scope in resource["scopeLogs"]
        for record in scope["logRecords"]
    ]


async def test_one_request_for_many(tmp_path: Path) -> None:
    """Times and severity are what OTLP has for them, 64-bit numbers texts, and attributes have no empty values."""
    token = tmp_path / "token"
    token.write_text("t")
    with serving() as server:
        server.act = answers(200, b"{}")
        receiver = opened(server.url, token_file=token)
        found = await receiver.deliver([hostile(1), *(outgoing(seq) for seq in range(2, 201))])
        await receiver.close()
        assert {one.verdict for one in found} == {Verdict.TAKEN}
        (request,) = server.requests
    assert request.headers["content-type"] == "application/json"
    assert request.headers["content-encoding"] == "gzip"
    assert request.headers["authorization"] == "Bearer t"
    made = records(request)
    assert len(made) == 200
    first, row = made[0], hostile(1).row
    assert first["timeUnixNano"] == f"{row['event_time']}000"
    assert (first["severityNumber"], first["severityText"]) == (17, "high")
    assert first["body"] == {"stringValue": row["raw"]}
    attributes = {one["key"]: one["value"] for one in first["attributes"]}
    assert attributes["log.record.uid"] == {"stringValue": row["alert_id"]}
    assert attributes["vedette.count"] == {"intValue": "1"}
    assert attributes["vedette.entity.ip"] == {"arrayValue": {"values": [{"stringValue": "192.0.2.7"}]}}
    assert attributes["vedette.field.user"] == {"stringValue": row["fields"]["user"]}
    assert "vedette.flags" not in attributes


async def test_a_record_that_is_refused() -> None:
    """It does not take the others with it: they are sent one by one, and only it is refused."""

    def act(handler: Handler, request: Request) -> None:
        bad = any(json.dumps("00000000000000000000000000000003") in json.dumps(one) for one in records(request))
        handler.answer(400 if bad else 200, b"no" if bad else b"{}", request)

    with serving() as server:
        server.act = act
        receiver = opened(server.url)
        found = await receiver.deliver([outgoing(seq) for seq in range(1, 6)])
        await receiver.close()
    taken, refused = Verdict.TAKEN, Verdict.REFUSED
    assert [one.verdict for one in found] == [taken, taken, refused, taken, taken]


async def test_a_collector_that_goes_meanwhile() -> None:
    """Where it refuses a request and is then away, the half that it did not answer for is tried again, and no other is
    sent."""
    with serving() as server:
        server.acts = [answers(400)]
        server.act = answers(503)
        receiver = opened(server.url)
        found = await receiver.deliver([outgoing(seq) for seq in range(1, 5)])
        await receiver.close()
        assert len(server.requests) == 2
    assert [answer.verdict for answer in found] == [*[Verdict.LATER] * 2, *[Verdict.UNTRIED] * 2]


async def test_partial_success() -> None:
    """What a collector rejects without a word which, is logged and not sent again; when it is all, all are refused."""
    with serving() as server, capture_logs() as logged:
        receiver = opened(server.url)
        alerts = [outgoing(1), outgoing(2)]
        for rejected, verdict in (("1", Verdict.TAKEN), (2, Verdict.REFUSED), (0, Verdict.TAKEN)):
            partial = {"partialSuccess": {"rejectedLogRecords": rejected, "errorMessage": "too old " * 100}}
            server.acts = [
                answers(200, json.dumps(partial).encode()),
                *[answers(200, json.dumps(partial).encode())] * 2,
            ]
            found = await receiver.deliver(alerts)
            assert {one.verdict for one in found} == {verdict}
        await receiver.close()
    assert [one["event"] for one in logged] == [Log.SINK_REFUSED]


@pytest.mark.parametrize("said", [10, 600, 5000, 60_000, 100_000])
async def test_a_rejection_in_many_words(said: int) -> None:
    """However long the collector's message is, an alert that it rejects is not counted as delivered."""
    partial = {"partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "e" * said}}

    def act(handler: Handler, request: Request) -> None:
        bad = any(json.dumps("00000000000000000000000000000002") in json.dumps(one) for one in records(request))
        handler.answer(200, json.dumps(partial).encode() if bad else b"{}", request)

    with serving() as server:
        server.act = act
        receiver = opened(server.url)
        assert [answer.verdict for answer in await receiver.deliver([outgoing(2)])] == [Verdict.REFUSED]
        many = [answer.verdict for answer in await receiver.deliver([outgoing(1), outgoing(2)])]
        await receiver.close()
    cut = said > MAX_ANSWER
    assert many == [Verdict.TAKEN, Verdict.REFUSED if cut else Verdict.TAKEN]


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (b"", Verdict.TAKEN), (b"{}", Verdict.TAKEN), (b'{"partialSuccess": null}', Verdict.TAKEN),
        (b'{"partialSuccess": {}}', Verdict.TAKEN),
        (b'{"partialSuccess": {"rejectedLogRecords": "-1"}}', Verdict.TAKEN),
        (b"<html>log in</html>", Verdict.LATER),
        (b"<html>" + b"x" * 70_000, Verdict.LATER), (b"[]", Verdict.LATER), (b'"ok"', Verdict.LATER),
        (b'{"partialSuccess": 5}', Verdict.LATER), (b'{"partialSuccess": {"rejected', Verdict.LATER),
        (b'{"partialSuccess": {"rejectedLogRecords": "x"}}', Verdict.LATER),
        (b'{"partialSuccess": {"rejectedLogRecords": 1e308}}', Verdict.REFUSED),
    ],
)  # fmt: skip
async def test_what_a_2xx_says(body: bytes, verdict: Verdict) -> None:
    """Of what is no answer of OTLP nothing counts as delivered; an empty one rejects nothing."""
    with serving() as server:
        server.act = answers(200, body)
        receiver = opened(server.url)
        assert {answer.verdict for answer in await receiver.deliver([outgoing(1), outgoing(2)])} == {verdict}
        await receiver.close()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_collector_that_is_busy(status: int) -> None:
    with serving() as server:
        server.act = answers(status, Retry_After="3")
        receiver = opened(server.url)
        assert {(one.verdict, one.wait) for one in await receiver.deliver([outgoing(1), outgoing(2)])} == {
            (Verdict.LATER, 3.0)
        }
        await receiver.close()
        assert len(server.requests) == 1


@pytest.mark.peer
@needs_collector
async def test_a_real_collector(tmp_path: Path) -> None:
    """It takes what is sent, and prints each record with its severity, time and attributes."""
    port, config = own_port(), tmp_path / "collector.yaml"
    config.write_text(
        f"receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{port}'}}}}}}}}\n"
        "exporters: {debug: {verbosity: detailed}}\n"
        "service:\n  telemetry: {metrics: {level: none}}\n"
        "  pipelines: {logs: {receivers: [otlp], exporters: [debug]}}\n"
    )
    printed = tmp_path / "printed"
    with printed.open("wb") as out:
        command = [str(COLLECTOR), "--config", str(config)]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        receiver = opened(f"http://127.0.0.1:{port}/v1/logs")
        alerts = [hostile(1), *(outgoing(seq) for seq in range(2, 501))]
        for begin in range(0, 500, 100):
            while (await receiver.deliver(alerts[begin : begin + 100]))[0].verdict is not Verdict.TAKEN:
                assert process.poll() is None, printed.read_text()
        await receiver.close()
        await eventually(
            "the records at the receiver", lambda: printed.read_text().count("log.record.uid: Str(") == 500
        )
        text = printed.read_text()
        assert len(set(re.findall(r"log\.record\.uid: Str\((\w+)\)", text))) == 500
        assert text.count("SeverityNumber: Error(17)") == 500
        assert "Timestamp: 2026-11-21 " in text
        assert "vedette.count: Int(1)" in text
    finally:
        process.terminate()
        process.wait(DEADLINE)
