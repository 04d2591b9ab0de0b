"""Sinks of the real agent: killed under load, changed under load, and with receivers that are away."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from tests.e2e.agent import KILLS, Agent, chance, vedette
from tests.e2e.tuned import tuned
from tests.sinks.kit import Server, answers, resets, serving, silent
from tests.waits import until
from vedette.rawlog.segment import segments

RULE = """title: Marker
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: linux}
detection: {keywords: ['marker'], condition: keywords}
level: high
"""


class Site:
    """An agent that tails a file, and a writer that appends numbered lines to it, each of which makes an alert."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "rules").mkdir()
        (folder / "rules" / "marker.yml").write_text(RULE)
        self.log = folder / "in.log"
        self.log.touch()
        self.lines = 0
        self.agent = Agent(folder / "a", rules=folder / "rules")

    def configure(self, sinks: str, uplink: str = "none") -> None:
        self.agent.configure(
            f'[uplink]\ntype = "{uplink}"\n[[input]]\ntype = "file"\nname = "in"\npaths = ["{self.log}"]\n'
            f'logsource = {{product = "linux"}}\n{sinks}'
        )

    def reload(self, sinks: str) -> None:
        reloads = self.agent.status()["config"]["reloads"]
        self.configure(sinks)
        self.agent.signal(signal.SIGHUP)
        until("the reload", lambda: self.agent.alive() and self.agent.status()["config"]["reloads"] > reloads)

    def write(self, count: int = 1) -> None:
        with self.log.open("a") as file:
            for _ in range(count):
                self.lines += 1
                file.write(f"Nov 20 10:00:00 web1 app: {token_hex(32)} marker {self.lines}.\n")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lines keep coming meanwhile, about 200 a second."""
        over = threading.Event()

        def write() -> None:
            while not over.wait(0.05):
                self.write(10)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def sink(self, name: str) -> dict[str, Any]:
        return {one["name"]: one for one in self.agent.status()["sinks"]}[name]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.agent.kill()


def number(row: dict[str, Any]) -> int:
    return int(row["raw"].rpartition(" ")[2].rstrip("."))


def webhook(server: Server, name: str = "hook", more: str = "") -> str:
    return f'[[sink]]\ntype = "webhook"\nname = "{name}"\nurl = "{server.url}"\n{more}'


def file_sink(path: Path, name: str = "file") -> str:
    return f'[[sink]]\ntype = "file"\nname = "{name}"\npath = "{path}"\n'


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Those whose line is whole."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def accepted(server: Server) -> list[dict[str, Any]]:
    with server.lock:
        return [json.loads(one.body) for one in server.accepted]


def check_whole(rows: list[dict[str, Any]], lines: int) -> None:
    """Every line has its alert; one that came twice came under one id."""
    ids = {row["alert_id"]: number(row) for row in rows}
    assert all(ids[row["alert_id"]] == number(row) for row in rows)
    assert Counter(ids.values()) == Counter(range(1, lines + 1))


def test_killed_under_load(site: Site) -> None:
    """Over kill -9 at any moment every alert reaches both sinks, without an uplink; what comes twice has the same id.
    Some requests are answered by errors or resets."""
    # Over 3 s: three lives of an agent.
    rng = chance()
    copies = site.folder / "copies.ndjson"
    with serving() as server:
        faults = [answers(500), resets, answers(429, Retry_After="1")]
        site.configure(webhook(server) + file_sink(copies))
        for _ in range(KILLS):
            with server.lock:
                server.acts = [rng.choice(faults) if rng.random() < 0.05 else answers(200) for _ in range(200)]
            site.agent.up()
            with site.writing():
                until("alerts", lambda: site.agent.alive() and len(rows_of(copies)) >= site.lines // 2)
                threading.Event().wait(rng.uniform(0, 0.6))
                site.agent.kill()
        server.acts = []
        site.agent.up()
        site.write(5)
        for name in ("hook", "file"):
            until(f"{name} to get all", lambda name=name: site.sink(name)["waiting"] == 0 and _all(site))
        check_whole(rows_of(copies), site.lines)
        check_whole(accepted(server), site.lines)
        status = site.agent.status()
        assert status["identity_broken"] == []
        assert status["alerts"]["in_outbox"] == 0
        assert [(one["refused"], one["dropped"]) for one in status["sinks"]] == [(0, 0), (0, 0)]
        assert site.agent.stop() == 0


def _all(site: Site) -> bool:
    return bool(site.agent.status()["alerts"]["made"] == site.lines)


@pytest.mark.long
def test_changed_under_load(site: Site) -> None:
    """A sink that a reload adds gets the alerts from then on, all of them; the others miss none and get none twice; one
    that is removed gets no more, and one that is changed goes on where it was."""
    first, second = site.folder / "first.ndjson", site.folder / "second.ndjson"
    site.configure(file_sink(first, "first"))
    site.agent.up()
    with site.writing():
        until("alerts", lambda: len(rows_of(first)) > 50)
        site.reload(file_sink(first, "first") + file_sink(second, "second"))
        until("alerts of both", lambda: len(rows_of(second)) > 50)
        site.reload(file_sink(first, "first") + file_sink(second, "second") + 'level = "low"\n')
        size = len(rows_of(second))
        until("more", lambda: len(rows_of(second)) > size + 20)
        site.reload(file_sink(first, "first"))
        gone = len(rows_of(second))
        size = len(rows_of(first))
        until("more", lambda: len(rows_of(first)) > size + 50)
    until("all", lambda: _all(site) and site.sink("first")["waiting"] == 0)
    check_whole(rows_of(first), site.lines)
    assert len(rows_of(first)) == site.lines
    numbers = [number(row) for row in rows_of(second)]
    assert len(numbers) == gone
    assert numbers == list(range(numbers[0], numbers[0] + gone))
    assert numbers[0] > 50
    assert [one["name"] for one in site.agent.status()["sinks"]] == ["first"]
    assert "sink second" in json.dumps(site.agent.said("agent_reloaded"))
    assert site.agent.stop() == 0


@pytest.mark.long
def test_receivers_that_are_away(site: Site) -> None:
    """One that is away and one that hangs hold up neither the uplink nor another sink, nor the agent's stop; when they
    are back they get all, also after a restart."""
    copies = site.folder / "copies.ndjson"
    with serving() as away, serving() as hangs:
        away.act, hangs.act = answers(503), silent
        sinks = webhook(away, "away") + webhook(hangs, "hangs", 'timeout = "500ms"\n') + file_sink(copies)
        site.configure(sinks, "directory")
        site.agent.up()
        site.write(300)
        until("the file", lambda: len(rows_of(copies)) == 300)
        until("the outbox", lambda: site.agent.status()["alerts"]["in_outbox"] == 0)
        until("the failure", lambda: site.sink("away")["failing"])
        state = site.sink("away")
        assert (state["waiting"], state["error"]) == (300, "HTTP 503")
        assert site.agent.stop() == 0
        away.act = hangs.act = answers(200)
        for server in (away, hangs):
            with server.lock:
                server.accepted.clear()
        site.agent.up()
        for name in ("away", "hangs"):
            until(f"{name} to be back", lambda name=name: site.sink(name)["waiting"] == 0)
        check_whole(accepted(away), 300)
        check_whole(accepted(hangs), 300)
        assert len(rows_of(copies)) == 300
        assert site.agent.status()["identity_broken"] == []
        assert site.agent.stop() == 0


@pytest.mark.long
def test_a_store_that_is_made_again(site: Site) -> None:
    """Alerts that the region has and a sink still wants are made again when the store is lost: the sink that was away
    gets each under its id, and the agent's account holds."""
    copies = site.folder / "copies.ndjson"
    with serving() as away:
        away.act = answers(503)
        sinks = webhook(away, "away") + file_sink(copies)
        site.agent.program = tuned(segment_bytes=4096)
        site.configure(sinks, "directory")
        site.agent.up()
        for count in range(1, 7):
            site.write(100)
            until("the file", lambda count=count: len(rows_of(copies)) == 100 * count)
        until("the outbox", lambda: site.agent.status()["alerts"]["in_outbox"] == 0)
        known = {row["alert_id"]: number(row) for row in rows_of(copies)}
        site.agent.kill()
        assert len(segments(site.agent.data / "raw")) > 3
        (site.agent.data / "store" / "data.mdb").write_bytes(b"")
        away.act = answers(200)
        with away.lock:
            away.accepted.clear()
        site.agent.up()
        until("the rest", lambda: len(accepted(away)) >= 600 and site.sink("away")["waiting"] == 0)
        check_whole(accepted(away), 600)
        assert {row["alert_id"]: number(row) for row in accepted(away)} == known
        until("the outbox", lambda: site.agent.status()["alerts"]["in_outbox"] == 0)
        assert site.agent.said("store_rebuilt")
        assert site.agent.status()["identity_broken"] == []
        assert site.agent.stop() == 0


@pytest.mark.long
def test_the_test_alert(site: Site) -> None:
    """``vedette sink test`` sends one marked alert and prints the answer; its exit code says whether it was taken."""
    with serving() as server:
        server.acts = [answers(200, b"thank you"), answers(400, b"invalid_payload"), answers(503)]
        site.configure(webhook(server, more='level = "critical"\n'))

        def command(code: int) -> str:
            return vedette("sink", "test", "-c", site.agent.config, "hook", code=code).stdout

        host = server.url.partition("/hook")[0]
        assert command(0) == f"hook (webhook) to {host}: taken\n  HTTP 200 thank you\n"
        assert "refused" in command(1)
        assert "asked again" in command(1)
        (row,) = accepted(server)
        assert (row["rule_id"], row["flags"], row["level"]) == ("vedette.sink.test", ["test"], "informational")
        assert row["rule_title"] == "Test of the sink hook"
    assert "no sink 'x'" in vedette("sink", "test", "-c", site.agent.config, "x", code=2).stderr
