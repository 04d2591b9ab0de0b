"""An analyst hunts on real agents over a real mosquitto: what was planted is found, as by ``vedette scan``, whatever is
killed, and nowhere without the owner's consent."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import up, vedette
from tests.e2e.test_asking import Asked, Operators
from tests.waits import until
from vedette.fleet.huntjob import MODULE

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("awake")]
EVENTS = 2_000
RULES = """title: Planted
id: 7a1f0000-0000-4000-8000-000000000001
level: high
logsource: {product: linux}
fields: [user]
detection: {s: {message|contains: needle}, condition: s}
---
title: Planted Often
id: 7a1f0000-0000-4000-8000-000000000002
level: critical
correlation:
  type: event_count
  rules: [7a1f0000-0000-4000-8000-000000000001]
  group-by: [hostname]
  timespan: 1m
  condition: {gte: 3}
  generate: true
"""


class Hunted(Asked):
    def configure(self, settings: str) -> None:
        super().configure(settings)
        text = self.config.read_text().replace('name = "in"\n', 'name = "in"\ntimezone = "UTC"\n')
        self.config.write_text(text)

    def lines(self) -> list[bytes]:
        """Every 997th line is what is hunted for; bursts of four make the correlation fire."""
        found = []
        for i in range(EVENTS):
            planted = i % 997 < 4
            text = b"Failed password for needle%d" % i if planted else b"Connection closed by %d" % i
            when = b"2026-11-22T10:%02d:%02dZ" % (i // 60 % 60, i % 60)
            found.append(b"<38>1 %s %s sshd 7 - - %s password=s3cret%d\n" % (when, self.name.encode(), text, i))
        return found

    def feed(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"".join(self.lines()))
        until("the events", lambda: self.input()["stored"] >= EVENTS)

    def held_up(self, centre: Operators, *words: object) -> str:
        """The number of a hunt whose process stands still from its beginning: so few events take too little time for
        anybody to interrupt it."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(centre.fleet, "ann", "hunt", *words, "--agent", self.name, wait="0.5s", code=1)
            os.kill(until("its process", self.hunting), signal.SIGSTOP)
            return asked.result().stderr.split("request ")[1][:8]

    def hunting(self) -> int:
        """The process id of its hunt; 0: none."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if MODULE.encode() in words and str(self.data).encode() in words:
                return int(path.parent.name)
        return 0


class Unwilling(Hunted):
    allow = ("ask", "evidence")


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Operators]:
    made = Operators(tmp_path / "centre")
    (made.folder / "rule.yml").write_text(RULES)
    yield made
    made.broker.kill()


@pytest.fixture
def hosts(centre: Operators, tmp_path: Path) -> Iterator[tuple[Hunted, Unwilling]]:
    """Two agents with logs, the second of an owner who allows no hunt."""
    vienna = Hunted(tmp_path / "vienna", centre, "vienna-1", "vienna")
    graz = Unwilling(tmp_path / "graz", centre, "graz-1", "graz")
    centre.broker.start()
    with up(vienna, graz):
        for host in (vienna, graz):
            host.feed()
        centre.introduce(vienna, graz)
        yield vienna, graz


def by_agent(output: str) -> dict[str, dict[str, Any]]:
    return {row["agent_id"]: row for row in map(json.loads, output.splitlines())}


def rules(row: dict[str, Any]) -> dict[str, int]:
    return {one["title"]: one["count"] for one in row["records"] if one["type"] == "rule"}


def scanned(host: Hunted, rule: Path, folder: Path) -> Counter[str]:
    file = folder / f"{host.name}.log"
    file.write_bytes(b"".join(host.lines()))
    done = vedette("scan", "--rules", rule, "--route", "--format", "syslog", file)
    return Counter(json.loads(line)["rule_title"] for line in done.stdout.splitlines())


def test_hunt_and_evidence(centre: Operators, hosts: tuple[Hunted, Unwilling], tmp_path: Path) -> None:
    """Matches and correlations as by scan on the host that allows it, with redacted fields, and then the lines as
    evidence; the one that does not allow it refuses, and records it; a viewer may not."""
    # Over 3 s: two members with TLS, signed documents, and a hunt in a process of its own.
    vienna, graz = hosts
    rule = centre.folder / "rule.yml"
    expected = scanned(vienna, rule, tmp_path)
    assert expected["Planted"] == 4 * (EVENTS // 997) + 4
    assert expected["Planted Often"] == EVENTS // 997 + 1

    done = centre.fleet("ann", "hunt", rule, "--group", "all", "--json", "--first", 5, code=1)
    rows = by_agent(done.stdout)
    assert rows, done.stderr
    assert {name: row["state"] for name, row in rows.items()} == {"vienna-1": "done", "graz-1": "refused"}
    assert rules(rows["vienna-1"]) == expected
    matches = [one for one in rows["vienna-1"]["records"] if one["type"] == "match"]
    assert len(matches) == 5 + min(5, expected["Planted Often"])
    assert all("s3cret" not in json.dumps(one) for one in matches)
    end = rows["vienna-1"]["records"][-1]
    assert (end["type"], end["events"], end["hosts"]) == ("end", EVENTS, {"vienna-1": expected["Planted"]})
    assert graz.refusals() == ["not allowed"]
    assert not (graz.data / "fleet" / "hunts").exists()
    asked = [one for one in vienna.record if one["event"] == "request_received"]
    assert asked[-1]["operator"] == "ann"
    assert "role" in centre.fleet("vera", "hunt", rule, "--agent", "vienna-1", code=1).stderr

    shown = centre.fleet(
        "ann", "evidence", "--agent", "vienna-1", "--from", "2026-01-01", "--to", "2099-01-01", "--pattern",
        "needle[0-3] ", "--evidence", centre.evidence, "--reason", "case 17",
    ).stdout.splitlines()  # fmt: skip
    assert [line.partition("password for ")[2] for line in shown] == [f"needle{i} [redacted]" for i in range(4)]
    asked = [one for one in vienna.record if one["event"] == "request_received"]
    assert (asked[-1]["operator"], asked[-1]["reason"]) == ("ann", "case 17")


@pytest.mark.long
def test_interrupted(centre: Operators, hosts: tuple[Hunted, Unwilling], tmp_path: Path) -> None:
    """A hunt is shown for people; one goes on through kills of its process and of its agent, to the same end; one is
    cancelled."""
    vienna, _ = hosts
    rule = centre.folder / "rule.yml"
    expected = scanned(vienna, rule, tmp_path)
    shown = centre.fleet("ann", "hunt", rule, "--agent", "vienna-1", "--since", "1d").stdout
    assert "vienna-1  done" in shown
    assert f"Planted        high      detection    {expected['Planted']}" in shown

    number = vienna.held_up(centre, rule)
    pid = vienna.hunting()
    vienna.kill()
    os.kill(pid, signal.SIGCONT)
    until("the end of its process", lambda: not vienna.hunting())
    vienna.up()
    late = until("the rest", lambda: _whole(centre, number))
    assert rules(late["vienna-1"]) == expected

    number = vienna.held_up(centre, rule)
    assert "vienna-1  cancelled" in centre.fleet("ann", "cancel", number).stdout
    until("the end of its process", lambda: not vienna.hunting())
    assert [one["event"] for one in vienna.record][-3:].count("request_cancelled") == 1
    assert not [*(vienna.data / "fleet" / "hunts").iterdir()]


def _whole(centre: Operators, number: str) -> dict[str, dict[str, Any]] | None:
    rows = by_agent(centre.fleet("ann", "fetch", number, "--json", wait="5s", code=None).stdout)
    return rows if all(row["whole"] for row in rows.values()) else None
