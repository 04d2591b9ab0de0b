"""Formats without code: a table (of TOML, in a rule set) to a codec, with the provenance of each field derived.

A table has ``name`` and one of

* ``regex`` or ``grok``: patterns, tried in order at the beginning of the message; their named groups are fields;
* ``key_value = {pairs, is, quotes}``: what separates pairs, and a key from its value;
* ``json = true``: the message is a JSON object, whose own names are fields anyway.

and may have ``header`` (``"syslog"``: the message is what follows one, where there is one; ``"none"``: it is the whole
event), ``starts`` (texts, one of which the message begins with), ``rename``, ``set``, ``map``, ``time``, ``logsource``,
``patterns`` (of grok) and ``examples``. docs/formats.md explains them.

**Provenance.** A group, a pair and what is renamed is cut out of the message as it stands: verbatim (of JSON:
escaped). What ``set`` and ``map`` give is synthetic. So the prefilter stays sound whatever a table says: ``gives`` is
derived, never declared (``plan/declared.py`` chooses literals by it). Names that the agent itself gives are refused.

**Time.** Readers are linear but for patterns, which run bounded (``bounded.py``), each under ``TIMEOUT``. A message on
which one takes longer has no fields of the format; after some of them the format is in quarantine: it reads no more,
others do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any

import regex

from vedette.decode import bounded, grok, syslog
from vedette.decode.bounded import Guard, TooSlow
from vedette.decode.codecs import DECLARED, Codec, Kind
from vedette.decode.formats.base import Field, Fields, Format, Gives, Provenance, Seen, Shape, first_time
from vedette.decode.values import ABSENT, path
from vedette.model.event import Source
from vedette.model.times import micros

TIMEOUT = 0.05
"""Seconds of CPU for one pattern on one message."""
MAX_PAIRS = 512
MAX_PATTERNS = 64
MAX_TABLE = 256 << 10
"""Bytes of a table, as JSON."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_FIELD = re.compile(r"[^\s\x00-\x1f\x7f\"']{1,128}")
_KEY = re.compile(r"[^\s\x00-\x1f\x7f\"']{1,128}")
_KINDS = ("regex", "grok", "key_value", "json")
_KEYS = (
    "name", "description", "starts", "header", *_KINDS, "patterns", "rename", "set", "map", "time", "logsource",
    "examples",
)  # fmt: skip
RESERVED = frozenset(
    {*syslog.FIELDS, *syslog.OWN_NAMES.values(), "message", "peer", "topic", "topic_levels", "value", "repeated"}
)
"""Names that the agent itself gives, and a text must not forge."""


@dataclass(frozen=True, slots=True)
class Example:
    """``fields``: what a message has, all that the format gives among them; None: it is none of the format."""

    message: str
    fields: Mapping[str, Any]
    time: str = ""


@dataclass(frozen=True, slots=True)
class Declared:
    """A format; two of the same ``text`` are one."""

    text: str
    """The table, as canonical JSON."""
    name: str = field(compare=False)
    codec: Codec = field(compare=False)
    examples: tuple[Example, ...] = field(compare=False)
    guard: Guard = field(compare=False)
    path: str = field(default="", compare=False)


def from_text(text: str, path: str = "") -> Declared:
    """Return the format whose ``Declared.text`` this is. Raises ValueError."""
    return declared(json.loads(text), path)


def declared(table: Any, path: str = "") -> Declared:
    """The format of a table. Raises ValueError, whose text has a mistake a line."""
    mistakes: list[str] = []
    form = _Reading(table, mistakes).read(path) if isinstance(table, dict) else None
    if form is None or mistakes:
        raise ValueError("\n".join(mistakes or ["expects a table"]))
    return form


class _Reading:
    """The reading of one table."""

    def __init__(self, table: dict[str, Any], mistakes: list[str]) -> None:
        self._table = table
        self._mistakes = mistakes

    def _wrong(self, where: str, what: str) -> None:
        self._mistakes.append(f"{where}: {what}" if where else what)

    def _texts(self, key: str) -> dict[str, str]:
        """The table ``key`` of texts."""
        value = self._table.get(key, {})
        if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
            return dict(value)
        self._wrong(key, 'expects a table of texts, as in {src = "src_ip"}')
        return {}

    def read(self, path: str) -> Declared | None:
        """Return the format; None when there are mistakes."""
        table = self._table
        kind = self._kind()
        if self._mistakes:
            return None
        name = table["name"]
        rename = self._texts("rename")
        fixed = self._texts("set")
        maps = self._maps()
        guard = Guard()
        origins, reader = self._reader(kind, rename, maps, guard)
        origins |= dict.fromkeys([*fixed, *maps], Provenance.SYNTHETIC)
        for target in origins:
            if not _FIELD.fullmatch(target) or target in RESERVED or target.startswith("topic_level_"):
                self._wrong(f"field {target!r:.80}", "is a name that the agent gives, or none: take another")
        header = table.get("header", "none" if kind == "json" else "syslog")
        if header not in ("syslog", "none"):
            self._wrong("header", 'expects "syslog" or "none"')
        outer = Kind.SYSLOG if header == "syslog" else Kind.JSON if kind == "json" else Kind.TEXT
        sources = self._sources()
        starts = self._starts()
        time = self._time(kind)
        examples = tuple(self._examples())
        text = json.dumps(table, sort_keys=True, ensure_ascii=True, default=str)
        if len(text) > MAX_TABLE:
            self._wrong("", f"more than {MAX_TABLE} bytes")
        if self._mistakes:
            return None
        ordered = dict(sorted(origins.items()))
        gives = Gives(
            f'`format = "{DECLARED}{name}"`',
            tuple(Field(target, how=how) for target, how in ordered.items()),
            Provenance.VERBATIM if kind == "key_value" else None,
        )
        codec = f"{DECLARED}{name}"
        row: Format | Shape
        if kind == "json":
            times = (table["time"]["field"],) if "time" in table else ()
            row = Shape(codec, _any, _Renamed(rename, fixed), gives, (), sources, times=times)
        else:
            row = Format(
                codec, starts, _Finished(reader, rename, fixed, maps), gives, sources, time_of=time, structured=False
            )
        return Declared(text, name, Codec(codec, outer, codec, row=row), examples, guard, path)

    def _kind(self) -> str:
        """Return which of ``_KINDS`` the format is, and check its name and keys."""
        table = self._table
        for key in table:
            if key not in _KEYS:
                self._wrong(key, f"unknown key; known: {', '.join(_KEYS)}")
        name = table.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._wrong("name", f"expects a-z, then up to 63 of a-z, 0-9, '_' and '-', not {name!r:.80}")
        kinds = [kind for kind in _KINDS if kind in table]
        if len(kinds) != 1:
            self._wrong("", f"expects one of {', '.join(_KINDS)}, not {' and '.join(kinds) or 'none'}")
        return kinds[0] if kinds else ""

    def _reader(
        self, kind: str, rename: Mapping[str, str], maps: Mapping[str, Any], guard: Guard
    ) -> tuple[dict[str, Provenance], Callable[[str], Fields]]:
        """Return how the fields of a message stand in it, as far as their names are known, and what reads them."""
        if kind in ("regex", "grok"):
            patterns = [*self._patterns(kind)]
            origins = {target: Provenance.VERBATIM for _, groups in patterns for target in groups.values()}
            if lacking := [own for own in rename if own not in origins]:
                self._wrong(f"rename.{lacking[0]}", "no group has this name")
            return {rename.get(own, own): how for own, how in origins.items()}, _Patterns(patterns, guard)
        if kind == "key_value":
            return dict.fromkeys(rename.values(), Provenance.VERBATIM), self._pairs()
        if self._table["json"] is not True:
            self._wrong("json", "expects true")
        if maps or "starts" in self._table:
            self._wrong("map" if maps else "starts", "is not for JSON, whose values are fields as they are")
        return dict.fromkeys(rename.values(), Provenance.ESCAPED), _no_fields

    def _patterns(self, kind: str) -> Iterator[tuple[Any, dict[str, str]]]:
        own = self._texts("patterns")
        value = self._table[kind]
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not 0 < len(texts) <= MAX_PATTERNS:
            self._wrong(kind, f"expects a text, or a list of up to {MAX_PATTERNS}")
            return
        for i, text in enumerate(texts):
            try:
                if not isinstance(text, str):
                    raise ValueError(f"expects a text, not {text!r:.80}")
                if len(text) > grok.MAX_PATTERN:
                    raise ValueError(f"longer than {grok.MAX_PATTERN} characters")
                groups: dict[str, str] | None = None
                if kind == "grok":
                    text, groups = grok.expanded(text, own)
                compiled = bounded.compiled(text, regex.V0 | regex.DOTALL)
                yield compiled, {**{group: group for group in compiled.groupindex}, **(groups or {})}
            except ValueError as error:
                self._wrong(f"{kind}[{i}]" if isinstance(value, list) else kind, str(error))

    def _pairs(self) -> Callable[[str], Fields]:
        value = self._table["key_value"]
        defaults = {"pairs": " ", "is": "=", "quotes": "\"'"}
        if not isinstance(value, dict) or not all(
            key in defaults and isinstance(text, str) for key, text in value.items()
        ):
            self._wrong("key_value", 'expects a table such as {pairs = ";", is = "=", quotes = "\\""}')
            return _no_fields
        own = {**defaults, **value}
        if not own["pairs"] or not own["is"] or own["pairs"] == own["is"]:
            self._wrong("key_value", "expects two separators that differ")
        return _Pairs(own["pairs"], own["is"], own["quotes"])

    def _maps(self) -> dict[str, dict[str, str]]:
        value = self._table.get("map", {})
        if not isinstance(value, dict) or not all(
            isinstance(translation, dict) and all(isinstance(text, str) for text in translation.values())
            for translation in value.values()
        ):
            self._wrong("map", 'expects tables of texts by field, as in {action = {D = "deny"}}')
            return {}
        return value

    def _starts(self) -> bytes:
        value = self._table.get("starts", [])
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
            self._wrong("starts", "expects a text, or a list of texts")
            return b""
        return b"(?:" + b"|".join(re.escape(text.encode()) for text in texts) + b")" if texts else b""

    def _sources(self) -> Source:
        value = self._texts("logsource")
        if unknown := sorted(set(value) - {"product", "category", "service"}):
            self._wrong(f"logsource.{unknown[0]}", "unknown key; known: product, category, service")
            return Source()
        sets = (
            frozenset({value[attribute]} if value.get(attribute) else ())
            for attribute in ("product", "category", "service")
        )
        return Source(*sets)

    def _time(self, kind: str) -> Callable[[Seen, tzinfo | None], int | None]:
        value = self._table.get("time")
        if value is None:
            return lambda fields, zone: None
        if not isinstance(value, dict) or not isinstance(value.get("field"), str) or set(value) - {"field", "format"}:
            self._wrong("time", 'expects {field = "…"}, and perhaps format')
            return lambda fields, zone: None
        name = value["field"]
        form = value.get("format", "")
        if not form:
            return first_time(name)
        if kind == "json":
            self._wrong("time.format", "JSON's times are RFC 3339, or numbers since 1970: leave it out")
        if not isinstance(form, str) or not re.search("%[Yy]", form) or not re.search("%[dj]", form):
            self._wrong("time.format", "expects a date of strptime with a year and a day, as in %d.%m.%Y %H:%M:%S")
        return _Strptime(name, str(form))

    def _examples(self) -> Iterator[Example]:
        value = self._table.get("examples", [])
        if not isinstance(value, list):
            self._wrong("examples", "expects [[examples]] tables")
            return
        for i, example in enumerate(value):
            fields = example.get("fields", {}) if isinstance(example, dict) else None
            if (
                not isinstance(example, dict)
                or set(example) - {"message", "fields", "time"}
                or not isinstance(example.get("message"), str)
                or not isinstance(fields, dict)
                or not isinstance(example.get("time", ""), str)
            ):
                self._wrong(f"examples[{i}]", 'expects message = "…", fields = {…}, and perhaps time = "…"')
                continue
            yield Example(example["message"], fields, example.get("time", ""))


# --- readers


def _no_fields(message: str) -> Fields:
    return {}


def _any(event: Seen) -> bool:
    return True


class _Patterns:
    def __init__(self, patterns: Sequence[tuple[Any, Mapping[str, str]]], guard: Guard) -> None:
        self._patterns = [(pattern.match, groups) for pattern, groups in patterns]
        self._guard = guard

    def __call__(self, message: str) -> Fields:
        if self._guard.quarantined:
            return {}
        for match, groups in self._patterns:
            try:
                hit = self._guard.ask(match, message, TIMEOUT)
            except TooSlow:
                return {}
            if hit is not None:
                fields: Fields = {}
                for group, name in groups.items():
                    value = hit[group]
                    if value is not None:
                        fields.setdefault(name, value)
                return fields
        return {}


class _Pairs:
    def __init__(self, pairs: str, sign: str, quotes: str) -> None:
        self._pairs = pairs
        self._sign = sign
        self._quotes = quotes

    def __call__(self, message: str) -> Fields:
        fields: Fields = {}
        pairs = self._pairs
        sign = self._sign
        quotes = self._quotes
        end = len(message)
        at = 0
        equals = -1
        for _ in range(MAX_PAIRS):
            if equals < at and (equals := message.find(sign, at)) < 0:
                break
            start = max(at, message.rfind(pairs, at, equals) + len(pairs)) if pairs in message[at:equals] else at
            key = message[start:equals].strip()
            value = equals + len(sign)
            quote = message[value : value + 1]
            close = message.find(quote, value + 1) if quote and quote in quotes else -1
            if close >= 0:
                text = message[value + 1 : close]
                after = message.find(pairs, close + 1)
            else:
                after = message.find(pairs, value)
                text = message[value : after if after >= 0 else end].strip()
            if _KEY.fullmatch(key):
                before = fields.get(key)
                if before is None:
                    fields[key] = text
                else:
                    fields[key] = [*before, text] if isinstance(before, list) else [before, text]
            if after < 0:
                break
            at = after + len(pairs)
        return fields


class _Finished:
    """A reader whose fields get other names, fixed values and translations."""

    def __init__(
        self, reader: Callable[[str], Fields], rename: Mapping[str, str], fixed: Mapping[str, str],
        maps: Mapping[str, Mapping[str, str]],
    ) -> None:  # fmt: skip
        self._reader = reader
        self._rename = rename
        self._fixed = fixed
        self._maps = maps

    def __call__(self, message: str) -> Fields:
        fields = self._reader(message)
        if not fields:
            return fields
        for own, name in self._rename.items():
            if own in fields:
                fields[name] = fields.pop(own)
        for name, table in self._maps.items():
            value = fields.get(name)
            if isinstance(value, str):
                fields[name] = table.get(value, value)
        fields.update(self._fixed)
        return fields


class _Renamed:
    """Further fields of a JSON object: what lies at paths, and fixed values."""

    def __init__(self, rename: Mapping[str, str], fixed: Mapping[str, str]) -> None:
        self._rename = rename
        self._fixed = fixed

    def __call__(self, event: Seen) -> Fields:
        fields: Fields = {}
        for own, name in self._rename.items():
            value = event[own] if own in event else path(event, own)
            if value is not ABSENT:
                fields[name] = value
        fields.update(self._fixed)
        return fields


class _Strptime:
    def __init__(self, name: str, form: str) -> None:
        self._name = name
        self._form = form

    def __call__(self, fields: Seen, zone: tzinfo | None) -> int | None:
        value = fields.get(self._name)
        if not isinstance(value, str) or len(value) > 128:
            return None
        try:
            time = datetime.strptime(value, self._form)
            return micros(time if time.tzinfo else time.replace(tzinfo=zone or UTC))
        except (ValueError, OverflowError):
            return None
