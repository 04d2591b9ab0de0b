"""A real Kafka broker on loopback, from the jars that ``tools/jars.sh`` fetches: one node, its data in a folder.

``Kafka`` can be killed and started again on the same ports and data. Beside its plain listener it has one for
SCRAM-SHA-512 and SASL/PLAIN (``USER`` and ``PASSWORD``), and with ``tls`` one that asks for a client's certificate.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.broker import own_port

JARS = Path(__file__).parents[2] / "build" / "jars" / "broker"
USER, PASSWORD = "vedette", "hush"
_JAAS = "org.apache.kafka.common.security"
_PROPERTIES = f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{{controller}}
listeners={{listeners}},CONTROLLER://127.0.0.1:{{controller}}
advertised.listeners={{listeners}}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl.scram-sha-512.sasl.jaas.config={_JAAS}.scram.ScramLoginModule required;
log.dirs={{folder}}/data
num.partitions=2
offsets.topic.num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
"""
_TLS = """\
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={keystore}
listener.name.tls.ssl.truststore.type=PEM
listener.name.tls.ssl.truststore.location={ca}
listener.name.tls.ssl.client.auth=required
"""
_JAVA = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{JARS}/*"]


class Kafka:
    """One broker. ``tls``: its authority's certificate, and a file with its own and then its key (PKCS 8)."""

    def __init__(self, folder: Path, tls: tuple[Path, Path] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._ports = {"PLAINTEXT": own_port(), "SASL": own_port(), **({"TLS": own_port()} if tls else {})}
        self._settings, self._log = folder / "server.properties", folder / "server.log"
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items())
        text = _PROPERTIES.format(listeners=listeners, controller=own_port(), folder=folder)
        self._settings.write_text(text + (_TLS.format(ca=tls[0], keystore=tls[1]) if tls else ""))
        self._process: subprocess.Popen[bytes] | None = None
        scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
        name = "MkU3OEVBNTcwNTJENDM2Qk"
        self._run("kafka.tools.StorageTool", "format", "-t", name, "-c", self._settings, "--add-scram", scram).wait(120)

    def _run(self, *arguments: object) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen([*_JAVA, *map(str, arguments)], start_new_session=True, stdout=log, stderr=log)

    @property
    def address(self) -> str:
        return self.at("PLAINTEXT")

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def start(self) -> None:
        """Until it answers."""
        self._process = self._run("kafka.Kafka", self._settings)
        _await(self._process, self._ports["PLAINTEXT"])

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """``HOST:PORT`` of a broker that lives as long as the context."""
    broker = Kafka(folder)
    try:
        broker.start()
        yield broker.address
    finally:
        broker.kill()


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    deadline = time.monotonic() + 300
    while True:
        assert process.poll() is None, "the Kafka broker has ended"
        try:
            AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}).list_topics(timeout=5)
        except KafkaException:
            assert time.monotonic() < deadline, "no Kafka broker in 300 s"
        else:
            return
