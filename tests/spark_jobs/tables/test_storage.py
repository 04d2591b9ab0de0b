"""Locks of folders: one holder at a time, wherever the folder lies."""

from __future__ import annotations

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
