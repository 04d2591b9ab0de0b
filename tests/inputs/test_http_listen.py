"""The HTTP input over real sockets, by Python's own client, curl, OpenTelemetry's exporter and rsyslog."""

from __future__ import annotations

import asyncio
import glob
import gzip
import http.client
import json
import re
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

pytest.importorskip("httptools", reason="an environment from before: make environment")
from tests.certificates import Authority
from tests.inputs.intake import LOCAL, Bin, agent, poured, rsyslogd
from tests.inputs.test_acknowledge import Disk
from tests.looptime import forward
from tests.senders import COLLECTOR, PROMTAIL, PUSHES, Push, configured, needs_collector, needs_promtail
from tests.waits import DEADLINE, eventually
from vedette.inputs import http_listen
from vedette.inputs.condition import WORKS, State
from vedette.inputs.connections import LOOKS, TURN_STEPS
from vedette.inputs.http_listen import KEPT_SECONDS, READ_BYTES, HttpListener
from vedette.inputs.http_reader import REQUEST_STEPS
from vedette.inputs.settings import HttpInput, TlsListener
from vedette.model.counters import Counters, Log
from vedette.model.event import MAX_EVENT

ELASTIC = glob.glob("/usr/lib*/rsyslog/omelasticsearch.so") + glob.glob("/usr/lib*/*/rsyslog/omelasticsearch.so")


@asynccontextmanager
async def http_input(bin: Bin, counters: Counters, **settings: object) -> AsyncIterator[tuple[HttpListener, int]]:
    """A started listener and its first port; stopped afterwards, and the account checked."""
    settings = settings if settings.keys() & {"tcp", "tls"} else {"tcp": LOCAL, **settings}
    listener = HttpListener(HttpInput("in", **settings), agent(bin, counters))
    await listener.start()
    try:
        yield listener, listener.addresses[0][2]
    finally:
        await listener.stop()
    assert counters.received["in"] == len(bin.events)


class Said(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]


async def send(
    port: int, path: str, body: bytes, method: str = "POST", context: ssl.SSLContext | None = None,
    local: str = "127.0.0.1", **headers: str,
) -> Said:  # fmt: skip
    """One request, by Python's own client."""

    def run() -> Said:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if context is None:
            connection = http.client.HTTPConnection(
                "127.0.0.1", port, timeout=DEADLINE, source_address=(local, 0)
            )  # fmt: skip
        else:
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=DEADLINE, context=context)
        try:
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return Said(answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()})
        finally:
            connection.close()

    return await asyncio.to_thread(run)


async def test_answered_once_on_disk() -> None:
    """Events are stored at once; the answer comes when the raw log has them on disk."""
    bin, counters = Disk(), Counters()
    async with http_input(bin, counters) as (_, port):
        asked = asyncio.create_task(send(port, "/events", b'{"a":1}\n{"a":2}\n'))
        await eventually("2 events", lambda: len(bin.events) == 2)
        await eventually("an answer that waits for the disk", lambda: bin.looks)
        assert (await send(port, "/nowhere", b"")).status == 404
        assert not asked.done()
        await bin.sync(1 << 30)
        assert (await asked).status == 200
    assert bin.events == [b'{"a":1}', b'{"a":2}']
    assert {(chunk.codec, chunk.origins) for chunk in bin.chunks} == {("auto", ("127.0.0.1",))}


async def test_requests_one_after_the_other() -> None:
    """Many over one connection, sent without waiting, are answered in order and stored in order."""
    bin, counters = Bin(), Counters()
    async with http_input(bin, counters) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in range(300):
            path = b"/events" if i % 3 else b"/nowhere"
            writer.write(b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n%03d" % (path, i))
        statuses = []
        for _ in range(300):
            head = await reader.readuntil(b"\r\n\r\n")
            statuses.append(int(head.split()[1]))
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
        writer.close()
    assert statuses == [200 if i % 3 else 404 for i in range(300)]
    assert bin.events == [b"%03d" % i for i in range(300) if i % 3]


async def test_one_host() -> None:
    """A request without one Host is answered by 400 and stores nothing; HTTP/1.0 needs none."""
    bin, counters = Bin(), Counters()
    async with http_input(bin, counters) as (_, port):
        for version, hosts, status in (
            (b"1.1", b"", 400), (b"1.1", b"Host: a\r\nHost: b\r\n", 400), (b"1.1", b"Host: a b\r\n", 400),
            (b"1.0", b"Host: a\r\nHost: b\r\n", 400), (b"1.1", b"Host: a:8088\r\n", 200), (b"1.0", b"", 200),
        ):  # fmt: skip
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            event = b"%b %d" % (version, status)
            writer.write(b"POST / HTTP/%b\r\n%bContent-Length: 7\r\n\r\n%b" % (version, hosts, event))
            head = await reader.readuntil(b"\r\n\r\n")
            assert int(head.split()[1]) == status, (version, hosts)
            writer.close()
    assert bin.events == [b"1.1 200", b"1.0 200"]
    assert counters.totals["requests_refused"] == 4


async def test_a_large_body() -> None:
    """60,000 events in one gzip body become chunks of bounded size; one above MAX_EVENT is cut and counted."""
    bin, counters = Bin(), Counters()
    body = b"".join(b"<13>Nov 23 06:16:34 h app: message %d\n" % i for i in range(60_000)) + b"x" * (MAX_EVENT + 5)
    async with http_input(bin, counters) as (_, port):
        said = await send(port, "/", gzip.compress(body, 1), Content_Encoding="gzip", Content_Type="text/plain")
        assert json.loads(said.body) == {"events": 60_001}
    assert len(bin.events[-1]) == MAX_EVENT
    assert counters.cut["in"] == 1
    assert max(len(chunk.data) for chunk in bin.chunks[:-1]) <= 256 << 10


async def test_refusals(tmp_path: Path) -> None:
    """Each in its protocol's own words, counted, logged once a peer and status; nothing is stored."""
    token = tmp_path / "tokens"
    token.write_text("secret\n")
    token.chmod(0o600)
    bin, counters = Bin(), Counters()
    good = {"Authorization": "Bearer secret"}
    async with http_input(bin, counters, token_file=token, max_body=1000) as (_, port):
        with capture_logs() as logs:
            found = [
                await send(port, "/events", b"{}"),
                await send(port, "/services/collector", b"{}", Authorization="Splunk wrong"),
                await send(port, "/nowhere", b"{}", **good),
                await send(port, "/_bulk", b"x" * 2000, **good),
                await send(port, "/v1/logs", b"{", Content_Type="application/json", **good),
                await send(port, "/loki/api/v1/push", b"[]", Content_Type="application/json", **good),
                await send(port, "/events", gzip.compress(bytes(100_000)), Content_Encoding="gzip", **good),
                await send(port, "/v1/logs", b"{", Content_Type="application/json", **good),
            ]
        assert [said.status for said in found] == [401, 403, 404, 413, 400, 400, 413, 400]
        assert found[0].headers["www-authenticate"] == "Bearer"
        assert json.loads(found[1].body)["code"] == 4
        assert json.loads(found[3].body)["error"]["type"] == "content_too_large"
        assert json.loads(found[4].body)["code"] == 3
        assert found[5].body.endswith(b"is not a JSON object\n")
        assert (await send(port, "/events", b"{}", **good)).status == 200
        assert (await send(port, "/health", b"", "GET")).status == 200
    assert counters.totals["requests_refused"] == len(found)
    refused = [entry["status"] for entry in logs if entry["event"] == Log.PUSH_REFUSED]
    assert refused == [401, 403, 404, 413, 400]
    assert bin.events == [b"{}"]


async def test_while_the_raw_log_takes_nothing() -> None:
    """Senders are asked to come again, in their own words; afterwards they are served."""
    bin, counters = Bin(), Counters()
    async with http_input(bin, counters) as (_, port):
        bin.close()
        said = await send(port, "/services/collector", b'{"event":"x"}')
        assert (said.status, said.headers["retry-after"]) == (429, "5")
        assert json.loads(said.body)["code"] == 9
        bin.reopen()
        assert (await send(port, "/services/collector", b'{"event":"x"}')).status == 200
    assert len(bin.events) == 1


@pytest.mark.parametrize("chunked", [False, True])
async def test_rate(chunked: bool) -> None:
    """A peer that sends more than ``max_rate`` bytes a second is asked to wait, whether or not it says how many."""
    bin, counters = Bin(), Counters()
    body = b"384\r\n" + b"x" * 900 + b"\r\n0\r\n\r\n" if chunked else b"x" * 900
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 900"
    async with http_input(bin, counters, max_rate=1000) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write((b"POST /events HTTP/1.1\r\nHost: h\r\n" + length + b"\r\n\r\n" + body) * 8)
        writer.write(b"GET /health HTTP/1.0\r\n\r\n")
        statuses = [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", await reader.read())]
        writer.close()
    assert statuses[:2] == [200, 200]
    assert 429 in statuses


def narrow(listener: HttpListener) -> None:
    """Let the kernel keep little of what is not read."""
    for acceptor in vars(listener)["_acceptors"]:
        vars(acceptor)["_sock"].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


def deaf(
    port: int, *headers: str, local: str = "127.0.0.1", times: int = 3, context: ssl.SSLContext | None = None
) -> socket.socket:
    """A sender of small requests, each answered with 450 kB, that reads nothing."""
    body = gzip.compress(b'{"index":{"_id":"%b"}}\n{}\n' % (b"x" * 15_000) * 30)
    lines = ["POST /_bulk HTTP/1.1", "Host: h", "Content-Encoding: gzip", f"Content-Length: {len(body)}", *headers]
    sender = socket.socket()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sender.bind((local, 0))
    sender.connect(("127.0.0.1", port))
    if context is not None:
        sender = context.wrap_socket(sender, server_hostname="127.0.0.1")
    sender.sendall(("\r\n".join(lines).encode() + b"\r\n\r\n" + body) * times)
    return sender


@pytest.mark.parametrize("secured", [False, True])
async def test_answers_that_nobody_reads(tmp_path: Path, secured: bool) -> None:
    """One answer more than the way back holds is kept, and who reads none for ``message_timeout`` is closed, also when
    the connection was to end; others are served."""
    bin, counters, loop = Bin(), Counters(), asyncio.get_running_loop()
    authority = Authority(tmp_path)
    context = ssl.create_default_context(cafile=str(authority.ca)) if secured else None
    tls = TlsListener(LOCAL, *authority.issue("agent")) if secured else None
    where = {"tls": tls} if secured else {"tcp": LOCAL}
    async with http_input(bin, counters, message_timeout=DEADLINE, **where) as (listener, port):
        narrow(listener)
        connections = vars(listener)["_connections"]
        many = await asyncio.to_thread(deaf, port, context=context)
        last = await asyncio.to_thread(deaf, port, "Connection: close", times=1, context=context)
        with many, last:
            await eventually("both to be full", lambda: [one.full for one in connections] == [True, True])
            assert (await send(port, "/events", b"other", context=context)).status == 200
            assert not any(one.work for one in connections)
            assert max(one.transport.get_write_buffer_size() for one in connections) < 600_000
            while any(one.full for one in connections):
                forward(loop, DEADLINE / LOOKS)
                await asyncio.sleep(0)
    assert counters.totals["connections_stalled"] == (1 if secured else 2)  # of TLS, goodbye has a time of its own


async def test_unread_answers_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as bodies do: beyond HELD_BYTES who reads none is closed, and no other sender is refused."""
    monkeypatch.setattr(http_listen, "HELD_BYTES", 1_000_000)
    bin, counters = Bin(), Counters()
    async with http_input(bin, counters) as (listener, port):
        narrow(listener)
        with ExitStack() as stack:
            for _ in range(6):
                stack.enter_context(await asyncio.to_thread(deaf, port, local="127.0.0.2"))
            connections = vars(listener)["_connections"]
            await eventually(
                "unread answers of six",
                lambda: len(connections) < 6 or all(one.full and one.work is None for one in connections),
            )
            for _ in range(6):
                assert (await send(port, "/events", b"other")).status == 200
            assert sum(one.transport.get_write_buffer_size() for one in connections) <= 1_000_000
            await eventually("less held than all of it", lambda: listener.buffered <= 1_000_000)


@pytest.mark.parametrize("reset", [False, True])
async def test_nothing_is_held_of_who_is_gone(reset: bool) -> None:
    """Of a connection that ends with requests queued, only the one at work counts, until it is answered."""
    disk, counters = Disk(), Counters()
    async with http_input(disk, counters) as (listener, port):
        connections = vars(listener)["_connections"]
        posts = [
            b"POST / HTTP/1.1\r\nHost:\r\nContent-Length: %d\r\n\r\n" % n + b"x" * n for n in (1, 3900, 1, 3900, 1)
        ]
        with ExitStack() as stack:
            for _ in range(20):
                sender = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", reset, 0))
                sender.sendall(b"".join(posts))
            await eventually(
                "requests that wait", lambda: [len(peer.reader.requests) for peer in connections] == [4] * 20
            )
        await disk.sync(1 << 30)
        await eventually("all ends", lambda: not connections)
        await eventually("nothing held", lambda: listener.buffered == 0)


async def test_nothing_is_held_of_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose handling breaks off for whatever reason ends its connection."""
    bin, counters = Bin(), Counters()
    monkeypatch.setattr(http_listen, "unpacked", Mock(side_effect=MemoryError))
    async with http_input(bin, counters) as (listener, port):
        with pytest.raises(http.client.RemoteDisconnected):
            await send(port, "/events", b"x" * 5000)
        await eventually("nothing held", lambda: listener.buffered == 0)


async def test_status_says_who_is_kept_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that fill HELD_BYTES for KEPT_SECONDS are a fault, until that is over."""
    monkeypatch.setattr(http_listen, "HELD_BYTES", 5000)
    disk, counters = Disk(), Counters()
    async with http_input(disk, counters) as (listener, port):
        asked = asyncio.create_task(send(port, "/events", b"x" * 3900))
        await eventually("a body that is not on disk", lambda: disk.looks)
        assert (await send(port, "/events", b"y" * 20)).status == 429
        assert listener.condition == WORKS
        forward(asyncio.get_running_loop(), KEPT_SECONDS)
        assert listener.condition.state is State.FAILING
        assert "5000 bytes" in listener.condition.reason
        await disk.sync(1 << 30)
        assert (await asked).status == 200
        assert listener.condition == WORKS


async def test_refusals_are_short() -> None:
    """What was sent is not sent back, nor logged, at any length."""
    bin, counters = Bin(), Counters()
    number = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityNumber":"%b"}]}]}]}' % (b"x" * 100_000)
    async with http_input(bin, counters) as (_, port):
        with capture_logs() as logs:
            said = await send(port, "/v1/logs", number, Content_Type="application/json")
    assert said.status == 400
    assert len(said.body) < 1000
    assert b"expects a number" in said.body
    assert len(str(logs)) < 2000


async def test_memory_of_bodies_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond HELD_BYTES the largest body of the network that has most is refused, not the one that comes then; what
    stalls is closed."""
    monkeypatch.setattr(http_listen, "HELD_BYTES", 100_000)
    bin, counters, loop = Bin(), Counters(), asyncio.get_running_loop()
    async with http_input(bin, counters, message_timeout=DEADLINE) as (_, port):
        hosts = ("127.0.0.2", "127.0.0.2", "127.0.0.3")
        senders = [await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)) for host in hosts]
        for (_, writer), size in zip(senders, (35_000, 30_000, 40_000), strict=True):
            writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size + b"x" * (size - 1))
            await writer.drain()
        assert [(await send(port, "/events", b"y" * 20_000)).status for _ in range(3)] == [200] * 3
        reader, writer = senders[0]
        writer.write(b"x")
        assert (await reader.readline()).split()[1] == b"429"
        while counters.totals["connections_stalled"] < 2:
            forward(loop, DEADLINE / LOOKS)
            await asyncio.sleep(0)
        for _, writer in senders:
            writer.close()
    assert len(bin.events) == 3


async def test_bodies_at_work_keep_no_other_network_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond HELD_BYTES the network that has most is asked to wait, others up to twice as much, whose last part it
    does not take: also by what its bodies hold."""
    monkeypatch.setattr(http_listen, "HELD_BYTES", 5000)
    disk, counters = Disk(), Counters()
    many = b"x\n" * 400  # as events they count 3600 bytes
    async with http_input(disk, counters) as (listener, port):
        at_work = [asyncio.create_task(send(port, "/events", b"x" * 1300, local="127.0.0.2")) for _ in range(2)]
        await eventually("bodies at work", lambda: listener.buffered == 2 * (1300 + 1308))
        assert (await send(port, "/events", b"y" * 20, local="127.0.0.2")).status == 429
        at_work.append(asyncio.create_task(send(port, "/events", b"y" * 20, local="127.0.0.3")))
        await eventually("another network's", lambda: len(disk.events) == 3)
        assert (await send(port, "/events", b"z" * 2400, local="127.0.0.4")).status == 429
        await disk.sync(1 << 30)
        assert [said.status for said in await asyncio.gather(*at_work)] == [200] * 3
        await disk.sync(0)
        at_work = [asyncio.create_task(send(port, "/events", b"x" * 1800, local="127.0.0.2"))]
        await eventually("one at work", lambda: listener.buffered == 1800 + 1808)
        assert (await send(port, "/events", many, local="127.0.0.2")).status == 429
        at_work.append(asyncio.create_task(send(port, "/events", many, local="127.0.0.3")))
        await eventually("the other network's", lambda: len(disk.events) == 404)
        await disk.sync(1 << 30)
        assert [said.status for said in await asyncio.gather(*at_work)] == [200] * 2


async def test_the_raw_log_cannot_be_written() -> None:
    """``run`` raises, and no request is answered with success."""
    bin, counters = Bin(), Counters()
    async with http_input(bin, counters) as (listener, port):
        bin.broken = True
        with pytest.raises((OSError, http.client.HTTPException)):
            await send(port, "/events", b"lost")
        with pytest.raises(OSError, match="disk gone"):
            await listener.run()


async def test_stop_answers_what_has_arrived() -> None:
    """A request whose events are stored is answered at the stop, once they are on disk."""
    bin, counters = Disk(), Counters()

    async def sync() -> None:
        await eventually("the stop to begin", lambda: vars(listener)["stopping"])
        assert not asked.done()
        await bin.sync(1 << 30)

    async with http_input(bin, counters) as (listener, port):
        asked = asyncio.create_task(send(port, "/events", b"last words"))
        await eventually("the events", lambda: bin.events)
        stopping = asyncio.create_task(sync())
    assert (await asked).status == 200
    await stopping


async def test_client_certificates(tmp_path: Path) -> None:
    """With ``client_ca`` only a certificate that it signed may push."""
    authority = Authority(tmp_path)
    bin, counters = Bin(), Counters()
    anonymous = ssl.create_default_context(cafile=str(authority.ca))
    known = ssl.create_default_context(cafile=str(authority.ca))
    known.load_cert_chain(*authority.issue("sender"))
    async with http_input(bin, counters, tls=TlsListener(LOCAL, *authority.issue("agent"), authority.ca)) as (_, port):
        with pytest.raises((OSError, http.client.HTTPException)):
            await send(port, "/events", b"x", context=anonymous)
        assert (await send(port, "/events", b"signed", context=known)).status == 200
    assert bin.events == [b"signed"]


@pytest.mark.peer
@pytest.mark.skipif(not shutil.which("curl"), reason="curl is missing")
async def test_curl(tmp_path: Path) -> None:
    """A file by ``curl --data-binary``, which asks first (``Expect: 100-continue``), and one that is refused then."""
    bin, counters = Bin(), Counters()
    lines = tmp_path / "lines"
    lines.write_bytes(b"".join(b'{"n":%d}\n' % i for i in range(200_000)))
    async with http_input(bin, counters, max_body=4 << 20) as (_, port):
        for path, status in (("events", "200"), ("nowhere", "404")):
            process = await asyncio.create_subprocess_exec(
                "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Expect: 100-continue",
                "--data-binary", f"@{lines}", f"http://127.0.0.1:{port}/{path}", stdout=subprocess.PIPE,
            )  # fmt: skip
            said, _ = await process.communicate()
            assert said.decode() == status
    assert len(bin.events) == 200_000


@pytest.mark.filterwarnings("ignore:.LoggingHandler. in:DeprecationWarning")
async def test_the_exporter_of_opentelemetry() -> None:
    """Its Python exporter, protobuf in gzip: each record is an event with its attributes and its resource's."""
    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http._log_exporter", reason="not installed")
    logs = pytest.importorskip("opentelemetry.sdk._logs")
    export = pytest.importorskip("opentelemetry.sdk._logs.export")
    resources = pytest.importorskip("opentelemetry.sdk.resources")
    import logging

    bin, counters = Bin(), Counters()
    async with http_input(bin, counters) as (_, port):

        def run() -> None:
            provider = logs.LoggerProvider(resource=resources.Resource.create({"service.name": "shop"}))
            sender = exporter.OTLPLogExporter(
                endpoint=f"http://127.0.0.1:{port}/v1/logs", compression=exporter.Compression.Gzip
            )
            provider.add_log_record_processor(export.BatchLogRecordProcessor(sender))
            logger = logging.getLogger("vedette.test.exporter")
            logger.propagate = False
            logger.addHandler(logs.LoggingHandler(logger_provider=provider))
            for i in range(1000):
                logger.warning("number %d", i, extra={"user.name": "bob"})
            provider.shutdown()

        await asyncio.to_thread(run)
    found = [json.loads(event) for event in bin.events]
    assert [one["message"] for one in found] == [f"number {i}" for i in range(1000)]
    assert {(one["service.name"], one["user.name"], one["log.level"]) for one in found} == {("shop", "bob", "WARN")}


@pytest.mark.peer
@pytest.mark.skipif(not ELASTIC, reason="rsyslog's omelasticsearch is missing: apt-get install rsyslog-elasticsearch")
async def test_rsyslog_by_bulk(tmp_path: Path) -> None:
    """A real rsyslogd sends 2,000 lines to ``_bulk`` by omelasticsearch."""
    bin, counters = Bin(), Counters()
    lines = tmp_path / "lines"
    lines.write_text("".join(f"line {i}\n" for i in range(2000)))
    async with http_input(bin, counters) as (_, port):
        action = (
            f'action(type="omelasticsearch" server="127.0.0.1" serverport="{port}" bulkmode="on" searchType=""'
            ' searchIndex="logs" queue.type="LinkedList" queue.dequeueBatchSize="500" action.resumeRetryCount="-1")'
        )
        with ExitStack() as stack:
            log = stack.enter_context(rsyslogd(tmp_path, action, "omelasticsearch"))
            process = await asyncio.create_subprocess_exec("logger", "-u", str(log), "-f", str(lines))
            assert await process.wait() == 0
            await eventually("2000 events", lambda: len(bin.events) >= 2000)
            await asyncio.to_thread(stack.close)
    assert sorted(json.loads(event)["message"].strip() for event in bin.events) == sorted(
        f"line {i}" for i in range(2000)
    )


@pytest.mark.peer
@needs_collector
async def test_the_collector(tmp_path: Path) -> None:
    """A real OpenTelemetry Collector reads a file and sends it by otlphttp, protobuf in gzip."""
    bin, counters = Bin(), Counters()
    lines = tmp_path / "lines"
    lines.write_text("".join(f"Nov 23 06:16:34 web-1 sshd[42]: line {i}\n" for i in range(10_000)))
    async with http_input(bin, counters) as (_, port):
        config = tmp_path / "config.yaml"
        config.write_text(
            f"receivers: {{filelog: {{include: [{lines}], start_at: beginning}}}}\n"
            f"exporters: {{otlphttp: {{endpoint: 'http://127.0.0.1:{port}'}}}}\n"
            "service:\n  pipelines: {logs: {receivers: [filelog], exporters: [otlphttp]}}\n"
            "  telemetry: {metrics: {level: none}}\n"
        )
        with (tmp_path / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                str(COLLECTOR), "--config", str(config), stdout=log, stderr=subprocess.STDOUT
            )
        try:
            await eventually("10_000 events", lambda: len(bin.events) >= 10_000)
        finally:
            process.terminate()
            await process.wait()
    found = [json.loads(event) for event in bin.events]
    assert sorted(int(one["MESSAGE"].split()[1]) for one in found) == list(range(10_000))  # batches come side by side
    assert {(one["SYSLOG_IDENTIFIER"], one["log.file.name"]) for one in found} == {("sshd", "lines")}


@pytest.mark.peer
@needs_promtail
async def test_promtail(tmp_path: Path) -> None:
    """A real Promtail reads a file and pushes it, protobuf in Snappy."""
    bin, counters = Bin(), Counters()
    lines = tmp_path / "lines"
    lines.write_text("".join(f"Nov 23 06:16:34 web-1 sshd[42]: line {i}\n" for i in range(5_000)))
    async with http_input(bin, counters) as (_, port):
        config = tmp_path / "config.yaml"
        config.write_text(
            f"server: {{disable: true}}\npositions: {{filename: {tmp_path}/positions}}\n"
            f"clients: [{{url: 'http://127.0.0.1:{port}/loki/api/v1/push'}}]\n"
            "scrape_configs:\n- job_name: lines\n  static_configs:\n  - targets: [localhost]\n"
            f"    labels: {{job: auth, host: web-1, __path__: {lines}}}\n"
        )
        with (tmp_path / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                str(PROMTAIL), f"-config.file={config}", stdout=log, stderr=subprocess.STDOUT
            )
        try:
            await eventually("5_000 events", lambda: len(bin.events) >= 5_000)
        finally:
            process.terminate()
            await process.wait()
    found = [json.loads(event) for event in bin.events]
    assert sorted(int(one["MESSAGE"].split()[1]) for one in found) == list(range(5_000))
    assert {(one["SYSLOG_IDENTIFIER"], one["host.name"], one["job"]) for one in found} == {("sshd", "web-1", "auth")}


@pytest.mark.peer
@pytest.mark.parametrize("push", PUSHES, ids=lambda push: f"{push.program}-{push.protocol}")
async def test_other_senders(tmp_path: Path, push: Push) -> None:
    """A real Fluent Bit, Vector or Logstash reads a file and sends each of its lines, once, by one of its outputs."""
    bin, counters = Bin(), Counters()
    lines = tmp_path / "lines"
    lines.write_text("".join(f"Nov 23 06:16:34 web-1 sshd[42]: line {i}\n" for i in range(2_000)))
    async with http_input(bin, counters) as (_, port):
        command = configured(push, lines, port, tmp_path)
        with (tmp_path / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=subprocess.STDOUT)
        try:
            await eventually("2_000 events", lambda: len(bin.events) >= 2_000)
        finally:
            process.terminate()
            await process.wait()
    found = [re.search(rb"line (\d+)", event) for event in bin.events]
    assert sorted(int(one[1]) for one in found if one) == list(range(2_000))
    assert not counters.dropped


@pytest.mark.parametrize(
    "tiny", [b"GET / HTTP/1.1\r\nHost:\r\n\r\n", b"POST / HTTP/1.1\r\nHost:\r\nContent-Length:0\r\n\r\n"]
)
async def test_tiny_requests_leave_others_their_turn(tiny: bytes) -> None:
    """Of all connections together little is read in a turn of the event loop when requests are tiny, also of those that
    are refused."""
    bin, counters = Bin(), Counters()
    async with http_input(bin, counters) as (listener, port):
        turns = await poured(listener, port, b"", tiny * (READ_BYTES // len(tiny)), 16)
    assert max(map(sum, turns)) <= TURN_STEPS // REQUEST_STEPS * len(tiny) + READ_BYTES
