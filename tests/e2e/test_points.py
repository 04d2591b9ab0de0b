"""The crash matrix: the real agent under three streams at once, killed at named points and at random moments.

A point is a call that the process makes (``faults.c`` ends it there with SIGKILL, before or after the kernel did it),
or the moment between a PUBLISH and its PUBACK (a relay holds the PUBACK back and ends the agent). The product has no
hook for either.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from bench import traffic
from bench.send import Sent, mqtt
from tests import reference
from tests.broker import Broker, running
from tests.e2e.agent import (
    KILLS,
    Agent,
    Stored,
    chance,
    few,
    hand_over,
    landed,
    marked,
    reborn,
    say,
    split,
    vedette,
)
from tests.e2e.faults import Faults
from tests.e2e.mqttproxy import TO_BROKER, TO_CLIENT, Relay
from tests.e2e.points import INSTALL, RANDOM, ROTATION, STORING, SWITCH, Call, at_call, fell
from tests.e2e.test_landing import Landing
from tests.e2e.test_rules import rule
from tests.waits import until
from vedette.bundle.manifest import MANIFEST
from vedette.bundle.trust import inspect
from vedette.decode.decoder import record
from vedette.model.event import LogSource
from vedette.mqtt.settings import MqttSettings
from vedette.region.build import archive
from vedette.region.publish import publish
from vedette.region.sign import load_key, sign
from vedette.rules.build import build

pytestmark = [pytest.mark.peer, pytest.mark.long]

ROUNDS = max(10, KILLS // 2)
"""Kills in each of the two tests."""
LINES = 300
"""Of each stream in a round, over about a second."""
LINUX = 'format = "syslog"\nlogsource = { product = "linux" }\n'
SETTINGS = """
[[input]]
name = "tcp"
type = "syslog"
tcp = "127.0.0.1:{port}"
[[input]]
name = "file"
type = "file"
paths = ["{file}"]
{linux}
[broker]
url = "{relay}"
[[input]]
name = "mqtt"
type = "mqtt"
topics = ["plant/#"]
{linux}
[uplink]
type = "mqtt"
resend_after = "1s"
{more}
"""


class Puback(NamedTuple):
    """Instead of the ``nth`` (1 to ``most``) PUBACK that goes ``way``."""

    way: str
    most: int
    change: bool = False


POINTS: dict[str, Call | Puback] = {
    **STORING,
    "between PUBLISH and PUBACK of an alert": Puback(TO_CLIENT, 3),
    "between PUBLISH and PUBACK of an event": Puback(TO_BROKER, 100),
    **ROTATION,
}


class Matrix:
    """Agent, broker, relay and landing, and three streams of unique lines in rounds."""

    def __init__(self, folder: Path, broker: Broker, relay: Relay, seed: int, *, rules: Path | None, more: str) -> None:
        self.broker, self.relay = broker, relay
        self.log = folder / "logs" / "app.log"
        self.log.parent.mkdir()
        self.agent = Agent(folder / "a", rules=rules, rules_poll=0.2, files_poll=0.05, segment_bytes=4 << 10)
        settings = {"port": self.agent.port, "file": self.log, "relay": relay.url, "linux": LINUX, "more": more}
        self.agent.configure(SETTINGS.format(**settings))
        self.landing = Landing(folder / "landing", broker)
        self.tcp, self.file, self.mqtt = (_rounds(seed + i) for i in range(3))
        self.handed = self.rotations = self._read = 0
        self._awaited = {"file": _lines(self.file), "mqtt": _lines(self.mqtt)}

    def go(self, i: int, pool: ThreadPoolExecutor) -> list[Future[Any]]:
        """Round ``i`` of the three streams."""
        sender: Callable[..., Sent] = partial(mqtt, ("127.0.0.1", self.broker.port), topic="plant/press/log")
        return [
            pool.submit(hand_over, self.agent.port, self.tcp[i], LINES),
            pool.submit(self._write, self.file[i]),
            pool.submit(sender, self.mqtt[i], rate=LINES),
        ]

    def took(self, work: list[Future[Any]]) -> None:
        """The end of a round."""
        sent, _, published = (one.result() for one in work)
        assert published.complete
        self.handed += sent.lines

    def rotate(self) -> None:
        self.rotations += 1
        self.log.rename(self.log.with_name(f"app.log.{self.rotations}"))

    def _write(self, data: bytes) -> None:
        size = -(-len(data) // 20)  # without regard to lines
        with self.log.open("ab", buffering=0) as file:
            for start in range(0, len(data), size):
                file.write(data[start : start + size])
                time.sleep(0.05)

    def missing(self) -> dict[str, Counter[bytes]]:
        """What was acknowledged and is not in the raw log, by input. Not before the last kill: reads on from where it
        was."""
        for name, events in self.agent.stored_all(self._read).items():
            self._read = max([self._read, *(event.end for event in events)])
            if name in self._awaited:
                self._awaited[name] -= Counter(event.raw for event in events)
        return {name: lines for name, lines in self._awaited.items() if lines}

    def check(self, rules: Path) -> str:
        """The promises, on what the agent has left; returns what to print."""
        agent = self.agent
        stored = {name: agent.stored(name) for name in ("tcp", "file", "mqtt")}
        assert Counter(event.raw for event in stored["file"]) == _lines(self.file)
        again = Counter(event.raw for event in stored["mqtt"]) - _lines(self.mqtt)
        assert not _lines(self.mqtt) - Counter(event.raw for event in stored["mqtt"])
        assert again <= marked(agent.data / "raw")
        _beginnings([event.raw for event in stored["tcp"]], self.tcp)
        expected = naive(rules, [event for events in stored.values() for event in events])
        alerts = agent.alerts(self.landing.folder)
        found = Counter((alert["rule_id"], alert["raw_ref"]["offset"]) for alert in alerts)
        assert found == expected, f"missing {expected - found}, too many {found - expected}"
        assert len(found) > ROUNDS
        assert not landed(self.landing.folder, "bad")
        rows = len(landed(self.landing.folder))
        return (
            f"file {len(stored['file'])} lines once, {self.rotations} rotations;"
            f" mqtt {_lines(self.mqtt).total()} messages, none missing, {again.total()} stored again and marked;"
            f" tcp {self.handed} lines handed over, {len(stored['tcp'])} stored,"
            f" transport loss {self.handed - len(stored['tcp'])}; {len(alerts)} alerts as the naive evaluator's,"
            f" {rows} rows landed before dedupe"
        )


def _rounds(seed: int) -> list[bytes]:
    """A stream in ROUNDS + 1 parts; no line of it is there twice."""
    lines = b"".join(traffic.blocks(seed, (ROUNDS + 1) * LINES, attack_rate=0.02)).splitlines()
    return split(b"".join(line + b" #%d\n" % i for i, line in enumerate(lines)), ROUNDS + 1)


def _lines(parts: list[bytes]) -> Counter[bytes]:
    return Counter(line for part in parts for line in part.splitlines())


def _beginnings(stored: list[bytes], parts: list[bytes]) -> None:
    """What is stored of each part is a beginning of it, and the parts are in order."""
    at = 0
    for part in parts:
        lines = part.splitlines()
        kept = stored[at : at + len(lines)]
        while kept[: len(kept)] != lines[: len(kept)]:
            kept.pop()
        at += len(kept)
    assert at == len(stored), f"not a beginning of what was sent: {stored[at : at + 3]}"


def naive(rules: Path, events: list[Stored]) -> Counter[tuple[str, int]]:
    """What the naive evaluator finds, as (rule id, raw offset)."""
    plan, linux = build([rules]), LogSource(product="linux")
    found: Counter[tuple[str, int]] = Counter()
    for event in events:
        made = record(event.raw, "syslog", zone=UTC, logsource=linux)
        found.update((plan.rules[i].id, event.offset) for i in reference.matches(plan, made, route=True))
    return found


def kill_at(
    name: str, point: Call | Puback, nth: int, matrix: Matrix, faults: Faults, change: Callable[[], object]
) -> str:
    """Wait until the agent died at the point; returns the point's name, or RANDOM when it was not reached in time."""
    agent = matrix.agent
    match point:
        case Call():
            at_call(faults, point, nth)
        case Puback():
            matrix.relay.arm(point.way, nth, agent.kill)
    if point.change:
        change()
    fired = fell(agent)
    matrix.relay.disarm()
    faults.set()
    return name if fired else RANDOM


def crash(
    matrix: Matrix,
    points: dict[str, Call | Puback],
    faults: Faults,
    rules: Path,
    change: Callable[[], object],
    settled: Callable[[], bool] = lambda: True,
) -> str:
    """ROUNDS kills, each point in turn and every fifth at random; then, once ``settled``, the promises."""
    rng, agent = chance(), matrix.agent
    order = list(points)
    fallen: Counter[str] = Counter()
    with ThreadPoolExecutor(3) as pool:
        try:
            matrix.landing.start()
            agent.up()
            until("the subscription", lambda: agent.alive() and "plant/#" in matrix.broker.log())
            for i in range(ROUNDS):
                work = matrix.go(i, pool)
                if i % 5 == 4:
                    time.sleep(rng.uniform(0.0, 1.2))
                    agent.kill()
                    fallen[RANDOM] += 1
                else:
                    name = order[(i - i // 5) % len(order)]
                    point = points[name]
                    if point.change:
                        time.sleep(0.2)
                    fallen[kill_at(name, point, rng.randint(1, point.most), matrix, faults, change)] += 1
                if rng.random() < 0.4:
                    work[1].result()
                    matrix.rotate()
                reborn(agent, rng)
                agent.ready()
                matrix.took(work)
            matrix.took(matrix.go(ROUNDS, pool))
            try:
                until("what was acknowledged", lambda: agent.alive() and not matrix.missing())
            except AssertionError as error:
                lacking = {name: [lines.total(), *list(lines)[:3]] for name, lines in matrix.missing().items()}
                raise AssertionError(f"{error}: {lacking}\n{agent.status()}\n{agent.text()[-3000:]}") from None
            until("the newest rules", lambda: agent.alive() and settled())
            status = agent.settled(name="tcp")
            until("the landing", lambda: len(agent.alerts(matrix.landing.folder)) == status["alerts"]["made"])
            assert agent.stop() == 0
        finally:
            agent.kill()
            matrix.landing.kill()
    reached = set(fallen) - {RANDOM}
    assert len(reached) >= min(len(points), ROUNDS - ROUNDS // 5) * 3 // 4, (
        f"points not reached: {set(points) - reached}"
    )
    told = "\n".join(f"  {count:4} {name}" for name, count in sorted(fallen.items()))
    return f"{fallen.total()} kills:\n{told}\n  {matrix.check(rules)}"


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(tmp_path, monkeypatch)


@contextmanager
def relayed(folder: Path) -> Iterator[tuple[Broker, Relay]]:
    with running(folder / "broker") as broker:
        relay = Relay(broker.port)
        try:
            yield broker, relay
        finally:
            relay.close()


def test_rules_of_a_folder(tmp_path: Path, faults: Faults, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed around appends, commits, PUBACKs, rotations and plan switches: what was acknowledged is in the raw log
    byte for byte, TCP's is a beginning of what was sent, and the alerts are the naive evaluator's, each once."""
    rules = few(tmp_path / "rules")
    with relayed(tmp_path) as (broker, relay):
        matrix = Matrix(tmp_path, broker, relay, 60, rules=rules, more="")
        changes = iter(range(1, 1_000_000))  # an unseen rule each, so that it is built, read and switched to

        def change() -> None:
            rule(rules, "never", next(changes))

        say(capsys, "crash matrix, rules of a folder: " + crash(matrix, {**SWITCH, **POINTS}, faults, rules, change))


def test_rules_of_bundles(tmp_path: Path, faults: Faults, capsys: pytest.CaptureFixture[str]) -> None:
    """The same around the steps of installing a bundle that the region pushed; the newest one runs in the end."""
    rules = few(tmp_path / "rules")
    with relayed(tmp_path) as (broker, relay):
        key = tmp_path / "region.pem"
        public, first = vedette("bundle", "keygen", key).stdout.strip(), tmp_path / "first.vbundle"
        vedette("bundle", "build", rules, "-o", first, "--version", 1)
        vedette("bundle", "sign", first, "--key", key)
        template, signer = inspect(first.read_bytes()), load_key(key)
        bundles = f'[bundles]\nfile = "{first}"\ntrusted_keys = ["{public}"]\n'
        matrix = Matrix(tmp_path, broker, relay, 70, rules=None, more=bundles)
        version = 1

        def change() -> None:
            nonlocal version
            version += 1
            manifest = structs.replace(template.manifest, version=version)
            data = sign(archive({**template.parts, MANIFEST: manifest.to_bytes()}), signer, "f1", "stable")
            asyncio.run(publish(MqttSettings(url=broker.url), data, fleet="f1"))

        points = {**INSTALL, **dict(reversed(POINTS.items()))}
        told = crash(
            matrix, points, faults, rules, change, lambda: matrix.agent.status()["bundle"] == f"rules-{version}"
        )
        assert version > 3
        say(capsys, f"crash matrix, bundles to version {version}: {told}")
