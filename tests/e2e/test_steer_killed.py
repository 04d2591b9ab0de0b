"""The controller, killed at named steps, and two of them at once: the end is the desired state or the one before, and
no agent runs what it was not given."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Broker, running
from tests.e2e.agent import KILLS, Process
from tests.e2e.faults import Faults
from tests.e2e.town import Town
from tests.fleet.kit import FLEET, Centre
from tests.region.steer.kit import NEW, OLD, Host, bundle
from tests.waits import until
from vedette.fleet.audit import verify
from vedette.fleet.documents import Ring, place
from vedette.region.repository import Repository

pytestmark = [pytest.mark.peer, pytest.mark.long]
RINGS = (Ring("canary", 1.0, agents=3), Ring("half", 1.0, percent=50.0), Ring("all", 1.0, percent=100.0))
GATES = {"baseline": 2.0, "silence": 30.0, "alerts_floor": 600.0}
IDS = [f"agent-{i:02}" for i in range(20)]
STEPS = (
    "before-rename 1 /steer/agents.msgpack.zst", "after-rename 1 /steer/agents.msgpack.zst",
    "before-rename 1 /steer/state.json", "after-rename 1 /steer/state.json",
    "before-write 1 audit.jsonl", "after-write 1 audit.jsonl",
    "before-rename 1 .rollout.json", "after-rename 1 .rollout.json", "before-rename 1 .snapshot.json",
    "after-rename 1 .snapshot.json", "before-rename 1 timestamp.json", "after-rename 1 timestamp.json",
)  # fmt: skip


class Region:
    """A repository, a broker, simulated agents."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.centre, self.broker = Centre(folder / "trust"), broker
        self.town = Town(folder / "town", FLEET, self.centre.root, broker.port, IDS)
        self.serial = 0
        self.controllers: list[Process] = []

    def controller(self, folder: Path) -> Process:
        log = folder.parent / f"{folder.name}.log"
        self.controllers.append(Process(log, "region", "steer", folder, "--broker", self.broker.url))
        return self.controllers[-1]

    def desire(self) -> str:
        """A new change, from OLD to NEW; its id."""
        self.serial += 1
        document = bundle(self.serial, RINGS, **GATES)
        self.centre.publish(document, {OLD.target: b"old", NEW.target: b"new"})
        return f"c{self.serial}"

    def state(self, change: str, folder: Path | None = None) -> str:
        rollout = Repository(folder or self.centre.folder).rollout()
        progress = rollout.changes.get(change) if rollout is not None else None
        return str(progress.state) if progress is not None else ""


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    with running(tmp_path / "broker", durable=True) as broker:
        made = Region(tmp_path, broker)
        yield made
        for controller in made.controllers:
            controller.kill()
        made.town.close()


def floods(host: Host) -> None:
    if host.runs == NEW.sha256:
        host.figures["alerts"] = {"noisy": host.figures.get("alerts", {"noisy": 0})["noisy"] + 600}


def quiet(host: Host) -> None:
    host.figures.pop("alerts", None)


def ends(region: Region, change: str, controller: Process, *, bad: bool) -> None:
    """The change ends as it should, with the agents that were given it alone."""
    wanted = "aborted" if bad else "done"
    try:
        until(f"{change} to be {wanted}", lambda: controller.alive() and region.state(change) == wanted)
    except AssertionError as error:
        raise AssertionError(f"{error}: {region.state(change)}\n{controller.text(all=True)[-6000:]}") from None
    until("the agents", lambda: region.town.having() == (set() if bad else {*IDS}))
    if bad:
        assert region.town.ran == {*sorted(IDS, key=lambda id: place(change, id))[:3]}


def begin(region: Region, *, bad: bool) -> str:
    """A new change; nobody runs it yet."""
    region.town.worse = quiet
    change = region.desire()
    if region.serial > 1:  # the controller publishes it
        until("the new document", lambda: not region.town.having())
    region.town.ran.clear()
    if bad:
        region.town.worse = floods
    return change


def steers(controller: Process) -> bool:
    """What it last said of its part."""
    return controller.alive() and re.findall(r"\] (steering\w*) ", controller.text())[-1:] == ["steering"]


def waits(controller: Process) -> bool:
    return controller.alive() and re.findall(r"\] (steering\w*) ", controller.text())[-1:] == ["steering_waits"]


def test_killed_at_each_step(region: Region, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each file that a move replaces, before and after, for a good change and a bad one."""
    faults = Faults(tmp_path, monkeypatch)
    controller = region.controller(region.centre.folder)
    for name in ("LD_PRELOAD", "VEDETTE_FAULTS"):
        controller.environment[name] = os.environ[name]
        monkeypatch.delenv(name)
    controller.start()
    reached = 0
    for i, step in enumerate(STEPS if KILLS > 4 else STEPS[:: len(STEPS) // 4]):
        bad = bool(i % 2)
        change = begin(region, bad=bad)
        faults.set(step)
        until(
            "a kill or the end of the change",
            lambda change=change: not controller.running() or region.state(change) in ("done", "aborted"),
        )
        reached += not controller.running()
        faults.set()
        if not controller.running():
            controller.start()
        ends(region, change, controller, bad=bad)
    assert reached
    controller.kill()
    assert verify(region.centre.folder / "audit.jsonl")[1] is None


def test_two_controllers(region: Region, tmp_path: Path) -> None:
    """In one folder the second is refused. With a copy of it, on another host say, it waits; when the first dies it
    takes over what that has published, and goes on."""
    folder, copy = region.centre.folder, tmp_path / "copy"
    first, same = region.controller(folder), region.controller(folder)
    change = begin(region, bad=False)
    first.start()
    until("the first to steer", lambda: steers(first))
    same.start()
    assert same.ended() == 2
    assert "another `vedette region steer` is at work here" in same.text()
    shutil.copytree(folder, copy)
    second = region.controller(copy)
    second.start()
    until("the second to wait", lambda: waits(second))
    ends(region, change, first, bad=False)
    versions: dict[str, Any] = {
        "first": Repository(folder).version("rollout"),
        "copy": Repository(copy).version("rollout"),
    }
    assert versions["copy"] < versions["first"]
    change = region.desire()
    until("the change to begin", lambda: region.state(change) == "rolling")
    first.kill()
    until(
        "the second to take over",
        lambda: second.alive() and region.state(f"c{region.serial}", copy) == "done",
    )
    until("the agents", lambda: region.town.having() == {*IDS})
    assert "published_taken" in (copy / "audit.jsonl").read_text()
    first.start()
    until("the first to wait", lambda: waits(first))
    assert second.stop() == 0
    until("the first to go on", lambda: steers(first))
    for process in (first, second):
        process.kill()
