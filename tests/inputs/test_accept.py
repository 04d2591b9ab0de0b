"""Who may connect: real sockets in numbers, slow and endless senders, peers that vanish."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.inputs.intake import Bin, listening, looked
from tests.looptime import forward
from tests.waits import DEADLINE, eventually
from vedette.inputs import accept
from vedette.inputs.accept import IDLE_SECONDS, Admitted, Gate, network
from vedette.inputs.connections import LOOKS
from vedette.model.counters import Counters, Log
from vedette.model.event import MAX_EVENT

ATTEMPTS = int(os.environ.get("VEDETTE_FLOOD", "3000"))
"""Connections of a flood; ``VEDETTE_FLOOD=100000`` is the long form."""


def connect(port: int, source: str = "127.0.0.2") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), DEADLINE, source_address=(source, 0))


FLOOD = """
import socket, sys, time
refused = 0
for i in range(int(sys.argv[2])):
    with socket.socket() as peer:
        try:
            peer.connect(("127.0.0.1", int(sys.argv[1])))
            peer.sendall(b"<13>flood")
            refused += peer.recv(1) == b""
        except ConnectionError:
            refused += 1
print(refused)
"""


def test_a_flood_of_connections_from_one_peer() -> None:
    """While one peer holds all the connections that it may have and tries again and again, each attempt is reset and
    counted, it is logged once, and the lines of another peer come through meanwhile."""

    async def scenario() -> None:
        bin, counters = Bin(), Counters()
        async with listening(bin, counters, max_connections=20, max_connections_per_peer=5) as (
            listener,
            port,
        ):
            held = [connect(port, "127.0.0.1") for _ in range(5)]
            for peer in held:  # or it would give way
                peer.sendall(b"<13>calm\n")
            await eventually("5 events", lambda: len(bin.events) == 5)
            other = connect(port, "127.0.0.3")
            await eventually("6 open connections", lambda: listener.gate.open == 6)
            with capture_logs() as logs:
                flood = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", FLOOD, str(port), str(ATTEMPTS), stdout=subprocess.PIPE
                )
                ended = asyncio.create_task(flood.communicate())
                sent = 5
                while not ended.done():
                    other.sendall(b"<13>calm\n")
                    sent += 1
                    await eventually("the events", lambda sent=sent: len(bin.events) == sent)  # type: ignore[misc]
            out, _ = await ended
            assert int(out) == ATTEMPTS == counters.totals["connections_refused"]
            assert set(bin.events) == {b"<13>calm"}
            assert len([entry for entry in logs if entry["event"] == Log.CONNECTION_REFUSED]) == 1
            assert "max_connections_per_peer = 5 from 127.0.0.1" in logs[0]["reason"]
            assert listener.gate.open == 6
            for peer in (*held, other):
                peer.close()
            await eventually("no open connection", lambda: listener.gate.open == 0)
            with connect(port, "127.0.0.1") as again:  # there is room again
                again.sendall(b"<13>again\n")
                await eventually("the events", lambda: bin.events[-1] == b"<13>again")

    asyncio.run(scenario())


async def test_all_connections_together_are_bounded() -> None:
    """Beyond ``max_connections`` nobody gets in, whoever it is; the file descriptors stay bounded, too."""
    bin, counters = Bin(), Counters()
    async with listening(bin, counters, max_connections=30, max_connections_per_peer=10) as (
        listener,
        port,
    ):
        files = len(os.listdir("/proc/self/fd"))
        peers = [connect(port, f"127.0.0.{2 + i // 10}") for i in range(60)]
        await eventually(
            "30 open connections", lambda: listener.gate.open == 30 and counters.totals["connections_evicted"] == 30
        )
        assert len(os.listdir("/proc/self/fd")) - files <= 60 + 30 + accept.EVICTED
        for peer in peers:
            with contextlib.suppress(ConnectionError):  # half of them have given way to the others
                peer.sendall(b"<13>here\n")
        await eventually("30 events", lambda: len(bin.events) == 30)
        more = [connect(port, "127.0.0.9") for _ in range(5)]
        await eventually("connections that are counted as refused", lambda: counters.totals["connections_refused"] == 5)
        assert listener.gate.open == 30
        for peer in (*peers, *more):
            peer.close()


async def test_who_gives_way() -> None:
    """With no room left the peer with the most silent connections loses its oldest; one that has sent something stays,
    and so does a single silent one of another peer. A peer that is full displaces its own."""
    bin, counters = Bin(), Counters()
    async with listening(bin, counters, max_connections=8, max_connections_per_peer=6) as (
        listener,
        port,
    ):
        single = connect(port, "127.0.0.2")
        many = [connect(port, "127.0.0.3") for _ in range(6)]
        many[0].sendall(b"<13>known\n")
        many[1].sendall(b"<13>half a mess")
        await eventually("an event and the connections", lambda: len(bin.events) == 1 and listener.gate.open == 7)
        own = connect(port, "127.0.0.3")
        await eventually("connections that are counted as evicted", lambda: counters.totals["connections_evicted"] == 1)
        assert [closed(peer) for peer in (single, *many, own)] == [False, False, True, *[False] * 5]
        others = [connect(port, f"127.0.0.{4 + i}") for i in range(3)]
        await eventually("connections that are counted as evicted", lambda: counters.totals["connections_evicted"] == 3)
        assert [closed(peer) for peer in (single, *many, own)] == [False, False, True, True, True, *[False] * 3]
        for peer in others:
            peer.sendall(b"<13>other\n")
        await eventually("the events", lambda: bin.events.count(b"<13>other") == 3)
        assert b"<13>half a mess" in bin.events  # what came of it
        assert not counters.totals["connections_refused"]
        for peer in (single, *many, own, *others):
            peer.close()


def closed(peer: socket.socket) -> bool:
    """Whether the other end has closed a connection."""
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def newcomers(counters: Counters) -> int:
    """That came when all places were taken."""
    return counters.totals["connections_refused"] + counters.totals["connections_evicted"]


async def test_who_has_sent_two_bytes_keeps_nobody_out() -> None:
    """Where all places are taken by connections that sent something once and idle since, a newcomer gets the place of
    the one idle longest of the peer that has the most; a single idle sender, and those who send, keep theirs."""
    bin, counters, loop = Bin(), Counters(), asyncio.get_running_loop()
    async with listening(bin, counters, max_connections=12, max_connections_per_peer=5) as (_, port):
        honest = connect(port, "127.0.0.2")
        honest.sendall(b"<13>rare\n")
        busy = connect(port, "127.0.0.3")
        busy.sendall(b"<13>busy\n")
        hostile = [connect(port, f"127.0.0.{4 + i // 5}") for i in range(10)]
        for peer in hostile:
            peer.sendall(b"x\n")
        await eventually("12 events", lambda: len(bin.events) == 12)
        newcomer = connect(port, "127.0.0.9")
        await eventually(
            "connections that are counted as refused", lambda: counters.totals["connections_refused"] == 1
        )  # nobody is idle yet
        tries = sent = 1
        while not counters.totals["connections_evicted"]:
            busy.sendall(b"<13>busy\n")
            sent += 1
            await eventually("the events", lambda sent=sent: bin.events.count(b"<13>busy") == sent)  # type: ignore[misc]
            forward(loop, IDLE_SECONDS / LOOKS)
            newcomer.close()
            newcomer = connect(port, "127.0.0.9")
            tries += 1
            await eventually("what becomes of it", lambda tries=tries: newcomers(counters) == tries)  # type: ignore[misc]
        newcomer.sendall(b"<13>let in\n")
        await eventually("the events", lambda: b"<13>let in" in bin.events)
        second = connect(port, "127.0.0.5")  # its peer has all that it may have: its own gives way
        second.sendall(b"<13>second\n")
        await eventually("the events", lambda: b"<13>second" in bin.events)
        busy.sendall(b"<13>still\n")
        honest.sendall(b"<13>rare\n")
        await eventually("the events", lambda: bin.events.count(b"<13>rare") == 2 and b"<13>still" in bin.events)
        assert not any(map(closed, (honest, busy)))
        assert [closed(peer) for peer in hostile] == [True, *[False] * 4, True, *[False] * 4]
        assert counters.totals["connections_evicted"] == 2
        for peer in (honest, busy, *hostile, newcomer, second):
            peer.close()


@pytest.mark.alone
async def test_no_descriptor_for_a_connection() -> None:
    """A silent connection gives way when there is no descriptor, too; without one, those who connect wait until there
    is. Both are logged, once."""
    bin, counters = Bin(), Counters()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with listening(bin, counters) as (listener, port):
        peers = [socket.socket() for _ in range(3)]
        silent = connect(port)
        await eventually("an open connection", lambda: listener.gate.open == 1)
        taken: list[int] = []
        with capture_logs() as logs:
            try:
                highest = max(map(int, os.listdir("/proc/self/fd")))
                resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, hard))
                with contextlib.suppress(OSError):
                    while True:
                        taken.append(os.open(os.devnull, os.O_RDONLY))
                peers[0].connect(("127.0.0.1", port))
                peers[0].sendall(b"<13>one\n")
                await eventually("the events", lambda: bin.events == [b"<13>one"])
                assert counters.totals["connections_evicted"] == 1
                for peer in peers[1:]:
                    peer.connect(("127.0.0.1", port))
                    peer.sendall(b"<13>more\n")
                refused = Log.CONNECTION_REFUSED
                await eventually("a refusal", lambda: any(entry["event"] == refused for entry in logs))
                assert listener.gate.open == 1
            finally:
                for descriptor in taken:
                    os.close(descriptor)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await eventually("3 events", lambda: len(bin.events) == 3)
        assert [entry["event"] for entry in logs] == [Log.CONNECTION_EVICTED, Log.CONNECTION_REFUSED]
        for peer in (*peers, silent):
            peer.close()


@pytest.mark.parametrize(
    ("sends", "stored"),
    [
        (b"<13>half a mess", [b"<13>half a mess"]),
        (b"100 <13>half", [b"<13>half"]),
        (b"17", [b"17"]),
        (b"<13>" + b"x" * (2 * MAX_EVENT), [b"<13>" + b"x" * (MAX_EVENT - 4)]),
    ],
    ids=["a line", "counted", "a count", "a line without end"],
)
async def test_a_message_that_does_not_end(sends: bytes, stored: list[bytes]) -> None:
    """A connection that begins a message and does not end it is closed in time, told and counted, and what came is an
    event; trickling does not help it. One that is silent between messages, or slow but sure, stays."""
    bin, counters, loop = Bin(), Counters(), asyncio.get_running_loop()
    async with listening(bin, counters, message_timeout=DEADLINE) as (listener, port):
        silent, sure, stuck = connect(port), connect(port), connect(port)
        silent.sendall(b"<13>whole\n")
        await eventually("the events", lambda: bin.events == [b"<13>whole"])
        with capture_logs() as logs:
            await asyncio.to_thread(stuck.sendall, sends)
            sent = 0
            while counters.totals["connections_stalled"] == 0:
                sure.sendall(b"<13>sure\n<13>and the next\n<13>be")
                sent += 1
                await eventually("the events", lambda sent=sent: bin.events.count(b"<13>sure") == sent)  # type: ignore[misc]
                forward(loop, DEADLINE / LOOKS)
                await asyncio.sleep(0)
                sure.sendall(b"gun\n")
                if sends.endswith(b"x"):
                    with contextlib.suppress(ConnectionError):
                        stuck.sendall(b"x")
        await eventually("2 open connections", lambda: listener.gate.open == 2)
        silent.sendall(b"<13>still here\n")
        await eventually("the events", lambda: b"<13>still here" in bin.events)
        for peer in (silent, sure, stuck):
            peer.close()
    told = [entry["peer"] for entry in logs if entry["event"] == Log.CONNECTION_STALLED]
    assert told == ["127.0.0.2"]
    assert counters.totals["connections_stalled"] == 1
    rest = [event for event in bin.events if event not in (b"<13>whole", b"<13>still here")]
    assert [event for event in rest if event not in (b"<13>sure", b"<13>and the next", b"<13>begun")] == stored


async def test_no_one_is_stalled_while_nothing_is_read() -> None:
    """A message that waits because the raw log takes nothing is not its sender's fault."""
    bin, counters = Bin(), Counters()
    async with listening(bin, counters, message_timeout=0.2) as (listener, port):
        with connect(port) as peer:
            peer.sendall(b"<13>one\n")
            await eventually("the events", lambda: bin.events == [b"<13>one"])
            bin.close()
            peer.sendall(b"<13>tw")
            await looked(listener)
            peer.sendall(b"o\n")
            await looked(listener, 2 * LOOKS)
            bin.reopen()
            await eventually("the events", lambda: bin.events == [b"<13>one", b"<13>two"])
    assert not counters.totals["connections_stalled"]


VANISH = """
import asyncio, os, subprocess, sys
from tests.inputs.intake import Bin, agent
from tests.waits import eventually
from vedette.inputs.settings import SyslogInput
from vedette.inputs import accept
from vedette.inputs.listen import SyslogListener
from vedette.model.counters import Counters

accept.KEEPALIVE = (1, 1, 2)

def ip(*words):
    subprocess.run(["ip", *words], check=True)

async def main():
    ip("link", "set", "lo", "up")
    ip("link", "add", "near", "type", "veth", "peer", "name", "far")
    peer = subprocess.Popen(["unshare", "-n", "sleep", "3600"])
    await eventually("a network", lambda: os.readlink(f"/proc/{peer.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
    ip("link", "set", "far", "netns", str(peer.pid))
    ip("addr", "add", "192.0.2.1/24", "dev", "near")
    ip("link", "set", "near", "up")
    inside = ["nsenter", "-t", str(peer.pid), "-n"]
    subprocess.run([*inside, "ip", "addr", "add", "192.0.2.2/24", "dev", "far"], check=True)
    subprocess.run([*inside, "ip", "link", "set", "far", "up"], check=True)
    bin, counters = Bin(), Counters()
    listener = SyslogListener(SyslogInput("in", tcp="192.0.2.1:0"), agent(bin, counters))
    await listener.start()
    port = listener.addresses[0][2]
    program = "import socket, sys, time; s = socket.create_connection(('192.0.2.1', int(sys.argv[1])));"
    program += "s.sendall(b'<13>here\\\\n<13>ha'); time.sleep(3600)"
    sender = subprocess.Popen([*inside, sys.executable, "-c", program, str(port)])
    try:
        await eventually("the line", lambda: listener.gate.open == 1 and bin.events == [b"<13>here"])
        shown = subprocess.run(["ss", "-tnoH", "sport", f"= :{port}"], capture_output=True, text=True).stdout
        assert "timer:(keepalive" in shown, shown
        ip("link", "set", "near", "down")  # from here on nothing passes, and nobody says so
        await eventually("no open connection", lambda: listener.gate.open == 0)
        await eventually("the rest", lambda: bin.events == [b"<13>here", b"<13>ha"])
        print("cleaned up")
    finally:
        sender.kill(); peer.kill(); sender.wait(); peer.wait()
        await listener.stop()

asyncio.run(main())
"""


def _lacking() -> str:
    """Why there can be no network of our own here: a program is missing, or a right."""
    for program in ("unshare", "nsenter", "ip", "ss"):
        if shutil.which(program) is None:
            return f"no {program} here: sh tools/packages.sh tests"
    trial = "ip link set lo up && ip link add near type veth peer name far"
    done = subprocess.run(["unshare", "-n", "sh", "-c", trial], capture_output=True, text=True, check=False)
    return f"no network namespace of our own here: {done.stderr.strip()}" if done.returncode else ""


@pytest.mark.peer
def test_a_peer_that_vanishes(tmp_path: Path) -> None:
    """In a network whose link goes down without a word, keep-alive probes find the half-open connection: its place is
    free again, and what it had sent is stored."""
    if reason := _lacking():
        pytest.skip(reason)
    program = tmp_path / "vanish.py"
    program.write_text(textwrap.dedent(VANISH))
    root = Path(__file__).parents[2]
    done = subprocess.run(
        ["unshare", "-n", sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": f"{root / 'agent'}:{root}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert "cleaned up" in done.stdout, done.stderr


def test_networks() -> None:
    """An IPv4 address is a peer of its own; of IPv6, 64 bits are one peer, with or without a scope."""
    assert network("192.0.2.7") == "192.0.2.7"
    assert network("2001:db8:1:2:3::4") == network("2001:db8:1:2::") == "2001:db8:1:2::/64"
    assert network("fe80::1%eth0") == network("fe80::2")


PEERS = ("10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2")


@given(st.lists(st.tuples(st.sampled_from(PEERS), st.sampled_from(["comes", "speaks", "idles", "goes"]))))
def test_the_gate_counts(steps: list[tuple[str, str]]) -> None:
    """Whatever comes, speaks, idles and goes, also twice: never more than the bounds are open, and one is refused only
    when it has no room and nobody can give way: the silent first, then the idle of those who have more than it."""
    counters = Counters()
    gate = Gate("in", 5, 3, counters)
    silent: list[Admitted] = []
    idle: list[Admitted] = []
    active: list[Admitted] = []
    gone: list[Admitted] = []
    refused = evicted = 0

    class Place(Admitted):
        def evict(self) -> None:
            super().leave()
            gone.append(self)

    def of(places: list[Admitted], peer: str) -> list[Admitted]:
        return [place for place in places if place.network == network(peer)]

    def most(places: list[Admitted], above: int) -> list[Admitted]:
        counts = Counter(place.network for place in places)
        return [place for place in places if counts[place.network] == max(counts.values()) > above]

    with capture_logs():
        for peer, what in steps:
            places = [*silent, *idle, *active]
            mine = of(places, peer)
            if what == "speaks" and mine:
                for one in (silent, idle):
                    if mine[0] in one:
                        one.remove(mine[0])
                        active.append(mine[0])
                mine[0].spoke()
                mine[0].spoke()
            elif what == "idles" and (first := of(active, peer)):
                active.remove(first[0])
                idle.append(first[0])
                first[0].idles()
                first[0].idles()
            elif what == "goes" and mine:
                for one in (silent, idle, active):
                    if mine[0] in one:
                        one.remove(mine[0])
                mine[0].leave()
                mine[0].leave()
            elif what == "comes":
                full = len(mine) >= 3 or len(places) >= 5
                may = most(silent, 0) or most(idle, len(mine))
                if len(mine) >= 3:
                    may = of(silent, peer) or of(idle, peer)
                place = gate.enter(peer, Place)
                assert (place is None) == (full and not may)
                refused += place is None
                if full and place is not None:
                    evicted += 1
                    (loser,) = gone
                    assert loser is next(place for place in may if place.network == loser.network)
                    (silent if loser in silent else idle).remove(loser)
                    gone.clear()
                if place is not None:
                    silent.append(place)
            assert gate.open == len(silent) + len(idle) + len(active)
    assert (counters.totals["connections_refused"], counters.totals["connections_evicted"]) == (refused, evicted)
