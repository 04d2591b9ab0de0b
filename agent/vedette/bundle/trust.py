"""From untrusted bytes to a bundle that may run. No I/O, no clock: the one place where trust is decided.

``verify`` takes bytes of any origin and checks, in this order, so that nothing unauthenticated is ever parsed deeper
than needed and nothing is unpacked beyond its bound:

 1. size of the file, at most ``MAX_BUNDLE``;
 2. structure of the zip: no more than ``MAX_ENTRIES`` entries, each with the name of a known part (so no absolute
    path, no ``..``, nothing unknown), none twice, stored or deflated, not encrypted, none beyond ``MAX_RATIO``, in sum
    at most ``MAX_UNPACKED``; each unpacks to exactly its stated size with the right CRC;
 3. signature: manifest.sig names a trusted key, and is its signature of the bytes of manifest.json;
 4. manifest: parses, format known, the agent is not older than ``min_agent``;
 5. parts: those of the manifest, no more and no fewer, each with its size and SHA-256; none of the required lacking.

``admit`` then decides whether a verified bundle may follow the installed one:

 6. version: not lower than the installed one, and the same version only with the same digest; above the one that an
    operator of this host has rolled back from;
 7. expiry: not expired (unless it is the installed one). A clock that was never set lies before ``expires``, so it
    refuses nothing.

An installed bundle is verified again at each start, but not admitted again: once expired it keeps judging, and
``Bundle.expired`` says so. Each refusal is a ``BundleRefused`` whose text says what is wrong and what to do.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from vedette.bundle.manifest import (
    MANIFEST,
    PLAN,
    REQUIRED,
    RULES,
    SIGNATURE,
    TESTS,
    Manifest,
    part_name,
    release,
    rfc3339,
)

MAX_BUNDLE = 64 << 20
"""Bytes of the file."""
MAX_UNPACKED = 128 << 20
"""Bytes of all entries together."""
MAX_ENTRIES = 20_000
MAX_RATIO = 100
"""Unpacked bytes per packed byte of an entry of more than ``_SMALL`` bytes."""
_SMALL = 64 << 10
_MAX_STATED = {MANIFEST: 8 << 20, SIGNATURE: 4 << 10}
"""Bytes of the two entries that are read before anything is authentic."""
_KEY_PREFIX = "ed25519:"


class BundleRefused(ValueError):
    """The bundle may not be used; the text says why."""


class Installed(NamedTuple):
    """What is installed: its version and (the first digits of) its digest."""

    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """A verified bundle, in memory."""

    manifest: Manifest
    manifest_bytes: bytes
    """manifest.json as it was signed."""
    digest: str
    """SHA-256 of ``manifest_bytes`` in hex: the identity of the rule set."""
    sha256: str
    """SHA-256 of the whole file in hex: the name of its blob."""
    key: str
    """The trusted key that signed it, ``ed25519:BASE64``; empty when read without trust."""
    parts: Mapping[str, bytes]

    @property
    def version(self) -> int:
        return self.manifest.version

    @property
    def plan(self) -> bytes:
        return self.parts[PLAN]

    @property
    def databases(self) -> dict[str, bytes]:
        """Serialized Hyperscan databases by name, without folder and ending; check ``manifest.hyperscan`` first."""
        return {
            name.removeprefix("databases/").removesuffix(".hsdb"): data
            for name, data in self.parts.items()
            if name.startswith("databases/")
        }

    @property
    def sources(self) -> dict[str, bytes]:
        """Rule files by path below ``rules/``."""
        return {name.removeprefix("rules/"): data for name, data in self.parts.items() if name.startswith("rules/")}

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The rule list; raises ValueError when it is not a JSON array of objects."""
        rules = json.loads(self.parts[RULES])
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise ValueError(f"{RULES}: expects a list of objects")
        return rules

    @property
    def tests(self) -> list[Any]:
        """The self-test events; raises ValueError when they are not a msgpack array."""
        tests = msgpack.unpackb(self.parts[TESTS])
        if not isinstance(tests, list):
            raise ValueError(f"{TESTS}: expects a list")
        return tests

    def expired(self, now: int) -> bool:
        return now > self.manifest.expires


def verify(data: bytes, trusted: Iterable[str], agent_version: str) -> Bundle:
    """Checks 1 to 5; ``trusted`` are ``ed25519:BASE64`` public keys. Raises BundleRefused."""
    entries = _unpack(data)
    key = _authenticate(entries, trusted)
    return _open(data, entries, key, agent_version)


def inspect(data: bytes) -> Bundle:
    """The same without step 3 and ``min_agent``: to look at a bundle, never to run it. Raises BundleRefused."""
    return _open(data, _unpack(data), "", None)


def admit(bundle: Bundle, installed: Installed | None, now: int, withdrawn: int = 0) -> None:
    """Checks 6 and 7: may ``bundle`` be installed at ``now`` (UTC microseconds)? Raises BundleRefused.

    ``withdrawn``: the highest version that was rolled back from; up to it only the installed bundle is taken.
    """
    if bundle.version <= withdrawn and (installed is None or bundle.version != installed.version):
        raise BundleRefused(
            f"version {withdrawn} was rolled back on this agent, so version {bundle.version} is not taken:"
            " build the rules under a higher version"
        )
    if installed is not None:
        if bundle.version < installed.version:
            raise BundleRefused(
                f"version {bundle.version} is older than the installed version {installed.version}:"
                " build the rules again under a higher version"
            )
        if bundle.version == installed.version:
            if not bundle.digest.startswith(installed.digest):
                raise BundleRefused(
                    f"version {bundle.version} is installed with other contents"
                    f" (digest {installed.digest[:12]}, this one {bundle.digest[:12]}): build it under a higher version"
                )
            return
    if bundle.expired(now):
        raise BundleRefused(
            f"version {bundle.version} expired at {rfc3339(bundle.manifest.expires)}: build and sign a newer one"
        )


def public_key(text: str) -> Ed25519PublicKey:
    """The key in ``ed25519:BASE64``; raises ValueError."""
    try:
        raw = base64.b64decode(text.removeprefix(_KEY_PREFIX), validate=True)
        if text.startswith(_KEY_PREFIX) and len(raw) == 32:
            return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        pass
    raise ValueError(f'not a public key: {text[:80]!r}; expects "ed25519:" and 44 characters of base64')


def key_text(key: Ed25519PublicKey) -> str:
    """``ed25519:BASE64`` of a public key."""
    return _KEY_PREFIX + base64.b64encode(key.public_bytes_raw()).decode()


def key_id(text: str) -> str:
    """The short name of a public key: 16 hex digits of the SHA-256 of its 32 bytes. Raises ValueError."""
    return hashlib.sha256(public_key(text).public_bytes_raw()).hexdigest()[:16]


def _unpack(data: bytes) -> dict[str, bytes]:
    """Checks 1 and 2: every entry of the zip, unpacked."""
    if len(data) > MAX_BUNDLE:
        raise BundleRefused(f"{len(data)} bytes are more than the {MAX_BUNDLE} a bundle may have")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            _check_structure(infos)
            entries = {}
            for info in infos:
                with archive.open(info) as entry:
                    content = entry.read(info.file_size + 1)
                if len(content) != info.file_size:
                    raise BundleRefused(f"{info.filename}: unpacks to another size than it states")
                entries[info.filename] = content
            return entries
    except BundleRefused:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError, RuntimeError) as error:
        raise BundleRefused(f"not a whole zip archive ({error}): fetch or build the bundle again") from error


def _check_structure(infos: list[zipfile.ZipInfo]) -> None:
    if len(infos) > MAX_ENTRIES:
        raise BundleRefused(f"{len(infos)} entries are more than the {MAX_ENTRIES} a bundle may have")
    seen: set[str] = set()
    total = 0
    for info in infos:
        name = info.filename
        if info.orig_filename != name or (name not in (MANIFEST, SIGNATURE) and not part_name(name)):
            raise BundleRefused(f"entry {info.orig_filename[:80]!r} does not belong into a bundle")
        if name in seen:
            raise BundleRefused(f"entry {name!r} is there twice")
        seen.add(name)
        if info.flag_bits & 1:
            raise BundleRefused(f"entry {name!r} is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BundleRefused(f"entry {name!r} is packed by method {info.compress_type}, not stored or deflated")
        if info.file_size > _SMALL and info.file_size > MAX_RATIO * info.compress_size:
            raise BundleRefused(f"entry {name!r} would unpack to more than {MAX_RATIO} times its size")
        if info.file_size > _MAX_STATED.get(name, MAX_UNPACKED):
            raise BundleRefused(f"entry {name!r} is longer than it may be")
        total += info.file_size
        if total > MAX_UNPACKED:
            raise BundleRefused(f"the entries unpack to more than the {MAX_UNPACKED} bytes a bundle may have")


def _authenticate(entries: Mapping[str, bytes], trusted: Iterable[str]) -> str:
    """Check 3: the trusted key that signed manifest.json."""
    manifest = _entry(entries, MANIFEST)
    if SIGNATURE not in entries:
        raise BundleRefused("it is not signed: sign it with `vedette bundle sign`")
    try:
        document = json.loads(entries[SIGNATURE])
        wanted, signature = document["key_id"], base64.b64decode(document["signature"], validate=True)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BundleRefused(f"{SIGNATURE} is not a signature: {error!r}") from error
    for key in trusted:
        if key_id(key) == wanted:
            try:
                public_key(key).verify(signature, manifest)
            except InvalidSignature:
                raise BundleRefused(
                    f"the signature by key {wanted} does not fit {MANIFEST}: the bundle was changed after signing"
                ) from None
            return key
    raise BundleRefused(f"signed by key {str(wanted)[:40]!r}, which is not among bundles.trusted_keys")


def _open(data: bytes, entries: Mapping[str, bytes], key: str, agent_version: str | None) -> Bundle:
    """Checks 4 and 5."""
    raw = _entry(entries, MANIFEST)
    try:
        manifest = Manifest.from_bytes(raw)
    except ValueError as error:
        raise BundleRefused(str(error)) from error
    if agent_version is not None and release(agent_version) < release(manifest.min_agent):
        raise BundleRefused(f"needs agent {manifest.min_agent}, this one is {agent_version}: upgrade the agent first")
    parts = {name: content for name, content in entries.items() if name not in (MANIFEST, SIGNATURE)}
    for name in sorted(parts.keys() - manifest.parts.keys()):
        raise BundleRefused(f"part {name!r} is not in the manifest")
    for name in [*REQUIRED, *sorted(manifest.parts)]:
        if name not in parts:
            raise BundleRefused(f"part {name!r} is missing")
        stated = manifest.parts[name]
        if len(parts[name]) != stated.size or hashlib.sha256(parts[name]).hexdigest() != stated.sha256:
            raise BundleRefused(f"part {name!r} is not the one of the manifest (size or SHA-256 differ)")
    return Bundle(manifest, raw, hashlib.sha256(raw).hexdigest(), hashlib.sha256(data).hexdigest(), key, parts)


def _entry(entries: Mapping[str, bytes], name: str) -> bytes:
    if name not in entries:
        raise BundleRefused(f"{name} is missing: this is not a bundle")
    return entries[name]
