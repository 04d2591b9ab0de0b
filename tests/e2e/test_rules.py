"""Rules change while logs flow: from a folder, and as bundles by a real broker."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import paho.mqtt.publish
import pytest
from paho.mqtt.client import MQTTv5

from bench import traffic
from bench.send import tcp
from tests.broker import Broker, running
from tests.e2e.agent import Agent, few, split, vedette
from tests.waits import until

pytestmark = pytest.mark.peer

RULE = """\
title: Marker {word}
id: 6a1f0000-0000-4000-8000-{number:012}
status: test
logsource:
    product: linux
detection:
    keywords:
        - 'marker-{word}'
    condition: keywords
level: low
"""


def rule(folder: Path, word: str, number: int) -> Path:
    """A rule that finds ``marker-WORD``."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{word}.yml"
    path.write_text(RULE.format(word=word, number=number))
    return path


def mark(agent: Agent, word: str) -> None:
    tcp(("127.0.0.1", agent.port), f"<13>Nov 20 10:00:00 web1 app: marker-{word}\n".encode())


class Stream:
    """Lines that go on coming until the end of the ``with``; then ``sent`` tells how many there were."""

    RATE = 500

    def __init__(self, port: int) -> None:
        self._peer = ("127.0.0.1", port)
        self._stop = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for block in traffic.blocks(21, 1_000_000):
            for part in split(block, 20):
                if self._stop.is_set():
                    return
                with suppress(OSError):
                    self.sent += tcp(self._peer, part, rate=self.RATE).lines

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent with a syslog input and some rules in a folder of its own."""
    made = Agent(tmp_path / "a", rules=few(tmp_path / "rules"))
    made.configure(f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{made.port}"\n')
    yield made
    made.kill()


def test_a_changed_folder(tmp_path: Path) -> None:
    """A rule that is written into the folder runs without anyone's word; one that is changed runs after SIGHUP, too."""
    path = rule(tmp_path / "rules", "first", 1)
    agent = Agent(tmp_path / "a", rules=path.parent, rules_poll=0.2)
    agent.configure(f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n')
    agent.up()
    try:
        rule(path.parent, "polled", 2)
        until("the changed folder to be taken", lambda: agent.status()["rules"]["running"] == 2)
        replans = agent.status()["totals"]["replans"]
        agent.signal(signal.SIGHUP)
        until("the folder to be taken again", lambda: agent.status()["totals"]["replans"] > replans)
        mark(agent, "polled")
        agent.settled(1)
        assert [one["rule_title"] for one in agent.alerts()] == ["Marker polled"]
    finally:
        agent.kill()


@pytest.mark.long
def test_a_changed_folder_while_logs_flow(agent: Agent, tmp_path: Path) -> None:
    """A new rule fires after the folder changed or SIGHUP; a file that is no rule is named with its line; a set that
    cannot be built leaves the old one running and says why; no event is dropped in all that."""
    rules = tmp_path / "rules"
    agent.up()
    before = agent.status()
    with Stream(agent.port) as stream:
        rule(rules, "polled", 1)
        after = until("the changed folder to be taken", lambda: _other_plan(agent, before))
        assert after["rules"]["running"] == before["rules"]["running"] + 1
        mark(agent, "polled")

        broken = rules / "broken.yml"
        broken.write_text("title: Broken\nlogsource:\n    product: linux\ndetection: [unclosed\n")
        agent.signal(signal.SIGHUP)
        until("the broken file to be told", lambda: str(broken) in str(agent.status()["rules"]["dead"]))
        assert agent.status()["rules"]["running"] == after["rules"]["running"]
        assert str(broken) in agent.said("rule_unsupported")[-1]["file"]

        shutil.move(rules, tmp_path / "away")
        rules.mkdir()
        agent.signal(signal.SIGHUP)
        reason = until("the refusal to be told", lambda: agent.status()["rules"]["error"])
        assert "no rule file found" in reason
        assert agent.said("rules_refused")[-1]["reason"] == reason
        assert agent.status()["rules"]["running"] == after["rules"]["running"]
        mark(agent, "polled")
        # On a busy machine evaluation lags: what was sent before the next set is to be judged before it.
        until(
            "the old set's second alert",
            lambda: [one["rule_title"] for one in agent.alerts()].count("Marker polled") == 2,
        )
        shown = vedette("status", "-c", agent.config, code=1)
        assert f"last change refused: {reason}" in shown.stdout

        rule(rules, "second", 2)
        agent.signal(signal.SIGHUP)
        until("the new set to be taken", lambda: agent.status()["rules"]["running"] == 1)
        assert agent.status()["rules"]["error"] is None
        mark(agent, "second")
        mark(agent, "polled")
    sent = stream.sent + 4
    counts = agent.settled(sent)["inputs"]["in"]
    assert (counts["received"], counts["stored"], counts["judged"], counts["dropped"]) == (sent, sent, sent, {})
    made = [alert["rule_title"] for alert in agent.alerts() if alert["rule_title"].startswith("Marker")]
    assert sorted(made) == ["Marker polled", "Marker polled", "Marker second"]


def _other_plan(agent: Agent, before: dict[str, Any]) -> dict[str, Any] | None:
    now = agent.status()
    return now if now["plan_digest"] != before["plan_digest"] else None


# --- bundles


class Publisher:
    """A region: a key, bundles of one rule each, and a broker to put anything on."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker = folder, broker
        self.key = folder / "region.pem"
        self.public = vedette("bundle", "keygen", self.key).stdout.strip()

    def bundle(self, version: int, key: Path | None = None, fleet: str = "f1") -> Path:
        """A signed bundle that finds ``marker-vVERSION``."""
        path = self.folder / f"b{version}.vbundle"
        rules = self.folder / f"rules{version}"
        rule(rules, f"v{version}", version)
        vedette("bundle", "build", rules, "-o", path, "--version", version)
        vedette("bundle", "sign", path, "--key", key or self.key, "--fleet", fleet)
        return path

    def publish(self, path: Path) -> None:
        vedette("region", "publish", path, "--broker", self.broker.url)

    def announce(self, data: bytes, *, version: int, sha256: str = "") -> str:
        """Put ``data`` and a manifest message on the channel without asking whether that is right."""
        sha256 = sha256 or hashlib.sha256(data).hexdigest()
        channel = "vedette/v1/f1/bundles/stable"
        manifest = json.dumps({"version": version, "sha256": sha256, "size": len(data)}).encode()
        paho.mqtt.publish.multiple(
            [(f"{channel}/blobs/{sha256}", data, 1, True), (f"{channel}/manifest", manifest, 1, True)],
            hostname="127.0.0.1",
            port=self.broker.port,
            protocol=MQTTv5,
        )
        return sha256


def test_bundles_by_the_broker(tmp_path: Path) -> None:
    """A pushed bundle runs while logs flow; an older one, a foreign signature, one that the region signed for another
    fleet, a corrupt blob and one that is cut off are refused with the reason in the status, and the last good one runs
    on, also after kill -9; a good one heals."""
    # Over 3 s: each of eight bundles is built, published, and validated in a process of its own.
    with running(tmp_path / "broker") as broker:
        region = Publisher(tmp_path, broker)
        first, second, fourth = (region.bundle(version) for version in (1, 2, 4))
        stranger = tmp_path / "stranger.pem"
        vedette("bundle", "keygen", stranger)
        foreign, elsewhere = region.bundle(3, stranger), region.bundle(7, fleet="f2")
        agent = Agent(tmp_path / "a", rules=None)
        agent.configure(
            f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n'
            f'[bundles]\nfile = "{first}"\ntrusted_keys = ["{region.public}"]\n'
            f'[broker]\nurl = "{broker.url}"\n[uplink]\ntype = "mqtt"\n'
        )
        agent.up()
        try:
            assert agent.status()["bundle"] == "rules-1"
            with Stream(agent.port) as stream:
                region.publish(second)
                until("the pushed bundle to run", lambda: agent.status()["bundle"] == "rules-2")
                assert agent.status()["rules"]["error"] is None

                def refused(reason: str, offer: Callable[[], object]) -> None:
                    """What ``offer`` puts on the channel is refused for ``reason``, in the log and in the status."""
                    before = len(agent.said("bundle_refused"))
                    offer()
                    until(f"the refusal: {reason}", lambda: len(agent.said("bundle_refused")) > before)
                    assert reason in agent.said("bundle_refused")[-1]["reason"]
                    until(f"the status: {reason}", lambda: reason in (agent.status()["rules"]["error"] or ""))
                    assert agent.status()["bundle"] == "rules-2"

                older = "version 1 is older than the installed version 2"
                refused(older, lambda: region.announce(first.read_bytes(), version=1))
                refused(older, lambda: region.announce(first.read_bytes(), version=9))
                refused("key", lambda: region.announce(foreign.read_bytes(), version=3))
                another = "signed for fleet f2, channel stable, not for fleet f1"
                refused(another, lambda: region.announce(elsewhere.read_bytes(), version=7))
                cut, whole = fourth.read_bytes()[:-100], hashlib.sha256(fourth.read_bytes()).hexdigest()
                reason = "the blob is not what its topic's digest says"
                refused(reason, lambda: region.announce(cut, version=4, sha256=whole))
                refused("that were signed", lambda: region.announce(cut, version=5))

            sent = stream.sent
            counts = agent.settled(sent)["inputs"]["in"]
            assert (counts["received"], counts["stored"], counts["judged"]) == (sent, sent, sent)
            agent.kill()
            agent.start()
            refused("that were signed", agent.ready)  # what the channel still holds

            region.announce(fourth.read_bytes(), version=4)
            until("the good bundle to run", lambda: agent.status()["bundle"] == "rules-4")
            assert agent.status()["rules"]["error"] is None
            for word in ("v2", "v4"):
                mark(agent, word)
            until("the alert to be in the outbox", lambda: agent.status()["seq_high"])
        finally:
            agent.kill()
        shown = vedette("alerts", "-c", agent.config, "--json").stdout.splitlines()
        assert [(row["rule_title"], row["bundle"]) for row in map(json.loads, shown)] == [("Marker v4", "rules-4")]
