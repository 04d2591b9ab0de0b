"""The configuration: one TOML file, every mistake reported at once with its key.

``packaging/vedette.toml`` documents every setting; a test holds the two together. Sizes are written ``"64MiB"`` or as
bytes, durations ``"30d"``, ``"10m"``, ``"200ms"`` or as seconds.
"""

from __future__ import annotations

import dataclasses
import math
import re
import socket
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin
from zoneinfo import ZoneInfo

from vedette.bundle.seal import public_key
from vedette.decode.decoder import CODECS
from vedette.model.event import LogSource

Size = Annotated[int, "size"]
"""Bytes."""
Seconds = Annotated[float, "seconds"]
Share = Annotated[float, "share"]
"""From 0 to 1."""
Address = Annotated[str, "address"]
"""``host:port`` or ``[v6]:port``; empty: not used."""
Name = Annotated[str, "name"]
"""What appears in topics, file names and reports: letters, digits, ``. _ -``."""
Fsync = Annotated[str, "fsync"]
"""When the raw log is synced: ``interval:DURATION``, ``batch`` or ``never``."""
Zone = Annotated[str, "zone"]
"""An IANA time zone; empty: the host's."""


class ConfigError(ValueError):
    """The configuration cannot be used; ``mistakes`` lists every reason, one line each."""

    def __init__(self, path: Path | str, mistakes: list[str]) -> None:
        self.mistakes = [f"{path}: {mistake}" for mistake in mistakes]
        super().__init__("\n".join(self.mistakes))


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Who this agent is and where its data lies."""

    id: Name = ""
    site: Name = "default"
    fleet: Name = "default"
    data_dir: Path = Path("/var/lib/vedette")
    max_memory: Size = 768 << 20
    stop_within: Seconds = 10.0

    @property
    def control_socket(self) -> Path:
        return self.data_dir / "control.sock"

    @property
    def raw_dir(self) -> Path:
        return self.data_dir / "raw"

    @property
    def store_dir(self) -> Path:
        return self.data_dir / "store"

    @property
    def shown_file(self) -> Path:
        return self.data_dir / "shown"

    @property
    def bundle_dir(self) -> Path:
        return self.data_dir / "bundles"

    @property
    def cache_dir(self) -> Path:
        return self.data_dir / "cache"

    @property
    def quarantine_dir(self) -> Path:
        return self.data_dir / "quarantine"


@dataclass(frozen=True, slots=True)
class TlsListener:
    """Syslog over TLS (RFC 5425): where, who we are, and whose clients may send; no ``client_ca``: anybody's."""

    address: Address
    cert: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class SyslogInput:
    """Syslog over UDP, TCP and TLS."""

    name: Name
    udp: Address = ""
    tcp: Address = ""
    tls: TlsListener | None = None
    format: str = "syslog"
    timezone: Zone = ""
    logsource: LogSource = LogSource(product="linux")
    max_connections: int = 1000
    max_connections_per_peer: int = 100
    message_timeout: Seconds = 60.0
    receive_buffer: Size = 8 << 20


@dataclass(frozen=True, slots=True)
class FileInput:
    """Tailed files; ``paths`` may be globs."""

    name: Name
    paths: tuple[str, ...] = ()
    format: str = "auto"
    timezone: Zone = ""
    logsource: LogSource = LogSource()
    poll: Seconds = 0.25
    from_start: bool = True


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """How to reach a broker: ``mqtt://host:port`` or ``mqtts://host:port``."""

    url: str = ""
    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    keepalive: Seconds = 30.0


@dataclass(frozen=True, slots=True)
class MqttInput(MqttSettings):
    """An MQTT 5 subscription with QoS 1 and a persistent session."""

    name: Name = "mqtt"
    topics: tuple[str, ...] = ()
    client_id: str = ""
    session_expiry: Seconds = 7 * 86400.0
    receive_maximum: int = 1000
    format: str = "auto"
    timezone: Zone = ""
    logsource: LogSource = LogSource()


UNAUTHENTICATED = "unauthenticated"
"""``UplinkSettings.receipts``: anybody at the broker can send some."""
MAX_KEYS = 16
"""In ``uplink.receipt_keys``: each may have to be tried for each receipt."""

Input = SyslogInput | FileInput | MqttInput
INPUT_TYPES: dict[str, type[Input]] = {"syslog": SyslogInput, "file": FileInput, "mqtt": MqttInput}


def codec_of(settings: Input) -> str:
    """The codec that an input's events carry."""
    return "mqtt" if isinstance(settings, MqttInput) and settings.format == "auto" else settings.format


@dataclass(frozen=True, slots=True)
class RawLogSettings:
    """The local log of everything received."""

    max_bytes: Size = 10 << 30
    max_age: Seconds = 30 * 86400.0
    segment_bytes: Size = 64 << 20
    fsync: Fsync = "interval:200ms"

    @property
    def fsync_interval(self) -> float:
        """Longest time, in seconds, for which what came in may not be on disk; 0: as short as can be; infinite: until
        something must be."""
        _, _, interval = self.fsync.partition(":")
        return _seconds(interval) if interval else 0.0 if self.fsync == "batch" else math.inf


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Rule directories (need the extra ``vedette[rules]``); empty: run the installed bundle."""

    paths: tuple[Path, ...] = ()
    pipelines: tuple[Path, ...] = ()
    lookups: tuple[Path, ...] = ()
    poll: Seconds = 2.0
    quarantine_after: int = 10
    quarantine_bytes: Size = 16 << 20


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How events are judged; nothing here changes what matches."""

    cache_bytes: Size = 32 << 20
    verify_sample: Share = 0.001


@dataclass(frozen=True, slots=True)
class StateSettings:
    """What judging remembers between events: correlations."""

    max_bytes: Size = 64 << 20
    max_lateness: Seconds = 30.0
    settle: bool = False


@dataclass(frozen=True, slots=True)
class SuppressSettings:
    """Alerts of these rules (none named: of every rule without a suppression of its own) about one entity."""

    for_: Seconds
    rules: tuple[str, ...] = ()
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BundleSettings:
    """Signed rule sets: a local file, or what the region publishes on a channel."""

    file: Path | None = None
    channel: Name = "stable"
    trusted_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UplinkSettings(MqttSettings):
    """Where alerts go: a local directory, or the region's broker."""

    type: Literal["directory", "mqtt"] = "directory"
    path: Path | None = None
    receipt_keys: tuple[str, ...] = ()
    resend_after: Seconds = 600.0
    heartbeat: Seconds = 60.0
    max_inflight: int = 20
    max_bytes: Size = 256 << 20

    @property
    def receipts(self) -> str:
        """By what a receipt is known to be the region's: "signed", "TLS" (the broker's access list), or nothing."""
        return "signed" if self.receipt_keys else "TLS" if self.url.startswith("mqtts:") else UNAUTHENTICATED

    @property
    def warning(self) -> str:
        """What is dangerous in these settings, and what to do; empty: nothing."""
        if self.type != "mqtt" or self.receipts != UNAUTHENTICATED:
            return ""
        return (
            f"receipts are not authenticated: who can publish at {self.url} can make this agent delete alerts that"
            " never landed. Set uplink.receipt_keys, or use mqtts:// and an access list (docs/region.md)"
        )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The agent's own log, on standard error."""

    format: Literal["console", "json"] = "console"
    level: Literal["debug", "info", "warning", "error"] = "info"
    limit: int = 50


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """The agent's counters for Prometheus, over HTTP."""

    listen: Address = ""


@dataclass(frozen=True, slots=True)
class Config:
    """One agent's settings."""

    agent: AgentSettings = field(default_factory=AgentSettings)
    input: tuple[Input, ...] = ()
    raw_log: RawLogSettings = field(default_factory=RawLogSettings)
    rules: RuleSettings = field(default_factory=RuleSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    state: StateSettings = field(default_factory=StateSettings)
    suppress: tuple[SuppressSettings, ...] = ()
    bundles: BundleSettings = field(default_factory=BundleSettings)
    uplink: UplinkSettings = field(default_factory=UplinkSettings)
    log: LogSettings = field(default_factory=LogSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)


_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = re.fullmatch(r"(\d+)\s*([KMG]?i?B)", value) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS:
        raise ValueError(f'expects a size such as "64MiB" or a number of bytes, not {value!r}')
    return int(match[1]) * _UNITS[match[2]]


def _seconds(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f'expects a duration such as "10m" or "200ms", not {value!r}')
    return float(match[1]) * _SECONDS[match[2]]


def _share(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"expects a share from 0 to 1, not {value!r}")


def split_address(value: str) -> tuple[str, int]:
    """``("::1", 514)`` from ``"[::1]:514"``; raises ValueError."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\[\]:\s]*)):(\d{1,5})", value)
    if match is None or int(match[3]) > 65535:
        raise ValueError(f'expects "host:port", not {value!r}')
    return match[1] or match[2] or "0.0.0.0", int(match[3])


def _address(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f'expects "host:port", not {value!r}')
    if value:
        split_address(value)
    return value


def _fsync(value: Any) -> str:
    if isinstance(value, str):
        kind, _, interval = value.partition(":")
        if value in ("batch", "never") or (kind == "interval" and FSYNC[0] <= _seconds(interval) <= FSYNC[1]):
            return value
    raise ValueError(
        f'expects "interval:200ms" (from {FSYNC[0] * 1000:g}ms to {FSYNC[1]:g}s), "batch" or "never", not {value!r}'
    )


def _name(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9._-]{0,128}", value):
        raise ValueError(f"expects letters, digits, '.', '_' or '-', not {value!r}")
    return value


def _zone(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expects a time zone such as 'Europe/Vienna', not {value!r}")
    if value:
        try:
            ZoneInfo(value)
        except Exception as error:  # ZoneInfo raises several kinds for a bad key
            raise ValueError(f"{value!r} is not a known time zone") from error
    return value


FSYNC = 0.001, 60.0
"""Shortest and longest interval of syncs, in seconds."""
_SCALARS = {
    "fsync": _fsync,
    "size": _size,
    "seconds": _seconds,
    "share": _share,
    "address": _address,
    "name": _name,
    "zone": _zone,
}


def _convert(kind: Any, value: Any, where: str, mistakes: list[str]) -> Any:
    """``value`` of TOML as ``kind``; on a mistake notes it and returns None."""
    origin, args = get_origin(kind), get_args(kind)
    try:
        if origin is Annotated:
            return _SCALARS[args[1]](value)
        if origin is Literal:
            if value not in args:
                raise ValueError(f"expects one of {', '.join(map(repr, args))}, not {value!r}")
            return value
        if origin is tuple:
            if not isinstance(value, list):
                raise ValueError(f"expects a list, not {value!r}")
            return tuple(_convert(args[0], item, f"{where}[{i}]", mistakes) for i, item in enumerate(value))
        if origin in (types.UnionType, typing.Union):
            return _convert(args[0], value, where, mistakes)
        if kind is Path:
            if not isinstance(value, str) or not value:
                raise ValueError(f"expects a path, not {value!r}")
            return Path(value)
        if kind is LogSource:
            if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
                raise ValueError(f"expects a table of product, category, service, not {value!r}")
            unknown = sorted(set(value) - set(LogSource._fields))
            if unknown:
                raise ValueError(f"unknown key {unknown[0]!r}; known: {', '.join(LogSource._fields)}")
            return LogSource(**value)
        if dataclasses.is_dataclass(kind):
            return _table(kind, value, where, mistakes)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"expects {kind.__name__}, not {value!r}")
    except ValueError as error:
        mistakes.append(f"{where}: {error}")
        return None
    return value


def _table(kind: Any, value: Any, where: str, mistakes: list[str]) -> Any:
    """A dataclass from a TOML table; unknown keys are mistakes."""
    if not isinstance(value, dict):
        raise ValueError(f"expects a table, not {value!r}")
    hints = {name.rstrip("_"): hint for name, hint in typing.get_type_hints(kind, include_extras=True).items()}
    given: dict[str, Any] = {}
    for key, item in value.items():
        here = f"{where}.{key}" if where else key
        if key not in hints:
            mistakes.append(f"{here}: unknown key; known: {', '.join(sorted(hints))}")
        elif kind is Config and key == "input":
            given[key] = tuple(_inputs(item, mistakes))
        else:
            given[key] = _convert(hints[key], item, here, mistakes)
    names = {f.name.rstrip("_"): f for f in dataclasses.fields(kind)}  # Python keeps some words, such as "for"
    for name, f in names.items():
        if name not in given and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            mistakes.append(f"{where}.{name}: missing")
            given[name] = None
    return kind(**{names[name].name: item for name, item in given.items()})


def _inputs(items: Any, mistakes: list[str]) -> typing.Iterator[Input]:
    if not isinstance(items, list):
        mistakes.append("input: expects [[input]] tables")
        return
    for i, item in enumerate(items):
        where = f"input[{i}]"
        if not isinstance(item, dict):
            mistakes.append(f"{where}: expects a table, not {item!r}")
            continue
        kind = next((kind for name, kind in INPUT_TYPES.items() if name == item.get("type")), None)
        if kind is None:
            mistakes.append(f"{where}.type: expects one of {', '.join(INPUT_TYPES)}, not {item.get('type')!r}")
            continue
        yield _table(kind, {k: v for k, v in item.items() if k != "type"}, where, mistakes)


_BOUNDS: dict[str, tuple[float, float]] = {
    "poll": (0.01, 86400.0),
    "keepalive": (1.0, 65535.0),
    "max_connections": (1, 1 << 20),
    "max_connections_per_peer": (1, 1 << 20),
    "message_timeout": (0.1, 86400.0),
    "receive_maximum": (1, 65535),
    "max_inflight": (1, 65535),
    "max_bytes": (1 << 20, 1 << 62),
    "segment_bytes": (4 << 10, 1 << 40),
    "max_memory": (64 << 20, 1 << 62),
    "max_lateness": (0, 86400.0),
    "cache_bytes": (0, 16 << 30),
    "for_": (1.0, 366 * 86400.0),
    "stop_within": (1.0, 600.0),
    "limit": (0, 1_000_000),
    "quarantine_after": (1, 1 << 20),
    "quarantine_bytes": (64 << 10, 1 << 40),
}
"""Lowest and highest value of a setting of this name, wherever it stands."""


def _check_values(settings: Any, where: str, mistakes: list[str]) -> None:
    """Numbers out of bounds, and names that are empty though something is called by them."""
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        low, high = _BOUNDS.get(f.name, (None, None))
        if low is not None and high is not None and not low <= value <= high:
            mistakes.append(f"{where}.{f.name.rstrip('_')}: expects {low:,} to {high:,}, not {value:,}")
        if value == "" and f.name in ("name", "site", "fleet", "channel"):
            mistakes.append(f"{where}.{f.name}: must not be empty")


def _check(config: Config, mistakes: list[str]) -> None:
    """Mistakes that one key alone does not show."""
    for f in dataclasses.fields(config):
        if f.name not in ("input", "suppress"):
            _check_values(getattr(config, f.name), f.name, mistakes)
    for i, suppress in enumerate(config.suppress):
        _check_values(suppress, f"suppress[{i}]", mistakes)
    for where, keys in (
        ("bundles.trusted_keys", config.bundles.trusted_keys),
        ("uplink.receipt_keys", config.uplink.receipt_keys),
    ):
        for i, key in enumerate(keys):
            try:
                public_key(key)
            except ValueError as error:
                mistakes.append(f"{where}[{i}]: {error}")
    if len(config.uplink.receipt_keys) > MAX_KEYS:
        mistakes.append(f"uplink.receipt_keys: {len(config.uplink.receipt_keys)} keys, at most {MAX_KEYS}")
    seen: set[str] = set()
    files: set[str] = set()
    for i, item in enumerate(config.input):
        _check_values(item, f"input[{i}]", mistakes)
        if item.name in seen:
            mistakes.append(f"input[{i}].name: {item.name!r} is used twice")
        seen.add(item.name)
        if item.format not in CODECS:
            mistakes.append(f"input[{i}].format: expects one of {', '.join(CODECS)}, not {item.format!r}")
        match item:
            case SyslogInput(udp="", tcp="", tls=None):
                mistakes.append(f'input[{i}]: needs udp, tcp or tls, e.g. udp = "0.0.0.0:514"')
            case SyslogInput(tls=TlsListener(address="")):
                mistakes.append(f'input[{i}].tls.address: must not be empty, e.g. "0.0.0.0:6514"')
            case FileInput(paths=()):
                mistakes.append(f"input[{i}]: needs paths")
            case FileInput():
                for path in item.paths:
                    if path in files:
                        mistakes.append(f"input[{i}].paths: {path!r} is read by another input already")
                    files.add(path)
            case MqttInput():
                if not item.topics:
                    mistakes.append(f"input[{i}]: needs topics")
                _check_broker(item, f"input[{i}]", mistakes)
    if config.uplink.type == "mqtt":
        _check_broker(config.uplink, "uplink", mistakes)


def _check_broker(settings: MqttSettings, where: str, mistakes: list[str]) -> None:
    if not re.fullmatch(r"mqtts?://(\[[0-9a-fA-F:]+\]|[^\[\]:/\s]+)(:\d{1,5})?", settings.url):
        mistakes.append(f'{where}.url: expects "mqtt://host:port" or "mqtts://host:port", not {settings.url!r}')
    if (settings.cert_file is None) != (settings.key_file is None):
        mistakes.append(f"{where}: cert_file and key_file go together")


def parse(text: str, path: Path | str = "vedette.toml") -> Config:
    """The configuration in ``text``; raises ConfigError with every mistake."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, [f"not valid TOML: {error}"]) from error
    mistakes: list[str] = []
    config: Config = _table(Config, document, "", mistakes)
    if not mistakes:
        _check(config, mistakes)
    if mistakes:
        raise ConfigError(path, mistakes)
    if not config.agent.id:
        host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
        config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, id=host))
    return config


def load(path: Path) -> Config:
    """The configuration in the file ``path``; raises ConfigError, also when the file cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, [f"cannot be read: {error}"]) from error
    return parse(text, path)
