"""Bundles that a process died of, so that none of them stops one start after the other.

    bundles/trying      a line "SHA256 DEATHS" for each file that the agent had open when it died

A line is on disk before the agent itself opens the bundle, and gone once it has tried it, with whatever verdict. A kill
that met a good bundle by chance must not cost the agent its rules: so the time between is short, after a death a bundle
is tried in a process of its own before the agent opens it again, and only after ``LIMIT`` of them it is refused.

Where the line cannot be written (a full disk) the bundle is tried without. A line that is torn counts as none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vedette.bundle.seal import BundleRefused
from vedette.system.durable import sync_path

LIMIT = 3
"""Deaths after which a bundle is not tried any more."""
_KEPT = 16
"""Bundles that are remembered, the newest ones."""


class Attempts:
    """The file ``trying`` of the folder of bundles; one caller at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "trying"

    def died(self, sha256: str) -> int:
        """How many processes died of the bundle with this SHA-256. Raises BundleRefused when these are enough."""
        deaths = self._known().get(sha256, 0)
        if deaths >= LIMIT:
            raise BundleRefused(
                f"the agent died {deaths} times as it tried this bundle, so it is not tried again: publish other rules"
                f" under a higher version, or remove {self._path} to try it once more"
            )
        return deaths

    @contextmanager
    def of(self, sha256: str) -> Iterator[None]:
        """While the agent tries the bundle with this SHA-256."""
        others = self._known()
        deaths = others.pop(sha256, 0)
        self._write({**others, sha256: deaths + 1})
        try:
            yield
        finally:
            self._write(others)

    def _known(self) -> dict[str, int]:
        with suppress(OSError, ValueError):
            found = re.findall(r"^([0-9a-f]{64}) (\d{1,6})$", self._path.read_text("ascii"), re.MULTILINE)
            return {sha256: int(deaths) for sha256, deaths in found}
        return {}

    def _write(self, known: dict[str, int]) -> None:
        with suppress(OSError):
            if known:
                lines = [f"{sha256} {deaths}\n" for sha256, deaths in known.items()]
                with self._path.open("wb") as file:
                    file.write("".join(lines[-_KEPT:]).encode())
                    file.flush()
                    os.fsync(file.fileno())
            else:
                self._path.unlink()
            sync_path(self._path.parent)
