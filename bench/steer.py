"""What the controller costs for a large fleet, alone and at a broker: ``python -m bench.steer [AGENTS]``.

Every agent's heartbeat has 20 rules that make alerts; ten changes of bundles go through their rings to the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from tests.broker import running
from vedette.fleet.documents import Change, Desired, Group, Progress, Ring, Rollout, Target, wanted
from vedette.fleet.labels import parse
from vedette.region.repository import Repository
from vedette.region.roles import Signatory
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


def decide(count: int) -> None:
    """All decisions of a roll-out, in this process."""
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


def at_a_broker(count: int) -> None:
    """The real process at a real mosquitto: it begins, and hears every agent once more."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = published(folder / "trust")
        with running(folder / "broker", verbose=False) as broker:
            sender = Client(CallbackAPIVersion.VERSION2, "sender", protocol=MQTTv5)
            sender.max_inflight_messages_set(1000)
            sender.connect("127.0.0.1", broker.port)
            sender.loop_start()
            send(sender, repository.fleet, count, 1)
            began = time.monotonic()
            command = ["region", "steer", str(folder / "trust"), "--broker", broker.url]
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen([sys.executable, "-m", "vedette", *command], stdout=log, stderr=log)
            try:
                while f"agents={count} " not in f"{(folder / 'log').read_text()} ".replace("\n", " "):
                    if process.poll() is not None or time.monotonic() > began + 120:
                        raise RuntimeError((folder / "log").read_text()[-2000:])
                    time.sleep(0.1)
                known, spent = time.monotonic() - began, cpu(process.pid)
                time.sleep(10)
                rest = cpu(process.pid)
                send(sender, repository.fleet, count, 2)
                time.sleep(10)
                heard = cpu(process.pid) - rest - (rest - spent)
                status = Path(f"/proc/{process.pid}/status").read_text()
                memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
            finally:
                process.terminate()
                process.wait(30)
                sender.loop_stop()
    print(f"the process: steers {known:.1f} s after its start, {spent:.1f} s of CPU; {memory:.0f} MiB in all")
    print(f"a heartbeat by the broker {heard / count * 1e6:.0f} µs of CPU: {heard / 60:.1%} of a core at one a minute")


def published(folder: Path) -> Repository:
    """A fleet without changes."""
    key = Ed25519PrivateKey.generate()
    one = [Signatory("one", key.public_key())]
    made = Repository(folder)
    made.create("bench", one, 1, one, 1)
    made.sign(key)
    made.commit()
    return made


def send(sender: Client, fleet: str, count: int, n: int) -> None:
    """A heartbeat of every agent, acknowledged by the broker."""
    last = None
    for i in range(count):
        data = heartbeat(f"agent-{i}", OLD.sha256, time.time_ns() // 1000, n)
        last = sender.publish(f"vedette/v1/{fleet}/agent-{i}/status", data, qos=1, retain=True)
    if last is not None:
        last.wait_for_publish(120)


def cpu(pid: int) -> float:
    """Seconds of CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    agents_given = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    decide(agents_given)
    at_a_broker(agents_given)
