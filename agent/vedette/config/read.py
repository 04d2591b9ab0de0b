"""The configuration file: TOML to settings, every mistake reported at once with its key.

Sizes are written ``"64MiB"`` or as bytes, durations ``"30d"``, ``"10m"``, ``"200ms"`` or as seconds. Unknown keys are
mistakes.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import socket
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin
from zoneinfo import ZoneInfo

from vedette.config.settings import MAX_KEYS, Config, UplinkSettings
from vedette.decode.codecs import CODECS, DECLARED
from vedette.inputs.settings import INPUT_TYPES, InputSettings, MqttInput
from vedette.model.event import LogSource
from vedette.model.settings import split_address
from vedette.model.times import seconds
from vedette.mqtt.settings import MqttSettings
from vedette.sinks.base import SinkSettings
from vedette.system.foreign import read_toml
from vedette.system.within import identity, is_name

if TYPE_CHECKING:
    from vedette.system.plugins import Entry

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


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
    if isinstance(value, str):
        return seconds(value)
    raise ValueError(f'expects a duration such as "10m" or "200ms", not {value!r}')


def _share(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"expects a share from 0 to 1, not {value!r}")


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
    if value != "" and not is_name(value):
        raise ValueError(f"expects letters, digits, '_', '-' or '.' (at most 128, no '.' first), not {value!r}")
    return str(value)


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_LABELS:
        raise ValueError(f"expects a table of at most {MAX_LABELS} labels, not {value!r}")
    for name, text in value.items():
        if not is_name(name, 64):
            raise ValueError(f"{name!r}: expects letters, digits, '_', '-' or '.' (at most 64, no '.' first)")
        if not isinstance(text, str) or not 0 < len(text) <= 256 or not text.isprintable() or '"' in text:
            raise ValueError(f"{name}: expects 1 to 256 characters without '\"', not {text!r}")
    return dict(value)


def _options(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expects a table, not {value!r}")
    return dict(value)


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
MAX_LABELS = 64
"""In ``fleet.labels``."""
SCALARS = {
    "fsync": _fsync,
    "size": _size,
    "seconds": _seconds,
    "share": _share,
    "address": _address,
    "name": _name,
    "zone": _zone,
    "labels": _labels,
    "options": _options,
}


_OF_BROKERS = {f.name for f in dataclasses.fields(MqttSettings)}


class ConfigError(ValueError):
    """The configuration cannot be used; ``mistakes`` lists every reason, one line each."""

    def __init__(self, path: Path | str, mistakes: list[str]) -> None:
        self.mistakes = [f"{path}: {mistake}" for mistake in mistakes]
        super().__init__("\n".join(self.mistakes))


class UnknownKey(str):
    """A mistake: a key that is none, or that belongs in another table."""


class Reader:
    """Turns tables of TOML into dataclasses; ``mistakes`` collects what is wrong."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []
        self._brokers: dict[str, MqttSettings] = {}
        """``[broker]`` under "", each ``[broker.NAME]`` under its name."""
        self._used: set[str] = set()
        self._plugins: list[Entry] = []

    def config(self, document: dict[str, Any]) -> Config:
        rest = dict(document)
        self._read_brokers(rest.pop("broker", {}))
        self._find_plugins(rest.get("plugins"))
        config: Config = self._table(Config, rest, "")
        if self.mistakes:  # what was made is not whole
            return config
        if config.uplink.type == "mqtt":
            self._used.add("")
        self._check_brokers()
        _check(config, self.mistakes, self._decoders())
        if not config.agent.id:
            host = re.sub(r"^\.|[^A-Za-z0-9._-]", "-", socket.gethostname())
            config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, id=host))
        config = dataclasses.replace(config, uplink=dataclasses.replace(config.uplink, broker=self._brokers[""]))
        if not self.mistakes and (config.sink or any(isinstance(item, MqttInput) for item in config.input)):
            from vedette.config import loops, written

            self.mistakes += [*written.mistakes(config), *loops.mistakes(config)]
        return config

    def _read_brokers(self, value: Any) -> None:
        if not isinstance(value, dict):
            self.mistakes.append(f"broker: expects a table, not {value!r}")
            value = {}
        for name, table in {"": {}, **value}.items():
            if isinstance(table, dict):
                unnamed = {key: item for key, item in value.items() if not isinstance(item, dict)}
                where = f"broker.{name}" if name else "broker"
                self._brokers[name] = self._table(MqttSettings, table if name else unnamed, where)

    def _find_plugins(self, value: Any) -> None:
        allow = value.get("allow") if isinstance(value, dict) else None
        if isinstance(allow, list) and allow:
            from vedette.system import plugins

            self._plugins, mistakes = plugins.found(allow)
            self.mistakes += [f"plugins.allow{mistake}" for mistake in mistakes]

    def _decoders(self) -> frozenset[str]:
        """Formats of plugins."""
        if not self._plugins:
            return frozenset()
        from vedette.system.plugins import by_name

        return frozenset(by_name(self._plugins, "decoders"))

    def _with_plugins(self, kind: str, types: Mapping[str, Any]) -> Mapping[str, Any]:
        """``types`` and those of plugins, which take no name of these."""
        if not self._plugins:
            return types
        from vedette.inputs.plugin import PluginInput
        from vedette.sinks.plugin import PluginSink
        from vedette.system.plugins import by_name, settings_of

        base = PluginInput if kind == "inputs" else PluginSink
        return {**{name: settings_of(base, entry) for name, entry in by_name(self._plugins, kind).items()}, **types}

    def value(self, kind: Any, value: Any, where: str) -> Any:
        """``value`` of TOML as ``kind``; None after a mistake."""
        try:
            return self._converted(kind, value, where)
        except ValueError as error:
            self.mistakes.append(f"{where}: {error}")
            return None

    def _converted(self, kind: Any, value: Any, where: str) -> Any:
        """Raises ValueError."""
        origin, args = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return SCALARS[args[1]](value)
        if origin is Literal:
            if value not in args:
                raise ValueError(f"expects one of {', '.join(map(repr, args))}, not {value!r}")
            return value
        if origin is tuple:
            if not isinstance(value, list):
                raise ValueError(f"expects a list, not {value!r}")
            return tuple(self.value(args[0], item, f"{where}[{i}]") for i, item in enumerate(value))
        if origin in (types.UnionType, typing.Union):
            return self._converted(args[0], value, where)
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
        if kind is MqttSettings:
            if not isinstance(value, str) or value not in self._brokers:
                raise ValueError(f"expects the NAME of a table [broker.NAME], not {value!r}")
            self._used.add(value)
            return self._brokers[value]
        if dataclasses.is_dataclass(kind):
            return self._table(kind, value, where)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"expects {kind.__name__}, not {value!r}")
        return value

    def _table(self, kind: Any, value: Any, where: str) -> Any:
        """A dataclass from a TOML table; unknown keys are mistakes. Raises ValueError when it is no table."""
        if not isinstance(value, dict):
            raise ValueError(f"expects a table, not {value!r}")
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = {f.name.rstrip("_"): f for f in dataclasses.fields(kind)}  # Python keeps some words, such as "for"
        names = sorted(name for name, f in fields.items() if f.compare)
        if kind is UplinkSettings:
            names.remove("broker")  # it is always [broker]
        values: dict[str, Any] = {}
        for key, item in value.items():
            here = f"{where}.{key}" if where else key
            if key not in names:
                if "broker" in fields and key in _OF_BROKERS:
                    its = "[broker]" if kind is UplinkSettings else 'the table [broker.NAME] that broker = "NAME" names'
                    self.mistakes.append(UnknownKey(f"{here}: belongs in {its}"))
                    continue
                choices = sorted([*names, "broker"]) if kind is Config else names
                near = difflib.get_close_matches(key, choices, 1)
                hint = f"did you mean {near[0]}? " if near else ""
                self.mistakes.append(UnknownKey(f"{here}: unknown key; {hint}known: {', '.join(choices)}"))
            elif kind is Config and key == "input":
                values[key] = tuple(self._inputs(item))
            elif kind is Config and key == "sink":
                values[key] = tuple(self._sinks(item))
            else:
                values[key] = self.value(hints[fields[key].name], item, here)
        for name, f in fields.items():
            if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
                self.mistakes.append(f"{where}.{name}: missing")
                values[name] = None
        return kind(**{fields[name].name: item for name, item in values.items()})

    def _inputs(self, items: Any) -> Iterator[InputSettings]:
        for kind, named, where in self._typed("input", items, self._with_plugins("inputs", INPUT_TYPES)):
            if any(f.name == "broker" for f in dataclasses.fields(kind)):
                named.setdefault("broker", "")
            yield self._table(kind, named, where)

    def _sinks(self, items: Any) -> Iterator[SinkSettings]:
        """Sinks' types are imported with the first."""
        from vedette.sinks.settings import SINK_TYPES

        for kind, named, where in self._typed("sink", items, self._with_plugins("sinks", SINK_TYPES)):
            if any(f.name == "broker" for f in dataclasses.fields(kind)):
                named.setdefault("broker", "")
            yield self._table(kind, named, where)

    def _typed(self, table: str, items: Any, types: Mapping[str, Any]) -> Iterator[tuple[Any, dict[str, Any], str]]:
        """Of each of the tables the dataclass of its type, its other keys, and where it is."""
        if not isinstance(items, list):
            self.mistakes.append(f"{table}: expects [[{table}]] tables")
            return
        for i, item in enumerate(items):
            where = f"{table}[{i}]"
            if not isinstance(item, dict):
                self.mistakes.append(f"{where}: expects a table, not {item!r}")
                continue
            kind = next((kind for name, kind in types.items() if name == item.get("type")), None)
            if kind is None:
                expected = f"expects one of {', '.join(types)}"
                self.mistakes.append(f"{where}.type: {expected}, not {item.get('type')!r}")
                continue
            yield kind, {k: v for k, v in item.items() if k != "type"}, where

    def _check_brokers(self) -> None:
        """All that have a name, and the one without when something uses it."""
        for name, broker in self._brokers.items():
            if name or "" in self._used:
                where = f"broker.{name}".rstrip(".")
                self.mistakes += [f"{where}{mistake}" for mistake in broker.mistakes()]


RULESET = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The name of a rule set, which is in ids of rules and names of folders."""
FORMAT = re.compile(rf"{DECLARED}[a-z][a-z0-9_-]{{0,63}}")
"""What an input calls a format that a rule set declares; whether one does is known when rules are there."""
MAX_RULESETS = 100
MAX_ROWS_WAITING = 1 << 30
"""Bytes of rows that may wait for all sinks together: the store has room for them."""
MAX_SINKS = 10
"""Each may have four threads, and the unit bounds those of the agent."""


_BOUNDS: dict[str, tuple[float, float]] = {
    "max_connections": (1, 1 << 20),
    "max_connections_per_peer": (1, 1 << 20),
    "message_timeout": (0.1, 86400.0),
    "max_bytes": (1 << 20, 1 << 62),
    "max_memory": (64 << 20, 1 << 62),
    "max_lateness": (0, 86400.0),
    "max_cpu": (0.01, 1),
    "max_seconds": (0.001, 3600.0),
    "for_": (1.0, 366 * 86400.0),
    "stop_within": (1.0, 600.0),
    "undo_after": (1.0, 86400.0),
    "resend_after": (1.0, 86400.0),
    "timeout": (0.1, 300.0),
    "keep": (0, 1000),
    "ttl": (1.0, 30 * 86400.0),
    "max_blocked": (1, 10_000),
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


def _check(config: Config, mistakes: list[str], formats: frozenset[str]) -> None:
    """Mistakes that one key alone does not show. ``formats``: of plugins."""
    for f in dataclasses.fields(config):
        if dataclasses.is_dataclass(getattr(config, f.name)):
            _check_values(getattr(config, f.name), f.name, mistakes)
    for i, suppress in enumerate(config.suppress):
        _check_values(suppress, f"suppress[{i}]", mistakes)
    for i, enrich in enumerate(config.enrich):
        mistakes += [f"enrich[{i}]{mistake}" for mistake in enrich.mistakes()]
    for where, keys in (
        ("bundles.trusted_keys", config.bundles.trusted_keys),
        ("uplink.receipt_keys", config.uplink.receipt_keys),
    ):
        mistakes += [f"{where}[{i}]: {mistake}" for i, mistake in _no_keys(keys)]
    for i, redact in enumerate(config.redact):
        mistakes += [f"redact[{i}]{mistake}" for mistake in redact.mistakes()]
    mistakes += [f"response{mistake}" for mistake in config.response.mistakes()]
    mistakes += [f"archive{mistake}" for mistake in config.archive.mistakes()]
    if config.enrolment.url:
        mistakes += [f"enrolment{mistake}" for mistake in MqttSettings(config.enrolment.url).mistakes()]
    if len(config.uplink.receipt_keys) > MAX_KEYS:
        mistakes.append(f"uplink.receipt_keys: {len(config.uplink.receipt_keys)} keys, at most {MAX_KEYS}")
    _check_rulesets(config, mistakes)
    _check_sinks(config, mistakes)
    seen: set[str] = set()
    read: set[object] = set()
    for i, item in enumerate(config.input):
        _check_values(item, f"input[{i}]", mistakes)
        if item.name in seen:
            mistakes.append(f"input[{i}].name: {item.name!r} is used twice")
        seen.add(item.name)
        if item.format not in CODECS.keys() | formats and not FORMAT.fullmatch(item.format):
            choices = f"{', '.join(CODECS)}, or {DECLARED}NAME of a format that comes with the rules"
            mistakes.append(f"input[{i}].format: expects one of {choices}, not {item.format!r}")
        mistakes += [f"input[{i}]{mistake}" for mistake in item.mistakes()]
        files = {identity(path): path for path in item.exclusive}
        for file in files.keys() & read:
            mistakes.append(f"input[{i}].paths: {files[file]!r} is read by another input already")
        read |= files.keys()


def _no_keys(keys: tuple[str, ...]) -> Iterator[tuple[int, ValueError]]:
    """Yield the place of each of ``keys`` that is no public key, and why."""
    if keys:
        from vedette.bundle.seal import public_key  # and cryptography, which an agent without keys goes without

        for i, key in enumerate(keys):
            try:
                public_key(key)
            except ValueError as error:
                yield i, error


def _check_sinks(config: Config, mistakes: list[str]) -> None:
    names = set[str]()
    for i, sink in enumerate(config.sink):
        where = f"sink[{i}]"
        _check_values(sink, where, mistakes)
        mistakes += [f"{where}{mistake}" for mistake in sink.mistakes()]
        if sink.name in names:
            mistakes.append(f"{where}.name: {sink.name!r} is used twice")
        names.add(sink.name)
        if sink.program and sink.program not in config.agent.allow_commands:
            mistakes.append(f"{where}.command: {sink.program!r} is not in agent.allow_commands")
    if sum(sink.max_waiting for sink in config.sink if sink.takes != "alerts") > MAX_ROWS_WAITING:
        mistakes.append(f"sink: max_waiting of all that take rows is more than {MAX_ROWS_WAITING >> 20} MiB")
    if len(config.sink) > MAX_SINKS:
        mistakes.append(f"sink: {len(config.sink)} sinks, at most {MAX_SINKS}")


def _check_rulesets(config: Config, mistakes: list[str]) -> None:
    names, channels = set[str](), set[str]()
    for i, ruleset in enumerate(config.rulesets):
        where = f"ruleset[{i - 1}]"
        if i:
            if not RULESET.fullmatch(ruleset.name):
                mistakes.append(f"{where}.name: expects 1 to 64 letters, digits, '_' or '-', not {ruleset.name!r}")
            if ruleset.name in names:
                mistakes.append(f"{where}.name: {ruleset.name!r} is used twice")
            _check_values(ruleset, where, mistakes)
            if ruleset.strict and ruleset.max_backlog > config.raw_log.max_bytes // 2:
                most = f"half of raw_log.max_bytes, {config.raw_log.max_bytes // 2:,}"
                mistakes.append(f"{where}.max_backlog: expects at most {most}, not {ruleset.max_backlog:,}")
            if not ruleset.paths and ruleset.channel in channels:
                mistakes.append(f"{where}.channel: {ruleset.channel!r} is that of another rule set")
        names.add(ruleset.name)
        if not ruleset.paths:
            channels.add(ruleset.channel)
    if len(names) > MAX_RULESETS:
        mistakes.append(f"ruleset: {len(names)} rule sets, at most {MAX_RULESETS}")


def parse(text: str, path: Path | str = "vedette.toml") -> Config:
    """The configuration in ``text``. Raises ConfigError."""
    try:
        document = read_toml(text)
    except ValueError as error:
        raise ConfigError(path, [str(error)]) from error
    return parse_document(document, path)


def parse_document(document: dict[str, Any], path: Path | str = "vedette.toml") -> Config:
    """The same of TOML that was read already. Raises ConfigError."""
    reader = Reader()
    config = reader.config(document)
    if reader.mistakes:
        raise ConfigError(path, reader.mistakes)
    return config


def part_mistakes(document: dict[str, Any]) -> list[str]:
    """What is wrong with a part of a configuration by itself: with its keys and values, not with what it lacks."""
    reader, rest = Reader(), dict(document)
    reader._read_brokers(rest.pop("broker", {}))
    reader._table(Config, rest, "")
    return [line for line in reader.mistakes if not line.endswith(": missing")]


def load(path: Path) -> Config:
    """The configuration in the file ``path``; raises ConfigError, also when the file cannot be read."""
    config = parse(read_text(path), path)
    if config.enrolment.token_file is None:
        return config
    from vedette.config.enrolled import enrolled  # whose keys take cryptography

    return enrolled(config)


def read_text(path: Path) -> str:
    """The file ``path``; raises ConfigError when it cannot be read."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path, [f"cannot be read: {error}"]) from error
