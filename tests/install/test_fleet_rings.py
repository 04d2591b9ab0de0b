"""Releases in rings: installed agents with their supervisors, a real broker and the real controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.agent import KILLS
from tests.e2e.test_steer import Steered
from tests.install.conftest import Place, Variant
from tests.install.test_fleet_upgrade import Host, launcher, want, wanted_id
from tests.waits import until

pytestmark = [pytest.mark.install, pytest.mark.peer, pytest.mark.long]
NAMES = ("vienna-1", "vienna-2")
RINGS = """
[[ring]]
name = "canary"
agents = 1
soak = "2s"

[[ring]]
name = "all"
percent = 100
soak = "1s"

[gates]
baseline = "2s"
silence = "120s"
"""
BAD: Mapping[str, tuple[Mapping[str, bytes], tuple[str, ...]]] = {
    "fails its self-test": (launcher("echo 'no such setting'; exit 2", "check"), ("refused: ",)),
    "dies at its start": (launcher("exit 1"), ("refused: ", "crashes: ")),
}
"""A release, and the gates that may stop it."""


@pytest.fixture
def region(tmp_path: Path, release: Path, zip_file: Path) -> Iterator[tuple[Steered, list[Host]]]:
    """A controller and installed agents, whose release is the one that the documents name."""
    centre = Steered(tmp_path / "centre")
    with ExitStack() as stack:
        stack.callback(centre.broker.kill)
        stack.callback(centre.controller.kill)
        hosts = []
        for name in NAMES:
            folder = tmp_path / name
            folder.mkdir()
            place = Place(folder)
            done = place.install(release)
            assert done.code == 0, done.text
            host = Host(place, centre, name)
            stack.callback(host.kill)
            hosts.append(host)
        centre.broker.start()  # which knows all of them
        for host in hosts:
            host.start()
        want(centre, zip_file)
        for host in hosts:
            host.wait("the first release, proved", host.runs(wanted_id(centre)))
        centre.controller.start()
        yield centre, hosts


def test_releases_in_rings(region: tuple[Steered, list[Host]], variant: Variant) -> None:
    """One that fails its self-test stays with the canary, whose release before runs on; the change is aborted, and the
    other agent never asked for it. A good one then reaches both. With VEDETTE_CRASH_KILLS above 4 also one that dies,
    and that the canary goes back from by itself."""
    centre, hosts = region
    first = hosts[0].place.current()
    bad_ones = [*BAD.items()][: None if KILLS > 4 else 1]
    for number, (what, (changed, gates)) in enumerate(bad_ones, 1):
        processes = {host: host.agent() for host in hosts}
        want(centre, variant(f"bad-{number}", changed, version=f"0.2.{number}"), more=RINGS)
        bad = wanted_id(centre)
        centre.reach("aborted")  # by the refusal, and not by ``take_within``
        shown = until("the report", lambda: (row := centre.show()).get("state") == "aborted" and row)
        assert shown["reasons"][0].startswith(gates), (what, shown)
        assert "1 of 1 agents: vienna-" in shown["reasons"][0]
        for host in hosts:
            host.wait("the release before", host.runs(first))
        until("the canary to be back", lambda: centre.show()["agents"]["back"] == 1)
        had = [host for host in hosts if bad in host.about("release_asked")]
        assert len(had) == 1
        for host in hosts:
            assert host.place.current() == first
            assert [path.name for path in (host.place.prefix / "releases").iterdir()] == [first]
            if host not in had or what == "fails its self-test":
                assert host.agent() == processes[host], f"{host.name} was restarted, though the release {what}"

    want(centre, variant("good", {"note": b"good"}, version="0.3.0"), more=RINGS)
    centre.reach("done")
    good = wanted_id(centre)
    for host in hosts:
        host.wait("the good release", host.runs(good))
        assert host.place.current() == good
        assert not host.actual()["problems"]
    rings = [row["ring"] for row in centre.recorded() if row["event"] == "rollout_ring"]
    assert rings == ["canary"] * len(bad_ones) + ["canary", "all"]
