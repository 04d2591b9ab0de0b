"""Locks of folders: one holder at a time, wherever the folder lies. Files: on the disk once they are stored."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest

from spark_jobs.tables import storage
from tests.readers import reader_of

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("scheme", ["", "s3://", "hdfs://"])
def test_threads_hold_a_folder_one_after_the_other(tmp_path: Path, scheme: str) -> None:
    """On file systems that have no locks as well: no count is lost that is read, and stored after others ran."""
    count = 0

    def hold(_: int) -> None:
        nonlocal count
        with storage.locked(f"{scheme}{tmp_path}", "set"):
            before = count
            sleep(0.001)
            count = before + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(hold, range(40)))
    assert count == 40


def test_what_is_deleted_lets_nobody_in(tmp_path: Path) -> None:
    """Neither files that look like leftovers, nor what was deleted while somebody waited for it."""
    script = (
        "import sys; from spark_jobs.tables.storage import one_writer; one_writer(sys.argv[1], 'ingest').__enter__()"
    )
    second = [sys.executable, "-c", script, str(tmp_path)]
    with storage.one_writer(str(tmp_path), "ingest"), storage.locked(str(tmp_path), "set"):
        for path in tmp_path.rglob("*"):
            if path.is_file():
                path.unlink()
        done = subprocess.run(second, cwd=ROOT, capture_output=True, text=True, check=False)
        assert "another ingest is writing these tables" in done.stderr
    subprocess.run(second, cwd=ROOT, check=True)


def test_a_lock_whose_place_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was removed, with its place, between opening and locking is no lock: it is taken again."""
    flock, gone = fcntl.flock, list[Path]()

    def remove_first(descriptor: int, how: int) -> None:
        if not gone:
            gone.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
            gone[0].rmdir() if gone[0].is_dir() else gone[0].unlink()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with (
        storage.one_writer(str(tmp_path), "ingest"),
        pytest.raises(BlockingIOError),
        storage.one_writer(str(tmp_path), "ingest"),
    ):
        pass


def test_who_reads_tables_does_not_hold_them(tmp_path: Path) -> None:
    """A member of the folder's group who locks all that he can open holds up no job."""
    tables = tmp_path / "tables"
    for _ in range(2):
        with storage.one_writer(str(tables), "ingest"), storage.locked(str(tables), "set"):
            pass
        with reader_of(tables), storage.one_writer(str(tables), "ingest"), storage.locked(str(tables), "set"):
            pass


def test_a_file_is_on_the_disk_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is synced first, and then the folder, in which it has its name by then."""
    synced = []

    def note(descriptor: int) -> None:
        is_folder = os.path.samestat(os.fstat(descriptor), tmp_path.stat())
        synced.append((is_folder, [path.name for path in tmp_path.iterdir()]))

    monkeypatch.setattr(os, "fsync", note)
    storage.store(f"{tmp_path}/note", "text")
    assert synced == [(False, [".note.tmp"]), (True, ["note"])]
