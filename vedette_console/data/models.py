"""What the console answers about the tables: one frozen model a noun, the same for pages and the API.

Times are UTC and aware; in JSON they end in ``Z``. A list is a ``Listing``: its ``items``, how many there are in all
where that is known, and ``next``, what to give as ``after`` for those that follow (None: that was all). Texts come
from logs and are the attacker's: pages escape them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")


class Model(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(frozen=True)


class Listing(Model, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    total: int | None = None
    next: str | None = None


class Entity(Model):
    """Who or what an event is about."""

    kind: str
    value: str


class RawRef(Model):
    """Where an event lies in its host's raw log; bytes."""

    log_id: str
    offset: int
    length: int


class Decision(Model):
    """What holds of the decisions about a finding; ``new``: nothing was decided. ``closed``: it was closed, and has not
    been active since. ``words`` is the same in a few words, empty when new."""

    state: str = "new"
    assignee: str = ""
    reason: str = ""
    author: str = ""
    expires_at: datetime | None = None
    updated_at: datetime | None = None
    closed: bool = False
    words: str = ""


class AlertRow(Model):
    """An alert in a list. ``day`` (its ``received_date``), ``agent_id`` and ``alert_id`` name it; ``finding_id`` is
    what a decision about it names."""

    day: str
    agent_id: str
    alert_id: str
    time: datetime | None
    kind: str
    level: str
    rule_id: str
    rule_title: str
    fleet: str
    site: str
    host: str
    source: str
    count: int
    entities: list[Entity]
    raw: str
    """Cut at 240 characters."""

    @property
    def finding_id(self) -> str:
        return f"alert:{self.agent_id}/{self.alert_id}"


class Contributing(Model):
    """An event that a correlation counted."""

    rule_id: str
    rule_title: str
    event_time: datetime | None
    raw_ref: RawRef | None


class Place(Model):
    """Where a site is, by the lookup ``sites``; degrees."""

    name: str = ""
    country: str = ""
    latitude: float | None = None
    longitude: float | None = None
    timezone: str = ""


class Asset(Model):
    """What the lookup ``assets`` says of a host."""

    owner: str = ""
    role: str = ""
    environment: str = ""
    criticality: int | None = None


class IntelHit(Model):
    """An entity that an indicator names."""

    kind: str = ""
    value: str = ""
    indicator: str = ""
    source: str = ""
    threat: str = ""
    score: int | None = None


class Technique(Model):
    """Of ATT&CK; ``name`` and ``link`` are empty for one that is not known."""

    id: str
    name: str = ""
    link: str = ""


class Span(Model):
    """Characters ``start`` to ``end`` (not included) of ``Alert.raw`` that are the value of ``field``."""

    start: int
    end: int
    field: str


class Alert(AlertRow):
    """An alert in full; ``raw`` whole."""

    parent_id: str | None
    seq: int | None
    rule_digest: str
    tags: list[str]
    tactics: list[str]
    techniques: list[Technique]
    event_time: datetime | None
    detected_at: datetime | None
    received_at: datetime | None
    logsource: dict[str, str]
    fields: dict[str, str]
    group_by: dict[str, str]
    raw_ref: RawRef | None
    contributing: list[Contributing]
    first_time: datetime | None
    last_time: datetime | None
    bundle: str | None
    flags: list[str]
    asset: Asset | None
    place: Place | None
    intel: list[IntelHit]
    highlights: list[Span]
    triage: Decision = Field(default_factory=Decision)


class RelatedGroup(Model):
    """Alerts near in time to one. ``by`` is ``entity``, ``host``, ``rule``, ``fold`` (it folds into it, or the other
    way), ``value`` what they share, ``query`` the search for all of them, ``more`` whether there are more."""

    by: str
    value: str
    query: str
    items: list[AlertRow]
    more: bool


class Related(Model):
    """``minutes``: how far before and after the alert was looked."""

    minutes: int
    groups: list[RelatedGroup]


class FacetValue(Model):
    """A value of a field, its alerts, and the term that asks for it."""

    value: str
    alerts: int
    term: str


class Facet(Model):
    """The commonest values of a field of the language."""

    field: str
    values: list[FacetValue]


class Facets(Model):
    """``total`` alerts counted, of ``since`` (None: all) and later; ``complete``: that is all that the search has."""

    total: int
    since: datetime | None
    complete: bool
    facets: list[Facet]


class Bucket(Model):
    """Alerts by level in a step of time from ``start`` on."""

    start: datetime
    alerts: int
    levels: dict[str, int]


class Histogram(Model):
    """``step`` seconds; buckets without alerts are there, too."""

    step: int
    since: datetime | None
    until: datetime | None
    total: int
    complete: bool
    buckets: list[Bucket]


class Completion(Model):
    """``text`` goes in place of the characters ``start`` to ``end`` of the search."""

    text: str
    label: str
    start: int
    end: int


class CampaignRow(Model):
    """A campaign in a list; ``docs/tables.md`` has the columns."""

    campaign_id: str
    day: str
    kind: str
    value: str
    first_seen: datetime | None
    last_seen: datetime | None
    state: str
    stage: str
    level: str
    score: float
    confidence: float | None
    alerts: int
    matches: int
    sites: list[str]
    rules: list[str]
    tactics: list[str]
    reason: str
    new_steps: int
    triage: Decision


class Step(Model):
    """Alerts of a rule at a site, of a campaign's entities."""

    time: datetime | None
    fleet: str
    site: str
    rule_id: str
    rule_title: str
    tactic: str
    alerts: int


class Chapter(Model):
    """A stage that a campaign reached; ``text`` says it in a sentence."""

    first: datetime | None
    last: datetime | None
    tactic: str
    sites: list[str]
    rules: list[str]
    alerts: int
    text: str


class CampaignEntity(Model):
    """An entity of a campaign, with its alerts in the campaign's time."""

    kind: str
    value: str
    alerts: int
    tactics: list[str]


class Node(Model):
    """Of a graph: ``kind`` is ``site`` or an entity's. ``x``, ``y``: where to draw it, 0 to 1."""

    id: str
    kind: str
    label: str
    alerts: int
    x: float
    y: float


class Edge(Model):
    """Alerts of an entity at a site."""

    source: str
    target: str
    alerts: int
    level: str


class Graph(Model):
    """Entities of a campaign and the sites where they alerted; ``more`` nodes were left out."""

    nodes: list[Node]
    edges: list[Edge]
    more: int


class Campaign(CampaignRow):
    """A campaign in full; without what happened at sites that the asker may not see."""

    techniques: list[Technique]
    evidence: float | None
    against: list[str]
    updated_at: datetime | None
    steps: list[Step]
    story: list[Chapter]
    entities: list[CampaignEntity]
    graph: Graph
    samples: list[AlertRow]
    decisions: list[Decision]
    """All of them, newest first."""


class Anomaly(Model):
    """What is unlike a site's past; ``docs/tables.md`` has the columns."""

    anomaly_id: str
    day: str
    kind: str
    fleet: str
    site: str
    rule_id: str
    rule_title: str
    started_at: datetime | None
    ended_at: datetime | None
    observed: float | None
    median: float | None
    score: float | None
    level: str
    reason: str
    entity_kind: str
    entity_value: str
    triage: Decision


class Contribution(Model):
    """A part of a risk's score."""

    points: float
    time: datetime | None
    rule_id: str
    rule_title: str
    level: str
    tactic: str
    alerts: int
    why: str


class Risk(Model):
    """What an entity has come to on a day; ``docs/tables.md`` has the columns."""

    risk_id: str
    day: str
    kind: str
    value: str
    scope: str
    score: float
    threshold: float | None
    usual: float | None
    over: bool
    level: str
    alerts: int
    rules: int
    tactics: int
    days: int
    first_seen: datetime | None
    last_seen: datetime | None
    reason: str
    contributions: list[Contribution]
    others: int
    others_points: float
    triage: Decision
