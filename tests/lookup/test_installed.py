"""The folder of installed lookups, as the fleet's documents move it to newer and older versions."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.lookup.tables import lookup_of
from vedette.lookup.installed import RESERVE, DiskShort, Installed, delivered
from vedette.lookup.layout import LookupRefused
from vedette.lookup.sign import sign
from vedette.region.sign import public_text

KEY = Ed25519PrivateKey.generate()
START = 1_700_000_000_000_000


def signed(folder: Path, number: int, fleet: str = "plants", channel: str = "stable") -> Path:
    """Version ``number`` of the lookup ``users``, built the later the higher it is."""
    path = folder / str(number) / "users.vlookup"
    path.parent.mkdir()
    lookup_of(path, "user", "user", [(f"user{number}",)], name="users", created=START + number).close()
    sign(path, path, KEY, fleet, channel)
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


@pytest.mark.parametrize("by_fleet", [False, True])
def test_what_was_rolled_back_does_not_come_again(tmp_path: Path, by_fleet: bool) -> None:
    """The version that was rolled back is refused, one that was built later is not; after that none that is older
    comes from anywhere but the fleet's documents."""
    versions = [signed(tmp_path, number) for number in range(3)]
    installed = Installed(tmp_path / "lookups", (public_text(KEY),), fleet="plants", channel="stable")

    def take(number: int) -> bool:
        part = installed.take(versions[number], by_fleet=by_fleet)
        return part is not None and installed.install(part, by_fleet=by_fleet) == installed.current("users")

    assert take(0)
    assert take(1)
    assert installed.rollback("users").name.startswith(f"{START}-")
    with pytest.raises(LookupRefused, match="rolled back on this agent"):
        take(1)
    assert take(2)
    if by_fleet:
        assert take(1)
    else:
        with pytest.raises(LookupRefused, match="before the installed version"):
            take(1)


def test_signed_for_others(tmp_path: Path) -> None:
    """A lookup of another fleet or another channel is not taken, and the refusal names both."""
    installed = Installed(tmp_path / "lookups", (public_text(KEY),), fleet="plants", channel="stable")
    for number, (fleet, channel) in enumerate((("mines", "stable"), ("plants", "canary"))):
        version = signed(tmp_path, number, fleet, channel)
        with pytest.raises(LookupRefused, match=f"signed for fleet {fleet}, channel {channel}"):
            installed.take(version)


def test_a_disk_without_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup that would leave less than the reserve free waits until there is room; what has arrived of it already
    takes none."""
    version = signed(tmp_path, 0)
    installed = Installed(tmp_path / "lookups", (public_text(KEY),), fleet="plants", channel="stable")
    enough = version.stat().st_size + RESERVE
    disk = SimpleNamespace(f_bavail=enough - 1, f_frsize=1)
    monkeypatch.setattr("os.statvfs", lambda _: disk)
    with pytest.raises(DiskShort, match=f"needs {enough:,} bytes .* and {enough - 1:,} are free"):
        installed.take(version)
    disk.f_bavail = enough
    assert installed.take(version) is not None
    disk.f_bavail = RESERVE
    part = installed.take(version)
    assert part is not None
    assert part.had == 1
