"""Datagrams by recvmmsg, and one by one, are those that were sent, and become the same chunks."""

from __future__ import annotations

import random
import socket
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from vedette.inputs import bursts
from vedette.inputs.bursts import Burst, OneByOne
from vedette.inputs.datagrams import Datagrams, set_receive_buffer
from vedette.inputs.framing import Run
from vedette.model.counters import Counters
from vedette.model.event import CHUNK_BYTES

PEERS = ("127.0.0.1", "127.0.0.1", "127.0.0.7")


@contextmanager
def sockets(*peers: str) -> Iterator[tuple[socket.socket, list[socket.socket]]]:
    """A receiving socket and one sender for each of ``peers``."""
    family = socket.AF_INET6 if ":" in peers[0] else socket.AF_INET
    with ExitStack() as stack:
        ours, *theirs = [stack.enter_context(socket.socket(family, socket.SOCK_DGRAM)) for _ in range(len(peers) + 1)]
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        ours.bind((peers[0], 0))
        ours.setblocking(False)
        for sender, peer in zip(theirs, peers, strict=True):
            sender.bind((peer, 0))
        yield ours, theirs


def datagrams(receiver: Burst | OneByOne) -> list[tuple[str, bytes]]:
    """Every datagram that waits, with its peer."""
    found: list[tuple[str, bytes]] = []
    while (received := receiver.receive()) is not None:
        position, one = 0, len(received.peers) == 1
        for i, length in enumerate(received.lengths):
            found.append((received.peers[0 if one else i], received.data[position : position + length]))
            position += length
        assert position == len(received.data)
    return found


def sizes(seed: int, count: int) -> list[int]:
    """Mostly lines; among them empty datagrams and the longest that IPv4 can carry."""
    dice = random.Random(seed)
    return [dice.choice((0, 1, 120, 300, 1400, 2048)) for _ in range(count - 2)] + [65507, 0]


@pytest.mark.parametrize("reader", [Burst, OneByOne])
@pytest.mark.parametrize("peers", [PEERS[:1], PEERS, ("::1",)], ids=["one", "several", "ipv6"])
def test_all_come_whole(peers: tuple[str, ...], reader: type[Burst] | type[OneByOne]) -> None:
    """Every datagram comes once, in order, whole, with its sender's address, whatever its length."""
    if ":" in peers[0] and not socket.has_dualstack_ipv6():
        pytest.skip("this host has no IPv6")
    with sockets(*peers) as (ours, theirs):
        sent: list[tuple[str, bytes]] = []
        receiver = reader(ours)
        for batch in range(3):  # the slots are used again
            now = [(i % len(peers), random.Random(i).randbytes(n)) for i, n in enumerate(sizes(batch, 150))]
            for i, data in now:
                theirs[i].sendto(data, ours.getsockname())
            sent = [(peers[i], data) for i, data in now]
            assert datagrams(receiver) == sent
        assert receiver.receive() is None
        assert not receiver.full


@pytest.mark.parametrize("reader", [Burst, OneByOne])
def test_a_burst_is_bounded(reader: type[Burst] | type[OneByOne]) -> None:
    """A call gives at most SLOTS datagrams, and says that more may wait; long ones come a few at a time."""
    with sockets("127.0.0.1") as (ours, (sender,)):
        receiver = reader(ours)
        for _ in range(bursts.SLOTS + 1):
            sender.sendto(b"x", ours.getsockname())
        received = receiver.receive()
        assert received is not None
        assert len(received.lengths) == bursts.SLOTS
        assert receiver.full
        assert datagrams(receiver) == [("127.0.0.1", b"x")]
        counts = []
        for _ in range(2):
            for _ in range(12):
                sender.sendto(bytes(60_000), ours.getsockname())
            received = receiver.receive()
            assert received is not None
            counts.append(len(received.lengths))
            datagrams(receiver)
        assert counts[1] <= 5


def test_chunks() -> None:
    """Chunks hold every datagram without one trailing newline, an empty one as a newline, each with its peer."""
    got: list[tuple[str, bytes]] = []

    def give(run: Run, origins: tuple[str, ...], origin_of: array[int] | None) -> None:
        assert run.ends is not None
        assert len(run.data) <= CHUNK_BYTES + bursts.BIG + bursts.LONGEST
        start = 0
        for i, end in enumerate(run.ends):
            got.append((origins[0 if origin_of is None else origin_of[i]], run.data[start:end]))
            start = end
        assert start == len(run.data)

    with sockets(*PEERS) as (ours, theirs):
        counters = Counters()
        reader = Datagrams(ours, "in", counters, lambda: True, give)
        sent, dice, count = [], random.Random(7), 0
        for size in (1, 40, 700):
            for i in range(size):
                data = dice.choice((b"", b"\n", b"a", b"a\n", b"b\n\n", b"two\nlines", b"z" * 1000, b"z" * 20_000))
                theirs[i % 3].sendto(data, ours.getsockname())
                sent.append((PEERS[i % 3], data.removesuffix(b"\n") or b"\n"))
            while (found := reader.read()) > 0:
                count += found
        reader.flush()
        assert count == len(sent)
        assert got == sent


def test_a_larger_buffer_is_kept() -> None:
    """A socket that came with more room than the configuration asks for keeps it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
        granted = set_receive_buffer(sock, 50_000)
        assert granted == 100_000
        assert set_receive_buffer(sock, 150_000) > granted
