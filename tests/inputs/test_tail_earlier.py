"""What rotation had made of a file before it was seen first: read once, the oldest first, whatever it is packed in."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.inputs.intake import Bin, agent
from tests.inputs.test_tail import LINGER, append, tailing
from tests.waits import eventually
from vedette.inputs import history
from vedette.inputs.files import predecessors
from vedette.inputs.settings import FileInput
from vedette.inputs.tail import FileTail
from vedette.model.counters import Counters, Log


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
    assert [Path(one.path).name for one in predecessors(str(path))] == [
        "a.log-20261120.zst",
        "a.log-20261121.gz",
        "a.log-20261122.gz",
    ]


def test_what_only_looks_rotated(tmp_path: Path) -> None:
    """A small number before the extension may be another program's file, unless it is packed; so is no other name."""
    for name in ("app-2.log", "app-3.log.gz", "app.log.2", "app-old.log", "app.log.1.bak", "app.log.1", "app.log.1.gz"):
        (tmp_path / name).touch()
    assert [Path(one.path).name for one in predecessors(str(tmp_path / "app.log"))] == [
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
    """From every chunk that may have been the last before a kill, the rest comes once, in order."""
    path, bin = tmp_path / "a.log", Bin()
    wanted: list[bytes] = []
    for number, program in ((3, "zstd"), (2, "gzip"), (1, "")):
        some = lines(f"a longer line of number {number}", 24_000)
        write(tmp_path / f"a.log.{number}", some, program)
        wanted += some
    write(path, lines("now"))
    wanted += lines("now")
    async with tailing(bin, path):
        await eventually("the events", lambda: len(bin.events) >= len(wanted))
    assert bin.events == wanted
    assert len(bin.chunks) > 8
    for chunks in range(1, len(bin.chunks)):
        again = kept(bin, chunks)
        async with tailing(again, path):
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
