"""A report as one HTML page that fetches nothing.

Everything shown may have been chosen by an attacker: a log line, a host's name, a rule's title. Every text goes through
``plain`` and is escaped by Jinja; the only data a script reads are numbers. The content security policy names this
page's own style and script by their hashes and allows nothing else: no network, no other script, no style of an
element's own.

The chart library is uPlot (MIT, ``assets/uPlot.LICENSE``), as published, 1.6.32.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from spark_jobs.common.attack import caption
from spark_jobs.common.period import Period
from spark_jobs.common.plain import cut, many, plain, short
from spark_jobs.report import freshness, headline
from spark_jobs.report.accounts import troubles
from spark_jobs.report.chart import chart
from spark_jobs.report.figures import Counts, Line
from spark_jobs.report.headline import Report
from spark_jobs.report.triage import words
from spark_jobs.tables.ask import LEVELS

SECTIONS = (
    ("first", "Look at first"),
    ("timeline", "Timeline"),
    ("heat", "Sites and rules"),
    ("sites", "Map"),
    ("campaigns", "Campaigns"),
    ("risk", "Risk"),
    ("attack", "ATT&CK"),
    ("anomalies", "Anomalies"),
    ("noise", "Noise"),
    ("severest", "Alerts"),
    ("rules", "Rules"),
    ("hosts", "Hosts"),
    ("agents", "Agents"),
    ("letters", "Dead letters"),
)

STRIP = 200
"""Width of a campaign's strip, in its own units."""

HEAT_STEPS = 8


def html(report: Report) -> str:
    """The page."""
    style, script = _asset("uPlot.min.css") + _asset("report.css"), _asset("uPlot.iife.min.js") + _asset("report.js")
    matrix = report.findings.matrix
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            policy=Markup(
                f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
                "form-action 'none'"
            ),
            style=Markup(style),
            script=Markup(script),
            data=_data(report.counts, report.period),
            sections=SECTIONS,
            span=headline.span(report.period),
            fresh=freshness.sentence(report.fresh, report.period.now),
            differing=freshness.differ(report.fresh),
            sentence=headline.sentence(report.counts),
            cards=headline.cards(report),
            first=headline.look_first(report),
            heat=heat(report.counts),
            chart=chart(report.counts.sites.items),
            unrun=headline.unrun(report.findings),
            ran=freshness.ran_with(report.fresh, report.period.now),
            matrix=list(matrix.tactics.items()) if any(matrix.tactics.values()) else [],
            period=report.period,
            counts=report.counts,
            findings=report.findings,
            accounts=report.accounts,
        )
    )


def heat(counts: Counts) -> Line:
    """The heat map: titles of ``rules``, and ``rows`` of sites, the most severe of both first. A row's ``cells`` have a
    ``step`` of colour below ``HEAT_STEPS``, of all cells of their level, and are None where a rule had no alert."""
    sites: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    rules: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for cell in counts.heat:
        sites[cell.fleet, cell.site][cell.rank] += cell.alerts
        rules[cell.rule_id][cell.rank] += cell.alerts
    titles = {rule: counts.title(rule) for rule in sorted(rules, key=lambda rule: (_severest(rules[rule]), rule))}
    cells = {(cell.fleet, cell.site, cell.rule_id): cell for cell in counts.heat}
    most = {
        rank: max(cell.alerts for cell in counts.heat if cell.rank == rank) for rank in {c.rank for c in counts.heat}
    }
    rows = []
    for fleet, site in sorted(sites, key=lambda place: (_severest(sites[place]), place)):
        row: list[Line | None] = []
        for rule, title in titles.items():
            here = cells.get((fleet, site, rule))
            if here is None or not here.alerts:
                row.append(None)
                continue
            share = math.log1p(here.alerts) / math.log1p(most[here.rank])
            step = min(HEAT_STEPS - 1, int(share * HEAT_STEPS))
            said = f"{fleet}/{site}, {title}: {here.alerts:,} alerts, {here.matches:,} matches"
            row.append(Line(rank=here.rank, step=step, title=said, alerts=here.alerts))
        rows.append(Line(name=f"{fleet}/{site}", cells=row))
    return Line(rules=list(titles.values()), rows=rows)


def _severest(alerts: Counter[int]) -> list[int]:
    """The key that sorts sums by rank: most of the highest first."""
    return [-alerts[rank] for rank in range(len(LEVELS), -1, -1)]


def marks(campaign: Line, period: Period) -> list[tuple[float, float]]:
    """Left edges and widths of a campaign's steps in a strip of the period; what lies outside is at its edge."""
    width = max(1.0, STRIP / period.hours)
    places = set()
    for step in campaign.steps:
        share = (step["time"] - period.start) / timedelta(hours=period.hours)
        if 0 <= share < 1:
            places.add(round(math.floor(share * STRIP / width) * width, 2))
    return [(x, round(width, 2)) for x in sorted(places)]


def _data(counts: Counts, period: Period) -> Markup:
    """JSON for the script: hours as UTC seconds, alerts of each level by hour. Numbers, and names from ``LEVELS``."""
    first, last = period.start, period.start + timedelta(hours=period.hours)
    last = max([last, *(hour.hour + timedelta(hours=1) for hour in counts.hours)])  # a clock may be ahead
    hours = range(int(first.timestamp()), int(last.timestamp()), 3600)
    place = {hour: n for n, hour in enumerate(hours)}
    alerts: dict[str, list[int]] = {}
    for hour in counts.hours:
        values = alerts.setdefault(hour.level if hour.level in LEVELS else "other", [0] * len(hours))
        values[place[int(hour.hour.timestamp())]] += hour.alerts
    levels = [{"name": name, "alerts": alerts[name]} for name in (*reversed(LEVELS), "other") if name in alerts]
    return Markup(json.dumps({"hours": list(hours), "levels": levels}, separators=(",", ":")))


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        finalize=_final,
        loader=FunctionLoader(_asset),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "n": _number,
        "many": many,
        "share": lambda value: "" if value is None else f"{value:.0%}",
        "clock": _clock,
        "cut": cut,
        "short": short,
        "caption": caption,
        "level_class": lambda name: name if name in LEVELS else "other",
        "technique": attack_name,
        "attack_link": attack_link,
        "depth": lambda alerts: min(4, len(str(alerts))) if alerts else 0,
        "marks": marks,
        "troubles": troubles,
        "decision": words,
        "lines": lambda text: Markup("\n").join(plain(line) for line in text.split("\n")),
    }
    return environment


def _final(value: Any) -> Any:
    """The form of a value that Jinja escapes and writes."""
    if value is None:
        return ""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _techniques() -> Mapping[str, str]:
    """Names of ATT&CK's techniques (Enterprise, v17) by id; a sub-technique's is its own part."""
    names: Mapping[str, str] = json.loads(_asset("techniques.json"))
    return names


def attack_name(technique: str) -> str:
    """``T1110.001`` as ``Brute Force: Password Guessing``; empty for one that is not known."""
    names = [_techniques().get(id, "") for id in dict.fromkeys((technique.partition(".")[0], technique))]
    return ": ".join(names) if all(names) else ""


def attack_link(technique: str) -> str:
    """Where ATT&CK describes it; empty for one that is not known."""
    return f"https://attack.mitre.org/techniques/{technique.replace('.', '/')}/" if attack_name(technique) else ""


def _number(value: float | int | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if value % 1 and abs(value) < 10 else f"{value:,.0f}"


def _clock(time: datetime | None) -> str:
    return "" if time is None else f"{time:%a %-d %b %H:%M:%S}"


@cache
def _asset(name: str) -> str:
    return (resources.files("spark_jobs.report") / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
