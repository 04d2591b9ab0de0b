"""Whether a process may read the journal: looked at before journalctl shows less without a word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vedette.inputs import journalaccess

NOBODY = 65534


def as_nobody(directory: Path) -> str:
    """What ``unreadable`` answers for a user of no group."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:  # pragma: no cover
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(write, journalaccess.unreadable(str(directory)).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with open(read, "rb") as file:
        return file.read().decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("closed", ["", "m", "m/system.journal"])
def test_another_user(closed: str, tmp_path: Path) -> None:
    """The folder or file that is closed is named, and the group that opens it."""
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 1:
            parent.chmod(parent.stat().st_mode | 0o111)
    top = tmp_path / "journal"
    (top / "m").mkdir(parents=True)
    (top / "m" / "system.journal").touch()
    for path in (tmp_path, top, top / "m"):
        path.chmod(0o755)
    assert as_nobody(top) == ""
    (top / closed).chmod(0o640 if closed.endswith("l") else 0o750)
    answer = as_nobody(top)
    assert answer.startswith(f"{top / closed}".rstrip("/"))
    assert "is not readable for uid 65534: " in answer
    assert "group" in answer or not any(map(_is_group, journalaccess.GROUPS))


def _is_group(name: str) -> bool:
    return any(line.startswith(f"{name}:") for line in Path("/etc/group").read_text().splitlines())


def test_no_journal(tmp_path: Path) -> None:
    """A folder that is not there yet is no lack of permission."""
    assert journalaccess.unreadable(str(tmp_path / "none")) == ""
