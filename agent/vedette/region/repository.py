"""The signed metadata of a fleet (TUF), as files: made, staged, signed by several people, put in force.

    FOLDER/
      tuf/N.root.json  N.targets.json  N.snapshot.json  N.rollout.json  timestamp.json     in force; all of it public
      blobs/SHA256                     what the targets name: documents, bundles, overlays, heads of lookups, releases
      lookups/SHA256.vlookup           lookups whole, by the SHA-256 of their heads (``fleetlookups.py``)
      staged/root.json  targets.json   the next version, which waits for signatures
      online/snapshot.pem  timestamp.pem  rollout.pem     the keys of the controller (0600)
      audit.jsonl                      who signed and published what (``fleet/audit.py``)
      pruned                           when what nobody needs was deleted last (``prune.py``)
      steer/                           the controller's own (``steer/kept.py``)

Roles and who signs them:

* ``root`` (threshold of the root keys, kept off line): the keys of all top-level roles;
* ``targets`` (threshold of the operators' keys): every file that an agent may run, and the key of ``rollout``;
* ``snapshot`` and ``timestamp`` (online): which versions belong together, and that they are fresh;
* ``rollout`` (online, delegated by ``targets``): ``rollout.json`` alone.

Promises: ``commit`` puts in force only what agents will accept, and the timestamp comes last: killed anywhere, the
folder is an older or the newer state, whole, and ``commit`` again finishes it. A version's bytes never change. Keys of
operators are read to sign and never kept here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner
from tuf.api.metadata import (
    Metadata,
    MetaFile,
    Root,
    Snapshot,
    TargetFile,
    Targets,
    Timestamp,
)

from vedette.bundle.manifest import rfc3339
from vedette.fleet.audit import Audit
from vedette.fleet.certificates import key_pem
from vedette.fleet.documents import DESIRED, ROLLOUT, Desired, Rollout, read_desired, read_rollout
from vedette.fleet.held import TIME
from vedette.fleet.operators import OPERATORS, Operators, read_operators
from vedette.region import fleetlookups, fleetreleases
from vedette.region.prune import prune
from vedette.region.roles import DAYS, NAME, ONLINE, WARN_DAYS, Signatory, assign, delegations, public_of, signed
from vedette.region.sign import load_key
from vedette.system.durable import sync_path, write_whole
from vedette.system.folders import locked_within
from vedette.system.wallclock import utc_now
from vedette.system.within import is_name

PRUNE_SECONDS = 3600.0


class Signatures(NamedTuple):
    """How far a staged file is signed: by whom, and how many more signatures it needs."""

    role: str
    version: int
    signed: tuple[str, ...]
    missing: int


class Warned(NamedTuple):
    """A role whose metadata expire soon, or have: at which time, and whether they have."""

    role: str
    expires: datetime
    expired: bool


@dataclass(frozen=True, slots=True)
class Repository:
    """The folder of one fleet; one process at a time writes. ``clock`` in UTC microseconds."""

    folder: Path
    clock: Callable[[], int] = utc_now

    @property
    def audit(self) -> Audit:
        return Audit(self.folder / "audit.jsonl", self.clock)

    @property
    def fleet(self) -> str:
        """Raises ValueError and FileNotFoundError."""
        root: Any = self.newest("root") or self.staged("root")
        if root is None:
            raise FileNotFoundError(f"{self.folder}: no fleet here: `vedette fleet init` makes one")
        return str(root.signed.unrecognized_fields["x-vedette-fleet"])

    # --- reading

    def version(self, role: str) -> int:
        """Of the newest metadata in force; 0: none."""
        if role == "timestamp":
            metadata = self.newest(role)
            return 0 if metadata is None else int(metadata.signed.version)
        names = (path.name.partition(".")[0] for path in (self.folder / "tuf").glob(f"*.{role}.json"))
        return max((int(name) for name in names if name.isdigit()), default=0)

    def newest(self, role: str) -> Metadata[Any] | None:
        """The metadata in force. Raises ValueError when they cannot be read."""
        name = "timestamp.json" if role == "timestamp" else f"{self.version(role)}.{role}.json"
        return _read(self.folder / "tuf" / name)

    def staged(self, role: str) -> Metadata[Any] | None:
        """The next version, which waits for signatures."""
        return _read(self.folder / "staged" / f"{role}.json")

    def desired(self, *, staged: bool = False) -> Desired | None:
        """The desired document in force, or the staged one. Raises ValueError and OSError."""
        data = self._target(self.staged("targets") if staged else self.newest("targets"), DESIRED)
        return None if data is None else read_desired(data, self.fleet)

    def rollout(self) -> Rollout | None:
        """The roll-out document in force. Raises ValueError and OSError."""
        data = self._target(self.newest("rollout"), ROLLOUT)
        return None if data is None else read_rollout(data, self.fleet)

    def operators(self, *, staged: bool = False) -> Operators | None:
        """Who may ask agents, as in force or staged. Raises ValueError and OSError."""
        data = self._target(self.staged("targets") if staged else self.newest("targets"), OPERATORS)
        return None if data is None else read_operators(data, self.fleet)

    def blob(self, sha256: str) -> bytes:
        """Raises FileNotFoundError, OSError, and ValueError for a file that was damaged."""
        path = self.folder / "blobs" / sha256
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{path} is missing, which the signed metadata name: copy it back") from error
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError(f"{path} was damaged: remove it, and copy it back")
        return data

    def signatures(self) -> list[Signatures]:
        """Of what is staged."""
        signatures = []
        root: Any = self.staged("root") or self.newest("root")
        for role in ("root", "targets"):
            if (metadata := self.staged(role)) is None:
                continue
            if role == "root":
                before = self.newest("root")
                result: Any = metadata.signed.get_root_verification_result(
                    before and before.signed, metadata.signed_bytes, metadata.signatures
                )
                missing = max(result.first.missing, result.second.missing)
            else:
                result = root.signed.get_verification_result("targets", metadata.signed_bytes, metadata.signatures)
                missing = result.missing
            names = sorted({str(key.unrecognized_fields.get(NAME, key.keyid[:8])) for key in result.signed.values()})
            signatures.append(Signatures(role, metadata.signed.version, tuple(names), missing))
        return signatures

    def signatories(self, role: str) -> list[Signatory]:
        """Whose keys may sign ``role`` from the staged root on, or the one in force."""
        root: Any = self.staged("root") or self.newest("root")
        keys = (root.signed.keys[keyid] for keyid in root.signed.roles[role].keyids)
        return [Signatory(str(key.unrecognized_fields.get(NAME, "")), public_of(key)) for key in keys]

    def warnings(self) -> list[Warned]:
        """Which metadata in force have to be signed again soon, the most urgent first."""
        warnings = []
        for role, days in WARN_DAYS.items():
            if (metadata := self.newest(role)) is not None:
                expires = metadata.signed.expires.replace(tzinfo=UTC)
                if expires - timedelta(days=days) < self._now():
                    warnings.append(Warned(role, expires, expires < self._now()))
        return sorted(warnings, key=lambda warning: warning.expires)

    # --- changing

    def create(
        self, fleet: str, roots: Sequence[Signatory], root_threshold: int, operators: Sequence[Signatory],
        targets_threshold: int,
    ) -> None:  # fmt: skip
        """A new fleet: online keys are made, root and targets are staged. Raises ValueError for a name that topics
        cannot hold, and thresholds that cannot be met; FileExistsError, OSError."""
        if not is_name(fleet, 64):
            raise ValueError(f"{fleet[:80]!r}: expects 1 to 64 letters, digits, '_', '-' or '.', no '.' first")
        if (self.folder / "tuf").exists() or (self.folder / "staged").exists():
            raise FileExistsError(f"{self.folder}: a fleet is here already")
        for what, keys, threshold in (("root", roots, root_threshold), ("targets", operators, targets_threshold)):
            if not 0 < threshold <= len(keys):
                raise ValueError(f"threshold {threshold} of {len(keys)} {what} keys: expects 1 to {len(keys)}")
        for name in ("tuf", "blobs", "staged"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "online").mkdir(mode=0o700)
        online = {role: self._new_online(role) for role in ONLINE}
        root = Root(version=1, expires=self._until("root"), unrecognized_fields={"x-vedette-fleet": fleet})
        assign(root, "root", roots, root_threshold)
        assign(root, "targets", operators, targets_threshold)
        for role in ("snapshot", "timestamp"):
            assign(root, role, [Signatory(role, online[role].public_key())], 1)
        targets = Targets(version=1, expires=self._until("targets"), delegations=delegations(online["rollout"]))
        self._stage("root", Metadata(root))
        self._stage("targets", Metadata(targets))
        self.audit.append(
            "fleet_created", fleet=fleet, root=[signatory.name for signatory in roots], root_threshold=root_threshold,
            targets=[signatory.name for signatory in operators], targets_threshold=targets_threshold,
        )  # fmt: skip

    def stage_desired(
        self, desired: Desired, blobs: Mapping[str, bytes], operators: Operators | None = None
    ) -> Metadata[Any]:
        """Stage the next targets: ``desired`` and the files that it names, ``blobs`` by target path, and ``operators``
        (None: as they are). Files named before and still wanted stay. Raises ValueError while a rotation is staged, or
        for a file that lacks."""
        with self._writing():
            return self._stage_desired(desired, blobs, operators)

    def _stage_desired(
        self, desired: Desired, blobs: Mapping[str, bytes], operators: Operators | None
    ) -> Metadata[Any]:
        if self.staged("root") is not None:
            raise ValueError("a new root is staged: sign it and `vedette fleet apply` first")
        before = self.newest("targets")
        if before is None:
            raise FileNotFoundError(f"{self.folder}: the fleet's root and targets are not signed yet")
        targets = Targets(
            version=before.signed.version + 1, expires=self._until("targets"), delegations=before.signed.delegations
        )
        wanted = {
            target.target: target
            for group in desired.groups
            for _, _, change in group.changes()
            for target in (change.to, change.from_)
            if target is not None
        }
        for path, target in wanted.items():
            data = blobs[path] if path in blobs else self.blob(target.sha256)
            if hashlib.sha256(data).hexdigest() != target.sha256:
                raise ValueError(f"{path}: not the file that the desired document names")
            targets.targets[path] = self._file(path, data, version=target.version)
        for sha256 in fleetreleases.pieces(desired, self.blob):
            path = fleetreleases.piece_path(sha256)
            targets.targets[path] = self._file(path, blobs[path] if path in blobs else self.blob(sha256), version=0)
        targets.targets[DESIRED] = self._file(DESIRED, desired.to_bytes(), version=desired.serial)
        if (asking := operators or self.operators()) is not None:
            targets.targets[OPERATORS] = self._file(OPERATORS, asking.to_bytes(), version=asking.serial)
        staged = Metadata(targets)
        self._stage("targets", staged)
        return staged

    def stage_root(
        self, *, roles: Mapping[str, tuple[Sequence[Signatory], int]] | None = None, online: Sequence[str] = ()
    ) -> None:
        """Stage the next root: other keys and thresholds of ``root`` or ``targets``, new keys of ``online`` roles, or
        the same for longer. Targets that need other signatures are staged, too. Raises ValueError while something is
        staged."""
        if self.signatures():
            raise ValueError("something is staged: sign it and `vedette fleet apply` first")
        before = self.newest("root")
        if before is None:
            raise FileNotFoundError(f"{self.folder}: no fleet here: `vedette fleet init` makes one")
        root = Root.from_dict(before.signed.to_dict())
        root.version, root.expires = before.signed.version + 1, self._until("root")
        for role, (keys, threshold) in (roles or {}).items():
            if not 0 < threshold <= len(keys):
                raise ValueError(f"threshold {threshold} of {len(keys)} {role} keys: expects 1 to {len(keys)}")
            assign(root, role, keys, threshold)
        for role in online:
            fresh = self._new_online(role, suffix=".next")
            if role != "rollout":
                assign(root, role, [Signatory(role, fresh.public_key())], 1)
        if "targets" in (roles or {}) or "rollout" in online:
            old: Any = self.newest("targets")
            targets = Targets.from_dict(old.signed.to_dict())
            targets.version, targets.expires = old.signed.version + 1, self._until("targets")
            if "rollout" in online:
                targets.delegations = delegations(load_key(self._online("rollout", ".next")))
            self._stage("targets", Metadata(targets))
        if roles or set(online) - {"rollout"} or not online:
            self._stage("root", Metadata(root))

    def sign(self, key: Ed25519PrivateKey) -> list[str]:
        """Sign what is staged and ``key`` is entitled to; returns the roles. Raises ValueError when there is none."""
        signer = CryptoSigner(key)
        root: Any = self.staged("root") or self.newest("root")
        before = self.newest("root")
        done = []
        for role in ("root", "targets"):
            metadata = self.staged(role)
            entitled = {*root.signed.roles[role].keyids}
            if role == "root" and before is not None:
                entitled |= {*before.signed.roles["root"].keyids}
            if metadata is not None and signer.public_key.keyid in entitled:
                metadata.sign(signer, append=True)
                self._stage(role, metadata)
                done.append(role)
        if not done:
            raise ValueError("nothing is staged that this key may sign: `vedette fleet plan` stages changes")
        name = next((str(public.unrecognized_fields.get(NAME, "")) for public in root.signed.keys.values()
                     if public.keyid == signer.public_key.keyid), "")  # fmt: skip
        self.audit.append("fleet_signed", roles=done, key=signer.public_key.keyid[:16], name=name)
        return done

    def commit(self, rollout: Rollout | None = None) -> bool:
        """Put in force what is staged, and ``rollout``, with fresh snapshot and timestamp. False when nothing had to
        be done: nothing was staged, and what is in force is good for a while.

        Raises ValueError when a signature lacks.
        """
        with self._writing():
            return self._commit(rollout) and self._prune()

    def advance(self, rollout: Rollout | None = None) -> bool:
        """As ``commit``, but what is staged stays so: what the controller does while operators collect signatures."""
        with self._writing():
            return self._publish(self._commit_rollout(rollout)) and self._prune()

    def _prune(self) -> bool:
        """Delete what nobody needs any more, once in PRUNE_SECONDS; True. What is in force does not depend on it: a
        failure is recorded."""
        now, mark = self.clock() / 1e6, self.folder / "pruned"
        if mark.exists() and 0 <= now - mark.stat().st_mtime < PRUNE_SECONDS:
            return True
        try:
            staged = self.desired(staged=True) if self.staged("targets") is not None else None
            lookups = fleetlookups.names(self.desired()) | fleetlookups.names(staged)
            gone = prune(self.folder, lookups, now)
            mark.touch()
            os.utime(mark, (now, now))
            if any(gone):
                self.audit.append("fleet_pruned", **gone._asdict())
        except (OSError, ValueError) as error:
            with suppress(OSError, ValueError):  # a full disk
                self.audit.append("fleet_not_pruned", reason=str(error))
        return True

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One process at a time stages something, or puts it in force."""
        descriptor = locked_within(self.folder, ".lock", "another process writes here", wait=True)
        try:
            yield
        finally:
            os.close(descriptor)

    def _commit(self, rollout: Rollout | None) -> bool:
        self._have_keys()
        for signatures in self.signatures():
            if signatures.missing:
                raise ValueError(
                    f"{signatures.role} version {signatures.version} needs {signatures.missing} more signatures (it has"
                    f" {', '.join(signatures.signed) or 'none'}): `vedette fleet sign`"
                )
        changed = False
        for role in ("root", "targets"):
            if (staged := self.staged(role)) is not None:
                write_whole(self.folder / "tuf" / f"{staged.signed.version}.{role}.json", staged.to_bytes())
                changed = True
        self._take_keys()
        changed |= self._commit_rollout(rollout)
        done = self._publish(changed)
        for role in ("root", "targets") if done else ():
            (self.folder / "staged" / f"{role}.json").unlink(missing_ok=True)
        sync_path(self.folder / "staged")
        return done

    def _have_keys(self) -> None:
        """Nothing is begun without the online keys. Raises FileNotFoundError."""
        for role in ONLINE:
            path = self._online(role)
            if not path.exists() and not self._online(role, ".next").exists():
                raise FileNotFoundError(
                    f"{path} is missing: publish on the machine that has the online keys, or replace it"
                    f" (`vedette fleet plan --discard`, then `vedette fleet rotate --online {role}`)"
                )

    def _publish(self, changed: bool) -> bool:
        """Snapshot and timestamp of what is there, when something ``changed`` or they are due."""
        if not (changed or self._due("snapshot") or self._due("timestamp") or self._torn()):
            return False
        self._commit_online()
        self.audit.append("fleet_committed", **{role: self.version(role) for role in DAYS})
        return True

    def discard(self) -> None:
        """Forget what is staged."""
        for path in (self.folder / "staged").glob("*.json"):
            path.unlink()
        for path in (self.folder / "online").glob("*.next.pem"):
            path.unlink()

    # --- parts

    def _commit_rollout(self, rollout: Rollout | None) -> bool:
        """The next roll-out metadata, when its document, its key or its time asks for them."""
        before, targets = self.newest("rollout"), self.newest("targets")
        if targets is None:
            raise FileNotFoundError(f"{self.folder}: the fleet's root and targets are not signed yet")
        key = load_key(self._online("rollout"))
        entitled = targets.signed.delegations.roles["rollout"].keyids
        if CryptoSigner(key).public_key.keyid not in entitled:
            raise ValueError(f"{self._online('rollout')}: not the key that the targets name for the roll-out")
        is_signed = before is not None and {*before.signatures} <= {*entitled}
        if rollout is None and is_signed and not self._due("rollout"):
            return False
        next_targets = Targets(version=self.version("rollout") + 1, expires=self._until("rollout"))
        if rollout is not None:
            next_targets.targets[ROLLOUT] = self._file(ROLLOUT, rollout.to_bytes(), version=rollout.serial)
        elif before is not None:
            next_targets.targets.update(before.signed.targets)
        data = signed(next_targets, key).to_bytes()
        write_whole(self.folder / "tuf" / f"{next_targets.version}.rollout.json", data)
        return True

    def _commit_online(self) -> None:
        versions = {f"{role}.json": MetaFile(self.version(role)) for role in ("targets", "rollout")}
        snapshot = Snapshot(version=self.version("snapshot") + 1, expires=self._until("snapshot"), meta=versions)
        data = signed(snapshot, load_key(self._online("snapshot"))).to_bytes()
        write_whole(self.folder / "tuf" / f"{snapshot.version}.snapshot.json", data)
        meta = MetaFile(snapshot.version, len(data), {"sha256": hashlib.sha256(data).hexdigest()})
        timestamp = Timestamp(
            version=self.version("timestamp") + 1, expires=self._until("timestamp"), snapshot_meta=meta,
            unrecognized_fields={TIME: rfc3339(self.clock())},
        )  # fmt: skip
        last = signed(timestamp, load_key(self._online("timestamp"))).to_bytes()
        write_whole(self.folder / "tuf" / "timestamp.json", last)

    def _torn(self) -> bool:
        """A commit was killed before its timestamp: versions are there that it does not reach."""
        timestamp, snapshot = self.newest("timestamp"), self.newest("snapshot")
        if timestamp is None or snapshot is None or timestamp.signed.snapshot_meta.version != snapshot.signed.version:
            return True
        reached = {name: meta.version for name, meta in snapshot.signed.meta.items()}
        return any(reached.get(f"{role}.json") != self.version(role) for role in ("targets", "rollout"))

    def _due(self, role: str) -> bool:
        return any(warning.role == role for warning in self.warnings())

    def _take_keys(self) -> None:
        """New online keys take the places of the old ones, once the root and targets that name them are in force."""
        for role in ONLINE:
            path = self._online(role, ".next")
            if path.exists():
                path.rename(self._online(role))
        sync_path(self.folder / "online")

    def _new_online(self, role: str, suffix: str = "") -> Ed25519PrivateKey:
        key = Ed25519PrivateKey.generate()
        write_whole(self._online(role, suffix), key_pem(key), 0o600)
        return key

    def _online(self, role: str, suffix: str = "") -> Path:
        return self.folder / "online" / f"{role}{suffix}.pem"

    def _stage(self, role: str, metadata: Metadata[Any]) -> None:
        write_whole(self.folder / "staged" / f"{role}.json", metadata.to_bytes())

    def _file(self, path: str, data: bytes, *, version: int) -> TargetFile:
        """The entry of a target, whose bytes are kept. Raises OSError."""
        sha256 = hashlib.sha256(data).hexdigest()
        place = self.folder / "blobs" / sha256
        if not place.exists() or place.stat().st_size != len(data):
            write_whole(place, data)
        custom = {"fleet": self.fleet, "version": version}
        return TargetFile(len(data), {"sha256": sha256}, path, unrecognized_fields={"custom": custom})

    def _target(self, metadata: Metadata[Any] | None, path: str) -> bytes | None:
        info = None if metadata is None else metadata.signed.targets.get(path)
        return None if info is None else self.blob(info.hashes["sha256"])

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.clock() / 1e6, UTC)

    def _until(self, role: str) -> datetime:
        return (self._now() + timedelta(days=DAYS[role])).replace(microsecond=0)


def copied(repository: Repository, folder: Path) -> None:
    """The public part of what is in force, for an agent that takes it by hand (``fleet.trust.FolderSource``)."""
    (folder / "tuf").mkdir(parents=True, exist_ok=True)
    (folder / "blobs").mkdir(exist_ok=True)
    for path in needed_blobs(repository):
        target = folder / "blobs" / path.name
        if not target.exists() or target.stat().st_size != path.stat().st_size:
            shutil.copyfile(path, target)
    for lookup in fleetlookups.needed(repository.folder, repository.desired()):
        target = folder / "lookups" / lookup.path.name
        target.parent.mkdir(exist_ok=True)
        if not target.exists() or target.stat().st_size != lookup.path.stat().st_size:
            shutil.copyfile(lookup.path, target)
    names = needed_metadata(repository)
    for name in names:
        write_whole(folder / "tuf" / name, (repository.folder / "tuf" / name).read_bytes())
    for path in (folder / "tuf").glob("*.json"):
        if path.name not in names:
            path.unlink()


def needed_metadata(repository: Repository) -> list[str]:
    """Names of the files in force, in the order in which they are published: every root, the timestamp last."""
    roots = [f"{version}.root.json" for version in range(1, repository.version("root") + 1)]
    rest = [f"{repository.version(role)}.{role}.json" for role in ("targets", "rollout", "snapshot")]
    return [*roots, *rest, "timestamp.json"]


def needed_blobs(repository: Repository) -> list[Path]:
    """The files that the targets in force name."""
    metadata = (repository.newest(role) for role in ("targets", "rollout"))
    names = {
        info.hashes["sha256"] for role in metadata if role is not None for info in role.signed.targets.values()
    }  # fmt: skip
    return [repository.folder / "blobs" / name for name in sorted(names)]


def _read(path: Path) -> Metadata[Any] | None:
    try:
        return Metadata.from_bytes(path.read_bytes())
    except FileNotFoundError:
        return None
    except Exception as error:  # python-tuf raises several kinds for what is no metadata
        raise ValueError(f"{path}: not a file of metadata: {error}") from error
