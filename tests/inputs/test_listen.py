"""The syslog input against real sockets, the real ``logger`` and a real rsyslogd."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import struct
import subprocess
import sys
from array import array
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.inputs.intake import LOCAL, Bin, account, agent, listening, looked, poured, rsyslogd
from tests.waits import eventually
from vedette.inputs import listen
from vedette.inputs.connections import TURN_STEPS
from vedette.inputs.framing import Run, merge
from vedette.inputs.listen import SyslogListener
from vedette.inputs.settings import SyslogInput
from vedette.model.counters import Counters, Dropped, Log
from vedette.model.event import CHUNK_BYTES


async def send(port: int, data: bytes) -> None:
    """One connection that sends ``data`` and ends."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def closed(reader: asyncio.StreamReader) -> None:
    """Wait until the listener has closed this connection, in order or by a reset."""
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""


async def command(*arguments: str | Path) -> None:
    process = await asyncio.create_subprocess_exec(*map(str, arguments))
    assert await process.wait() == 0


async def test_many_lines() -> None:
    """100,000 lines over one connection are all stored, in order, in large chunks, and counted."""
    bin, counters = Bin(), Counters()
    lines = [b"<13>Nov 20 10:00:00 host app[7]: message number %d" % i for i in range(100_000)]
    async with listening(bin, counters) as (_, port):
        await send(port, b"\n".join(lines) + b"\n")
        await eventually("the count of what was received", lambda: counters.received["in"] == len(lines))
    assert bin.events == lines
    assert max(len(chunk.data) for chunk in bin.chunks) <= 2 * CHUNK_BYTES
    assert {(chunk.input, chunk.codec, chunk.origins) for chunk in bin.chunks} == {("in", "syslog", ("127.0.0.1",))}


async def test_reset_connection() -> None:
    """What arrived before a connection was reset is stored."""
    bin, counters = Bin(), Counters()
    async with listening(bin, counters) as (_, port):
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.sendall(b"<13>one\n<13>tw")
            await eventually("the events", lambda: bin.events == [b"<13>one"])
        await eventually("the events", lambda: bin.events == [b"<13>one", b"<13>tw"])


async def test_many_quiet_connections_share_chunks() -> None:
    """Single lines of many connections arrive in few chunks, each with its own peer, in order per peer."""
    bin, counters = Bin(), Counters()
    async with listening(bin, counters) as (listener, port):
        peers = [
            socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.0.{i}", 0)) for i in range(2, 42)
        ]
        await eventually("40 open connections", lambda: listener.gate.open == 40)
        for turn in range(2):
            for i, peer in enumerate(peers):
                peer.sendall(b"<13>%d.%d\n" % (i, turn))
            await eventually("the events", lambda wanted=40 * (turn + 1): len(bin.events) == wanted)
        for peer in peers:
            peer.close()
    assert len(bin.chunks) < 40
    assert bin.by_origin == {f"127.0.0.{i + 2}": [b"<13>%d.0" % i, b"<13>%d.1" % i] for i in range(40)}


async def test_malformed_count() -> None:
    """A malformed octet count closes its connection, is said and counted; other connections go on."""
    bin, counters = Bin(), Counters()
    async with listening(bin, counters) as (_, port):
        with capture_logs() as logs:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"6 <13>ab12x <13>lost")
            await closed(reader)
            writer.close()
        await send(port, b"<13>next\n")
        await eventually("the events", lambda: bin.events == [b"<13>ab", b"<13>next"])
        assert counters.dropped == {("in", Dropped.FRAMING): 1}
    (line,) = [entry for entry in logs if entry["event"] == Log.FRAMING_ERROR]
    assert (line["input"], line["peer"]) == ("in", "127.0.0.1")
    assert "b'12x <13>lost'" in line["reason"]


@pytest.mark.parametrize("first", [b"", b"a line\n"])
@pytest.mark.parametrize("tiny", [b"1 a", b"<\n"])
async def test_tiny_messages_leave_others_their_turn(first: bytes, tiny: bytes) -> None:
    """Of connections that count octets little is read in a turn of the event loop when messages are tiny, however many
    are ready, also where all go over to that within what had been lines."""
    bin, counters = Bin(), Counters()
    async with listening(bin, counters) as (listener, port):
        turns = await poured(listener, port, first, (first and b"\n") + b"5 <13>a" + tiny * 15_000)
    assert max(map(sum, turns)) <= TURN_STEPS * len(tiny) + CHUNK_BYTES


@pytest.mark.parametrize("message", [b"<13>%b\n" % (b"x" * 295), b"299 <13>%b" % (b"x" * 295)])
async def test_messages_are_read_in_large_pieces(message: bytes) -> None:
    """Those of the usual length, however many connections there are."""
    bin, counters = Bin(), Counters()
    async with listening(bin, counters) as (listener, port):
        turns = await poured(listener, port, b"", message * 500)
    assert max(map(max, filter(None, turns))) > 32 << 10


async def test_many_unfinished_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What connections hold is bounded together: beyond HELD_BYTES the longest unfinished message is cut, flagged,
    counted and said with its peer; the others become whole, and the cut connection's next message too."""
    monkeypatch.setattr(listen, "HELD_BYTES", 1 << 20)
    bin, counters = Bin(), Counters()
    async with listening(bin, counters) as (listener, port):
        peers = [socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)) for _ in range(19)]
        peers.append(socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.3", 0)))
        with capture_logs() as logs:
            for peer in peers[:-1]:
                peer.sendall(b"<13>" + b"x" * 49_996)
            await eventually("bytes that wait for their end", lambda: listener.buffered == 19 * 50_000)
            peers[-1].sendall(b"<13>" + b"y" * 69_996)
            await eventually("bytes that wait for their end", lambda: listener.buffered == 20 * 51_000)
            assert not bin.events
            peers[-1].sendall(b"y" * 30_000)
            await eventually("an event", lambda: len(bin.events) == 1)
        assert listener.buffered == 19 * 50_000
        peers[-1].sendall(b"y" * 3_000_000 + b"\n<13>whole\n")
        for peer in peers[:-1]:
            peer.sendall(b"\n")
        await eventually("21 events", lambda: len(bin.events) == 21)
        assert listener.buffered == 0
        for peer in peers:
            peer.close()
    cut, whole = bin.by_origin["127.0.0.3"]
    assert (100_000 - 30_000 < len(cut) <= 100_000, whole) == (True, b"<13>whole")
    assert set(bin.by_origin["127.0.0.2"]) == {b"<13>" + b"x" * 49_996}
    assert counters.cut["in"] == 1
    (line,) = [entry for entry in logs if entry["event"] == Log.EVENT_CUT]
    assert line["peer"] == "127.0.0.3"
    assert str(1 << 20) in line["reason"]


async def test_port_in_use() -> None:
    """Where one of its ports is in use the listener does not start, and leaves none of the others bound."""
    with socket.create_server(("127.0.0.1", 0)) as free, socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        tcp, udp = (f"127.0.0.1:{sock.getsockname()[1]}" for sock in (free, other))
        free.close()
        with pytest.raises(OSError, match=f"input 'edge': cannot listen on udp {udp}: .*another program"):
            await SyslogListener(SyslogInput("edge", udp=udp, tcp=tcp), agent(Bin(), Counters())).start()
        socket.create_server(("127.0.0.1", int(tcp.partition(":")[2]))).close()


async def test_back_pressure() -> None:
    """While the raw log takes nothing TCP is not read and datagrams are dropped and counted; then it goes on."""
    bin, counters = Bin(), Counters()
    listener = SyslogListener(SyslogInput("in", udp=LOCAL, tcp=LOCAL, message_timeout=1.0), agent(bin, counters))
    await listener.start()
    ports = {kind: port for kind, _, port in listener.addresses}
    _, writer = await asyncio.open_connection("127.0.0.1", ports["tcp"])
    writer.write(b"<13>first\n")
    await eventually("an event", lambda: len(bin.events) == 1)
    bin.close()
    writer.write(b"<13>waits\n" * 1_000_000)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(10):
            sender.sendto(b"<13>dropped", ("127.0.0.1", ports["udp"]))
    await eventually("the count of what was dropped", lambda: counters.dropped["in", Dropped.DISK_FULL] == 10)
    await looked(listener)
    assert len(bin.events) <= 1 + CHUNK_BYTES // 10 + 1  # one read was under way
    bin.reopen()
    await eventually("1_000_001 events", lambda: len(bin.events) == 1_000_001)
    writer.close()
    await listener.stop()
    account(counters, bin, "in")


async def test_a_steady_sender_does_not_keep_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that sends a line every few milliseconds is never quiet: ``stop`` ends all the same."""
    monkeypatch.setattr(listen, "DRAIN_LONGEST", 0.2)
    bin, counters = Bin(), Counters()
    async with listening(bin, counters) as (listener, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)

        async def steady() -> None:
            while True:
                writer.write(b"line\n")
                await asyncio.sleep(0.005)

        sender = asyncio.create_task(steady())
        await eventually("the events", lambda: bin.events)
        try:
            await listener.stop()
        finally:
            sender.cancel()
            writer.close()


async def test_stop_hands_over() -> None:
    """What has reached the sockets before ``stop`` is stored, unfinished lines too; afterwards ports are free."""
    bin, counters = Bin(), Counters()
    listener = SyslogListener(SyslogInput("in", udp=LOCAL, tcp=LOCAL), agent(bin, counters))
    await listener.start()
    ports = {kind: port for kind, _, port in listener.addresses}
    peer = socket.create_connection(("127.0.0.1", ports["tcp"]))
    await eventually("an open connection", lambda: listener.gate.open == 1)
    lines = [b"<13>line %d" % i for i in range(20_000)]
    peer.sendall(b"\n".join(lines))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(100):
            sender.sendto(b"<13>udp\n", ("127.0.0.1", ports["udp"]))
    await listener.stop()
    await listener.stop()
    await listener.run()
    peer.close()
    assert sorted(bin.events) == sorted(lines + [b"<13>udp"] * 100)
    account(counters, bin, "in")
    socket.create_server(("127.0.0.1", ports["tcp"])).close()


async def test_unwritable_log() -> None:
    """When the raw log cannot be written ``run`` raises, connections close, and ``stop`` still works."""
    bin, counters = Bin(), Counters()
    listener = SyslogListener(SyslogInput("in", tcp=LOCAL), agent(bin, counters))
    await listener.start()
    bin.broken = True
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.addresses[0][2])
    writer.write(b"<13>a\n")
    with pytest.raises(OSError, match="disk gone"):
        await listener.run()
    await closed(reader)
    writer.close()
    await listener.stop()
    assert counters.received["in"] == 0


async def test_datagrams() -> None:
    """A datagram is one event with its peer, without one trailing newline; an empty one is one newline."""
    bin, counters = Bin(), Counters()
    async with listening(bin, counters, udp=LOCAL) as (_, port):
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second,
        ):
            second.bind(("127.0.0.9", 0))
            for data in (b"<13>a\nb\n", b"", b"\xff\x00"):
                first.sendto(data, ("127.0.0.1", port))
            second.sendto(b"x" * 60_000, ("127.0.0.1", port))
        await eventually("4 events", lambda: len(bin.events) == 4)
    assert bin.by_origin == {"127.0.0.1": [b"<13>a\nb", b"\n", b"\xff\x00"], "127.0.0.9": [b"x" * 60_000]}


async def test_kernel_drops() -> None:
    """Datagrams that overflow the socket's buffer are counted: sent = stored + dropped in the kernel."""
    bin, counters = Bin(), Counters()
    settings = SyslogInput("in", udp=LOCAL, receive_buffer=4096)
    listener = SyslogListener(settings, agent(bin, counters))
    await listener.start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(500):  # the event loop does not run meanwhile
            sender.sendto(b"<13>" + b"x" * 500, ("127.0.0.1", listener.addresses[0][2]))
    await listener.stop()
    assert counters.dropped["in", Dropped.KERNEL] > 0
    assert counters.received["in"] == 500
    account(counters, bin, "in")


async def test_both_address_families() -> None:
    """``[::]`` takes IPv4 peers too, under their IPv4 address."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this host has no IPv6")
    bin, counters = Bin(), Counters()
    async with listening(bin, counters, tcp="[::]:0") as (_, port):
        await send(port, b"<13>a\n")
        await eventually("an event", lambda: len(bin.events) == 1)
    assert list(bin.by_origin) == ["127.0.0.1"]


@pytest.mark.peer
@pytest.mark.skipif(not shutil.which("logger"), reason="needs logger")
@pytest.mark.parametrize("options", [["--udp"], ["--tcp"], ["--tcp", "--octet-count"]], ids=" ".join)
async def test_logger(options: list[str]) -> None:
    """The real ``logger`` over UDP, and over TCP with both framings: one event with its text."""
    bin, counters = Bin(), Counters()
    kind = {"udp": LOCAL} if "--udp" in options else {"tcp": LOCAL}
    async with listening(bin, counters, **kind) as (_, port):
        await command("logger", "--server", "127.0.0.1", "--port", str(port), *options, "-t", "demo", "hello there")
        await eventually("an event", lambda: len(bin.events) == 1)
    assert bin.events[0].startswith(b"<13>1 ")
    assert bin.events[0].endswith(b"hello there")


@pytest.mark.peer
@pytest.mark.skipif(not shutil.which("rsyslogd"), reason="needs rsyslogd")
@pytest.mark.parametrize(
    ("transport", "options"),
    [("tcp", ""), ("tcp", 'TCP_Framing="octet-counted"'), ("udp", "")],
    ids=["newline", "octet-counted", "udp"],
)
async def test_rsyslog(tmp_path: Path, transport: str, options: str) -> None:
    """A real rsyslogd forwarding over each transport and framing: every message once, in order."""
    bin, counters = Bin(), Counters()
    async with listening(bin, counters, **{transport: LOCAL}) as (_, port):
        action = f'action(type="omfwd" target="127.0.0.1" port="{port}" protocol="{transport}" {options})'
        lines = tmp_path / "lines"
        lines.write_text("".join(f"message {i} of 200\n" for i in range(200)))
        with rsyslogd(tmp_path, action) as sock:
            await command("logger", "-u", sock, "-t", "demo", "-f", lines)
            await eventually("200 events", lambda: len(bin.events) >= 200)
    assert [event.partition(b"demo: ")[2] for event in bin.events] == [b"message %d of 200" % i for i in range(200)]
    assert all(event.startswith(b"<13>") for event in bin.events)


WITHOUT_RECVMMSG = """
import asyncio, ctypes, platform, socket, struct, sys
from tests.inputs.intake import Bin, agent
from tests.waits import eventually
from vedette.inputs.listen import SyslogListener
from vedette.inputs.settings import SyslogInput
from vedette.model.counters import Counters

number = {"x86_64": 299, "aarch64": 243}[platform.machine()]
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]  # EPERM, or allowed
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0):
    sys.exit(77)

async def main():
    bin, counters = Bin(), Counters()
    listener = SyslogListener(SyslogInput("edge", udp="127.0.0.1:0", tcp=""), agent(bin, counters))
    await listener.start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for i in range(200):
            sender.sendto(b"message %d" % i, listener.addresses[0][1:])
    await eventually("200 events", lambda: len(bin.events) == 200)
    await listener.stop()
    print(bin.events == [b"message %d" % i for i in range(200)], counters.received["edge"])

asyncio.run(main())
"""


def test_a_sandbox_without_recvmmsg() -> None:
    """Where a sandbox refuses the call, datagrams are read without it, every one, and that is logged."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_RECVMMSG], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("no seccomp here")
    assert (done.stderr, done.stdout.splitlines()[-1]) == ("", "True 200")
    assert "a sandbox refuses recvmmsg(2)" in done.stdout


async def ready(count: int, data: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[SyslogListener, Bin, list[int]]:
    """A listener of which so many connections have brought ``data``, and events that it merges, a turn each."""
    bin = Bin()
    listener = SyslogListener(SyslogInput("in"), agent(bin, Counters()))
    merged: list[int] = []

    def counted(runs: list[tuple[Run, str]]) -> tuple[Run, tuple[str, ...], array[int]]:
        run, origins, origin_of = merge(runs)
        merged.append(len(origin_of))
        return run, origins, origin_of

    monkeypatch.setattr(listen, "merge", counted)
    for number in range(count):
        stream = listener.make(False, listener.gate, f"192.0.2.{number}")
        stream.framer.feed(data)
        listener.wait_for_flush(stream)
    return listener, bin, merged


async def test_runs_of_many_events_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging looks at each event: of tiny lines it would take long; they become chunks as they are."""
    listener, bin, merged = await ready(100, b"\n" * 4000, monkeypatch)
    listener.flush()
    assert merged == []
    assert list(map(len, bin.chunks)) == [4000] * 100


async def test_many_connections_are_handed_over_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn of the event loop some; all at once where that is asked for."""
    most = TURN_STEPS // listen.RUN_STEPS
    listener, bin, merged = await ready(3 * most, b"a\nb\n", monkeypatch)
    listener.flush(TURN_STEPS)
    assert merged == [2 * most]
    await eventually("the others", lambda: sum(merged) == 6 * most)
    assert merged == [2 * most] * 3
    assert bin.by_origin == {f"192.0.2.{number}": [b"a", b"b"] for number in range(3 * most)}
    listener, bin, merged = await ready(3 * most, b"a\nb\n", monkeypatch)
    listener.flush()
    assert sum(merged) == 6 * most
