"""Kafka into two real agents of one group: no record is missing, whoever joins, dies or stops, and windows by key are
whole while their partition stays."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.e2e.agent import RULES, Agent
from tests.e2e.test_statements import TABLE
from tests.spark_jobs import kafka
from tests.waits import DEADLINE, until

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")

from tests.kafka.mocked import committed, send

pytestmark = [
    pytest.mark.long,
    pytest.mark.peer,
    pytest.mark.skipif(not kafka.JARS.exists(), reason="no jars in build/jars: run tools/jars.sh"),
]
TOPIC = "logs"
PARTITIONS = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of one that has TOPIC."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    with kafka.kafka(tmp_path / "broker") as address:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        for work in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
            work.result(DEADLINE)
        yield address


def member(folder: Path, address: str, settings: str, rules: Path = RULES) -> Agent:
    """An agent of the group; its id is the folder's name."""
    agent = Agent(folder, rules=rules)
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "kafka"\nbrokers = ["{address}"]\ntls = false\ntopics = ["{TOPIC}"]\n'
        f'session_timeout = "6s"\n{settings}'
    )
    agent.config.write_text(agent.config.read_text().replace('id = "edge-1"', f'id = "{folder.name}"', 1))
    return agent


def stored_events(*agents: Agent) -> list[bytes]:
    return [event.raw for agent in agents for event in agent.stored()]


def test_two_agents_in_a_group(broker: str, tmp_path: Path) -> None:
    """Four partitions, while records come: a second agent joins and takes half of them, in order, so that no record is
    there twice; it is killed and the first takes over; it comes back, and the first stops. No record is missing, no
    agent has one twice, and what both have the one that was killed had stored by then."""
    sent = 0
    settings = 'format = "syslog"\n[uplink]\ntype = "none"\n'
    first, second = (member(tmp_path / name, broker, settings) for name in "ab")

    def more() -> None:
        nonlocal sent
        numbers = range(sent, sent + 200)
        send(broker, TOPIC, [b"<38>Nov 21 02:41:00 web1 app: %06d" % number for number in numbers])
        sent += 200

    def all_there() -> bool:
        return len({*stored_events(first, second)}) == sent

    try:
        first.up()
        until("the first records", lambda: more() or stored_events(first))  # type: ignore[func-returns-value]  # None
        second.up()
        until("records of the second", lambda: more() or stored_events(second))  # type: ignore[func-returns-value]
        until("all records", all_there)
        assert len(stored_events(first, second)) == sent
        second.kill()
        more()
        before = {*stored_events(second)}
        until("the first to take over", all_there)
        second.up()
        held = len(before)
        until("the second again", lambda: more() or len(stored_events(second)) > held)  # type: ignore[func-returns-value]
        assert first.stop() == 0
        more()
        until("all of them", all_there)
    finally:
        first.kill()
        second.kill()
    for agent in first, second:
        assert len(stored_events(agent)) == len({*stored_events(agent)})
    assert {*stored_events(first)} & {*stored_events(second)} <= before


class Doors:
    """Events of eight keys, each in its own partition, one a second each; and the windows of a minute of two agents."""

    def __init__(self, folder: Path, address: str) -> None:
        (folder / "rules").mkdir()
        (folder / "rules" / "door.sql").write_text(
            f"""{TABLE}
            -- title: A minute
            INSERT INTO alerts SELECT src, window_start, window_end, COUNT(*) AS events
            FROM TABLE(TUMBLE(TABLE door, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, src;
            """
        )
        settings = 'format = "json"\nlogsource = { product = "door" }\n'
        self.agents = [member(folder / name, address, settings, folder / "rules") for name in "ab"]
        self.keys = [f"10.0.0.{number}" for number in range(2 * PARTITIONS)]
        self.sent = 0
        self._address, self._start = address, int(time.time()) // 60 * 60 - 3600

    def send(self, begin: int, end: int) -> None:
        """Seconds of events. Those of a minute are stored before the next begins, which ends it."""
        for minute in range(begin - begin % 60, end, 60):
            self._send(max(begin, minute), min(end, minute + 60))

    def _send(self, begin: int, end: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._address, "log_level": 0})
        for second in range(self._start + begin, self._start + end):
            at = datetime.fromtimestamp(second, UTC).isoformat()
            for number, key in enumerate(self.keys):
                event = json.dumps({"@timestamp": at, "ev": "open", "src": key, "n": self.sent}).encode()
                producer.produce(TOPIC, event, key, partition=number % PARTITIONS, timestamp=second * 1000)
                self.sent += 1
        assert producer.flush(DEADLINE) == 0
        until("all that was sent", lambda: len({*stored_events(*self.agents)}) == self.sent)

    def committed(self) -> None:
        until("all to be committed", lambda: committed(self._address, TOPIC, "vedette", PARTITIONS) == self.sent)

    def windows(self, minute: int) -> dict[str, list[int]]:
        """The events that alerts of a minute count, by key."""
        begin = datetime.fromtimestamp(self._start + 60 * minute, UTC).strftime("%H:%M:%S")
        by_key: dict[str, list[int]] = {}
        for agent in self.agents:
            for alert in agent.alerts():
                fields = dict(alert["fields"])
                if begin in fields["window_start"]:
                    by_key.setdefault(fields["src"], []).append(int(fields["events"]))
        return by_key

    def whole(self, *minutes: int) -> None:
        """Each of these windows is there once, with all of its events."""
        for minute in minutes:
            until(f"minute {minute}", lambda minute=minute: self.windows(minute).keys() == {*self.keys})  # type: ignore[misc]
            assert self.windows(minute) == {key: [60] for key in self.keys}


def test_windows_of_two_agents(broker: str, tmp_path: Path) -> None:
    """Windows by the key of the partitions, in two agents. One is killed in a window and started again: nothing moves,
    each window is whole and there once. It is killed and stays away: the other goes on behind what was committed, no
    event is missing, the windows in which partitions move are in parts, and those that begin later are whole again, as
    they are once it is back."""
    doors = Doors(tmp_path, broker)
    first, second = doors.agents

    def moves(agent: Agent, times: int) -> None:
        until("partitions", lambda: len(agent.said("broker_connected")) == times)

    try:
        first.up()
        moves(first, 1)
        second.up()
        moves(second, 1)
        doors.send(0, 1)
        doors.send(1, 90)
        second.kill()
        second.start()
        doors.send(90, 186)
        doors.whole(0, 1, 2)

        doors.send(186, 210)
        doors.committed()
        second.kill()
        doors.send(210, 300)
        assert len(stored_events(first, second)) == doors.sent
        doors.send(300, 366)
        doors.whole(5)

        second.up()
        moves(second, 1)
        doors.send(366, 480)
        doors.send(800, 801)  # the first waits no more for partitions that it does not have
        doors.whole(7)
        for minute in 3, 4, 6:
            parts = doors.windows(minute)
            assert parts.keys() == {*doors.keys}
            assert all(len(counts) <= 2 and sum(counts) <= 60 for counts in parts.values())
    finally:
        first.kill()
        second.kill()
