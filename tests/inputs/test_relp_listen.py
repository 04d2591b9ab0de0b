"""The RELP input against real sockets and a real rsyslogd with omrelp."""

from __future__ import annotations

import asyncio
import glob
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager, suppress
from hashlib import md5
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.certificates import Authority
from tests.inputs.intake import LOCAL, Bin, account, agent, looked, poured, rsyslogd
from tests.inputs.test_acknowledge import Disk
from tests.inputs.test_relp_frames import OPEN, frame
from tests.looptime import forward
from tests.waits import eventually
from vedette.inputs import listen
from vedette.inputs.connections import LOOKS, TURN_STEPS
from vedette.inputs.relp_listen import RelpListener
from vedette.inputs.settings import RelpInput, TlsListener
from vedette.model.counters import Counters, Log
from vedette.model.event import CHUNK_BYTES, MAX_EVENT, Flag

OMRELP = glob.glob("/usr/lib*/rsyslog/omrelp.so") + glob.glob("/usr/lib*/*/rsyslog/omrelp.so")
TIMED = b"<13>2026-11-23T06:16:34.%06d+00:00 host app: line"


@asynccontextmanager
async def relp(
    bin: Bin, counters: Counters, recent: Iterable[tuple[int, str, bytes]] = (), idle: float = 60.0, **settings: object
) -> AsyncIterator[tuple[RelpListener, int]]:
    """A started listener and its first port; stopped afterwards, and the account checked."""
    settings = settings if settings.keys() & {"tcp", "tls"} else {"tcp": LOCAL, **settings}
    listener = RelpListener(RelpInput("in", **settings), agent(bin, counters), recent=recent, idle=idle)
    await listener.start()
    try:
        yield listener, listener.addresses[0][2]
    finally:
        await listener.stop()
    dropped = sum(n for (name, _), n in counters.dropped.items() if name == "in")
    assert counters.received["in"] == len(bin.events) + dropped


class Sender:
    """A RELP client that keeps what it is answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.number = 1

    @classmethod
    async def open(cls, port: int, context: ssl.SSLContext | None = None) -> Sender:
        sender = cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context))
        try:
            sender.writer.write(OPEN)
            assert b"200 OK" in await sender.line()
            for _ in range(3):  # offers
                await sender.line()
        except BaseException:
            sender.close()
            raise
        return sender

    async def line(self) -> bytes:
        return await self.reader.readline()

    def send(self, *texts: bytes) -> list[int]:
        """Write messages; their numbers."""
        numbers = range(self.number + 1, self.number + 1 + len(texts))
        self.number += len(texts)
        self.writer.write(b"".join(frame(n, b"syslog", text) for n, text in zip(numbers, texts, strict=True)))
        return list(numbers)

    async def answered(self, numbers: list[int]) -> None:
        for number in numbers:
            assert await self.line() == b"%d rsp 6 200 OK\n" % number

    async def rest(self) -> bytes:
        """All bytes until the connection ends."""
        return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


async def test_answered_once_on_disk() -> None:
    """A message is stored at once and answered only when the raw log has it on disk; close is answered after all."""
    bin, counters = Disk(), Counters()
    async with relp(bin, counters, message_timeout=0.2) as (listener, port):
        sender = await Sender.open(port)
        sent = sender.send(b"<13>one", b"<13>two")
        sender.writer.write(frame(4, b"close"))
        await eventually("the events", lambda: bin.events == [b"<13>one", b"<13>two"])
        await eventually("answers that wait for the disk", lambda: bin.looks)
        await looked(listener)
        assert not sender.reader._buffer  # type: ignore[attr-defined]
        await bin.sync(1 << 30)
        await sender.answered(sent)
        assert await sender.rest() == b"4 rsp 0\n0 serverclose 0\n"
        sender.close()
    assert {(chunk.codec, chunk.origins) for chunk in bin.chunks} == {("syslog", ("127.0.0.1",))}
    account(counters, bin, "in")


async def test_many_messages_of_several_senders() -> None:
    """20,000 messages of 4 senders at once: each is stored in its sender's order and answered once."""
    bin, counters = Bin(), Counters()
    async with relp(bin, counters) as (_, port):
        senders = [await Sender.open(port) for _ in range(4)]

        async def run(which: int, sender: Sender) -> None:
            for i in range(0, 5000, 100):
                await sender.answered(sender.send(*(b"<13>%d.%d" % (which, j) for j in range(i, i + 100))))
            sender.close()

        await asyncio.gather(*(run(i, sender) for i, sender in enumerate(senders)))
    for which in range(4):
        mine = [event for event in bin.events if event.startswith(b"<13>%d." % which)]
        assert mine == [b"<13>%d.%d" % (which, j) for j in range(5000)]
    assert len(bin.events) == 20_000


async def test_a_bad_frame_harms_no_other() -> None:
    """It is answered, counted and logged with its peer; what came before it is stored and answered; others go on."""
    bin, counters = Bin(), Counters()
    async with relp(bin, counters) as (_, port):
        good, bad = await Sender.open(port), await Sender.open(port)
        with capture_logs() as logs:
            sent = bad.send(b"<13>before")
            bad.writer.write(frame(3, b"open", b"relp_version=0"))
            await bad.answered(sent)
            assert await bad.rest() == b"3 rsp 17 500 a second open\n0 serverclose 0\n"
        assert [(entry["event"], entry["peer"]) for entry in logs] == [(Log.FRAMING_ERROR, "127.0.0.1")]
        await good.answered(good.send(b"<13>good"))
        bad.close()
        good.close()
    assert bin.events == [b"<13>before", b"<13>good"]
    assert counters.dropped["in", "framing"] == 1


async def test_not_relp_at_all() -> None:
    """A browser, or TLS at the plain port: counted, and the connection is closed."""
    bin, counters = Bin(), Counters()
    async with relp(bin, counters) as (_, port):
        for hello in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(hello)
            assert await reader.read() == b"0 serverclose 0\n"
            writer.close()
    assert counters.dropped["in", "framing"] == 2


async def test_repeats() -> None:
    """After a break, messages with an exact time that are stored are answered and not stored again; others that may
    be repeats are stored and flagged."""
    bin, counters = Bin(), Counters()
    lines = [TIMED % i for i in range(10)]
    async with relp(bin, counters) as (listener, port):
        first = await Sender.open(port)
        first.send(*lines[:6], b"<13>coarse")
        await eventually("7 events", lambda: len(bin.events) == 7)
        first.writer.transport.abort()
        await eventually("no open connection", lambda: listener.gate.open == 0)
        second = await Sender.open(port)
        await second.answered(second.send(*lines[3:6], b"<13>coarse", *lines[6:]))
        second.close()
    assert bin.events == [*lines[:6], b"<13>coarse", b"<13>coarse", *lines[6:]]
    assert counters.dropped["in", "duplicate"] == 3
    flagged = [
        (chunk.data[start:end], chunk.flags(start))
        for chunk in bin.chunks
        for start, end in chunk.spans()
        if chunk.flags(start)
    ]
    assert flagged == [(b"<13>coarse", Flag.DUP)]


async def test_repeats_of_another_life() -> None:
    """What the end of the raw log holds is known after a restart, too; all of a batch may be repeats."""
    bin, counters = Bin(), Counters()
    lines = [TIMED % i for i in range(3)]
    recent = [(0, "127.0.0.1", md5(line).digest()) for line in lines]
    async with relp(bin, counters, recent) as (_, port):
        sender = await Sender.open(port)
        await sender.answered(sender.send(*lines))
        await sender.answered(sender.send(b"<13>new"))
        sender.close()
    assert bin.events == [b"<13>new"]
    assert all(chunk.message_ids is not None for chunk in bin.chunks)


async def test_repeats_within_a_run() -> None:
    """Without an answer a sender may send a message twice in a row: by its own retry and by that of its session."""
    bin, counters = Bin(), Counters()
    async with relp(bin, counters) as (_, port):
        sender = await Sender.open(port)
        await sender.answered(sender.send(TIMED % 1, TIMED % 1, b"<13>coarse", b"<13>coarse"))
        sender.close()
    assert bin.events == [TIMED % 1, b"<13>coarse", b"<13>coarse"]
    assert counters.dropped["in", "duplicate"] == 1
    flags = [chunk.flags(start) for chunk in bin.chunks for start, _ in chunk.spans()]
    assert flags == [0, 0, Flag.DUP]


async def test_a_long_message() -> None:
    """One above MAX_EVENT is cut, flagged, counted and answered."""
    bin, counters = Bin(), Counters()
    async with relp(bin, counters) as (_, port):
        sender = await Sender.open(port)
        await sender.answered(sender.send(b"x" * (MAX_EVENT + 5), b"<13>after"))
        sender.close()
    assert [len(event) for event in bin.events] == [MAX_EVENT, len(b"<13>after")]
    assert counters.cut["in"] == 1


async def test_memory_of_unfinished_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond HELD_BYTES the connection with the longest unfinished message is closed; nothing of that is stored."""
    monkeypatch.setattr(listen, "HELD_BYTES", 300_000)
    bin, counters = Bin(), Counters()
    async with relp(bin, counters) as (listener, port):
        long, short = await Sender.open(port), await Sender.open(port)
        short.writer.write(b"2 syslog 1000 <13>")
        long.writer.write(b"2 syslog 900000 " + b"x" * 400_000)
        with suppress(ConnectionError):  # or the end, where all that was sent had been read
            assert await long.rest() == b""
        assert listener.buffered < 300_000
        short.writer.write(b"y" * 996 + b"\n")
        await short.answered([2])
        long.close()
        short.close()
    assert bin.events == [b"<13>" + b"y" * 996]


async def test_a_stalled_message() -> None:
    """A frame that is not ended within ``message_timeout`` costs the connection; a quiet one stays."""
    bin, counters = Bin(), Counters()
    async with relp(bin, counters, message_timeout=0.2) as (_, port):
        quiet, stalled = await Sender.open(port), await Sender.open(port)
        stalled.writer.write(b"2 syslog 100 <13>")
        await eventually("connections that are counted as stalled", lambda: counters.totals["connections_stalled"] == 1)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await stalled.reader.readexactly(1)
        await quiet.answered(quiet.send(b"<13>still here"))
        quiet.close()
        stalled.close()
    assert bin.events == [b"<13>still here"]


async def test_while_the_raw_log_takes_nothing() -> None:
    """Nothing is read or answered; afterwards all is."""
    bin, counters = Bin(), Counters()
    async with relp(bin, counters, message_timeout=0.2) as (listener, port):
        sender = await Sender.open(port)
        bin.close()
        first = sender.send(b"<13>one")
        await eventually("an event", lambda: len(bin.events) == 1)
        await sender.answered(first)
        second = sender.send(b"<13>two")
        await looked(listener)
        assert len(bin.events) == 1
        bin.reopen()
        await sender.answered(second)
        sender.close()


async def test_stop() -> None:
    """What has arrived is stored and answered, then the connections are closed with a serverclose."""
    bin, counters = Bin(), Counters()
    async with relp(bin, counters) as (listener, port):
        sender = await Sender.open(port)
        sent = sender.send(b"<13>last words")
        await eventually("bytes or events", lambda: listener.buffered or bin.events)
    await sender.answered(sent)
    assert await sender.rest() == b"0 serverclose 0\n"
    sender.close()
    assert bin.events == [b"<13>last words"]


async def test_the_raw_log_cannot_be_written() -> None:
    """``run`` raises, and nothing is answered."""
    bin, counters = Bin(), Counters()
    async with relp(bin, counters) as (listener, port):
        sender = await Sender.open(port)
        bin.broken = True
        sender.send(b"<13>lost")
        with pytest.raises(OSError, match="disk gone"):
            await listener.run()
        try:
            said = await sender.rest()
        except ConnectionError:
            said = b""
        assert b"200" not in said
        sender.close()


async def test_client_certificates(tmp_path: Path) -> None:
    """With ``client_ca`` only a certificate that it signed may send; others are counted and logged."""
    authority = Authority(tmp_path)
    bin, counters = Bin(), Counters()
    tls = TlsListener(LOCAL, *authority.issue("agent"), authority.ca)
    anonymous = ssl.create_default_context(cafile=str(authority.ca))
    known = ssl.create_default_context(cafile=str(authority.ca))
    known.load_cert_chain(*authority.issue("sender"))
    async with relp(bin, counters, tls=tls) as (_, port):
        with pytest.raises((OSError, AssertionError)):
            await Sender.open(port, anonymous)
        await eventually("failed handshakes", lambda: counters.totals["handshakes_failed"] == 1)
        sender = await Sender.open(port, known)
        await sender.answered(sender.send(b"<13>signed"))
        sender.close()
    assert bin.events == [b"<13>signed"]


async def test_a_peer_that_reads_no_answers() -> None:
    """One that only sends is not read on when its answers fill the way back, and closed by ``message_timeout``; others
    are served."""
    bin, counters, ahead = Bin(), Counters(), asyncio.get_running_loop()
    async with relp(bin, counters) as (_, port):
        deaf = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        deaf.setblocking(False)
        frames = b"".join(frame(i, b"syslog", b"<13>x") for i in range(2, 100_000))

        async def flood() -> None:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(deaf, OPEN)
            while True:
                await loop.sock_sendall(deaf, frames)

        flooding = asyncio.create_task(flood())
        await eventually("the flood", lambda: counters.received["in"])
        sender, unread = await Sender.open(port), 0
        while unread < 5:
            before = counters.received["in"]
            assert before < 20_000_000
            await sender.answered(sender.send(b"<13>other"))
            unread = unread + 1 if counters.received["in"] == before + 1 else 0
        assert not flooding.done()
        while not counters.totals["connections_stalled"]:
            forward(ahead, RelpInput("in").message_timeout / LOOKS)
            await asyncio.sleep(0)
        flooding.cancel()
        await asyncio.wait([flooding])
        sender.close()
        deaf.close()


async def test_tiny_messages_leave_others_their_turn() -> None:
    """Of all connections together little is read in a turn of the event loop when messages are tiny."""
    bin, counters = Bin(), Counters()
    async with relp(bin, counters) as (listener, port):
        turns = await poured(listener, port, OPEN, (tiny := frame(2, b"syslog", b"a")) * 4000)
    assert max(map(sum, turns)) <= TURN_STEPS * len(tiny) + CHUNK_BYTES


async def test_unread_answers_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as unfinished messages do: beyond HELD_BYTES who reads none is closed, and no other sender."""
    monkeypatch.setattr(listen, "HELD_BYTES", 300_000)
    bin, counters = Bin(), Counters()
    async with relp(bin, counters) as (listener, port):
        for acceptor in vars(listener)["_acceptors"]:
            vars(acceptor)["_sock"].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sender = await Sender.open(port)
        sender.writer.write(b"999 syslog 250000 " + b"x" * 200_000)
        connections, flood = vars(listener)["_connections"], frame(2, b"syslog", b"") * 20_000
        with ExitStack() as stack:
            for _ in range(8):
                deaf = stack.enter_context(socket.socket())
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.connect(("127.0.0.1", port))
                sending = asyncio.get_running_loop().sock_sendall
                deaf.setblocking(False)
                task = asyncio.create_task(sending(deaf, OPEN + flood))
                stack.callback(task.cancel)
            await eventually("eight", lambda: len(connections) == 9)
            await eventually("fewer, that are not read", lambda: len(connections) < 9)
            await eventually("no more to be read", lambda: all(peer.full for peer in connections if peer.framer.owed))
            assert sum(peer.transport.get_write_buffer_size() for peer in connections) <= 300_000
        await eventually("nothing held of who is gone", lambda: len(connections) == 1 and listener.buffered < 200_100)
        sender.writer.write(b"x" * 50_000 + b"\n")
        await sender.answered([999])
        sender.close()
        await eventually("nothing held", lambda: not connections and not listener.buffered)


@pytest.mark.peer
@pytest.mark.skipif(not OMRELP, reason="rsyslog's omrelp is missing: apt-get install rsyslog-relp")
@pytest.mark.parametrize("secured", [False, True])
async def test_rsyslog(tmp_path: Path, secured: bool) -> None:
    """A real rsyslogd sends 2,000 lines by omrelp, in the clear and by TLS with certificates of both sides."""
    bin, counters, more = Bin(), Counters(), ""
    settings: dict[str, object] = {}
    if secured:
        authority = Authority(tmp_path)
        settings["tls"] = TlsListener(LOCAL, *authority.issue("agent"), authority.ca)
        cert, key = authority.issue("sender")
        more = (
            f' tls="on" tls.caCert="{authority.ca}" tls.myCert="{cert}" tls.myPrivKey="{key}" tls.authMode="name"'
            ' tls.permittedPeer="agent"'
        )
    lines = tmp_path / "lines"
    lines.write_text("".join(f"line {i}\n" for i in range(2000)))
    async with relp(bin, counters, **settings) as (_, port):
        action = f'action(type="omrelp" target="127.0.0.1" port="{port}" windowsize="1000"{more})'
        with ExitStack() as stack:
            log = stack.enter_context(rsyslogd(tmp_path, action, "omrelp"))
            process = await asyncio.create_subprocess_exec("logger", "-u", str(log), "-f", str(lines))
            assert await process.wait() == 0
            await eventually("2000 events", lambda: len(bin.events) == 2000)
            await asyncio.to_thread(stack.close)  # it says goodbye, which is answered
    assert [event.rpartition(b"line ")[2] for event in bin.events] == [b"%d" % i for i in range(2000)]
    assert not counters.dropped
