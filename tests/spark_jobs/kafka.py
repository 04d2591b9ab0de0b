"""A real Kafka broker on loopback, from the jars that ``tools/jars.sh`` fetches: one node, its data in a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker import free_port

JARS = Path(__file__).parents[2] / "build" / "jars" / "broker"

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """``HOST:PORT`` of a broker that lives as long as the context."""
    folder.mkdir(parents=True, exist_ok=True)
    port, controller = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(_PROPERTIES.format(port=port, controller=controller, folder=folder))
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{JARS}/*"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    format_disk = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(settings)]
    subprocess.run(format_disk, check=True, timeout=120, **quiet)
    process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], start_new_session=True, **quiet)
    try:
        _await(process, port)
        yield f"127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None, "the Kafka broker has ended"
        try:
            AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}).list_topics(timeout=5)
        except KafkaException:
            assert time.monotonic() < deadline, "no Kafka broker in 120 s"
        else:
            return
