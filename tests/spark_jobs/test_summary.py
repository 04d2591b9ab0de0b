"""The day's summary: the right numbers from the tables, and nothing in it that a terminal or a browser obeys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs import ingest, render
from spark_jobs.render import Section, Summary
from spark_jobs.summary import summarise
from spark_jobs.tables import open_tables
from tests.spark_jobs.landed import HOUR, MINUTE, NOON, alert, arrow_schema, land, place
from vedette.outbox import envelope
from vedette.report import Counters

HOSTILE = "<script>alert(1)</script>&\"'\x1b[31mred\x1b[0m\r\n\u202egnp.exe\x00\x9b2J\ttab"

NOON_HOUR = datetime(2026, 11, 20, 12, tzinfo=UTC)

SUMMARY = Summary(
    day="2026-11-20",
    alerts=1,
    matches=2,
    rules=1,
    sites=1,
    hosts=1,
    hours=(0,) * 12 + (1,) + (0,) * 11,
    sections=(
        Section("Rules", ("rule", "level", "alerts"), ((HOSTILE, "critical", 1234), ("ok", HOSTILE, None)), HOSTILE),
        Section(HOSTILE, ("a",), ()),
    ),
)


class Page(HTMLParser):
    """Every tag, attribute and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_holds_text_and_no_foreign_markup() -> None:
    """Hostile cells, titles and notes show as text; the page has the template's tags only, no script and no address."""
    html = render.as_html(SUMMARY)
    page = Page(html)
    assert "<script>alert(1)</script>&\"'" in page.text
    assert page.tags.isdisjoint({"script", "img", "link", "iframe", "a", "base", "form"})
    assert page.names == {"lang", "charset", "http-equiv", "content", "name", "class", "style", "title"}
    assert not re.search(r"https?:|url\(|@import", html)
    assert "default-src 'none'" in html


@pytest.mark.parametrize("show", [render.as_text, render.as_html])
def test_nothing_that_a_terminal_obeys_is_shown(show: Callable[[Summary], str]) -> None:
    """Escape sequences, control characters and marks that turn text around are replaced in text and in HTML."""
    shown = show(SUMMARY)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert "gnp.exe" in shown


def test_text_keeps_one_line_a_row_and_cuts_long_cells() -> None:
    """A cell with line ends or of any length stays in its row; numbers stand right; an empty section says so."""
    section = Section("Hosts", ("host", "alerts"), (("a\nb", 5), ("x" * 200, 1234567)))
    lines = render.as_text(Summary("2026-11-20", 1, 1, 1, 1, 1, (0,) * 24, (section, Section("None", ("a",), ()))))
    assert lines.splitlines() == [
        "Vedette summary of 2026-11-20 (UTC)",
        "1 alert standing for 1 match, by 1 rule, on 1 host at 1 site.",
        "",
        "Hosts",
        "  host" + " " * 61 + "alerts",
        "  a b" + " " * 67 + "5",
        "  " + "x" * 59 + "…  1,234,567",
        "",
        "None",
        "  none",
    ]


@pytest.mark.spark
def test_a_day_is_summed_up(spark: SparkSession, tmp_path: Path) -> None:
    """Levels, rules, hosts, entities, gravest alerts, agents with gaps, what could not be read: as by hand."""
    landing, tables = tmp_path / "landing", open_tables(str(tmp_path / "tables"))
    day = date(2026, 11, 20)
    ips = [[{"kind": "ip", "value": f"203.0.113.{i % 2}"}] * 2 for i in range(6)]
    rows = [
        *(alert(i, host=f"web{i % 2}", entities=ips[i]) for i in range(6) if i != 3),
        alert(6, kind="fold", count=100, entities=ips[0]),
        alert(7, level="critical", rule_id="rule-b", rule_title=HOSTILE, raw=HOSTILE, site="office", entities=[]),
        alert(1, agent_id="agent-2", event_time=NOON - 30 * HOUR),
    ]
    land(landing, rows)
    place(landing, b"garbage", at=NOON_HOUR)
    counters = Counters()
    counters.received["syslog"] = counters.stored["syslog"] = 9
    for minute, state in ((0, "running"), (1, "lost")):
        payload = json.dumps({"agent_id": "agent-1", "state": state, "version": "0.1", **counters.snapshot()})
        beat = envelope.status_row(
            payload.encode(), fleet="north", agent_id="agent-1", received_at=NOON + minute * MINUTE, collector_id="c",
            topic="t",
        )  # fmt: skip
        land(landing, [beat], table="status", schema=arrow_schema(envelope.STATUS))
    place(landing, b"garbage", at=NOON_HOUR, table="status")
    letter = envelope.bad_row(b"\xff", topic="vedette/v1/n/a/alerts", reason="is not msgpack", received_at=NOON)
    land(landing, [letter], table="bad", schema=arrow_schema(envelope.BAD))
    ingest.take_over(spark, tables, ingest.landing_sources(str(landing)))

    summary = summarise(spark, tables, day, top=3)

    assert (summary.alerts, summary.matches, summary.rules, summary.sites, summary.hosts) == (6, 106, 2, 2, 3)
    assert [hour for hour, n in enumerate(summary.hours) if n] == [12]
    sections = {section.title: section.rows for section in summary.sections}
    assert sections["Levels"] == (("critical", 1, 1), ("high", 5, 105))
    assert sections["Rules"] == (
        ("Failed logins", "high", 5, 105, 1, 2, "rule-a"),
        (HOSTILE, "critical", 1, 1, 1, 1, "rule-b"),
    )
    assert sections["Hosts"][0] == ("web0", "plant", "north", 3, 3, 1)
    assert sections["Entities"] == (("ip", "203.0.113.0", 3, 1, 1), ("ip", "203.0.113.1", 2, 1, 1))
    assert [row[1] for row in sections["Gravest alerts"]] == ["critical", "high", "high"]
    assert sections["Agents"] == (
        ("agent-1", "lost", "2026-11-20 12:01:00", "0.1", None, 9, 9, 0, 0, 0, 7, 1),
        ("agent-2", None, None, None, None, None, None, None, None, None, 1, 0),
    )
    assert [(row[0], row[3]) for row in sections["Could not be read"]] == [("file", 0), ("file", 0), ("message", 1)]
    assert "203.0.113.1" in render.as_text(summary)
    assert "\x1b" not in render.as_html(summary)


@pytest.mark.spark
def test_a_day_without_alerts_says_which_days_have_some(spark: SparkSession, tmp_path: Path) -> None:
    """No tables, or none for the day, is an empty summary; days that have alerts are then named."""
    tables = open_tables(str(tmp_path / "tables"))
    empty = summarise(spark, tables, date(2026, 11, 20))
    assert "No alerts." in render.as_text(empty)
    land(tmp_path / "landing", [alert(1)])
    ingest.take_over(spark, tables, ingest.landing_sources(str(tmp_path / "landing")))
    other = summarise(spark, tables, date(2026, 11, 25))
    assert other.sections[-1] == Section("Days with alerts", ("day", "alerts"), (("2026-11-20", 1),))
