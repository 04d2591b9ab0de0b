"""The types of inputs: ``type`` of an ``[[input]]`` table, and its settings. A new one is a class, a line of
INPUT_TYPES, and a case of ``opening.py``, which imports its transport, so that reading a configuration loads none.

``tests/inputs/test_settings.py`` walks them: each needs tests, a section of docs/guide.md and an example in
packaging/vedette.toml.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vedette.decode.codecs import CODECS, Kind
from vedette.decode.syslog import SEVERITIES
from vedette.inputs.condition import WORKS, Condition, failing, with_files
from vedette.kafka.settings import TOPIC, KafkaSettings
from vedette.model.event import LogSource
from vedette.model.settings import Address, Name, Seconds, Size, Zone
from vedette.mqtt.settings import MqttSettings
from vedette.system.descriptors import OPEN_FILES

if TYPE_CHECKING:
    from vedette.decode.bounded import Guard

PER_PATH = 4
"""Files open of a path without a pattern: the one there, and former ones that are read to their end."""
MAX_HEADERS = 16
"""Headers of a Kafka record that may be fields."""
_JOURNAL_FIELD = re.compile(r"[A-Z0-9_]{1,64}")
_LINUX = LogSource(product="linux")


@dataclass(frozen=True, slots=True)
class InputSettings:
    """A table ``[[input]]``; what all types have."""

    name: Name
    format: str = "auto"
    timezone: Zone = ""
    logsource: LogSource = LogSource()

    local: ClassVar[bool] = False
    """Its events are of this host, unless they say otherwise."""

    @property
    def codec(self) -> str:
        """The name of the codec that its events carry."""
        return self.format

    @property
    def connections(self) -> int:
        """Connections that it may hold open."""
        return 0

    @property
    def open_files(self) -> int:
        """Files that it may hold open."""
        return 0

    @property
    def exclusive(self) -> tuple[str, ...]:
        """Paths, or globs, of which no other input may read a file."""
        return ()

    def needed_files(self) -> tuple[Path | None, ...]:
        """Certificates, keys, passwords: files that are read when it is opened."""
        return ()

    def foreseen(self, private: Callable[[int], bool] = lambda descriptor: False) -> Condition:
        """Its condition on this host, as far as this process can see before it is opened; ``private`` as in
        ``Surroundings``."""
        return with_files(self.needed_files())

    def mistakes(self) -> Iterator[str]:
        """Mistakes that one key alone does not show: each begins with ``.KEY: `` or ``: ``."""
        yield from ()


# --- inputs that senders connect to


@dataclass(frozen=True, slots=True)
class TlsListener:
    """Where to listen by TLS, who we are, and whose clients may send; no ``client_ca``: anybody's."""

    address: Address
    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ConnectedInput(InputSettings):
    """An input that senders connect to by TCP and TLS, and how many of them may."""

    tcp: Address = ""
    tls: TlsListener | None = None
    max_connections: int = 1000
    max_connections_per_peer: int = 100
    message_timeout: Seconds = 60.0

    @property
    def connections(self) -> int:
        return self.max_connections if self.tcp or self.tls is not None else 0

    def needed_files(self) -> tuple[Path | None, ...]:
        return () if self.tls is None else (self.tls.cert, self.tls.key, self.tls.client_ca)

    def mistakes(self) -> Iterator[str]:
        if self.tls is not None and not self.tls.address:
            yield '.tls.address: must not be empty, e.g. "0.0.0.0:6514"'


@dataclass(frozen=True, slots=True)
class SyslogInput(ConnectedInput):
    """Syslog over UDP, TCP and TLS."""

    format: str = "syslog"
    logsource: LogSource = _LINUX
    udp: Address = ""
    receive_buffer: Size = 8 << 20

    def mistakes(self) -> Iterator[str]:
        if not (self.udp or self.tcp or self.tls is not None):
            yield ': needs udp, tcp or tls, e.g. udp = "0.0.0.0:514"'
        yield from ConnectedInput.mistakes(self)


@dataclass(frozen=True, slots=True)
class RelpInput(ConnectedInput):
    """Syslog by RELP, over TCP and TLS: acknowledged once the raw log holds it on disk."""

    format: str = "syslog"
    logsource: LogSource = _LINUX

    def mistakes(self) -> Iterator[str]:
        if not (self.tcp or self.tls is not None):
            yield ': needs tcp or tls, e.g. tcp = "0.0.0.0:2514"'
        yield from ConnectedInput.mistakes(self)


@dataclass(frozen=True, slots=True)
class HttpInput(ConnectedInput):
    """Pushes by HTTP (OTLP, HEC, ``_bulk``, Loki, lines): answered once the raw log holds them on disk."""

    token_file: Path | None = None
    max_body: Size = 8 << 20
    max_rate: Size = 0

    def needed_files(self) -> tuple[Path | None, ...]:
        return (self.token_file, *ConnectedInput.needed_files(self))

    def mistakes(self) -> Iterator[str]:
        if not (self.tcp or self.tls is not None):
            yield ': needs tcp or tls, e.g. tcp = "127.0.0.1:8088"'
        yield from ConnectedInput.mistakes(self)


# --- inputs that connect to brokers


@dataclass(frozen=True, slots=True)
class MqttInput(InputSettings):
    """An MQTT 5 subscription with QoS 1 and a persistent session."""

    name: Name = "mqtt"
    topics: tuple[str, ...] = ()
    broker: MqttSettings = MqttSettings()
    session_expiry: Seconds = 7 * 86400.0
    receive_maximum: ClassVar[int] = 1000
    """Messages that are not acknowledged, at most; no setting."""

    @property
    def codec(self) -> str:
        return "mqtt" if self.format == "auto" else self.format

    def needed_files(self) -> tuple[Path | None, ...]:
        broker = self.broker
        return (broker.ca_file, broker.cert_file, broker.key_file, broker.password_file)

    def mistakes(self) -> Iterator[str]:
        if not self.topics:
            yield ": needs topics"


@dataclass(frozen=True, slots=True)
class KafkaInput(KafkaSettings, InputSettings):
    """Topics of Kafka, as a member of a consumer group."""

    topics: tuple[str, ...] = ()
    group: Name = "vedette"
    from_start: bool = True
    key: bool = False
    headers: tuple[str, ...] = ()
    session_timeout: Seconds = 30.0
    look: ClassVar[float] = 60.0
    """Seconds between two looks whether a topic has been made again; no setting."""

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
        if not 6 <= self.session_timeout <= 1800:
            yield f".session_timeout: expects 6s to 30m, as brokers do by default, not {self.session_timeout:g}s"
        if len(self.headers) > MAX_HEADERS:
            yield f".headers: {len(self.headers)} names, at most {MAX_HEADERS}"
        yield from self.kafka_mistakes()


# --- inputs of this host


@dataclass(frozen=True, slots=True)
class Multiline:
    """Events of several lines: which lines begin one (``start``), or which do not (``continue``)."""

    start: str = ""
    continue_: str = ""
    timeout: Seconds = 2.0

    def mistakes(self) -> Iterator[str]:
        if bool(self.start) == bool(self.continue_):
            yield ': needs start or continue, e.g. start = "^[0-9]{4}-"'
        from vedette.decode.bounded import compiled

        for key, pattern in (("start", self.start), ("continue", self.continue_)):
            try:
                compiled(pattern.encode())
            except ValueError as error:
                yield f".{key}: not a regular expression: {error}"
        if not 0.1 <= self.timeout <= 300:
            yield f".timeout: expects 0.1 to 300, not {self.timeout:g}"

    def asked(self, guard: Guard) -> Callable[[bytes], bool]:
        """Whether an event begins with a line; one at which the pattern takes too long begins one."""
        from vedette.decode.bounded import TooSlow, finder

        search = finder((self.start or self.continue_).encode(), guard)
        starts = bool(self.start)

        def begins(line: bytes) -> bool:
            try:
                return (search(line) is not None) is starts
            except TooSlow:
                return True

        return begins


@dataclass(frozen=True, slots=True)
class FileInput(InputSettings):
    """Tailed files; ``paths`` may be globs."""

    paths: tuple[str, ...] = ()
    from_start: bool = True
    multiline: Multiline | None = None
    containers: bool = False
    poll: ClassVar[float] = 0.25
    """Seconds between two looks at the files; no setting."""
    local: ClassVar[bool] = True

    @property
    def open_files(self) -> int:
        wanted = sum(OPEN_FILES if glob.has_magic(path) else PER_PATH for path in self.paths)
        return min(wanted, OPEN_FILES)

    @property
    def exclusive(self) -> tuple[str, ...]:
        return self.paths

    def mistakes(self) -> Iterator[str]:
        if not self.paths:
            yield ": needs paths"
        if self.multiline is not None:
            yield from (f".multiline{mistake}" for mistake in self.multiline.mistakes())
        if self.containers and self.format in CODECS and Kind.SYSLOG not in CODECS[self.format].kinds:
            yield f'.format: must be "auto" with containers, since what is in their lines shows, not {self.format!r}'

    def foreseen(self, private: Callable[[int], bool] = lambda descriptor: False) -> Condition:
        from vedette.inputs.files import condition, look, open_same

        files, problems = look(self.paths)
        for file in files:
            try:
                os.close(open_same(file.path, file.key, private))
            except OSError as error:
                problems[file.path] = error.strerror or str(error)
        return condition(problems, self.paths, there=bool(files))


@dataclass(frozen=True, slots=True)
class JournalInput(InputSettings):
    """systemd's journal, of this host or of a folder."""

    format: str = "syslog"
    logsource: LogSource = _LINUX
    units: tuple[str, ...] = ()
    exclude_units: tuple[str, ...] = ()
    priority: str = "debug"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    from_start: bool = True
    namespace: str = ""
    directory: str = ""

    local: ClassVar[bool] = True

    def mistakes(self) -> Iterator[str]:
        if self.priority not in SEVERITIES:
            yield f".priority: must be one of {', '.join(SEVERITIES)}, not {self.priority!r}"
        for key, matches in (("include", self.include), ("exclude", self.exclude)):
            for match in matches:
                name, equals, _ = match.partition("=")
                if not equals or not _JOURNAL_FIELD.fullmatch(name):
                    yield f'.{key}: must be FIELD=VALUE, e.g. "_COMM=sshd", not {match!r}'
        for name in self.fields:
            if not _JOURNAL_FIELD.fullmatch(name):
                yield f'.fields: must be names of fields, e.g. "_SYSTEMD_SLICE", not {name!r}'
        if self.namespace.startswith("-"):
            yield ".namespace: must not begin with -"

    @property
    def least(self) -> int:
        """The number of ``priority``."""
        return SEVERITIES.index(self.priority)

    def foreseen(self, private: Callable[[int], bool] = lambda descriptor: False) -> Condition:
        from vedette.inputs.journalaccess import unreadable

        reason = unreadable(self.directory)
        return failing(reason) if reason else WORKS


@dataclass(frozen=True, slots=True)
class AuditInput(InputSettings):
    """The Linux audit log of this host, as the kernel makes it."""

    format: str = "auditd"
    logsource: LogSource = _LINUX
    receive_buffer: Size = 8 << 20

    local: ClassVar[bool] = True


INPUT_TYPES: Mapping[str, type[InputSettings]] = {
    "syslog": SyslogInput,
    "relp": RelpInput,
    "http": HttpInput,
    "journal": JournalInput,
    "audit": AuditInput,
    "file": FileInput,
    "mqtt": MqttInput,
    "kafka": KafkaInput,
}
