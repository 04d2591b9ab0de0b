"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from vedette.system.durable import write_whole


def test_what_is_there_stays_until_the_new_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails leaves the file as it was; the next one is not hindered by what the failed one left."""
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fails(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as during:
        during.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="Input/output error"):
            write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    write_whole(path, b"new")
    assert (path.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (b"new", ["file"])


def test_file_and_folder_are_synced_in_that_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes before the name stands for them, the name before the call returns."""
    real, steps = os.fsync, []

    def fsync(descriptor: int) -> None:
        steps.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, (tmp_path / "file").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(tmp_path / "file", b"x")
    assert steps == [(".file.tmp", False), (tmp_path.name, True)]


def test_modes(tmp_path: Path) -> None:
    """The asked one whatever the umask; without one what the umask leaves."""
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "asked", b"", 0o644)
        write_whole(tmp_path / "left", b"")
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("asked", "left")] == [0o644, 0o640]
