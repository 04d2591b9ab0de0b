"""``[[input]] type = "kafka"``: its settings. The transport is in ``consume.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vedette.inputs.base import InputSettings, Running, Surroundings
from vedette.kafka.settings import TOPIC, KafkaSettings
from vedette.model.settings import INTERNAL, Name, Seconds

MAX_HEADERS = 16


@dataclass(frozen=True, slots=True)
class KafkaInput(KafkaSettings, InputSettings):
    """Topics of Kafka, as a member of a consumer group."""

    topics: tuple[str, ...] = ()
    group: Name = "vedette"
    from_start: bool = True
    key: bool = False
    headers: tuple[str, ...] = ()
    session_timeout: Seconds = field(default=30.0, metadata=INTERNAL)
    look: Seconds = field(default=60.0, metadata=INTERNAL)
    """Between two looks whether a topic has been made again."""

    def needed_files(self) -> tuple[Path | None, ...]:
        return (self.ca_file, self.cert_file, self.key_file, self.password_file)

    def mistakes(self) -> Iterator[str]:
        if not self.brokers or not self.topics:
            yield ": needs brokers and topics"
        for topic in self.topics:
            if not topic.startswith("^"):
                if not TOPIC.fullmatch(topic):
                    yield f'.topics: expects names, or expressions such as "^audit[.]", not {topic!r}'
                continue
            try:
                re.compile(topic)
            except re.error as error:
                yield f".topics: {topic!r}: not a regular expression: {error}"
        if not self.group:
            yield ".group: must not be empty"
        if len(self.headers) > MAX_HEADERS:
            yield f".headers: {len(self.headers)} names, at most {MAX_HEADERS}"
        yield from self.kafka_mistakes()

    async def open(self, given: Surroundings, descriptors: int) -> Running:
        from vedette.inputs.consume import KafkaConsumer

        client_id = f"vedette-{given.agent_id}-{self.name}"
        return KafkaConsumer(self, client_id, given.intake, given.counters, given.positions(), given.clock)
