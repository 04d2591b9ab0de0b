"""``fleet.toml``: what a fleet shall run, as people write it and keep it in git; and the desired document made of it.

    [[ring]]
    name = "canary"
    agents = 5                       # or: percent = 10
    soak = "30m"

    [gates]                          # what stops a ring (``steer/gates.py``)
    silence = "10m"

    [[group]]
    name = "vienna"
    match = "site = vienna and os = debian"
    bundle = "bundles/linux-8.vbundle"            # of the rule set "default"
    bundles = { site = "bundles/site-3.vbundle" }  # of further ones ([[ruleset]])
    config = "overlays/vienna.toml"
    lookups = { staff = "lookups/staff.vlookup" }
    release = ["dist/vedette-0.2.0-linux-x86_64.zip", "dist/vedette-0.2.0-linux-aarch64.zip"]
    windows = [{ days = ["sat", "sun"], start = "22:00", end = "04:00", timezone = "Europe/Vienna" }]

    [[operator]]                     # who may ask hosts (``fleet/operators.py``)
    name = "ann"
    key = "ed25519:…"
    roles = ["viewer", "analyst"]
    expires = 2027-06-30T00:00:00Z

    [[lookup]]                       # rebuilt from its source, beside all this (``reload/settings.py``)
    name = "assets"

Paths are relative to the file. All mistakes are reported at once. An overlay is read by the agent's own reader, a
bundle by its own checks (unsigned ones are refused), so that what no agent would take is found here.

``next_desired`` compares with the document in force: what is the same keeps its change, and with it how far it has
come, also where it was aborted; what differs becomes a new change *from* what agents run (``to`` of the old one when
that is done, else its ``from``). An overlay or a lookup that is gone becomes a change to nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from vedette.bundle.manifest import rfc3339
from vedette.bundle.seal import BundleRefused
from vedette.bundle.trust import inspect
from vedette.config.settings import DEFAULT_SET
from vedette.fleet.documents import (
    Change,
    Desired,
    Progress,
    Rollout,
    State,
    Target,
    canonical,
    change_id,
    read_desired,
)
from vedette.fleet.operators import MAX_OPERATORS, Operator, Operators, read_operator
from vedette.fleet.overlay import MAX_OVERLAY, check
from vedette.lookup.sign import head_of, verify
from vedette.model.times import micros, seconds
from vedette.region import fleetreleases
from vedette.region.reload.settings import FLEET, of_document
from vedette.region.steer.gates import read_limits
from vedette.system.foreign import read_toml
from vedette.system.within import is_path

KEYS = {
    "": (*FLEET, "lookup"),
    "ring": ("name", "agents", "percent", "soak"),
    "group": ("name", "match", "bundle", "bundles", "config", "lookups", "release", "windows"),
    "window": ("days", "start", "end", "timezone", "for"),
}


class FleetFileError(ValueError):
    """The file cannot be used; every reason is a line."""

    def __init__(self, path: Path, mistakes: list[str]) -> None:
        self.mistakes = [f"{path}: {mistake}" for mistake in mistakes]
        super().__init__("\n".join(self.mistakes))


@dataclass(frozen=True, slots=True)
class FleetFile:
    """What was read: groups whose changes have no ids yet, and every file by its path among the targets."""

    groups: tuple[dict[str, Any], ...]
    rings: tuple[dict[str, Any], ...]
    gates: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)
    operators: tuple[Operator, ...] = ()
    lookups: Mapping[str, Path] = field(default_factory=dict)
    """The signed lookups whole, by the SHA-256 of what is before their file, which is among ``files``."""


def read(path: Path, fleet: str) -> FleetFile:
    """Raises FleetFileError with all mistakes, OSError."""
    try:
        document = read_toml(path.read_text("utf-8"))
    except ValueError as error:  # of UTF-8, too
        raise FleetFileError(path, [str(error)]) from error
    reader = _Reader(path.parent, fleet)
    file = reader.whole(document)
    if reader.mistakes:
        raise FleetFileError(path, reader.mistakes)
    return file


class _Reader:
    def __init__(self, folder: Path, fleet: str) -> None:
        self._folder, self._fleet = folder, fleet
        self.mistakes: list[str] = []
        self._files: dict[str, bytes] = {}
        self._lookups: dict[str, Path] = {}

    def whole(self, document: dict[str, Any]) -> FleetFile:
        self._known("", document, "")
        if document.get("fleet", self._fleet) != self._fleet:
            self.mistakes.append(f"fleet: {document['fleet']!r}, but the keys are those of fleet {self._fleet!r}")
        rings = [self._ring(row, f"ring[{i}]") for i, row in enumerate(self._rows(document, "ring"))]
        groups = tuple(self._group(row, f"group[{i}]") for i, row in enumerate(self._rows(document, "group")))
        if not groups:
            self.mistakes.append("group: expects at least one [[group]]")
        operators = self._operators(document)
        self._reloaded(document, groups)
        file = FleetFile(groups, tuple(rings), self._gates(document), self._files, operators, self._lookups)
        if not self.mistakes:
            try:  # the reader of agents has the last word
                read_desired(canonical({**_document(file), "fleet": self._fleet, "serial": 1}), self._fleet)
            except (TypeError, ValueError) as error:
                self.mistakes.append(str(error))
        return file

    def _reloaded(self, document: dict[str, Any], groups: tuple[dict[str, Any], ...]) -> None:
        """Of lookups that come by their channel, which no longer counts for a group that names them."""
        names, mistakes = of_document(document)
        self.mistakes += mistakes
        for i, group in enumerate(groups):
            for name in names & group["lookups"].keys():
                self.mistakes.append(f"group[{i}].lookups.{name}: [[lookup]] reloads it: it has to be one of the two")

    def _known(self, kind: str, row: dict[str, Any], where: str) -> None:
        for key in row.keys() - {*KEYS[kind]}:
            self.mistakes.append(f"{where}{key}: unknown key; known: {', '.join(KEYS[kind])}")

    def _rows(self, document: dict[str, Any], key: str) -> list[dict[str, Any]]:
        rows = document.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            self.mistakes.append(f"{key}: expects [[{key}]] tables")
            return []
        return rows

    def _gates(self, document: dict[str, Any]) -> Mapping[str, float | bool]:
        try:
            return read_limits(self._table(document, "gates", "fleet"))
        except ValueError as error:
            self.mistakes += [f"gates.{line}" for line in str(error).splitlines()]
            return {}

    def _operators(self, document: dict[str, Any]) -> tuple[Operator, ...]:
        operators: dict[str, Operator] = {}
        for i, row in enumerate(self._rows(document, "operator")):
            expires = row.get("expires")
            if isinstance(expires, datetime) and expires.tzinfo is not None:
                row = {**row, "expires": rfc3339(micros(expires))}
            try:
                operator = read_operator(row, f"operator[{i}]")
                if operator.name in operators:
                    raise ValueError(f"operator[{i}]: the name {operator.name!r} is used twice")
                operators[operator.name] = operator
            except ValueError as error:
                self.mistakes.append(str(error))
        if len(operators) > MAX_OPERATORS:
            self.mistakes.append(f"operator: {len(operators)}, at most {MAX_OPERATORS}")
        return tuple(operators.values())

    def _ring(self, row: dict[str, Any], where: str) -> dict[str, Any]:
        self._known("ring", row, f"{where}.")
        soak = row.get("soak")
        if not isinstance(soak, str):
            return row
        try:
            return {**row, "soak": seconds(soak)}
        except ValueError as error:
            self.mistakes.append(f"{where}.soak: {error}")
            return row

    def _group(self, row: dict[str, Any], where: str) -> dict[str, Any]:
        self._known("group", row, f"{where}.")
        lookups, bundles = (self._table(row, key, where) for key in ("lookups", "bundles"))
        windows = self._windows(row.get("windows", []), where)
        group: dict[str, Any] = {
            "name": row.get("name"), "match": row.get("match", "all"), "windows": windows, "bundles": {}, "lookups": {},
            "config": None, "release": None,
        }  # fmt: skip
        if (path := row.get("bundle")) is not None:
            group["bundles"][DEFAULT_SET] = self._file(path, f"{where}.bundle", self._bundle)
        for name, path in bundles.items():
            group["bundles"][name] = self._file(path, f"{where}.bundles.{name}", self._bundle)
        for name, path in lookups.items():
            group["lookups"][name] = self._lookup(name, path, f"{where}.lookups.{name}")
        if (path := row.get("config")) is not None:
            group["config"] = self._file(path, f"{where}.config", self._overlay)
        if (path := row.get("release")) is not None:
            group["release"] = self._release(path, f"{where}.release")
        return group

    def _table(self, row: dict[str, Any], key: str, where: str) -> dict[str, Any]:
        value = row.get(key, {})
        if isinstance(value, dict):
            return value
        self.mistakes.append(f"{where}.{key}: expects a table of paths by name")
        return {}

    def _file(self, path: object, where: str, version: Callable[[bytes], int]) -> Target | None:
        """The target that a file becomes; its version as ``version`` finds it."""
        place = self._path(path, where)
        if place is None:
            return None
        try:
            data = place.read_bytes()
            return self._target(place, data, version(data))
        except (OSError, ValueError) as error:
            self.mistakes += [f"{where}: {path}: {line}" for line in str(error).splitlines()]
            return None

    def _lookup(self, name: str, path: object, where: str) -> Target | None:
        """The target is what is signed before the file; every block of the file is looked at."""
        place = self._path(path, where)
        if place is None:
            return None
        try:
            with place.open("rb") as source:
                head = head_of(source)
            signed = verify(place, None)
            if signed.name != name:
                raise ValueError(f"it is lookup {signed.name}, not {name}")
            if signed.fleet != self._fleet:
                whose = f"fleet {signed.fleet}" if signed.fleet else "no fleet"
                raise ValueError(f"signed for {whose}: vedette lookup sign --fleet {self._fleet}")
        except (OSError, ValueError) as error:
            self.mistakes += [f"{where}: {path}: {line}" for line in str(error).splitlines()]
            return None
        target = self._target(place, head, signed.created)
        self._lookups[target.sha256] = place
        return target

    def _release(self, paths: object, where: str) -> Target | None:
        """The target is the description of the zips, which come in pieces."""
        listed = paths if isinstance(paths, list) and paths else [paths]
        places = [self._path(path, where) for path in listed]
        try:
            described = fleetreleases.describe([place for place in places if place is not None])
        except (OSError, ValueError) as error:
            self.mistakes += [f"{where}: {line}" for line in str(error).splitlines()]
            return None
        if None in places:
            return None
        self._files.update(described.pieces)
        path = self._folder / "releases" / f"{described.release.version}.json"
        return self._target(path, described.release.to_bytes(), described.number)

    def _windows(self, rows: object, where: str) -> list[Any]:
        if not isinstance(rows, list):
            self.mistakes.append(f"{where}.windows: expects a list of tables")
            return []
        for i, window in enumerate(rows):
            if isinstance(window, dict):
                for key in window.keys() - {*KEYS["window"]}:
                    self.mistakes.append(f"{where}.windows[{i}].{key}: unknown key; known: {', '.join(KEYS['window'])}")
        return rows

    def _path(self, path: object, where: str) -> Path | None:
        below = PurePosixPath(path.lstrip("/")).as_posix() if isinstance(path, str) else ""
        if not re.fullmatch(r"[A-Za-z0-9._/-]{1,200}", below) or not is_path(below):
            self.mistakes.append(
                f"{where}: expects a path below the file's folder, without '..' and blanks, not {path!r}"
            )
            return None
        return self._folder / below

    def _target(self, path: Path, data: bytes, version: int) -> Target:
        sha256 = hashlib.sha256(data).hexdigest()
        name = f"{sha256[:16]}/{path.relative_to(self._folder)}"
        self._files[name] = data
        return Target(name, sha256, version)

    def _bundle(self, data: bytes) -> int:
        bundle = inspect(data)
        if bundle.fleet != self._fleet:
            whose = f"fleet {bundle.fleet}" if bundle.fleet else "no fleet"
            raise BundleRefused(f"signed for {whose}: vedette bundle sign --fleet {self._fleet}")
        return bundle.version

    def _overlay(self, data: bytes) -> int:
        if len(data) > MAX_OVERLAY:
            raise ValueError(f"{len(data)} bytes, at most {MAX_OVERLAY}")
        check(read_toml(data.decode("utf-8")))
        return 0


def _document(file: FleetFile) -> dict[str, Any]:
    """As ``documents.py`` has it, with made-up ids: to have it checked."""

    def row(target: Target | None) -> Any:
        return target and to_builtins(Change("x", target))

    return {
        "format": 1,
        "created": "",
        "groups": [
            {**group, "config": row(group["config"]), "release": row(group["release"]),
             "bundles": {name: row(target) for name, target in group["bundles"].items()},
             "lookups": {name: row(target) for name, target in group["lookups"].items()}}
            for group in file.groups
        ],
        "rings": file.rings,
        "gates": file.gates,
    }  # fmt: skip


def next_operators(file: FleetFile, fleet: str, before: Operators | None) -> Operators | None:
    """Who may ask from now on; None: nothing differs."""
    serial = 1 if before is None else before.serial + 1
    after = Operators(fleet, serial, {operator.name: operator for operator in file.operators})
    if after.same(before) or (before is None and not file.operators):
        return None
    return after


def next_desired(
    file: FleetFile, fleet: str, before: Desired | None, rollout: Rollout | None, now: int, *, retry: bool = False
) -> Desired | None:
    """The document that follows ``before`` (``rollout``: how far its changes have come); None: nothing differs.
    ``now``: UTC microseconds. ``retry``: changes that were aborted begin again."""
    serial = 1 if before is None else before.serial + 1
    former = {group.name: group for group in before.groups} if before else {}
    reached = {} if rollout is None else rollout.changes
    rings = before.rings if before else ()

    def settled(change: Change) -> Target | None:
        """What agents run of a change when another follows it."""
        progress = reached.get(change.id, Progress(State.DONE) if not rings else None)
        return change.to if progress is not None and progress.state is State.DONE else change.from_

    def change(group: str, kind: str, name: str, target: Target | None, old: Change | None) -> Change | None:
        again = retry and old is not None and old.id in reached and reached[old.id].state is State.ABORTED
        if old is not None and old.to == target and not again:
            return None if target is None and settled(old) is None else old
        origin = None if old is None else settled(old)
        if target is None and origin is None:
            return None
        return Change(change_id(fleet, serial, group, kind, name), target, origin)

    groups = []
    for row in file.groups:
        name, old = row["name"], former.get(row["name"])
        named: dict[str, dict[str, Change]] = {}
        for kind in ("bundles", "lookups"):
            olds: Mapping[str, Change] = {} if old is None else getattr(old, kind)
            every = dict.fromkeys([*row[kind], *(olds if kind == "lookups" else ())])
            changes = {part: change(name, kind, part, row[kind].get(part), olds.get(part)) for part in every}
            named[kind] = {part: new for part, new in changes.items() if new is not None}
        single = {
            kind: change(name, kind, "", row[kind], None if old is None else getattr(old, kind))
            for kind in ("config", "release")
        }
        if row["release"] is None:
            single["release"] = None  # an agent is not taken back to having no release
        groups.append({**named, **single})
    checked = read_desired(
        canonical({**_document(file), "fleet": fleet, "serial": serial, "created": rfc3339(now)}), fleet
    )
    built = tuple(replace(group, **changes) for group, changes in zip(checked.groups, groups, strict=True))
    after = Desired(fleet, serial, checked.created, built, checked.rings, checked.gates)
    if before is not None and replace(before, serial=serial, created=checked.created) == after:
        return None
    return after
