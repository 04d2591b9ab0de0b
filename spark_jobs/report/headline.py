"""A report's first screen, in words: the headline, the numbers, and what to look at first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TypeAlias

from spark_jobs.common.attack import caption
from spark_jobs.common.entities import CRITICAL_DAYS
from spark_jobs.common.period import Period
from spark_jobs.common.plain import many, short
from spark_jobs.report.accounts import Accounts
from spark_jobs.report.figures import Counts, Line
from spark_jobs.report.findings import Findings
from spark_jobs.report.freshness import Freshness
from spark_jobs.report.triage import closed, words

MAX_FIRST = 14
MAX_CAMPAIGNS = 3
MAX_ANOMALIES = 2
"""Of each kind."""
MAX_RISKS = 3
"""That no campaign names."""

LOUD = 0.3
"""A rule with a larger share of all matches is worth a word."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that a report shows."""

    period: Period
    counts: Counts
    findings: Findings
    accounts: Accounts
    fresh: Freshness | None = None
    """None: nobody has asked."""


@dataclass(frozen=True, slots=True)
class Card:
    """A number, what it counts, how it compares, and the section that tells more."""

    number: int
    name: str
    note: str
    anchor: str
    severe: bool = False
    volume: bool = False
    """Says how much there is, not what is wrong."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Something to look at: a word for what it is, a sentence, where more of it stands, why, and from when to when."""

    level: str
    kind: str
    text: str
    anchor: str
    note: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def said(self) -> str:
        """Why and when (UTC), in words."""
        return " · ".join(part for part in (self.note, _span(self.since, self.until)) if part)


def span(period: Period) -> str:
    """The period in words."""
    if period.first == period.last:
        return f"{period.first:%A, %-d %B %Y}"
    return f"{period.first:%-d %B} to {period.last:%-d %B %Y}"


def sentence(counts: Counts) -> str:
    """The period in a sentence."""
    now = counts.now
    if not now.alerts and not now.matches:
        return "No alerts."
    folded = "" if now.matches == now.alerts else f" ({many(now.matches, 'match', 'matches')})"
    return (
        f"{many(now.alerts, 'alert')}{folded} by {many(now.rules, 'rule')}, on {many(now.hosts, 'host')} at "
        f"{many(now.sites, 'site')}."
    )


def unrun(findings: Findings) -> str:
    """What to run for the parts that no job has written yet; empty when there are none."""
    if not findings.unrun:
        return ""
    those = ", ".join(findings.unrun[:-1]) + " and " * (len(findings.unrun) > 1) + findings.unrun[-1]
    have = "has" if len(findings.unrun) == 1 else "have"
    return f"{those} {have} not run on these tables"


def cards(report: Report) -> list[Card]:
    """The numbers of the first screen."""
    now, before = report.counts.now, report.counts.before
    critical = sum(one.alerts for one in report.counts.levels if one.level == "critical")
    campaigns, fleet = report.findings.campaigns, report.accounts.fleet
    growing = report.findings.open_campaigns
    anomalies = report.findings.anomalies.of
    kinds = ", ".join(many(n, *_KINDS.get(kind, (kind,))) for kind, n in report.findings.by_kind.items())

    def named(number: int, *name: str) -> str:
        return many(number, *name).partition(" ")[2]

    return [
        Card(campaigns.of, named(campaigns.of, "campaign"), f"{growing:,} still open", "campaigns", growing > 0),
        Card(critical, named(critical, "critical alert"), f"of {now.alerts:,}", "severest", critical > 0),
        Card(anomalies, named(anomalies, "anomaly", "anomalies"), kinds, "anomalies",
             "silence" in report.findings.by_kind),
        _agents(fleet),
        Card(fleet.missing, f"{named(fleet.missing, 'alert')} missing", "gaps in what landed", "agents",
             fleet.missing > 0),
        Card(now.alerts, named(now.alerts, "alert"), _change(now, before, "alerts"), "timeline", volume=True),
        Card(now.rules, f"{named(now.rules, 'rule')} alerted", _change(now, before, "rules"), "rules", volume=True),
        Card(now.sites, named(now.sites, "site"), _change(now, before, "sites"), "sites", volume=True),
        Card(now.hosts, named(now.hosts, "host"), _change(now, before, "hosts"), "hosts", volume=True),
    ]  # fmt: skip


def _agents(fleet: Line) -> Card:
    """Agents in trouble, of which nothing is known when none was heard lately."""
    number = fleet.agents if fleet.unheard else fleet.troubled
    name = "agent" if number == 1 else "agents"
    if fleet.unheard:
        return Card(number, f"{name} not heard", _since(fleet), "agents", True)
    return Card(number, f"{name} in trouble", f"of {fleet.agents:,}", "agents", fleet.lost + fleet.silent > 0)


def _since(fleet: Line) -> str:
    """Since when no agent was heard."""
    return "in these days" if fleet.newest is None else f"since {fleet.newest:%-d %b %H:%M}"


_KINDS = {"burst": ("burst",), "silence": ("silence",), "new_rule": ("new rule",),
          "new_entity": ("new entity", "new entities")}  # fmt: skip


_CALLED = (("silence", "gone quiet"), ("burst", "burst"), ("new_rule", "new rule"))
"""Anomalies of the first screen, and what they are called there."""


def _change(now: Line, before: Line, name: str) -> str:
    """How a sum compares with the days before."""
    number, past = getattr(now, name), getattr(before, name)
    if not past:
        return "none before"
    share = (number - past) / past
    if abs(share) < 0.005:
        return "as before"
    return f"{share:+.0%} vs. before" if abs(share) < 10 else f"{number / past:,.0f} times before"


def look_first(report: Report) -> list[Pointer]:
    """What an analyst should look at first, the most severe kind first."""
    found: list[Pointer] = []
    findings, fleet = report.findings, report.accounts.fleet
    others = 0
    for number, one in enumerate(findings.campaigns.items, 1):
        if closed(one, one.last_seen):
            continue
        others += 1
        if others > MAX_CAMPAIGNS and one.level != "critical":
            continue
        stage = f", reached {caption(one.stage)}" if one.stage else ""
        text = f"{one.kind} {short(one.value)} at {many(len(one.sites), 'site')}{stage}"
        note = f"score {one.score:.0f} · {one.state}"
        note += f" · {words(one.triage)}" if one.triage.state != "new" else ""
        found.append(Pointer(one.level, "campaign", text, f"campaign-{number}", note, one.first_seen, one.last_seen))
    for risk in unnamed_risks(findings)[:MAX_RISKS]:
        name = f"{risk.kind} {short(risk.value)}" + (f" at {risk.scope}" if risk.scope else "")
        found.append(Pointer(risk.level, "risk", f"{name}: {risk.reason}", "risk", "", risk.first_seen, risk.last_seen))
    for kind, called in _CALLED:
        here = [one for one in findings.anomalies.items if one.kind == kind and not closed(one, one.ended_at)]
        # A rule that is new at a site is not as new as one that is new in the fleet.
        here.sort(key=lambda one: kind == "new_rule" and bool(one.site))
        for anomaly in here[:MAX_ANOMALIES]:
            level, what = anomaly.level or "medium", _anomaly(report, anomaly)
            found.append(Pointer(level, called, what, "anomalies", "", anomaly.started_at, anomaly.ended_at))
    critical = [one for one in report.counts.severest if one.level == "critical"]
    if critical:
        number = sum(one.alerts for one in report.counts.levels if one.level == "critical")
        note = f"the newest: {critical[0].rule_title} on {critical[0].host or 'a host'}"
        found.append(Pointer("critical", "critical", many(number, "critical alert"), "severest", note))
    away = [f"{many(n, 'agent')} {what}" for n, what in ((fleet.lost, "with the connection lost"),
                                                         (fleet.silent, "silent")) if n]  # fmt: skip
    if fleet.unheard:
        text = f"none of {many(fleet.agents, 'agent')} heard {_since(fleet)}"
        found.append(Pointer("high", "agents", text, "agents", "agents, the landing or ingest stand still"))
    elif away:
        found.append(Pointer("high", "agents", ", ".join(away), "agents"))
    if fleet.missing:
        text = f"{many(fleet.missing, 'alert')} missing between those that landed"
        found.append(Pointer("high", "missing", text, "agents", "on their way, or lost"))
    gone = [f"{many(n, 'event')} {what}" for n, what in ((fleet.events_lost, "lost"), (fleet.dropped, "dropped")) if n]
    if gone:
        found.append(Pointer("medium", "loss", ", ".join(gone), "agents", "by the agents' own account"))
    if report.accounts.dead_letters:
        text = many(report.accounts.dead_letters, "dead letter")
        found.append(Pointer("medium", "unread", text, "letters", "landed, and could not be read"))
    loud = report.counts.rules.items[0] if report.counts.rules.items else None
    if loud and loud.matches > LOUD * report.counts.now.matches and report.counts.now.rules > 1:
        share = loud.matches / report.counts.now.matches
        found.append(Pointer("low", "noise", f"{share:.0%} of all matches are of one rule: {loud.rule_title}", "noise"))
    shown = sum(one.level == "critical" and one.kind == "campaign" for one in found)
    return found[: max(MAX_FIRST, shown + MAX_FIRST - MAX_CAMPAIGNS)]


def _anomaly(report: Report, one: Line) -> str:
    """Where, by which rule and how much, in words."""
    rule = report.counts.known.get(one.rule_id)
    title = (rule.rule_title if rule else "") or one.rule_id
    where = f"{one.fleet}/{one.site}" if one.site else "the fleet"
    what = f", {title}" if one.rule_id else ""
    if one.kind == "new_rule":
        return f"{where}{what}: {many(int(one.observed or 0), 'alert')}, none before"
    usual = "" if one.observed is None else f": {one.observed:,.0f}, usually {one.median or 0:,.0f}"
    return f"{where}{what}{usual}"


def unnamed_risks(findings: Findings) -> list[Line]:
    """Those over their threshold that are not closed, and that no campaign listed names or explains; sites last, which
    have what their users and hosts have."""
    campaigns = findings.campaigns.items
    named = {(one["kind"], one["value"]) for listed in campaigns for one in listed.entities or ()}
    named |= {(one.kind, one.value) for one in campaigns}
    over = [one for one in findings.risks.items if one.over and not closed(one, one.last_seen)]
    unnamed = [one for one in over if (one.kind, one.value) not in named]
    named_by = _hosts([one for one in campaigns if not closed(one, one.last_seen)])
    return sorted((one for one in unnamed if not _explained(one, named_by)), key=lambda one: one.kind == "site")


_Spans: TypeAlias = Mapping[tuple[str, str], Sequence[tuple[str, date, date]]]
"""Of a host at a site the rules by which steps of campaigns name it, and from which day to which."""


def _hosts(campaigns: Sequence[Line]) -> _Spans:
    spans = defaultdict(list)
    for one in campaigns:
        for step in one.steps:
            for host in step["met"]:
                span = step["rule_id"], one.first_seen.date(), one.last_seen.date()
                spans[host, f"{step['fleet']}/{step['site']}"].append(span)
    return spans


def _explained(risk: Line, hosts: _Spans) -> bool:
    """Whether it is a host that would not be over its threshold without what campaigns did there."""
    spans = hosts.get((risk.value, risk.scope), ()) if risk.kind == "host" else ()
    if not spans:
        return False
    others = [
        part
        for part in risk.contributions or ()
        if not any(rule == part["rule_id"] and since <= part["time"].date() <= until for rule, since, until in spans)
    ]
    listed, rest = risk.score - risk.others_points, sum(part["points"] for part in others)
    # What is not listed is held to be of the same mix.
    without = rest + risk.others_points * rest / listed if listed else risk.score
    recent = risk.updated_at - timedelta(days=CRITICAL_DAYS)
    return without < risk.threshold and not any(one["level"] == "critical" and one["time"] > recent for one in others)


def _span(first: datetime | None, last: datetime | None) -> str:
    """From when to when, in words."""
    if first is None or last is None:
        return ""
    same = first.date() == last.date()
    return f"{first:%a %-d %b %H:%M} to " + (f"{last:%H:%M}" if same else f"{last:%a %-d %b %H:%M}")
