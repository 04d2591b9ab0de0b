"""The real agent's own check of its account: a stage that miscounts is an alarm; the metrics are the status."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench import traffic
from bench.send import tcp
from tests.broker import own_port
from tests.e2e.agent import RULES, Agent, few, vedette
from tests.waits import DEADLINE, until
from vedette.runtime.agent.exporter import families
from vedette.store.store import Store

pytestmark = pytest.mark.peer

MISCOUNTS = """
import sys
from vedette.cli.main import main
from vedette.rawlog import log
from vedette.runtime.pipeline import ingest, progress
from vedette.store import store
stage = sys.argv.pop(1)
if stage == "stored":
    append = log.RawLog.append
    def wrong(self, chunk):
        frame = append(self, chunk)
        self._counters.stored[chunk.input] -= 1
        return frame
    log.RawLog.append = wrong
elif stage == "judged":
    advance = progress.Progress.advance
    def wrong(self, input, events, offset):
        advance(self, input, events, offset)
        self._counters.judged[input] -= 1
    progress.Progress.advance = wrong
elif stage == "backlog":
    append = ingest.Ingest.store
    def wrong(self, chunk):
        self._progress.backlog[chunk.input] += 1
        self._log._counters.stored[chunk.input] += 1
        self._log._counters.received[chunk.input] += 1
        return append(self, chunk)
    ingest.Ingest.store = wrong
elif stage == "outbox":
    commit = store.Store.commit
    store.Store.commit = lambda self, cursor, counters, positions, alerts, *more: commit(
        self, cursor, counters, positions, alerts[1:], *more
    )
main()
"""
"""The agent with one stage that does not count, or loses, what it should."""
EQUATION = {
    "stored": "!= stored",
    "judged": "!= judged",
    "backlog": "but the log is evaluated to its end",
    "outbox": "alerts: made",
}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path / "a", rules=few(tmp_path / "few"))
    made.configure(SETTINGS.format(port=made.port, metrics=own_port()))
    yield made
    made.kill()


SETTINGS = """
[[input]]
name = "in"
type = "syslog"
tcp = "127.0.0.1:{port}"
[[input]]
name = "web"
type = "syslog"
udp = "127.0.0.1:{port}"
[metrics]
listen = "127.0.0.1:{metrics}"
"""


@pytest.mark.parametrize(
    "stage", ["stored", *(pytest.param(stage, marks=pytest.mark.long) for stage in EQUATION if stage != "stored")]
)
def test_a_stage_that_miscounts(agent: Agent, stage: str) -> None:
    """Whichever stage it is, the agent says so by itself: in its log, in the status (exit code 1), in the metrics. The
    alarm is counted, and the count outlives the restart after which the stage counts again."""
    # Over 3 s: the agent checks its account every few seconds.
    agent.program = (sys.executable, "-c", MISCOUNTS, stage)
    agent.up()
    assert agent.status()["identity_broken"] == []
    tcp(("127.0.0.1", agent.port), b"".join(traffic.blocks(3, 1000, attack_rate=0.05)))
    until("the alarm", lambda: agent.alive() and agent.said("identity_broken"))
    told = agent.said("identity_broken")[0]["reasons"]
    assert any(EQUATION[stage] in reason for reason in told), told
    until("the status", lambda: agent.status()["identity_broken"])
    shown = vedette("status", "-c", agent.config, code=1).stdout
    assert "BROKEN " in shown
    assert scrape(agent)["vedette_identity_broken_present", ()] >= 1
    assert agent.stop() == 0
    if stage == "stored":  # what is counted, is counted by one counter, whichever stage it was
        agent.program = Agent.program
        agent.up()
        assert agent.status()["totals"]["identity_alarms"] >= 1


@pytest.mark.long
def test_a_damaged_count_in_the_store(agent: Agent) -> None:
    """A store whose count of receipts is not what its outbox holds: alarm at once, and the agent runs on."""
    agent.up()
    tcp(("127.0.0.1", agent.port), b"".join(traffic.blocks(3, 5000, attack_rate=0.02)))
    made = agent.settled(5000)["alerts"]["made"]
    assert made > 10
    agent.stop()
    with Store.open(agent.data / "store") as store, store._env.write() as txn:
        account = store._account(txn)
        store._put_account(txn, type(account)(**{**_figures(account), "receipted": account.receipted - 3}))
    agent.up()
    until("the alarm", lambda: agent.alive() and agent.said("identity_broken"))
    (told,) = agent.status()["identity_broken"]
    assert told == f"alerts: made {made} != receipted {made - 3} + in outbox 0"
    tcp(("127.0.0.1", agent.port), b"".join(traffic.blocks(4, 5000, attack_rate=0.02)))
    until("more alerts", lambda: agent.alive() and agent.status()["alerts"]["made"] > made)


def _figures(account: Any) -> dict[str, Any]:
    return {name: getattr(account, name) for name in type(account).__slots__ if name != "entries"}


def scrape(agent: Agent) -> dict[tuple[str, tuple[str, ...]], float]:
    """The samples of the agent's metrics by name and label values."""
    port = agent.config.read_text().rpartition("127.0.0.1:")[2].partition('"')[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        text = answer.read().decode()
    return {
        (sample.name, labels(sample)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(sample: Any) -> tuple[str, ...]:
    """The values of a sample's labels, by the order of their names."""
    return tuple(value for _, value in sorted(sample.labels.items()))


@pytest.mark.long
def test_the_metrics_are_numbers_of_the_status(agent: Agent) -> None:
    """An agent that has evaluated, dropped and quarantined serves the metrics of its status, with their values."""
    slow = agent.folder / "rules"
    slow.mkdir()
    (slow / "slow.yml").write_text(SLOW)
    agent.config.write_text(agent.config.read_text().replace('paths = ["', f'paths = ["{slow}", "{RULES}", "'))
    agent.up()
    tcp(("127.0.0.1", agent.port), b"".join(traffic.blocks(3, 5000, attack_rate=0.02)))
    tcp(("127.0.0.1", agent.port), (b"<13>Nov 20 10:00:00 web1 app: marker x" + b"a" * 60 + b"!\n") * 20)
    tcp(("127.0.0.1", agent.port), b"5 <13>a12x broken")  # RFC 6587: one message, then a count that is none
    status = agent.settled(5021)
    assert status["rules"]["quarantined"]
    assert status["inputs"]["in"]["dropped"]
    served = scrape(agent)
    again = agent.status()
    expected = {(sample.name, labels(sample)): sample.value for family in families(again) for sample in family.samples}
    assert set(served) == set(expected)
    moving = {"vedette_budget_used", "vedette_process_cpu_seconds"}
    assert {key: value for key, value in served.items() if key[0] not in moving} == {
        key: value for key, value in expected.items() if key[0] not in moving
    }
    assert served["vedette_input_received_events_total", ("in",)] == again["inputs"]["in"]["received"] > 5000
    assert served["vedette_input_dropped_events_total", ("in", "framing")] == 1
    assert served["vedette_rules_quarantined", ()] == 1
    assert served["vedette_agent", ("edge-1", "", "f1", again["plan_digest"], "s1", again["version"])] == 1


SLOW = """title: Slow
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: linux}
detection: {s: {message|re: 'x(?=a)(a|aa)+$'}, condition: s}
"""
