"""A fleet in memory that follows real documents by the agents' own code, and a controller that may die at any step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgpack

from tests.fleet.kit import FLEET, desired, group, target
from vedette.fleet.documents import Change, Desired, Ring, Rollout, read_desired, read_rollout, wanted
from vedette.region.steer.agents import SECOND, Agents
from vedette.region.steer.rings import Move, Note, Step
from vedette.region.steer.steering import Steering

OLD, NEW = target("bundles/1", b"old"), target("bundles/2", b"new", 2)
START = 1_800_000_000 * SECOND
BEAT = 60 * SECOND
RINGS = (Ring("canary", 1800.0, agents=5), Ring("tenth", 1800.0, percent=10.0), Ring("all", 600.0, percent=100.0))


def bundle(serial: int = 1, rings: tuple[Ring, ...] = RINGS, **gates: Any) -> Desired:
    """One group of all, whose bundle changes from OLD to NEW."""
    change = Change(f"c{serial}", NEW, OLD)
    document = desired(serial, group("everyone", bundles={"default": change}), rings=rings)
    return read_desired(Desired(**{**_fields(document), "gates": gates}).to_bytes(), FLEET)


def _fields(document: Desired) -> dict[str, Any]:
    return {name: getattr(document, name) for name in Desired.__slots__}


def beat(id: str, time: int, **figures: Any) -> dict[str, Any]:
    """A heartbeat with the figures that gates read; ``figures`` as the fields of ``Vitals``, ``actual`` as it is."""
    f = {"events": 0, "cpu": 0.0, "memory": 100 << 20, "lag": 0.0, "crashes": 0, "starts": 1, "quarantined": 0,
         "undecided": 0, "poisoned": 0, "lost": 0, "alerts": {}, "started": START, "actual": {}, **figures}  # fmt: skip
    return {
        "agent_id": id, "state": "running", "time": time, "started_at": f["started"],
        "inputs": {"in": {"judged": f["events"], "dropped": {"kernel": f["lost"]}, "lost": {}}},
        "totals": {"undecided": f["undecided"], "poisoned": f["poisoned"]},
        "rules": {"alerts": f["alerts"], "quarantined_count": f["quarantined"]},
        "process": {"cpu_seconds": f["cpu"], "crashes": f["crashes"], "starts": f["starts"]},
        "budgets": {"memory": {"used": f["memory"]}}, "lag_seconds": f["lag"], "alerts": {"lost": 0},
        "actual": f["actual"],
    }  # fmt: skip


@dataclass
class Host:
    """A simulated agent, which runs what the documents want of it, once it has them; ``bad`` says what its figures
    are while it runs NEW."""

    id: str
    online: bool = True
    deaf: bool = False
    """It is heard, and documents do not reach it."""
    last: dict[str, Any] | None = None
    """The heartbeat that the broker retains of one that was stopped."""
    runs: str = OLD.sha256
    serials: tuple[int, int] = (0, 0)
    figures: dict[str, Any] = field(default_factory=dict)
    history: list[tuple[int, str]] = field(default_factory=list)

    def follow(self, document: Desired, rollout: Rollout | None, now: int) -> None:
        target = wanted(document, rollout, self.id, {"id": self.id})
        assert target is not None
        chosen = target.bundles["default"]
        self.serials = (document.serial, rollout.serial if rollout else 0)
        if chosen is not None and chosen.sha256 != self.runs:
            self.runs = chosen.sha256
            self.history.append((now, self.runs))

    def beat(self, now: int) -> dict[str, Any]:
        actual = {
            "desired_serial": self.serials[0], "rollout_serial": self.serials[1], "labels": {"id": self.id},
            "bundles": {"default": {"sha256": self.runs, "version": 1}}, "config": {"overlay": ""}, "problems": [],
            **self.figures.get("actual", {}),
        }  # fmt: skip
        return beat(self.id, now, **{**self.figures, "actual": actual})


class World:
    """A fleet, its documents, and its controller."""

    def __init__(self, document: Desired, hosts: Iterable[str], rng: Random | None = None) -> None:
        self.now, self.at, self.document, self.rng = START, 0.0, document, rng or Random(1)
        self.rollout: Rollout | None = None
        self.hosts = {id: Host(id) for id in hosts}
        self.worse: Callable[[Host, World], None] = lambda host, world: None
        """What a heartbeat's time makes of a host's figures."""
        self.notes: dict[str, Note] = {}
        self.rows = b"\x90"
        self.events: list[tuple[str, str]] = []
        self.reached: set[str] = set()
        self.start()

    def start(self) -> None:
        """A controller begins with what is durable alone."""
        agents = Agents()
        agents.restore(msgpack.unpackb(self.rows))
        agents.connected = self.now
        self.steering = Steering(agents, self.notes)
        self.steering.follow(self.document, self.rollout, self.now)
        for host in self.hosts.values():
            lost = {"agent_id": host.id, "state": "lost"}
            retained = host.beat(self.now) if host.online else host.last or lost
            agents.take(host.id, retained, self.now, retained=True)

    def desire(self, document: Desired) -> None:
        self.document = document
        self.steering.follow(document, self.rollout, self.now)

    def step(self, *, die: str = "") -> bool:
        """One look of the controller. ``die``: it is killed at this point, if it comes there; then True."""
        moves: list[tuple[Step, Move]] = [*self.steering.moves(self.now, self.at)]
        if not moves:
            return False
        if self.steering.watch(moves):
            self.rows = msgpack.packb([*self.steering.agents.rows()])
        if die == "watched":
            return self._died()
        changed = self.steering.take(moves)
        self.notes = dict(self.steering.notes)
        if die == "noted":
            return self._died()
        self.events += [(step.change.id, move.event) for step, move in moves if move.event]
        if changed:
            serial = self.rollout.serial + 1 if self.rollout else 1
            rollout = Rollout(FLEET, serial, dict(self.steering.progress))
            self.rollout = read_rollout(rollout.to_bytes(), FLEET)
            self.reached |= {id for id in self.hosts if self._may(id)}
        if die == "committed":
            return self._died()
        return False

    def _died(self) -> bool:
        self.start()
        return True

    def _may(self, id: str) -> bool:
        target = wanted(self.document, self.rollout, id, {"id": id})
        assert target is not None
        chosen = target.bundles["default"]
        return chosen is not None and chosen.sha256 == NEW.sha256

    def minute(self, *, die: str = "") -> None:
        """A minute goes by: who is online follows and is heard, the controller looks."""
        self.now += BEAT
        self.at += BEAT / SECOND
        for host in self.hosts.values():
            if host.online:
                if not host.deaf:
                    host.follow(self.document, self.rollout, self.now)
                self.worse(host, self)
                self.steering.agents.take(host.id, host.beat(self.now), self.now)
                assert host.runs == OLD.sha256 or host.id in self.reached, f"{host.id} runs what it was not given"
        self.step(die=die)

    def minutes(self, n: int) -> None:
        for _ in range(n):
            self.minute()

    @property
    def state(self) -> str:
        (step,) = self.steering.steps
        progress = self.steering.progress.get(step.change.id)
        return str(progress.state) if progress else ""

    def having(self) -> set[str]:
        """Those that run NEW."""
        return {host.id for host in self.hosts.values() if host.runs == NEW.sha256}
