"""Stores of archived segments: what one that is away says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vedette.archive.stores import MARKER, FolderStore, open_own, warnings
from vedette.config.settings import ArchiveSettings


def test_a_folder_that_is_not_mounted(tmp_path: Path) -> None:
    """It takes nothing, and lists nothing: an empty list would say that nothing was archived. An agent that has
    archived nothing has no folder below it."""
    store = FolderStore(tmp_path / "mnt")
    with pytest.raises(FileNotFoundError, match="is it mounted"):
        list(store.keys("agent/"))
    with pytest.raises(FileNotFoundError, match="is it mounted"):
        store.put("agent/a.seg", [b"x"])
    (tmp_path / "mnt").mkdir()
    assert list(store.keys("agent/")) == []
    store.put("agent/a.seg", [b"x"])
    assert list(store.keys("agent/")) == ["agent/a.seg"]


def test_a_folder_that_is_not_mounted_yet(tmp_path: Path) -> None:
    """One on the file system of the data folder, which need not be there yet, is doubted before its first use; one on
    another is not, nor one that is not there, which takes nothing, nor an object store."""
    data = tmp_path / "none" / "data"
    (tmp_path / "mnt").mkdir()
    (line,) = warnings(ArchiveSettings(str(tmp_path / "mnt")), data)
    assert f"{tmp_path}/mnt is on the same file system as {data}" in line
    for url in ("/proc", str(tmp_path / "away"), "s3://bucket/prefix", ""):
        assert [*warnings(ArchiveSettings(url), data)] == []


def test_another_folder_in_the_place_of_the_one_used(tmp_path: Path) -> None:
    """A mount point whose mount is away, or is another, takes nothing and says what to do; the one that was used does
    again, also from a copy; a new address is a new use."""
    settings, local = ArchiveSettings(str(tmp_path / "mnt")), tmp_path / "local"
    (tmp_path / "mnt").mkdir()
    store = open_own(settings, "agent", local)
    store.put("agent/a.seg", [b"x"])
    assert list(store.keys("agent/")) == ["agent/a.seg"]
    shutil.copytree(tmp_path / "mnt", tmp_path / "copy")
    (tmp_path / "mnt").rename(tmp_path / "away")
    (tmp_path / "mnt").mkdir()
    refused = r"marker is missing: is the archive's folder mounted\? .*copy this file.*delete .*local/folder"
    for tried in (
        lambda: store.put("agent/b.seg", [b"x"]),
        lambda: store.stat("agent/a.seg"),
        lambda: list(store.keys("agent/")),
        lambda: open_own(settings, "agent", local),
    ):
        with pytest.raises(FileNotFoundError, match=refused):
            tried()
    assert list((tmp_path / "mnt").iterdir()) == []
    open_own(settings, "agent", tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="marker has another id"):
        open_own(settings, "agent", local)
    (tmp_path / "mnt" / "agent" / MARKER).write_bytes(b"\xff" * 100)
    with pytest.raises(FileNotFoundError, match="marker is missing"):
        open_own(settings, "agent", local)
    shutil.rmtree(tmp_path / "mnt")
    (tmp_path / "copy").rename(tmp_path / "mnt")
    assert open_own(settings, "agent", local).stat("agent/a.seg") is not None
    moved = ArchiveSettings(str(tmp_path / "away"))
    assert open_own(moved, "agent", local).stat("agent/a.seg") is not None
