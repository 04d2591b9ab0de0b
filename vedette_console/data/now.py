"""*Now*: what to look at first, by the same rules as the report's first screen, with the rows behind it.

It is dear, so it is kept while the tables stay as they are (``memo``): a page gets the last one at once, and the one
after it as soon as somebody has made it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from spark_jobs.common.period import Period
from spark_jobs.report import headline
from spark_jobs.report.accounts import accounts
from spark_jobs.report.figures import counts
from spark_jobs.report.findings import findings
from spark_jobs.report.headline import Report
from spark_jobs.tables.schema import ALERTS, ANOMALIES, CAMPAIGNS, HEARTBEATS, RISK, TRIAGE, WIN_5M
from vedette_console.data.agents import agents
from vedette_console.data.alerts import newest
from vedette_console.data.campaigns import campaigns
from vedette_console.data.findings import anomalies, risks
from vedette_console.data.models_fleet import CardModel, Now, PointerModel
from vedette_console.data.reader import Reader
from vedette_console.data.rows import last_days
from vedette_console.security.principal import Principal

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


def now(reader: Reader, who: Principal, days: int = 1, at: datetime | None = None) -> Now:
    """The last ``days`` days, as of now or a little earlier."""
    period = last_days(days, at)
    state = (period.last, *reader.catalog.versions(STATE))
    key = ("now", reader.scope, len(period.days), at)
    return reader.memo.get(key, state, lambda: _made(reader, who, period, at), least=LEAST, most=MOST)


def report_of(reader: Reader, period: Period) -> Report:
    """All that a report of ``period`` shows, of the sites that are seen."""
    counted = counts(reader, period)
    return Report(period, counted, findings(reader, period, counted.known), accounts(reader, period))


def _made(reader: Reader, who: Principal, period: Period, at: datetime | None) -> Now:
    report = report_of(reader, period)
    links = _links(report)
    days = len(period.days)
    is_critical = "level = 'critical' AND coalesce(kind, '') <> 'fold'"
    shown = campaigns(reader, who, state="open", limit=SHOWN * 2, days=max(days, 7), now=at)
    over = risks(reader, who, over=True, limit=SHOWN * 2, now=at)
    odd = anomalies(reader, who, limit=SHOWN * 2, days=days, now=at)
    troubled = agents(reader, who, state="troubled", limit=SHOWN, now=at)
    return Now(
        made_at=datetime.now(UTC) if at is None else at,
        days=days,
        sentence=headline.sentence(report.counts),
        unrun=headline.unrun(report.findings),
        empty=not reader.has(ALERTS) and not reader.has(HEARTBEATS),
        cards=[
            CardModel(number=one.number, name=one.name, note=one.note, link=PAGES[one.anchor], severe=one.severe,
                      volume=one.volume)
            for one in headline.cards(report)
        ],
        first=[
            PointerModel(level=one.level, kind=one.kind, text=one.text, note=one.note, since=one.since, until=one.until,
                         link=links.get(one.anchor) or PAGES.get(one.anchor, "/"))
            for one in headline.look_first(report)
        ],
        critical=newest(reader, is_critical, period.start, period.end, SHOWN),
        campaigns=[one for one in shown.items if not one.triage.closed][:SHOWN],
        risks=[one for one in over.items if not one.triage.closed][:SHOWN],
        anomalies=[one for one in odd.items if not one.triage.closed][:SHOWN],
        agents=troubled.items,
    )  # fmt: skip


def _links(report: Report) -> dict[str, str]:
    """The console's pages of the campaigns that the report numbers."""
    return {
        f"campaign-{number}": f"/campaigns/{quote(one.campaign_id, safe='')}"
        for number, one in enumerate(report.findings.campaigns.items, 1)
    }
