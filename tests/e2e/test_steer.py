"""A change goes ring by ring over a real mosquitto with TLS and access list, to real agents: one that floods is stopped
at the canary and undone."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import Process, up, vedette
from tests.e2e.test_fleet import FLEET, Centre, Host
from tests.meanwhile import meanwhile
from tests.waits import until
from vedette.fleet.audit import Audit, verify
from vedette.region.repository import Repository

pytestmark = pytest.mark.peer
RULE = """
title: {title}
id: 00000000-0000-4000-8000-{n:012}
logsource: {{product: linux}}
detection: {{s: {{message|contains: {word}}}, condition: s}}
level: low
"""
HEAD = """
[[ring]]
name = "canary"
agents = 1
soak = "4s"

[[ring]]
name = "all"
percent = 100
soak = "2s"

[gates]
baseline = "3s"
silence = "60s"
alerts_floor = 120

[[operator]]
name = "carol"
key = "{key}"
roles = ["operator"]
expires = "2099-01-01T00:00:00Z"

[[group]]
name = "everyone"
match = "all"
bundle = "{bundle}"
"""


class Edge(Host):
    """An agent that reads a file, to which a line is written ten times a second."""

    def configure(self, settings: str) -> None:
        super().configure(settings)
        self.file = self.folder / "app.log"
        self.file.touch()
        with self.config.open("a") as config:
            config.write(
                f'[[input]]\nname = "app"\ntype = "file"\npaths = ["{self.file}"]\nformat = "syslog"\n'
                'logsource = { product = "linux" }\n'
            )

    def installed(self) -> list[int]:
        """Versions of all bundles that it ever loaded, by its own record."""
        rows = Audit(self.data / "fleet" / "audit.jsonl").lines()
        return [row["version"] for row in rows if row["event"] == "bundle_installed"]


class Steered(Centre):
    """A region with a controller; ``head`` is its ``fleet.toml`` but for the key of the operators and the bundle."""

    head = HEAD

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.controller = Process(folder / "steer.log", "region", "steer", self.trust, *self.at_broker)
        made = vedette("bundle", "keygen", folder / "order.pem").stdout
        self.key = next(word for word in made.split() if word.startswith("ed25519:"))

    def rules(self, version: int, word: str, form: str = "") -> str:
        """A signed bundle with one rule, for lines with ``word``, or for the fields of a declared format."""
        path = self.folder / "bundles" / f"{version}.vbundle"
        rules = self.folder / f"rules-{version}"
        rules.mkdir()
        text = RULE.format(title=f"of {version}", n=version, word=word)
        (rules / "one.yml").write_text(text.replace("message|contains", "gate|startswith") if form else text)
        if form:
            (rules / "formats").mkdir()
            (rules / "formats" / "gate.toml").write_text(form)
        vedette("bundle", "build", rules, "-o", path, "--version", version)
        vedette("bundle", "sign", path, "--key", self.folder / "author.pem", "--fleet", FLEET)
        return f"bundles/{version}.vbundle"

    def desire(self, bundle: str) -> None:
        """As two operators do."""
        self.toml.write_text(self.head.format(key=self.key, bundle=bundle))
        self.put_in_force()

    def show(self) -> dict[str, Any]:
        """What the controller says of the only change; empty: nothing yet."""
        done = vedette("fleet", "rollout", "show", "--json", "--trust", self.trust, *self.at_broker, code=None)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return rows[0] if rows else {}

    def state(self) -> str:
        """Of the only change, as signed: "waiting" when its first ring has not begun."""
        repository = Repository(self.trust)
        desired, rollout = repository.desired(), repository.rollout()
        assert desired is not None
        ((_, _, change),) = desired.groups[0].changes()
        progress = rollout.changes.get(change.id) if rollout is not None else None
        return str(progress.state) if progress is not None else "waiting"

    def reach(self, state: str) -> None:
        try:
            until(f"the change to be {state}", lambda: self.controller.alive() and self.state() == state)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.show(), indent=1)}\n{self.controller.text()}") from None

    def recorded(self) -> list[dict[str, Any]]:
        path = self.trust / "audit.jsonl"
        assert verify(path)[1] is None
        return [*Audit(path).lines()]


def written(edges: Sequence[Edge]) -> AbstractContextManager[None]:
    """While lines come in."""

    def write(number: int) -> None:
        for edge in edges:
            with edge.file.open("a") as file:
                file.write(f"<13>Nov 23 10:00:00 host app: line {number} of a day\n")

    return meanwhile(write)


class Watch:
    """Which bundles each agent was seen to run, all the time."""

    def __init__(self, edges: list[Edge]) -> None:
        self.ran: dict[str, set[int]] = {edge.name: set() for edge in edges}
        self._edges, self._stop = edges, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.25):
            for edge in self._edges:
                with suppress(ConnectionError, KeyError, FileNotFoundError):
                    self.ran[edge.name].add(edge.bundle())

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def all_run(edges: list[Edge], version: int) -> None:
    for edge in edges:
        edge.wait(f"bundle {version}", lambda actual, edge=edge: edge.bundle() == version)


def test_a_flood_comes_back(tmp_path: Path) -> None:
    """A bundle that floods is stopped at the canary, which runs the one before again; the other agent never had it."""
    # Over 3 s: the controller waits for what the broker retains, and for a baseline of seconds.
    centre = Steered(tmp_path / "centre")
    edges = [Edge(tmp_path / f"e{i}", centre, f"edge-{i}", "vienna") for i in range(2)]
    good, floods = centre.rules(1, "needle"), centre.rules(2, "line")
    try:
        centre.broker.start()
        with up(*edges), written(edges):
            centre.head = HEAD[HEAD.index("[[operator]]") :]  # all at once
            centre.desire(good)
            centre.controller.start()
            all_run(edges, 1)
            centre.head = HEAD.replace('baseline = "3s"', 'baseline = "1s"').replace('soak = "4s"', 'soak = "60s"')
            centre.desire(floods)
            centre.reach("aborted")
            all_run(edges, 1)
            assert [2 in edge.installed() for edge in edges].count(True) == 1
            shown = until("the report", lambda: (row := centre.show()).get("state") == "aborted" and row)
            assert shown["reasons"][0].startswith("alerts: 1 of 1 agents: edge-")
    finally:
        centre.controller.kill()
        centre.broker.kill()
