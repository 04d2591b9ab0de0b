"""Build a bundle: parts in, the bytes of an unsigned bundle out (its format: ``bundle/manifest.py``).

Deterministic: the same arguments give the same bytes, on every machine (entries sorted and stored, fixed times).
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from vedette.bundle.manifest import MANIFEST, PLAN, RULES, TESTS, Manifest, describe, part_name
from vedette.bundle.trust import inspect
from vedette.version import __version__


def build(
    *,
    name: str,
    version: int,
    created: int,
    expires: int,
    plan: bytes,
    databases: Mapping[str, bytes],
    sources: Mapping[str, bytes],
    rules: Sequence[Mapping[str, Any]],
    tests: Sequence[Any],
    hyperscan_version: str,
    min_agent: str = __version__,
    lookups: Mapping[str, bytes] | None = None,
) -> bytes:
    """An unsigned bundle.

    ``databases`` and ``lookups`` are by name without folder and ending, ``sources`` by path below ``rules/``
    (``linux/sshd.yml``), ``created`` and ``expires`` UTC microseconds. Raises ValueError naming the argument that
    cannot be packed, also when an agent would refuse the result (BundleRefused, which is one).
    """
    if expires <= created:
        raise ValueError("expires must lie after created")
    parts = {
        PLAN: plan,
        RULES: json.dumps(list(rules), indent=1, sort_keys=True).encode() + b"\n",
        TESTS: msgpack.packb(list(tests)),
        **{f"databases/{key}.hsdb": data for key, data in databases.items()},
        **{f"rules/{path}": data for path, data in sources.items()},
        **{f"lookups/{name}.vlookup": data for name, data in (lookups or {}).items()},
    }
    for part in parts:
        if not part_name(part):
            raise ValueError(
                f"{part!r} cannot be the name of a part: letters, digits, '.', '_', '-', folders; rules end in .yml"
            )
    manifest = Manifest(name, version, created, expires, min_agent, hyperscan_version, describe(parts))
    data = archive({MANIFEST: manifest.to_bytes(), **parts})
    inspect(data)
    return data


def archive(entries: Mapping[str, bytes]) -> bytes:
    """A zip of ``entries``: sorted by name, stored, with fixed times and modes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        for name, data in sorted(entries.items()):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            file.writestr(info, data)
    return buffer.getvalue()
