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
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Struct

from vedette.system import documents, foreign
from vedette.system.documents import Count, Name, Sha256, Time
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
_PartName = Annotated[
    str, Meta(pattern=rf"\A(?:{_PART_NAME.pattern})\Z", max_length=_MAX_NAME, description="the name of a part")
]
_Version = Annotated[int, Meta(ge=1, lt=1 << 53, description="a whole number from 1")]


class Part(Struct, frozen=True):
    """One file of a bundle: its size in bytes and its SHA-256 in hex."""

    size: Count
    sha256: Sha256


class Manifest(Struct, frozen=True):
    """The signed statement of a bundle; times are UTC microseconds, in the file RFC 3339 in whole seconds."""

    name: Name
    version: _Version
    created: Time
    expires: Time
    min_agent: Annotated[str, Meta(pattern=r"\A\d{1,6}(\.\d{1,6}){0,3}\Z", description="a version such as 1.2.3")]
    """The lowest version of the agent that can run the plan."""
    hyperscan: Annotated[str, Meta(pattern=r"\A[ -~]{0,128}\Z", description="at most 128 plain characters")]
    """The library version that made the databases; another one compiles them from the plan."""
    parts: Mapping[_PartName, Part]
    format: _Version = FORMAT

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

        Unknown keys are left alone, nested to 32. Of a manifest with a higher ``format`` only the format is read, and
        ValueError is raised.
        """
        try:
            document = foreign.read(data)
            format = documents.read(_Format, document).format
            if format > FORMAT:
                raise ValueError(f"format {format} is newer than {FORMAT}: upgrade the agent")
            manifest = documents.read(cls, document)
            for key, time in (("created", manifest.created), ("expires", manifest.expires)):
                if document[key] != rfc3339(time):
                    raise ValueError(f"{key}: expects UTC in whole seconds, as {rfc3339(time)}")
            return manifest
        except ValueError as error:
            raise ValueError(f"{MANIFEST}: {error}") from error


class _Format(Struct, frozen=True):
    format: _Version


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
