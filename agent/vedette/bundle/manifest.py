"""What a bundle says about itself, and the shape of its file. Bytes and values only.

A bundle is a zip archive, after its signature (``seal.py``) once it is signed. Its entries:

    manifest.json       format, name, version, times, what it needs, and the size and SHA-256 of every part
    plan.msgpack        part: the compiled plan (required)
    rules.json          part: the rule list: id, title, level, tags, logsource, state, reason (required)
    tests.msgpack       part: events for the self-test with the rules they must match (required)
    databases/*.hsdb    parts: serialized Hyperscan databases, of use to the library version named in the manifest only
    rules/**            parts: the sources, .yml and .sql, and .py of functions (an agent that knows none refuses it)
    lookups/*.vlookup   parts: the lookups that rules ask

Everything but the manifest is a part, and every part is in the manifest. The **digest** of a bundle is the SHA-256 of
its manifest.json, so it covers all parts and does not change with the signature. A version is an integer that only
rises.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from vedette.model.times import iso_time
from vedette.system.within import NAME

FORMAT = 1
"""Of the archive; an agent refuses a higher one."""

MANIFEST = "manifest.json"
PLAN = "plan.msgpack"
RULES = "rules.json"
TESTS = "tests.msgpack"
REQUIRED = (PLAN, RULES, TESTS)

_FILE = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_PART_NAME = re.compile(
    r"plan\.msgpack|rules\.json|tests\.msgpack"
    rf"|databases/{_FILE}\.hsdb|lookups/{NAME}\.vlookup|rules/(?:{_FILE}/){{0,8}}{_FILE}\.(?:yml|sql|py)"
)
_MAX_NAME = 240
_MAX_VERSION = (1 << 53) - 1


class Part(NamedTuple):
    """One file of a bundle: its size in bytes and its SHA-256 in hex."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The signed statement of a bundle; times are UTC microseconds, in the file RFC 3339 in whole seconds."""

    name: str
    version: int
    created: int
    expires: int
    min_agent: str
    """The lowest version of the agent that can run the plan, ``"1.2.3"``."""
    hyperscan: str
    """The library version that made the databases; another one compiles them from the plan."""
    parts: Mapping[str, Part]
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """The bytes of manifest.json: equal manifests give equal bytes."""
        document = {
            "format": self.format,
            "name": self.name,
            "version": self.version,
            "created": rfc3339(self.created),
            "expires": rfc3339(self.expires),
            "min_agent": self.min_agent,
            "hyperscan": self.hyperscan,
            "parts": {name: {"sha256": part.sha256, "size": part.size} for name, part in sorted(self.parts.items())},
        }
        return json.dumps(document, indent=1, ensure_ascii=True).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """The manifest in ``data``; raises ValueError naming the key that is missing or wrong.

        Unknown keys are left alone. Of a manifest with a higher ``format`` only the format is read: raises ValueError.
        """
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{MANIFEST} is not JSON: {error}") from error
        if not isinstance(document, dict):
            raise ValueError(f"{MANIFEST}: expects an object")
        format = _integer(document, "format")
        if format > FORMAT:
            raise ValueError(f"{MANIFEST}: format {format} is newer than {FORMAT}: upgrade the agent")
        parts = document.get("parts")
        if not isinstance(parts, dict):
            raise ValueError(f"{MANIFEST}: parts: expects an object")
        return cls(
            name=_text(document, "name", NAME),
            version=_integer(document, "version"),
            created=_time(document, "created"),
            expires=_time(document, "expires"),
            min_agent=_text(document, "min_agent", r"\d{1,6}(\.\d{1,6}){0,3}"),
            hyperscan=_text(document, "hyperscan", r"[ -~]{0,128}"),
            parts={name: _part(name, value) for name, value in parts.items()},
            format=format,
        )


def part_name(name: str) -> bool:
    """Whether ``name`` is one that a part can have: relative, plain ASCII, no ``..``, in a folder known here."""
    return len(name) <= _MAX_NAME and _PART_NAME.fullmatch(name) is not None


def describe(parts: Mapping[str, bytes]) -> dict[str, Part]:
    return {name: Part(len(data), hashlib.sha256(data).hexdigest()) for name, data in parts.items()}


def release(version: str) -> tuple[int, ...]:
    """``(1, 2, 3)`` from ``"1.2.3"`` (what follows the numbers is ignored), to compare agent versions by."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()


def rfc3339(time: int) -> str:
    """``2031-05-06T07:08:09Z`` from UTC microseconds; parts of a second are cut."""
    return datetime.fromtimestamp(time // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(document: Mapping[str, Any], key: str, pattern: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
        raise ValueError(f"{MANIFEST}: {key}: not a valid value: {str(value)[:80]!r}")
    return value


def _integer(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_VERSION:
        raise ValueError(f"{MANIFEST}: {key}: expects a whole number from 1, not {str(value)[:80]!r}")
    return value


def _time(document: Mapping[str, Any], key: str) -> int:
    time = iso_time(_text(document, key, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"))
    if time is None:
        raise ValueError(f"{MANIFEST}: {key}: no such time of 1900 to 2199: {document[key]!r}")
    return time


def _part(name: str, value: Any) -> Part:
    if not part_name(name):
        raise ValueError(f"{MANIFEST}: parts: {name[:80]!r} is not the name of a part")
    if not isinstance(value, dict):
        raise ValueError(f"{MANIFEST}: parts: {name}: expects an object")
    size, sha256 = value.get("size"), value.get("sha256")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"{MANIFEST}: parts: {name}: size: expects a number of bytes")
    if not isinstance(sha256, str) or re.fullmatch(r"[0-9a-f]{64}", sha256) is None:
        raise ValueError(f"{MANIFEST}: parts: {name}: sha256: expects 64 hex digits")
    return Part(size, sha256)
