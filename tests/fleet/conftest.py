"""These tests need python-tuf: an environment that is older than requirements.lock has none (`make environment`)."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

collect_ignore_glob = [] if find_spec("tuf") else ["*"]
Synced = dict[Path, bytes | list[str]]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Synced:
    """What a power cut leaves: each file's bytes, and each folder's names, as they were when it was last synced."""
    disk, sync = Synced(), os.fsync

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        disk[path] = sorted(os.listdir(path)) if path.is_dir() else path.read_bytes()

    monkeypatch.setattr(os, "fsync", fsync)
    return disk
