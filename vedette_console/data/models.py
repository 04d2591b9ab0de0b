"""Answers about the tables: one frozen model a noun, the same for pages and the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from vedette_console.web import Model


def _filled(struct: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The values of a struct of a row that are there; None for none."""
    return {key: value for key, value in (struct or {}).items() if value is not None} or None


def _in_a_log(struct: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """None where an event is not in a raw log."""
    return struct if struct and struct["log_id"] is not None and struct["offset"] is not None else None


Text = Annotated[str, BeforeValidator(lambda value: value or "")]
Number = Annotated[int, BeforeValidator(lambda value: value or 0)]
Real = Annotated[float, BeforeValidator(lambda value: value or 0.0)]
Flag = Annotated[bool, BeforeValidator(bool)]
Texts = Annotated[list[str], BeforeValidator(lambda values: list(values or ()))]
Words = Annotated[list[str], BeforeValidator(lambda values: [value for value in values or () if value])]
Pairs = Annotated[dict[str, str], BeforeValidator(lambda pairs: {key: value or "" for key, value in pairs or ()})]
"""A column of a row, empty where it is null; ``Words`` without empty ones, ``Pairs`` a map, as DuckDB gives it."""


class Entity(Model):
    """Who or what an event is about."""

    kind: Text
    value: Text


class RawRef(Model):
    """Where an event lies in its host's raw log; bytes."""

    log_id: str
    offset: int
    length: Number


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


Located = Annotated[RawRef | None, BeforeValidator(_in_a_log)]


class AlertRow(Model):
    """An alert in a list. ``day`` (its ``received_date``), ``agent_id`` and ``alert_id`` name it; ``finding_id`` is
    what a decision about it names."""

    day: Text
    agent_id: Text
    alert_id: Text
    time: datetime | None
    kind: Text
    level: Text
    rule_id: Text
    rule_title: Text
    fleet: Text
    site: Text
    host: Text
    source: Text
    count: Number
    entities: Annotated[list[Entity], BeforeValidator(lambda rows: [row for row in rows or () if row])]
    raw: Text
    """Cut at 240 characters."""

    @property
    def finding_id(self) -> str:
        return f"alert:{self.agent_id}/{self.alert_id}"


class Contributing(Model):
    """An event that a correlation counted."""

    rule_id: Text
    rule_title: str
    event_time: datetime | None
    raw_ref: Located


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
    rule_digest: Text
    tags: Words
    tactics: list[str]
    techniques: list[Technique]
    event_time: datetime | None
    detected_at: datetime | None
    received_at: datetime | None
    logsource: Annotated[dict[str, str], BeforeValidator(lambda struct: {k: v for k, v in (struct or {}).items() if v})]
    fields: Pairs
    group_by: Pairs
    raw_ref: Located
    contributing: list[Contributing]
    first_time: datetime | None
    last_time: datetime | None
    bundle: str | None
    flags: Words
    asset: Annotated[Asset | None, BeforeValidator(_filled)]
    place: Annotated[Place | None, BeforeValidator(_filled)]
    intel: Annotated[list[IntelHit], BeforeValidator(lambda rows: [hit for row in rows or () if (hit := _filled(row))])]
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

    campaign_id: Text
    day: str
    kind: Text
    value: Text
    first_seen: datetime | None
    last_seen: datetime | None
    state: Text
    stage: Text
    level: Text
    score: Real
    confidence: float | None
    alerts: Number
    matches: Number
    sites: Texts
    rules: Texts
    tactics: Texts
    reason: Text
    new_steps: Number
    triage: Decision


class Step(Model):
    """Alerts of a rule at a site, of a campaign's entities."""

    time: datetime | None
    fleet: Text
    site: Text
    rule_id: Text
    rule_title: str
    tactic: Text
    alerts: Number


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

    kind: Text
    value: Text
    alerts: Number
    tactics: Texts


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
    against: Words
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
    kind: Text
    fleet: Text
    site: Text
    rule_id: Text
    rule_title: str
    started_at: datetime | None
    ended_at: datetime | None
    observed: float | None
    median: float | None
    score: float | None
    level: Text
    reason: Text
    entity_kind: Text
    entity_value: Text
    triage: Decision


class Contribution(Model):
    """A part of a risk's score."""

    points: Real
    time: datetime | None
    rule_id: Text
    rule_title: str
    level: Text
    tactic: Text
    alerts: Number
    why: Text


class Risk(Model):
    """What an entity has come to on a day; ``docs/tables.md`` has the columns."""

    risk_id: Text
    day: str
    kind: Text
    value: Text
    scope: Text
    score: Real
    threshold: float | None
    usual: float | None
    over: Flag
    level: Text
    alerts: Number
    rules: Number
    tactics: Number
    days: Number
    first_seen: datetime | None
    last_seen: datetime | None
    reason: Text
    contributions: list[Contribution]
    others: Number
    others_points: Real
    triage: Decision
