"""*Now*: what to look at first, by the same rules as the report's first screen, with the rows behind it.

It is dear, so it is kept while the tables stay as they are (``memo``): a page gets the last one at once, and the one
after it as soon as somebody has made it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from spark_jobs.common.period import Period, last_hours
from spark_jobs.report import headline
from spark_jobs.report.accounts import accounts
from spark_jobs.report.figures import counts
from spark_jobs.report.findings import findings
from spark_jobs.report.headline import Screen
from spark_jobs.tables.schema import ALERTS, ANOMALIES, CAMPAIGNS, HEARTBEATS, RISK, TRIAGE, WIN_5M
from vedette_console.data.agents import agents
from vedette_console.data.alerts import newest
from vedette_console.data.campaigns import campaigns
from vedette_console.data.findings import anomalies, risks
from vedette_console.data.models_fleet import CardModel, Now, PointerModel
from vedette_console.data.reader import Reader
from vedette_console.data.rows import last_days

SHOWN = 8
"""Rows of each list."""
LEAST = 5.0
"""Seconds between two makings."""
MOST = 300.0
STATE = (ALERTS, WIN_5M, CAMPAIGNS, ANOMALIES, RISK, HEARTBEATS, TRIAGE)

PAGES = {
    "campaigns": "/campaigns",
    "severest": "/alerts?" + urlencode({"q": "level:critical since:24h"}),
    "anomalies": "/campaigns#anomalies",
    "risk": "/entities",
    "agents": "/fleet",
    "timeline": "/alerts?" + urlencode({"q": "since:24h"}),
    "rules": "/rules?show=fired",
    "sites": "/fleet#map",
    "hosts": "/entities?kind=host",
    "noise": "/rules?show=noisy",
    "letters": "/reports",
}
"""Where the console tells more of a section of the report."""


def now(reader: Reader, days: int = 1, at: datetime | None = None) -> Now:
    """The last ``days`` days, of which one is the last 24 hours, as of now or a little earlier."""
    period = last_hours(at) if days == 1 else last_days(days, at)
    state = (period.start, *reader.catalog.versions(STATE))
    key = ("now", reader.scope, days, at)
    return reader.memo.get(key, state, lambda: _make(reader, period, days, at), least=LEAST, most=MOST)


def report_of(reader: Reader, period: Period) -> Screen:
    """All that the first screen of ``period`` is made of, of the sites that are seen."""
    counted = counts(reader, period)
    return Screen(period, counted, findings(reader, period, counted.rules_by_id), accounts(reader, period))


def _make(reader: Reader, period: Period, days: int, at: datetime | None) -> Now:
    report = report_of(reader, period)
    links = _links(report)
    is_critical = "level = 'critical' AND coalesce(kind, '') <> 'fold'"
    shown = campaigns(reader, state="open", limit=SHOWN * 2, days=max(days, 7), now=at)
    over = risks(reader, over=True, limit=SHOWN * 2, now=at)
    odd = anomalies(reader, limit=SHOWN * 2, days=days, now=at)
    troubled = agents(reader, state="troubled", limit=SHOWN, now=at)
    return Now(
        made_at=datetime.now(UTC) if at is None else at,
        days=days,
        sentence=headline.sentence(report.counts),
        unrun=headline.unrun(report.findings),
        empty=not reader.has(ALERTS) and not reader.has(HEARTBEATS),
        cards=[
            CardModel(number=card.number, name=card.name, note=card.note, link=PAGES[card.anchor], severe=card.severe,
                      volume=card.volume)
            for card in headline.cards(report)
        ],
        first=[
            PointerModel(level=pointer.level, kind=pointer.kind, text=pointer.text, note=pointer.note,
                         since=pointer.since, until=pointer.until,
                         link=links.get(pointer.anchor) or PAGES.get(pointer.anchor, "/"))
            for pointer in headline.look_first(report)
        ],
        critical=newest(reader, is_critical, period.start, period.end, SHOWN),
        campaigns=[campaign for campaign in shown.items if not campaign.triage.closed][:SHOWN],
        risks=[risk for risk in over.items if not risk.triage.closed][:SHOWN],
        anomalies=[anomaly for anomaly in odd.items if not anomaly.triage.closed][:SHOWN],
        agents=troubled.items,
    )  # fmt: skip


def _links(report: Screen) -> dict[str, str]:
    """The console's pages of the campaigns that the report numbers."""
    return {
        f"campaign-{number}": f"/campaigns/{quote(campaign.campaign_id, safe='')}"
        for number, campaign in enumerate(report.findings.campaigns.items, 1)
    }
