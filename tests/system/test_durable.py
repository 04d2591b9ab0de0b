"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from tests.waits import write_as_before
from vedette.archive.index import Index
from vedette.archive.stores import FolderStore
from vedette.config.settings import ArchiveSettings, RawLogSettings
from vedette.model.counters import Counters
from vedette.rawlog.log import RawLog
from vedette.store.store import own
from vedette.system.durable import make_folders, stamp, write_whole

ROOT = Path(__file__).parents[2]


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


def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is synced from now on."""
    found: list[Path] = []
    fsync = os.fsync

    def seen(descriptor: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    return found


def test_folders_that_are_made_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is durable in the one above it; what is there already is left alone; a file in the way is an error."""
    found = synced(monkeypatch)
    make_folders(tmp_path / "a" / "b" / "c", 0o750)
    assert found == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o750
    make_folders(tmp_path / "a" / "b" / "c")
    assert len(found) == 3
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folders(tmp_path / "file")


def test_who_makes_folders_for_what_must_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive in a folder, its index, a raw log, the store: the name of each new folder is synced, too."""
    found = synced(monkeypatch)
    (tmp_path / "mnt").mkdir()
    FolderStore(tmp_path / "mnt").put("edge-1/a.seg", [b"x"])
    assert tmp_path / "mnt" in found
    Index(tmp_path / "new" / "archive", ArchiveSettings("/mnt"), "edge-1").start([])
    assert {tmp_path, tmp_path / "new"} <= set(found)
    RawLog.open(tmp_path / "log" / "raw", RawLogSettings(), Counters()).close()
    assert tmp_path / "log" in found
    os.close(own(tmp_path / "data" / "store"))
    assert tmp_path / "data" in found


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_looks_as_before(tmp_path: Path, replaced: bool) -> None:
    """Another of the same size and times is seen, written in place or renamed there; and a file that is gone."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    before, size, time = stamp(path), path.stat().st_size, path.stat().st_mtime_ns
    write_as_before(path, b"new", replaced=replaced)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (size, time)
    assert None is not stamp(path) != before
    path.unlink()
    assert stamp(path) is None


def test_nobody_goes_by_size_and_time_alone() -> None:
    """Who decides by a file's times whether to read it again asks ``stamp``."""
    both = re.compile(r"st_mtime_ns[^\n]*st_size|st_size[^\n]*st_mtime_ns|changed = .*st_mtime_ns|stamp = .*st_mtime")
    at = {
        str(path.relative_to(ROOT))
        for package in ("agent/vedette", "vedette_console")
        for path in (ROOT / package).rglob("*.py")
        if both.search(path.read_text("utf-8"))
    }
    assert at == {
        "agent/vedette/inputs/files.py",  # a log that grows
        "agent/vedette/runtime/rulesets/usercache.py",  # the oldest goes
    }
