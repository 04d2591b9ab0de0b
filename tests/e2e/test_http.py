"""Records pushed by HTTP into the real agent, which is killed right after its answers."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.agent import KILLS, Agent, chance
from tests.waits import DEADLINE, until

pytest.importorskip("httptools", reason="an environment from before: make environment")

ROUNDS = KILLS
BATCH = 50
RULE = """title: Failed password
id: 0b0dbd0a-5a3e-4d7c-8f43-0a5ed6d5a002
logsource: {product: linux, service: sshd}
detection:
    root: {user: root, host.name: web-1, kubernetes.pod.name: shop}
    condition: root
"""
HTTP = '[[input]]\nname = "in"\ntype = "http"\ntcp = "127.0.0.1:{port}"\nlogsource = {{ product = "linux" }}\n'


def _push(port: int, sender: int) -> list[str]:
    """Batches of OTLP one after the other, until the agent dies; texts of the records that it has answered."""
    answered: list[str] = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    attributes = [
        {"key": name, "value": {"stringValue": value}}
        for name, value in {"host.name": "web-1", "k8s.pod.name": "shop"}.items()
    ]
    try:
        for batch in range(250):
            texts = [
                f"Nov 23 06:16:34 web-1 sshd[42]: Failed password for root from 10.{sender}.{batch}.{i} port 22 ssh2"
                for i in range(BATCH)
            ]
            logs = {"resource": {"attributes": attributes}, "scopeLogs": [
                {"logRecords": [{"body": {"stringValue": text}} for text in texts]}
            ]}  # fmt: skip
            connection.request(
                "POST", "/v1/logs", json.dumps({"resourceLogs": [logs]}), {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            answered += texts
            time.sleep(0.05)  # each record makes an alert
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    return answered


@pytest.mark.long
def test_killed(tmp_path: Path) -> None:
    """Whatever was answered before a SIGKILL is in the raw log, and its rules fire by names of syslog, ECS and OTLP."""
    rng = chance()
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "rule.yml").write_text(RULE)
    agent = Agent(tmp_path / "a", rules=rules)
    agent.configure(HTTP.format(port=agent.port))
    agent.up()
    answered: list[str] = []
    try:
        with ThreadPoolExecutor(2) as senders:
            for round in range(ROUNDS):
                before = agent.input()["stored"]
                work = [senders.submit(_push, agent.port, 2 * round + i) for i in range(2)]
                wanted = before + rng.randint(1, 10) * BATCH
                until("records", lambda wanted=wanted: agent.input()["stored"] >= wanted)
                agent.kill()
                for one in work:
                    answered += one.result()
                agent.up()
        status = agent.settled()
    finally:
        agent.kill()
    stored = [json.loads(event.raw)["MESSAGE"] for event in agent.stored()]
    assert len(answered) >= ROUNDS * BATCH
    assert {text.partition("]: ")[2] for text in answered} <= set(stored)
    counts = status["inputs"]["in"]
    assert counts["received"] == counts["stored"] == len(stored)
    assert len(agent.alerts()) == len(stored)
