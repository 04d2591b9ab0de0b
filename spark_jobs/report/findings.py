"""What the other jobs found, for a report: campaigns with alerts of theirs, anomalies, noise, ATT&CK coverage.

Tables that are not there, or have nothing for the period, give empty lists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from spark_jobs.common.attack import TACTICS
from spark_jobs.common.period import Period
from spark_jobs.findings.weight import held_as, held_back
from spark_jobs.report.figures import ALERT, ALERT_COLUMNS, Line, Listed, in_period, lines
from spark_jobs.report.triage import NEW, decisions
from spark_jobs.tables.ask import Reader, severity, text, time, total
from spark_jobs.tables.schema import ALERTS, ANOMALIES, CAMPAIGNS, COVERAGE, NOISE, RISK, RUNS, Table
from spark_jobs.tables.tables import texts

MAX_CAMPAIGNS = 100
MAX_SAMPLED = 40
"""Of these, campaigns that are shown with alerts."""

MAX_SAMPLES = 5
MAX_OF_KIND, MAX_ANOMALIES = 40, 200
"""Of each kind, rules that are new in the fleet apart, at least so many are listed where there are, the first by score:
no kind crowds out another."""

MAX_LASTING = 30
"""Days before the last hours in which an anomaly may have begun that goes on in them."""

MAX_NOISE = 50
MAX_RISKS = 100
MAX_TECHNIQUES = 2_000
"""Techniques under a tactic, those with most alerts first."""

MAX_TITLES = 20
"""Of the rules of one of these."""

MAX_NEVER_FIRED = 500
MAX_ENTITIES = 8
"""Of a campaign, whose alerts and hosts are looked up."""

MAX_HOSTS, MAX_MET = 3, 100
"""Of a campaign's step, the first ones met: as many are shown, and looked up."""

JOBS = (("ingest", ALERTS), ("campaigns", CAMPAIGNS), ("baselines", ANOMALIES), ("noise", NOISE),
        ("coverage", COVERAGE), ("risk", RISK))  # fmt: skip
"""Each job that the report shows, and a table that it writes also when it finds nothing."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Techniques by tactic, in the order of an attack; ``as_of`` the day of the coverage, empty where no job wrote
    one: then only techniques of rules that have alerted are in it."""

    tactics: Mapping[str, tuple[Line, ...]]
    """Of each its ``alerts`` in the period, and the titles of its ``rules``."""
    of: int
    """Techniques under a tactic there are in all."""
    as_of: str
    never_fired: Listed
    """Titles of deployed rules that never alerted."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the other jobs say of a period."""

    campaigns: Listed
    """With ``triage``, what was decided about them, and ``samples``: their most severe alerts in the period, one a rule
    and site where there are enough."""
    open_campaigns: int
    """Of all of them, listed or not."""
    held_back: str
    """What is no campaign though evidence is there, and why, in words."""
    anomalies: Listed
    by_kind: Mapping[str, int]
    """Anomalies, all of them, by kind."""
    noise: Listed
    noise_as_of: str
    risks: Listed
    """Entities over their threshold first, with ``triage``."""
    over: int
    """Entities over their threshold, listed or not."""
    risks_as_of: str
    matrix: Matrix
    unrun: tuple[str, ...]
    """Jobs that have written nothing into these tables, and that ``all`` has not run."""


def findings(reader: Reader, period: Period, rules: Mapping[str, Line]) -> Findings:
    """The findings of ``period``; the views ``win`` and ``alerts`` are those of ``figures.counts``."""
    view_anomalies(reader, period)
    kinds = reader.rows("SELECT kind, count(*) AS n FROM anomalies GROUP BY kind ORDER BY kind")
    listed = lines(reader, _columns(_BY_KIND, ANOMALIES, _ANOMALY_ORDER, MAX_ANOMALIES))
    anomalies = tuple(sorted(listed, key=lambda anomaly: -(anomaly.score or 0)))
    noise_as_of, of_noise = _newest(reader, "noise", NOISE, period)
    noise = lines(reader, _columns("noise", NOISE, "coalesce(score, 0) DESC, rule_id", MAX_NOISE))
    campaigns, still_open, held = _campaigns(reader, period)
    risks_as_of, risks, over = _risks(reader, period)
    decided = decisions(
        reader,
        [campaign.campaign_id for campaign in campaigns.items]
        + [anomaly.anomaly_id for anomaly in anomalies]
        + [risk.risk_id for risk in risks.items],
        period.now,
    )
    for risk in risks.items:
        risk.triage = decided.get(risk.risk_id, NEW)
    for campaign in campaigns.items:
        campaign.triage = decided.get(campaign.campaign_id, NEW)
        if looked := campaign.triage.updated_at:
            campaign.new_steps = sum(step["time"] > looked for step in campaign.steps)
    for anomaly in anomalies:
        anomaly.triage = decided.get(anomaly.anomaly_id, NEW)
    reader.view("runs", RUNS)
    ran = {row["job"] for row in reader.rows("SELECT job FROM runs")}
    return Findings(
        campaigns=campaigns,
        open_campaigns=still_open,
        held_back=held,
        anomalies=Listed(anomalies, sum(row["n"] for row in kinds)),
        by_kind={row["kind"] or "": row["n"] for row in kinds},
        noise=Listed(noise, of_noise),
        noise_as_of=noise_as_of,
        risks=risks,
        over=over,
        risks_as_of=risks_as_of,
        matrix=_matrix(reader, period, rules),
        unrun=tuple(job for job, table in JOBS if job not in ran and not reader.has(table)),
    )


_FIRST_ANOMALY = f"coalesce(score, 0) DESC, {severity()} DESC, started_at, fleet, site, rule_id, anomaly_id"
_ANOMALY_ORDER = f"CASE WHEN place <= {MAX_OF_KIND} THEN 0 ELSE 1 END, {_FIRST_ANOMALY}"
_BY_KIND = f"""(SELECT *, row_number() OVER (PARTITION BY kind, site = '' ORDER BY {_FIRST_ANOMALY}) AS place
FROM anomalies) a"""


def view_anomalies(reader: Reader, period: Period) -> None:
    """The view ``anomalies`` of ``period``; where that is the last hours, with what began before and went on in it."""
    if period.begin is None:
        return reader.view("anomalies", ANOMALIES, period.since, period.until)
    since = (period.first - timedelta(days=MAX_LASTING)).isoformat()
    ended = "CASE WHEN kind IN ('burst', 'silence') THEN coalesce(ended_at, started_at) ELSE started_at END"
    return reader.view("anomalies", ANOMALIES, since, period.until, only=f"{ended} >= {time(period.start)}")


def _columns(view: str, table: Table, order: str, limit: int) -> str:
    """SQL: the columns of a table; texts and counts never null."""
    types = {field.name: field.dataType.simpleString() for field in table.columns.fields}
    empty = {"string": "''", "bigint": "0"}
    names = (f"coalesce({n}, {empty[types[n]]}) AS {n}" if types[n] in empty else n for n in types)
    return f"SELECT {', '.join(names)} FROM {view} ORDER BY {order} LIMIT {limit}"


def _newest(reader: Reader, view: str, table: Table, period: Period) -> tuple[str, int]:
    """Let ``view`` be the newest day of ``table`` up to the period's end, else the oldest; which, and its rows."""
    reader.view(view, table)
    days = reader.only(
        f"SELECT max(CASE WHEN as_of <= '{period.until}' THEN as_of END) AS last, min(as_of) AS first FROM {view}"
    )
    as_of = days["last"] or days["first"] or ""
    reader.view(view, table, as_of, as_of)
    return as_of, reader.only(f"SELECT count(*) AS n FROM {view}")["n"] if as_of else 0


def _risks(reader: Reader, period: Period) -> tuple[str, Listed, int]:
    """The day of the newest risks, these, and how many of all are over their threshold."""
    as_of, number = _newest(reader, "risk", RISK, period)
    over = reader.only(f"SELECT {total('CASE WHEN over THEN 1 ELSE 0 END', 'n')} FROM risk")["n"]
    # Those that are over by a critical alert alone come after those whose points add up: the critical alerts have
    # a list of their own, what is slow and low has none.
    # Of an incident the one that leads comes before all that belong to any.
    leads = "CASE WHEN leader = risk_id THEN 0 ELSE 1 END"
    order = f"over DESC, {leads}, score / threshold DESC, kind, value, scope"
    risks = lines(reader, _columns("risk", RISK, order, MAX_RISKS))
    for risk in risks:
        risk.contributions = risk.contributions or ()
    return as_of, Listed(risks, number), over


def _campaigns(reader: Reader, period: Period) -> tuple[Listed, int, str]:
    """Campaigns alive in the period, how many of all these are open, and what is held back."""
    reader.view("campaigns", CAMPAIGNS, None, period.until)
    # A campaign that was taken back has no score.
    still = "false" if period.begin is None else "state = 'open'"
    alive = f"score > 0 AND (last_seen >= {time(period.start)} OR {still})"
    is_open = total("CASE WHEN state = 'open' THEN 1 ELSE 0 END", "still_open")
    number = reader.only(f"SELECT count(*) AS n, {is_open} FROM campaigns WHERE {alive}")
    order = "score DESC, last_seen DESC, campaign_id"
    # All critical ones, however many others have a higher score.
    chosen = f"CASE WHEN level = 'critical' THEN 0 ELSE 1 END, {order}"
    listed = lines(reader, _columns(f"campaigns WHERE {alive}", CAMPAIGNS, chosen, MAX_CAMPAIGNS))
    listed = tuple(sorted(listed, key=lambda campaign: -campaign.score))
    samples = _samples(reader, period, listed[:MAX_SAMPLED])
    hosts = _hosts(reader, listed[:MAX_SAMPLED])
    for campaign in listed:
        for name in ("sites", "rules", "tactics", "techniques", "steps"):
            setattr(campaign, name, getattr(campaign, name) or ())
        campaign.steps = tuple({**step, **_shown(hosts, campaign, step)} for step in campaign.steps)
        campaign.samples = tuple(samples.get(campaign.campaign_id, ()))
    held = reader.rows(
        f"""SELECT reason, count(*) AS n FROM (SELECT substr(reason, 1, instr(reason, ';')) AS reason FROM campaigns
        WHERE score = 0 AND last_seen >= {time(period.start)}) c GROUP BY reason"""
    )
    said = held_back({what: row["n"] for row in held if (what := held_as(row["reason"]))})
    return Listed(listed, number["n"]), number["still_open"], said


def _shown(hosts: Mapping[tuple[str, ...], Listed], campaign: Line, step: Mapping[str, Any]) -> dict[str, Any]:
    """The ``hosts`` of a step that are shown, and all that were looked up (``met``)."""
    met = hosts.get((campaign.campaign_id, step["fleet"], step["site"], step["rule_id"]), Listed())
    return {"hosts": Listed(met.items[:MAX_HOSTS], met.of), "met": met.items}


def _named(campaigns: Sequence[Line]) -> str:
    """SQL: campaign ``c`` is of the entity of kind ``k`` and value ``w``, from ``since`` to ``until``; for each."""
    return " UNION ALL ".join(
        f"SELECT {text(campaign.campaign_id)} AS c, {text(kind)} AS k, {text(value)} AS w, "
        f"{time(campaign.first_seen)} AS since, {time(campaign.last_seen)} AS until"
        for campaign in campaigns
        for kind, value in _entities(campaign)
    )


def _entities(campaign: Line) -> list[tuple[str, str]]:
    """Kinds and values of a campaign's first entities."""
    others = ((entity["kind"], entity["value"]) for entity in campaign.entities or ())
    return list(dict.fromkeys([(campaign.kind, campaign.value), *others]))[:MAX_ENTITIES]


def _samples(reader: Reader, period: Period, campaigns: Sequence[Line]) -> Mapping[str, Sequence[Line]]:
    """The most severe alerts of each campaign in the period, by its id, first one of each rule and site."""
    if not campaigns:
        return {}
    names = ", ".join(ALERT)
    rows = lines(
        reader,
        f"""SELECT c, {names} FROM (
            SELECT *, row_number() OVER (
                PARTITION BY c ORDER BY turn, {severity()} DESC, counted_at, agent_id, alert_id) AS place
            FROM (
                SELECT *, row_number() OVER (
                    PARTITION BY c, rule_id, fleet, site ORDER BY counted_at, agent_id, alert_id) AS turn
                FROM (
                    SELECT DISTINCT c, {names} FROM (
                        SELECT {ALERT_COLUMNS}, {{explode}}(entities) AS one
                        FROM alerts WHERE coalesce(kind, '') <> 'fold' AND {in_period(period)}) a
                    JOIN ({_named(campaigns)}) e
                    ON one.kind = e.k AND one.value = e.w AND counted_at BETWEEN since AND until) b) d) g
        WHERE place <= {MAX_SAMPLES} ORDER BY c, counted_at, alert_id""",
    )
    samples: dict[str, list[Line]] = defaultdict(list)
    for row in rows:
        samples[row.c].append(row)
    return samples


def _hosts(reader: Reader, campaigns: Sequence[Line]) -> dict[tuple[str, ...], Listed]:
    """The hosts that alerts about a campaign name, the first met first: by its id, fleet, site and rule."""
    if not campaigns:
        return {}
    start, end = min(campaign.first_seen for campaign in campaigns), max(campaign.last_seen for campaign in campaigns)
    reader.view("met", ALERTS, near={"counted_at": [(start, end)]})
    names = "c, fleet, site, rule_id"
    rows = reader.rows(
        f"""SELECT {names}, host, of_hosts FROM (
            SELECT *, row_number() OVER (PARTITION BY {names} ORDER BY first_time, host) AS place,
                count(*) OVER (PARTITION BY {names}) AS of_hosts
            FROM (
                SELECT {names}, host, min(counted_at) AS first_time FROM (
                    SELECT coalesce(fleet, '') AS fleet, coalesce(site, '') AS site, coalesce(rule_id, '') AS rule_id,
                        host, counted_at, {{explode}}(entities) AS one FROM met WHERE host <> '') a
                JOIN ({_named(campaigns)}) e
                ON one.kind = e.k AND one.value = e.w AND counted_at BETWEEN since AND until
                GROUP BY {names}, host) b) d
        WHERE place <= {MAX_MET} ORDER BY {names}, place"""
    )
    hosts: dict[tuple[str, ...], Listed] = {}
    for row in rows:
        key = (row["c"], row["fleet"], row["site"], row["rule_id"])
        hosts[key] = Listed((*hosts.get(key, Listed()).items, row["host"]), row["of_hosts"])
    return hosts


def _matrix(reader: Reader, period: Period, rules: Mapping[str, Line]) -> Matrix:
    """Rules' tactics and techniques by the coverage table, else by the tags of rules that have alerted."""
    as_of, _ = _newest(reader, "coverage", COVERAGE, period)
    if as_of:
        number = reader.only(f"SELECT count(*) AS n FROM ({_CELLS}) c")["n"]
        rows = lines(reader, f"{_CELLS} ORDER BY alerts DESC, technique, tactic LIMIT {MAX_TECHNIQUES}")
        cells = {(row.tactic, row.technique): _technique(row.technique, row.alerts, row.titles) for row in rows}
        silent = reader.rows(f"{_NEVER_FIRED} ORDER BY title, rule_id LIMIT {MAX_NEVER_FIRED}")
        of_silent = reader.only(f"SELECT count(*) AS n FROM ({_NEVER_FIRED}) r")["n"]
        never = Listed(tuple(row["title"] for row in silent), of_silent)
    else:
        cells, never = _by_tags(reader, rules), Listed(())
        number = len(cells)
    shown = sorted(cells, key=lambda cell: (-cells[cell].alerts, cell[1], cell[0]))[:MAX_TECHNIQUES]
    tactics = {name: tuple(cells[cell] for cell in sorted(shown) if cell[0] == name) for name in TACTICS}
    return Matrix(tactics, number, as_of, never)


_FIRED = f"SELECT rule_id, {total('alerts')} FROM win GROUP BY rule_id"

_TITLE = "coalesce(nullif(rule_title, ''), rule_id) AS title"

_CELLS = f"""SELECT tactic, technique, {total("alerts")}, array_agg(DISTINCT title) AS titles
FROM (SELECT DISTINCT tactic, technique, rule_id, title FROM (
    SELECT {{explode}}(tactics) AS tactic, coalesce(technique, '') AS technique, rule_id, {_TITLE}
    FROM coverage) c WHERE tactic IN ({texts(TACTICS)})) e
LEFT JOIN ({_FIRED}) f USING (rule_id)
GROUP BY tactic, technique"""

_NEVER_FIRED = f"""SELECT rule_id, max(title) AS title FROM (
    SELECT rule_id, {_TITLE} FROM coverage WHERE coalesce(deployed, true) AND coalesce(alerts, 0) = 0) c
GROUP BY rule_id"""


def _by_tags(reader: Reader, every: Mapping[str, Line]) -> dict[tuple[str, str], Line]:
    """The techniques of rules that have alerted, by tactic."""
    fired = {row["rule_id"]: row["alerts"] for row in reader.rows(_FIRED)}
    rules: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for rule in every.values():
        for tactic in rule.tactics or ():
            for technique in rule.techniques or ("",):
                rules[tactic, technique].append(rule)
    return {
        cell: _technique(
            cell[1],
            sum(fired.get(rule.rule_id, 0) for rule in those),
            (rule.rule_title or rule.rule_id for rule in those),
        )
        for cell, those in rules.items()
        if cell[0] in TACTICS
    }


def _technique(technique: str, alerts: int, names: Iterable[str]) -> Line:
    titles = sorted(set(names))
    return Line(technique=technique, alerts=alerts, rules=Listed(tuple(titles[:MAX_TITLES]), len(titles)))
