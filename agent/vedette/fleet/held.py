"""What python-tuf keeps of a fleet's metadata, looked at for what it does not check itself: by the newest signed time
whether they have expired, and whether a role counts one key several times. Nothing here is trusted by being read.

python-tuf counts signatures by key id, and takes whatever ids the root gives: one key under three ids would meet a
threshold of three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from typing import Any

from tuf.api.metadata import Metadata, Root, Snapshot, Targets, Timestamp

from vedette.model.times import iso_time, micros

TIME = "x-vedette-time"
"""When the timestamp was signed, in its metadata; those of an older centre lack it."""
_KINDS: dict[str, Any] = {
    "root": Root, "timestamp": Timestamp, "snapshot": Snapshot, "targets": Targets, "rollout": Targets,
}  # fmt: skip


class Held(dict[str, Any]):
    """The signed parts by role; a file that is missing or damaged lacks: the next refresh fetches it."""

    @classmethod
    def of(cls, folder: Path) -> Held:
        parts = cls()
        for role, kind in _KINDS.items():
            with suppress(Exception):  # python-tuf raises several kinds for what is no metadata
                signed: Any = Metadata.from_file(str(folder / f"{role}.json")).signed
                if isinstance(signed, kind):
                    parts[role] = signed
        return parts

    def versions(self) -> dict[str, int]:
        return {role: signed.version for role, signed in self.items()}

    def expires(self, role: str) -> int:
        """UTC microseconds; 0: there is none."""
        return micros(self[role].expires.replace(tzinfo=UTC)) if role in self else 0

    def stamped(self) -> int:
        """When the timestamp was signed, in UTC microseconds; 0: it does not say so."""
        stated = self["timestamp"].unrecognized_fields.get(TIME) if "timestamp" in self else None
        return (iso_time(stated) or 0) if isinstance(stated, str) else 0

    def expired(self, roles: Iterable[str], now: int) -> str:
        """Which of the roles has expired, and when; empty: none."""
        for role in roles:
            if role in self and self.expires(role) <= now:
                return f"{role}.json expired at {self[role].expires:%Y-%m-%dT%H:%M:%SZ}"
        return ""

    def doubled(self) -> str:
        """Which role counts one key several times; empty: none."""
        root, targets = self.get("root"), self.get("targets")
        roles = {} if root is None else {name: (role, root.keys) for name, role in root.roles.items()}
        if targets is not None and targets.delegations is not None:
            delegated = targets.delegations
            roles |= {name: (role, delegated.keys) for name, role in (delegated.roles or {}).items()}
        for name, (role, keys) in roles.items():
            values = Counter(str(keys[keyid].keyval.get("public")) for keyid in role.keyids if keyid in keys)
            if any(count > 1 for count in values.values()):
                return f"{name} has one key under several key ids"
        return ""
