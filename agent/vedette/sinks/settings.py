"""The types of sinks: ``type`` of a ``[[sink]]`` table, and its settings. A new one is a class, a line of SINK_TYPES,
and a case of ``opening.py``, which imports its receiver, so that reading a configuration loads none.

``tests/sinks/test_settings.py`` walks them: each needs tests, a section of docs/guide.md and an example in
packaging/vedette.toml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from vedette.kafka.settings import TOPIC, KafkaSettings
from vedette.model.settings import Address, Seconds, Size
from vedette.mqtt.settings import MqttSettings
from vedette.sinks.base import SinkSettings

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
MAX_TOPIC = 65_535
"""Bytes (MQTT 5, 1.5.4)."""
ENTITIES = ("host", "ip", "user", "domain", "url", "hash", "user_agent", "device")


@dataclass(frozen=True, slots=True)
class HttpSink(SinkSettings):
    """A receiver that is sent to by HTTP."""

    url: str = ""
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    proxy: str = ""
    timeout: Seconds = 10.0

    @property
    def to(self) -> str:
        return origin(self.url)

    def mistakes(self) -> Iterator[str]:
        if self.url:
            yield from (f".url: {mistake}" for mistake in url_mistakes(self.url))
        yield from tls_mistakes(self.cert_file, self.key_file, self.proxy)


@dataclass(frozen=True, slots=True)
class WebhookSink(HttpSink):
    """A POST an alert, in the form of ``template``; or for many rows."""

    row_format: Literal["ndjson", "json"] = "ndjson"
    url_file: Path | None = None
    template: Literal["generic", "slack", "teams", "pagerduty"] = "generic"
    secret_file: Path | None = None

    type: ClassVar[str] = "webhook"

    @property
    def to(self) -> str:
        if self.url_file is not None:
            return str(self.url_file)
        return origin(self.url or PAGERDUTY)

    @property
    def names(self) -> tuple[str, ...]:
        return {"generic": (), "pagerduty": ("host",)}.get(self.template, ENTITIES)

    def mistakes(self) -> Iterator[str]:
        if bool(self.url) == (self.url_file is not None) and not (self.template == "pagerduty" and not self.url):
            yield ": expects url or url_file, and not both"
        if self.template == "pagerduty" and self.token_file is None:
            yield ".token_file: missing; the template pagerduty needs the integration's routing key"
        if self.takes != "alerts" and self.template != "generic":
            yield f".takes: rows have no form of {self.template}"
        yield from HttpSink.mistakes(self)


@dataclass(frozen=True, slots=True)
class SyslogSink(SinkSettings):
    """Messages of RFC 5424."""

    address: Address = ""
    transport: Literal["tls", "tcp", "udp"] = "tls"
    format: Literal["json", "cef"] = "json"
    facility: Literal[
        "user", "daemon", "auth", "authpriv", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
        "local7",
    ] = "local0"  # fmt: skip
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    timeout: Seconds = 10.0

    type: ClassVar[str] = "syslog"

    @property
    def to(self) -> str:
        return f"{self.transport}://{self.address}"

    @property
    def names(self) -> tuple[str, ...]:
        return ENTITIES if self.format == "cef" else ("host",)

    def mistakes(self) -> Iterator[str]:
        if not self.address:
            yield '.address: missing; expects "HOST:PORT"'
        yield from tls_mistakes(self.cert_file, self.key_file, "")


@dataclass(frozen=True, slots=True)
class OtlpSink(HttpSink):
    """Log records of OpenTelemetry, over HTTP in JSON."""

    type: ClassVar[str] = "otlp"

    @property
    def names(self) -> tuple[str, ...]:
        return ("host",)

    def mistakes(self) -> Iterator[str]:
        if not self.url:
            yield ".url: missing; a collector's is http://HOST:4318/v1/logs"
        yield from HttpSink.mistakes(self)


@dataclass(frozen=True, slots=True)
class FileSink(SinkSettings):
    """Lines in a file that is rotated."""

    path: Path | None = None
    format: Literal["json", "cef"] = "json"
    max_bytes: Size = 64 << 20
    keep: int = 5

    type: ClassVar[str] = "file"

    @property
    def to(self) -> str:
        return str(self.path)

    @property
    def names(self) -> tuple[str, ...]:
        return ENTITIES if self.format == "cef" else ()

    def mistakes(self) -> Iterator[str]:
        if self.path is None or not self.path.is_absolute():
            yield ".path: expects an absolute path"
        if self.takes == "both":
            yield ".takes: a file holds alerts or rows, not both: make two sinks of it"


@dataclass(frozen=True, slots=True)
class CommandSink(SinkSettings):
    """A program of this host, run for each alert."""

    command: tuple[str, ...] = ()
    timeout: Seconds = 10.0
    max_memory: Size = 256 << 20

    type: ClassVar[str] = "command"

    @property
    def to(self) -> str:
        return self.program

    @property
    def program(self) -> str:
        return self.command[0] if self.command else ""

    def mistakes(self) -> Iterator[str]:
        if not self.program.startswith("/"):
            yield '.command: expects the absolute path of a program, and its arguments: ["/usr/local/bin/notify", "-v"]'
        if any("\0" in word for word in self.command):
            yield ".command: has a NUL in it"


@dataclass(frozen=True, slots=True)
class KafkaSink(KafkaSettings, SinkSettings):
    """Records of a topic of Apache Kafka."""

    topic: str = ""
    key: Literal["agent_id", "entity", "rule_id"] = "agent_id"
    row_key: str = ""
    timeout: Seconds = 10.0

    type: ClassVar[str] = "kafka"

    @property
    def to(self) -> str:
        return f"kafka://{self.servers}/{self.topic}"

    @property
    def names(self) -> tuple[str, ...]:
        return ENTITIES if self.key == "entity" else ()

    def mistakes(self) -> Iterator[str]:
        if not self.brokers:
            yield '.brokers: missing; expects ["HOST:PORT", …]'
        if not TOPIC.fullmatch(self.topic):
            yield f".topic: expects a topic's name, not {self.topic!r}"
        yield from self.kafka_mistakes()


@dataclass(frozen=True, slots=True)
class MqttSink(SinkSettings):
    """Messages of a topic of an MQTT broker."""

    broker: MqttSettings = MqttSettings()
    topic: str = ""
    timeout: Seconds = 10.0

    type: ClassVar[str] = "mqtt"

    @property
    def to(self) -> str:
        return f"{self.broker.url}/{self.topic}"

    def mistakes(self) -> Iterator[str]:
        if not self.topic or len(self.topic.encode()) > MAX_TOPIC or not self.topic.isprintable():
            yield ".topic: missing; expects a topic's name"
        elif {"+", "#"} & {*self.topic}:
            yield f".topic: expects the name of one topic, not the filter {self.topic!r}"


SINK_TYPES: Mapping[str, type[SinkSettings]] = {
    kind.type: kind for kind in (WebhookSink, SyslogSink, OtlpSink, KafkaSink, MqttSink, FileSink, CommandSink)
}


def origin(url: str) -> str:
    """Scheme, host and port: what follows may be a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def url_mistakes(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        yield "expects http://HOST/… or https://HOST/…"


def tls_mistakes(cert_file: Path | None, key_file: Path | None, proxy: str) -> Iterator[str]:
    if (cert_file is None) != (key_file is None):
        yield ": cert_file and key_file go together"
    if proxy:
        yield from (f".proxy: {mistake}" for mistake in url_mistakes(proxy))
