"""Rules as the region sees them: what is deployed, what fired, what never did, what is loud, and the ATT&CK matrix.

Which rules are deployed is what the job ``coverage`` wrote last; counts are of the days asked for, from the tables of
counts, at the sites that are seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from spark_jobs.common.attack import TACTICS, caption
from spark_jobs.common.period import Period
from spark_jobs.tables.ask import Row, severity, text, total
from spark_jobs.tables.schema import COVERAGE, ENTITY_SITE_5M, HOST_1H, NOISE, RULES, WIN_5M
from vedette_console.data.alerts import newest
from vedette_console.data.models_fleet import (
    Count,
    Coverage,
    CoverageCell,
    CoverageTactic,
    RuleNoise,
    RulePage,
    RuleRow,
)
from vedette_console.data.query import term
from vedette_console.data.reader import Reader
from vedette_console.data.rows import following, last_days, limited, newest_day, none, offset, part, technique
from vedette_console.data.sql import NOT_FOLD
from vedette_console.web import Listing

NOISY = 0.1
"""A rule with a larger share of all matches is noisy."""
MAX_TITLES = 20
"""Of rules of a technique."""
MAX_COUNTS = 25
"""Sites, hosts, entities of a rule."""
NEWEST = 20
MAX_RULES = 20_000

SHOWN: dict[str, Callable[[RuleRow], bool]] = {
    "": lambda row: True,
    "deployed": lambda row: bool(row.deployed),
    "fired": lambda row: row.alerts > 0,
    "silent": lambda row: row.deployed is not False and not row.fired,
    "noisy": lambda row: row.noisy,
}
"""What a list of rules may show."""


def rules(
    reader: Reader, q: str = "", show: str = "", days: int = 14, after: str = "", limit: int = 100,
    now: datetime | None = None,
) -> Listing[RuleRow]:  # fmt: skip
    """Rules whose id or title holds ``q``, of ``SHOWN``, those with most alerts first."""
    before = offset(after)
    chosen = [
        row
        for row in every(reader, last_days(days, now))
        if SHOWN.get(show, SHOWN[""])(row) and (q.lower() in row.title.lower() or q.lower() in row.rule_id.lower())
    ]
    items = chosen[before : before + limited(limit)]
    return Listing(items=items, total=len(chosen), next=following(before, len(items), len(chosen)))


def every(reader: Reader, period: Period) -> list[RuleRow]:
    """All rules, those with most alerts first; kept, since pages ask for them again and again."""

    def ask() -> list[RuleRow]:
        rows = reader.rows(
            f"SELECT * FROM ({_all(reader, period)}) ORDER BY alerts DESC, {severity()} DESC, title, rule_id "
            f"LIMIT {MAX_RULES}"
        )
        return [_rule_row(row) for row in rows]

    return reader.cached(("rules", period.since, period.until), (COVERAGE, RULES, WIN_5M), ask)


def _all(reader: Reader, period: Period) -> str:
    """SQL: every rule that is deployed or alerted, with the columns of ``_rule_row``."""
    day = newest_day(reader, "coverage", COVERAGE, period.until)
    reader.view("fired", RULES)
    reader.view("win", WIN_5M, period.since, period.until)
    reader.view("host", HOST_1H, period.since, period.until)
    deployed = "coalesce(deployed, false)" if day else "NULL::BOOLEAN"
    return f"""SELECT rule_id,
        coalesce(nullif(k.rule_title, ''), nullif(w.title, ''), nullif(c.title, ''), rule_id) AS title,
        coalesce(nullif(k.level, ''), nullif(w.level, ''), c.level, '') AS level,
        coalesce(nullif(k.tactics, []), c.tactics, []) AS tactics,
        coalesce(nullif(k.techniques, []), c.techniques, []) AS techniques, {deployed} AS deployed,
        k.rule_id IS NOT NULL OR coalesce(w.alerts, 0) > 0 AS fired, coalesce(w.alerts, 0) AS alerts,
        coalesce(w.matches, 0) AS matches, coalesce(sites, 0) AS sites, coalesce(hosts, 0) AS hosts,
        coalesce(w.last_time, k.last_time) AS last_time,
        coalesce(w.matches / nullif(sum(w.matches) OVER (), 0), 0) AS share,
        coalesce(1 - w.alerts / nullif(w.matches, 0), 0) AS suppressed
    FROM (SELECT rule_id, max(rule_title) AS title, max(level) AS level, bool_or(coalesce(deployed, true)) AS deployed,
            flatten(array_agg(DISTINCT coalesce(tactics, []))) AS tactics,
            list_sort(array_agg(DISTINCT technique) FILTER (WHERE technique <> '')) AS techniques
          FROM coverage GROUP BY 1) c
    FULL JOIN fired k USING (rule_id)
    FULL JOIN (SELECT rule_id, max(rule_title) AS title, arg_max(level, {severity()}) AS level, {total("alerts")},
            {total("matches")}, count(DISTINCT (fleet, site)) AS sites, max(last_time) AS last_time
          FROM win GROUP BY 1) w USING (rule_id)
    LEFT JOIN (SELECT rule_id, count(DISTINCT (fleet, site, host)) AS hosts FROM host GROUP BY 1) h USING (rule_id)"""


def _rule_row(row: Row) -> RuleRow:
    return RuleRow.model_validate(
        {
            **row,
            "tactics": list(dict.fromkeys(row["tactics"] or ())),
            "techniques": [name for name in row["techniques"] or () if name],
            "suppressed": max(0.0, row["suppressed"]),
            "noisy": row["share"] >= NOISY,
        }
    )


def rule(reader: Reader, rule_id: str, days: int = 14, now: datetime | None = None) -> RulePage:
    """A rule. Raises Problem 404 when it is neither deployed nor has alerted at a site that is seen."""
    period = last_days(days, now)
    is_it = f"rule_id = {text(rule_id)}"
    row = next((row for row in every(reader, period) if row.rule_id == rule_id), None)
    if row is None:
        raise none("rule")
    reader.view("fired", RULES)
    facts = next(iter(reader.rows(f"SELECT tags, first_time FROM fired WHERE {is_it}")), {})
    reader.view("win", WIN_5M, period.since, period.until)
    reader.view("host", HOST_1H, period.since, period.until)
    reader.view("entity", ENTITY_SITE_5M, period.since, period.until)
    daily = by_day(reader, "win", is_it, period)
    return RulePage(
        **row.model_dump(),
        days=len(period.days),
        tags=[tag for tag in facts.get("tags") or () if tag],
        technique_names=[technique(name) for name in row.techniques],
        first_time=facts.get("first_time"),
        by_day=daily,
        by_site=counted(reader, "win", is_it, "fleet || '/' || site"),
        by_host=counted(reader, "host", is_it, "host"),
        by_entity=counted(reader, "entity", is_it, "kind || ' ' || value"),
        noise=next(iter(_noise(reader, is_it, 1).items), None),
        newest=newest(reader, f"{is_it} AND {NOT_FOLD}", *since_for(daily, NEWEST, period), NEWEST),
        query=term("rule", rule_id),
    )


def since_for(daily: Sequence[Count], wanted: int, period: Period) -> tuple[datetime, datetime]:
    """The times of the newest days of ``daily`` that have ``wanted`` alerts together, as far as there are."""
    have = 0
    busy = [day for day in daily if day.alerts]
    first, last = period.start, period.end
    for day in reversed(busy):
        have += day.alerts
        first = datetime.fromisoformat(day.name).replace(tzinfo=UTC)
        if have >= wanted:
            break
    if busy:
        last = min(last, datetime.fromisoformat(busy[-1].name).replace(tzinfo=UTC) + timedelta(days=1))
    return first, last


def counted(reader: Reader, view: str, test: str, name: str, limit: int = MAX_COUNTS) -> list[Count]:
    """Alerts of those rows of a view of counts that pass ``test``, by ``name`` (both SQL), the most first."""
    rows = reader.rows(
        f"""SELECT coalesce({name}, '') AS name, {total("alerts")}, {total("matches")}, min(first_time) AS first_time,
        max(last_time) AS last_time, coalesce(arg_max(level, {severity()}), '') AS level
        FROM {view} WHERE {test} GROUP BY 1 ORDER BY alerts DESC, name LIMIT {limit}"""
    )
    return [Count(**row, label=row["name"]) for row in rows]


def by_day(reader: Reader, view: str, test: str, period: Period) -> list[Count]:
    """Every day of ``period``, in order, those without alerts, too."""
    have = {day.name: day for day in counted(reader, view, test, "date", limit=400)}
    return [have.get(day) or Count(name=day, label=day, alerts=0, matches=0) for day in period.days]


def noise(reader: Reader, after: str = "", limit: int = 50) -> Listing[RuleNoise]:
    """How loud rules were, the loudest first. Who does not see all sites gets shares of what they see, no reasons."""
    if reader.scope.all:
        return _noise(reader, "true", limit, after)
    loud = rules(reader, show="fired", after=after, limit=limit)
    items = [
        RuleNoise(rule_id=rule.rule_id, title=rule.title, level=rule.level, alerts=rule.alerts, matches=rule.matches,
                  share=rule.share, suppressed=rule.suppressed, sites=rule.sites, hosts=rule.hosts, top_kind="",
                  top_value="", top_share=None, score=None, reason="", proposal="")
        for rule in loud.items
    ]  # fmt: skip
    return Listing(items=items, total=loud.total, next=loud.next)


def _noise(reader: Reader, test: str, limit: int, after: str = "") -> Listing[RuleNoise]:
    newest_day(reader, "noise", NOISE)
    names = ("rule_id", "rule_title", "level", "top_kind", "top_value", "reason", "proposal")
    texts = ", ".join(f"coalesce({name}, '') AS {name}" for name in names)
    source = f"(SELECT * REPLACE ({texts}) FROM noise WHERE {test})"
    rows, total, following = part(reader, source, "coalesce(score, 0) DESC, rule_id", after, limit)
    items = [
        RuleNoise.model_validate({**row, "title": row["rule_title"], "suppressed": row["share_suppressed"]})
        for row in rows
    ]
    return Listing(items=items, total=total, next=following)


def coverage(reader: Reader, days: int = 14, now: datetime | None = None) -> Coverage:
    """The matrix: of each tactic its techniques with rules, and the deployed rules that never fired."""
    period = last_days(days, now)
    cells: dict[str, dict[str, list[RuleRow]]] = {name: defaultdict(list) for name in TACTICS}
    for row in every(reader, period):
        for tactic in row.tactics:
            for name in (row.techniques or [""]) if tactic in cells else ():
                cells[tactic][name].append(row)
    days_of = [day for day in reader.catalog.days(COVERAGE) if day <= period.until]
    return Coverage(
        as_of=max(days_of, default=""),
        days=len(period.days),
        techniques=len({name for those in cells.values() for name in those if name}),
        tactics=[_tactic(name, cells[name]) for name in TACTICS],
        never_fired=rules(reader, show="silent", days=days, limit=500, now=now),
    )


def _tactic(name: str, techniques: Mapping[str, Sequence[RuleRow]]) -> CoverageTactic:
    cells = [
        CoverageCell(technique=technique(id), rules=sorted({rule.title for rule in rows})[:MAX_TITLES],
                     of_rules=len(rows), silent=sum(not rule.fired for rule in rows),
                     alerts=sum(rule.alerts for rule in rows))
        for id, rows in sorted(techniques.items())
    ]  # fmt: skip
    return CoverageTactic(tactic=name, caption=caption(name), cells=cells)
