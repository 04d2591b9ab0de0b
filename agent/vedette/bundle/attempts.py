"""Bundles that the agent died of, so that none of them stops one start after the other.

    bundles/trying      a line "SHA256 DEATHS SECONDS" for each file that the agent had open when it died

A line is on disk before the agent itself opens the bundle, and removed once it has tried it, with whatever verdict;
SECONDS is when it was last opened. A kill that meets a good bundle by chance must not cost the agent its rules: the
time between is short, after a death the bundle must pass a dry run in a process of its own before the agent opens it
again, and after ``LIMIT`` deaths the agent opens it only once in ``REST``. So a deadly bundle costs one start an hour,
and a good one that was killed three times in a row is back after an hour at the latest.

Where the line cannot be written (a full disk) the bundle is tried without. A torn line counts as none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vedette.bundle.seal import BundleRefused
from vedette.system.durable import sync_path

LIMIT = 3
"""Deaths after which a bundle rests between two attempts."""
REST = 3600
"""Seconds of it."""
_KEPT = 16
"""Bundles that are listed, the newest ones."""
_LINE = re.compile(r"^([0-9a-f]{64}) (\d{1,6}) (\d{1,12})$", re.MULTILINE)


class Attempts:
    """The file ``trying`` of the folder of bundles; one caller at a time. ``clock`` in UTC microseconds."""

    def __init__(self, folder: Path, clock: Callable[[], int]) -> None:
        self._path = folder / "trying"
        self._clock = clock

    def died(self, sha256: str) -> int:
        """How many processes died of the bundle with this SHA-256. Raises BundleRefused while it rests."""
        deaths, last = self._known().get(sha256, (0, 0))
        if deaths >= LIMIT and abs(self._now() - last) < REST:  # a clock that was set back says nothing
            raise BundleRefused(
                f"the agent died {deaths} times while loading this bundle, and tries it again in an hour at the"
                f" earliest: publish other rules under a higher version, or remove {self._path} to try it at once"
            )
        return deaths

    @contextmanager
    def of(self, sha256: str) -> Iterator[None]:
        """While the agent tries the bundle with this SHA-256."""
        others = self._known()
        deaths, _ = others.pop(sha256, (0, 0))
        self._write({**others, sha256: (min(deaths + 1, 999_999), self._now())})
        try:
            yield
        finally:
            self._write(others)

    def _now(self) -> int:
        return self._clock() // 1_000_000

    def _known(self) -> dict[str, tuple[int, int]]:
        """Deaths and seconds by SHA-256."""
        with suppress(OSError, ValueError):
            rows = _LINE.findall(self._path.read_text("ascii"))
            return {sha256: (int(deaths), int(last)) for sha256, deaths, last in rows}
        return {}

    def _write(self, attempts: dict[str, tuple[int, int]]) -> None:
        with suppress(OSError):
            if attempts:
                lines = [f"{sha256} {deaths} {last}\n" for sha256, (deaths, last) in attempts.items()]
                with self._path.open("wb") as file:
                    file.write("".join(lines[-_KEPT:]).encode())
                    file.flush()
                    os.fsync(file.fileno())
            else:
                self._path.unlink()
            sync_path(self._path.parent)
