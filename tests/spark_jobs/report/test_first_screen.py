"""What a reader sees first: every critical campaign, red cells where critical alerts are, and nothing made up."""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.common.period import last_hours, period
from spark_jobs.jobs.report import figures
from spark_jobs.report import page, text
from spark_jobs.report.accounts import troubles
from spark_jobs.report.findings import MAX_RISKS
from spark_jobs.report.headline import Report, cards, look_first, unnamed_risks
from spark_jobs.report.notices import notices
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.ask import open_reader
from spark_jobs.tables.schema import (
    AGENTS,
    ALERTS,
    ANOMALIES,
    CAMPAIGNS,
    COVERAGE,
    HEARTBEATS,
    NOISE,
    RISK,
    RULES,
    SEQS,
    TRIAGE,
    WIN_5M,
)  # fmt: skip
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.browser import CHROMIUM, Browser
from tests.spark_jobs.found import AT, anomaly, campaign, covered, write, write_all
from tests.spark_jobs.landed import DAY, alert

needs_browser = pytest.mark.skipif(not CHROMIUM, reason="no Chromium: run tools/packages.sh")


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return open_tables(str(tmp_path / "tables"))


def report_of(tables: Tables, days: int = 1) -> Report:
    reader = open_reader(tables, None)
    try:
        return figures(reader, period(date.fromisoformat(DAY), days))
    finally:
        reader.close()


def count(tables: Tables, *rows: dict[str, Any]) -> None:
    """Rows of ``win_5m``."""
    common = {"date": DAY, "window_start": AT, "fleet": "north", "matches": 1, "first_time": AT, "last_time": AT}
    tables.upsert(WIN_5M, pa.Table.from_pylist([{**common, **row} for row in rows]))


def test_dead_rules_are_no_trouble(tables: Tables) -> None:
    """A healthy agent whose rule set holds rules for other hosts is not in trouble; the page says how many are dead."""
    agent = {"fleet": "north", "agent_id": "edge-1", "state": "running", "dead_rules": 17, "last_seen": AT}
    tables.upsert(AGENTS, pa.Table.from_pylist([agent]))
    beat = {"date": DAY, "fleet": "north", "agent_id": "edge-1", "received_at": AT}
    tables.append(HEARTBEATS, pa.Table.from_pylist([beat]))
    report = report_of(tables)
    (shown,) = report.accounts.agents.items
    assert (troubles(shown), shown.trouble, report.accounts.fleet.troubled) == ([], 0, 0)
    assert '<td class="n">17</td>' in page.html(report)


def test_numbers_at_their_end(tables: Tables) -> None:
    """What an agent says is no sum's end: counts and numbers of alerts at the end of 64 bits."""
    last = (1 << 63) - 1
    agent = {"fleet": "north", "state": "running", "last_seen": AT}
    counters = dict.fromkeys(("received", "stored", "judged", "dropped", "lost", "in_outbox", "dead_rules"), last)
    tables.upsert(AGENTS, pa.Table.from_pylist([{**agent, **counters, "agent_id": name} for name in ("a", "b")]))
    run = {"date": DAY, "fleet": "north", "log_id": "0" * 32, "received_at": AT, "batch": "b"}
    ends = [(name, number) for name in ("a", "b") for number in (0, last, last)]
    tables.append(SEQS, pa.Table.from_pylist([{**run, "agent_id": name, "first": n, "last": n} for name, n in ends]))
    accounts = report_of(tables).accounts
    assert (accounts.fleet.events, accounts.fleet.missing) == (last, last)
    assert [(row.agent_id, row.received, row.missing) for row in accounts.agents.items] == [
        ("a", last, last - 1),
        ("b", last, last - 1),
    ]


def test_few_critical_alerts_among_many_are_seen(tables: Tables) -> None:
    """Sites and rules of the heat map are those with critical alerts, whatever number others have: its first cell is
    red, and as deep as the critical alerts are many among their like."""
    loud = [
        {"site": f"s{n:02}", "rule_id": f"r{n:02}", "level": "high", "rule_title": f"Loud {n}", "alerts": 90_000}
        for n in range(60)
    ]
    severe = {"site": "vault", "rule_id": "r-critical", "level": "critical", "rule_title": "Ransom note", "alerts": 9}
    count(tables, *loud, severe)
    heat = page.heat(report_of(tables).counts)
    assert (heat.rules[0], heat.rows[0].name) == ("r-critical", "north/vault")
    assert (heat.rows[0].cells[0].rank, heat.rows[0].cells[0].step) == (5, page.HEAT_STEPS - 1)


def test_every_critical_campaign_is_on_the_first_screen(tables: Tables) -> None:
    """However many others have a higher score: of others three, of critical ones all, and they are in the list."""
    many = [campaign(n, score=99.0, level="low", value=f"192.0.2.{n}") for n in range(120)]
    severe = [campaign(500 + n, score=51.0, level="critical", value=f"203.0.113.{n}") for n in range(15)]
    write(tables, CAMPAIGNS, *many, *severe)
    report = report_of(tables)
    first = [pointer for pointer in look_first(report) if pointer.kind == "campaign"]
    assert [pointer.level for pointer in first] == ["low"] * 3 + ["critical"] * 15
    listed = [campaign.value for campaign in report.findings.campaigns.items]
    anchors = [f"campaign-{listed.index(f'203.0.113.{n}') + 1}" for n in range(15)]
    assert [pointer.anchor for pointer in first[3:]] == anchors


def test_slow_and_low_is_not_buried_by_lone_critical_alerts(tables: Tables) -> None:
    """Entities whose points add up to more than it takes come before those that are over by one critical alert alone,
    however many these are; and those before whoever is not over."""
    risk = {"as_of": DAY, "kind": "user", "scope": "", "threshold": 100.0, "over": True, "first_seen": AT,
            "last_seen": AT, "level": "critical", "reason": "a critical alert"}  # fmt: skip
    lone = [{**risk, "risk_id": f"lone-{n}", "value": f"lone{n:03}", "score": 60.0 + n / 100} for n in range(MAX_RISKS)]
    slow = {**risk, "risk_id": "slow", "value": "slow", "score": 104.0, "level": "low", "reason": "14 rules"}
    calm = {**risk, "risk_id": "calm", "value": "calm", "score": 99.0, "level": "low", "over": False}
    write(tables, RISK, *lone, slow, calm)
    report = report_of(tables)
    values = [risk.value for risk in report.findings.risks.items]
    assert (values[0], values[1], "calm" in values) == ("slow", f"lone{MAX_RISKS - 1:03}", False)
    assert next(pointer.text for pointer in look_first(report) if pointer.kind == "risk") == "user slow: 14 rules"


def test_a_line_says_what_and_when(tables: Tables) -> None:
    """A risk names the rule that raised it most, and the critical pointer an alert of the rule that is newest, not the
    last one of what comes every day."""
    rules = [
        {"rule_id": "shell", "rule_title": "Reverse Shell", "first_time": AT, "last_time": AT},
        {"rule_id": "daily", "rule_title": "Daily", "first_time": AT - timedelta(days=30), "last_time": AT},
    ]
    tables.upsert(RULES, pa.Table.from_pylist([{**rule, "first_landed": AT, "level": "critical"} for rule in rules]))
    late = AT + timedelta(hours=2)
    common = {"received_date": DAY, "batch": "b", "level": "critical"}
    rows = [
        {**alert(1), **common, "rule_id": "shell", "rule_title": "Reverse Shell", "host": "db1", "counted_at": AT},
        {**alert(2), **common, "rule_id": "daily", "rule_title": "Daily", "host": "db2", "counted_at": late},
    ]
    tables.append(ALERTS, pa.Table.from_pylist(rows, arrow_schema(ALERTS.columns)))
    count(tables, {"site": "plant", "rule_id": "shell", "level": "critical", "alerts": 2})
    part = {"points": 60.0, "time": AT, "rule_id": "shell", "level": "critical", "tactic": "", "alerts": 1, "why": ""}
    risk = {"as_of": DAY, "risk_id": "r", "kind": "user", "value": "root", "scope": "", "score": 104.0, "level": "high",
            "threshold": 100.0, "over": True, "first_seen": AT, "last_seen": AT, "reason": "104 points", "rules": 9,
            "days": 10, "contributions": [{**part, "rule_id": "daily", "points": 3.0}, part]}  # fmt: skip
    write(tables, RISK, risk)
    first = {pointer.kind: pointer for pointer in look_first(report_of(tables))}
    assert first["risk"].text == "user root: Reverse Shell, 12 hours ago; 9 rules in 10 days"
    assert first["critical"].note == "of a new rule: Reverse Shell on db1, 12 hours ago"


def test_an_incident_is_one_line(tables: Tables) -> None:
    """Its line is the leader's and names the first of the others; once the leader is closed, each has its own line.
    What came lately goes before what has more points of earlier days."""
    part = {"points": 60.0, "time": AT, "rule_id": "rule-a", "level": "high", "tactic": "", "alerts": 1, "why": ""}
    risk = {"as_of": DAY, "threshold": 50.0, "over": True, "first_seen": AT, "last_seen": AT, "level": "high",
            "scope": "", "reason": "9 rules", "rules": 2, "days": 2, "contributions": [part]}  # fmt: skip
    old = {**part, "points": 200.0, "time": AT - timedelta(days=9)}
    write(tables, RISK, *(
        {**risk, "risk_id": name, "kind": kind, "value": name, "score": score, "leader": leader, **more}
        for name, kind, score, leader, more in (
            ("before", "user", 200.0, "before", {"contributions": [old]}), ("kim", "user", 60.0, "kim", {}),
            ("web1", "host", 90.0, "kim", {}), ("web2", "host", 80.0, "kim", {}),
        )
    ))  # fmt: skip
    report = report_of(tables)
    shown = [pointer for pointer in look_first(report) if pointer.kind == "risk"]
    assert [pointer.text.partition(":")[0] for pointer in shown] == ["user kim", "user before"]
    assert [pointer.note for pointer in shown] == ["with host web1 and 1 other", ""]
    assert [row["alert_id"] for row in notices(report) if row["kind"] == "risk"] == ["before", "kim"]
    decided = {"finding_id": "kim", "kind": "risk", "author": "ann", "reason": "r", "updated_at": AT}
    tables.append(TRIAGE, pa.Table.from_pylist([{**decided, "state": "acknowledged"}], arrow_schema(TRIAGE.columns)))
    noticed = {row["alert_id"] for row in notices(report_of(tables)) if row["kind"] == "risk"}
    assert noticed == {"before", "web1", "web2"}
    closed = {**decided, "state": "false-positive", "updated_at": AT + timedelta(seconds=1)}
    tables.append(TRIAGE, pa.Table.from_pylist([closed], arrow_schema(TRIAGE.columns)))
    assert [risk.value for risk in unnamed_risks(report_of(tables).findings)] == ["before", "web1", "web2"]


def test_a_host_of_a_campaign_is_no_finding_of_its_own(tables: Tables) -> None:
    """What an attack did to the hosts on its way is in its steps. A host that is over its threshold without that is a
    finding, and so is one of the same name at another site, and each of a campaign that is closed."""
    write(tables, CAMPAIGNS, campaign(1, level="critical"))
    hosts = ("met", "busy", "later", "struck", "long ago")
    rows = [{**alert(n), "host": host, "counted_at": AT, "batch": "made"} for n, host in enumerate(hosts)]
    tables.append(ALERTS, pa.Table.from_pylist(rows, arrow_schema(ALERTS.columns)))
    part = {"points": 90.0, "time": AT, "rule_id": "rule-a", "level": "high", "tactic": "", "alerts": 1, "why": ""}
    more = {"met": {}, "busy": {"rule_id": "rule-z"}, "later": {"time": AT + timedelta(days=1)},
            "struck": {"rule_id": "rule-z", "level": "critical", "points": 20.0},
            "long ago": {"rule_id": "rule-z", "level": "critical", "points": 1.0,
                         "time": AT - timedelta(days=8)}}  # fmt: skip
    risk = {"as_of": DAY, "kind": "host", "threshold": 100.0, "over": True, "first_seen": AT, "last_seen": AT,
            "level": "high", "reason": "9 rules", "updated_at": AT}  # fmt: skip
    write(tables, RISK, *(
        {**risk, "risk_id": f"{site}-{host}", "value": host, "scope": f"north/{site}",
         "score": 150.0 if host == "struck" else 220.0 - n, "others_points": 40.0 - n,
         "contributions": [part, {**part, **more[host]}]}
        for site, some in (("plant", hosts), ("office", ["met"])) for n, host in enumerate(some)
    ))  # fmt: skip
    report = report_of(tables)
    assert len(report.findings.campaigns.items[0].steps[0]["hosts"].items) == 3
    named = {f"{risk.value} {risk.scope}" for risk in unnamed_risks(report.findings)}
    others = {"met north/office", "busy north/plant", "later north/plant", "struck north/plant"}
    assert named == others
    shown = [pointer.text.partition(":")[0] for pointer in look_first(report) if pointer.kind == "risk"]
    assert len(shown) == 4
    assert "host met at north/plant" not in shown
    assert {row["alert_id"] for row in notices(report) if row["kind"] == "risk"} == {
        f"{name.partition(' ')[2].partition('/')[2]}-{name.partition(' ')[0]}" for name in others
    }
    decided = {"finding_id": "campaign-1", "kind": "campaign", "state": "false-positive", "author": "ann",
               "reason": "r", "updated_at": AT + timedelta(days=9)}  # fmt: skip
    write(tables, TRIAGE, decided)
    assert len(unnamed_risks(report_of(tables).findings)) == 6


def test_no_kind_of_anomaly_crowds_out_another(tables: Tables) -> None:
    """Of 300 new rules, 3 bursts and a silence with lower scores all but some of the rules are listed, by score, and
    noticed; the first screen has two of each kind, of rules those that are new in the fleet."""
    rules = [anomaly(n, kind="new_rule", rule_id=f"rule-{n}", score=40.0 + n / 10, observed=1.0) for n in range(300)]
    fleet = anomaly(300, kind="new_rule", fleet="", site="", rule_id="fresh", score=12.0, observed=18_000.0)
    bursts = [anomaly(400 + n, kind="burst", rule_id="r", observed=90.0, score=6.0 + n) for n in range(3)]
    write(tables, ANOMALIES, *rules, fleet, *bursts, anomaly(500, score=7.0))
    report = report_of(tables)
    listed = report.findings.anomalies
    kinds = [anomaly.kind for anomaly in listed.items]
    assert (len(kinds), listed.of, kinds.count("burst"), kinds.count("silence")) == (200, 305, 3, 1)
    scores = [anomaly.score for anomaly in listed.items]
    assert scores == sorted(scores, reverse=True)
    first = [(pointer.kind, pointer.text) for pointer in look_first(report) if pointer.anchor == "anomalies"]
    assert [kind for kind, _ in first] == ["gone quiet", "burst", "burst", "new rule", "new rule"]
    assert first[-2:] == [
        ("new rule", "the fleet, fresh: 18,000 alerts, none before"),
        ("new rule", "north/office, rule-299: 1 alert, none before"),
    ]
    sent = [row["kind"] for row in notices(report)]
    assert (sent.count("burst"), sent.count("silence")) == (3, 1)
    assert "the fleet" in page.html(report)


def test_steps_name_their_hosts(tables: Tables) -> None:
    """Of each step the first hosts that were met, within the campaign's time, and how many there are beyond."""
    write(tables, CAMPAIGNS, campaign(1))
    times = {f"web{n}": AT + timedelta(minutes=n) for n in range(5)} | {"later": AT + timedelta(hours=9)}
    rows = [{**alert(n), "host": host, "counted_at": at, "batch": "made"} for n, (host, at) in enumerate(times.items())]
    tables.append(ALERTS, pa.Table.from_pylist(rows, arrow_schema(ALERTS.columns)))
    first, second = report_of(tables).findings.campaigns.items[0].steps
    assert (first["hosts"].items, first["hosts"].of) == (("web0", "web1", "web2"), 5)
    assert second["hosts"].items == ()
    assert "web0, web1, web2; and 2 more" in page.html(report_of(tables))


def test_a_campaign_tells_its_story(tables: Tables) -> None:
    """Stages in order, entities, what is against it, what is new, where the rows have them; hostile texts are text."""
    write(tables, CAMPAIGNS, campaign(1))
    report = report_of(tables)
    (line,) = report.findings.campaigns.items
    stage = {"first": AT, "last": AT, "tactic": "initial-access", "sites": ["north/plant"], "rules": ["r"], "alerts": 2}
    line.story, line.against, line.new_steps, line.confidence = (stage,), ("<b>one rule",), 3, 0.8
    line.entities = ({"kind": "ip", "value": "203.0.113.9"}, {"kind": "user", "value": "<i>ann"})
    shown = page.html(report)
    assert "<h3>Story</h3>" in shown
    assert "<b>Initial Access</b>" in shown
    assert "With user &lt;i&gt;ann." in shown
    assert "Against it: &lt;b&gt;one rule." in shown
    assert "3 new steps · confidence 80%" in shown
    for name in ("story", "against", "new_steps", "confidence", "entities"):
        setattr(line, name, None)
    assert "<h3>Story</h3>" not in page.html(report)


def test_one_is_no_plural_and_days_have_no_zero(tables: Tables) -> None:
    """ "1 burst", "8 November", and matches only where they differ from alerts."""
    write(tables, ANOMALIES, anomaly(1, kind="burst"), anomaly(2, kind="new_entity"), anomaly(3, kind="new_entity"))
    count(tables, {"site": "s", "rule_id": "r", "level": "high", "alerts": 1})
    report = report_of(tables, days=13)
    assert next(card.note for card in cards(report) if card.name == "anomalies") == "1 burst, 2 new entities"
    said = text.text(report)
    assert "Vedette report, 8 November to 20 November 2026" in said
    assert "\n1 alert by 1 rule, on 0 hosts at 1 site.\n" in said
    count(tables, {"site": "s", "rule_id": "r", "level": "high", "alerts": 0, "matches": 6})
    assert "\n1 alert (7 matches) by 1 rule," in text.text(report_of(tables, days=13))


def test_a_campaign_s_line_has_no_false_plural(tables: Tables) -> None:
    """ "1 site", "1 rule", "1 new step" where there is one; new steps are those since somebody decided something."""
    write(tables, CAMPAIGNS, campaign(1, sites=["north/plant"], rules=["rule-a"], alerts=1, new_steps=7))
    row = {
        "finding_id": "campaign-1",
        "state": "acknowledged",
        "author": "ann",
        "updated_at": AT + timedelta(minutes=9),
    }
    tables.append(TRIAGE, pa.Table.from_pylist([row], arrow_schema(TRIAGE.columns)))
    shown = page.html(report_of(tables))
    assert "1 site · 1 rule · 1 alert · open · Execution · 1 new step since " in shown
    assert not re.search(r"\b1 (sites|rules|alerts|hosts|days|tactics|matches|new steps)\b", shown)


def test_what_has_not_run_is_said_once(tables: Tables) -> None:
    """One place names the jobs whose tables are not there, and what runs them; a job that found nothing has run."""
    said = page.html(report_of(tables))
    assert said.count("have not run") == 1
    assert "ingest, campaigns, baselines, noise, coverage and risk have not run on these tables." in said
    assert "`vedette-spark all` runs every job" in text.text(report_of(tables))
    for table in (ALERTS, CAMPAIGNS, ANOMALIES, NOISE, RISK):
        tables.append(table, pa.table({}))
    assert report_of(tables).findings.unrun == ("coverage",)
    write(tables, COVERAGE, covered("rule-a", "T1110"))
    assert "not run" not in page.html(report_of(tables))


def test_techniques_have_names_and_links() -> None:
    """A technique's name and page; an id that ATT&CK does not have stays a text."""
    assert page.attack_name("T1110") == "Brute Force"
    assert page.attack_name("T1110.001") == "Brute Force: Password Guessing"
    assert page.attack_link("T1110.001") == "https://attack.mitre.org/techniques/T1110/001/"
    assert (page.attack_name("T9999"), page.attack_link("T1110.999"), page.attack_link('" onclick=')) == ("", "", "")


@needs_browser
def test_the_chart_s_legend_and_the_map_s_names(tables: Tables, tmp_path: Path) -> None:
    """Before any hour is pointed at the legend has the sums; on a phone the names of sites have a size of their own."""
    count(tables, {"site": "s", "rule_id": "r", "level": "critical", "alerts": 1895})
    write_all(tables)
    place = {"name": "Vienna", "latitude": 48.2, "longitude": 16.4}
    row = {**alert(1, site="s"), "counted_at": AT, "batch": "made", "place": place}
    tables.append(ALERTS, pa.Table.from_pylist([row], arrow_schema(ALERTS.columns)))
    (tmp_path / "report.html").write_text(page.html(report_of(tables, days=3)), "utf-8")
    size = "[...document.querySelectorAll('.names')].map((one) => getComputedStyle(one).display)"
    with Browser() as browser:
        browser.open(tmp_path / "report.html", width=1400)
        legend = browser.run("[...document.querySelectorAll('.u-legend :is(.u-label, .u-value)')]"
                             ".map((one) => one.textContent)")  # fmt: skip
        assert legend == ["hour", "all", "critical", "1,895"]
        assert browser.run(size) == ["inline", "none"]
        browser.open(tmp_path / "report.html", width=400)
        assert browser.run(size) == ["none", "inline"]
        assert browser.errors() == []


def test_last_night_is_on_the_screen_after_midnight(tables: Tables) -> None:
    """Five minutes into a day the screen has what the last 24 hours had, all that is open, and no more."""
    now = AT + timedelta(hours=12, minutes=5)
    for hours, level, alerts in ((-13, "low", 7), (-11, "low", 1), (11, "critical", 2)):
        at = AT + timedelta(hours=hours)
        row = {"date": f"{at:%Y-%m-%d}", "window_start": at, "level": level, "alerts": alerts}
        count(tables, {"site": "office", "rule_id": "shell", "rule_title": "Shell", **row})
    night, days_ago = AT + timedelta(hours=11), AT - timedelta(days=4)
    write(
        tables, CAMPAIGNS,
        campaign(1, first_seen=night, last_seen=night),
        campaign(2, first_seen=days_ago, last_seen=days_ago, state="closed"),
        campaign(3, first_seen=days_ago, last_seen=days_ago, date=f"{days_ago:%Y-%m-%d}"),
    )  # fmt: skip
    earlier = {"date": f"{days_ago:%Y-%m-%d}", "started_at": days_ago}
    write(
        tables, ANOMALIES, anomaly(1, started_at=night, ended_at=now), anomaly(2, ended_at=now, **earlier),
        anomaly(3, ended_at=now, kind="new_rule", **earlier), anomaly(4, ended_at=days_ago, **earlier),
    )  # fmt: skip
    reader = open_reader(tables, None)
    try:
        report = figures(reader, last_hours(now))
    finally:
        reader.close()
    assert (report.counts.now.alerts, report.counts.before.alerts) == (3, 7)
    assert {row.campaign_id for row in report.findings.campaigns.items} == {"campaign-1", "campaign-3"}
    assert {row.anomaly_id for row in report.findings.anomalies.items} == {"anomaly-1", "anomaly-2"}
    assert "the last 24 hours up to Saturday, 21 November 2026, 00:05 (UTC): counts" in text.text(report)
    assert (report.period.hours, len(report.period.days)) == (25, 2)
    assert page.html(report)
