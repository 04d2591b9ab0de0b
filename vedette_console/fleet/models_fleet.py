"""What the console says of agents and their groups; see ``shapes``."""

from __future__ import annotations

from typing import Any, Literal

from vedette_console.fleet.shapes import Model


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
    """Signed metadata that expire: ``what_to_do`` is a command."""

    role: str
    expires: str
    expired: bool
    what_to_do: str


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
