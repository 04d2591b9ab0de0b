"""The fleet's signed documents, as they lie in the folder of ``vedette fleet init``; read again when a file changed.

Blocking: call it in a thread. ``Contents.fault`` says what cannot be read, and what was read before stays.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from vedette.fleet.documents import Desired, Group, Rollout
from vedette.fleet.operators import Operators
from vedette.region import compare
from vedette.region.repository import Repository, Signatures, Warned
from vedette.region.steer.ordering import controller_keys
from vedette.system.durable import stamp

AGAIN_SECONDS = 60.0
"""After which warnings, which depend on the time, are worked out again."""


@dataclass(frozen=True, slots=True)
class Contents:
    """``fault``: why something of it could not be read. ``trusted_until``: UTC microseconds."""

    fleet: str = ""
    desired: Desired | None = None
    rollout: Rollout | None = None
    operators: Operators | None = None
    keys: tuple[Ed25519PublicKey, ...] = ()
    warnings: tuple[Warned, ...] = ()
    signatures: tuple[Signatures, ...] = ()
    staged: tuple[compare.Difference, ...] = ()
    trusted_until: int = 0
    fault: str = ""

    def group(self, name: str) -> Group | None:
        """The group of that name that is desired."""
        groups = self.desired.groups if self.desired is not None else ()
        return next((group for group in groups if group.name == name), None)


@dataclass(slots=True)
class Documents:
    folder: Path | None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _seen: tuple[Any, ...] = ()
    _at: float = -AGAIN_SECONDS
    _contents: Contents = field(default_factory=Contents)

    def read(self) -> Contents:
        with self._lock:
            if self.folder is None:
                return self._contents
            seen = self._stamp(self.folder)
            if seen != self._seen or time.monotonic() - self._at >= AGAIN_SECONDS:
                self._contents = self._read(Repository(self.folder))
                self._seen, self._at = seen, time.monotonic()
            return self._contents

    def _stamp(self, folder: Path) -> tuple[Any, ...]:
        names = ("tuf/timestamp.json", "staged", "staged/targets.json", "staged/root.json", "tuf")
        return tuple(stamp(folder / name) for name in names)

    def _read(self, repository: Repository) -> Contents:
        try:
            desired = repository.desired()
            targets: Any = repository.newest("targets")
            until = round(targets.signed.expires.replace(tzinfo=UTC).timestamp() * 1e6) if targets is not None else 0
            next_ = repository.desired(staged=True) if repository.staged("targets") is not None else None
            return Contents(
                repository.fleet, desired, repository.rollout(), repository.operators(),
                tuple(controller_keys(repository)) if targets is not None else (), tuple(repository.warnings()),
                tuple(repository.signatures()),
                tuple(compare.differences(desired, next_)) if next_ is not None else (), until,
            )  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError) as error:  # a file that is being replaced, or was damaged
            return replace(self._contents, fault=str(error))
