"""The Kafka sink against a real broker, for what a mock does not have: a topic's limit, SASL and being killed."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import shake_256
from pathlib import Path

import pytest

from tests.sinks.kit import outgoing, row
from tests.sinks.test_kafka import opened, records, seqs
from tests.spark_jobs import kafka
from tests.waits import DEADLINE
from vedette.sinks.base import Verdict

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")

pytestmark = [
    pytest.mark.long,
    pytest.mark.peer,
    pytest.mark.skipif(not kafka.JARS.exists(), reason="no jars in build/jars: run tools/jars.sh"),
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[kafka.Kafka]:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    started = kafka.Kafka(tmp_path / "kafka")
    try:
        started.start()
        admin = AdminClient({"bootstrap.servers": started.address, "log_level": 0})
        for topic in ("small", "rows"):
            admin.create_topics([NewTopic(topic, 1, config={"max.message.bytes": "3000"})])[topic].result(DEADLINE)
        yield started
    finally:
        started.kill()


async def test_a_real_broker(broker: kafka.Kafka, tmp_path: Path) -> None:
    """An alert that the topic does not take is refused, those of one batch with it are taken. With a wrong password,
    and while the broker is killed, alerts are for later, and taken once the file is right and the broker back."""
    noise = shake_256(b"noise").hexdigest(60_000)
    receiver = opened(broker.address, "rows", row_key="n")
    rows = [row(seq, x=noise if seq == 700 else "") for seq in range(1, 2001)]
    answers = await receiver.deliver(rows)
    await receiver.close()
    assert [seq for seq, answer in enumerate(answers, 1) if answer.verdict is not Verdict.TAKEN] == [700]
    assert [message.key() for message in records(broker.address, "rows")] == [
        b"%d" % n for n in range(1, 2001) if n != 700
    ]

    receiver = opened(broker.address, "small")
    fields = {f"f{i}": noise[i * 500 :][:500] for i in range(20)}
    answers = await receiver.deliver([outgoing(1), outgoing(2, fields=fields), outgoing(3)])
    await receiver.close()
    assert [answer.verdict for answer in answers] == [Verdict.TAKEN, Verdict.REFUSED, Verdict.TAKEN]
    assert "MSG_SIZE_TOO_LARGE" in answers[1].text

    password = tmp_path / "password"
    password.write_text("wrong")
    scram = {"sasl": "scram-sha-512", "username": kafka.USER, "password_file": password}
    receiver = opened(broker.at("SASL"), "small", timeout=1.5, **scram)
    (answer,) = await receiver.deliver([outgoing(4)])
    assert answer.verdict is Verdict.LATER
    while "AUTHENTICATION" not in answer.text.upper():
        (answer,) = await receiver.deliver([outgoing(4)])
    password.write_text(kafka.PASSWORD)
    while answer.verdict is Verdict.LATER:
        (answer,) = await receiver.deliver([outgoing(4)])
    assert answer.verdict is Verdict.TAKEN
    await receiver.close()

    receiver = opened(broker.address, "small", timeout=1.0)
    broker.kill()
    answers = await receiver.deliver([outgoing(5), outgoing(6)])
    assert {answer.verdict for answer in answers} == {Verdict.LATER}
    broker.start()
    while any(answer.verdict is Verdict.LATER for answer in answers):
        answers = await receiver.deliver([outgoing(5), outgoing(6)])
    await receiver.close()
    assert {1, 3, 4, 5, 6} <= set(seqs(broker.address, "small"))
