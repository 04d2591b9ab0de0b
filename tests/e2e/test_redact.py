"""Redaction from the host to the region: no secret passes the broker, lands, or stands in a sink's file."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from pathlib import Path

import pytest

from bench.send import tcp
from tests.broker import own_port, running
from tests.e2e.agent import Agent, landed, vedette
from tests.e2e.test_landing import Landing, session
from tests.waits import until
from vedette.stream.userfunctions import FAILING

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
heartbeat = "1s"
resend_after = "1s"
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
    # Over 3 s: two lives of an agent, of the process of its strict set, and a landing.
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
        for secret in ("er-00", r"10\.9\.8\.", r"(?<![0-9a-f])4111(?![0-9a-f])", "4111 ?1111", "hunter-"):
            assert not re.search(secret, text)  # 4111 alone may stand in any hash
    users: dict[str, set[str]] = {}
    for row in rows:
        assert "redacted" in row["flags"]
        users.setdefault(dict(row["fields"])["user"], set()).add(row["rule_title"])
    assert len(users) == EVENTS // 2
    assert set(map(frozenset, users.values())) == {frozenset({"Payment main", "Payment site", "Twice"})}
    assert stat.S_IMODE((agent.data / "redact.key").stat().st_mode) == 0o600
    assert vedette("logs", "search", "-c", agent.config, "hunter-0003").stdout.count("hunter-0003") == 1


LEAKY = """
class Leaky:
    fields = {"gate": "verbatim"}

    def read(self, message):
        raise ValueError("cannot read " + message)
"""
BOOM = """
from pyflink.table import DataTypes
from pyflink.table.udf import udf

@udf(result_type=DataTypes.STRING())
def boom(note):
    raise ValueError(note)
"""
SQL = """
CREATE TABLE notes (note STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time', WATERMARK FOR ts AS ts)
    WITH ('connector' = 'vedette');
CREATE TEMPORARY FUNCTION boom AS 'own.boom' LANGUAGE PYTHON;
-- title: Quoting
INSERT INTO alerts SELECT boom(note) AS said FROM notes WHERE note IS NOT NULL;
"""
PLUGGED = """\
[plugins]
allow = ["leaky"]
[functions]
allow = true
[[input]]
name = "gate"
type = "syslog"
tcp = "127.0.0.1:{port}"
format = "leaky"
logsource = {{ product = "linux" }}
"""


@pytest.mark.long
def test_errors_that_quote_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder of a plugin and a function raise with a card and a token in what they say: the host's owner reads it in
    the status, and no status that passed the broker, no alert and no sink has it."""
    info = tmp_path / "lib" / "leaky-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: leaky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vedette.decoders]\nleaky = leaky:Leaky\n")
    (tmp_path / "lib" / "leaky.py").write_text(LEAKY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "lib"), os.environ.get("PYTHONPATH", "")]))
    rules, site, sink, port = tmp_path / "main", tmp_path / "site", tmp_path / "alerts.ndjson", own_port()
    (rules / "functions").mkdir(parents=True)
    site.mkdir()
    (site / "rule.yml").write_text(RULE.format(name="site", number=2).replace("{user|exists: true}", "{message|re: .}"))
    (rules / "rule.yml").write_text(RULE.format(name="main", number=1))
    (rules / "quoting.sql").write_text(SQL)
    (rules / "functions" / "own.py").write_text(BOOM)
    with running(tmp_path / "broker") as broker:
        landing = Landing(tmp_path / "landing", broker)
        agent = Agent(tmp_path / "a", rules=rules)
        settings = AGENT.format(port=agent.port, url=broker.url, sink=sink, site=site)
        agent.configure(settings + PLUGGED.format(port=port))
        try:
            landing.start()
            agent.start()
            session(broker)
            agent.ready()
            tcp(("127.0.0.1", port), b"<38>Nov 21 02:41:00 web1 app: 4111 1111 1111 1111 password=hunter-0001\n")
            tcp(("127.0.0.1", agent.port), b"".join(map(line, range(FAILING))))
            own = until("the quarantine", lambda: (of := agent.status())["rules"]["quarantined"] and of)
            (aside,) = own["rules"]["quarantined"]
            assert "4111 1111 1111 1111, password=hunter-0" in aside["reason"]
            (plugin,) = own["plugins"]
            assert "4111 1111 1111 1111 password=hunter-0001" in plugin["error"]

            def reported() -> list[str]:
                rows = [row["payload"] for row in landed(landing.folder, "status")]
                return [one for one in rows if '"quarantined_count":1' in one]

            sent = until("a heartbeat that has it", lambda: agent.alive() and reported())
            until("the sink", lambda: sink.exists() and sink.stat().st_size)
            until("the alerts", lambda: landed(landing.folder))
        finally:
            agent.kill()
            landing.kill()
    (told,) = json.loads(sent[-1])["rules"]["quarantined"]
    assert (told["title"], told["reason"]) == ("Quoting", "Broken: [redacted]")
    assert [one["error"] for one in json.loads(sent[-1])["plugins"]] == ["[redacted]"]
    left = [tmp_path / "broker", landing.folder, sink]
    files = [path for one in left for path in (one.rglob("*") if one.is_dir() else [one]) if path.is_file()]
    texts = [json.dumps(landed(landing.folder, table), default=str) for table in ("alerts", "status", "bad")]
    for text in (*texts, *(path.read_bytes().decode("latin-1") for path in files)):
        assert "1111 1111" not in text
        assert "hunter-" not in text
