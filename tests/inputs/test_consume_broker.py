"""The Kafka input against a real broker, for what a mock does not have: SASL and TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.certificates import Authority
from tests.inputs.consumed import consuming, numbered
from tests.inputs.intake import Bin
from tests.kafka.mocked import send
from tests.spark_jobs import kafka
from tests.waits import DEADLINE, eventually
from vedette.model.counters import Counters

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka: pip install 'vedette[kafka]'")

pytestmark = [
    pytest.mark.long,
    pytest.mark.peer,
    pytest.mark.skipif(not kafka.JARS.exists(), reason="no jars in build/jars: run tools/jars.sh"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def broker(tmp_path: Path, authority: Authority) -> Iterator[kafka.Kafka]:
    certificate, key = authority.issue("broker")
    keystore = authority.folder / "keystore.pem"
    keystore.write_text(key.read_text() + certificate.read_text())
    started = kafka.Kafka(tmp_path / "kafka", (authority.ca, keystore))
    try:
        started.start()
        yield started
    finally:
        started.kill()


def create(broker: kafka.Kafka, topic: str, partitions: int) -> str:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(DEADLINE)
    return topic


async def test_security(broker: kafka.Kafka, authority: Authority, tmp_path: Path) -> None:
    """SCRAM with a password from a file; one that is empty or wrong is logged and tried again, and right once the file
    is; TLS with a client's certificate, and not without."""
    name, password = create(broker, "secured", 1), tmp_path / "password"
    send(broker.address, name, numbered(0, 3))
    sasl = broker.at("SASL")
    scram = {"sasl": "scram-sha-512", "username": kafka.USER, "password_file": password}
    password.write_text("")
    with capture_logs() as logs:
        async with consuming(sasl, Bin(), Counters(), topics=(name,), static=True, **scram):
            await eventually("an empty file", lambda: any("is empty" in entry.get("reason", "") for entry in logs))
            password.write_text("wrong")
            await eventually("a refusal", lambda: any(entry["event"] == "broker_refused" for entry in logs))
    assert kafka.PASSWORD not in json.dumps(logs)
    password.write_text(kafka.PASSWORD + "\n")
    bin = Bin()
    async with consuming(sasl, bin, Counters(), topics=(name,), static=True, **scram):
        await eventually("3 events", lambda: len(bin.events) == 3)
    certificate, key = authority.issue("agent")
    tls = {"tls": True, "ca_file": authority.ca, "group": "tls"}
    refusals = ("broker_refused", "broker_away")
    with capture_logs() as logs:
        async with consuming(broker.at("TLS"), Bin(), Counters(), topics=(name,), static=True, **tls):
            await eventually("a refusal", lambda: any(entry["event"] in refusals for entry in logs))
    bin = Bin()
    async with consuming(
        broker.at("TLS"),
        bin,
        Counters(),
        topics=(name,),
        static=True,
        cert_file=certificate,
        key_file=key,
        **tls,
    ):
        await eventually("3 events", lambda: len(bin.events) == 3)
