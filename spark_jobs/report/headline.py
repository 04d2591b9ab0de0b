"""A report's first screen, in words: the headline, the numbers, and what to look at first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TypeAlias

from spark_jobs.common.attack import caption
from spark_jobs.common.entities import CRITICAL_DAYS, LEVELS
from spark_jobs.common.period import Period
from spark_jobs.common.plain import ago, many, short
from spark_jobs.report.accounts import Accounts
from spark_jobs.report.figures import Counts, Line
from spark_jobs.report.findings import Findings
from spark_jobs.report.freshness import Freshness
from spark_jobs.report.triage import closed, words

MAX_FIRST = 14
MAX_CAMPAIGNS = 3
MAX_ANOMALIES = 2
"""Of each kind."""
MAX_RISKS = 7
"""Incidents that no campaign names."""

LOUD = 0.3
"""A rule with a larger share of all matches is worth a word."""


@dataclass(frozen=True, slots=True)
class Screen:
    """All that the first screen is made of."""

    period: Period
    counts: Counts
    findings: Findings
    accounts: Accounts


@dataclass(frozen=True, slots=True)
class Report(Screen):
    """All that a report shows."""

    fresh: Freshness


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
    if period.begin is not None:
        return f"the last 24 hours up to {period.now:%A, %-d %B %Y, %H:%M}"
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
    """Say which jobs have not run on these tables; empty when there are none."""
    if not findings.unrun:
        return ""
    those = ", ".join(findings.unrun[:-1]) + " and " * (len(findings.unrun) > 1) + findings.unrun[-1]
    have = "has" if len(findings.unrun) == 1 else "have"
    return f"{those} {have} not run on these tables"


def cards(screen: Screen) -> list[Card]:
    """The numbers of the first screen."""
    now, before = screen.counts.now, screen.counts.before
    critical = sum(level.alerts for level in screen.counts.levels if level.level == "critical")
    campaigns, fleet = screen.findings.campaigns, screen.accounts.fleet
    growing = screen.findings.open_campaigns
    anomalies = screen.findings.anomalies.of
    kinds = ", ".join(many(n, *_KINDS.get(kind, (kind,))) for kind, n in screen.findings.by_kind.items())

    def named(number: int, *name: str) -> str:
        return many(number, *name).partition(" ")[2]

    return [
        Card(campaigns.of, named(campaigns.of, "campaign"), f"{growing:,} still open", "campaigns", growing > 0),
        Card(critical, named(critical, "critical alert"), f"of {now.alerts:,}", "severest", critical > 0),
        Card(anomalies, named(anomalies, "anomaly", "anomalies"), kinds, "anomalies",
             "silence" in screen.findings.by_kind),
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


def look_first(screen: Screen) -> list[Pointer]:
    """Pointers to what an analyst should look at first, the most severe kind first."""
    pointers = [*_campaigns(screen.findings), *_risks(screen), *_anomalies(screen), *_alerts(screen)]
    pointers += _losses(screen.accounts)
    loud = screen.counts.rules.items[0] if screen.counts.rules.items else None
    if loud and loud.matches > LOUD * screen.counts.now.matches and screen.counts.now.rules > 1:
        share = loud.matches / screen.counts.now.matches
        text = f"{share:.0%} of all matches are of one rule: {loud.rule_title}"
        pointers.append(Pointer("low", "noise", text, "noise"))
    shown = sum(pointer.level == "critical" and pointer.kind == "campaign" for pointer in pointers)
    return pointers[: max(MAX_FIRST, shown + MAX_FIRST - MAX_CAMPAIGNS)]


def _campaigns(findings: Findings) -> Iterator[Pointer]:
    others = 0
    for number, campaign in enumerate(findings.campaigns.items, 1):
        if closed(campaign, campaign.last_seen):
            continue
        others += 1
        if others > MAX_CAMPAIGNS and campaign.level != "critical":
            continue
        stage = f", reached {caption(campaign.stage)}" if campaign.stage else ""
        text = f"{campaign.kind} {short(campaign.value)} at {many(len(campaign.sites), 'site')}{stage}"
        note = f"score {campaign.score:.0f} · {campaign.state}"
        note += f" · {words(campaign.triage)}" if campaign.triage.state != "new" else ""
        times = campaign.first_seen, campaign.last_seen
        yield Pointer(campaign.level, "campaign", text, f"campaign-{number}", note, *times)


def _risks(screen: Screen) -> Iterator[Pointer]:
    def lately(risk: Line) -> float:
        return float(sum(part["points"] for part in risk.contributions if part["time"] >= screen.period.start))

    incidents = [(risk, belonging(screen.findings, risk)) for risk in unnamed_risks(screen.findings)]
    # What is still over, and of which nothing has come since, was shown then. A small one may lead to a large one.
    incidents.sort(key=lambda both: (both[0].kind == "site", -max(map(lately, [both[0], *both[1]]))))
    for risk, others in incidents[:MAX_RISKS]:
        where = f" at {risk.scope}" if risk.scope else ""
        text = f"{risk.kind} {short(risk.value)}{where}: {_matters(screen, risk)}"
        note = f"with {others[0].kind} {short(others[0].value)}" if others else ""
        note += f" and {many(len(others) - 1, 'other')}" if len(others) > 1 else ""
        level = max((each.level for each in (risk, *others)), key=lambda level: ("", *LEVELS).index(level or ""))
        times = [time for each in (risk, *others) for time in (each.first_seen, each.last_seen)]
        yield Pointer(level, "risk", text, "risk", note, min(times), max(times))


def _matters(screen: Screen, risk: Line) -> str:
    """What raised a risk most: a rule and when; and how much else there is."""
    if not risk.contributions:
        return str(risk.reason)
    most = max(risk.contributions, key=lambda part: (part["points"], part["time"]))
    others = f"{many(risk.rules, 'rule')} in {many(risk.days, 'day')}"
    return f"{screen.counts.title(most['rule_id'])}, {ago(screen.period.now - most['time'])}; {others}"


def _anomalies(screen: Screen) -> Iterator[Pointer]:
    still = [anomaly for anomaly in screen.findings.anomalies.items if not closed(anomaly, anomaly.ended_at)]
    for kind, called in _CALLED:
        here = [anomaly for anomaly in still if anomaly.kind == kind]
        # A rule that is new at a site is not as new as one that is new in the fleet.
        here.sort(key=lambda anomaly: kind == "new_rule" and bool(anomaly.site))
        for anomaly in here[:MAX_ANOMALIES]:
            level, what = anomaly.level or "medium", _anomaly(screen, anomaly)
            yield Pointer(level, called, what, "anomalies", "", anomaly.started_at, anomaly.ended_at)


def _alerts(screen: Screen) -> Iterator[Pointer]:
    """What is critical; of it the newest by the rule that is newest: what comes every day is known."""
    counts = screen.counts
    critical = [alert for alert in counts.severest if alert.level == "critical"]
    if critical:
        begun = {alert.rule_id: _begun(screen, alert) for alert in critical}
        named = max(critical, key=lambda alert: (begun[alert.rule_id], alert.counted_at))
        number = sum(level.alerts for level in counts.levels if level.level == "critical")
        which = "of a new rule" if begun[named.rule_id] >= screen.period.start else "the newest"
        note = f"{which}: {named.rule_title} on {named.host or 'a host'}, {ago(screen.period.now - named.counted_at)}"
        yield Pointer("critical", "critical", many(number, "critical alert"), "severest", note)


def _begun(screen: Screen, alert: Line) -> datetime:
    """When the first alert of a rule was."""
    rule = screen.counts.rules_by_id.get(alert.rule_id)
    first: datetime | None = rule.first_time if rule else None
    return first or alert.counted_at


def _losses(accounts: Accounts) -> Iterator[Pointer]:
    """Agents that are not heard, and what does not arrive."""
    fleet = accounts.fleet
    away = ((fleet.lost, "with the connection lost"), (fleet.silent, "silent"))
    if fleet.unheard:
        text = f"none of {many(fleet.agents, 'agent')} heard {_since(fleet)}"
        yield Pointer("high", "agents", text, "agents", "agents, the landing or ingest stand still")
    elif text := ", ".join(f"{many(number, 'agent')} {what}" for number, what in away if number):
        yield Pointer("high", "agents", text, "agents")
    if fleet.missing:
        text = f"{many(fleet.missing, 'alert')} missing between those that landed"
        yield Pointer("high", "missing", text, "agents", "on their way, or lost")
    gone = ((fleet.events_lost, "lost"), (fleet.dropped, "dropped"))
    if text := ", ".join(f"{many(number, 'event')} {what}" for number, what in gone if number):
        yield Pointer("medium", "loss", text, "agents", "by the agents' own account")
    if accounts.dead_letters:
        text = many(accounts.dead_letters, "dead letter")
        yield Pointer("medium", "unread", text, "letters", "landed, and could not be read")


def _anomaly(screen: Screen, anomaly: Line) -> str:
    """Where, by which rule and how much, in words."""
    title = screen.counts.title(anomaly.rule_id)
    where = f"{anomaly.fleet}/{anomaly.site}" if anomaly.site else "the fleet"
    what = f", {title}" if anomaly.rule_id else ""
    if anomaly.kind == "new_rule":
        return f"{where}{what}: {many(int(anomaly.observed or 0), 'alert')}, none before"
    usual = "" if anomaly.observed is None else f": {anomaly.observed:,.0f}, usually {anomaly.median or 0:,.0f}"
    return f"{where}{what}{usual}"


def unnamed_risks(findings: Findings) -> list[Line]:
    """Those over their threshold that are not closed, and that no campaign listed names or explains, one an incident;
    sites last, which have what their users and hosts have."""
    campaigns = findings.campaigns.items
    named = {(entity["kind"], entity["value"]) for listed in campaigns for entity in listed.entities or ()}
    named |= {(campaign.kind, campaign.value) for campaign in campaigns}
    over = [risk for risk in findings.risks.items if risk.over and not closed(risk, risk.last_seen)]
    unnamed = [risk for risk in over if (risk.kind, risk.value) not in named]
    named_by = _hosts([campaign for campaign in campaigns if not closed(campaign, campaign.last_seen)])
    alone = [risk for risk in unnamed if not _explained(risk, named_by)]
    leads = {risk.risk_id for risk in alone}
    led = [risk for risk in alone if risk.leader == risk.risk_id or risk.leader not in leads]
    return sorted(led, key=lambda risk: risk.kind == "site")


def belonging(findings: Findings, leader: Line) -> list[Line]:
    """The others of the incident that ``leader`` leads, the first by score."""
    return [risk for risk in findings.risks.items if risk.over and risk.leader == leader.risk_id != risk.risk_id]


_Spans: TypeAlias = Mapping[tuple[str, str], Sequence[tuple[str, date, date]]]
"""Of a host at a site the rules by which steps of campaigns name it, and from which day to which."""


def _hosts(campaigns: Sequence[Line]) -> _Spans:
    spans = defaultdict(list)
    for campaign in campaigns:
        for step in campaign.steps:
            for host in step["met"]:
                span = step["rule_id"], campaign.first_seen.date(), campaign.last_seen.date()
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
    critical = any(part["level"] == "critical" and part["time"] > recent for part in others)
    return without < risk.threshold and not critical


def _span(first: datetime | None, last: datetime | None) -> str:
    """From when to when, in words."""
    if first is None or last is None:
        return ""
    same = first.date() == last.date()
    return f"{first:%a %-d %b %H:%M} to " + (f"{last:%H:%M}" if same else f"{last:%a %-d %b %H:%M}")
