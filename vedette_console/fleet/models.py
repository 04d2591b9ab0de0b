"""Answers about agents, their groups and roll-outs, and proposals for them; rules as callers send them.

Lists are bounded where they are made, and a ``…_count`` or ``total`` says how many there are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictBool, StringConstraints

from vedette.system.within import NAME
from vedette_console.web import Model, Sent

Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
Name = Annotated[str, StringConstraints(pattern=rf"^{NAME}$")]
RuleText = Annotated[str, StringConstraints(min_length=1, max_length=256 << 10)]
_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}"
RequestId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]


class RuleFile(Sent):
    """A rule file of a proposal: ``path`` below the rules' folder (``linux/sshd.yml``), its whole new ``text``, None to
    remove it. ``NAME.test.yml`` beside a rule holds its test events."""

    path: Annotated[str, StringConstraints(pattern=rf"^{_PART}(/{_PART}){{0,7}}$")]
    text: Annotated[str, StringConstraints(max_length=256 << 10)] | None


def _bounded(files: list[RuleFile]) -> list[RuleFile]:
    if sum(len(file.text or "") for file in files) > MAX_TEXTS:
        raise ValueError(f"the files have more than {MAX_TEXTS:,} characters together")
    return files


MAX_TEXTS = 1 << 20
Rules = Annotated[list[RuleFile], Field(min_length=1, max_length=50), AfterValidator(_bounded)]
"""Files that are kept with what is done by them."""


class Finding(Model):
    """``severity``: "error", "warning", "note"; ``line`` and ``column`` from 1, 0: of the whole; ``check``: its name;
    ``hint``: what to write instead."""

    severity: Literal["error", "warning", "note"]
    check: str = ""
    path: str = ""
    line: int = 0
    column: int = 0
    title: str = ""
    message: str
    hint: str = ""


class Link(Model):
    """How the console hears the fleet. ``state``: "none" (no broker is configured), "connecting", "connected",
    "away"; ``reason``: why it is away; ``since``: of this state; ``dropped``: agents beyond what is kept."""

    state: Literal["none", "connecting", "connected", "away"]
    broker: str = ""
    reason: str = ""
    since: str | None = None
    agents: int = 0
    dropped: int = 0


class Controller(Model):
    """``vedette region steer``. ``state``: "reports", "old" (nothing for three minutes), "silent" (never reported),
    "unknown" (the broker is away and nothing was heard)."""

    state: Literal["reports", "old", "silent", "unknown"]
    holder: str = ""
    time: str | None = None


class Warning(Model):
    """Signed metadata that expire, or a lookup that was not reloaded since ``expires``, with the ``reason``:
    ``what_to_do`` is a command."""

    role: str
    expires: str
    expired: bool
    what_to_do: str
    reason: str = ""


class AgentRow(Model):
    """One agent as the fleet page lists it. ``state``: "as wanted", "behind", "problem", "away", "no fleet";
    ``health``: "running", "degraded", "lost", "silent" (no heartbeat for five minutes)."""

    fleet: str
    agent: str
    site: str
    group: str
    """Empty: in none."""
    state: Literal["as wanted", "behind", "problem", "away", "no fleet", "unknown"]
    reasons: list[str]
    labels: dict[str, str]
    health: Literal["running", "degraded", "lost", "silent", "unknown"]
    version: str = ""
    bundle: str = ""
    """Of the rule set "default", as NAME-VERSION."""
    heard: str | None = None
    """When the console last heard it; None: only what the broker retained, whose own time is ``time``."""
    time: str | None = None
    lag_seconds: float = 0.0
    lag_events: int = 0
    in_outbox: int = 0
    alerts_lost: int = 0
    events_lost: int = 0
    """Dropped and lost, over all inputs."""
    quarantined: int = 0


class Wanted(Model):
    """One thing that a group shall run: "bundles default", from and to, and how its change stands."""

    what: str
    change: str
    target: str
    """Path and digest of what is wanted; "none"."""
    before: str
    state: str
    """"rolling", "paused", "done", "aborted", "waiting", or "stays"."""


class GroupRow(Model):
    """One group of the desired document, or (``name`` empty) the agents that are in none."""

    name: str
    match: str
    agents: int
    as_wanted: int
    behind: int
    problem: int
    away: int
    wanted: list[Wanted]


class FleetPage(Model):
    """``GET /fleet``: desired against actual by group. ``items``: agents, those in trouble first within their group."""

    fleet: str
    link: Link
    controller: Controller
    desired_serial: int
    rollout_serial: int
    groups: list[GroupRow]
    items: list[AgentRow]
    total: int
    next: str | None = None
    counts: dict[str, int]
    """Agents by ``state``, of all that the viewer may see."""
    labels: dict[str, dict[str, int]]
    """Values of each label and their agents, to filter by; the 20 most frequent."""
    versions: dict[str, int]
    warnings: list[Warning]
    operators: list[Operator]


class Operator(Model):
    """Who may ask hosts, by the signed list."""

    name: str
    roles: list[str]
    expires: str
    expired: bool
    console: bool = False
    """Whether this console signs as this operator."""


class InputRow(Model):
    """An input's own account."""

    name: str
    received: int
    stored: int
    evaluated: int
    backlog: int
    dropped: int
    lost: int


class RulesetRow(Model):
    name: str
    bundle: str
    sha256: str
    wanted: str
    """SHA-256 that its group wants; empty: none is."""


class AgentPage(Model):
    """``GET /fleet/{fleet}/{agent}``: all that the newest heartbeat says. ``raw`` is the heartbeat itself, None when it
    was too large to keep."""

    row: AgentRow
    started: str | None = None
    inputs: list[InputRow]
    rulesets: list[RulesetRow]
    problems: list[str]
    refused: dict[str, str]
    waits: list[str]
    overlay: str = ""
    overlay_confirmed: bool = True
    release: str = ""
    trusted_until: str | None = None
    alerting: dict[str, int]
    """Alerts by rule in this life, the most first."""
    quarantined: list[str]
    budgets: dict[str, dict[str, Any]]
    disk_failing: list[str]
    raw_log_bytes: int = 0
    raw_log_max_bytes: int = 0
    crashes: int = 0
    starts: int = 0
    history: list[Sample]
    """What the console has heard since it runs, oldest first, a sample a minute at most."""
    may: list[str]
    """Acts that the viewer may do here: "fleet.ask", "evidence", "hunt"."""
    raw: dict[str, Any] | None = None


class Sample(Model):
    time: str
    events: int
    """A second, since the sample before."""
    lag_seconds: float
    in_outbox: int


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


class Proposal(Sent):
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
    sha256: str = ""
    """Of the bundle, in hex; empty: it did not come so far, or is to be signed elsewhere."""
    problems: list[Finding] = Field(default_factory=list)
    summary: str = ""
    """What the build said: rules, test events, bytes."""
    diff: list[Moved] = Field(default_factory=list)
    changes: list[str] = Field(default_factory=list)
    """Ids of the changes; ``/rollouts/{change}``."""
    commands: list[str] = Field(default_factory=list)
    published: bool = False
    """False when applied: the broker was away; the controller or `vedette fleet apply` announces it."""
