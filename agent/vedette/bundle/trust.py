"""From untrusted bytes to a bundle that may run. No I/O, no clock: the one place where trust is decided.

``verify`` takes bytes of any origin and checks, in this order, so that nothing unauthenticated is ever parsed deeper
than needed and nothing is unpacked beyond its bound:

 1. signature: the record at the head (``seal.py``) is by a trusted key, and size and digest of the rest are those it
    states. Everything from here on was written by who holds the key; the bounds that follow are for mistakes, and for
    those who look at bundles without trusting them (``inspect``);
 2. structure of the zip: what ``region/build.py`` writes and nothing else. At most ``MAX_ENTRIES`` entries, each with
    the name of a known part (so no absolute path, no ``..``, nothing unknown), none twice, plain files, stored; each
    follows the one before without gap or overlap, and directory and headers say the same of it. So nothing unpacks to
    more than it is;
 3. manifest: parses, format known, the agent is not older than ``min_agent``;
 4. parts: those of the manifest, no more and no fewer, each with its size and SHA-256; none of the required lacking.

``addressed`` and ``admit`` then decide whether a verified bundle is for this agent and may follow the installed one:

 5. fleet and channel: those of this agent; a bundle for no fleet only when it comes from a file of this host;
 6. version: not lower than the installed one, and the same version only with the same digest; above the one that an
    operator of this host has rolled back from;
 7. expiry: not expired (unless it is the installed one). A clock that was never set lies before ``expires``, so it
    refuses nothing.

For a bundle that the fleet's signed documents name (``fleet/``) the fleet counts and no channel, of check 6 only what
an operator of this host has rolled back, and no expiry: going back to an older bundle must work.

An installed bundle is verified again at each start, but no more: once expired it stays in use, and ``Bundle.expired``
says so; an agent that moves to another fleet keeps its rules until that fleet's come. Each refusal is a
``BundleRefused`` whose text says what is wrong and what to do.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from vedette.bundle.manifest import MANIFEST, PLAN, REQUIRED, RULES, TESTS, Manifest, part_name, release, rfc3339
from vedette.bundle.seal import BundleRefused, Sealed, read, unseal
from vedette.system import documents, foreign

MAX_ENTRIES = 20_000
_MAX_MANIFEST = 8 << 20
"""Bytes of manifest.json: what ``inspect`` parses of a bundle that nobody has signed."""
_END, _CENTRAL, _LOCAL = struct.Struct("<4s4H2LH"), struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")
"""APPNOTE.TXT 6.3.10, 4.3.16, 4.3.12, 4.3.7."""


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
    fleet: str
    channel: str
    """Whom it is for; both empty: for no fleet."""
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
        return documents.read(list[dict[str, Any]], foreign.read(self.parts[RULES]), RULES)

    @property
    def tests(self) -> list[Any]:
        """The self-test events; raises ValueError when they are not a msgpack array."""
        return documents.read(list[Any], msgpack.unpackb(self.parts[TESTS]), TESTS)

    def expired(self, now: int) -> bool:
        return now > self.manifest.expires


def verify(data: bytes, trusted: Iterable[str], agent_version: str, sha256: str = "") -> Bundle:
    """Checks 1 to 4; ``trusted`` are ``ed25519:BASE64`` public keys, ``sha256`` that of ``data`` where it is known.
    Raises BundleRefused."""
    return _open(data, unseal(data, trusted), agent_version, sha256)


def inspect(data: bytes) -> Bundle:
    """The same without signature and ``min_agent``: to look at a bundle, never to run it. Raises BundleRefused."""
    return _open(data, read(data), None)


def addressed(bundle: Bundle, fleet: str, channel: str, *, of_host: bool = False) -> None:
    """Check 5: is ``bundle`` for an agent of ``fleet`` that follows ``channel``? ``of_host``: it is a file of the
    agent's host. Raises BundleRefused."""
    if not bundle.fleet and not of_host:
        raise BundleRefused(
            "it is not signed for a fleet, and so is taken from a file of the host only, never from a broker: sign it"
            f" with `vedette bundle sign --fleet {fleet} --channel {channel}`"
        )
    if bundle.fleet and (bundle.fleet, bundle.channel) != (fleet, channel):
        raise BundleRefused(
            f"it is signed for fleet {bundle.fleet}, channel {bundle.channel}, not for fleet {fleet}, channel {channel}"
        )


def admit(bundle: Bundle, installed: Installed | None, now: int, withdrawn: int = 0, *, by_fleet: bool = False) -> None:
    """Checks 6 and 7: may ``bundle`` be installed at ``now`` (UTC microseconds)? Raises BundleRefused.

    ``withdrawn``: the highest version that was rolled back from; up to it only the installed bundle is taken.
    ``by_fleet``: a signed document names this very file; its serial rises in place of the version, and it expires.
    """
    if bundle.version <= withdrawn and (installed is None or bundle.version != installed.version):
        raise BundleRefused(
            f"version {withdrawn} was rolled back on this agent, so version {bundle.version} is not taken:"
            " build the rules under a higher version"
        )
    if by_fleet:
        return
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


def _unpack(body: memoryview) -> dict[str, bytes]:
    """Check 2: every entry of the zip."""
    end = len(body) - _END.size
    if end < 0 or bytes(body[end : end + 4]) != b"PK\5\6":
        raise _broken("no end of directory where it should be")
    _, disk, from_disk, here, count, length, start, comment = _END.unpack_from(body, end)
    if count > MAX_ENTRIES:
        raise BundleRefused(f"{count} entries are more than the {MAX_ENTRIES} a bundle may have")
    if disk or from_disk or comment or here != count or start + length != end:
        raise _broken("its end and its directory do not fit together")
    entries: dict[str, bytes] = {}
    at, place = start, 0
    for _ in range(count):
        if at + _CENTRAL.size > end:
            raise _broken("its directory is cut off")
        head, _, *fields, extra, note, part, _, mode, offset = _CENTRAL.unpack_from(body, at)
        flags, method, packed, size, long = fields[1], fields[2], fields[6], fields[7], fields[8]
        raw = bytes(body[at + _CENTRAL.size : at + _CENTRAL.size + long])
        name = raw.decode("ascii", "replace")
        if name != MANIFEST and not part_name(name):
            raise BundleRefused(f"entry {name[:80]!r} does not belong into a bundle")
        if name in entries:
            raise BundleRefused(f"entry {name!r} is there twice")
        if flags & 1:
            raise BundleRefused(f"entry {name!r} is encrypted")
        if method:
            raise BundleRefused(f"entry {name!r} is packed by method {method}; bundles are stored")
        if mode >> 28 not in (0, 0o10):
            raise BundleRefused(f"entry {name!r} is no plain file")
        content = place + _LOCAL.size + long
        if head != b"PK\1\2" or extra or note or part or flags or offset != place or packed != size:
            raise _broken(f"the directory's entry {name!r} is not one of a bundle")
        if content + size > start or bytes(body[place:content]) != _LOCAL.pack(b"PK\3\4", *fields, 0) + raw:
            raise _broken(f"the header of {name!r} is not what the directory says")
        if name == MANIFEST and size > _MAX_MANIFEST:
            raise BundleRefused(f"entry {name!r} is longer than it may be")
        entries[name] = bytes(body[content : content + size])
        if zlib.crc32(entries[name]) != fields[5]:
            raise _broken(f"the checksum of {name!r} does not fit")
        at, place = at + _CENTRAL.size + long, content + size
    if at != end or place != start:
        raise _broken("there is more in it than its directory says")
    return entries


def _broken(what: str) -> BundleRefused:
    return BundleRefused(f"not a whole zip archive as `vedette bundle build` writes it ({what}): build it again")


def _open(data: bytes, sealed: Sealed, agent_version: str | None, sha256: str = "") -> Bundle:
    """Checks 2 to 4."""
    entries = _unpack(sealed.body)
    raw = entries.pop(MANIFEST, None)
    if raw is None:
        raise BundleRefused(f"{MANIFEST} is missing: this is not a bundle")
    try:
        manifest = Manifest.from_bytes(raw)
    except ValueError as error:
        raise BundleRefused(str(error)) from error
    if agent_version is not None and release(agent_version) < release(manifest.min_agent):
        raise BundleRefused(f"needs agent {manifest.min_agent}, this one is {agent_version}: upgrade the agent first")
    for name in sorted(entries.keys() - manifest.parts.keys()):
        raise BundleRefused(f"part {name!r} is not in the manifest")
    for name in [*REQUIRED, *sorted(manifest.parts)]:
        if name not in entries:
            raise BundleRefused(f"part {name!r} is missing")
        stated = manifest.parts[name]
        if len(entries[name]) != stated.size or hashlib.sha256(entries[name]).hexdigest() != stated.sha256:
            raise BundleRefused(f"part {name!r} is not the one of the manifest (size or SHA-256 differ)")
    digest, sha256 = hashlib.sha256(raw).hexdigest(), sha256 or hashlib.sha256(data).hexdigest()
    return Bundle(manifest, raw, digest, sha256, sealed.key, sealed.fleet, sealed.channel, entries)
