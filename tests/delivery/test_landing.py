"""The landing's files: whole, named by time, and not for everybody."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.delivery.kit import NOW
from vedette.delivery.landing import LandingFolder, ulid


def test_landing_folder_files_appear_whole(tmp_path: Path) -> None:
    """A writer removes what it left when killed, never another's, and its files carry the time of writing."""
    folder = tmp_path / "landing"
    (folder / ".tmp").mkdir(parents=True)
    mine, other = folder / ".tmp" / f"me-{ulid(NOW)}", folder / ".tmp" / f"me-too-{ulid(NOW)}"
    mine.write_bytes(b"PAR1")
    other.write_bytes(b"PAR1")
    row = {"topic": "t", "reason": "r", "payload": b"\x00", "received_at": 0}
    path = LandingFolder(folder, "me").write("bad", [row], NOW)
    assert not mine.exists()
    assert other.exists()
    assert path.parent == folder / "bad" / "dt=2026-11-21" / "hh=02"
    assert len(path.stem) == 26
    table = pq.read_table(path, partitioning=None)
    assert table.column("received_at").cast(pa.int64()).to_pylist() == [NOW]


def test_a_file_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are synced before it has its name, its name before ``write`` returns: receipts follow."""
    landing, row = LandingFolder(tmp_path, "me"), {"topic": "t", "reason": "r", "payload": b""}
    real, steps = os.fsync, []
    landing.write("bad", [row], NOW)

    def fsync(descriptor: int) -> None:
        synced = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append((synced.parent.name, len([*(tmp_path / "bad").rglob("*.parquet")])))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    landing.write("bad", [row], NOW)
    assert steps == [(".tmp", 1), ("dt=2026-11-21", 2)]


def test_a_landing_is_not_for_everybody(tmp_path: Path) -> None:
    """Files hold raw events: whatever the umask leaves open, others than owner and group read no file or folder."""
    before = os.umask(0o022)
    try:
        folder = tmp_path / "landing"
        LandingFolder(folder, "me").write("bad", [{"topic": "t", "reason": "r", "payload": b""}], NOW)
    finally:
        os.umask(before)
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in (folder, *folder.rglob("*"))}
    assert modes == {(True, 0o750), (False, 0o640)}


def test_ulids_sort_by_time() -> None:
    """Names of later milliseconds sort after earlier ones."""
    names = [ulid(NOW + i * 1000) for i in range(100)]
    assert names == sorted(names)
    assert len(set(names)) == 100
