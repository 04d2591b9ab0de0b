"""Kafka into the real agent and alerts out to Kafka: each record is in the raw log once, whatever happens to it."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench import traffic
from tests.e2e.agent import KILLS, Agent, assert_as_scanned, chance, reborn, say, split, vedette
from tests.spark_jobs import kafka
from tests.waits import DEADLINE, until

confluent = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")

LINES = 30_000
needs_broker = pytest.mark.skipif(not kafka.JARS.exists(), reason="no jars in build/jars: run tools/jars.sh")


def _send(address: str, part: bytes) -> None:
    producer = confluent.Producer({"bootstrap.servers": address, "log_level": 0, "linger.ms": 5, "acks": "all"})
    for i, line in enumerate(part.splitlines()):
        producer.produce("logs", line)
        if i % 1000 == 0:
            time.sleep(0.02)
    assert producer.flush(DEADLINE) == 0


@needs_broker
@pytest.mark.long
@pytest.mark.peer
def test_killed_in_the_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed at random while records come: each is in the raw log once, byte for byte; the alerts equal ``scan``,
    and each is at least once in the topic of the sink."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    rng = chance()
    parts = split(b"".join(traffic.blocks(14, LINES, attack_rate=0.01)), KILLS + 1)
    with kafka.kafka(tmp_path / "broker") as address, ThreadPoolExecutor(1) as sender:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        # One partition: ``scan`` then sees the order of their times, on which correlations depend.
        for work in admin.create_topics([NewTopic("logs", 1), NewTopic("alerts", 1)]).values():
            work.result(DEADLINE)
        agent = Agent(tmp_path / "a")
        agent.configure(
            f'[[input]]\nname = "in"\ntype = "kafka"\nbrokers = ["{address}"]\ntls = false\ntopics = ["logs"]\n'
            'format = "syslog"\nlogsource = { product = "linux" }\n'
            f'[[sink]]\nname = "bus"\ntype = "kafka"\nbrokers = ["{address}"]\ntls = false\ntopic = "alerts"\n'
        )
        agent.up()
        try:
            for i, part in enumerate(parts):
                work = sender.submit(_send, address, part)
                if i < KILLS:
                    time.sleep(rng.uniform(0.0, 1.5))
                    agent.kill()
                    reborn(agent, rng)
                    agent.ready()
                work.result()
            agent.settled(LINES)
            until("the sink", lambda: agent.alive() and not agent.status()["sinks"][0]["waiting"])
            tested = vedette("sink", "test", "-c", agent.config, "bus")
            assert "alerts/0 offset" in tested.stdout
            status = agent.settled()
        finally:
            agent.kill()
        sent = _alerts(address)
    assert sorted(event.raw for event in agent.stored()) == sorted(line for part in parts for line in part.splitlines())
    assert status["inputs"]["in"]["dropped"] == {}
    found = assert_as_scanned(agent)
    assert {alert["alert_id"] for alert in agent.alerts()} <= sent
    say(capsys, f"kafka, {KILLS} kills: {LINES} records stored once, {found} alerts as scan, all of them in the topic")


@needs_broker
@pytest.mark.long
@pytest.mark.peer
def test_two_agents_in_a_group(tmp_path: Path) -> None:
    """Four partitions, while records come: a second agent joins and takes half of them, in order, so that no record is
    there twice; it is killed and the first takes over; it comes back, and the first stops. No record is missing, no
    agent has one twice, and what both have the one that was killed had stored by then."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    sent = 0

    with kafka.kafka(tmp_path / "broker") as address:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        for work in admin.create_topics([NewTopic("logs", 4)]).values():
            work.result(DEADLINE)

        def more() -> None:
            nonlocal sent
            lines = (b"<38>Nov 21 02:41:00 web1 app: %06d\n" % one for one in range(sent, sent + 200))
            _send(address, b"".join(lines))
            sent += 200

        def agent(name: str) -> Agent:
            made = Agent(tmp_path / name, session_timeout=6.0)
            made.configure(
                f'[[input]]\nname = "in"\ntype = "kafka"\nbrokers = ["{address}"]\ntls = false\ntopics = ["logs"]\n'
                'format = "syslog"\n[uplink]\ntype = "none"\n'
            )
            made.config.write_text(made.config.read_text().replace('id = "edge-1"', f'id = "{name}"', 1))
            return made

        def taken(*agents: Agent) -> list[bytes]:
            return [event.raw for one in agents for event in one.stored()]

        def all_there(*agents: Agent) -> bool:
            return len({*taken(*agents)}) == sent

        first, second = agent("a"), agent("b")
        try:
            first.up()
            until("the first records", lambda: more() or taken(first))  # type: ignore[func-returns-value]  # None
            second.up()
            until("records of the second", lambda: more() or taken(second))  # type: ignore[func-returns-value]
            until("all records", lambda: all_there(first, second))
            assert len(taken(first, second)) == sent
            second.kill()
            more()
            before = {*taken(second)}
            until("the first to take over", lambda: all_there(first, second))
            second.up()
            held = len(before)
            until("the second again", lambda: more() or len(taken(second)) > held)  # type: ignore[func-returns-value]
            assert first.stop() == 0
            more()
            until("all of them", lambda: all_there(first, second))
        finally:
            first.kill()
            second.kill()
    for one in first, second:
        assert len(taken(one)) == len({*taken(one)})
    assert {*taken(first)} & {*taken(second)} <= before


def _alerts(address: str) -> set[str]:
    consumer = confluent.Consumer({"bootstrap.servers": address, "group.id": "t", "log_level": 0})
    try:
        place, found = confluent.TopicPartition("alerts", 0, 0), list[object]()
        high = consumer.get_watermark_offsets(place, timeout=DEADLINE)[1]
        consumer.assign([place])
        while len(found) < high:
            got = consumer.consume(high - len(found), DEADLINE)
            assert got
            found += [json.loads(one.value())["alert_id"] for one in got]
        return {str(one) for one in found}
    finally:
        consumer.close()
