"""Redaction from the host to the region: no secret passes the broker, lands, or stands in a sink's file."""

from __future__ import annotations

import json
import signal
import stat
from pathlib import Path

import pytest

from bench.send import tcp
from tests.broker import running
from tests.e2e.agent import Agent, landed, until, vedette
from tests.e2e.test_landing import Landing, session

pytestmark = pytest.mark.peer
EVENTS = 60
AGENT = """\
[[input]]
name = "in"
type = "syslog"
tcp = "127.0.0.1:{port}"
logsource = {{ product = "linux" }}
[[redact]]
action = "hash"
fields = ["user"]
kinds = ["ip"]
[[redact]]
patterns = ["card", "password"]
[[sink]]
type = "file"
name = "local"
path = "{sink}"
[[ruleset]]
name = "site"
paths = ["{site}"]
isolation = "strict"
[broker]
url = "{url}"
[uplink]
type = "mqtt"
resend_after = "1s"
heartbeat = "1s"
"""
RULE = """
title: Payment {name}
id: 00000000-0000-4000-8000-00000000000{number}
logsource: {{product: linux}}
detection: {{a: {{user|exists: true}}, condition: a}}
fields: [user, src_ip, note]
level: low
"""
FURTHER = """---
title: Twice
id: 00000000-0000-4000-8000-000000000009
correlation:
    type: event_count
    rules: [00000000-0000-4000-8000-000000000001]
    group-by: [user]
    timespan: 10m
    condition: {gte: 2}
    generate: true
level: high
"""


def line(i: int) -> bytes:
    event = {"user": f'us"er-{i // 2:04}é', "src_ip": f"10.9.8.{100 + i // 2}",
             "note": f"paid with 4111 1111 1111 1111, password=hunter-{i:04}"}  # fmt: skip
    return b"<38>Nov 21 02:41:00 web1 app: " + json.dumps(event).encode() + b"\n"


def test_from_the_host_to_the_region(tmp_path: Path) -> None:
    """Through a real broker into Parquet, with a rule set in its own process and a kill: every alert arrives, hashed
    values join, and none of the secrets is in what the broker kept, what landed, or what the sink wrote."""
    for name, number in (("main", 1), ("site", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rule.yml").write_text(
            RULE.format(name=name, number=number) + (FURTHER if name == "main" else "")
        )
    sink = tmp_path / "alerts.ndjson"
    with running(tmp_path / "broker") as broker:
        landing = Landing(tmp_path / "landing", broker)
        agent = Agent(tmp_path / "a", rules=tmp_path / "main")
        agent.configure(AGENT.format(port=agent.port, url=broker.url, sink=sink, site=tmp_path / "site"))
        try:
            landing.start()
            agent.start()
            session(broker)
            agent.ready()
            tcp(("127.0.0.1", agent.port), b"".join(map(line, range(EVENTS // 2))))
            until("the first alerts", lambda: agent.alive() and landed(landing.folder))
            agent.signal(signal.SIGKILL)
            agent.kill()
            agent.start()
            agent.ready()
            tcp(("127.0.0.1", agent.port), b"".join(map(line, range(EVENTS // 2, EVENTS))))
            made = EVENTS * 2 + EVENTS // 2

            def arrived() -> bool:
                return agent.alive() and len({row["alert_id"] for row in landed(landing.folder)}) >= made

            until("all alerts", arrived)
            written = until("the sink", lambda: sink.read_bytes().count(b"\n") >= made and sink.read_bytes())
            shown = vedette("alerts", "--data-dir", agent.data, "--json", "--limit", 1000).stdout
            rows = landed(landing.folder)
        finally:
            agent.kill()
            landing.kill()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "broker").rglob("*") if path.is_file())
    texts = [json.dumps(rows, default=str, ensure_ascii=False), written.decode(), shown, kept.decode("latin-1")]
    for text in texts:
        for secret in ("er-00", "10.9.8.", "4111", "hunter-"):
            assert secret not in text
    users: dict[str, set[str]] = {}
    for row in rows:
        assert "redacted" in row["flags"]
        users.setdefault(dict(row["fields"])["user"], set()).add(row["rule_title"])
    assert len(users) == EVENTS // 2
    assert set(map(frozenset, users.values())) == {frozenset({"Payment main", "Payment site", "Twice"})}
    assert stat.S_IMODE((agent.data / "redact.key").stat().st_mode) == 0o600
    assert vedette("logs", "search", "-c", agent.config, "hunter-0003").stdout.count("hunter-0003") == 1
