"""The file input on real files: whatever is done to them, every line once, in order."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.inputs.intake import Bin, account, agent, rsyslogd
from tests.settings import PolledFiles
from tests.waits import eventually, until
from vedette.inputs import files
from vedette.inputs.settings import FileInput
from vedette.inputs.tail import FileTail
from vedette.model.counters import Counters, Log
from vedette.model.event import MAX_EVENT, FilePosition, Flag
from vedette.system.descriptors import OPEN_FILES

POLL = 0.01
LINGER = 0.1


class Polled(FileTail):
    """Counts its polls."""

    polls = 0

    async def _turn(self) -> bool:
        more = await super()._turn()
        self.polls += 1
        return more

    async def polled(self, seconds: float = 0.0) -> None:
        """Until there was a whole poll, and so many that they took ``seconds`` at least."""
        wanted = self.polls + 2 + math.ceil(seconds / POLL)
        await eventually("further polls", lambda: self.polls >= wanted)


@asynccontextmanager
async def tailing(
    bin: Bin,
    *paths: str | Path,
    positions: Mapping[str, FilePosition] | None = None,
    from_start: bool = True,
    linger: float = LINGER,
    open_files: int = OPEN_FILES,
) -> AsyncIterator[Polled]:
    """A running tail; stopped afterwards, and the account checked. Goes on from ``positions``, else the bin's."""
    counters, before = Counters(), len(bin.chunks)
    settings = PolledFiles("f", paths=tuple(map(str, paths)), format="text", poll=POLL, from_start=from_start)
    surroundings = agent(bin, counters, list((positions or bin.positions).values()))
    followed = Polled(settings, surroundings, linger=linger, open_files=open_files)
    task = asyncio.create_task(followed.run())
    try:
        yield followed
    finally:
        await followed.stop()
        await task
    later = Bin()
    later.chunks = bin.chunks[before:]
    account(counters, later, "f")


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def held(folder: Path) -> list[str]:
    """The files under ``folder`` that this process has open."""
    links = (os.path.realpath(entry.path) for entry in os.scandir("/proc/self/fd"))
    return [link for link in links if link.startswith(str(folder))]


def by_path(bin: Bin) -> dict[str, FilePosition]:
    """Positions as a store keeps them that knows a file by its path alone."""
    return {chunk.file.path: chunk.file for chunk in bin.chunks if chunk.file}


async def test_lines_as_they_come(tmp_path: Path) -> None:
    """Lines there at the start and lines appended are events; an unfinished one waits; positions are exact."""
    bin, path = Bin(), tmp_path / "a.log"
    append(path, "one\ntwo\nthr")
    async with tailing(bin, path):
        await eventually("the events", lambda: bin.events == [b"one", b"two"])
        assert bin.chunks[-1].file == FilePosition(
            str(path), path.stat().st_ino, files.fingerprint(b"one\ntwo\n", 8), 8
        )
        append(path, "ee\n\xff\0\r\n".encode("latin-1"))
        await eventually("the events", lambda: bin.events[2:] == [b"three", b"\xff\0\r"])
    assert (bin.chunks[-1].input, bin.chunks[-1].codec) == ("f", "text")


async def test_large_file(tmp_path: Path) -> None:
    """A large file is handed over in large chunks; started again from any committed position it is whole."""
    bin, path = Bin(), tmp_path / "a.log"
    lines = [b"line %d of a large file" % i for i in range(100_000)]
    append(path, b"\n".join(lines) + b"\n")
    async with tailing(bin, path):
        await eventually("the events", lambda: len(bin.events) == len(lines))
    assert bin.events == lines
    assert len(bin.chunks) < 20
    for cut in (1, 5, len(bin.chunks) - 1):
        again = Bin()
        again.chunks = bin.chunks[:cut]
        async with tailing(again, path, positions=by_path(again)):
            await eventually("the events", lambda again=again: len(again.events) >= len(lines))
        assert again.events == lines


async def test_rotation_by_rename(tmp_path: Path) -> None:
    """The old file's late lines and unfinished last line come too, and the new file from its start."""
    bin, path, old = Bin(), tmp_path / "a.log", tmp_path / "a.log.1"
    append(path, "one\n")
    async with tailing(bin, path):
        await eventually("the events", lambda: bin.events == [b"one"])
        path.rename(old)
        append(old, "late\n")
        append(path, "new\n")
        await eventually("the events", lambda: bin.events == [b"one", b"late", b"new"])
        append(old, "later\nend")
        await eventually("the events", lambda: bin.events[3:] == [b"later", b"end"])
    assert {chunk.file.path for chunk in bin.chunks[-2:] if chunk.file} == {str(old)}
    async with tailing(bin, path, positions=by_path(bin)) as tail:
        await tail.polled(LINGER)
    assert len(bin.events) == 5


async def test_rotation_while_stopped(tmp_path: Path) -> None:
    """A file rotated while the agent was down is found by its inode, read to its end, and before the new one."""
    bin, path = Bin(), tmp_path / "a.log"
    append(path, "one\n")
    async with tailing(bin, path):
        await eventually("the events", lambda: bin.events == [b"one"])
    append(path, "two\nend")
    path.rename(tmp_path / "a.log.2")
    append(path, "new\n")
    async with tailing(bin, path, positions=by_path(bin)):
        await eventually("4 events", lambda: len(bin.events) == 4)
    assert bin.events == [b"one", b"two", b"new", b"end"]


async def test_rotation_between_the_first_look_and_the_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that leaves its path as the tail starts is found again, and read before the one that took its place."""
    bin, path, real = Bin(), tmp_path / "a.log", os.stat
    append(path, "one\n")
    async with tailing(bin, path):
        await eventually("the events", lambda: bin.events == [b"one"])
    append(path, "two\n")

    def rotated(looked_at: object, **options: object) -> os.stat_result:
        found = real(looked_at, **options)  # type: ignore[arg-type]
        if str(looked_at) == str(path) and found.st_size == 8:
            path.rename(tmp_path / "a.log.1")
            append(path, "new\n")
        return found

    monkeypatch.setattr(os, "stat", rotated)
    async with tailing(bin, path):
        await eventually("3 events", lambda: len(bin.events) == 3)
    assert bin.events == [b"one", b"two", b"new"]


async def test_rotated_file_still_matches(tmp_path: Path) -> None:
    """A rotated file that the glob still finds is not read again, neither at once nor after a restart."""
    bin, path = Bin(), tmp_path / "a.log"
    append(path, "one\n")
    async with tailing(bin, tmp_path / "*.log") as tail:
        await eventually("the events", lambda: bin.events == [b"one"])
        path.rename(tmp_path / "a.1.log")
        append(path, "new\n")
        await eventually("the events", lambda: bin.events == [b"one", b"new"])
        await tail.polled(LINGER)
    async with tailing(bin, tmp_path / "*.log") as tail:
        await tail.polled(LINGER)
        append(tmp_path / "a.1.log", "late\n")
        await eventually("the events", lambda: bin.events == [b"one", b"new", b"late"])


@pytest.mark.parametrize("after", ["x\n", "completely new and longer than it was\n"], ids=["shorter", "longer"])
@pytest.mark.parametrize("running", [True, False])
async def test_truncation(tmp_path: Path, after: str, running: bool) -> None:
    """A truncated file is read from its start, even when it is longer again; its unfinished line is an event."""
    bin, path = Bin(), tmp_path / "a.log"
    append(path, "the first line\nunfinis")
    if running:
        async with tailing(bin, path):
            await eventually("an event", lambda: len(bin.events) == 1)
            with capture_logs() as logs:
                path.write_text(after)
                await eventually("3 events", lambda: len(bin.events) == 3)
        assert bin.events == [b"the first line", b"unfinis", after.strip().encode()]
        assert Log.FILE_TRUNCATED in [entry["event"] for entry in logs]
    else:
        async with tailing(bin, path):
            await eventually("an event", lambda: len(bin.events) == 1)
        path.write_text(after)
        async with tailing(bin, path, positions=by_path(bin)):
            await eventually("2 events", lambda: len(bin.events) == 2)
        assert bin.events == [b"the first line", after.strip().encode()]


async def test_truncation_within_a_turn(tmp_path: Path) -> None:
    """A file that is truncated and written anew, longer, between two reads of one turn gives no line out of both."""
    path, after = tmp_path / "a.log", "completely new and longer than it was\n"

    class Late(Bin):
        async def ready(self) -> None:
            if len(self.chunks) == 1 and path.read_text() != after:
                path.write_text(after)

    bin = Late()
    append(path, "the first line\nunfinis")
    async with tailing(bin, path):
        await eventually("the events", lambda: after.strip().encode() in bin.events)
    assert bin.events == [b"the first line", b"unfinis", after.strip().encode()]


async def test_other_file_with_the_same_inode(tmp_path: Path) -> None:
    """A saved position is not used for another file that got its inode."""
    bin, path = Bin(), tmp_path / "a.log"
    append(path, "first line of another file\nsecond\n")
    wrong = FilePosition(str(tmp_path / "old.log"), path.stat().st_ino, files.fingerprint(b"x" * 10, 10), 10)
    async with tailing(bin, path, positions={"old.log": wrong}):
        await eventually("2 events", lambda: len(bin.events) == 2)


async def test_positions_of_other_inputs(tmp_path: Path) -> None:
    """Positions of another input's files are not taken up, in the same folder neither."""
    bin, mine, other = Bin(), tmp_path / "a.log", tmp_path / "b.txt"
    append(mine, "one\n")
    append(other, "other\n")
    async with tailing(bin, mine, other):
        await eventually("2 events", lambda: len(bin.events) == 2)
    append(mine, "two\n")
    append(other, "more\n")
    async with tailing(bin, tmp_path / "*.log") as tail:
        await eventually("3 events", lambda: len(bin.events) == 3)
        await tail.polled(LINGER)
    assert sorted(bin.events) == [b"one", b"other", b"two"]


@pytest.mark.parametrize(
    ("path", "pattern", "is_one"),
    [
        ("/l/a.log", "/l/a.log", True),
        ("/l/a.log", "/l/*.log", True),
        ("/l/a.log.1", "/l/*.log", True),
        ("/l/a.log-20241120", "/l/a.log", True),
        ("/l/a.2024-11-20.1.log", "/l/a.log", True),
        ("/l/x/y/a.log", "/l/**/*.log", True),
        ("/l/a.log", "/l/**/*.log", True),
        ("/l/x/a.log", "/l/*.log", False),
        ("/l/b.log", "/l/a.log", False),
        ("/l/a.log.old", "/l/a.log", False),
    ],
)
def test_belongs(path: str, pattern: str, is_one: bool) -> None:
    """A saved path belongs to the input whose pattern leads to it, or did before rotation."""
    assert files.belongs(path, [pattern]) is is_one


async def test_from_end(tmp_path: Path) -> None:
    """With ``from_start = false`` old lines are left out, later lines and later files are not."""
    bin, path = Bin(), tmp_path / "a.log"
    append(path, "old\n" * 1000)
    async with tailing(bin, tmp_path / "*.log", from_start=False) as tail:
        await tail.polled()
        append(path, "new\n")
        append(tmp_path / "b.log", "other\n")
        await eventually("2 events", lambda: len(bin.events) == 2)
    assert sorted(bin.events) == [b"new", b"other"]
    append(path, "more\n")
    async with tailing(bin, tmp_path / "*.log", positions=by_path(bin), from_start=False):
        await eventually("the events", lambda: bin.events[2:] == [b"more"])


async def test_ten_megabyte_line(tmp_path: Path) -> None:
    """A line of 10 MB is one event of MAX_EVENT bytes, flagged and counted; the next line is whole."""
    bin, path = Bin(), tmp_path / "a.log"
    append(path, b"x" * 10_000_000 + b"\nnext\n")
    async with tailing(bin, path) as tail:
        await eventually("2 events", lambda: len(bin.events) == 2)
        assert tail._agent.counters.cut["f"] == 1
    assert [len(event) for event in bin.events] == [MAX_EVENT, 4]
    assert bin.chunks[0].flags(0) == Flag.CUT
    assert bin.chunks[-1].file is not None
    assert bin.chunks[-1].file.position == 10_000_006


async def test_unreadable_paths(tmp_path: Path) -> None:
    """What cannot be read is said once with its path, the rest goes on, and it is read once it can be."""
    bin = Bin()
    good, missing, fifo, packed = (tmp_path / name for name in ("good.log", "missing.txt", "fifo.log", "a.log.gz"))
    append(good, "good\n")
    append(packed, "packed\n")
    os.mkfifo(fifo)
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    with capture_logs() as logs:
        async with tailing(bin, tmp_path / "*.log*", missing, tmp_path / "loop.txt", tmp_path / "none*") as tail:
            await eventually("the events", lambda: bin.events == [b"good"])
            await tail.polled()
            append(missing, "here\n")
            await eventually("the events", lambda: bin.events == [b"good", b"here"])
    said = {entry["path"]: entry["reason"] for entry in logs if entry["event"] == Log.FILE_UNREADABLE}
    assert len(said) == len([entry for entry in logs if entry["event"] == Log.FILE_UNREADABLE])
    assert {Path(path).name for path in said} == {"missing.txt", "fifo.log", "a.log.gz", "loop.txt", "none*"}
    assert "No such file" in said[str(missing)]


async def test_back_pressure(tmp_path: Path) -> None:
    """While the raw log takes nothing, nothing is read; a stop then ends at once."""
    bin, path = Bin(), tmp_path / "a.log"
    async with tailing(bin, path):
        bin.close()
        append(path, "one\n")
        await eventually("a read that waits", lambda: bin.waiting)
        assert not bin.events
        bin.reopen()
        await eventually("the events", lambda: bin.events == [b"one"])
        bin.close()
        append(path, "two\n")
        await eventually("a read that waits", lambda: bin.waiting)
    assert bin.events == [b"one"]


async def test_unwritable_log(tmp_path: Path) -> None:
    """When the raw log cannot be written ``run`` raises, and nothing counts as received."""
    bin, counters = Bin(), Counters()
    bin.broken = True
    append(tmp_path / "a.log", "one\n")
    followed = FileTail(FileInput("f", paths=(str(tmp_path / "a.log"),)), agent(bin, counters))
    with pytest.raises(OSError, match="disk gone"):
        await followed.run()
    await followed.stop()
    assert counters.received["f"] == 0


@contextmanager
def no_descriptor() -> Iterator[Callable[[str], None]]:
    """None is left for this process: every one that there may be is taken. Gives a shell that has its own."""
    shell = subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.stdin is not None
    assert shell.stdout is not None

    def do(command: str) -> None:
        shell.stdin.write(f"{command}; echo done\n".encode())  # type: ignore[union-attr]
        shell.stdin.flush()  # type: ignore[union-attr]
        assert shell.stdout.readline() == b"done\n"  # type: ignore[union-attr]

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield do
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        shell.communicate()


@pytest.mark.parametrize("pattern", ["a.log", "*.log"])
async def test_no_descriptor_is_no_rotation(tmp_path: Path, pattern: str) -> None:
    """While no folder can be read and nothing opened, no file is taken to have gone: those that are open are read, and
    what was renamed or came meanwhile is found, and read to its end, when there are descriptors again."""
    bin, path = Bin(), tmp_path / "a.log"
    append(path, "one\n")
    with capture_logs() as logs:
        async with tailing(bin, tmp_path / pattern) as tail:
            await eventually("the events", lambda: bin.events == [b"one"])
            with no_descriptor() as do:
                do(f"echo two >> {path}")
                await eventually("the events", lambda: bin.events[1:] == [b"two"])
                await tail.polled(LINGER)
                assert not [entry for entry in logs if entry["event"] == Log.FILE_ROTATED]
                for turn in range(3):  # the second comes and goes without ever having been opened
                    do(f"echo three {turn} >> {path}; mv {path} {path}.{turn}")
                    await tail.polled()
                do(f"echo four >> {path}")
                await tail.polled(LINGER)
            await eventually("6 events", lambda: len(bin.events) == 6)
    assert sorted(bin.events) == [b"four", b"one", *(b"three %d" % turn for turn in range(3)), b"two"]
    rotated = [entry["now"] for entry in logs if entry["event"] == Log.FILE_ROTATED]
    assert None not in rotated
    unreadable = [entry["reason"] for entry in logs if entry["event"] == Log.FILE_UNREADABLE]
    assert any("Too many open files" in reason for reason in unreadable)


async def test_a_folder_that_cannot_be_read_is_no_rotation(tmp_path: Path) -> None:
    """Where a file cannot even be looked at, it has not gone; files elsewhere are not touched by that."""
    real = os.stat

    def failing(path: object, **options: object) -> os.stat_result:
        if str(path) == str(tmp_path / "a.log"):
            raise OSError(errno.EIO, "the disk fails")
        return real(path, **options)  # type: ignore[arg-type]

    bin = Bin()
    append(tmp_path / "a.log", "one\n")
    append(tmp_path / "b.log", "one\n")
    with capture_logs() as logs:
        async with tailing(bin, tmp_path / "a.log", tmp_path / "b.log") as tail:
            await eventually("2 events", lambda: len(bin.events) == 2)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "stat", failing)
                await tail.polled(LINGER)
                (tmp_path / "b.log").rename(tmp_path / "b.log.1")
                append(tmp_path / "b.log", "two\n")
                await eventually("3 events", lambda: len(bin.events) == 3)
            append(tmp_path / "a.log", "two\n")
            await eventually("4 events", lambda: len(bin.events) == 4)
            await eventually(
                "the log event FILE_ROTATED", lambda: any(entry["event"] == Log.FILE_ROTATED for entry in logs)
            )
    rotated = [entry["path"] for entry in logs if entry["event"] == Log.FILE_ROTATED]
    assert rotated == [str(tmp_path / "b.log")]


async def test_a_rotated_file_that_cannot_be_opened_waits(tmp_path: Path) -> None:
    """What was written to it before it was rotated is read once there is a descriptor, however late."""
    real, spent = os.open, True

    def opened(path: str, flags: int) -> int:
        if spent and str(path).endswith("a.log.1"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags)

    bin = Bin()
    append(tmp_path / "a.log", "one\n")
    with pytest.MonkeyPatch.context() as patch, capture_logs() as logs:
        patch.setattr(os, "open", opened)
        async with tailing(bin, tmp_path / "a.log", tmp_path / "b.log", open_files=1) as tail:
            await eventually("an event", lambda: len(bin.events) == 1)
            append(tmp_path / "b.log", "one\n")  # takes the descriptor
            await eventually("2 events", lambda: len(bin.events) == 2)
            append(tmp_path / "a.log.1", "")
            os.replace(tmp_path / "a.log", tmp_path / "a.log.1")
            append(tmp_path / "a.log.1", "two\n")
            append(tmp_path / "a.log", "three\n")
            await eventually(
                "the log event FILE_UNREADABLE", lambda: any(entry["event"] == Log.FILE_UNREADABLE for entry in logs)
            )
            await tail.polled(LINGER)
            spent = False
            await eventually("4 events", lambda: len(bin.events) == 4)
    assert sorted(bin.events) == [b"one", b"one", b"three", b"two"]


async def test_more_files_than_are_held_open(tmp_path: Path) -> None:
    """Files beyond the bound are closed and opened again when they grow, without losing their place."""
    bin, paths = Bin(), [tmp_path / f"{i}.log" for i in range(10)]
    for path in paths:
        append(path, "one\n")
    async with tailing(bin, tmp_path / "*.log", open_files=3):
        await eventually("10 events", lambda: len(bin.events) == 10)
        assert 0 < len(held(tmp_path)) <= 4
        for path in paths:
            append(path, "two\n")
        await eventually("20 events", lambda: len(bin.events) == 20)
    assert sorted(bin.events) == [b"one"] * 10 + [b"two"] * 10
    assert not held(tmp_path)


@pytest.mark.parametrize("seed", range(4))
async def test_everything_at_random(tmp_path: Path, seed: int) -> None:
    """Appends, rotations of a file once seen, and restarts with rotations meanwhile: every line once."""
    dice = random.Random(seed)
    bin, path = Bin(), tmp_path / "a.log"
    tick = tmp_path / "tick"
    written: list[bytes] = []
    rotations = 0

    def write(lines: int) -> None:
        for _ in range(lines):
            written.append(b"line %d" % len(written))
            append(path, written[-1] + b"\n")

    def rotate() -> None:
        nonlocal rotations
        rotations += 1
        # Files of one path are told apart by their time, which has a kernel tick's resolution.
        until("the next tick", lambda: tick.write_text("x") and tick.stat().st_mtime_ns > path.stat().st_mtime_ns)
        path.rename(tmp_path / f"a.log.{rotations}")

    write(1)
    for _ in range(6):
        async with tailing(bin, path, positions=by_path(bin) if seed % 2 else None) as tail:
            for _ in range(dice.randrange(1, 12)):
                action = dice.random()
                if action < 0.3 and path.exists():
                    first = path.read_bytes().split(b"\n")[0]
                    await eventually("the events", lambda first=first: first in bin.events)
                    write(dice.randrange(5))
                    rotate()
                elif action < 0.4:
                    await tail.polled(dice.choice([0, 3 * POLL]))
                else:
                    write(dice.randrange(1, 50))
            if path.exists():
                first = path.read_bytes().split(b"\n")[0]
                await eventually("the events", lambda first=first: first in bin.events)
        for _ in range(dice.randrange(3)):
            write(dice.randrange(1, 5))
            rotate()
    write(1)
    async with tailing(bin, path, positions=by_path(bin) if seed % 2 else None):
        await eventually("the events", lambda: len(bin.events) >= len(written))
    assert sorted(bin.events) == sorted(written)


@pytest.mark.peer
@pytest.mark.skipif(not shutil.which("rsyslogd"), reason="needs rsyslogd")
async def test_rsyslog_writes(tmp_path: Path) -> None:
    """What a real rsyslogd writes while its file is renamed and it is told to reopen: every message once."""
    bin, path = Bin(), tmp_path / "out.log"
    action = f'action(type="omfile" file="{path}" flushInterval="1" asyncWriting="off")'
    with rsyslogd(tmp_path, action) as sock:
        # rsyslogd writes to the renamed file until it has seen its signal, however late that is, loses one that
        # comes while it works on the one before, and begins the new file with the next message.
        def reopened() -> bool:
            if not path.exists():
                os.kill(int((tmp_path / "rsyslog.pid").read_text()), signal.SIGHUP)
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                    sender.sendto(b"<13>next", str(sock))
            return path.exists()

        def numbers() -> list[int]:
            return [int(event.rpartition(b"message ")[2]) for event in bin.events if b"message " in event]

        async with tailing(bin, path, linger=10):
            for part in range(3):
                lines = tmp_path / "lines"
                lines.write_text("".join(f"message {part * 100 + i}\n" for i in range(100)))
                process = await asyncio.create_subprocess_exec("logger", "-u", str(sock), "-f", str(lines))
                assert await process.wait() == 0
                await eventually("the events", lambda part=part: len(numbers()) >= 50 * (part + 1) and reopened())
                path.rename(tmp_path / f"out.log.{part}")
                os.kill(int((tmp_path / "rsyslog.pid").read_text()), signal.SIGHUP)
            await eventually("the events", lambda: len(numbers()) >= 300)
        assert sorted(numbers()) == list(range(300))
