"""What rotation had made of a file before it was seen first: read once, the oldest first, whatever it is packed in."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from structlog.testing import capture_logs

from tests.inputs.intake import Bin, agent
from tests.inputs.test_tail import LINGER, append, by_path, tailing
from tests.waits import eventually
from vedette.inputs import history
from vedette.inputs.files import fingerprint, listed, predecessors
from vedette.inputs.settings import FileInput
from vedette.inputs.tail import FileTail
from vedette.model.counters import Counters, Log
from vedette.model.event import FilePosition


def lines(name: str, count: int = 3) -> list[bytes]:
    return [b"%b %d" % (name.encode(), i) for i in range(count)]


def write(path: Path, events: list[bytes], program: str = "") -> None:
    append(path, b"".join(line + b"\n" for line in events))
    if program and not shutil.which(program):
        pytest.skip(f"no {program}")
    if program:
        subprocess.run([program, "-q", *(["--rm"] if program == "zstd" else []), str(path)], check=True)


def kept(bin: Bin, chunks: int) -> Bin:
    """What is in the raw log after a kill behind so many chunks."""
    again = Bin()
    for chunk in bin.chunks[:chunks]:
        again.store(chunk)
    return again


async def test_oldest_first(tmp_path: Path) -> None:
    """Plain, gzip and zstd, by their numbers, then the file itself; what only looks alike is left alone."""
    path, bin = tmp_path / "a.log", Bin()
    write(tmp_path / "a.log.10", lines("ten"), "gzip")
    write(tmp_path / "a.log.9", lines("nine"), "zstd")
    write(tmp_path / "a.log.2", lines("two"), "gzip")
    write(tmp_path / "a.log.1", lines("one"))
    write(path, lines("now"))
    write(tmp_path / "b.log.1", lines("other"))
    write(tmp_path / "a.log.old", lines("old"), "gzip")
    wanted = [line for name in ("ten", "nine", "two", "one", "now") for line in lines(name)]
    async with tailing(bin, path):
        await eventually("the events", lambda: len(bin.events) >= len(wanted))
        append(path, "more\n")
        await eventually("the events", lambda: bin.events[-1] == b"more")
    assert bin.events == [*wanted, b"more"]
    async with tailing(bin, path):  # started again, nothing comes twice
        append(path, "last\n")
        await eventually("the events", lambda: bin.events[-1] == b"last")
    assert bin.events == [*wanted, b"more", b"last"]


async def test_dates(tmp_path: Path) -> None:
    """Names with dates are read by these, also before the extension."""
    path, bin = tmp_path / "a.log", Bin()
    for name, program in (("a.log-20261122", "gzip"), ("a.log-20261120", "zstd"), ("a.log-20261121", "gzip")):
        write(tmp_path / name, [name.encode()], program)
    os.utime(tmp_path / "a.log-20261120.zst", (2e9, 2e9))  # copied later
    write(path, [b"now"])
    async with tailing(bin, path):
        await eventually("the events", lambda: bin.events[-1:] == [b"now"])
    assert bin.events == [b"a.log-20261120", b"a.log-20261121", b"a.log-20261122", b"now"]
    assert [Path(one.path).name for one in predecessors(str(path), listed(str(tmp_path)))] == [
        "a.log-20261120.zst",
        "a.log-20261121.gz",
        "a.log-20261122.gz",
    ]


async def test_numbers_that_rise(tmp_path: Path) -> None:
    """Where the file of the highest number is the youngest, it is read last, also after a restart."""
    path, bin = tmp_path / "a.log", Bin()
    wanted: list[bytes] = []

    def rotated(number: int) -> None:
        name = tmp_path / f"a.log.{number}"
        write(name, lines(f"number {number}"))
        os.utime(name, (1000 + number, 1000 + number))
        wanted.extend(lines(f"number {number}"))

    for number in (1, 2, 10):
        rotated(number)
    for numbers in ((11, 12), (13, 14)):
        write(path, lines(f"before {numbers}"))
        wanted.extend(lines(f"before {numbers}"))
        async with tailing(bin, path):
            await eventually("the events", lambda: len(bin.events) == len(wanted))
        path.rename(tmp_path / f"a.log.{numbers[0]}")
        os.utime(tmp_path / f"a.log.{numbers[0]}", (1000 + numbers[0], 1000 + numbers[0]))
        rotated(numbers[1])
    write(path, lines("now"))
    async with tailing(bin, path):
        await eventually("the events", lambda: len(bin.events) == len(wanted) + 3)
    assert bin.events == [*wanted, *lines("now")]


def test_what_only_looks_rotated(tmp_path: Path) -> None:
    """A small number before the extension may be another program's file, unless it is packed; so is no other name."""
    for name in ("app-2.log", "app-3.log.gz", "app.log.2", "app-old.log", "app.log.1.bak", "app.log.1", "app.log.1.gz"):
        (tmp_path / name).touch()
    assert [Path(one.path).name for one in predecessors(str(tmp_path / "app.log"), listed(str(tmp_path)))] == [
        "app-3.log.gz",
        "app.log.2",
        "app.log.1",
    ]


async def test_only_with_from_start(tmp_path: Path) -> None:
    """With ``from_start = false`` what lies before the first look is not read."""
    path, bin = tmp_path / "a.log", Bin()
    write(tmp_path / "a.log.1", lines("one"), "gzip")
    write(path, lines("now"))
    with capture_logs() as logs:
        async with tailing(bin, path, from_start=False):
            await eventually("the log event FILE_OPENED", lambda: any(one["event"] == Log.FILE_OPENED for one in logs))
            append(path, "new\n")
            await eventually("the events", lambda: bin.events == [b"new"])


async def test_every_kill(tmp_path: Path) -> None:
    """From every chunk that may have been the last before a kill, the rest comes once, in order, a turn a chunk."""
    path, bin = tmp_path / "a.log", Bin()
    wanted: list[bytes] = []
    for number, program in ((3, "zstd"), (2, "gzip"), (1, "")):
        some = lines(f"a longer line of number {number}", 24_000)
        write(tmp_path / f"a.log.{number}", some, program)
        wanted += some
    write(path, lines("now"))
    wanted += lines("now")
    async with tailing(bin, path, turn_bytes=1):
        await eventually("the events", lambda: len(bin.events) >= len(wanted))
    assert bin.events == wanted
    assert len(bin.chunks) > 8
    for chunks in range(1, len(bin.chunks)):
        again = kept(bin, chunks)
        async with tailing(again, path, turn_bytes=1):
            await eventually("the events", lambda again=again: len(again.events) >= len(wanted))
        assert again.events == wanted, f"killed after {chunks} chunks"


@pytest.mark.parametrize("program", ["gzip", "zstd"])
async def test_packed_while_away(tmp_path: Path, program: str) -> None:
    """A file that was rotated and packed while the agent was down goes on where it was left; older ones stay read."""
    path, bin = tmp_path / "a.log", Bin()
    write(tmp_path / "a.log.1", lines("older"), "gzip")
    write(path, lines("read", 2000))
    async with tailing(bin, path):
        await eventually("2003 events", lambda: len(bin.events) == 2003)
    append(path, "unread\nrest")
    (tmp_path / "a.log.1.gz").rename(tmp_path / "a.log.3.gz")
    shutil.copy(path, tmp_path / "a.log.2")  # another inode, as a packed file has one
    path.unlink()
    write(tmp_path / "a.log.2", [], program)
    write(tmp_path / "a.log.1", lines("between"))
    write(path, lines("new"))
    for _ in range(2):
        async with tailing(bin, path):
            await eventually("the events", lambda: bin.events[-1] == b"new 2")
        assert bin.events == [
            *lines("older"),
            *lines("read", 2000),
            b"unread",
            b"rest",
            *lines("between"),
            *lines("new"),
        ]


@pytest.mark.parametrize("reused", ["a.log", "b.log"])
async def test_packed_while_away_and_its_inode_given_to_another(tmp_path: Path, reused: str) -> None:
    """What was not read of a file comes before the next file of its path, whatever file has its inode by now."""
    path, other, bin = tmp_path / "a.log", tmp_path / "b.log", Bin()
    write(path, lines("read"))
    write(other, lines("other"))
    async with tailing(bin, path, other):
        await eventually("6 events", lambda: len(bin.events) == 6)
    append(path, "unread\n")
    path.rename(tmp_path / "a.log.1")
    write(tmp_path / "a.log.1", [], "gzip")
    other.unlink()
    write(other, lines("another"))
    write(path, lines("new"))
    inode = (tmp_path / reused).stat().st_ino
    saved = by_path(bin)
    saved[str(path)] = saved[str(path)]._replace(inode=inode)
    async with tailing(bin, path, other, positions=saved):
        await eventually("13 events", lambda: len(bin.events) == 13)
    assert [event for event in bin.events if b"other" not in event] == [*lines("read"), b"unread", *lines("new")]


async def test_packed_while_an_older_one_is_plain(tmp_path: Path) -> None:
    """A file that was rotated and packed is found also where one that had left its path before still lies there."""
    path, bin = tmp_path / "a.log", Bin()
    write(path, lines("first"))
    async with tailing(bin, path):
        await eventually("3 events", lambda: len(bin.events) == 3)
    path.rename(tmp_path / "a.log.1")
    write(path, lines("second"))
    async with tailing(bin, path):
        await eventually("6 events", lambda: len(bin.events) == 6)
    append(path, "unread\n")
    (tmp_path / "a.log.1").rename(tmp_path / "a.log.2")
    path.rename(tmp_path / "a.log.1")
    write(tmp_path / "a.log.1", [], "gzip")
    write(path, lines("new"))
    async with tailing(bin, path):
        await eventually("10 events", lambda: len(bin.events) == 10)
    assert bin.events == [*lines("first"), *lines("second"), b"unread", *lines("new")]


async def test_packed_before_the_next_one_is_there(tmp_path: Path) -> None:
    """So it is when nothing is at the path at the start: it comes when the next file does, before that."""
    path, bin = tmp_path / "a.log", Bin()
    write(path, lines("read"))
    async with tailing(bin, path):
        await eventually("3 events", lambda: len(bin.events) == 3)
    append(path, "unread\n")
    path.rename(tmp_path / "a.log.1")
    write(tmp_path / "a.log.1", [], "gzip")
    async with tailing(bin, path) as followed:
        await followed.polled()
        write(path, lines("new"))
        await eventually("7 events", lambda: len(bin.events) == 7)
    assert bin.events == [*lines("read"), b"unread", *lines("new")]


async def test_copied_and_truncated_while_away(tmp_path: Path) -> None:
    """A copy goes on where its original was left, and comes before what was written after the truncation."""
    path, bin = tmp_path / "a.log", Bin()
    write(path, lines("read"))
    async with tailing(bin, path):
        await eventually("3 events", lambda: len(bin.events) == 3)
    append(path, "unread\n")
    shutil.copy(path, tmp_path / "a.log.1")
    path.write_text("")
    write(path, lines("new"))
    for _ in range(2):
        async with tailing(bin, path) as followed:
            await eventually("7 events", lambda: len(bin.events) >= 7)
            await followed.polled(LINGER)
        assert bin.events == [*lines("read"), b"unread", *lines("new")]


async def test_away_for_longer_than_rotation_keeps(tmp_path: Path) -> None:
    """Where what was read is deleted, what came after it is read; where it was only truncated, nothing did."""
    path, bin = tmp_path / "a.log", Bin()
    write(path, lines("read"))
    async with tailing(bin, path):
        await eventually("3 events", lambda: len(bin.events) == 3)
    write(tmp_path / "a.log.2", lines("two"), "gzip")
    write(tmp_path / "a.log.1", lines("one"))
    write(tmp_path / "next", lines("new"))
    (tmp_path / "next").rename(path)
    async with tailing(bin, path):
        await eventually("12 events", lambda: len(bin.events) == 12)
    assert bin.events == [*lines("read"), *lines("two"), *lines("one"), *lines("new")]
    (tmp_path / "a.log.1").unlink()
    path.write_text("")
    write(path, lines("newest"))
    bin.positions = {key: position for key, position in bin.positions.items() if position.path == str(path)}
    async with tailing(bin, path) as followed:
        await eventually("15 events", lambda: len(bin.events) >= 15)
        await followed.polled(LINGER)
    assert bin.events[12:] == lines("newest")


async def test_came_and_went_with_the_inode_of_another(tmp_path: Path) -> None:
    """A file that came to a path and left it between two looks is not taken for one of its inode and size that was
    read before."""
    path, between, bin = tmp_path / "a.log", tmp_path / "between", Bin()
    write(path, lines("first"))
    write(between, lines("second"))
    size = between.stat().st_size
    position = FilePosition(f"{path}.9", between.stat().st_ino, fingerprint(b"x" * size, size), size)
    async with tailing(bin, path, positions={"": position}, linger=60):
        await eventually("3 events", lambda: len(bin.events) == 3)
        between.touch()
        path.rename(tmp_path / "a.log.2")
        between.rename(tmp_path / "a.log.1")
        write(path, lines("third"))
        await eventually("9 events", lambda: len(bin.events) == 9)
    assert sorted(bin.events) == sorted([*lines("first"), *lines("second"), *lines("third")])


async def test_what_was_begun_comes_first(tmp_path: Path) -> None:
    """The rest of a rotated file comes before files of its path that came later, also when none of these was seen."""
    path, bin = tmp_path / "a.log", Bin()
    write(path, lines("read", 2000))
    with capture_logs() as logs:
        async with tailing(bin, path, linger=60):
            await eventually("2000 events", lambda: len(bin.events) == 2000)
            path.rename(tmp_path / "a.log.1")
            await eventually(
                "the log event FILE_ROTATED", lambda: any(one["event"] == Log.FILE_ROTATED for one in logs)
            )
            append(tmp_path / "a.log.1", "late\n")
            await eventually("the events", lambda: bin.events[-1] == b"late")
    append(tmp_path / "a.log.1", "rest\n")
    (tmp_path / "a.log.1").rename(tmp_path / "a.log.2")
    write(tmp_path / "a.log.1", lines("between"))
    write(path, lines("new"))
    bin = kept(bin, len(bin.chunks))
    bin.positions = {key: one for key, one in bin.positions.items() if one.path != str(path)}
    async with tailing(bin, path):
        await eventually("2008 events", lambda: len(bin.events) == 2008)
    assert bin.events == [*lines("read", 2000), b"late", b"rest", *lines("between"), *lines("new")]


async def test_packed_after_it_was_read(tmp_path: Path) -> None:
    """A rotated file that was read whole and packed since is not read again, even when its path was never followed."""
    path, bin = tmp_path / "a.log", Bin()
    write(tmp_path / "a.log.1", lines("one", 500))
    path.touch()  # empty: it has no position
    async with tailing(bin, path):
        await eventually("500 events", lambda: len(bin.events) == 500)
    subprocess.run(["gzip", "-q", str(tmp_path / "a.log.1")], check=True)
    async with tailing(bin, path):
        append(path, "now\n")
        await eventually("the events", lambda: bin.events[-1] == b"now")
    assert bin.events == [*lines("one", 500), b"now"]


async def test_files_that_begin_alike(tmp_path: Path) -> None:
    """Files with one banner of more than a fingerprint's length are not taken for each other: none is left out."""
    banner, path, bin = b"#" * 3000, tmp_path / "a.log", Bin()
    for number in (3, 2, 1):
        write(tmp_path / f"a.log.{number}", [banner, *lines(str(number), 100 * number)], "gzip")
    write(path, [banner, *lines("now")])
    async with tailing(bin, path):
        await eventually("the events", lambda: bin.events[-1:] == [b"now 2"])
    wanted = [one for number in (3, 2, 1) for one in (banner, *lines(str(number), 100 * number))]
    assert bin.events == [*wanted, banner, *lines("now")]


async def test_a_torn_archive(tmp_path: Path) -> None:
    """What can be read of it is, the damage is named once, and the next ones follow."""
    path, bin = tmp_path / "a.log", Bin()
    write(tmp_path / "a.log.2", lines("two", 50_000), "gzip")
    data = (tmp_path / "a.log.2.gz").read_bytes()
    (tmp_path / "a.log.2.gz").write_bytes(data[: len(data) // 2])
    (tmp_path / "a.log.3.gz").write_bytes(b"not gzip")
    write(tmp_path / "a.log.1", lines("one"), "gzip")
    write(path, lines("now"))
    with capture_logs() as logs:
        async with tailing(bin, path):
            await eventually("the events", lambda: bin.events[-1:] == [b"now 2"])
    named = {Path(one["path"]).name: one["reason"] for one in logs if one["event"] == Log.FILE_UNREADABLE}
    assert named.keys() == {"a.log.2.gz", "a.log.3.gz"}
    assert named["a.log.2.gz"] == "it is cut off"
    whole = bin.events[: -len(lines("one") + lines("now")) - 1]
    assert whole == lines("two", 50_000)[: len(whole)]
    assert len(whole) > 10_000
    assert bin.events[-6:] == [*lines("one"), *lines("now")]


@pytest.mark.parametrize("content", ["zeros", "hole"])
async def test_an_archive_without_end(tmp_path: Path, content: str) -> None:
    """An archive that unpacks to terabytes, or is one hole, keeps no other path waiting; its own waits for its turn to
    be over, and the input's condition says so."""
    path, other, packed, bin = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "a.log.1.zst", Bin()
    packed.write_bytes(
        zstandard.ZstdCompressor(level=1).compress(bytes(64 << 20)) * 1000 if content == "zeros" else b""
    )
    if content == "hole":
        os.truncate(packed, 7 << 40)
    write(path, lines("a"))
    write(other, lines("b"))
    async with tailing(bin, path, other) as followed:
        await eventually("the other path's lines", lambda: bin.events[-3:] == lines("b"))
        await eventually("an archive that is read", lambda: str(packed) in followed.condition.reason)
        append(other, "more\n")
        await eventually("the other path's line", lambda: bin.events[-1:] == [b"more"])

    assert not set(lines("a")) & set(bin.events)


@pytest.mark.parametrize("program", ["", "gzip"])
async def test_rotated_while_older_ones_are_read(tmp_path: Path, program: str) -> None:
    """A file that leaves its path while what was rotated before it is read comes after that, also packed."""
    path = tmp_path / "a.log"
    older = lines("a longer line of number two", 100_000)

    class Rotating(Bin):
        async def ready(self) -> None:
            if len(self.chunks) == 2 and not (tmp_path / "a.log.1.gz").exists() and not (tmp_path / "a.log.1").exists():
                path.rename(tmp_path / "a.log.1")
                write(tmp_path / "a.log.1", [], program)
                write(path, lines("new"))

    bin = Rotating()
    write(tmp_path / "a.log.2", older, "gzip")
    write(path, lines("now", 400))
    async with tailing(bin, path, turn_bytes=1):
        await eventually("the events", lambda: bin.events[-1:] == lines("new")[-1:])
    assert bin.events == [*older, *lines("now", 400), *lines("new")]


async def test_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a descriptor for an archive it is tried again, and what was read before is not read again."""
    path, bin, fails, real = tmp_path / "a.log", Bin(), [3], history.open_same

    def spent(looked_at: str, key: tuple[int, int], private: history.IsPrivate) -> int:
        if looked_at.endswith(".1.gz") and fails[0] and bin.events:
            fails[0] -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return real(looked_at, key, private)

    monkeypatch.setattr(history, "open_same", spent)
    write(tmp_path / "a.log.2", lines("two"), "gzip")
    write(tmp_path / "a.log.1", lines("one"), "gzip")
    write(path, lines("now"))
    async with tailing(bin, path):
        await eventually("the events", lambda: bin.events[-1:] == [b"now 2"])
    assert not fails[0]
    assert bin.events == [*lines("two"), *lines("one"), *lines("now")]


async def test_the_raw_log_is_broken(tmp_path: Path) -> None:
    """An archive is no reason to go on without a raw log."""
    path, bin = tmp_path / "a.log", Bin()
    write(tmp_path / "a.log.1", lines("one"), "gzip")
    path.touch()
    bin.broken = True
    settings = FileInput("f", paths=(str(path),))
    with pytest.raises(OSError, match="disk gone"):
        await FileTail(settings, agent(bin, Counters())).run()


async def test_behind_a_link(tmp_path: Path) -> None:
    """A link is followed through the rotation of its target, whose predecessors are beside the target."""
    target, link, bin = tmp_path / "pods" / "0.log", tmp_path / "link.log", Bin()
    target.parent.mkdir()
    link.symlink_to(target)
    write(tmp_path / "pods" / "0.log.20261123-101010", lines("first"), "gzip")
    write(target, lines("second"))
    async with tailing(bin, link, linger=0.5):
        await eventually("6 events", lambda: len(bin.events) == 6)
        append(target, "late\n")
        target.rename(tmp_path / "pods" / "0.log.20261123-111111")
        write(target, lines("third"))
        await eventually("10 events", lambda: len(bin.events) == 10)
    append(target, "away\n")
    target.rename(tmp_path / "pods" / "0.log.20261123-121212")
    write(target, lines("fourth"))
    async with tailing(bin, link, linger=LINGER):
        await eventually("14 events", lambda: len(bin.events) == 14)
    assert bin.events == [*lines("first"), *lines("second"), b"late", *lines("third"), b"away", *lines("fourth")]


class Rotates(Bin):
    """The raw log, where logrotate comes by ``path`` once while it is asked whether it takes more."""

    def __init__(self, path: Path, when: Callable[[], bool]) -> None:
        super().__init__()
        self._path, self._when, self._rotated = path, when, False

    async def ready(self) -> None:
        if not self._rotated and self._when():
            self._rotated = True
            for older in sorted(self._path.parent.glob(f"{self._path.name}.1*")):
                older.rename(older.with_name(older.name.replace(".1", ".2", 1)))
            self._path.rename(f"{self._path}.1")
            write(self._path, lines("newest"))


async def test_rotated_while_another_path_is_read(tmp_path: Path) -> None:
    """What a look has listed may have other names when it is read: nothing is lost, and the order is kept."""
    path = tmp_path / "b.log"
    for age, (name, texts) in enumerate((("a.log", ["a"]), ("b.log.1", ["older"]), ("b.log", ["newer"]))):
        write(tmp_path / name, [line for text in texts for line in lines(text)])
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    bin = Rotates(path, lambda: True)
    async with tailing(bin, tmp_path / "a.log", path):
        await eventually("the last event", lambda: bin.events[-1:] == lines("newest")[-1:])
    assert bin.events == [line for name in ("a", "older", "newer", "newest") for line in lines(name)]
