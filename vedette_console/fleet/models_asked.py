"""Answers about requests to hosts (hunts, evidence, questions), and of rules before they run (lint, explain,
test events, backtests); as ``models`` promises."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StringConstraints

from vedette.system.within import NAME
from vedette_console.fleet.models import Finding, Name, Reason, RequestId, RuleFile, Rules, RuleText
from vedette_console.web import Listing, Model, Sent


class AgentAnswer(Model):
    """How far one agent's reply has come. ``state``: "no answer", "answering", "done", "failed", "refused",
    "cancelled", "limited", "not taken"."""

    agent: str
    fleet: str
    site: str
    state: str
    reason: str = ""
    parts: int = 0
    bytes: int = 0
    whole: bool = False
    events: int | None = None
    matches: int | None = None
    oldest: str | None = None
    reached: str | None = None
    share: float | None = None
    """Of the time that is looked at: 0 to 1."""
    notes: list[str] = Field(default_factory=list)


class Job(Model):
    """A request to hosts, in the background. ``state``: "queued", "asking", "waiting" (agents that are away or at work;
    it goes on), "done", "cancelled", "expired", "broker away" (it goes on when it is back)."""

    id: RequestId
    kind: Literal["hunt", "evidence", "ask", "do"]
    state: Literal["queued", "asking", "waiting", "done", "cancelled", "expired", "broker away"]
    why: str = ""
    title: str
    by: str
    """Who asked in this console; empty: it was made by a command."""
    operator: str
    """In whose name it is signed."""
    reason: str
    created: str
    expires: str
    asked: int
    whole: int
    """Agents whose reply is whole."""
    answering: int
    failed: int
    """Refused, failed or not taken."""
    cancelled: bool
    may_cancel: bool


class HuntRow(Job):
    kind: Literal["hunt"] = "hunt"
    since: str | None
    until: str | None
    group: str
    events: int
    matches: int
    share: float | None
    """Of the work, over all agents; 0 to 1."""


class RuleCount(Model):
    rule_id: str
    title: str
    level: str
    kind: str
    matches: int
    agents: int


class HostCount(Model):
    agent: str
    site: str
    matches: int


class Match(Model):
    agent: str
    site: str
    rule_id: str
    title: str
    level: str
    kind: str
    input: str
    offset: int
    time: str | None
    fields: dict[str, str]


class HuntPage(Model):
    """``GET /hunts/{id}``."""

    hunt: HuntRow
    agents: list[AgentAnswer]
    agents_count: int
    rules: list[RuleCount]
    hosts: list[HostCount]
    """Those with matches, the most first."""
    matches: list[Match]
    """The first ones, at most 200."""
    matches_count: int
    not_run: list[str]
    notes: list[str]
    texts: list[RuleFile]
    """The rules it was started with; empty: it was made by a command."""


class HuntOrder(Sent):
    """``POST /hunts``: rules over what hosts have stored. ``group``: a label expression, or "all"; ``agents``: instead
    of it. ``since``: a time, or how long ago (``7d``)."""

    rules: Rules
    group: Annotated[str, StringConstraints(max_length=500)] = ""
    agents: Annotated[list[Name], Field(max_length=1000)] = Field(default_factory=list)
    since: Annotated[str, StringConstraints(max_length=40)] = "30d"
    until: Annotated[str, StringConstraints(max_length=40)] = ""
    first: Annotated[int, Field(strict=True, ge=0, le=200)] = 20
    expires: Annotated[str, StringConstraints(max_length=10)] = "24h"
    reason: Reason


class EvidenceOrder(Sent):
    """``POST /evidence``: the raw lines around an alert (``day``, ``agent`` and ``alert`` are those of its page)."""

    alert: Name
    agent: Name
    day: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    around: Annotated[int, Field(strict=True, ge=0, le=10_000)] = 20
    reason: Reason


class Line(Model):
    """One raw line. ``alert``: it is the alert's own; ``note`` (and nothing else): what lacks here."""

    received: str | None = None
    input: str = ""
    text: str = ""
    binary: bool = False
    """``text`` is Base64."""
    alert: bool = False
    cut: bool = False
    redacted: int = 0
    offset: int | None = None
    note: str = ""


class EvidencePage(Model):
    """``GET /evidence/{job}``. ``manifest``: where it is kept, once something came."""

    job: Job
    alert: str
    agent: str
    site: str
    state: str
    """Of the agent's reply; see ``AgentAnswer``."""
    why: str
    lines: list[Line]
    total: int
    next: str | None = None
    sha256: str = ""
    manifest: str = ""


class Question(Sent):
    """``POST /fleet/{fleet}/{agent}/ask``: ``explain`` takes a rule's id."""

    question: Literal["status", "rules", "explain", "disk", "versions"]
    rule: Annotated[str, StringConstraints(max_length=200)] = ""
    reason: Annotated[str, StringConstraints(max_length=500)] = ""


class Action(Sent):
    """``POST /fleet/{fleet}/{agent}/do``."""

    action: Literal["release-quarantine", "reload", "rollback"]
    ruleset: Annotated[str, StringConstraints(pattern=rf"^({NAME})?$")] = ""
    version: Annotated[int, Field(strict=True, ge=1, lt=2**53)] | None = None
    reason: Reason


class AnswerPage(Model):
    """``GET /requests/{id}``: what was asked of an agent, and what it has answered so far."""

    job: Job
    what: dict[str, Any]
    agents: list[AgentAnswer]
    records: dict[str, list[dict[str, Any]]]
    """By agent, the first 1,000 of each."""


class RuleInput(Sent):
    """``kind``: "sigma" or "sql"; ``tests``: the text of NAME.test.yml."""

    text: RuleText
    kind: Literal["sigma", "sql"]
    tests: Annotated[str, StringConstraints(max_length=256 << 10)] = ""
    beside: StrictBool = True
    """With the rules' folders beside it, so that it may refer to them."""


class EventInput(RuleInput):
    """``event``: one line of log; ``format``: as ``vedette scan --format`` has it."""

    event: Annotated[str, StringConstraints(max_length=64 << 10)]
    format: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:._-]{1,64}$")] = "auto"
    topic: Annotated[str, StringConstraints(max_length=500)] = ""


class Linted(Model):
    """``POST /rules/lint``. ``runs``: it has no error. ``stopped``: why there is no answer (it took too long, or more
    memory than it may)."""

    runs: bool
    problems: list[Finding]
    summary: str = ""
    rules: list[RuleSummary] = Field(default_factory=list)
    stopped: str = ""


class RuleSummary(Model):
    id: str
    title: str
    level: str
    kind: str
    line: int


class Explained(Model):
    """``POST /rules/explain``: lines for people, a block a rule; ``matches`` None: it did not come to that."""

    problems: list[Finding]
    lines: list[str]
    matches: bool | None = None
    stopped: str = ""


class CaseResult(Model):
    name: str
    ok: bool
    detail: str = ""


class Tested(Model):
    """``POST /rules/test``."""

    ok: bool
    events: int
    sequences: int
    problems: list[Finding]
    failures: list[CaseResult]
    stopped: str = ""


class BacktestOrder(Sent):
    """``POST /backtests``: rules over exported raw logs. ``since``, ``until``: a time, or how long ago."""

    rules: Rules
    since: Annotated[str, StringConstraints(max_length=40)] = ""
    until: Annotated[str, StringConstraints(max_length=40)] = ""
    route: StrictBool = True
    source: Annotated[str, StringConstraints(max_length=100)] = ""
    """Name of one of the configured folders of raw logs; empty: the first."""
    reason: Annotated[str, StringConstraints(max_length=500)] = ""


class BacktestRow(Model):
    """``state``: "queued", "running", "done", "failed", "cancelled", "interrupted" (the console ended meanwhile: start
    it again)."""

    id: str
    state: Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
    why: str = ""
    by: str
    title: str
    reason: str
    source: str
    since: str | None
    until: str | None
    created: str
    seconds: float
    """So far, or in all."""
    step: str = ""
    """What it is at: "compiling", "reading 3 of 14 segments", "sorting", "counting"."""
    share: float | None = None
    segments: int = 0
    bytes: int = 0
    may_cancel: bool


class BacktestPage(Model):
    """``GET /backtests/{id}``."""

    backtest: BacktestRow
    events: int
    agents: int
    rules: list[RuleCount]
    hosts: list[HostCount]
    by_hour: list[HourCount]
    matches: list[Match]
    matches_count: int
    notes: list[str]
    not_run: list[str]
    texts: list[RuleFile]


class HourCount(Model):
    hour: str
    matches: int


class BacktestsList(Listing[BacktestRow]):
    sources: list[str] = Field(default_factory=list)
    """Names of the configured folders of raw logs; none: backtests are not configured."""
