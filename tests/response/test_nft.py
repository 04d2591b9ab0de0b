"""The scripts that nft gets, against a real one."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.response.hosts import NFT, Hosts, hosts
from vedette.response.nft import Nft

pytestmark = pytest.mark.peer
ALLOWED = [ip_network(one) for one in ("10.0.0.0/8", "10.1.0.0/16", "192.0.2.1/32", "2001:db8::/64")]


def at(network: Hosts, tmp_path: Path, most: int = 2) -> Nft:
    """An nft of that host."""
    program = tmp_path / "nft"
    program.write_text(f'#!/bin/sh\nexec {" ".join(network.inside(NFT))} "$@"\n')
    program.chmod(0o755)
    return Nft(program, "vedette", most)


def elements(network: Hosts, name: str) -> str:
    return network.nft("list", "set", "inet", "vedette", name).partition("elements")[2]


def test_elements(tmp_path: Path) -> None:
    """Added, added again with another time, removed, removed though missing: each in any state of the set."""
    with hosts() as network:
        nft = at(network, tmp_path)
        nft.run(nft.replace({"203.0.113.9": 60_000, "2001:db9::9": 60_000}, ALLOWED), check=True)
        assert nft.shape() == ""
        nft.run(nft.replace({"203.0.113.9": 60_000, "2001:db9::9": 60_000}, ALLOWED))
        shape = nft.shape()
        assert "2001:db9::9 timeout 1m" in elements(network, "blocked6")
        nft.run(nft.added({"203.0.113.9": 3_600_000, "203.0.113.10": 5_000}))
        assert "203.0.113.9 timeout 1h" in elements(network, "blocked4")
        nft.run(nft.removed(["203.0.113.9", "2001:db9::9", "203.0.113.77"]))
        assert "203.0.113.9" not in elements(network, "blocked4")
        assert elements(network, "blocked6") == ""
        assert nft.shape() == shape
        nft.run(nft.gone())
        nft.run(nft.gone())
        assert nft.shape() == ""


def test_a_new_time_takes_the_place_of_the_old(tmp_path: Path) -> None:
    """An element is added, so that it can be deleted, and added again: older kernels than this one keep its time."""
    script = Nft(tmp_path / "nft", "vedette", 1).added({"203.0.113.9": 5000})
    element = "element inet vedette blocked4 { 203.0.113.9"
    add = f"add {element} timeout 5000ms }}"
    assert script.splitlines() == [add, f"delete {element} }}", add]


def test_errors(tmp_path: Path) -> None:
    """Full, missing, hanging, not a program: each says what to do; a refused transaction changes nothing."""
    with hosts() as network:
        nft = at(network, tmp_path, most=1)
        nft.run(nft.replace({}, ALLOWED))
        with pytest.raises(OSError, match="the set is full"):
            nft.run(nft.added({f"203.0.113.{n}": 5000 for n in range(3)}))
        assert elements(network, "blocked4") == ""
        with pytest.raises(OSError, match="nft: "):
            nft.run("rubbish\n")
    with pytest.raises(OSError, match="is missing: install nftables"):
        Nft(tmp_path / "none", "vedette", 1).shape()
