"""How to reach Kafka's brokers: the settings that inputs and sinks of this type have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from vedette.model.settings import split_address
from vedette.system.installation import bring, running

TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""A topic's name (kafka.common.internals.Topic)."""


@dataclass(frozen=True)
class KafkaSettings:
    """Brokers, and who we are to them. Not slotted, so that it goes with other bases."""

    brokers: tuple[str, ...] = ()
    tls: bool = True
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    sasl: Literal["none", "plain", "scram-sha-256", "scram-sha-512"] = "none"
    username: str = ""
    password_file: Path | None = None

    def kafka_mistakes(self) -> Iterator[str]:
        """What is wrong that one key alone does not show: each begins with ``.KEY: `` or ``: ``."""
        if find_spec("confluent_kafka") is None:
            yield f": needs confluent-kafka, which is not installed: {bring('kafka', running())}"
        for broker in self.brokers:
            try:
                split_address(broker)
            except ValueError as error:
                yield f".brokers: {error}"
        if (self.cert_file is None) != (self.key_file is None):
            yield ": cert_file and key_file go together"
        if not self.tls and (self.ca_file or self.cert_file):
            yield ".tls: is false, so ca_file and cert_file are not used"
        if self.sasl == "none":
            if self.username or self.password_file:
                yield '.sasl: missing; username and password_file need "scram-sha-512", "scram-sha-256" or "plain"'
        elif not self.username or self.password_file is None:
            yield f".sasl: {self.sasl} needs username and password_file"
        elif self.sasl == "plain" and not self.tls:
            yield ".sasl: plain without tls would send the password for anybody to read; use TLS, or scram-sha-512"

    @property
    def servers(self) -> str:
        """As people and librdkafka write them."""
        return ",".join(self.brokers)
