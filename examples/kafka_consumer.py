"""A Kafka consumer that evaluates the lines of a topic and writes what rules find to another one, as JSON.

``python examples/kafka_consumer.py BROKER FROM TO STATE RULES...``

STATE is a file that holds what the detector remembers together with the offsets up to which it has read. So after a
kill it reads on from there, and every line counts once in every window. What was found since the last STATE is found
again, and so written at least once. SIGTERM ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgpack
from confluent_kafka import Consumer, Producer, TopicPartition

from vedette import Detection, Detector, compile_rules

BATCH = 500


def main(broker: str, source: str, target: str, state: Path, rules: list[str]) -> None:
    offsets, saved = dict[int, int](), b""
    if state.exists():
        offsets, saved = msgpack.unpackb(state.read_bytes(), strict_map_key=False)
    detector = Detector(compile_rules(*rules), state=saved)
    producer = Producer({"bootstrap.servers": broker})
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "vedette", "enable.auto.commit": False})
    partitions = consumer.list_topics(source).topics[source].partitions
    consumer.assign([TopicPartition(source, number, offsets.get(number, 0)) for number in partitions])
    ended: list[Any] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    while not ended:
        messages = [one for one in consumer.consume(BATCH, timeout=1.0) if one.error() is None]
        found = detector.feed([one.value() for one in messages]) if messages else detector.advance()
        for one in found:
            row = one.to_row("") if isinstance(one, Detection) else one.to_row()
            producer.produce(target, json.dumps(row))
        producer.flush()  # the alerts are written before the state says so
        for one in messages:
            offsets[one.partition()] = one.offset() + 1
        part = state.with_suffix(".part")
        part.write_bytes(msgpack.packb((offsets, detector.save())))
        os.replace(part, state)
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5:])
