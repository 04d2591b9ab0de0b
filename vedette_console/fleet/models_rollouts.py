"""What the console says of roll-outs, and proposals for them; see ``shapes``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StringConstraints

from vedette_console.fleet.models_fleet import AgentRow, Controller, Link
from vedette_console.fleet.shapes import Finding, Given, Listed, Model, Name, Reason, RuleFile


class RingState(Model):
    number: int
    of: int
    name: str
    soak: float
    left: float | None = None
    """Seconds of soak left; None: it has not begun."""


class GateState(Model):
    name: str
    with_change: int
    without: int
    reasons: list[str]


class Ring(Model):
    """A ring as ``fleet.toml`` has it; ``state``: "done", "now", "later"."""

    name: str
    agents: int | None = None
    percent: float | None = None
    soak: float
    state: Literal["done", "now", "later"]


class RolloutRow(Model):
    """One change of one group. ``state``: "waiting", "rolling", "paused", "done", "aborted". ``whole`` false: the group
    can have agents at sites that the viewer does not see; then sums are null, gates and reasons empty."""

    change: str
    fleet: str
    group: str
    what: str
    before: str
    after: str
    state: str
    ring: RingState | None = None
    whole: bool = True
    given: int | None
    taken: int | None
    waiting: int | None
    refused: int | None
    away: int | None
    gone: int | None
    back: int | None
    outside: int | None
    gates: list[GateState]
    reasons: list[str]
    may: list[str]
    """Acts that make sense now and that the viewer may do: "pause", "resume", "abort"."""


class Order(Model):
    """What became of an order. ``outcome``: "done: …", "refused: …", "nothing to do: …", "waits": no controller has
    taken it yet; it holds for a day."""

    id: str
    command: str
    change: str
    outcome: str


class Event(Model):
    """A line of the fleet's record about a change or a signature."""

    time: str
    event: str
    facts: dict[str, Any]


class RolloutsPage(Model):
    """``GET /rollouts``."""

    fleet: str
    link: Link
    controller: Controller
    items: list[RolloutRow]
    total: int
    next: str | None = None
    staged: Staged | None = None
    """What waits for signatures."""
    old: bool
    """The figures are what the controller said before it fell silent."""


class RolloutPage(Model):
    """``GET /rollouts/{change}``."""

    row: RolloutRow
    controller: Controller
    link: Link
    rings: list[Ring]
    gates: dict[str, float | bool]
    """All there are, each with its limit, in seconds where it is a time; false: it is off."""
    limits: dict[str, float | bool]
    """When a ring goes on, and what gates have in common."""
    events: list[Event]
    """Newest first, from ``trust/audit.jsonl``, the last 100; none of a group that is not seen whole."""
    agents: list[AgentRow]
    """Of the group, those that run the change first; at most 200."""
    agents_count: int


class Signature(Model):
    role: str
    version: int
    signed: list[str]
    missing: int


class Moved(Model):
    group: str
    what: str
    before: str
    after: str


class Staged(Model):
    """Documents that wait: what they change, who has signed, what to run next."""

    signatures: list[Signature]
    changes: list[Moved]
    commands: list[str]


class Proposal(Given):
    """``POST /rollouts/propose``: rule files laid over the group's present rules, built, signed and desired.

    Either ``rules`` or ``bundle`` (a signed file in the folder of ``fleet.toml``, by its path there)."""

    rules: Annotated[list[RuleFile], Field(max_length=200)] = Field(default_factory=list)
    bundle: Annotated[str, StringConstraints(max_length=200)] = ""
    group: Name
    ruleset: Name = "default"
    reason: Reason
    retry: StrictBool = False
    """Begin changes again that were aborted."""


class Proposed(Model):
    """``state``: "building", "refused" (``problems`` say why), "commands" (run ``commands``: a key lacks here),
    "staged" (signatures lack: ``commands``), "applied" (in force, ``changes`` are on their way)."""

    id: str
    state: Literal["building", "refused", "commands", "staged", "applied"]
    by: str
    reason: str
    created: str
    group: str
    ruleset: str
    version: int | None = None
    base: str = ""
    """What the files were laid over: "the rules' folder …" or "bundle NAME-VERSION"."""
    bundle: str = ""
    """Path below the folder of ``fleet.toml``."""
    problems: list[Finding] = Field(default_factory=list)
    summary: str = ""
    """What the build said: rules, test events, bytes."""
    diff: list[Moved] = Field(default_factory=list)
    changes: list[str] = Field(default_factory=list)
    """Ids of the changes; ``/rollouts/{change}``."""
    commands: list[str] = Field(default_factory=list)
    published: bool = False
    """False when applied: the broker was away; the controller or `vedette fleet apply` announces it."""


class ProposalsList(Listed):
    items: list[Proposed]
