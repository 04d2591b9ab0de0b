"""Inodes that are given again, on a file system that does so at once: a new file is never taken for a deleted one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.inputs.intake import Bin
from tests.inputs.test_tail import append, tailing
from tests.waits import eventually

pytestmark = pytest.mark.peer


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """A folder of a fresh ext4, which gives the inode of a file that was deleted to the next one."""
    if os.geteuid() or not shutil.which("mkfs.ext4"):
        pytest.skip("needs root and mkfs.ext4")
    image, folder = tmp_path / "image", tmp_path / "ext4"
    image.write_bytes(b"")
    os.truncate(image, 8 << 20)
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, folder], check=False, capture_output=True).returncode:
        pytest.skip("no loop devices")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def again(path: Path, text: str, deleted: Path | None = None) -> None:
    """Delete a file and write another, which gets its inode."""
    gone = deleted or path
    inode = gone.stat().st_ino
    gone.unlink()
    append(path, text)
    assert path.stat().st_ino == inode


async def test_while_stopped(ext4: Path) -> None:
    """The new file is read from its start, whether it is shorter or longer, at the same path or another."""
    bin, path = Bin(), ext4 / "a.log"
    append(path, "one\ntwo\n")
    async with tailing(bin, ext4 / "*.log"):
        await eventually("2 events", lambda: len(bin.events) == 2)
    again(path, "3\n")
    async with tailing(bin, ext4 / "*.log"):
        await eventually("3 events", lambda: len(bin.events) == 3)
    again(ext4 / "b.log", "four\nfive\nsix\n", path)
    async with tailing(bin, ext4 / "*.log"):
        await eventually("6 events", lambda: len(bin.events) == 6)
    assert bin.events == [b"one", b"two", b"3", b"four", b"five", b"six"]


async def test_while_closed(ext4: Path) -> None:
    """So it is while the tail runs and has closed the file for want of descriptors, which alone keep an inode."""
    bin, path, other = Bin(), ext4 / "a.log", ext4 / "other.log"
    append(path, "one\n")
    async with tailing(bin, ext4 / "*.log", open_files=1):
        await eventually("an event", lambda: len(bin.events) == 1)
        append(other, "other\n")
        await eventually("2 events", lambda: len(bin.events) == 2)
        again(path, "a longer one\ntwo\n")
        await eventually("4 events", lambda: len(bin.events) == 4)
        append(other, "other\n")
        await eventually("5 events", lambda: len(bin.events) == 5)
        again(ext4 / "b.log", "of b\n", path)
        await eventually("6 events", lambda: len(bin.events) == 6)
    assert bin.events == [b"one", b"other", b"a longer one", b"two", b"other", b"of b"]


async def test_of_an_archive(ext4: Path) -> None:
    """A file that gets the inode of an archive that was read is read from its start."""
    bin, path = Bin(), ext4 / "a.log"
    append(ext4 / "a.log.1", "old\n")
    subprocess.run(["gzip", ext4 / "a.log.1"], check=True)
    append(path, "one\n")
    async with tailing(bin, ext4 / "*.log"):
        await eventually("2 events", lambda: len(bin.events) == 2)
    again(ext4 / "b.log", "two\n", ext4 / "a.log.1.gz")
    async with tailing(bin, ext4 / "*.log"):
        await eventually("3 events", lambda: len(bin.events) == 3)
    assert bin.events == [b"old", b"one", b"two"]


async def test_of_a_rotated_file(ext4: Path) -> None:
    """What was not read of a file that was packed while the agent was down comes before the file that got its inode."""
    bin, path = Bin(), ext4 / "a.log"
    append(path, "one\n")
    async with tailing(bin, path):
        await eventually("an event", lambda: bin.events == [b"one"])
    append(path, "two\n")
    path.rename(ext4 / "a.log.1")
    subprocess.run(["gzip", "--keep", ext4 / "a.log.1"], check=True)
    again(path, "a longer line than those\n", ext4 / "a.log.1")
    async with tailing(bin, path):
        await eventually("3 events", lambda: len(bin.events) == 3)
    assert bin.events == [b"one", b"two", b"a longer line than those"]


async def test_copytruncate(ext4: Path) -> None:
    """A file that is copied, emptied and written again keeps its inode: the new lines come, the copy does not."""
    bin, path = Bin(), ext4 / "a.log"
    append(path, "one\ntwo\n")
    async with tailing(bin, path):
        await eventually("2 events", lambda: len(bin.events) == 2)
        shutil.copyfile(path, ext4 / "a.log.1")
        os.truncate(path, 0)
        append(path, "three\n")
        await eventually("3 events", lambda: len(bin.events) == 3)
    shutil.copyfile(path, ext4 / "a.log.1")
    os.truncate(path, 0)
    append(path, "four\n")
    async with tailing(bin, path):
        await eventually("4 events", lambda: len(bin.events) == 4)
    assert bin.events == [b"one", b"two", b"three", b"four"]
