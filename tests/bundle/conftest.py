"""A signing key, and bundles made with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vedette.region.build import build
from vedette.region.sign import keygen, load_key, public_text, sign

DAY = 86_400_000_000
CREATED = 1_900_000_000_000_000
FLEET, CHANNEL = "f1", "stable"


@dataclass
class Author:
    """Somebody with a key who builds and signs bundles."""

    path: Path
    public: str = field(init=False)

    def __post_init__(self) -> None:
        self.public = keygen(self.path)
        self.key = load_key(self.path)
        assert public_text(self.key) == self.public

    def build(self, version: int = 1, **changes: Any) -> bytes:
        values: dict[str, Any] = {
            "name": "starter",
            "version": version,
            "created": CREATED,
            "expires": CREATED + 30 * DAY,
            "plan": b"plan of version %d" % version,
            "databases": {"prefilter": b"\xdb" * 100},
            "sources": {"linux/sshd.yml": b"title: a rule\n"},
            "rules": [{"id": "r1", "title": "a rule", "level": "high"}],
            "tests": [{"raw": b"<38>a line", "rules": ["r1"]}],
            "hyperscan_version": "5.4.12",
            "min_agent": "0.1.0",
        }
        return build(**(values | changes))

    def bundle(self, version: int = 1, *, fleet: str = FLEET, channel: str = CHANNEL, **changes: Any) -> bytes:
        return sign(self.build(version, **changes), self.key, fleet, channel)


@pytest.fixture
def author(tmp_path: Path) -> Author:
    return Author(tmp_path / "author.pem")


@pytest.fixture
def another(tmp_path: Path) -> Callable[[], Author]:
    return lambda: Author(tmp_path / "another.pem")
