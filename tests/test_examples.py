"""The programs in examples/ do what they say: a Flask app and a Kafka consumer that evaluate as they go."""

from __future__ import annotations

import importlib.util
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from tests.e2e.agent import chance
from tests.spark_jobs.kafka import JARS, kafka
from tests.waits import until

EXAMPLES = Path(__file__).parents[1] / "examples"
RULES = """title: Failed
id: 3e3e3e3e-0000-4000-8000-000000000001
logsource: {product: linux, service: sshd}
detection: {s: {message|startswith: Failed}, condition: s}
---
title: Many
id: 3e3e3e3e-0000-4000-8000-000000000002
correlation:
  type: event_count
  rules: [3e3e3e3e-0000-4000-8000-000000000001]
  group-by: [hostname]
  timespan: 1h
  condition: {gte: 50}
  generate: true
"""


def imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_flask_app(caplog: pytest.LogCaptureFixture) -> None:
    """Three wrong logins from one address make a warning."""
    pytest.importorskip("flask")
    client = imported("flask_app").app.test_client()
    with caplog.at_level(logging.WARNING, "vedette"):
        assert client.post("/login", data={"password": "correct horse"}).status_code == 200
        assert client.get("/nowhere").status_code == 404
        for _ in range(3):
            assert client.post("/login", data={"password": "x"}).status_code == 401
    titles = [record.getMessage().partition(":")[0] for record in caplog.records if record.name == "vedette"]
    assert titles == ["Many Logins Failed"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    if not JARS.exists():
        pytest.skip("no Kafka: make jars")
    with kafka(tmp_path / "kafka") as address:
        yield address


@pytest.mark.long
@pytest.mark.peer
def test_the_kafka_consumer(broker: str, tmp_path: Path) -> None:
    """Killed again and again, it finds each match, and the fiftieth of each host: every line counts once."""
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker})
    for made in admin.create_topics([NewTopic("logs", 1), NewTopic("found", 1)]).values():
        made.result(30)
    rules, state, rng = tmp_path / "rules.yml", tmp_path / "state", chance()
    rules.write_text(RULES)
    command = [sys.executable, EXAMPLES / "kafka_consumer.py", broker, "logs", "found", state, rules]
    producer, sent = Producer({"bootstrap.servers": broker, "log_level": 2}), 0
    for _ in range(3):
        running = subprocess.Popen(command)
        deadline = time.monotonic() + rng.uniform(1.0, 2.5)
        while time.monotonic() < deadline:
            for _ in range(10):
                sent += 1
                when = datetime.now(UTC).isoformat()
                producer.produce("logs", f"<38>1 {when} web{(sent - 1) // 50} sshd 7 - - Failed password {sent}")
            producer.flush()
            time.sleep(0.02)
        running.kill()
        running.wait()
    read = Consumer({"bootstrap.servers": broker, "group.id": "test", "auto.offset.reset": "earliest"})
    read.subscribe(["found"])
    found: dict[str, set[int]] = {"Failed": set(), "Many": set()}

    def whole() -> bool:
        for message in read.consume(500, timeout=0.1):
            row = json.loads(message.value())
            found[row["rule_title"]].add(row["line"])
        return len(found["Failed"]) == sent and len(found["Many"]) == sent // 50

    running = subprocess.Popen(command)
    try:
        until(f"all of {sent} to be found", whole)
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
        read.close()
    assert found["Failed"] == set(range(1, sent + 1))
    assert found["Many"] == set(range(50, sent + 1, 50))
