"""Globs that name rotated files, too: whatever logrotate does, and when the agent is down, each line comes once."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.inputs.intake import Bin
from tests.inputs.test_tail import LINGER, POLL, append, tailing
from tests.waits import eventually, until

GLOBS = [("app.log*",), ("*",), ("app*.log*",), ("app.log", "app.log*"), ("*.log",)]


class Rotation:
    """What logrotate does to ``app.log``: ``copy``: copytruncate, else rename and create; ``pack``: after how many
    rotations a file is compressed; ``dated``: names with a date, before the extension or behind it."""

    def __init__(self, folder: Path, *, copy: bool, pack: int | None = None, dated: str = "") -> None:
        self.folder, self.path, self.count = folder, folder / "app.log", 0
        self.written: list[bytes] = []
        self._copy, self._pack, self._dated = copy, pack, dated

    def write(self, lines: int, filler: int = 0) -> None:
        for _ in range(lines):
            self.written.append(b"line %d" % len(self.written) + b"x" * filler)
            append(self.path, self.written[-1] + b"\n")

    def _name(self, number: int) -> Path:
        date = f"-20261129-{1_000_000_000 + self.count - number}"
        name = {"": f"app.log.{number}", "behind": f"app.log{date}", "before": f"app{date}.log"}[self._dated]
        return self.folder / name

    def rotate(self) -> None:
        until("the next tick", lambda: self._ticked())
        if not self._dated:
            for number in range(self.count, 0, -1):
                for end in ("", ".gz"):
                    if (file := self.folder / f"app.log.{number}{end}").exists():
                        file.rename(self.folder / f"app.log.{number + 1}{end}")
        self.count += 1
        first = self._name(1)
        if self._copy:
            shutil.copy(self.path, first)
            os.truncate(self.path, 0)
        else:
            self.path.rename(first)
            self.path.touch()
        if self._pack is not None and (packed := self._name(self._pack)).exists():
            status = packed.stat()
            target = packed.with_name(f"{packed.name}.gz")
            target.write_bytes(gzip.compress(packed.read_bytes()))
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
            packed.unlink()

    def _ticked(self) -> bool:
        """Files of one path are told apart by their time, which has a kernel tick's resolution."""
        tick = self.folder.parent / "tick"
        tick.write_text("x")
        return tick.stat().st_mtime_ns > self.path.stat().st_mtime_ns


KINDS = {
    "renamed": {"copy": False},
    "packed": {"copy": False, "pack": 1},
    "packed later": {"copy": False, "pack": 2},
    "copied": {"copy": True},
    "copied, packed later": {"copy": True, "pack": 2},
    "dated": {"copy": False, "dated": "before"},
    "dated, copied": {"copy": True, "dated": "before"},
    "dated behind, packed later": {"copy": False, "pack": 2, "dated": "behind"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("globs", GLOBS, ids=" ".join)
async def test_the_first_start_and_then(folder: Path, globs: tuple[str, ...], kind: str) -> None:
    """What is there at the first start comes once, the oldest first; so does all that follows, over restarts with
    rotations between them."""
    rotation, bin = Rotation(folder, **KINDS[kind]), Bin()  # type: ignore[arg-type]
    for _ in range(3):
        rotation.write(3)
        rotation.rotate()
    rotation.write(3)
    for life in range(3):
        async with tailing(bin, *(folder / glob for glob in globs)) as tail:
            await eventually("the lines", lambda: len(bin.events) >= len(rotation.written))
            for _ in range(life):
                rotation.write(2)
                rotation.rotate()
                await tail.polled()
            rotation.write(1)
            await eventually("the lines", lambda: bin.events[-1] == rotation.written[-1])
            await tail.polled(2 * LINGER)
            # A look may fall into a rotation, and find an archive that is being written.
            assert not tail._reader.reported
        assert bin.events == rotation.written
        rotation.write(2)
        if life:
            rotation.rotate()
            rotation.write(1)


@pytest.mark.parametrize("seed", range(len(KINDS)))
async def test_everything_at_random(folder: Path, seed: int) -> None:
    """Lines, rotations and looks in any order, over restarts: every line once."""
    dice, kind = random.Random(seed), list(KINDS)[seed]
    globs = dice.choice(GLOBS)
    rotation, bin = Rotation(folder, **KINDS[kind]), Bin()  # type: ignore[arg-type]

    def acts(most: int) -> None:
        for _ in range(dice.randrange(most)):
            rotation.write(dice.randrange(1, 5), dice.choice((0, 300)))
            rotation.rotate()

    acts(3)
    rotation.write(1)
    for _ in range(4):
        async with tailing(bin, *(folder / glob for glob in globs)) as tail:
            for _ in range(dice.randrange(1, 6)):
                if dice.random() < 0.5:
                    acts(3)
                else:
                    await tail.polled(dice.choice([0, 3 * POLL, 2 * LINGER]))
        acts(3)
    rotation.write(1)
    async with tailing(bin, *(folder / glob for glob in globs)) as tail:
        await eventually("the lines", lambda: len(bin.events) >= len(rotation.written))
        await tail.polled(2 * LINGER)
    assert sorted(bin.events) == sorted(rotation.written)


@pytest.mark.parametrize("name", ["app-2.log", "app-20261130.log", "app.log-20261130"])
async def test_a_file_that_comes_beside_one_that_is_followed(folder: Path, name: str) -> None:
    """Nothing says that it was read: it is no rotated part, whatever it is called."""
    bin, path = Bin(), folder / "app.log"
    append(path, "one\n")
    async with tailing(bin, folder / "app*") as tail:
        await eventually("a line", lambda: bin.events == [b"one"])
        await tail.polled()
        append(folder / name, "beside\n")
        await eventually("its line", lambda: bin.events == [b"one", b"beside"])
        append(path, "two\n")
        append(folder / name, "again\n")
        await eventually("both", lambda: sorted(bin.events[2:]) == [b"again", b"two"])
    async with tailing(bin, folder / "app*") as tail:
        append(path, "three\n")
        append(folder / name, "more\n")
        await eventually("both", lambda: sorted(bin.events[4:]) == [b"more", b"three"])
        await tail.polled(LINGER)
    assert len(bin.events) == 6


async def test_days_without_a_file_of_the_bare_name(folder: Path) -> None:
    """``catalina.DATE.log``: each day is a file of its own, as is one that a link names."""
    bin = Bin()
    for day in (27, 28, 29):
        append(folder / f"catalina.2026-11-{day}.log", f"day {day}\n")
    (folder / "catalina.log").symlink_to("catalina.2026-11-29.log")
    for _ in range(2):
        async with tailing(bin, folder / "catalina*.log") as tail:
            await eventually("the days", lambda: len(bin.events) >= 3)
            await tail.polled(LINGER)
        assert sorted(bin.events) == [b"day 27", b"day 28", b"day 29"]
    (folder / "catalina.log").unlink()
    append(folder / "catalina.2026-11-29.log", "late\n")
    append(folder / "catalina.2026-11-30.log", "day 30\n")
    (folder / "catalina.log").symlink_to("catalina.2026-11-30.log")
    async with tailing(bin, folder / "catalina*.log") as tail:
        await eventually("the next day", lambda: len(bin.events) >= 5)
        await tail.polled(LINGER)
    assert sorted(bin.events[3:]) == [b"day 30", b"late"]


async def test_a_file_that_went_before_it_was_read_to_its_end(folder: Path) -> None:
    """It is moved, packed and gone within one look: its position is that of its path, and is known after a restart."""
    bin, path, packed = Bin(), folder / "app.log", folder / "app.log.1"
    append(path, "early\n")

    def rotate(text: str) -> None:
        append(path, text)
        path.rename(packed)
        subprocess.run(["gzip", "-q", "-f", str(packed)], check=True)
        path.touch()

    async with tailing(bin, path) as tail:
        await eventually("a line", lambda: bin.events == [b"early"])
        rotate("last\n")
        await eventually("the last line", lambda: bin.events == [b"early", b"last"])
        await tail.polled(LINGER)
    assert {position.path for position in bin.positions.values()} == {str(path)}
    async with tailing(bin, path) as tail:
        append(path, "now\n")
        await eventually("what is new", lambda: bin.events[-1] == b"now")
    assert bin.events == [b"early", b"last", b"now"]
