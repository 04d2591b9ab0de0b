"""A folder's lock is the folder's, not of a file in it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vedette.system.folders import FORMER, locked

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
