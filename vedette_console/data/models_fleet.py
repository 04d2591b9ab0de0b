"""Answers about entities, rules, agents, sites, reports and *Now*; as ``models`` promises."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from vedette_console.data.models import AlertRow, Anomaly, CampaignRow, Decision, Place, Risk, Technique
from vedette_console.fleet.models import InputRow
from vedette_console.web import Listing, Model

# Entities ----------------------------------------------------------------------------------------------------------


class EntityRow(Model):
    """An entity in a list, with what it had in the days asked for."""

    kind: str
    value: str
    scope: str
    alerts: int
    rules: int
    sites: int
    score: float | None
    over: bool


class RiskDay(Model):
    day: str
    score: float
    threshold: float | None
    over: bool


class Count(Model):
    """Alerts and matches of a site, a rule, a host or a day, by ``name``; ``label`` is what to show."""

    name: str
    label: str
    alerts: int
    matches: int
    level: str = ""
    first_time: datetime | None = None
    last_time: datetime | None = None


class EntityPage(Model):
    """An entity: what it has come to, where, by which rules, and its newest alerts, in the last ``days``."""

    kind: str
    value: str
    scope: str
    days: int
    alerts: int
    matches: int
    first_seen: datetime | None
    last_seen: datetime | None
    risk: Risk | None
    risk_days: list[RiskDay]
    by_day: list[Count]
    sites: list[Count]
    rules: list[Count]
    newest: list[AlertRow]
    campaigns: list[CampaignRow]
    query: str
    """The search for all its alerts."""


# Rules -------------------------------------------------------------------------------------------------------------


class RuleRow(Model):
    """A rule in a list. ``deployed`` None: no list of rules has landed. Counts are of the days asked for; ``fired``:
    ever. ``share``: of all matches of these days; ``suppressed``: of its matches, those that made no alert."""

    rule_id: str
    title: str
    level: str
    tactics: list[str]
    techniques: list[str]
    deployed: bool | None
    fired: bool
    alerts: int
    matches: int
    sites: int
    hosts: int
    last_time: datetime | None
    share: float
    suppressed: float
    noisy: bool


class RuleNoise(Model):
    """How loud a rule was, by the job ``noise``; ``proposal`` is a Sigma filter, empty for none."""

    rule_id: str
    title: str
    level: str
    alerts: int
    matches: int
    share: float | None
    suppressed: float | None
    sites: int | None
    hosts: int | None
    top_kind: str
    top_value: str
    top_share: float | None
    score: float | None
    reason: str
    proposal: str


class RulePage(RuleRow):
    """A rule: what it speaks for, how it did by day, site, host and entity, and its newest alerts."""

    days: int
    tags: list[str]
    technique_names: list[Technique]
    first_time: datetime | None
    by_day: list[Count]
    by_site: list[Count]
    by_host: list[Count]
    by_entity: list[Count]
    noise: RuleNoise | None
    newest: list[AlertRow]
    query: str


class CoverageCell(Model):
    """A technique under a tactic: deployed and other rules for it, those that never fired, and alerts in the days."""

    technique: Technique
    rules: list[str]
    """Titles, 20 at most."""
    of_rules: int
    silent: int
    alerts: int


class CoverageTactic(Model):
    tactic: str
    caption: str
    cells: list[CoverageCell]


class Coverage(Model):
    """The ATT&CK matrix; ``as_of`` empty: no list of rules has landed, so only rules that alerted are in it."""

    as_of: str
    days: int
    techniques: int
    tactics: list[CoverageTactic]
    never_fired: Listing[RuleRow]


# Agents and sites --------------------------------------------------------------------------------------------------


class AgentRow(Model):
    """An agent by its newest heartbeat; counts since it was installed, None where it did not say. ``missing``: alerts
    of the days that did not land. ``troubles`` in words, empty for a healthy one."""

    fleet: str
    agent_id: str
    site: str
    state: str
    silent: bool
    version: str
    bundle: str
    last_seen: datetime | None
    lag_seconds: float | None
    received: int | None
    stored: int | None
    evaluated: int | None
    backlog: int | None
    dropped: int | None
    lost: int | None
    in_outbox: int | None
    dead_rules: int | None
    landed: int
    missing: int
    labels: dict[str, str] = Field(default_factory=dict)
    troubles: list[str]


class Beat(Model):
    """A heartbeat among others."""

    time: datetime
    state: str
    lag_seconds: float | None
    in_outbox: int | None


class AgentAccount(AgentRow):
    """An agent with what its newest heartbeat says; ``heartbeat`` is that, whole. ``group`` and ``problems`` as the
    agent reports them. ``beats``: of the last day, thinned."""

    first_seen: datetime | None
    plan_digest: str
    seq_high: int | None
    alerts_made: int | None
    alerts_receipted: int | None
    identity_broken: list[str]
    group: str
    problems: list[str]
    inputs: list[InputRow]
    beats: list[Beat]
    hosts: list[Count]
    """Of its site, those with most alerts of the last day."""
    newest: list[AlertRow]
    heartbeat: dict[str, object]


class AgentSums(Model):
    agents: int
    troubled: int
    lost: int
    silent: int
    versions: dict[str, int]
    bundles: dict[str, int]


class AgentListing(Listing[AgentRow]):
    sums: AgentSums


class SiteRow(Model):
    """A site on the map; ``place`` None: no lookup names it."""

    fleet: str
    site: str
    place: Place | None
    alerts: int
    critical: int
    rules: int
    agents: int
    troubled: int


# Now, reports ------------------------------------------------------------------------------------------------------


class CardModel(Model):
    """A number of the first screen; ``link`` is the console's page that tells more."""

    number: int
    name: str
    note: str
    link: str
    severe: bool
    volume: bool


class PointerModel(Model):
    """Something to look at first: why, from when to when; ``link`` is the console's page of it."""

    level: str
    kind: str
    text: str
    note: str
    since: datetime | None
    until: datetime | None
    link: str


class Now(Model):
    """What to look at first, of the last ``days`` up to ``made_at``. ``unrun``: what has not run yet, in words."""

    made_at: datetime
    days: int
    sentence: str
    unrun: str
    empty: bool
    """No table is there: nothing has landed, or the console looks at the wrong folder."""
    cards: list[CardModel]
    first: list[PointerModel]
    critical: list[AlertRow]
    campaigns: list[CampaignRow]
    risks: list[Risk]
    anomalies: list[Anomaly]
    agents: list[AgentRow]
    """Those in trouble, at most 8."""


class DecisionMade(Model):
    """A decision as it was written."""

    finding_id: str
    kind: str
    triage: Decision


class ReportRow(Model):
    """A report that can be read; ``state`` is ``made``, ``making`` or ``failed``; ``made_at``: when it was begun, all
    until then is in it; ``whole``: its days were over then."""

    name: str
    since: str
    until: str
    made_at: datetime | None
    bytes: int
    state: str
    error: str = ""
    whole: bool
