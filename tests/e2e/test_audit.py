"""Records of audit events that come in pieces, into the real agent, killed between them: against ``vedette scan``."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, by_line, chance, scan
from tests.waits import until

RULES = """
title: Hidden file run
id: 6f0d1c6e-8d0b-4c7e-8a53-6b6c7d0c2a01
logsource: {product: linux, service: auditd}
detection:
  ran: {SYSCALL: execve, a1|contains: payload}
  file: {type: PATH, name|startswith: /tmp/hidden}
  known: {exe: /bin/backup}
  condition: ran and file and not known
---
title: Marker
id: 6f0d1c6e-8d0b-4c7e-8a53-6b6c7d0c2a02
logsource: {product: linux}
detection:
  keywords: [marker]
  condition: keywords
"""
BODIES = (
    'type=SYSCALL msg=audit({id}): arch=c000003e syscall=59 success=yes comm="sh" exe="{exe}"',
    'type=EXECVE msg=audit({id}): argc=2 a0="sh" a1="payload"',
    'type=CWD msg=audit({id}): cwd="/"',
    'type=PATH msg=audit({id}): item=0 name="/tmp/hidden/x"',
    "type=PROCTITLE msg=audit({id}): proctitle=6C73",
)


def records(number: int, exe: str = "/bin/sh") -> list[str]:
    return [body.format(id=f"{int(time.time())}.{number:03}:{number}", exe=exe) for body in BODIES]


def committed(agent: Agent) -> bool:
    """Whether all that is stored is judged, and every alert is in the outbox on disk."""
    status = agent.status()
    return not status["backlog"] and status["seq_high"] == status["alerts"]["made"] > 0


class Sender:
    """A relay: lines over TCP, behind a syslog header or not, on a new connection when the old one broke."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.sent = agent, 0
        self.socket = socket.socket()
        self.connect()

    def connect(self) -> None:
        self.socket.close()
        self.socket = socket.create_connection(("127.0.0.1", self.agent.port))

    def line(self, text: str) -> None:
        """Send it and wait until it is in the raw log."""
        self.socket.sendall(text.encode() + b"\n")
        self.sent += 1
        until("the line", lambda: self.agent.alive() and self.agent.input()["stored"] >= self.sent)


@pytest.mark.long
def test_killed_between_the_records(tmp_path: Path) -> None:
    """Audit events whose records come one by one over TCP, of two hosts at a time, the agent killed between any two of
    them, with what came before committed or not: the alerts are those of ``scan`` over the lines, each once; one
    whose last record never comes is judged when its time is over."""
    rng = chance()
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "audit.yml").write_text(RULES)
    agent = Agent(tmp_path / "a", rules=rules)
    agent.configure(f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n')
    agent.up()
    sender = Sender(agent)
    try:
        for number, kill in enumerate([0, 1, 2, 3, 4], 1):
            header = rng.choice(["{}", "node=web1 {}", "<14>Nov 20 10:00:00 web1 audispd: {}"])
            other = records(number, rng.choice(["/bin/sh", "/bin/backup"]))
            for i, text in enumerate(records(number)):
                if i and i == kill:
                    if rng.random() < 0.5:
                        sender.line("marker")
                        until("a commit", lambda: committed(agent))
                    agent.kill()
                    agent.up()
                    sender.connect()
                sender.line(header.format(text))
                sender.line(f"node=other {other[i]}")
                time.sleep(rng.uniform(0, 0.03))
        for text in records(9)[:4]:
            sender.line(text)
        until("the event without an end", lambda: any(":9)" in row["raw"] for row in agent.alerts()))
        status = agent.settled(sender.sent)
    finally:
        agent.kill()
        sender.socket.close()
    stored = agent.stored()
    assert len(stored) == sender.sent
    file = tmp_path / "stored.log"
    file.write_bytes(b"".join(event.raw + b"\n" for event in stored))
    alerts = agent.alerts()
    assert by_line(alerts, stored) == scan(file, "auto", rules=rules)
    assert len(alerts) == status["alerts"]["made"] == status["alerts"]["receipted"]
    joined = [alert for alert in alerts if alert["rule_title"] == "Hidden file run"]
    assert {alert["raw"].count("type=") for alert in joined[:-1]} == {5}
    assert len(joined) >= 6
    assert status["correlation_state"]["audit"] == {"open": 0, "bytes": 0, "evicted": 0}
