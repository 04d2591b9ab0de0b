"""The report: the right figures from the tables, and a page that a real browser shows and that nobody can turn."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_jobs.common.period import period
from spark_jobs.jobs import ingest
from spark_jobs.jobs.report import figures
from spark_jobs.report import findings, page, text
from spark_jobs.report.accounts import accounts, troubles
from spark_jobs.report.figures import Listed
from spark_jobs.report.headline import Report, cards, look_first
from spark_jobs.report.text import Section, lines
from spark_jobs.tables.arrow import arrow_schema as rows_schema
from spark_jobs.tables.ask import Sparks, open_reader
from spark_jobs.tables.schema import (
    AGENTS,
    ALERTS,
    CAMPAIGNS,
    COVERAGE,
    DEAD_LETTERS,
    HEARTBEATS,
    RULES,
    SEQS,
    WIN_5M,
)
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.browser import CHROMIUM, Browser
from tests.spark_jobs.conftest import run
from tests.spark_jobs.found import HOSTILE, campaign, covered, write, write_all
from tests.spark_jobs.landed import DAY, HOUR, MINUTE, NOON, alert, arrow_schema, land, place
from vedette.delivery import envelope
from vedette.model.counters import Counters

NOON_HOUR = datetime(2026, 11, 20, 12, tzinfo=UTC)
THE_DAY = date.fromisoformat(DAY)
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Tags(HTMLParser):
    """Attributes of a page's tags, and where its links lead."""

    def __init__(self, shown: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.feed(shown)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]


needs_browser = pytest.mark.skipif(not CHROMIUM, reason="no Chromium: run tools/packages.sh")


@pytest.fixture(scope="module")
def full(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A day in all tables: what ingest made of alerts, heartbeats and garbage, and what other jobs would find."""
    folder = tmp_path_factory.mktemp("report")
    landing, tables = folder / "landing", open_tables(str(folder / "tables"))
    ips = [[{"kind": "ip", "value": f"203.0.113.{i % 2}"}] * 2 for i in range(6)]
    tags = ["attack.credential_access", "attack.t1110"]
    rows = [
        *(alert(i, host=f"web{i % 2}", entities=ips[i], tags=tags) for i in range(6) if i != 3),
        alert(6, kind="fold", count=100, entities=ips[0]),
        alert(7, level="critical", rule_id="rule-b", rule_title=HOSTILE, raw=HOSTILE, host=HOSTILE, site="office"),
        alert(1, agent_id="agent-2", event_time=NOON - 30 * HOUR),
        alert(8, agent_id="agent-2", event_time=NOON - 31 * HOUR, entities=[{"kind": "user", "value": HOSTILE}], seq=2),
    ]  # fmt: skip
    land(landing, rows)
    place(landing, b"garbage", at=NOON_HOUR)
    counters = Counters()
    counters.received["syslog"] = counters.stored["syslog"] = 9
    for agent, minute, state in (("agent-1", 0, "running"), ("agent-1", 1, "lost"), ("agent-2", 40, HOSTILE)):
        payload = json.dumps({"agent_id": agent, "state": state, "version": "0.1", **counters.snapshot()})
        beat = envelope.status_row(
            payload.encode(), fleet="north", agent_id=agent, received_at=NOON + minute * MINUTE, collector_id="c",
            topic="t",
        )  # fmt: skip
        land(landing, [beat], table="status", schema=arrow_schema(envelope.STATUS))
    letter = envelope.dead_letter(b"\xff", topic="vedette/v1/n/a/alerts", reason=HOSTILE, received_at=NOON)
    land(landing, [letter], table="bad", schema=arrow_schema(envelope.DEAD_LETTER))
    ingest.take_over(spark, tables, ingest.landing_sources(str(landing)))
    write_all(tables)
    return tables


@pytest.fixture(scope="module")
def report(full: Tables) -> Report:
    return report_of(full)


def report_of(tables: Tables, days: int = 1) -> Report:
    reader = open_reader(tables, None)
    try:
        return figures(reader, period(THE_DAY, days))
    finally:
        reader.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


def show(browser: Browser, folder: Path, html: str, **window: Any) -> None:
    (folder / "report.html").write_text(html, "utf-8")
    browser.open(folder / "report.html", **window)


@pytest.mark.spark
def test_the_figures_of_a_day(report: Report) -> None:
    """Sums, hours, rules, hosts, entities, most severe alerts, agents with gaps, dead letters: as counted by hand."""
    counts = report.counts
    now = counts.now
    assert (now.alerts, now.matches, now.rules, now.sites, now.hosts) == (6, 106, 2, 2, 3)
    assert (counts.before.alerts, counts.before.sites) == (2, 1)
    assert {one.hour.hour for one in counts.hours} == {12}
    assert {one.level: (one.alerts, one.matches) for one in counts.levels} == {"critical": (1, 1), "high": (5, 105)}
    assert [(one.rule_id, one.alerts, one.sites, one.hosts) for one in counts.rules.items] == [
        ("rule-a", 5, 1, 2),
        ("rule-b", 1, 1, 1),
    ]
    assert (counts.hosts.items[0].host, counts.hosts.items[0].alerts) == ("web0", 3)
    assert [(one.value, one.alerts) for one in counts.entities.items] == [
        ("203.0.113.0", 3), ("203.0.113.1", 2), ("203.0.113.9", 1),
    ]  # fmt: skip
    assert [(one.level, one.raw[:5]) for one in counts.severest][:2] == [("critical", HOSTILE[:5]), ("high", "<38>e")]
    first, second = report.accounts.agents.items
    assert (first.agent_id, first.state, first.received, first.landed, first.missing, first.silent) == (
        "agent-1", "lost", 9, 7, 1, True,
    )  # fmt: skip
    assert troubles(first) == ["connection lost", "silent since 20 Nov 12:01", "1 alert missing"]
    assert (second.received, second.landed, second.missing, troubles(second)) == (9, 2, 0, [])
    assert [(one.kind, one.letters, one.rows) for one in report.accounts.letters.items] == [
        ("file", 1, 0),
        ("message", 1, 1),
    ]


@pytest.mark.spark
def test_what_other_jobs_found(report: Report) -> None:
    """Campaigns alive in the period with alerts of theirs, anomalies by score, noise, techniques, silent ones too."""
    findings = report.findings
    assert [one.campaign_id for one in findings.campaigns.items] == ["campaign-1", "campaign-2"]
    assert [one.alert_id for one in findings.campaigns.items[0].samples] == [alert(7)["alert_id"]]
    hosts = {(step["site"], step["rule_id"]): step["hosts"] for step in findings.campaigns.items[0].steps}
    assert hosts == {("plant", "rule-a"): Listed(), ("office", "rule-b"): Listed((HOSTILE,), 1)}
    assert [one.kind for one in findings.anomalies.items] == ["silence", "burst"]
    assert findings.by_kind == {"burst": 1, "silence": 1}
    assert [one.rule_id for one in findings.noise.items] == ["rule-a", "rule-b"]
    cells = {one.technique: (one.alerts, one.rules.items) for one in findings.matrix.tactics["credential-access"]}
    assert cells == {"T1003": (0, (HOSTILE,)), "T1110": (5, ("Rule rule-a",))}
    assert findings.matrix.never_fired == Listed((HOSTILE,), 1)
    anchors = [one.anchor for one in look_first(report)]
    assert anchors[:2] == ["campaign-1", "campaign-2"]
    assert {"anomalies", "severest", "agents", "letters"} <= set(anchors)
    assert {card.name: card.number for card in cards(report)}["campaigns"] == 2


@pytest.mark.long
@pytest.mark.spark
def test_both_readers_say_the_same(spark: SparkSession, full: Tables, report: Report) -> None:
    """DuckDB over the files and Spark answer every question alike, hostile texts included."""
    reader = Sparks(full, spark)
    try:
        other = figures(reader, period(THE_DAY, 1))
    finally:
        reader.close()
    for part in ("counts", "findings", "accounts", "fresh"):
        mine, theirs = (dataclasses.asdict(getattr(one, part)) for one in (report, other))
        for name, value in mine.items():
            assert theirs[name] == value, (part, name)


@pytest.mark.spark
def test_a_week_holds_its_days(full: Tables) -> None:
    """The alerts of the day before are in a week's report, and the hours span all of it."""
    week = report_of(full, days=7)
    assert week.counts.now.alerts == 8
    assert {one.hour.day for one in week.counts.hours} == {19, 20}
    assert len(json.loads(str(page._data(week.counts, week.period)))["hours"]) == 7 * 24


def windows(tables: Tables, *cells: tuple[str, str, int]) -> None:
    """Fill ``win_5m`` and ``rules`` with one alert each: level, rule, hours after the beginning of the day."""
    at = [datetime.combine(THE_DAY, time(), UTC) + timedelta(hours=hours) for _, _, hours in cells]
    rows = [
        {"date": DAY, "window_start": start, "fleet": "north", "site": "plant", "rule_id": rule, "level": level,
         "alerts": 1, "matches": 1, "first_time": start, "last_time": start}
        for (level, rule, _), start in zip(cells, at, strict=True)
    ]  # fmt: skip
    of_rules = {row["rule_id"]: row for row in rows}
    for table, those in ((WIN_5M, rows), (RULES, of_rules.values())):
        names = [name for name in table.names if name in rows[0]]
        tables.upsert(table, pa.Table.from_pylist([{name: row[name] for name in names} for row in those]))


def test_made_up_levels_push_out_no_other(tmp_path: Path) -> None:
    """Alerts of as many levels as one likes are one level, after those there are; known are the newest rules first."""
    tables = open_tables(str(tmp_path / "tables"))
    made_up = [(f"!{n:02}", f"rule-{n:02}", n % 5) for n in range(30)]
    windows(tables, *made_up, ("critical", "rule-x", 7))
    report = report_of(tables)
    assert [(one.level, one.alerts) for one in report.counts.levels] == [("critical", 1), ("other", 30)]
    assert {(one.hour.hour, one.level): one.alerts for one in report.counts.hours} == {
        (7, "critical"): 1, **{(hour, "other"): 6 for hour in range(5)},
    }  # fmt: skip
    assert {card.name: card.number for card in cards(report)}["critical alert"] == 1
    assert next(iter(report.counts.rules_by_id)) == "rule-x"


def landed(tables: Tables, *rows: dict[str, Any]) -> None:
    """Fill ``alerts`` with rows as ``alert`` makes them, counted when they were received."""
    whole = [{**row, "counted_at": row["received_at"], "batch": "made"} for row in rows]
    tables.append(ALERTS, pa.Table.from_pylist(whole, rows_schema(ALERTS.columns)))


def test_the_most_severe_are_shown_first(tmp_path: Path) -> None:
    """By level, made-up ones and none last; of a level the newest; of a rule the three most severe; no folds."""
    tables = open_tables(str(tmp_path / "tables"))
    given: list[tuple[str | None, str]] = [
        *[("critical", "a")] * 5, *[("high", "a")] * 2, ("high", "b"), ("!!", "c"), (None, "d"),
        *[("low", f"low-{number:02}") for number in range(18)],
    ]  # fmt: skip
    rows = [alert(n, level=level, rule_id=rule, received_at=NOON + n) for n, (level, rule) in enumerate(given)]
    landed(tables, *rows, alert(99, level="critical", rule_id="e", kind="fold"))
    shown = [(one.level, one.rule_id, one.alert_id) for one in report_of(tables).counts.severest]
    wanted = [4, 3, 2, 7, *reversed(range(10, 28)), 9, 8]
    assert shown == [(given[n][0] or "", given[n][1], rows[n]["alert_id"]) for n in wanted]


def test_alerts_of_an_agent_without_a_clock_are_shown(tmp_path: Path) -> None:
    """Of 1970 by the edge's own date, and landed on the day: among the most severe, and its site on the map."""
    tables = open_tables(str(tmp_path / "tables"))
    landed(tables, alert(1, event_time=60, detected_at=60, received_at=NOON))
    counts = report_of(tables).counts
    assert [one.alert_id for one in counts.severest] == [alert(1)["alert_id"]]
    assert [one.site for one in counts.sites.items] == ["plant"]


def test_a_site_that_has_moved_is_where_it_was_last(tmp_path: Path) -> None:
    """Name, country and coordinates are those of its newest alert with any, not of several."""
    tables = open_tables(str(tmp_path / "tables"))
    dublin = {"name": "Dublin", "country": "IE", "latitude": 53.3, "longitude": -6.2}
    bonn = {"name": "Bonn", "country": "DE", "latitude": 50.7, "longitude": None}
    landed(tables, {**alert(1), "place": dublin}, {**alert(2), "place": bonn}, alert(3))
    (site,) = report_of(tables).counts.sites.items
    assert (site.name, site.country, site.latitude, site.longitude) == ("Bonn", "DE", 50.7, None)


def test_an_agent_taken_away_is_silent_for_a_month(tmp_path: Path) -> None:
    """Silent 30 days after its last heartbeat, and no more after 31, unless alerts of it land."""
    tables = open_tables(str(tmp_path / "tables"))
    at = datetime.combine(THE_DAY, time(9), UTC)
    long_ago = at - timedelta(days=31)
    heard = {"there": at, "silent": at - timedelta(days=30), "away": long_ago, "mute": long_ago}
    agents = [{"fleet": "north", "agent_id": agent, "dropped": 5, "last_seen": last} for agent, last in heard.items()]
    tables.upsert(AGENTS, pa.Table.from_pylist(agents))
    beat = {"date": DAY, "fleet": "north", "agent_id": "there", "received_at": at}
    tables.append(HEARTBEATS, pa.Table.from_pylist([beat]))
    landed(tables, alert(1, agent_id="mute"))
    account = report_of(tables).accounts
    assert {one.agent_id: one.silent for one in account.agents.items} == {"there": False, "silent": True, "mute": True}
    assert (account.fleet.agents, account.fleet.silent, account.fleet.dropped) == (3, 2, 15)


def test_numbers_are_of_all_and_not_of_those_listed(tmp_path: Path) -> None:
    """More open campaigns, and dead letters for more reasons, than the lists hold: the first screen counts all."""
    tables = open_tables(str(tmp_path / "tables"))
    held = [campaign(200 + number, score=0.0, reason=f"held back: scan; {number}") for number in range(2)]
    held += [campaign(202, score=0.0, reason="held back: exercise; x"), campaign(203, score=0.0, reason="withdrawn: y")]
    write(tables, CAMPAIGNS, *(campaign(number, score=60.0) for number in range(103)), *held)
    letters = [{"date": DAY, "kind": "row", "reason": f"reason {number % 53}"} for number in range(3 * 53)]
    tables.append(DEAD_LETTERS, pa.Table.from_pylist(letters))
    report = report_of(tables)
    assert (len(report.findings.campaigns.items), len(report.accounts.letters.items)) == (100, 50)
    assert next(card.note for card in cards(report) if card.name == "campaigns") == "103 still open"
    assert report.findings.held_back == "2 scans, 1 exercise"
    assert "159 dead letters" in [one.text for one in look_first(report)]


def test_a_technique_of_many_rules_pushes_out_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Techniques are counted and not their rules; where there are too many, those with most alerts are shown and how
    many there are is said, in the page as well."""
    tables = open_tables(str(tmp_path / "tables"))
    write(tables, COVERAGE, *(covered(f"rule-{n:04}", "T1003") for n in range(2100)), covered("rule-z", "T1110"))
    windows(tables, ("high", "rule-z", 1))
    report = report_of(tables)
    cells = report.findings.matrix.tactics["credential-access"]
    assert [(one.technique, one.alerts, one.rules.of) for one in cells] == [("T1003", 0, 2100), ("T1110", 1, 1)]
    assert (report.findings.matrix.of, report.findings.matrix.never_fired.of) == (2, 2101)
    assert "; and 2,080 more" in page.html(report)
    monkeypatch.setattr(findings, "MAX_TECHNIQUES", 1)
    cut = report_of(tables)
    assert [one.technique for one in cut.findings.matrix.tactics["credential-access"]] == ["T1110"]
    assert "The 1 with most alerts of 2," in page.html(cut)


@pytest.mark.spark
def test_nothing_that_a_terminal_or_a_browser_obeys(report: Report) -> None:
    """No escape sequence, control character or turn of direction in text or page; hostile markup is text in both."""
    shown = page.html(report)
    for one in (shown, text.text(report)):
        assert not CONTROL.search(one.replace("\n", ""))
        assert "gnp.exe" in one
    assert "<script>document" not in shown
    assert "<img" not in shown
    assert "&lt;script&gt;document.title" in shown
    assert "{{7*7}}" in shown
    tags = Tags(shown)
    assert tags.names.isdisjoint({"src", "style", "onerror", "onclick", "action", "srcdoc"})
    assert {link for link in tags.links if not link.startswith("#")} == {
        "https://attack.mitre.org/techniques/T1003/",
        "https://attack.mitre.org/techniques/T1110/",
    }


@pytest.mark.spark
@needs_browser
@pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), pytest.param(1280, True, marks=pytest.mark.long), (390, False)]
)
def test_the_page_in_a_browser(browser: Browser, report: Report, tmp_path: Path, width: int, dark: bool) -> None:
    """No word in the console, no request, nothing wider than the window; chart drawn, hostile text shown, not run."""
    show(browser, tmp_path, page.html(report), width=width, height=844, dark=dark)
    assert browser.errors() == []
    assert browser.asked() == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.title") == "Vedette report, Friday, 20 November 2026"
    assert browser.run("document.querySelectorAll('img, iframe, link, form').length") == 0
    assert browser.run("document.querySelectorAll('script').length") == 2
    assert "<script>document.title='owned'</script>" in browser.run("document.body.innerText")
    ink = """(() => { const c = document.querySelector('#plot canvas'), d = c.getContext('2d')
        .getImageData(0, 0, c.width, c.height).data; return d.filter((v, i) => i % 4 === 3 && v > 0).length; })()"""
    assert browser.run(ink) > 1000
    back = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(16, 20, 26)") is dark
    assert len(browser.picture()) > 10_000


@pytest.mark.spark
@needs_browser
def test_what_the_page_does(browser: Browser, report: Report, tmp_path: Path) -> None:
    """A touched cell tells its numbers, a link opens its campaign, a filter hides, a heading sorts."""
    show(browser, tmp_path, page.html(report))
    browser.run("document.querySelector('.heat td[title]').click()")
    assert re.search(r": \d+ alerts, \d+ matches$", browser.run("document.getElementById('told').textContent"))
    assert browser.run("document.getElementById('campaign-1').open") is False
    browser.run("document.querySelector('.first a[href=\"#campaign-1\"]').click()")
    assert browser.run("new Promise(r => setTimeout(() => r(document.getElementById('campaign-1').open), 200))") is True
    browser.run("""(() => { const box = document.querySelector('[data-of="campaign-list"]'); box.value = 'within an H';
        box.dispatchEvent(new Event('input')); })()""")
    assert browser.run("[...document.querySelectorAll('details.item')].map((one) => one.hidden)") == [False, True]
    column = "[...document.querySelectorAll('#rules tbody tr')].map((row) => row.cells[2].textContent)"
    assert browser.run(column) == ["5", "1"]
    browser.run("document.querySelectorAll('#rules th')[2].click(); document.querySelectorAll('#rules th')[2].click()")
    assert browser.run(column) == ["1", "5"]
    assert browser.errors() == []


CONTRAST = """(() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => linear(v / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const behind = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor);
        if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
    const found = {}, walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    document.querySelectorAll('details').forEach((one) => { one.open = true; });
    while (walk.nextNode()) {
        const e = walk.currentNode.parentElement;
        if (!walk.currentNode.data.trim() || e.closest('script, style, svg, .vh, .skip, #plot')) continue;
        if (!e.checkVisibility()) continue;
        const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) found[e.tagName + '.' + e.className] = ratio.toFixed(2);
    }
    return found; })()"""
"""Texts of which the contrast is below 4.5 : 1 (WCAG 2.2, 1.4.3), by element and class."""


@pytest.mark.spark
@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(browser: Browser, report: Report, tmp_path: Path, dark: bool) -> None:
    """No text has too little contrast, light or dark, parts that are folded away included."""
    show(browser, tmp_path, page.html(report), dark=dark)
    assert browser.run(CONTRAST) == {}


@pytest.mark.spark
@needs_browser
def test_the_page_by_keyboard_and_to_a_screen_reader(browser: Browser, report: Report, tmp_path: Path) -> None:
    """Headers name their columns, what scrolls has a name and takes the focus, a heading sorts by Enter and says so,
    and the heat map is one stop of Tab in which the arrows go on."""
    show(browser, tmp_path, page.html(report))
    heads = "[...document.querySelectorAll('.sort th, .heat th, .small th')]"
    assert browser.run(f"{heads}.filter((one) => !one.scope).length") == 0
    hidden = "[...document.querySelectorAll('table.sort')].filter((one) => !one.closest('[role=region]'))"
    assert browser.run(f"{hidden}.length") == 0
    assert browser.run("[...document.querySelectorAll('[role=region]')].filter((one) => !(one.ariaLabel && "
                       "one.tabIndex === 0)).length") == 0  # fmt: skip
    assert browser.run("[...document.querySelectorAll('input')].filter((one) => !one.ariaLabel).length") == 0
    assert browser.run("document.querySelectorAll('h1').length") == 1
    browser.run("document.querySelectorAll('#rules th button')[2].focus()")
    browser.press("Enter")
    assert browser.run("document.querySelectorAll('#rules th')[2].ariaSort") == "descending"
    cells = "[...document.querySelectorAll('.heat td[title]')]"
    assert browser.run(f"{cells}.filter((one) => one.tabIndex === 0).length") == 1
    browser.run(f"{cells}[0].focus()")
    first = browser.run("document.activeElement.title")
    assert browser.run("document.getElementById('told').textContent") == first
    row = "document.activeElement.parentNode.rowIndex"
    at = browser.run(row)
    browser.press("ArrowDown")
    moved = browser.run(row)
    browser.press("ArrowRight")
    assert (moved, browser.run(row)) == (at, at) or moved == at + 1
    assert browser.run(f"{cells}.filter((one) => one.tabIndex === 0).length") == 1
    assert browser.errors() == []


@pytest.mark.spark
@needs_browser
def test_the_policy_stops_what_is_not_the_page_s_own(browser: Browser, report: Report, tmp_path: Path) -> None:
    """A script, a style and an image that are put into the page do nothing; the browser says why."""
    added = "<script>window.owned = 1</script><p id='styled' style='color: red'>x</p><img src='http://127.0.0.1:9/x'>"
    show(browser, tmp_path, page.html(report).replace("<footer>", f"{added}<footer>"))
    assert browser.run("window.owned") is None
    assert browser.run("getComputedStyle(document.getElementById('styled')).color") != "rgb(255, 0, 0)"
    assert len([one for one in browser.errors() if "Content Security Policy" in one]) >= 3


@needs_browser
def test_without_tables_there_are_sentences(browser: Browser, tmp_path: Path) -> None:
    """Where no job has written anything, every section says so; no error, in text and in the browser."""
    empty = report_of(open_tables(str(tmp_path / "tables")), days=7)
    assert "No alerts." in text.text(empty)
    show(browser, tmp_path, page.html(empty))
    assert browser.errors() == []
    said = browser.run("[...document.querySelectorAll('section[id] .none')].map((one) => one.closest('section').id)")
    assert set(said) == {anchor for anchor, _ in page.SECTIONS}


@pytest.mark.spark
def test_missing_alerts_by_runs_of_numbers(spark: SparkSession, tmp_path: Path) -> None:
    """Runs that overlap or come late leave only real gaps, by numbering; a gap that other days show is theirs."""
    tables = open_tables(str(tmp_path / "tables"))
    runs = [
        ("agent-1", "a", 1, 10, 0), ("agent-1", "a", 5, 12, 0), ("agent-1", "a", 20, 30, 1),
        ("agent-1", "a", 15, 16, 30), ("agent-1", "b", 1, 5, 2), ("agent-2", "a", 1, 3, 0), ("agent-2", "a", 8, 9, 30),
    ]  # fmt: skip
    rows = []
    for agent, numbering, first, last, hours in runs:
        run = {"agent_id": agent, "fleet": "north", "log_id": numbering * 32, "first": first, "last": last}
        at = NOON_HOUR + timedelta(hours=hours)
        rows.append({**run, "received_at": at, "date": f"{at:%Y-%m-%d}"})
    tables.append(SEQS, pa.Table.from_pylist(rows))
    for day, missing in ((THE_DAY, {"agent-1": 3}), (THE_DAY + timedelta(days=1), {"agent-1": 2, "agent-2": 4})):
        for reader in (open_reader(tables, None), *([Sparks(tables, spark)] if day == THE_DAY else [])):
            account = accounts(reader, period(day, 1))
            reader.close()
            assert {one.agent_id: one.missing for one in account.agents.items if one.missing} == missing
            assert account.fleet.missing == sum(missing.values())


def test_a_day_without_alerts_names_days_that_have_some(tmp_path: Path) -> None:
    """Who asks for the wrong day is told the right ones; tables of other jobs are not there."""
    tables = f"--tables={tmp_path / 'tables'}"
    windows(open_tables(str(tmp_path / "tables")), ("high", "rule-a", 11), ("high", "rule-a", 12))
    html = tmp_path / "page.html"
    said = run(None, "report", tables, "--date=2026-11-25", f"--html={html}")
    assert "Days with alerts\n  day         alerts\n  2026-11-20       2\n" in said
    assert "2026-11-20: 2 alerts" in html.read_text("utf-8")
    said = run(None, "report", tables, "--date=2026-11-20")
    assert "2 alerts by 1 rule" in said


def test_text_keeps_one_line_a_row_and_cuts_long_cells() -> None:
    """A cell with line ends or of any length stays in its row; numbers stand right; an empty section says so."""
    section = Section("Hosts", ("host", "alerts"), (("a\nb", 5), ("x" * 200, 1234567)))
    assert lines(section) == [
        "  host" + " " * 61 + "alerts",
        "  a b" + " " * 67 + "5",
        "  " + "x" * 59 + "…  1,234,567",
    ]
    assert lines(Section("None", ("a",), ())) == ["  none"]
