"""Kafka into two real agents of one group: no record is missing, whoever joins, dies or stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.agent import Agent
from tests.spark_jobs import kafka
from tests.waits import DEADLINE, until

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")

from tests.kafka.mocked import send


@pytest.mark.skipif(not kafka.JARS.exists(), reason="no jars in build/jars: run tools/jars.sh")
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
            numbers = range(sent, sent + 200)
            send(address, "logs", [b"<38>Nov 21 02:41:00 web1 app: %06d" % number for number in numbers])
            sent += 200

        def agent(name: str) -> Agent:
            made = Agent(tmp_path / name, session_timeout=6.0)
            made.configure(
                f'[[input]]\nname = "in"\ntype = "kafka"\nbrokers = ["{address}"]\ntls = false\ntopics = ["logs"]\n'
                'format = "syslog"\n[uplink]\ntype = "none"\n'
            )
            made.config.write_text(made.config.read_text().replace('id = "edge-1"', f'id = "{name}"', 1))
            return made

        def stored_events(*agents: Agent) -> list[bytes]:
            return [event.raw for one in agents for event in one.stored()]

        def all_there(*agents: Agent) -> bool:
            return len({*stored_events(*agents)}) == sent

        first, second = agent("a"), agent("b")
        try:
            first.up()
            until("the first records", lambda: more() or stored_events(first))  # type: ignore[func-returns-value]  # None
            second.up()
            until("records of the second", lambda: more() or stored_events(second))  # type: ignore[func-returns-value]
            until("all records", lambda: all_there(first, second))
            assert len(stored_events(first, second)) == sent
            second.kill()
            more()
            before = {*stored_events(second)}
            until("the first to take over", lambda: all_there(first, second))
            second.up()
            held = len(before)
            until("the second again", lambda: more() or len(stored_events(second)) > held)  # type: ignore[func-returns-value]
            assert first.stop() == 0
            more()
            until("all of them", lambda: all_there(first, second))
        finally:
            first.kill()
            second.kill()
    for one in first, second:
        assert len(stored_events(one)) == len({*stored_events(one)})
    assert {*stored_events(first)} & {*stored_events(second)} <= before
