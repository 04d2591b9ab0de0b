"""What the Kafka input costs: events a CPU-second and memory, with a real broker, in a process of its own.

    python -m bench.kafka [--records 300000]

All CPU time of the process counts, librdkafka's threads too: fetching, unpacking, events, compressing, syncing the raw
log. No rules are evaluated.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import sys
import tempfile
from pathlib import Path

from bench.push import Stored, text
from tests.inputs.intake import agent
from tests.spark_jobs.kafka import kafka
from vedette.inputs.settings import KafkaInput
from vedette.model.counters import Counters

TOPICS = {"lz4": 4, "none": 4}
"""Compression of a topic's records, and its partitions."""


def fill(address: str, records: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    for work in admin.create_topics([NewTopic(*one) for one in TOPICS.items()]).values():
        work.result(30)
    for name in TOPICS:
        producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "compression.type": name})
        for i in range(records):
            if i % 10_000 == 0:
                producer.flush(60)
            producer.produce(name, f"<38>Nov 23 06:16:34 web-1 app[7]: {text(i)}")
        producer.flush(60)


def read(address: str, name: str, records: int) -> None:
    from vedette.inputs.consume import KafkaConsumer

    async def run(folder: Path) -> None:
        counters, stored = Counters(), Stored(folder)
        before, memory = _cpu(), _memory()
        settings = KafkaInput("in", brokers=(address,), topics=(name,), tls=False)
        consumer = KafkaConsumer(settings, agent(stored, counters))
        task = asyncio.create_task(consumer.run())
        while counters.received["in"] < records:
            await asyncio.sleep(0.02)
        await consumer.stop()
        await task
        used = _cpu() - before
        size = counters.bytes_in["in"] // records
        sys.stdout.write(
            f"| {name} | {size} | {used / records * 1e6:.2f} | {records / used:,.0f} | {_memory() - memory} |\n"
        )

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory() -> int:
    """The most it had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    records = parser.parse_args().records
    sys.stdout.write("| compression | bytes an event | µs of CPU an event | events a CPU-second | more memory, MB |\n")
    sys.stdout.write("|---|---|---|---|---|\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder, kafka(Path(folder) / "broker") as address:
        fill(address, records)
        for name in TOPICS:
            process = multiprocessing.get_context("spawn").Process(target=read, args=(address, name, records))
            process.start()
            process.join()


if __name__ == "__main__":
    main()
