"""The folder of installed lookups, as the fleet's documents move it to newer and older versions."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.lookup.tables import made
from vedette.lookup.installed import Installed, delivered
from vedette.lookup.sign import sign
from vedette.region.sign import public_text

KEY = Ed25519PrivateKey.generate()
START = 1_700_000_000_000_000


def signed(folder: Path, number: int) -> Path:
    """Version ``number`` of the lookup ``users``, built the later the higher it is."""
    path = folder / str(number) / "users.vlookup"
    path.parent.mkdir()
    made(path, "user", "user", [(f"user{number}",)], name="users", created=START + number).close()
    sign(path, path, KEY, "plants", "stable")
    return path


@pytest.mark.parametrize("order", [(*one, one[0]) for one in permutations(range(3))])
def test_rules_ask_what_is_current(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Of a name's versions rules ask the one that was built last, where they look at both: the one before is never the
    later one, whatever the order in which the documents name them."""
    versions = [signed(tmp_path, number) for number in range(3)]
    installed = Installed(tmp_path / "lookups", (public_text(KEY),), fleet="plants", channel="stable")
    for number in order:
        part = installed.take(versions[number], by_fleet=True)
        assert part is not None
        current = installed.install(part, by_fleet=True)
        assert current == installed.current("users")
        now, before = delivered(tmp_path / "lookups")
        assert now["users"].header.created == START + number
        assert before["users"].header.created <= START + number if before else True
        for one in (*now.values(), *before.values()):
            one.close()
        assert {path.name for path in current.parent.glob("1*.vlookup")} <= {
            path.name for path in (current, installed.previous("users")) if path is not None
        }
