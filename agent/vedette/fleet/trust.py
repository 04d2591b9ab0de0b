"""The Update Framework (TUF): from untrusted files to a desired document that this agent may follow.

python-tuf's ``Updater`` decides, in the order of the specification: root (each next version signed by thresholds of
its predecessor and of itself), timestamp, snapshot, targets, then the delegated role ``rollout``. Nothing is trusted
but the root that installation or enrolment gave (``bootstrap``). So none of these installs anything:

* one stolen key of several: the threshold is not met;
* old metadata (roll back, replay): versions only rise, also over restarts;
* no new metadata (freeze): they expire, and ``Trusted.expires`` says when; what runs stays, the agent reports it;
* parts of two publications (mix-and-match): the snapshot names the version of each role's file;
* another fleet's files: another root signed them. Where two fleets share keys, each target names its fleet
  (``custom``), and the documents name theirs;
* endless data: every file has a bound, the targets' sizes are signed.

Besides, the documents' serials only rise (``documents.py``), by what the folder keeps: that holds even where TUF's own
files were lost. A controller's key that was stolen cannot block the fleet by a high serial: the operators' next desired
document lets the roll-out document's begin again.

python-tuf holds expiry against the host's clock; here it is held against ``signedtime.py`` as well, which the time in
a verified timestamp raises: metadata that expired before a newer signature stay so when the clock is put back. A root
that has one key under several ids is refused (``held.py``).

Files come from a ``Source``: what a broker retains, or a folder that was carried here (``FolderSource``). The folder of
trust belongs to one caller at a time::

    FOLDER/tuf/        python-tuf's own: root_history/N.root.json, timestamp.json, snapshot.json, …
    FOLDER/desired.json  rollout.json  operators.json     the verified documents, in force
    FOLDER/serials.json                           the highest serial of each

Everything is synced before ``refresh`` returns. Importing this module loads tuf (3 MB, 70 ms): only with ``[fleet]``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import orjson
from tuf.api.exceptions import (
    DownloadError,
    DownloadHTTPError,
    DownloadLengthMismatchError,
    ExpiredMetadataError,
    LengthOrHashMismatchError,
    RepositoryError,
    UnsignedMetadataError,
)
from tuf.api.metadata import Metadata, Root, TargetFile
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig

from vedette.fleet import documents
from vedette.fleet.documents import DESIRED, ROLLOUT, Desired, DocumentRefused, Rollout
from vedette.fleet.held import Held
from vedette.fleet.operators import OPERATORS, Operators, read_operators
from vedette.fleet.signedtime import SignedTime
from vedette.system.durable import sync_path, write_whole
from vedette.system.wallclock import utc_now

METADATA = re.compile(r"timestamp\.json|[1-9][0-9]{0,8}\.(?:root|snapshot|targets|rollout)\.json")
"""Names of the files of metadata."""
MAX_METADATA = {"root": 512_000, "timestamp": 16_384, "snapshot": 64 << 10, "targets": 4 << 20, "rollout": 64 << 10}
"""Bytes of each, at most."""
_TOP = ("root", "timestamp", "snapshot", "targets")
_PIECE = 64 << 10
_URL = "fleet:/"


class TrustRefused(ValueError):
    """The files are not taken; what was trusted before stays. ``kind``: a word for machines."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Missing(TrustRefused):
    """A file lacks; it may still come. ``name``: of metadata, or the SHA-256 of a target."""

    def __init__(self, name: str) -> None:
        super().__init__("missing", f"{name} is missing")
        self.name = name


class Source(Protocol):
    """Where files come from; nothing in them is believed. Both raise OSError."""

    def metadata(self, name: str) -> bytes | None: ...

    def blob(self, sha256: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class FolderSource:
    """``FOLDER/tuf/NAME`` and ``FOLDER/blobs/SHA256``: what ``vedette fleet apply --folder`` writes."""

    folder: Path

    def metadata(self, name: str) -> bytes | None:
        return self._read(self.folder / "tuf" / name, max(MAX_METADATA.values()))

    def blob(self, sha256: str) -> bytes | None:
        return self._read(self.folder / "blobs" / sha256, -1)

    def _read(self, path: Path, limit: int) -> bytes | None:
        try:
            with path.open("rb") as file:
                return file.read(limit if limit < 0 else limit + 1)
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class Trusted:
    """What is in force; times are UTC microseconds."""

    desired: Desired | None
    rollout: Rollout | None
    versions: dict[str, int]
    """By role."""
    expires: int
    """The first of the expiries of timestamp, snapshot, targets and root; 0: nothing is trusted yet."""
    root_expires: int
    operators: Operators | None = None
    """Who may ask this agent; None: nobody."""


class Trust:
    """The trust of one agent of ``fleet``; every method blocks on the disk."""

    def __init__(self, folder: Path, fleet: str, bootstrap: bytes, time: SignedTime | None = None) -> None:
        """``bootstrap``: the root metadata that enrolment or installation gave; ``time``: by which metadata expire, by
        default one of this folder. Raises TrustRefused when the root is none, OSError."""
        self._folder, self._fleet, self._bootstrap = folder, fleet, bootstrap
        self._time = time or SignedTime(folder / "time", utc_now)
        self._tuf = folder / "tuf"
        self._synced: dict[str, tuple[int, int]] = {}
        """Inode and time of change by path, of the files that are known to be on the disk."""
        self._tuf.mkdir(parents=True, exist_ok=True)
        check_root(bootstrap)

    def current(self) -> Trusted:
        """What was trusted when the agent last refreshed; read back from the disk, which verified it. Raises
        OSError."""
        desired, rollout = self._kept(DESIRED, documents.read_desired), self._kept(ROLLOUT, documents.read_rollout)
        operators = self._kept(OPERATORS, read_operators)
        held = Held.of(self._tuf)
        whole = {"timestamp", "snapshot", "targets"} <= held.keys()
        expires = min(held.expires(role) for role in held if role != "rollout") if whole else 0
        return Trusted(desired, rollout, held.versions(), expires, held.expires("root"), operators)

    def refresh(self, source: Source) -> Trusted:
        """Take what ``source`` has, when all of it can be trusted. Raises TrustRefused (Missing), with what was in
        force untouched, and OSError."""
        try:
            updater = self._updater(source)
            updater.refresh()
            held = self._sound(*_TOP)
            desired = self._document(updater, source, DESIRED, documents.read_desired)
            rollout = self._document(updater, source, ROLLOUT, documents.read_rollout)
            operators = self._document(updater, source, OPERATORS, read_operators)
            if rollout is not None:
                self._sound("rollout")
        except (RepositoryError, DownloadError, DocumentRefused) as error:
            raise _refused(error) from error
        finally:
            self._sync()
        serials = self._serials()
        if desired is not None and desired[1].serial > serials.get(DESIRED, 0):
            serials.pop(ROLLOUT, None)
        every = ((DESIRED, desired), (ROLLOUT, rollout), (OPERATORS, operators))
        fresh = {name: document for name, document in every if document is not None}
        for name, (_, document) in fresh.items():
            if document.serial < serials.get(name, 0):
                raise TrustRefused("rollback", f"{name} has serial {document.serial}, and {serials[name]} was in force")
        self._keep(serials, fresh)
        self._time.rise(held.stamped())
        return self.current()

    def named(self, source: Source) -> dict[str, int]:
        """SHA-256 and bytes of all targets that the metadata of ``source`` name, once they can be trusted. No target is
        read. Raises TrustRefused (Missing) and OSError."""
        try:
            updater = self._updater(source)
            updater.refresh()
            roles = [self._sound(*_TOP)["targets"]]
            if roles[0].delegations is not None:
                updater.get_targetinfo(ROLLOUT)
                roles += [role for name, role in Held.of(self._tuf).items() if name == "rollout"]
        except (RepositoryError, DownloadError) as error:
            raise _refused(error) from error
        targets = [info for role in roles for info in role.targets.values()]
        return {info.hashes["sha256"]: int(info.length) for info in targets if "sha256" in info.hashes}

    def fetch(self, target: documents.Target, source: Source) -> bytes:
        """The bytes of a target of the documents in force, verified by length, hash and fleet. Raises TrustRefused
        (Missing) and OSError."""
        try:
            updater = self._offline()
            return self._read(updater, source, target.target, target.sha256)
        except (RepositoryError, DownloadError) as error:
            raise _refused(error) from error

    def length(self, target: documents.Target) -> int:
        """Bytes that the metadata in force state for a target. Raises TrustRefused and OSError."""
        try:
            return int(self._info(self._offline(), target.target).length)
        except (RepositoryError, DownloadError) as error:
            raise _refused(error) from error

    def _updater(self, source: Source) -> Updater:
        config = UpdaterConfig(
            max_delegations=4,
            root_max_length=MAX_METADATA["root"],
            timestamp_max_length=MAX_METADATA["timestamp"],
            snapshot_max_length=MAX_METADATA["snapshot"],
            targets_max_length=MAX_METADATA["targets"],
        )
        return Updater(
            str(self._tuf), _URL, fetcher=_Fetcher(source.metadata), config=config, bootstrap=self._bootstrap
        )

    def _offline(self) -> Updater:
        """Over the files in force, and no others."""

        def kept(name: str) -> bytes | None:
            role = name.removesuffix(".json").rpartition(".")[2]
            path = self._tuf / f"{role}.json"
            return None if role == "root" or not path.exists() else path.read_bytes()

        updater = Updater(str(self._tuf), _URL, fetcher=_Fetcher(kept), bootstrap=self._bootstrap)
        updater.refresh()
        self._sound(*_TOP)
        return updater

    def _sound(self, *roles: str) -> Held:
        """What python-tuf took. Raises TrustRefused when one of the roles has expired, or counts a key twice."""
        held = Held.of(self._tuf)
        if why := held.expired(roles, self._time.now()):
            raise TrustRefused("expired", f"{why}: no fresh metadata, what runs stays")
        if why := held.doubled():
            raise TrustRefused("keys", f"{why}: each signature counts once")
        return held

    def _info(self, updater: Updater, path: str) -> TargetFile:
        info = updater.get_targetinfo(path)
        if info is None:
            raise TrustRefused("target", f"{path} is not among the signed targets")
        custom = info.custom if isinstance(info.custom, dict) else {}
        if custom.get("fleet") != self._fleet:
            raise TrustRefused(
                "fleet", f"{path} is signed for fleet {custom.get('fleet')!r}, this is fleet {self._fleet!r}"
            )
        return info

    def _read(self, updater: Updater, source: Source, path: str, sha256: str = "") -> bytes:
        info = self._info(updater, path)
        stated = info.hashes.get("sha256", "")
        if not stated or (sha256 and stated != sha256):
            raise TrustRefused(
                "mix", f"{path} has SHA-256 {stated[:12]} in the metadata, {sha256[:12]} in the document"
            )
        data = source.blob(stated)
        if data is None:
            raise Missing(stated)
        info.verify_length_and_hashes(data)
        return data

    def _document(
        self, updater: Updater, source: Source, name: str, read: Callable[[bytes, str], Any]
    ) -> tuple[bytes, Any] | None:
        """The document as bytes and read; None: the targets do not name one. Raises as its parts do."""
        info = updater.get_targetinfo(name)
        if info is None:
            return None
        if info.length > documents.MAX_DOCUMENT:
            raise TrustRefused("length", f"{name}: {info.length} bytes, at most {documents.MAX_DOCUMENT}")
        path = self._folder / name
        with suppress(OSError, LengthOrHashMismatchError):
            data = path.read_bytes()
            info.verify_length_and_hashes(data)
            self._info(updater, name)
            return data, read(data, self._fleet)
        data = self._read(updater, source, name)
        return data, read(data, self._fleet)

    def _keep(self, serials: dict[str, int], fresh: dict[str, tuple[bytes, Any]]) -> None:
        """Serials first: after a crash between the two the documents come again, and no older ones."""
        new = {**serials, **{name: document.serial for name, (_, document) in fresh.items()}}
        if new != self._serials():
            write_whole(self._folder / "serials.json", orjson.dumps(new))
        for name, (data, _) in fresh.items():
            path = self._folder / name
            if not path.exists() or path.read_bytes() != data:
                write_whole(path, data)

    def _serials(self) -> dict[str, int]:
        try:
            row = orjson.loads((self._folder / "serials.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return {name: serial for name, serial in row.items() if type(serial) is int} if isinstance(row, dict) else {}

    def _kept(self, name: str, read: Callable[[bytes, str], Any]) -> Any:
        try:
            return read((self._folder / name).read_bytes(), self._fleet)
        except (FileNotFoundError, DocumentRefused):
            return None

    def _sync(self) -> None:
        """python-tuf renames its files into place without a sync."""
        for folder in (self._tuf / "root_history", self._tuf):
            entries = os.scandir(folder) if folder.is_dir() else ()
            files = {
                entry.path: (entry.inode(), entry.stat().st_mtime_ns)
                for entry in entries
                if entry.is_file(follow_symlinks=False)
            }
            new = [path for path, file in files.items() if self._synced.get(path) != file]
            for path in new:
                sync_path(Path(path))
            if new:
                sync_path(folder)
            self._synced.update(files)


class _Fetcher(FetcherInterface):
    """python-tuf's way to a ``Source``."""

    def __init__(self, metadata: Callable[[str], bytes | None]) -> None:
        self._metadata = metadata

    def _fetch(self, url: str) -> Iterator[bytes]:
        name = url.rpartition("/")[2]
        data = self._metadata(name) if METADATA.fullmatch(name) else None
        if data is None:
            raise _Absent(name)
        return (data[i : i + _PIECE] for i in range(0, len(data), _PIECE))


class _Absent(DownloadHTTPError):
    """For a next root python-tuf takes it as: there is none."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is missing", 404)
        self.name = name


def check_root(data: bytes) -> None:
    """Raises TrustRefused when ``data`` is no root metadata."""
    try:
        signed: Any = Metadata.from_bytes(data).signed
    except Exception as error:  # python-tuf raises several kinds for what is no metadata
        raise TrustRefused("root", f"the root of trust is no root metadata: {error}") from error
    if not isinstance(signed, Root):
        raise TrustRefused("root", f"the root of trust is no root metadata: it is of the role {signed.type}")


def _refused(error: Exception) -> TrustRefused:
    """python-tuf's errors in the words of this module."""
    if isinstance(error, _Absent):
        return Missing(error.name)
    if isinstance(error, ExpiredMetadataError):
        return TrustRefused("expired", f"{error}: no fresh metadata, what runs stays")
    if isinstance(error, UnsignedMetadataError):
        return TrustRefused("signatures", str(error))
    if isinstance(error, LengthOrHashMismatchError | DownloadLengthMismatchError):
        return TrustRefused("length or hash", str(error))
    if isinstance(error, DocumentRefused):
        return TrustRefused("document", str(error))
    text = str(error.__cause__ or error)
    rollback = "version" in text and ("must be" in text or "<" in text or "expected" in text.lower())
    return TrustRefused("rollback" if rollback else "metadata", text)


def expiry(data: bytes) -> datetime:
    """When a file of metadata expires; raises ValueError."""
    try:
        expires: datetime = Metadata.from_bytes(data).signed.expires.replace(tzinfo=UTC)
        return expires
    except Exception as error:  # python-tuf raises several kinds for what is no metadata
        raise ValueError(f"not a file of metadata: {error}") from error
