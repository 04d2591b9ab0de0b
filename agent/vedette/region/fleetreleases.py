"""Releases of the agent, as a fleet names them: zips of ``make dist`` and their add-ons described, and cut into pieces.

The format of the description: ``fleet/releases.py``. Agents hold a zip against the key that their installation knows;
here is only looked whether it is whole, and signed by the key that it brings.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from msgspec.structs import replace

from vedette.bundle.seal import public_key
from vedette.fleet import releases
from vedette.fleet.documents import Desired
from vedette.fleet.releases import MAX_SIZE, PIECE, Archive, File, Release
from vedette.region import polyglot


class Described(NamedTuple):
    release: Release
    pieces: Mapping[str, bytes]
    """By their paths among the targets."""

    @property
    def number(self) -> int:
        """0.2.1 is 2001: what a target has for a version."""
        parts = [int(part) for part in re.findall(r"\d+", self.release.version)[:3]]
        major, minor, patch = [*parts, 0, 0, 0][:3]
        return (major * 1000 + min(minor, 999)) * 1000 + min(patch, 999)


def describe(paths: Sequence[Path]) -> Described:
    """Raises ValueError and OSError."""
    archives: dict[str, Archive] = {}
    pieces: dict[str, bytes] = {}
    versions = set[str]()
    addons: list[tuple[Path, dict[str, str], File]] = []
    for path in paths:
        if path.stat().st_size > MAX_SIZE:
            raise ValueError(f"{path}: larger than a release may be")
        members, data = polyglot.read(path), path.read_bytes()
        cut = [data[i : i + PIECE] for i in range(0, len(data), PIECE)]
        digests = tuple(hashlib.sha256(piece).hexdigest() for piece in cut)
        file = File(hashlib.sha256(data).hexdigest(), len(data), digests)
        pieces |= {piece_path(digest): piece for digest, piece in zip(digests, cut, strict=True)}
        if "ADDON" in members:
            addons.append((path, _facts(members["ADDON"]), file))
            continue
        facts, id = _checked(path, members)
        if facts["arch"] in archives:
            raise ValueError(f"{path}: a second zip for {facts['arch']}")
        archives[facts["arch"]] = Archive(file.sha256, file.size, file.pieces, id)
        versions.add(facts["version"])
    if len(versions) != 1:
        raise ValueError(f"zips of one version are expected, not {', '.join(sorted(versions)) or 'none'}")
    for path, facts, file in addons:
        archive, name = archives.get(facts.get("arch", "")), facts.get("addon", "")
        if not name or (archive is not None and name in archive.addons):
            raise ValueError(f"{path}: {f'a second add-on {name}' if name else 'it does not say which add-on it is'}")
        if archive is None or archive.id != facts.get("release"):
            raise ValueError(
                f"{path}: an add-on of release {facts.get('release')} for {facts.get('arch')}: name that zip, too"
            )
        archives[facts["arch"]] = replace(archive, addons={**archive.addons, name: file})
    return Described(Release(versions.pop(), archives), pieces)


def _facts(text: bytes) -> dict[str, str]:
    """Lines of KEY=VALUE."""
    return dict(line.split("=", 1) for line in text.decode("ascii").splitlines() if "=" in line)


def pieces(desired: Desired, blob: Callable[[str], bytes]) -> list[str]:
    """SHA-256 of all pieces of the releases that ``desired`` names. Raises ValueError and OSError."""
    digests: dict[str, None] = {}
    for group in desired.groups:
        change = group.release
        for target in (change.to, change.from_) if change is not None else ():
            if target is not None:
                for archive in releases.read(blob(target.sha256)).archives.values():
                    digests |= dict.fromkeys(piece for file in archive.files() for piece in file.pieces)
    return [*digests]


def piece_path(sha256: str) -> str:
    """Among the targets."""
    return f"pieces/{sha256}"


def _checked(path: Path, members: Mapping[str, bytes]) -> tuple[dict[str, str], str]:
    """What a zip says of itself, and its id. Raises ValueError."""
    if "site.tar" in members:
        raise ValueError(f"{path}: the zip of one site, with its key in it: name that of the release")
    sums = members["SHA256SUMS"]
    try:
        key = public_key(members["release.pub"].decode("ascii").strip())
        key.verify(base64.b64decode(members["SHA256SUMS.sig"]), sums)
    except (KeyError, InvalidSignature, ValueError) as error:
        raise ValueError(f"{path}: not signed by its own release key: build it again") from error
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in sums.decode("ascii").splitlines())}
    for name in ("install.sh", "RELEASE", polyglot.PAYLOAD):
        if listed.get(name) != hashlib.sha256(members[name]).hexdigest():
            raise ValueError(f"{path}: {name} is not what SHA256SUMS says: build it again")
    facts = _facts(members["RELEASE"])
    return facts, f"{facts['version']}-{hashlib.sha256(sums).hexdigest()[:12]}"
