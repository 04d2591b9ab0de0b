"""What the console says of rules before they run: lint, explain, test events, backtests; see ``shapes``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StringConstraints

from vedette_console.fleet.models_asked import HostCount, Match, RuleCount
from vedette_console.fleet.shapes import Finding, Given, Listed, Model, RuleFile, RuleText


class RuleInput(Given):
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


class BacktestOrder(Given):
    """``POST /backtests``: rules over exported raw logs. ``since``, ``until``: a time, or how long ago."""

    rules: Annotated[list[RuleFile], Field(min_length=1, max_length=50)]
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


class BacktestsList(Listed):
    items: list[BacktestRow]
    sources: list[str] = Field(default_factory=list)
    """Names of the configured folders of raw logs; none: backtests are not configured."""
