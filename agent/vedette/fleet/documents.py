"""Two of the three documents that steer a fleet (the third: ``operators.py``), and what they mean for one agent. Pure:
bytes and values in, values out.

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta, Struct, field, to_builtins

from vedette.fleet.labels import Expression
from vedette.fleet.labels import parse as parse_labels
from vedette.system import documents
from vedette.system.documents import Misfit, Name, Serial, Sha256, read, unique
from vedette.system.within import is_path

FORMAT = 1
DESIRED, ROLLOUT = "desired.json", "rollout.json"
"""The names of the two targets."""
MAX_DOCUMENT = 4 << 20
"""Bytes of a document."""
MAX_GROUPS, MAX_RINGS, MAX_PARTS, MAX_EXTRA = 1000, 16, 64, 1000
"""Groups and rings of a document, bundles or lookups of a group, agents that a change names."""
MAX_SOAK = 366 * 86400
"""Seconds."""
_Kind = Literal["bundles", "lookups", "config", "release"]
_Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
KINDS, DAYS = get_args(_Kind), get_args(_Day)
_Clock = Annotated[str, Meta(pattern=r"\A([01][0-9]|2[0-3]):[0-5][0-9]\Z", description='a time such as "22:00"')]


class DocumentRefused(ValueError):
    """Not a document that an agent of this fleet can follow; the text says why."""


class State(StrEnum):
    ROLLING = "rolling"
    PAUSED = "paused"
    DONE = "done"
    ABORTED = "aborted"


class Target(Struct, frozen=True):
    """A signed file: its path among the targets, its SHA-256, its version."""

    target: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9._/-]{1,256}\Z", description="a path without '..'")]
    sha256: Sha256
    version: Annotated[int, Meta(ge=0, description="a number")]

    def __post_init__(self) -> None:
        if not is_path(self.target):
            raise Misfit("target", f"expects a path without '..', not {self.target!r}")


class Change(Struct, frozen=True):
    """From one target to another; None: nothing of that kind."""

    id: Name
    to: Target | None = None
    from_: Target | None = field(default=None, name="from")

    @property
    def stays(self) -> bool:
        """Nothing moves: what was desired meanwhile was aborted, and what ran before is desired again."""
        return self.to == self.from_


class Window(Struct, frozen=True):
    """When something may change: on ``days``, from ``start`` to ``end``, ``HH:MM``, in ``timezone``, by the clock on
    the wall there: an hour that is skipped has no window, one that is repeated has it twice."""

    start: _Clock
    end: _Clock
    days: Annotated[tuple[_Day, ...], Meta(min_length=1, description=f"some of {', '.join(DAYS)}")] = DAYS
    timezone: str = "UTC"
    kinds: Annotated[tuple[_Kind, ...], Meta(min_length=1, description=f"some of {', '.join(KINDS)}")] = field(
        default=("release",), name="for"
    )
    """What it is for."""

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise ValueError("start and end are the same: for whole days give 00:00 and 23:59")
        try:
            ZoneInfo(self.timezone)
        except (ValueError, OSError, ZoneInfoNotFoundError):
            raise Misfit("timezone", f"expects one such as Europe/Vienna, not {self.timezone!r}") from None

    def holds(self, now: int) -> bool:
        """At ``now``, UTC microseconds."""
        moment = datetime.fromtimestamp(now / 1e6, ZoneInfo(self.timezone))
        clock = f"{moment:%H:%M}"
        if self.start < self.end:
            return DAYS[moment.weekday()] in self.days and self.start <= clock < self.end
        if clock >= self.start:
            return DAYS[moment.weekday()] in self.days
        return clock < self.end and DAYS[(moment - timedelta(days=1)).weekday()] in self.days


def may(windows: Iterable[Window], kind: str, now: int) -> bool:
    """Whether what is of ``kind`` may change at ``now``, UTC microseconds."""
    mine = [window for window in windows if kind in window.kinds]
    return not mine or any(window.holds(now) for window in mine)


_Changes = Annotated[
    Mapping[Name, Change], Meta(max_length=MAX_PARTS, description=f"an object of at most {MAX_PARTS} changes by name")
]


class Group(Struct, frozen=True):
    name: Name
    match: Annotated[str, Meta(description="a label expression")]
    bundles: _Changes = {}
    config: Change | None = None
    lookups: _Changes = {}
    release: Change | None = None
    windows: Annotated[tuple[Window, ...], Meta(max_length=64, description="a list of at most 64")] = ()

    def __post_init__(self) -> None:
        try:
            _expression(self.match)
        except ValueError as error:
            raise Misfit("match", str(error)) from error

    @property
    def expression(self) -> Expression:
        return _expression(self.match)

    def changes(self) -> Iterator[tuple[str, str, Change]]:
        """Kind ("bundles", "config", "lookups" or "release"), name ("" where there is one only) and change."""
        for kind, named in (("bundles", self.bundles), ("lookups", self.lookups)):
            for name, change in named.items():
                yield kind, name, change
        for kind, single in (("config", self.config), ("release", self.release)):
            if single is not None:
                yield kind, "", single


_expression = lru_cache(maxsize=2 * MAX_GROUPS)(parse_labels)


class Ring(Struct, frozen=True):
    """``agents``: so many, whom the controller names; ``percent``: of all. ``soak``: seconds before the next ring."""

    name: Name
    soak: Annotated[float, Meta(ge=0, le=MAX_SOAK, description="seconds")] = 0.0
    agents: Annotated[int, Meta(gt=0, le=MAX_EXTRA, description=f"1 to {MAX_EXTRA}")] | None = None
    percent: Annotated[float, Meta(gt=0, le=100, description="a number above 0, up to 100")] | None = None

    def __post_init__(self) -> None:
        if (self.agents is None) == (self.percent is None):
            raise ValueError("expects either agents or percent")


class Desired(Struct, frozen=True):
    fleet: str
    serial: Serial
    created: str
    groups: Annotated[
        tuple[Group, ...], Meta(max_length=MAX_GROUPS, description=f"a list of at most {MAX_GROUPS}")
    ] = ()
    rings: Annotated[tuple[Ring, ...], Meta(max_length=MAX_RINGS, description=f"a list of at most {MAX_RINGS}")] = ()
    gates: Annotated[
        Mapping[Name, Annotated[bool | int | float, Meta(description="a number, true or false")]],
        Meta(max_length=MAX_PARTS, description=f"an object of at most {MAX_PARTS}"),
    ] = {}

    def __post_init__(self) -> None:
        unique((group.name for group in self.groups), "groups")
        unique((ring.name for ring in self.rings), "rings")

    def group(self, labels: Mapping[str, str]) -> Group | None:
        """The first one whose expression matches."""
        return next((group for group in self.groups if group.expression.matches(labels)), None)

    def to_bytes(self) -> bytes:
        rings = [
            {"name": ring.name, "soak": float(ring.soak),
             **({"agents": ring.agents} if ring.percent is None else {"percent": float(ring.percent)})}
            for ring in self.rings
        ]  # fmt: skip
        return written(**{**to_builtins(self), "rings": rings})


class Progress(Struct, frozen=True):
    """How far a change has come: up to the ring of index ``ring``; ``extra``: agents that have it beside those."""

    state: State
    ring: Annotated[int, Meta(ge=0, lt=MAX_RINGS, description=f"0 to {MAX_RINGS - 1}")] = 0
    extra: Annotated[
        tuple[str, ...], Meta(max_length=MAX_EXTRA, description=f"a list of at most {MAX_EXTRA} agent ids")
    ] = ()


class Rollout(Struct, frozen=True):
    fleet: str
    serial: Serial
    changes: Mapping[str, Progress]

    def to_bytes(self) -> bytes:
        return written(**to_builtins(self))


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


def written(**fields: object) -> bytes:
    """A document of a fleet, of its ``fleet``, ``serial`` and further fields; ``opened`` reads it."""
    return canonical({"format": FORMAT, **fields})


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
    reached = {} if rollout is None else rollout.changes
    stopped = {id for id, progress in reached.items() if progress.state is State.ABORTED}
    aborted = (change.from_ for _, _, change in group.changes() if change.id in stopped)

    def chosen(change: Change | None) -> Target | None:
        if change is None:
            return None
        took = included(change.id, agent_id, desired.rings, reached.get(change.id))
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


def read_desired(data: bytes, fleet: str) -> Desired:
    """Raises DocumentRefused."""
    return read(Desired, opened(data, fleet), refused=DocumentRefused)


def read_rollout(data: bytes, fleet: str) -> Rollout:
    """Raises DocumentRefused."""
    return read(Rollout, opened(data, fleet), refused=DocumentRefused)


def opened(data: bytes, fleet: str, most: int = MAX_DOCUMENT) -> dict[str, Any]:
    """A document of this fleet and format, of ``most`` bytes. Raises DocumentRefused."""
    try:
        document = documents.opened(data, most, FORMAT)
    except ValueError as error:
        raise DocumentRefused(str(error)) from error
    if document.get("fleet") != fleet:
        raise DocumentRefused(f"it is for fleet {document.get('fleet')!r}, this is fleet {fleet!r}")
    return document
