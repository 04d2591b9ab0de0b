"""What the controller's decisions cost for a large fleet, without a broker: ``python -m bench.steer [AGENTS]``.

Every agent's heartbeat has 20 rules that make alerts; ten changes of bundles go through their rings to the end.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import orjson

from vedette.fleet.documents import Change, Desired, Group, Progress, Ring, Rollout, Target, wanted
from vedette.fleet.labels import parse
from vedette.region.steer.agents import SECOND, Agents
from vedette.region.steer.kept import Kept
from vedette.region.steer.steering import Steering
from vedette.system.resident import resident

RULES = [f"{i:08x}-0000-4000-8000-{i:012x}" for i in range(20)]
RINGS = (Ring("canary", 60, agents=5), Ring("tenth", 60, percent=10.0), Ring("half", 60, percent=50.0),
         Ring("all", 60, percent=100.0))  # fmt: skip
OLD, NEW = Target("bundles/1", "1" * 64, 1), Target("bundles/2", "2" * 64, 2)
GROUPS = 10
PAD = "x" * 3000
"""The rest of a status, which the controller parses and does not look at."""


def heartbeat(id: str, sha256: str, now: int, n: int) -> bytes:
    return orjson.dumps({
        "agent_id": id, "state": "running", "time": now, "started_at": 1, "lag_seconds": 0.1, "rest": PAD,
        "inputs": {"in": {"judged": n * 60_000, "dropped": {}, "lost": {}}}, "totals": {"undecided": 0, "poisoned": 0},
        "rules": {"alerts": {rule: n * i + int(id[6:]) % 997 for i, rule in enumerate(RULES)}, "quarantined_count": 0},
        "process": {"cpu_seconds": n * 1.5, "crashes": 0, "starts": 1}, "budgets": {"memory": {"used": 100 << 20}},
        "alerts": {"lost": 0},
        "actual": {
            "desired_serial": 1, "rollout_serial": 1, "labels": {"site": f"s{int(id[6:]) % GROUPS}", "id": id},
            "bundles": {"default": {"sha256": sha256, "version": 1}}, "config": {"overlay": ""}, "problems": [],
        },
    })  # fmt: skip


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    ids = [f"agent-{i}" for i in range(count)]
    groups = tuple(
        Group(f"g{i}", f"site = s{i}", parse(f"site = s{i}"), {"default": Change(f"c{i}", NEW, OLD)})
        for i in range(GROUPS)
    )
    desired = Desired("bench", 1, "2026-11-23T00:00:00Z", groups, RINGS, {"baseline": 60})
    base, agents = resident(), Agents()
    steering = Steering(agents, {})
    steering.follow(desired, None)
    rollout: Rollout | None = None
    now, took, looks, minutes, size = 1_800_000_000 * SECOND, 0.0, [], 0, 0
    agents.connected = now
    with tempfile.TemporaryDirectory() as folder:
        kept = Kept(Path(folder) / "steer")
        while not rollout or any(one.state != "done" for one in rollout.changes.values()):
            now, minutes = now + 60 * SECOND, minutes + 1
            for id in ids:
                mine = wanted(desired, rollout, id, {"site": f"s{int(id[6:]) % GROUPS}", "id": id})
                target = mine.bundles["default"] if mine else None
                data = heartbeat(id, target.sha256 if target else "", now, minutes)
                size = len(data)
                began = time.process_time()
                agents.take(id, orjson.loads(data), now)
                took += time.process_time() - began
            began = time.process_time()
            moves = [*steering.moves(now)]
            looks.append(time.process_time() - began)
            steering.watch(moves)
            if steering.take(moves):
                progress: dict[str, Progress] = dict(steering.progress)
                rollout = Rollout("bench", minutes, progress)
        began = time.perf_counter()
        kept.write_agents(agents)
        written = time.perf_counter() - began
        on_disk = (Path(folder) / "steer" / "agents.msgpack.zst").stat().st_size
        kept.close()
    print(
        f"{count} agents in {GROUPS} groups, {len(RINGS)} rings, heartbeats of {size} bytes; done after {minutes} min"
    )
    print(
        f"a heartbeat {took / minutes / count * 1e6:.0f} µs of CPU; {took / minutes / 60:.2%} of a core at one a minute"
    )
    print(
        f"working out what is due: {max(looks) * 1e3:.0f} ms at most, {sum(looks) / len(looks) * 1e3:.0f} ms on average"
    )
    print(f"memory {(resident() - base) / (1 << 20):.0f} MiB; kept on disk {on_disk / 1e6:.1f} MB, in {written:.2f} s")


if __name__ == "__main__":
    main()
