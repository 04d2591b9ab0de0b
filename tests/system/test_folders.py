"""A folder's lock is the folder's, not of a file in it, and nobody holds it who may only read the folder."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readers import NOBODY, reader_of
from vedette.system.folders import FORMER, locked, locked_within

SECOND = (
    "import sys; from pathlib import Path; from vedette.system.folders import locked; locked(Path(sys.argv[1]), 'no')"
)


def test_what_is_deleted_lets_nobody_in(tmp_path: Path) -> None:
    """A second process is refused by name and reason though every file in the folder is gone; the first's end frees
    it."""
    descriptor = locked(tmp_path, "the first works here")
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(BlockingIOError, match=f"{tmp_path}: the first works here"):
        locked(tmp_path, "the first works here")
    assert subprocess.run([sys.executable, "-c", SECOND, str(tmp_path)], capture_output=True).returncode
    os.close(descriptor)
    subprocess.run([sys.executable, "-c", SECOND, str(tmp_path)], check=True)


@pytest.mark.parametrize("name", FORMER)
def test_a_process_of_the_release_before(tmp_path: Path, name: str) -> None:
    """It locks a file in the folder, which keeps others out while it runs; the file that it leaves does not."""
    with open(tmp_path / name, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="the former works here"):
            locked(tmp_path, "the former works here")
    os.close(locked(tmp_path, "no"))


def test_a_folder_that_others_read(tmp_path: Path) -> None:
    """One who may read it holds nobody up, whatever he locks; a second of its owner's processes is refused."""
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o750)
    os.close(locked_within(folder, ".lock", "no"))
    with reader_of(folder):
        descriptor = locked_within(folder, ".lock", "no", wait=True)
    with pytest.raises(BlockingIOError, match="the first works here"):
        locked_within(folder, ".lock", "the first works here")
    os.close(descriptor)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
def test_a_lock_that_root_took_first(tmp_path: Path) -> None:
    """The folder's owner can lock it afterwards."""
    os.chown(tmp_path, NOBODY, NOBODY)
    os.close(locked_within(tmp_path, ".lock", "no"))
    status = (tmp_path / ".lock").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (NOBODY, NOBODY, 0o700)


@pytest.mark.parametrize("made_again", [True, False])
def test_a_folder_that_went_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_again: bool) -> None:
    """What was removed between opening and locking is no lock: what stands in its place is locked, or nothing."""
    folder, flock, tries = tmp_path / "folder", fcntl.flock, list[int]()
    folder.mkdir()

    def replaced(descriptor: int, how: int) -> None:
        tries.append(descriptor)
        if len(tries) == 1:
            folder.rmdir()
            if made_again:
                folder.mkdir()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", replaced)
    before = len(os.listdir("/proc/self/fd"))
    if made_again:
        descriptor = locked(folder, "no")
        with pytest.raises(BlockingIOError):
            locked(folder, "no")
        os.close(descriptor)
    else:
        with pytest.raises(FileNotFoundError):
            locked(folder, "no")
    assert len(os.listdir("/proc/self/fd")) == before
