"""The file input on real files: whatever is done to them, every line once, in order."""

from __future__ import annotations

import asyncio
import math
import os
import random
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.inputs.intake import Bin, account, agent, rsyslogd
from tests.settings import PolledFiles
from tests.waits import eventually, until
from vedette.inputs import backlog, files
from vedette.inputs.file_reader import TURN_BYTES
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
    counters: Counters

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
    turn_bytes: int = TURN_BYTES,
) -> AsyncIterator[Polled]:
    """A running tail; stopped afterwards, and the account checked. Goes on from ``positions``, else the bin's."""
    counters, before = Counters(), len(bin.chunks)
    settings = PolledFiles("f", paths=tuple(map(str, paths)), format="text", poll=POLL, from_start=from_start)
    surroundings = agent(bin, counters, list((positions or bin.positions).values()))
    followed = Polled(settings, surroundings, linger=linger, open_files=open_files, turn_bytes=turn_bytes)
    followed.counters = counters
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


async def test_a_rotated_file_leaves_others_their_turn(tmp_path: Path) -> None:
    """What is left of a rotated file comes before the next file of its path, and a chunk at a time: other paths, and
    files that were rotated from these, are not behind it. The input's condition says how much is left."""
    bin, path, other, reasons = Bin(), tmp_path / "a.log", tmp_path / "b.log", set[str]()
    append(path, "a first\n")
    append(other, "b first\n")
    long = [b"a line %d of a file that is long by now" % i for i in range(100_000)]
    async with tailing(bin, path, other, turn_bytes=1) as followed:
        await eventually("2 events", lambda: len(bin.events) == 2)
        path.rename(tmp_path / "a.log.1")
        append(tmp_path / "a.log.1", b"".join(line + b"\n" for line in long))
        append(path, "a new\n")
        append(other, "b more\n")
        other.rename(tmp_path / "b.log.1")
        append(other, "b new\n")

        def whole() -> bool:
            reasons.add(followed.condition.reason)
            return len(bin.events) == len(long) + 5

        await eventually("the events", whole)
    of_a = [event for event in bin.events if event.startswith(b"a")]
    assert of_a == [b"a first", *long, b"a new"]
    assert [event for event in bin.events if event.startswith(b"b")] == [b"b first", b"b more", b"b new"]
    assert bin.events.index(b"b new") < bin.events.index(long[-1])
    assert any(f"bytes of 1 files, most of {tmp_path}/a.log.1" in reason for reason in reasons)


async def test_a_rotated_file_without_end(tmp_path: Path) -> None:
    """A hole of terabytes in one path's rotated file keeps nothing from being read at other paths."""
    bin, path, other = Bin(), tmp_path / "a.log", tmp_path / "b.log"
    append(path, "a\n")
    append(other, "b\n")
    async with tailing(bin, path, other) as followed:
        await eventually("2 events", lambda: len(bin.events) == 2)
        path.rename(tmp_path / "a.log.1")
        os.truncate(tmp_path / "a.log.1", 7 << 40)
        append(path, "a new\n")
        await eventually("a file that is behind", lambda: "a.log.1" in followed.condition.reason)
        append(other, "b more\n")
        await eventually("the other path's line", lambda: b"b more" in bin.events)
    assert b"a new" not in bin.events


async def test_many_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look takes up some of them, and lists their folder once: what is followed is read between."""
    listings = 0

    def listed(folder: str) -> list[str]:
        nonlocal listings
        listings += 1
        return files.listed(folder)

    monkeypatch.setattr(backlog, "NEW_FILES", 10)
    monkeypatch.setattr(backlog, "listed", listed)
    other = tmp_path / "b" / "app.log"
    reasons: set[str] = set()

    class Watched(Bin):
        async def ready(self) -> None:
            if len(self.chunks) == 5:
                append(other, "more\n")
            reasons.add(followed.condition.reason)

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    append(other, "first\n")
    bin = Watched()
    async with tailing(bin, tmp_path / "*" / "*.log") as followed:
        await eventually("an event", lambda: bin.events == [b"first"])
        for number in range(200):
            append(tmp_path / "a" / f"{number:03}.log", f"{number}\n")
        await eventually("the events", lambda: len(set(bin.events)) == 202)
        assert listings <= followed.polls + 2
    assert bin.events.index(b"more") < 50
    assert any("files not begun" in reason for reason in reasons)


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

    def rotated(looked_at: object, **options: Any) -> os.stat_result:
        found = real(looked_at, **options)
        if str(looked_at) == str(path) and found.st_size == 8:
            path.rename(tmp_path / "a.log.1")
            append(path, "new\n")
        return found

    monkeypatch.setattr(os, "stat", rotated)
    async with tailing(bin, path):
        await eventually("3 events", lambda: len(bin.events) == 3)
    assert bin.events == [b"one", b"two", b"new"]


@pytest.mark.parametrize("links", [1, 1200])
async def test_links_without_end_in_the_place_of_a_rotated_file(tmp_path: Path, links: int) -> None:
    """A link that leads in a circle, or by more links than are followed, is no file: the one that was there has left
    its path, and is read on, also after a restart."""
    bin, path = Bin(), tmp_path / "a.log"
    append(path, "one\n")
    with capture_logs() as logs:
        async with tailing(bin, tmp_path / "*.log"):
            await eventually("the events", lambda: bin.events == [b"one"])
            path.rename(tmp_path / "a.log.1")
            for link in range(links):
                (tmp_path / f"{link}").symlink_to(f"{(link + 1) % links}")
            path.symlink_to("0")
            append(tmp_path / "a.log.1", "late\n")
            await eventually("the events", lambda: bin.events == [b"one", b"late"])
            await eventually("a rotation", lambda: any(entry["event"] == Log.FILE_ROTATED for entry in logs))
    append(tmp_path / "a.log.1", "later\n")
    async with tailing(bin, tmp_path / "*.log"):
        await eventually("the events", lambda: bin.events == [b"one", b"late", b"later"])
        path.unlink()
        append(path, "new\n")
        await eventually("the events", lambda: bin.events == [b"one", b"late", b"later", b"new"])


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


async def test_copied_and_truncated(tmp_path: Path) -> None:
    """What was written between the last look and the copy is read from that, and a line that was half read is whole."""
    bin, path, copy = Bin(), tmp_path / "a.log", tmp_path / "a.log.1"
    append(path, "one\ntwo\nthr")
    async with tailing(bin, path) as followed:
        await eventually("2 events", lambda: len(bin.events) == 2)
        append(path, "ee\nfour\n")
        shutil.copy(path, copy)
        path.write_text("new\n")
        await eventually("5 events", lambda: len(bin.events) == 5)
        copy.rename(tmp_path / "a.log.2")
        append(path, "newer\n")
        await eventually("6 events", lambda: len(bin.events) == 6)
        shutil.copy(path, copy)
        path.write_text("newest\n")
        await eventually("7 events", lambda: len(bin.events) == 7)
        await followed.polled(LINGER)
    async with tailing(bin, path) as followed:
        await followed.polled(LINGER)
    assert bin.events == [b"one", b"two", b"three", b"four", b"new", b"newer", b"newest"]


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
        ("/l/.a.log", "/l/*.log", False),
        ("/l/.a.log", "/l/.*.log", True),
        ("/l/.x/a.log", "/l/**/*.log", False),
        ("/l/x/y/a.log", "/l/**", True),
        ("/l/x/y/a.log", "/l/**/y/*.log", True),
        ("/l/xy/a.log", "/l/**/y/*.log", False),
        ("/l/y/z/a.log", "/l/**/y/*.log", False),
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
        assert tail.counters.cut["f"] == 1
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
    async with tailing(bin, path) as tail:
        bin.close()
        append(path, "one\n")
        await eventually("a read that waits", lambda: bin.waiting)
        assert not bin.events
        bin.reopen()
        await eventually("the events", lambda: bin.events == [b"one"])
        await tail.polled()  # a read that had begun is over
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
