"""What the tests of doors share: an intake that is a list, a real rsyslogd."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.waits import eventually, until
from vedette.inputs.accept import IDLE_SECONDS
from vedette.inputs.base import Surroundings
from vedette.inputs.listen import SyslogListener
from vedette.inputs.settings import SyslogInput
from vedette.model.counters import Counters
from vedette.model.event import Chunk, FilePosition, Intake
from vedette.system.wallclock import utc_now


class Kept(dict[str, Any]):
    """A memory that outlives an input."""

    async def put(self, name: str, value: Any) -> None:
        self[name] = value


class Bin:
    """An intake that keeps chunks in a list, checks their form, and can refuse."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.positions: dict[str, FilePosition] = {}
        self.broken = False
        self.waiting = 0
        """Who wait until it accepts."""
        self._open = asyncio.Event()
        self._open.set()

    def store(self, chunk: Chunk) -> int:
        if self.broken:
            raise OSError(errno.EIO, "disk gone")
        assert len(chunk) > 0
        if chunk.ends is None:
            assert chunk.data.endswith(b"\n")
        else:
            assert chunk.ends[-1] == len(chunk.data)
            assert chunk.origin_of is None or len(chunk.origin_of) == len(chunk.ends)
        self.chunks.append(chunk)
        if chunk.file is not None:
            self.positions[f"{chunk.file.inode}:{chunk.file.path}"] = chunk.file
        return sum(len(stored.data) for stored in self.chunks)

    async def durable(self, offset: int) -> None:
        return None

    def accepting(self) -> bool:
        return self._open.is_set()

    async def ready(self) -> None:
        self.waiting += 1
        await self._open.wait()
        self.waiting -= 1

    def close(self) -> None:
        self._open.clear()

    def reopen(self) -> None:
        self._open.set()

    @property
    def events(self) -> list[bytes]:
        return [chunk.data[start:end] for chunk in self.chunks for start, end in chunk.spans()]

    @property
    def by_origin(self) -> dict[str, list[bytes]]:
        """Events per origin, in order."""
        lines: dict[str, list[bytes]] = {}
        for chunk in self.chunks:
            for i, (start, end) in enumerate(chunk.spans()):
                origin = chunk.origins[chunk.origin_of[i] if chunk.origin_of is not None else 0]
                lines.setdefault(origin, []).append(chunk.data[start:end])
        return lines


def account(counters: Counters, bin: Bin, name: str) -> None:
    """Assert that the counters and what the intake holds tell the same."""
    dropped = sum(n for (input, _), n in counters.dropped.items() if input == name)
    assert counters.received[name] == len(bin.events) + dropped
    assert counters.bytes_in[name] == sum(len(chunk.data) for chunk in bin.chunks)


def agent(
    bin: Intake,
    counters: Counters,
    positions: Iterable[FilePosition] = (),
    *,
    name: str = "a1",
    private: Callable[[int], bool] = lambda descriptor: False,
    memory: Kept | None = None,
) -> Surroundings:
    """An agent as an input sees it, with nothing in its raw log."""
    memory = Kept() if memory is None else memory
    return Surroundings(
        bin, counters, utc_now, name, lambda: positions, lambda name: (), private, memory.get, memory.put
    )


LOCAL = "127.0.0.1:0"


@asynccontextmanager
async def listening(
    bin: Bin, counters: Counters, idle: float = IDLE_SECONDS, **settings: Any
) -> AsyncIterator[tuple[SyslogListener, int]]:
    """A started listener, of TCP unless it is said, and its first port; stopped afterwards, and the account checked."""
    settings = settings if settings.keys() & {"udp", "tcp", "tls"} else {"tcp": LOCAL, **settings}
    listener = SyslogListener(SyslogInput("in", **settings), agent(bin, counters), idle)
    await listener.start()
    try:
        yield listener, listener.addresses[0][2]
    finally:
        await listener.stop()
    account(counters, bin, "in")


async def looked(listener: Any, times: int = 2) -> None:
    """Wait until a listener has looked for stalled connections so many times more."""
    looks, look = 0, listener.look

    def counted() -> None:
        nonlocal looks
        looks += 1
        look()

    listener.look = counted
    try:
        await eventually("looks for stalled connections", lambda: looks >= times)
    finally:
        del listener.look


async def poured(listener: Any, port: int, first: bytes, data: bytes, count: int = 40) -> list[list[int]]:
    """Send ``first`` over each of ``count`` connections, and when it was read ``data``, as far as the kernel takes it.
    The bytes of each read of that, by turns of the event loop, when all is read."""
    turns, loop, received = [list[int]()], asyncio.get_running_loop(), listener.received

    def counted(connection: Any, size: int) -> None:
        if not turns[-1]:
            loop.call_soon(turns.append, [])
        turns[-1].append(size)
        received(connection, size)

    def read() -> list[int]:
        return [connection.bytes for connection in vars(listener)["_connections"]]

    with ExitStack() as stack:
        senders = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sender in senders:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            sender.connect(("127.0.0.1", port))
            sender.sendall(first)
            sender.setblocking(False)
        await eventually("what is sent first", lambda: read() == [len(first)] * count)
        listener.received = counted
        sent = sum(sender.send(data) for sender in senders)
        await eventually("the flood", lambda: sum(read()) == sent + len(first) * count)
    return turns


@contextmanager
def rsyslogd(folder: Path, action: str, module: str = "") -> Iterator[Path]:
    """A real rsyslogd that forwards by ``action`` what ``logger -u`` writes to the socket it yields; ``module``: what
    has the action, where it is none of the built-in ones."""
    socket, config = folder / "log.sock", folder / "rsyslog.conf"
    config.write_text(
        'module(load="imuxsock" SysSock.Use="off")\n'
        f'input(type="imuxsock" Socket="{socket}" CreatePath="on" RateLimit.Interval="0")\n'
        + (f'module(load="{module}")\n' if module else "")
        + f"*.* {action}\n"
    )
    command = ["rsyslogd", "-n", "-f", str(config), "-i", str(folder / "rsyslog.pid")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until("rsyslogd's socket", lambda: socket.exists() or process.poll() is not None)
        assert process.poll() is None, "rsyslogd ended"
        yield socket
    finally:
        process.kill()  # it would not give up messages that it cannot deliver
        process.communicate()
