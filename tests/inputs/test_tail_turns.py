"""Whose turn it is among the files of an input: each owner's by turns, whatever names and times the files have."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from tests.inputs.intake import Bin
from tests.inputs.test_journalaccess import NOBODY
from tests.inputs.test_tail import append, tailing
from tests.looptime import forward
from tests.waits import eventually
from vedette.inputs import backlog, file_reader, globs
from vedette.inputs.backlog import NEW_FILES
from vedette.inputs.condition import BEHIND_SECONDS, State
from vedette.model.event import Chunk

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")

FLOOD = 3000
OTHERS = NOBODY - 1
"""Another user."""


def given(path: Path, user: int) -> None:
    if os.geteuid() == 0:
        os.lchown(path, user, user)


def dated(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds), follow_symlinks=False)


def flood(folder: Path) -> None:
    """Thousands of small files of one user, the oldest there are by their times."""
    folder.mkdir(exist_ok=True)
    for number in range(FLOOD):
        path = folder / f"{number:04}.log"
        append(path, "flood\n")
        dated(path, 1 + number)
        given(path, NOBODY)


async def comes_early(bin: Bin) -> None:
    """The other's line is among the first that are read, before thousands of others."""
    await eventually("the other's line", lambda: b"other" in bin.events)
    assert bin.events.index(b"other") <= NEW_FILES


async def test_old_files_of_one_owner_keep_no_other_from_a_turn(tmp_path: Path) -> None:
    """The first look reads a new log that is named by its path, whatever else there is."""
    bin, log = Bin(), tmp_path / "z.txt"
    flood(tmp_path / "a")
    append(log, "other\n")
    async with tailing(bin, tmp_path / "*" / "*.log", log):
        await comes_early(bin)


def files(folder: Path, log: Path) -> None:
    flood(folder)


def links(folder: Path, log: Path) -> None:
    """To files of the other, as there are many on any host, and to the log itself."""
    targets = folder.parent.parent / "targets"
    targets.mkdir()
    folder.mkdir()
    for number in range(FLOOD):
        target, link = targets / f"{number}", folder / f"{number:04}.log"
        append(target, "flood\n")
        dated(target, 1 + number)
        given(target, OTHERS)
        link.symlink_to(target)
        given(link, NOBODY)
    (folder / "5.log").symlink_to(log)
    given(folder / "5.log", NOBODY)


def a_linked_folder(folder: Path, log: Path) -> None:
    links(folder.parent.parent / "elsewhere" / "a", log)
    given(folder.parent.parent / "elsewhere" / "a", OTHERS)
    folder.symlink_to(folder.parent.parent / "elsewhere" / "a")
    given(folder, NOBODY)


@as_root
@pytest.mark.parametrize("made", [files, links, a_linked_folder])
async def test_owners_have_turns(tmp_path: Path, made: Callable[[Path, Path], None]) -> None:
    """Of one glob, a user's files, or links to files of others, are that user's: another's log has its own turn."""
    bin, logs = Bin(), tmp_path / "logs"
    (tmp_path / "elsewhere").mkdir()
    (logs / "b").mkdir(parents=True)
    log = logs / "b" / "z.log"
    append(log, "other\n")
    given(log, OTHERS)
    made(logs / "a", log)
    async with tailing(bin, logs / "*" / "*.log"):
        await comes_early(bin)


@as_root
async def test_more_owners_than_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a look has fewer turns than there are owners, those whose last turn is longest ago come first."""
    monkeypatch.setattr(backlog, "NEW_FILES", 2)
    bin = Bin()
    for user in range(1, 8):
        for number in range(5):
            path = tmp_path / f"{user}-{number}.log"
            append(path, f"{user}\n")
            os.chown(path, user, user)
            dated(path, user * 100 + number)
    async with tailing(bin, tmp_path / "*.log"):
        await eventually("35 events", lambda: len(bin.events) == 35)
    rounds = [bin.events[at : at + 7] for at in range(0, 35, 7)]
    assert [sorted(set(of)) for of in rounds] == [sorted({b"%d" % user for user in range(1, 8)})] * 5


async def test_one_owners_files_in_the_order_of_first_sight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one look by their times; one that comes later waits for them, however old it claims to be."""
    monkeypatch.setattr(backlog, "NEW_FILES", 1)
    late = tmp_path / "a.log"

    class Later(Bin):
        async def ready(self) -> None:
            if self.chunks and not late.exists():
                append(late, "late\n")
                dated(late, 1)

    bin = Later()
    for number in range(5):
        append(tmp_path / f"{9 - number}.log", f"{number}\n")
        dated(tmp_path / f"{9 - number}.log", 100 + number)
    async with tailing(bin, tmp_path / "*.log"):
        await eventually("6 events", lambda: len(bin.events) == 6)
    assert bin.events == [b"0", b"1", b"2", b"3", b"4", b"late"]


@as_root
async def test_files_at_known_paths_keep_no_other_from_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that one user puts again and again where some were read come before the new ones of that user alone."""
    monkeypatch.setattr(backlog, "NEW_FILES", 4)
    log, known = tmp_path / "z.log", [tmp_path / f"{number}.log" for number in range(20)]

    def put(path: Path) -> None:
        append(path.with_suffix(".new"), f"{path}\n")
        os.chown(path.with_suffix(".new"), NOBODY, NOBODY)
        path.with_suffix(".new").rename(path)

    class Replacing(Bin):
        def store(self, chunk: Chunk) -> int:
            if chunk.file is not None and chunk.file.path != str(log) and len(known) <= len(self.chunks):
                put(Path(chunk.file.path))
            return super().store(chunk)

    bin = Replacing()
    for path in known:
        put(path)
    async with tailing(bin, tmp_path / "*.log"):
        await eventually("20 events", lambda: len(bin.chunks) == len(known))
        for path in known:
            put(path)
        append(log, "other\n")
        await eventually("the other's line", lambda: b"other" in bin.events)
    assert bin.events.index(b"other") < 2 * len(known)


async def test_what_one_look_reads_of_an_owner(tmp_path: Path) -> None:
    """Files without end share one file's part of a look: the next line of another's log comes after that, and not
    after a part for each of them."""
    many, log, reads = 64, tmp_path / "z.txt", list[int]()

    class Counting(Bin):
        asked = written = 0

        async def ready(self) -> None:
            self.asked += 1
            if len(reads) > self.written and self.asked > reads[-1] + 2:  # its turn is over
                self.written += 1
                append(log, "other\n")

        def store(self, chunk: Chunk) -> int:
            if chunk.file is not None and chunk.file.path == str(log):
                reads.append(self.asked)
            return super().store(chunk)

    bin = Counting()
    for number in range(many):
        append(tmp_path / f"{number}.log", "")
        os.truncate(tmp_path / f"{number}.log", 1 << 40)
        given(tmp_path / f"{number}.log", NOBODY)
    append(log, "other\n")
    async with tailing(bin, tmp_path / "*.log", log):
        await eventually("9 lines of the other", lambda: len(reads) > 9)
    assert max(after - before for before, after in pairwise(reads)) < 3 * many


async def test_archives_of_one_owner_keep_no_others_waiting(tmp_path: Path) -> None:
    """Archives without end, in however many folders, leave another owner's archive its turn."""
    bin, log = Bin(), tmp_path / "z.txt"
    for number in range(6):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        append(folder / "a.log", "a\n")
        append(folder / "a.log.1.zst", "")
        os.truncate(folder / "a.log.1.zst", 7 << 40)
        for path in (folder, *folder.iterdir()):
            given(path, NOBODY)
    (tmp_path / "z.txt.1.zst").write_bytes(zstandard.compress(b"older\n"))
    append(log, "other\n")
    dated(log, 2e9)
    async with tailing(bin, tmp_path / "*" / "*.log", log):
        await eventually("the other's lines", lambda: bin.events == [b"older", b"other"])


async def test_a_file_that_waits_for_long(tmp_path: Path) -> None:
    """From five minutes on, by a clock that nobody sets, the input is failing and names the file, until it is begun."""
    bin, log = Bin(), tmp_path / "a.log"
    append(log, "now\n")
    append(tmp_path / "a.log.1.zst", "")
    os.truncate(tmp_path / "a.log.1.zst", 7 << 40)
    async with tailing(bin, log) as followed:
        await eventually("a file that waits", lambda: "1 files not begun" in followed.condition.reason)
        assert followed.condition.state is State.WORKS
        forward(asyncio.get_running_loop(), BEHIND_SECONDS + 1)
        state, reason = followed.condition
        assert state is State.FAILING
        assert f"; 1 files not begun, {log} for 30" in reason
        (tmp_path / "a.log.1.zst").write_bytes(zstandard.compress(b"older\n"))
        await eventually("the events", lambda: bin.events[-1:] == [b"now"])
        await eventually("an input that works", lambda: followed.condition.state is State.WORKS)


async def test_unfinished_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files have a long line without an end, little of them is kept: the longest are cut, flagged so, and
    go on behind the next newline. Another's unfinished line stays as it is."""
    monkeypatch.setattr(file_reader, "MAX_UNFINISHED", 200_000)
    bin, log = Bin(), tmp_path / "z.txt"
    append(log, "begin other")
    for number in range(20):
        append(tmp_path / f"{number:02}.log", f"begin {number:02}" + "x" * 50_000)
    async with tailing(bin, log, tmp_path / "*.log") as tail:
        files = tail._reader.files
        await eventually("all to be read", lambda: sum(file.read for file in files.values()) > 20 * 50_000)
        assert sum(file.unfinished for file in files.values()) <= 200_000 + len("begin other")
        cut = [chunk for chunk in bin.chunks if chunk.marks]
        assert len(bin.events) >= 16
        assert len(cut) == len(bin.events)
        for number in range(20):
            append(tmp_path / f"{number:02}.log", f"rest\nbegin next {number:02}\nbegin\n")
        append(log, " and its end\nbegin\n")
        await eventually("the next", lambda: sum(event.startswith(b"begin next") for event in bin.events) == 20)
        await eventually("the other's line", lambda: b"begin other and its end" in bin.events)
        assert sorted(event[:8] for event in bin.events if b"xxx" in event) == [b"begin %02d" % n for n in range(20)]


@as_root
async def test_more_files_of_one_owner_than_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many an owner has, also one after the other, so many are followed; the condition names the folder until
    there are fewer. Another's log in the same folder is read all along."""
    monkeypatch.setattr(globs, "MOST", 10)
    bin, log = Bin(), tmp_path / "z.log"

    def put(first: int) -> None:
        for number in range(first, first + 30):
            append(tmp_path / f"{number}.log", f"{number}\n")
            given(tmp_path / f"{number}.log", NOBODY)

    append(log, "other\n")
    given(log, OTHERS)
    put(0)
    async with tailing(bin, tmp_path / "*.log") as followed:
        await eventually("11 events", lambda: len(bin.events) >= 11 and followed.condition.state is State.FAILING)
        assert f"{tmp_path}: more than 10 files" in followed.condition.reason
        put(30)
        append(log, "more\n")
        await eventually("the other's line", lambda: b"more" in bin.events)
        assert sum(file.party == NOBODY for file in followed._reader.files.values()) == 10
        for number in range(55):
            (tmp_path / f"{number}.log").unlink()
        await eventually("the rest", lambda: {b"%d" % number for number in range(55, 60)} <= {*bin.events})
        await eventually("an input that works", lambda: followed.condition.state is State.WORKS)
