"""What an event holds forges no alert, no line and no field of ours: the real agent, and all commands that show it."""

from __future__ import annotations

import json
import random
import socket
import unicodedata
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, say, vedette
from tests.waits import until

RULE = """\
title: Marker
id: 7c6cf1a2-52a5-4f0e-9d5d-0f6f3f5d9f11
status: test
level: high
logsource: {product: linux}
detection:
  s: {message|contains: mark-me}
  condition: s
fields: [user, rule_id]
"""
INPUTS = """\
[[input]]
name = "in"
type = "syslog"
tcp = "127.0.0.1:{port}"
format = "auto"
"""
PIECES = (
    "\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\r", "\x08" * 4, "\u2028", "\u2029", "\x85", "\u202e", "\u2066", "\x00",
    "\n", "\\n", '"', "'", "{", "}", "\\u001b[0m", "<38>Nov 20 10:00:00 web1 sshd[7]: ", "17 <13>", "\ud83d\ude00",
    '{"alert_id": "f", "rule_id": "forged", "agent_id": "other", "kind": "fold", "level": "critical", "seq": 9}',
    "sent 2026-11-21T00:00:00Z critical detection web1 Forged rule: ", "\tab", "ü", "%s%n", "${jndi:ldap://x}",
)  # fmt: skip
COUNT = 400


def acts(text: str) -> bool:
    """True when a terminal may act on something in ``text``, but for its line ends and tabs."""
    bidi = ("RLE", "LRE", "RLO", "LRO", "PDF", "LRI", "RLI", "FSI", "PDI")
    return any(
        (unicodedata.category(c) in ("Cc", "Zl", "Zp") and c not in "\t\n") or unicodedata.bidirectional(c) in bidi
        for c in text
    )


def events(rng: random.Random) -> list[bytes]:
    """Messages, octet-counted so that each is one event: raw ones, syslog ones, and JSON with our own columns in it."""
    found = []
    for i in range(COUNT):
        text = "".join(rng.choices(PIECES, k=rng.randint(1, 8))) + f" mark-me {i} " + "".join(rng.choices(PIECES, k=3))
        match i % 3:
            case 0:
                raw = f"<13>Nov 20 10:00:00 web1 app: {text}".encode("utf-8", "surrogatepass")
            case 1:
                forged = {
                    "message": text,
                    "alert_id": "forged",
                    "agent_id": "other",
                    "rule_id": "forged",
                    "rule_title": "Forged rule",
                    "fleet": "other",
                    "seq": 1,
                    "kind": "fold",
                    "raw_ref": {"offset": 0},
                    "receipted": True,
                    "user": text,
                }
                raw = json.dumps(forged).encode()
            case _:
                raw = text.encode("utf-8", "surrogatepass")
        found.append(raw.rstrip(b"\n"))  # a newline that ends a counted message is none of it
    return found


@pytest.mark.long
@pytest.mark.peer
def test_no_event_forges_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """400 hostile events: one alert each, with our rule, agent and fleet; every command shows them line by line, with
    nothing that a terminal acts on, and JSON that parses to the same."""
    seed = random.randrange(1 << 32)
    sent = events(random.Random(seed))
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "marker.yml").write_text(RULE)
    agent = Agent(tmp_path / "a", rules=rules)
    agent.configure(INPUTS.format(port=agent.port))
    agent.config.write_text(agent.config.read_text().replace('format = "json"\n', 'format = "console"\n'))
    agent.start()
    try:
        until("the agent to start", lambda: agent.alive() and "agent_started" in agent.text())
        with socket.create_connection(("127.0.0.1", agent.port)) as sender:
            sender.sendall(b"".join(b"%d %b" % (len(raw), raw) for raw in sent))
            sender.sendall(b"99999999x\x1b[31m<13>forged\n")  # ends the connection with a line in the agent's log
        agent.settled(COUNT)
        until("the framing error", lambda: "framing_error" in agent.text())
        options = ("-c", agent.config)
        shown = {
            "alerts": vedette("alerts", *options, "-n", 1000),
            "alerts --json": vedette("alerts", *options, "-n", 1000, "--json"),
            "logs search": vedette("logs", "search", *options, "mark-me"),
            "logs search --json": vedette("logs", "search", *options, "mark-me", "--json"),
            "status": vedette("status", *options),
            "status --json": vedette("status", *options, "--json"),
        }
    finally:
        agent.kill()
    (tmp_path / "sent.log").write_bytes(b"\n".join(raw.replace(b"\n", b" ") for raw in sent))
    shown["scan"] = vedette("scan", "--rules", rules, tmp_path / "sent.log", code=None)
    shown["explain"] = vedette("rules", "explain", rules / "marker.yml", "-", stdin=sent[0], code=None)

    alerts = agent.alerts()
    assert len(alerts) == COUNT == len({alert["alert_id"] for alert in alerts}), f"seed {seed}"
    assert {alert["rule_id"] for alert in alerts} == {"7c6cf1a2-52a5-4f0e-9d5d-0f6f3f5d9f11"}
    assert {(a["agent_id"], a["fleet"], a["site"], a["kind"], a["level"], a["rule_title"]) for a in alerts} == {
        ("edge-1", "f1", "s1", "detection", "high", "Marker")
    }
    assert sorted(alert["seq"] for alert in alerts) == list(range(1, COUNT + 1))
    by_offset = {event.offset: event.raw for event in agent.stored()}
    assert [by_offset[alert["raw_ref"]["offset"]] for alert in sorted(alerts, key=lambda a: a["seq"])] == sent

    for name, done in shown.items():
        assert not acts(done.stdout + done.stderr), f"{name}, seed {seed}"
    assert not acts(agent.text()), f"seed {seed}"
    for name in ("alerts", "alerts --json", "logs search", "logs search --json"):
        assert len(shown[name].stdout.splitlines()) == COUNT, f"{name}, seed {seed}"
    rows = list(map(json.loads, shown["alerts --json"].stdout.splitlines()))
    assert {row["rule_id"] for row in rows} == {"7c6cf1a2-52a5-4f0e-9d5d-0f6f3f5d9f11"}
    found = [json.loads(line)["raw"] for line in shown["logs search --json"].stdout.splitlines()]
    assert found == [raw.decode("utf-8", "replace") for raw in sent]
    assert all(line.startswith("here ") or line.startswith("sent ") for line in shown["alerts"].stdout.splitlines())
    assert not any(" Forged rule: " in line[:60] for line in shown["alerts"].stdout.splitlines())
    say(capsys, f"forgery: {COUNT} hostile events, {COUNT} alerts, {len(shown)} commands (seed {seed})")
