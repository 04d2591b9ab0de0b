"""Rows of statements in each type of sink: many together, as they were made, by an id that stays."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.mocked import mocked
from tests.sinks.kit import Act, Handler, Request, answers, row, serving
from tests.sinks.test_command import script
from tests.sinks.test_kafka import opened as kafka_opened
from tests.sinks.test_kafka import records
from tests.sinks.test_plugin import sink as plugin_sink
from vedette.config.read import ConfigError, parse
from vedette.sinks import opening
from vedette.sinks.base import Receiver, Verdict
from vedette.sinks.settings import CommandSink, FileSink, OtlpSink, SyslogSink, WebhookSink

ROWS = [row(seq, user="ann", ok=True, part=[1, None], of={"x": 0.5}) for seq in range(1, 101)]


async def verdicts(receiver: Receiver, rows: Any = ROWS) -> set[Verdict]:
    answers = await receiver.deliver(rows)
    await receiver.close()
    assert len(answers) == len(rows)
    return {answer.verdict for answer in answers}


@pytest.mark.parametrize("form", ["ndjson", "json"])
async def test_webhook(form: Any) -> None:
    """One POST for all, in lines or as an array, with a key that says which rows; signed like an alert."""
    with serving() as server:
        settings = WebhookSink("w", url=server.url, row_format=form, takes="rows")
        assert await verdicts(opening.opened(settings, "1.2")) == {Verdict.TAKEN}
        (request,) = server.requests
    body = request.body.decode()
    sent = [json.loads(line) for line in body.splitlines()] if form == "ndjson" else json.loads(body)
    assert sent == [json.loads(each.line) for each in ROWS]
    assert request.headers["idempotency-key"] == request.headers["webhook-id"] == "edge-1/log:lake:1-100"
    assert request.headers["content-type"] == ("application/x-ndjson" if form == "ndjson" else "application/json")


def refusing(number: int) -> Act:
    """Refuses what holds the row of this number."""

    def act(handler: Handler, request: Request) -> None:
        body = gzip.decompress(request.body) if request.body[:2] == b"\x1f\x8b" else request.body
        refused = f'"n":{number},'.encode() in body.replace(b'\\"', b'"')
        handler.answer(400 if refused else 200, b"", request)

    return act


@pytest.mark.parametrize("kind", [WebhookSink, OtlpSink])
async def test_a_row_that_is_refused(kind: Any) -> None:
    """It alone is refused, after halves of halves."""
    with serving() as server:
        server.act = refusing(37)
        receiver = opening.opened(kind("w", url=server.url), "1.2")
        answers = await receiver.deliver(ROWS)
        await receiver.close()
        assert [seq for seq, answer in enumerate(answers, 1) if answer.verdict is Verdict.REFUSED] == [37]
        assert {answer.verdict for answer in answers} == {Verdict.TAKEN, Verdict.REFUSED}
        assert len(server.requests) < 20


async def test_otlp() -> None:
    """The JSON is the body, the columns are attributes with their types."""
    with serving() as server:
        server.act = answers(200)
        assert await verdicts(opening.opened(OtlpSink("o", url=server.url), "1.2")) == {Verdict.TAKEN}
        (request,) = server.requests
    (resource,) = json.loads(gzip.decompress(request.body))["resourceLogs"]
    sent = resource["scopeLogs"][0]["logRecords"]
    assert [record["body"]["stringValue"].encode() for record in sent] == [each.line for each in ROWS]
    assert {attribute["key"]: attribute["value"] for attribute in sent[0]["attributes"]} == {
        "log.record.uid": {"stringValue": "edge-1/log:lake:1"}, "n": {"intValue": "1"}, "user": {"stringValue": "ann"},
        "ok": {"boolValue": True}, "part": {"arrayValue": {"values": [{"intValue": "1"}, {}]}},
        "of": {"kvlistValue": {"values": [{"key": "x", "value": {"doubleValue": 0.5}}]}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "keys"), [("", {None}), ("user", {b"ann"}), ("n", {b"%d" % n for n in range(1, 101)})]
)
async def test_kafka(column: str, keys: set[Any]) -> None:
    """A record a row, with the text of a column as its key, or none, and its id as a header."""
    with mocked() as broker:
        topic = broker.create("rows", 1)
        assert await verdicts(kafka_opened(broker.address, topic, row_key=column)) == {Verdict.TAKEN}
        messages = records(broker.address, topic)
    assert [message.value() for message in messages] == [each.line for each in ROWS]
    assert [message.headers() for message in messages] == [[("row_id", each.id.encode())] for each in ROWS]
    assert {message.key() for message in messages} == keys


async def test_file(tmp_path: Path) -> None:
    """Lines, as they are; appended to on the next start, and never to another's file."""
    settings = FileSink("f", path=tmp_path / "rows.ndjson", takes="rows")
    for _ in range(2):
        assert await verdicts(opening.opened(settings, "1.2")) == {Verdict.TAKEN}
    assert (tmp_path / "rows.ndjson").read_bytes().splitlines() == [each.line for each in ROWS] * 2
    (tmp_path / "rows.ndjson").write_text("[settings]\n")
    assert await verdicts(opening.opened(settings, "1.2")) == {Verdict.LATER}


async def test_syslog() -> None:
    """A message a row, whose MSG is its JSON."""
    got = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            got.extend(data)
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        settings = SyslogSink("s", address=address, transport="tcp", format="cef")
        assert await verdicts(opening.opened(settings, "1.2"), ROWS[:2]) == {Verdict.TAKEN}
        while got.count(b"<134>1 - edge-1 vedette - row - {") < 2:
            await asyncio.sleep(0)
    assert got.endswith(ROWS[1].line)


async def test_command(tmp_path: Path) -> None:
    """Run once for many, a line each."""
    program = script(tmp_path, f"cat > {tmp_path}/got; echo $VEDETTE_ROW_ID > {tmp_path}/id")
    assert await verdicts(opening.opened(CommandSink("c", command=(program,)), "1.2")) == {Verdict.TAKEN}
    assert (tmp_path / "got").read_bytes().splitlines() == [each.line for each in ROWS]
    assert (tmp_path / "id").read_text() == "edge-1/log:lake:1\n"


async def test_plugin() -> None:
    """It is sent objects: the row, and its id."""
    seen: list[Any] = []
    async with plugin_sink(seen.extend) as (receiver, _):
        await receiver.deliver(ROWS[:2])
    assert seen == [{"row_id": each.id, "row": json.loads(each.line)} for each in ROWS[:2]]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('type = "file"\npath = "/x/y"\ntakes = "both"', "sink[0].takes: a file holds alerts or rows, not both"),
        ('type = "webhook"\nurl = "http://x/"\ntakes = "rows"\ntemplate = "slack"', "rows have no form of slack"),
        ('type = "file"\npath = "/x/y"\ntakes = "rows"\nmax_waiting = "2GiB"', "max_waiting of all that take rows is"),
        ('type = "mqtt"\ntopic = "a/+"\n[broker]\nurl = "mqtt://x"', "sink[0].topic: expects the name of one topic"),
        ('type = "file"\npath = "/x/y"\ntakes = "some"', "sink[0].takes: expects one of 'alerts', 'rows', 'both'"),
    ],
)  # fmt: skip
def test_mistakes(text: str, mistake: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(f'[[sink]]\nname = "x"\n{text}\n')
    assert mistake in str(refused.value)
