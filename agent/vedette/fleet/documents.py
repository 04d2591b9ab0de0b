"""The two documents that steer a fleet, and what they mean for one agent. Pure: bytes and values in, values out.

**Desired document** (target ``desired.json``, signed by the operators' threshold of ``targets`` keys)::

    {"format": 1, "fleet": F, "serial": int, "created": RFC 3339,
     "groups": [{"name", "match": label expression, "bundles": {set: CHANGE}, "config": CHANGE|null,
                 "lookups": {name: CHANGE}, "release": CHANGE|null, "windows": [WINDOW]}],
     "rings": [{"name", "agents": 5 | "percent": 10, "soak": seconds}], "gates": {name: number | true | false}}

    CHANGE = {"id", "to": TARGET|null, "from": TARGET|null}     null: none; a bundle or release is then left as it is
    TARGET = {"target": path among the targets, "sha256", "version": int}
    WINDOW = {"days": ["mon", …], "start": "22:00", "end": "04:00", "timezone": "Europe/Vienna", "for": ["release"]}

An end before the start is past midnight; a window without "timezone" is in UTC. What no window of the group is "for"
(by default they are for releases alone) comes at any time.

The first group whose expression matches an agent's labels is its group. An agent in no group is left as it is.

**Roll-out document** (target ``rollout.json``, signed by the controller's online key)::

    {"format": 1, "fleet": F, "serial": int,
     "changes": {change id: {"state": "rolling|paused|done|aborted", "ring": n, "extra": [agent ids]}}}

An agent runs ``to`` of a change that is ``done``, or that is ``rolling`` or ``paused`` while the agent lies in a ring
up to ``ring``; otherwise ``from``. A fleet without rings needs no roll-out document: what is not named there is done.
Where an agent lies follows from ``place``, a number from 0 to 1: a ring of ``percent`` p holds those below p / 100, a
ring of ``agents`` those that ``extra`` names. So a roll-out document can only choose between states that the
operators have signed.

The serial of the desired document only rises, that of the roll-out document while the desired one stays the same. A
document of another fleet is refused. Every document has one form as bytes (``to_bytes``).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from vedette.fleet.labels import Expression
from vedette.fleet.labels import parse as parse_labels
from vedette.system import foreign
from vedette.system.within import is_name, is_path

FORMAT = 1
DESIRED, ROLLOUT = "desired.json", "rollout.json"
"""The names of the two targets."""
MAX_DOCUMENT = 4 << 20
"""Bytes of a document."""
MAX_GROUPS, MAX_RINGS, MAX_PARTS, MAX_EXTRA = 1000, 16, 64, 1000
"""Groups and rings of a document, bundles or lookups of a group, agents that a change names."""
KINDS = ("bundles", "lookups", "config", "release")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_PATH = re.compile(r"[A-Za-z0-9._/-]{1,256}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")

T = TypeVar("T")


class DocumentRefused(ValueError):
    """Not a document that an agent of this fleet can follow; the text says why."""


class State(StrEnum):
    ROLLING = "rolling"
    PAUSED = "paused"
    DONE = "done"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Target:
    """A signed file: its path among the targets, its SHA-256, its version."""

    target: str
    sha256: str
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """From one target to another; None: nothing of that kind."""

    id: str
    to: Target | None
    from_: Target | None = None

    @property
    def stays(self) -> bool:
        """Nothing moves: what was desired meanwhile was aborted, and what ran before is desired again."""
        return self.to == self.from_


@dataclass(frozen=True, slots=True)
class Window:
    """When something may change: on ``days``, from ``start`` to ``end`` minutes after midnight in ``timezone``, by the
    clock on the wall there: an hour that is skipped has no window, one that is repeated has it twice."""

    days: tuple[str, ...]
    start: int
    end: int
    timezone: str = "UTC"
    kinds: tuple[str, ...] = ("release",)
    """Of KINDS: what it is for."""

    def holds(self, now: int) -> bool:
        """At ``now``, UTC microseconds."""
        moment = datetime.fromtimestamp(now / 1e6, ZoneInfo(self.timezone))
        minute = moment.hour * 60 + moment.minute
        if self.start < self.end:
            return DAYS[moment.weekday()] in self.days and self.start <= minute < self.end
        if minute >= self.start:
            return DAYS[moment.weekday()] in self.days
        return minute < self.end and DAYS[(moment - timedelta(days=1)).weekday()] in self.days


def may(windows: Iterable[Window], kind: str, now: int) -> bool:
    """Whether what is of ``kind`` may change at ``now``, UTC microseconds."""
    mine = [window for window in windows if kind in window.kinds]
    return not mine or any(window.holds(now) for window in mine)


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    match: str
    expression: Expression = field(compare=False)
    bundles: Mapping[str, Change] = field(default_factory=dict)
    config: Change | None = None
    lookups: Mapping[str, Change] = field(default_factory=dict)
    release: Change | None = None
    windows: tuple[Window, ...] = ()

    def changes(self) -> Iterator[tuple[str, str, Change]]:
        """Kind ("bundles", "config", "lookups" or "release"), name ("" where there is one only) and change."""
        for kind, named in (("bundles", self.bundles), ("lookups", self.lookups)):
            for name, change in named.items():
                yield kind, name, change
        for kind, one in (("config", self.config), ("release", self.release)):
            if one is not None:
                yield kind, "", one


@dataclass(frozen=True, slots=True)
class Ring:
    """``agents``: so many, whom the controller names; ``percent``: of all. ``soak``: seconds before the next ring."""

    name: str
    soak: float
    agents: int | None = None
    percent: float | None = None


@dataclass(frozen=True, slots=True)
class Desired:
    fleet: str
    serial: int
    created: str
    groups: tuple[Group, ...] = ()
    rings: tuple[Ring, ...] = ()
    gates: Mapping[str, float | bool] = field(default_factory=dict)

    def group(self, labels: Mapping[str, str]) -> Group | None:
        """The first one whose expression matches."""
        return next((group for group in self.groups if group.expression.matches(labels)), None)

    def to_bytes(self) -> bytes:
        rings = [
            {"name": ring.name, "soak": float(ring.soak),
             **({"agents": ring.agents} if ring.percent is None else {"percent": float(ring.percent)})}
            for ring in self.rings
        ]  # fmt: skip
        groups, gates = [_group_row(group) for group in self.groups], dict(self.gates)
        return written(self.fleet, self.serial, created=self.created, groups=groups, rings=rings, gates=gates)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a change has come: up to the ring of index ``ring``; ``extra``: agents that have it beside those."""

    state: State
    ring: int = 0
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rollout:
    fleet: str
    serial: int
    changes: Mapping[str, Progress] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        rows = {
            id: {"state": str(one.state), "ring": one.ring, "extra": [*one.extra]} for id, one in self.changes.items()
        }
        return written(self.fleet, self.serial, changes=rows)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an agent shall run. A bundle or a release that is absent or None is left as it is; a lookup is taken away
    then, if it came by the documents."""

    group: str
    bundles: Mapping[str, Target | None]
    lookups: Mapping[str, Target | None]
    config: Target | None
    """None: the local configuration as it is."""
    release: Target | None
    windows: tuple[Window, ...]
    release_change: str = ""
    """The id of the change that ``release`` follows from."""
    urgent: frozenset[Target | None] = frozenset()
    """What changes that were aborted go back to: this waits for no window."""


def canonical(document: object) -> bytes:
    """The one form as bytes: keys sorted, no blanks, ASCII, a newline at the end."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def written(fleet: str, serial: int, **parts: object) -> bytes:
    """A document of a fleet; ``opened`` reads it."""
    return canonical({"format": FORMAT, "fleet": fleet, "serial": serial, **parts})


def change_id(fleet: str, serial: int, group: str, kind: str, name: str) -> str:
    """The id of a change that the desired document ``serial`` begins."""
    return hashlib.sha256(canonical([fleet, serial, group, kind, name])).hexdigest()[:16]


def place(change: str, agent_id: str) -> float:
    """From 0 to 1: where an agent lies in the rings of a change."""
    return int.from_bytes(hashlib.sha256(f"{change}\0{agent_id}".encode()).digest()[:8], "big") / 2**64


def included(change: str, agent_id: str, rings: tuple[Ring, ...], progress: Progress | None) -> bool:
    """Whether the agent runs ``to`` of the change."""
    if progress is None:
        return not rings
    if progress.state is State.DONE:
        return True
    if progress.state is State.ABORTED:
        return False
    reached = max((ring.percent for ring in rings[: progress.ring + 1] if ring.percent is not None), default=0.0)
    return agent_id in progress.extra or place(change, agent_id) < reached / 100


def wanted(desired: Desired, rollout: Rollout | None, agent_id: str, labels: Mapping[str, str]) -> Wanted | None:
    """What the documents want of an agent; None: it is in no group."""
    group = desired.group(labels)
    if group is None:
        return None
    known = {} if rollout is None else rollout.changes
    aborted = (
        change.from_
        for _, _, change in group.changes()
        if (one := known.get(change.id)) is not None and one.state is State.ABORTED
    )

    def chosen(change: Change | None) -> Target | None:
        if change is None:
            return None
        took = included(change.id, agent_id, desired.rings, known.get(change.id))
        return change.to if took else change.from_

    return Wanted(
        group.name,
        {name: chosen(change) for name, change in group.bundles.items()},
        {name: chosen(change) for name, change in group.lookups.items()},
        chosen(group.config),
        chosen(group.release),
        group.windows,
        group.release.id if group.release else "",
        frozenset(aborted),
    )


# --- reading


def read_desired(data: bytes, fleet: str) -> Desired:
    """Raises DocumentRefused."""
    document = opened(data, fleet)
    return Desired(
        fleet,
        serial_of(document),
        _text(document, "created"),
        tuple(each(document, "groups", MAX_GROUPS, _group)),
        tuple(each(document, "rings", MAX_RINGS, _ring)),
        _gates(document.get("gates", {})),
    )


def read_rollout(data: bytes, fleet: str) -> Rollout:
    """Raises DocumentRefused."""
    document = opened(data, fleet)
    changes = document.get("changes")
    if not isinstance(changes, dict):
        raise DocumentRefused("changes: expects an object")
    return Rollout(fleet, serial_of(document), {id: _progress(row, f"changes.{id}") for id, row in changes.items()})


def opened(data: bytes, fleet: str, most: int = MAX_DOCUMENT) -> dict[str, Any]:
    """A document of this fleet and format, of ``most`` bytes. Raises DocumentRefused."""
    if len(data) > most:
        raise DocumentRefused(f"{len(data)} bytes, at most {most}")
    try:
        document = foreign.read(data)
    except ValueError as error:
        raise DocumentRefused(str(error)) from error
    if not isinstance(document, dict):
        raise DocumentRefused("expects a JSON object")
    if document.get("format") != FORMAT:
        raise DocumentRefused(f"format {document.get('format')!r}: this agent knows {FORMAT}: upgrade the agent")
    if document.get("fleet") != fleet:
        raise DocumentRefused(f"it is for fleet {document.get('fleet')!r}, this is fleet {fleet!r}")
    return document


def serial_of(document: dict[str, Any]) -> int:
    """Raises DocumentRefused."""
    serial = document.get("serial")
    if type(serial) is not int or not 0 < serial < 2**53:
        raise DocumentRefused(f"serial: expects a number above 0, not {serial!r}")
    return serial


def _text(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise DocumentRefused(f"{key}: expects a text, not {value!r}")
    return value


def each(document: dict[str, Any], key: str, limit: int, read: Callable[[dict[str, Any], str], T]) -> Iterator[T]:
    """The rows under ``key``, of which no two have the same name. Raises DocumentRefused."""
    rows = document.get(key, [])
    if not isinstance(rows, list) or len(rows) > limit:
        raise DocumentRefused(f"{key}: expects a list of at most {limit}")
    seen: set[str] = set()
    for i, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DocumentRefused(f"{key}[{i}]: expects an object")
        made, name = read(row, f"{key}[{i}]"), row.get("name")
        if isinstance(name, str):  # a window has none
            if name in seen:
                raise DocumentRefused(f"{key}[{i}]: the name {name!r} is used twice")
            seen.add(name)
        yield made


def _name(row: dict[str, Any], where: str) -> str:
    name = row.get("name")
    if not is_name(name):
        raise DocumentRefused(f"{where}.name: expects letters, digits, '.', '_' or '-', not {name!r}")
    return name


def _group(row: dict[str, Any], where: str) -> Group:
    name, match = _name(row, where), row.get("match")
    if not isinstance(match, str):
        raise DocumentRefused(f"{where}.match: expects a label expression, not {match!r}")
    try:
        expression = parse_labels(match)
    except ValueError as error:
        raise DocumentRefused(f"{where}.match: {error}") from error
    named = {}
    for kind in ("bundles", "lookups"):
        rows = row.get(kind, {})
        if not isinstance(rows, dict) or len(rows) > MAX_PARTS or not all(map(is_name, rows)):
            raise DocumentRefused(f"{where}.{kind}: expects an object of at most {MAX_PARTS} changes by name")
        named[kind] = {key: _change(one, f"{where}.{kind}.{key}") for key, one in rows.items()}
    single = {
        kind: None if row.get(kind) is None else _change(row[kind], f"{where}.{kind}") for kind in ("config", "release")
    }
    windows = tuple(each({"windows": row.get("windows", [])}, "windows", 64, _window_row))
    return Group(
        name, match, expression, named["bundles"], single["config"], named["lookups"], single["release"], windows
    )


def _window_row(row: dict[str, Any], where: str) -> Window:
    days = row.get("days", [*DAYS])
    if not isinstance(days, list) or not days or not all(day in DAYS for day in days):
        raise DocumentRefused(f"{where}.days: expects some of {', '.join(DAYS)}, not {days!r}")
    zone, kinds = row.get("timezone", "UTC"), row.get("for", ["release"])
    try:
        ZoneInfo(zone)
    except (ValueError, TypeError, AttributeError, OSError, ZoneInfoNotFoundError):
        raise DocumentRefused(f"{where}.timezone: expects one such as Europe/Vienna, not {zone!r}") from None
    if not isinstance(kinds, list) or not kinds or not all(kind in KINDS for kind in kinds):
        raise DocumentRefused(f"{where}.for: expects some of {', '.join(KINDS)}, not {kinds!r}")
    start, end = (_minute(row.get(key), f"{where}.{key}") for key in ("start", "end"))
    if start == end:
        raise DocumentRefused(f"{where}: start and end are the same: for whole days give 00:00 and 23:59")
    return Window(tuple(days), start, end, zone, tuple(kinds))


def _minute(value: object, where: str) -> int:
    match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise DocumentRefused(f'{where}: expects a time such as "22:00", not {value!r}')
    return int(match[1]) * 60 + int(match[2])


def _change(row: object, where: str) -> Change:
    if not isinstance(row, dict):
        raise DocumentRefused(f"{where}: expects an object")
    id = row.get("id")
    if not is_name(id):
        raise DocumentRefused(f"{where}.id: expects letters, digits, '.', '_' or '-', not {id!r}")
    return Change(id, _target(row.get("to"), f"{where}.to"), _target(row.get("from"), f"{where}.from"))


def _target(row: object, where: str) -> Target | None:
    if row is None:
        return None
    if not isinstance(row, dict):
        raise DocumentRefused(f"{where}: expects an object or null")
    path, sha256, version = row.get("target"), row.get("sha256"), row.get("version")
    if not isinstance(path, str) or not _PATH.fullmatch(path) or not is_path(path):
        raise DocumentRefused(f"{where}.target: expects a path without '..', not {path!r}")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise DocumentRefused(f"{where}.sha256: expects 64 lower-case hex digits, not {sha256!r}")
    if type(version) is not int or version < 0:
        raise DocumentRefused(f"{where}.version: expects a number, not {version!r}")
    return Target(path, sha256, version)


def _ring(row: dict[str, Any], where: str) -> Ring:
    name, soak, agents, percent = _name(row, where), row.get("soak", 0), row.get("agents"), row.get("percent")
    if not _number(soak) or not 0 <= soak <= 366 * 86400:
        raise DocumentRefused(f"{where}.soak: expects seconds, not {soak!r}")
    if (agents is None) == (percent is None):
        raise DocumentRefused(f"{where}: expects either agents or percent")
    if agents is not None and (type(agents) is not int or not 0 < agents <= MAX_EXTRA):
        raise DocumentRefused(f"{where}.agents: expects 1 to {MAX_EXTRA}, not {agents!r}")
    if percent is not None and (not _number(percent) or not 0 < percent <= 100):
        raise DocumentRefused(f"{where}.percent: expects a number above 0, up to 100, not {percent!r}")
    return Ring(name, float(soak), agents, None if percent is None else float(percent))


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _gates(row: object) -> dict[str, float | bool]:
    if not isinstance(row, dict) or len(row) > MAX_PARTS:
        raise DocumentRefused(f"gates: expects an object of at most {MAX_PARTS}")
    for name, value in row.items():
        if not is_name(name) or not isinstance(value, int | float):
            raise DocumentRefused(f"gates.{name}: expects a number, true or false, not {value!r}")
    return row


def _progress(row: object, where: str) -> Progress:
    if not isinstance(row, dict):
        raise DocumentRefused(f"{where}: expects an object")
    state, ring, extra = row.get("state"), row.get("ring", 0), row.get("extra", [])
    if state not in [*State]:
        raise DocumentRefused(f"{where}.state: expects one of {', '.join(State)}, not {state!r}")
    if type(ring) is not int or not 0 <= ring < MAX_RINGS:
        raise DocumentRefused(f"{where}.ring: expects 0 to {MAX_RINGS - 1}, not {ring!r}")
    if not isinstance(extra, list) or len(extra) > MAX_EXTRA or not all(isinstance(id, str) for id in extra):
        raise DocumentRefused(f"{where}.extra: expects a list of at most {MAX_EXTRA} agent ids")
    return Progress(State(str(state)), ring, tuple(extra))


# --- writing


def _group_row(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "match": group.match,
        "bundles": {name: _change_row(change) for name, change in group.bundles.items()},
        "config": group.config and _change_row(group.config),
        "lookups": {name: _change_row(change) for name, change in group.lookups.items()},
        "release": group.release and _change_row(group.release),
        "windows": [
            {"days": [*one.days], "start": f"{one.start // 60:02}:{one.start % 60:02}",
             "end": f"{one.end // 60:02}:{one.end % 60:02}", "timezone": one.timezone, "for": [*one.kinds]}
            for one in group.windows
        ],
    }  # fmt: skip


def _change_row(change: Change) -> dict[str, Any]:
    return {"id": change.id, "to": _target_row(change.to), "from": _target_row(change.from_)}


def _target_row(target: Target | None) -> dict[str, Any] | None:
    if target is None:
        return None
    return {"target": target.target, "sha256": target.sha256, "version": target.version}
