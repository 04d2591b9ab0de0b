"""Controller, landing, broker and real agents, killed at random while changes roll out: the end is the desired state,
and no agent ran what it was not given."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.e2e.agent import KILLS, Process, chance, landed, say, up
from tests.e2e.test_steer import HEAD, Edge, Steered, Watch, all_run, written
from tests.waits import until
from vedette.fleet.documents import place
from vedette.region.repository import Repository

pytestmark = [pytest.mark.peer, pytest.mark.long]
AGENTS = 4
KILLS_A_CHANGE = 8
PAUSE = 5.0
"""Between two kills, at most."""
LOUD = ("crashes", "restarts", "quarantined", "poisoned", "cpu", "memory", "lag")
OFF = "".join(f"{gate} = false\n" for gate in LOUD)
"""Gates that a killed agent fails by being killed."""


class Region(Steered):
    head = HEAD.replace('soak = "4s"', 'soak = "8s"').replace("[gates]\n", f"[gates]\n{OFF}")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        member = self.enroll("land-1", "--role", "landing")
        self.landing = folder / "landing"
        tls = ("--ca-file", member / "region-ca.pem", "--cert-file", member / "agent.pem", "--key-file",
               member / "agent.key")  # fmt: skip
        self.lander = Process(
            folder / "land.log", "region", "land", "--landing", self.landing, "--seconds", 1, "--broker",
            self.broker.url, *tls,
        )  # fmt: skip

    def agents_reached(self) -> set[str]:
        """The agents in the rings that the only change has reached."""
        repository = Repository(self.trust)
        desired, rollout = repository.desired(), repository.rollout()
        assert desired is not None
        assert rollout is not None
        ((_, _, change),) = desired.groups[0].changes()
        progress = rollout.changes[change.id]
        reached = max((ring.percent or 0.0 for ring in desired.rings[: progress.ring + 1]), default=0.0) / 100
        names = {f"edge-{i}" for i in range(AGENTS)}
        return {name for name in names if name in progress.extra or place(change.id, name) < reached}


@pytest.fixture
def region(tmp_path: Path) -> Iterator[tuple[Region, list[Edge]]]:
    centre = Region(tmp_path / "centre")
    edges = [Edge(tmp_path / f"e{i}", centre, f"edge-{i}", "vienna") for i in range(AGENTS)]
    with ExitStack() as stack:
        stack.callback(lambda: centre.broker.kill())
        for process in (centre.controller, centre.lander):
            stack.callback(process.kill)
        centre.broker.start()
        centre.lander.start()
        stack.enter_context(up(*edges))
        yield centre, edges


def kill(rng: Random, centre: Region, edges: list[Edge]) -> str:
    """One of them, which begins again at once or after a while; its name."""
    name = rng.choice(["controller", "landing", "broker", *("agent",) * 2])
    away = rng.choice([0.0, rng.uniform(0.0, 2.0)])
    if name == "broker":
        centre.broker.kill()
        time.sleep(away)
        centre.broker.start()
        return name
    process = {"controller": centre.controller, "landing": centre.lander}.get(name) or rng.choice(edges)
    assert process.running(), f"{name} ended by itself:\n{process.text()[-3000:]}"
    process.kill()
    time.sleep(away)
    process.start()
    return name


def test_killed_at_random(region: tuple[Region, list[Edge]], capsys: pytest.CaptureFixture[str]) -> None:
    """KILLS times, during a flood and a good bundle in turn. The flood is undone, and stays with one agent."""
    centre, edges = region
    rng, killed, version, runs = chance(), [], 1, 1
    watch = Watch(edges)
    try:
        with written(edges):
            centre.desire(centre.rules(1, "needle"))
            centre.controller.start()
            centre.reach("done")
            while len(killed) < KILLS:
                version += 1
                bad = version % 2 == 0
                wanted = "aborted" if bad else "done"
                centre.desire(centre.rules(version, "line" if bad else "needle"))
                for _ in range(min(KILLS_A_CHANGE, max(1, KILLS // 2), KILLS - len(killed))):  # some in each kind
                    time.sleep(rng.uniform(0.0, PAUSE))
                    killed.append(kill(rng, centre, edges))
                    if centre.state() in ("done", "aborted"):
                        break
                centre.reach(wanted)
                runs = runs if bad else version
                all_run(edges, runs)
                given = centre.agents_reached()
                had = {edge.name for edge in edges if version in watch.ran[edge.name] or version in edge.installed()}
                assert had <= given, (version, had, given)
                assert len(given) == (1 if bad else AGENTS), (version, given)
            for edge in edges:
                with edge.file.open("a") as file:
                    file.write("<13>Nov 23 10:00:00 host app: the last needle\n")
            until("the alerts", lambda: {
                row["agent_id"] for row in landed(centre.landing) if "the last needle" in (row["raw"] or "")
            } == {edge.name for edge in edges})  # fmt: skip
    finally:
        watch.close()
    for edge in edges:
        assert {"bundle_refused", "metadata_refused"}.isdisjoint(edge.recorded())
    events = [row["event"] for row in centre.recorded()]
    assert events.count("rollout_aborted") == version // 2
    counts = {name: killed.count(name) for name in sorted({*killed})}
    say(capsys, f"{version} changes, kills: {counts}")
