"""Bundles that a process died of, so that none of them stops one start after the other.

    bundles/trying      a line "SHA256 DEATHS" for each file that was being tried when its process died

A line is on disk before anything of the bundle is opened, and gone once it was tried, with whatever verdict. A kill
that met a good bundle by chance must not cost the agent its rules: after a first death it is tried in a process of its
own before the agent opens it, and only after ``LIMIT`` of them it is refused.

Where the line cannot be written (a full disk) the bundle is tried without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vedette.bundle.seal import BundleRefused
from vedette.durable import sync_path, write_whole

LIMIT = 3
"""Deaths after which a bundle is not tried any more."""
_KEPT = 16
"""Bundles that are remembered, the newest ones."""


class Attempts:
    """The file ``trying`` of the folder of bundles; one caller at a time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "trying"

    @contextmanager
    def of(self, sha256: str) -> Iterator[int]:
        """While the bundle with this SHA-256 is tried; gives how many processes died of it before. Raises BundleRefused
        when these are enough."""
        others = self._known()
        died = others.pop(sha256, 0)
        if died >= LIMIT:
            raise BundleRefused(
                f"the agent died {died} times as it tried this bundle, so it is not tried again: publish other rules"
                f" under a higher version, or remove {self._path} to try it once more"
            )
        self._write(others | {sha256: died + 1})
        try:
            yield died
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
                write_whole(self._path, "".join(lines[-_KEPT:]).encode())
            elif self._path.exists():
                self._path.unlink()
                sync_path(self._path.parent)
