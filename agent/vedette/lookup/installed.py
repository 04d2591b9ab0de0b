"""The folder of a host's installed lookups: what arrived is staged, verified, switched to, and gone back from.

    lookups/
      assets/
        1763852400000000-3f9a0c6d21be.vlookup    versions by build time, and links: vedette/system/versions.py
        assets.vlookup                            current: what rules ask
        previous, withdrawn
        by-fleet                                  the fleet's documents have named it: nothing else counts for this name
      .incoming/
        assets-3f9a0c6d21be.part                  what has arrived so far of a new version

Invariants: a file gets its name when each of its blocks has the digest that was signed, and is synced before that;
``current`` moves after it. ``previous`` is never built later than ``current``: of the two rules ask the later. Versions
only rise: by build time, and above what was rolled back from; but for those that the fleet's documents name, whose own
serial rises. A partial file needs no record of what is in it: each block is checked against its digest when it is
opened again, so a kill costs at most the block that was being written.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from vedette.lookup.layout import NAME, LookupRefused
from vedette.lookup.names import SUFFIX
from vedette.lookup.sign import Signed, head_of, opened, same, signed_in, verify
from vedette.lookup.table import Lookup
from vedette.system.durable import sync_path
from vedette.system.versions import PREVIOUS, Versions, digits_of, number_of

RESERVE = 16 << 20
"""Bytes that stay free on the disk."""
INCOMING = ".incoming"
BY_FLEET = "by-fleet"


class DiskShort(OSError):
    """There is no room for a lookup now; it is tried again."""


def check_room(folder: Path, name: str, size: int) -> None:
    """Raises DiskShort unless the disk of ``folder`` has ``size`` bytes for the lookup ``name``, and RESERVE beside
    them."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if size + RESERVE > free:
        raise DiskShort(
            f"lookup {name} needs {size + RESERVE:,} bytes in {folder} and {free:,} are free:"
            " free some; it is tried again"
        )


def delivered(folder: Path) -> list[dict[str, Lookup]]:
    """The current lookups by name, and those that were current before, opened; what cannot be opened is left out."""
    lookups: list[dict[str, Lookup]] = [{}, {}]
    for name in _names(folder):
        for place, link in enumerate((f"{name}{SUFFIX}", PREVIOUS)):
            with suppress(LookupRefused, OSError):
                lookups[place][name] = Lookup.open((folder / name / link).resolve(strict=True))
    return lookups


def mapped(folder: Path) -> int:
    """Bytes of addresses that the installed lookups take when they are opened."""
    return sum(path.stat().st_size for name in _names(folder) for path in (folder / name).iterdir() if path.is_file())


def links(folder: Path) -> list[Path]:
    """The current lookup of each name, under a path whose stem is the name."""
    return [path for name in _names(folder) if (path := folder / name / f"{name}{SUFFIX}").exists()]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir() if NAME.fullmatch(path.name) and path.is_dir())
    except OSError:
        return []


class Installed:
    """The lookups of one agent of ``fleet`` that follows ``channel``. One caller at a time; every method blocks on the
    disk."""

    def __init__(self, folder: Path, trusted: Sequence[str], *, fleet: str, channel: str) -> None:
        self.folder, self.trusted, self.fleet, self.channel = folder, tuple(trusted), fleet, channel

    def names(self) -> list[str]:
        return _names(self.folder)

    def _versions(self, name: str) -> Versions:
        return Versions(self.folder / name, SUFFIX, current=f"{name}{SUFFIX}", rising=True)

    def current(self, name: str) -> Path | None:
        return self._versions(name).current

    def previous(self, name: str) -> Path | None:
        return self._versions(name).previous

    def has(self, name: str, version: str) -> bool:
        """Whether this version is current."""
        path = self.current(name)
        return path is not None and path.is_file() and digits_of(path) == version[:12]

    def governed(self, name: str) -> bool:
        """Whether the fleet's documents have ever named a lookup of this name: no other source counts any more."""
        return (self.folder / name / BY_FLEET).exists()

    def head(self, name: str) -> tuple[str, str]:
        """Version and SHA-256 of what is before the file, of a current lookup that came by the fleet's documents;
        empty: there is none."""
        path = self.current(name)
        if path is None or not self.governed(name):
            return "", ""
        try:
            with path.open("rb") as source:
                head = head_of(source)
            return opened(head, None).version, hashlib.sha256(head).hexdigest()
        except (LookupRefused, OSError):
            return "", ""

    def admit(self, signed: Signed, *, of_host: bool = False, by_fleet: bool = False) -> None:
        """Whether a signed lookup may follow what is installed; ``of_host``: it is a file on this host; ``by_fleet``:
        the fleet's documents name this very file. Raises LookupRefused."""
        if by_fleet:
            if signed.fleet != self.fleet:
                raise LookupRefused(f"it is signed for {signed.fleet or 'no fleet'}; this agent is of {self.fleet}")
            gone = self._versions(signed.name).withdrawn
            if gone is not None and digits_of(gone) == signed.version[:12]:
                raise LookupRefused("this version was rolled back on this agent: build it again")
            return
        if self.governed(signed.name):
            raise LookupRefused("the fleet's documents say which version this agent has")
        if signed.fleet or not of_host:
            wanted = (self.fleet, self.channel)
            if (signed.fleet, signed.channel) != wanted:
                whom = f"fleet {signed.fleet}, channel {signed.channel}" if signed.fleet else "no fleet"
                raise LookupRefused(
                    f"it is signed for {whom}; this agent is of fleet {wanted[0]}, channel {wanted[1]}:"
                    " sign it with `vedette lookup sign --fleet`"
                )
        path = self.current(signed.name)
        gone = self._versions(signed.name).withdrawn
        if path is not None and number_of(path) > signed.created:
            raise LookupRefused("it was built before the installed version: build it again")
        if gone is not None and number_of(gone) >= signed.created and not self.has(signed.name, signed.version):
            raise LookupRefused("this version, or a later one, was rolled back on this agent: build it again")

    def part(self, signed: Signed) -> Part:
        """What has arrived of a lookup, to go on with; partial files of its other versions are deleted. Raises
        DiskShort and OSError."""
        folder = self.folder / INCOMING
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{signed.name}-{signed.version[:12]}.part"
        for old in folder.glob("*.part"):
            if old != path and old.name.rpartition("-")[0] == signed.name:
                old.unlink()
        there = path.stat().st_blocks * 512 if path.exists() else 0
        check_room(self.folder, signed.name, len(signed.head) + signed.size - there)
        return Part(path, signed)

    def install(self, part: Part, *, by_fleet: bool = False) -> Path:
        """Make a part that has all blocks current. Raises LookupRefused and OSError, with the old version current."""
        part.sync()
        same(part.path, part.signed)
        signed = part.signed
        versions = self._versions(signed.name)
        versions.folder.mkdir(exist_ok=True)
        sync_path(self.folder)
        if by_fleet:
            (versions.folder / BY_FLEET).touch()
        target = versions.path(signed.created, signed.version)
        part.path.rename(target)
        sync_path(versions.folder)
        versions.switch(target)
        return target

    def take(self, path: Path, *, by_fleet: bool = False) -> Part | None:
        """A signed lookup in a file of this host as a part with all blocks; None when it is current. ``by_fleet``: the
        fleet's documents name it. Raises LookupRefused and OSError."""
        with path.open("rb") as source:
            signed = signed_in(source, self.trusted)
            if self.has(signed.name, signed.version):
                return None
            self.admit(signed, of_host=not by_fleet, by_fleet=by_fleet)
            with self.part(signed) as part:
                for block in part.missing:
                    start, size = signed.span(block)
                    source.seek(len(signed.head) + start)
                    data = source.read(size)
                    if not signed.fits(block, data):
                        raise LookupRefused(f"block {block} was damaged or changed after signing: copy it again")
                    part.write(block, data)
                return part

    def remove(self, name: str) -> None:
        """Take away what the fleet's documents have brought; a crash in between leaves the version before it or none,
        and the next call ends it. Raises OSError."""
        self._versions(name).clear()

    def rollback(self, name: str) -> Path:
        """Make the version before the current one current. Raises LookupRefused when there is none."""
        versions = self._versions(name)
        current = versions.current
        target = versions.previous
        if current is None:
            raise LookupRefused(f"no lookup {name} is installed here")
        if target is None or target == current or not target.exists():
            raise LookupRefused(f"no earlier version of {name} is kept: build it again, and publish it")
        versions.withdraw(current)
        versions.go_back(target)
        return target

    def verified(self, name: str) -> Path | None:
        """The current file of ``name`` once all of it is known to be as it was signed; when it is not, it is deleted
        and the version before is current, if there is one. Raises LookupRefused, which says what was wrong."""
        path = self.current(name)
        if path is None:
            return None
        try:
            verify(path, self.trusted)
        except (LookupRefused, OSError) as error:
            stands_in = self._versions(name).drop(path)
            now = "the version before is current" if stands_in else "none is current until it arrives again"
            raise LookupRefused(f"{path}: {error}; {now}") from error
        return path


class Part:
    """A new version that arrives block by block."""

    def __init__(self, path: Path, signed: Signed) -> None:
        """Raises OSError, DiskShort when the disk does not have the room."""
        self.path, self.signed = path, signed
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(self._file, 0, len(signed.head) + signed.size)
            os.pwrite(self._file, signed.head, 0)
            self.missing = [block for block in range(len(signed)) if not signed.fits(block, self._read(block))]
        except OSError as error:
            os.close(self._file)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                path.unlink()
                raise DiskShort(
                    f"lookup {signed.name}: {error.strerror} in {path.parent}: it is tried again"
                ) from error
            raise
        self.had = len(signed) - len(self.missing)
        """Blocks that an earlier attempt has left."""

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self, block: int) -> bytes:
        start, size = self.signed.span(block)
        return os.pread(self._file, size, len(self.signed.head) + start)

    def write(self, block: int, data: bytes) -> None:
        """A block that ``signed.fits``. Raises OSError."""
        start, _ = self.signed.span(block)
        os.pwrite(self._file, data, len(self.signed.head) + start)
        self.missing.remove(block)

    def sync(self) -> None:
        sync_path(self.path)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Earlier:
    """An installed version whose blocks may be those of a new one, or what these are deltas against."""

    def __init__(self, path: Path) -> None:
        """Raises LookupRefused and OSError."""
        with path.open("rb") as source:
            self._signed = opened(head_of(source), None)
        self._path = path
        self._blocks = {self._signed.digest(block): block for block in range(len(self._signed))}

    @property
    def version(self) -> str:
        return self._signed.version

    def block(self, digest: bytes) -> bytes | None:
        """The block with this digest; whether it is still whole is for the caller to see."""
        block = self._blocks.get(digest)
        return None if block is None else self.read(*self._signed.span(block))

    def read(self, start: int, size: int) -> bytes:
        with self._path.open("rb") as source:
            source.seek(len(self._signed.head) + start)
            return source.read(size)


def files(folder: Path) -> Iterator[Path]:
    """The lookups in a folder where people put them. Raises OSError."""
    for path in sorted(folder.iterdir()):
        if path.suffix == SUFFIX and not path.name.startswith(".") and path.is_file():
            yield path
