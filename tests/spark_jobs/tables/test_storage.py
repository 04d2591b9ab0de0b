"""Locks of folders: one holder at a time, wherever the folder lies. Files: on the disk once they are stored."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest

from spark_jobs.tables import storage


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


def test_a_file_is_on_the_disk_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is synced first, and then the folder, in which it has its name by then."""
    synced = []

    def note(descriptor: int) -> None:
        is_folder = os.path.samestat(os.fstat(descriptor), tmp_path.stat())
        synced.append((is_folder, [path.name for path in tmp_path.iterdir()]))

    monkeypatch.setattr(os, "fsync", note)
    storage.store(f"{tmp_path}/note", "text")
    assert synced == [(False, [".note.tmp"]), (True, ["note"])]
