"""Lookups that the fleet's documents name, over a real broker: delivered, gone back from, taken away, refused."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import KILLS, chance, up, vedette
from tests.e2e.test_fleet import FLEET, Centre, Host
from tests.e2e.test_lookups import OTHER, RULE, Region, in_use, version
from vedette.fleet.documents import Target
from vedette.mqtt.settings import MqttSettings
from vedette.region.announce import retained
from vedette.region.repository import Repository
from vedette.region.sign import keygen

pytestmark = [pytest.mark.peer, pytest.mark.long]


class Tables(Region):
    """Lookups for the fleet, signed by the author of its bundles."""

    def __init__(self, centre: Centre) -> None:
        super().__init__(centre.folder / "tables")
        self.centre, self.key = centre, centre.folder / "author.pem"

    def users(self, *names: str) -> Path:
        return self.table("users", [(name, "owner") for name in names], fleet=FLEET)

    def asking(self, number: int, table: Path) -> str:
        """A bundle whose rule asks ``users``."""
        rules, path = self.folder / f"rules-{number}", self.centre.folder / "bundles" / f"asking-{number}.vbundle"
        rules.mkdir()
        (rules / "rule.yml").write_text(RULE)
        (rules / "other.yml").write_text(OTHER)
        shutil.copy(table, self.folder / "users.vlookup")
        vedette("bundle", "build", rules, "-o", path, "--version", number, "--lookup", self.folder / "users.vlookup",
                "--apart", "users")  # fmt: skip
        vedette("bundle", "sign", path, "--key", self.key, "--fleet", FLEET)
        return f"bundles/{path.name}"

    def publish_table(self, table: Path | None, **vienna: str) -> None:
        """The group of vienna with this lookup, or none."""
        if table is not None:
            vienna["lookups.users"] = f"tables/{table.name}"
        self.centre.publish(**vienna)


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    made = Centre(tmp_path / "centre")
    yield made
    made.broker.kill()


@pytest.fixture
def host(centre: Centre, tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "vienna", centre, "vienna-1", "vienna")
    centre.broker.start()
    with up(made):
        yield made


def wanted(centre: Centre) -> Target:
    desired = Repository(centre.trust).desired()
    assert desired is not None
    target = desired.groups[0].lookups["users"].to
    assert target is not None
    return target


def has(host: Host, table: Path) -> Any:
    """A check of the actual state: the lookup is what is loaded."""
    digest = version(table)
    return lambda actual: actual["lookups"].get("users", {}).get("digest") == digest and in_use(host) == digest


def channels(centre: Centre) -> set[str]:
    """On which a lookup of the fleet is announced."""
    member = centre.operator
    broker = MqttSettings(centre.broker.url, ca_file=member / "region-ca.pem", cert_file=member / "agent.pem",
                          key_file=member / "agent.key")  # fmt: skip
    found = asyncio.run(retained(broker, [f"vedette/v1/{FLEET}/bundles/+/lookups/+"]))
    return {topic.split("/")[4] for topic in found}


def test_there_and_back(centre: Centre, host: Host) -> None:
    """A bundle and the lookup that it asks arrive together; a newer lookup is swapped in, the older one again after it;
    what rules ask is not taken away, what nobody asks is; each is what the heartbeat proves."""
    tables = Tables(centre)
    first, second = tables.users("alice"), tables.users("alice", "bob")
    asking = tables.asking(1, first)
    tables.publish_table(first, bundle=asking)
    host.wait("the first lookup", has(host, first))
    host.wait("the bundle", lambda actual: host.bundle() == 1 and not actual["problems"])
    assert host.actual()["lookups"]["users"]["sha256"] == wanted(centre).sha256
    assert "vienna: 1 of 1 as wanted" in vedette("fleet", "status", "--trust", centre.trust, *centre.at_broker).stdout

    tables.publish_table(second, bundle=asking)
    host.wait("the second", has(host, second))
    assert channels(centre) == {f"fleet-{version(one)[:16]}" for one in (first, second)}
    tables.publish_table(first, bundle=asking)
    host.wait("the first again", has(host, first))
    host.kill()
    host.start()
    host.ready()
    host.wait("the first after a kill", has(host, first))
    assert host.actual()["lookups"]["users"]["sha256"] == wanted(centre).sha256

    tables.publish_table(None, bundle=asking)
    host.wait("the refusal", lambda actual: any("cannot be taken away" in one for one in actual["problems"]))
    assert in_use(host) == version(first)
    tables.publish_table(None, bundle=centre.bundle(2))
    host.wait("none", lambda actual: not actual["lookups"] and not actual["problems"])
    assert not in_use(host)
    assert host.recorded().count("lookup_wanted") == 3
    assert host.recorded()[-1] == "lookup_removed"


def test_what_is_refused(centre: Centre, host: Host) -> None:
    """A lookup of a key that the agent does not trust, and one that the owner has rolled back, are named in the
    heartbeat; what was in use stays. Announcements of the agent's own channel no longer count."""
    tables = Tables(centre)
    first, second = tables.users("alice"), tables.users("bob")
    tables.publish_table(first)
    host.wait("the first", has(host, first))
    author, tables.key = tables.key, centre.folder / "foreign.pem"
    keygen(tables.key)
    foreign, tables.key = tables.users("mallory"), author
    tables.publish_table(foreign)
    host.wait("the refusal", lambda actual: any("not among bundles.trusted_keys" in one for one in actual["problems"]))
    assert in_use(host) == version(first)

    tables.publish_table(second)
    host.wait("the second", has(host, second))
    vedette("lookup", "rollback", "users", "-c", host.config)
    host.wait(
        "the owner's no", lambda actual: any("was rolled back on this agent" in one for one in actual["problems"])
    )
    assert in_use(host) == version(first)
    assert "lookup_not_installed" in host.recorded()

    third = tables.users("carol")
    vedette("region", "publish", third, *centre.at_broker)
    tables.publish_table(second, bundle=centre.bundle(1))
    host.wait("what came after it", lambda actual: host.bundle() == 1)
    assert in_use(host) == version(first)


def test_killed_at_random(centre: Centre, host: Host) -> None:
    """Wherever the agent is killed while bundle, overlay and a lookup of some megabytes change, it ends with what is
    desired, and never ran anything that was not."""
    tables, rng, levels = Tables(centre), chance(), ("info", "debug")
    versions = [tables.users(*(f"user{number:06d}-{step}" for number in range(40_000))) for step in range(3)]
    for step in range(1, KILLS + 1):
        text = f'[log]\nlevel = "{levels[step % 2]}"\n[agent]\nmax_memory = "{700 + step}MiB"\n'
        bundle, overlay = centre.bundle(1 + step % 2), centre.overlay(f"o{step}", text)
        tables.publish_table(versions[step % 3], bundle=bundle, config=overlay)
        for _ in range(2):
            time.sleep(rng.uniform(0, 2))
            host.kill()
            host.start()
    host.ready()
    host.wait("the last lookup", has(host, versions[KILLS % 3]))
    host.wait(
        "what is desired",
        lambda actual: (
            actual["desired_serial"] == KILLS
            and actual["bundles"]["default"]["version"] == 1 + KILLS % 2
            and actual["lookups"]["users"]["sha256"] == wanted(centre).sha256
            and actual["config"]["confirmed"]
            and actual["config"]["overlay"]
            and not actual["problems"]
        ),
    )
    assert {"overlay_undone", "overlay_refused", "bundle_refused"}.isdisjoint(host.recorded())
