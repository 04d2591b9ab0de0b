"""One fleet of 8 real and many simulated agents at a real mosquitto with TLS and access list: every kind of bad change
is stopped at the canary and undone, and no other agent ever had it; a good one reaches all; hosts answer their
operators as far as their owners allow."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from bench.fleet.world import Site, World
from tests.broker import own_port
from tests.e2e.agent import up, vedette
from tests.e2e.test_asking import Asked, Operators
from tests.e2e.test_fleet import FLEET
from tests.e2e.test_hunting import RULES, by_agent, rules
from tests.e2e.test_steer import Edge, Steered, written
from tests.meanwhile import meanwhile
from tests.waits import DEADLINE, until
from vedette.region.repository import Repository
from vedette.system import descriptors

pytestmark = [pytest.mark.peer, pytest.mark.long, pytest.mark.usefixtures("awake")]
SIMULATED = int(os.environ.get("VEDETTE_SIMULATED", "200"))
BEAT = 8.0
CANARY = 2
PLANTED = {"vienna-1": 3, "linz-2": 5, "linz-4": 1}
GOOD, FLOODS, DEADLY, JAMS, FINE = 1, 2, 3, 4, 5
HARMS = {FLOODS: ("flood", "alerts"), DEADLY: ("crash", "crashes"), JAMS: ("quarantine", "quarantined")}
"""What each bad bundle does to a simulated agent, and the gate that finds it."""
RINGS = f"""
[[ring]]
name = "canary"
agents = {CANARY}
soak = "10s"

[[ring]]
name = "half"
percent = 50
soak = "2s"

[[ring]]
name = "all"
percent = 100
soak = "2s"

[gates]
baseline = "3s"
silence = "120s"
alerts_floor = 60
"""
GROUPS = """
[[group]]
name = "plants"
match = "site in (vienna, linz)"
bundle = "{bundle}"
{overlay}

[[group]]
name = "crowd"
match = "all"
bundle = "{bundle}"
"""


JAMMING = """
name = "gate"
starts = "GATE"
regex = '(?P<gate>GATE(?:1|11)+)(?P<way>[xy])\\d'
"""
"""A format that takes for ever for what a gate really writes: the decoder of a bundle that does harm."""


class Plant(Edge, Asked):
    """A host that logs ten lines a second, has a gate at its door whose format is yet to come, and answers its fleet's
    operators."""

    def configure(self, settings: str) -> None:
        super().configure(settings)
        self.gate = self.folder / "gate.log"
        self.gate.touch()
        with self.config.open("a") as config:
            config.write(
                f'[[input]]\nname = "gate"\ntype = "file"\npaths = ["{self.gate}"]\nformat = "rules:gate"\n'
                'logsource = { product = "linux" }\n'
            )

    def pass_by(self, number: int) -> None:
        """Some people go through the gate."""
        with self.gate.open("a") as file:
            file.write("".join(f"GATE{'1' * 60}x! person {number} {i}\n" for i in range(4)))

    def plant(self, count: int) -> None:
        """So many lines that a hunt is to find; until they are stored."""
        with self.file.open("a") as file:
            for i in range(count):
                file.write(f"<13>Nov 23 10:00:00 {self.name} app: needle {i} password=s3cret{i}\n")
        until("the planted lines", lambda: sum(b"needle" in one.raw for one in self.stored("app")) == count)


class Private(Plant):
    """Its owner gives no evidence away."""

    allow = ("ask", "hunt")


class Region(Steered, Operators):
    """A centre whose broker has two more listeners, without access list, for agents that are simulated."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.site = Site(self.broker, own_port(), own_port(), self.operator / "region-ca.pem")
        home = self.members / "members" / "broker"
        config = self.broker.config.read_text().replace("autosave_on_changes true", "autosave_on_changes false")
        more = [
            f"listener {self.site.port} 127.0.0.1", "allow_anonymous true",
            f"listener {self.site.tls_port} 127.0.0.1", "allow_anonymous true", f"cafile {self.site.ca}",
            f"certfile {home}/agent.pem", f"keyfile {home}/agent.key",
        ]  # fmt: skip
        self.broker.config.write_text("\n".join(["per_listener_settings true", config, *more]) + "\n")

    def desire(self, bundle: str, overlay: str = "", *, rings: bool = True) -> None:
        line = f'config = "{overlay}"' if overlay else ""
        groups = GROUPS.format(bundle=bundle, overlay=line)
        self.toml.write_text("\n".join([RINGS if rings else "", self.operators(), groups]))
        self.put_in_force()

    def states(self, kind: str) -> dict[str, str]:
        """Of the changes of a kind, by group; those that did not begin are missing."""
        repository = Repository(self.trust)
        desired, rollout = repository.desired(), repository.rollout()
        if desired is None or rollout is None:
            return {}
        return {
            group.name: str(rollout.changes[change.id].state)
            for group in desired.groups
            for of, _, change in group.changes()
            if of == kind and change.id in rollout.changes
        }

    def reach(self, state: str, *, kind: str = "bundles", groups: int = 2) -> None:
        try:
            until(
                f"the change to be {state}",
                lambda: self.controller.alive() and [*self.states(kind).values()] == [state] * groups,
            )
        except AssertionError as error:
            shown = vedette("fleet", "rollout", "show", "--trust", self.trust, *self.at_broker, code=None).stdout
            raise AssertionError(f"{error}\n{shown}\n{self.controller.text()[-4000:]}") from None


class Heard:
    """What every heartbeat of the fleet says runs, from the first on. A host whose heartbeat says that it runs
    ``deadly`` is killed, once, and started again."""

    def __init__(self, port: int, hosts: list[Plant]) -> None:
        self.ran: dict[str, set[int]] = defaultdict(set)
        """Versions of bundles, by agent."""
        self.overlaid: set[str] = set()
        self.newest: dict[str, int] = {}
        self.deadly = 0
        self._hosts = {host.name: host for host in hosts}
        self._stop = threading.Event()
        self._client = Client(CallbackAPIVersion.VERSION2, "heard", protocol=MQTTv5)
        self._client.on_connect = lambda client, *_: client.subscribe(f"vedette/v1/{FLEET}/+/status", qos=1)
        self._client.on_message = self._came
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._thread = threading.Thread(target=self._kill)
        self._thread.start()

    def _came(self, client: Client, data: object, message: MQTTMessage) -> None:
        actual = orjson.loads(message.payload).get("actual")
        if actual is None:  # a last will
            return
        id, version = message.topic.split("/")[-2], actual["bundles"].get("default", {"version": 0})["version"]
        self.ran[id].add(version)
        self.newest[id] = version
        if actual["config"].get("overlay"):
            self.overlaid.add(id)

    def _kill(self) -> None:
        died: set[str] = set()
        while not self._stop.wait(0.1):
            for name, host in self._hosts.items():
                if self.deadly and self.newest.get(name) == self.deadly and name not in died:
                    died.add(name)
                    host.kill()
                    host.start()

    def having(self, version: int) -> set[str]:
        return {id for id, ran in [*self.ran.items()] if version in ran}

    def all_run(self, version: int) -> None:
        """Until every agent does."""
        count = SIMULATED + len(self._hosts)
        until(f"{count} agents to run bundle {version}", lambda: [*self.newest.values()].count(version) == count)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._client.loop_stop()
        self._client.disconnect()


class Crowd:
    """Simulated agents, in an event loop of a thread."""

    def __init__(self, folder: Path, centre: Region) -> None:
        self.world = World(folder, beat_seconds=BEAT, fleet=FLEET, site=centre.site)
        self.world.populate(SIMULATED)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def _run(self, what: Coroutine[Any, Any, None]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop)

    def connect(self) -> None:
        self._run(self.world.connect()).result(DEADLINE)
        self._run(self.world.beating())

    def close(self) -> None:
        self._run(self._end()).result(DEADLINE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for agent in self.world.agents:
            if agent.client is not None:
                agent.client.abort()
        while self.world.connected > 0:
            await asyncio.sleep(0.05)

    def having(self, sha256: str) -> set[str]:
        """Those that ever ran it, whatever they reported."""
        return {agent.id for agent in self.world.agents if sha256 in agent.history}


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Region]:
    descriptors.raise_limit()
    made = Region(tmp_path / "centre")
    (made.folder / "hunt.yml").write_text(RULES)
    yield made
    made.controller.kill()
    made.broker.kill()


@pytest.fixture
def hosts(centre: Region, tmp_path: Path) -> Iterator[list[Plant]]:
    """Eight agents at two sites, of which the last is private."""
    names = [f"{site}-{i}" for site in ("vienna", "linz") for i in range(1, 5)]
    made = [
        (Private if name == names[-1] else Plant)(tmp_path / name, centre, name, name.partition("-")[0])
        for name in names
    ]
    centre.broker.start()
    with up(*made):
        yield made


@pytest.fixture
def crowd(centre: Region, hosts: list[Plant], tmp_path: Path) -> Iterator[Crowd]:
    made = Crowd(tmp_path / "crowd", centre)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def heard(centre: Region, hosts: list[Plant]) -> Iterator[Heard]:
    made = Heard(centre.site.port, hosts)
    try:
        yield made
    finally:
        made.close()


def test_scenario(centre: Region, hosts: list[Plant], heard: Heard, crowd: Crowd) -> None:
    """A flood, a crash, a format that jams its decoder and a cut uplink reach two agents of each group at most, by all
    heartbeats and the agents' own records, and are undone; a good bundle reaches all; a hunt finds what was planted,
    and evidence is refused where the owner says so, on record at both sides."""
    good, floods, deadly, fine = (
        centre.rules(version, word)
        for version, word in ((GOOD, "haystack"), (FLOODS, "line"), (DEADLY, "pin"), (FINE, "hay"))
    )
    jams = centre.rules(JAMS, "GATE", JAMMING)
    real = {host.name for host in hosts}
    centre.desire(good, rings=False)
    crowd.connect()
    heard.all_run(GOOD)
    centre.controller.start()
    with written([*hosts]):
        _stopped(centre, hosts, heard, crowd, FLOODS, floods)
        heard.deadly = DEADLY
        _stopped(centre, hosts, heard, crowd, DEADLY, deadly)
        with meanwhile(passing(hosts), 0.2):
            _stopped(centre, hosts, heard, crowd, JAMS, jams)
        assert 0 < len([host for host in hosts if "format_quarantined" in host.text()]) <= CANARY

        centre.desire(fine)
        centre.reach("done")
        heard.all_run(FINE)
        assert heard.having(FINE) == real | {agent.id for agent in crowd.world.agents}
        assert all(host.installed()[-1] == FINE for host in hosts)

        cut = centre.overlay("cut", '[broker]\nurl = "mqtts://127.0.0.1:1"\n')
        centre.desire(fine, cut)
        centre.reach("aborted", kind="config", groups=1)
        canary = {host.name for host in hosts if "overlay_applied" in host.recorded()}
        assert len(canary) == CANARY
        assert canary >= heard.overlaid
        for host in hosts:
            host.wait("its own settings", lambda actual: not actual["config"]["overlay"])
            until("its uplink", lambda host=host: host.status()["uplink"]["connected"])
            assert host.recorded().count("overlay_undone") >= (host.name in canary)

        _asked(centre, hosts)
    assert {"rollout_aborted", "rollout_done"} <= {row["event"] for row in centre.recorded()}


def passing(hosts: list[Plant]) -> Callable[[int], None]:
    def passed(number: int) -> None:
        for host in hosts:
            host.pass_by(number)

    return passed


def _stopped(centre: Region, hosts: list[Plant], heard: Heard, crowd: Crowd, version: int, bundle: str) -> None:
    """A bad bundle is given to the canary of each group, and all run the good one again."""
    sha256 = hashlib.sha256((centre.folder / bundle).read_bytes()).hexdigest()
    crowd.world.harms[sha256], gate = HARMS[version]
    centre.desire(bundle)
    centre.reach("aborted")
    heard.all_run(GOOD)
    shown = vedette("fleet", "rollout", "show", "--json", "--trust", centre.trust, *centre.at_broker, code=None).stdout
    rows = [json.loads(line) for line in shown.splitlines()]
    assert {row["group"] for row in rows} == {"plants", "crowd"}
    assert all(any(reason.startswith(gate) for reason in row["reasons"]) for row in rows), shown
    simulated = crowd.having(sha256)
    loaded = {host.name for host in hosts if version in host.installed()}
    assert 0 < len(loaded) <= CANARY  # on a busy machine the first one to take it is enough to stop it
    assert 0 < len(simulated) <= CANARY
    assert set() < heard.having(version) <= loaded | simulated


def _asked(centre: Region, hosts: list[Plant]) -> None:
    """The hunt over eight hosts, and evidence of two."""
    for host in hosts:
        if count := PLANTED.get(host.name):
            host.plant(count)
    hunt = ("hunt", centre.folder / "hunt.yml", "--group", "site in (vienna, linz)", "--json")
    rows = by_agent(centre.fleet("ann", *hunt, wait="120s").stdout)
    assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys((host.name for host in hosts), "done")
    assert {name: n for name, row in rows.items() if (n := rules(row).get("Planted"))} == PLANTED

    willing, private = hosts[0], hosts[-1]
    words = ("--from", "2026-01-01", "--to", "2099-01-01", "--pattern", "needle", "--evidence", centre.evidence)
    asked = ("evidence", *words, "--reason", "case 18", "--agent")
    shown = centre.fleet("ann", *asked, willing.name).stdout
    assert shown.count("needle") == PLANTED[willing.name]
    assert "s3cret" not in shown
    refused = centre.fleet("ann", *asked, private.name, code=1).stderr
    assert "the owner of this host does not allow evidence" in refused
    assert private.refusals() == ["not allowed"]
    row = next(row for row in willing.record if row["event"] == "request_received" and row["kind"] == "evidence")
    assert (row["operator"], row["reason"]) == ("ann", "case 18")
    ends = [row for row in centre.record if row["event"] == "reply_whole" and row["agent"] == private.name]
    assert (ends[-1]["state"], "does not allow evidence" in ends[-1]["why"]) == ("refused", True)
    made = [row for row in centre.record if row["event"] == "request_made" and row["kind"] == "evidence"]
    assert [(row["operator"], row["reason"]) for row in made] == [("ann", "case 18")] * 2
