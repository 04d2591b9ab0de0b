"""Stores of archived segments: what one that is away says."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.archive.stores import FolderStore


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
