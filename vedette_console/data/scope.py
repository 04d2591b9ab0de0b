"""The rows of each table that someone may see, as SQL: the one place where rows are withheld.

Every view that a ``reader.Reader`` makes goes through here, so no question can forget it. ``SCOPED`` says for each
table how; a test walks all tables. Where a row is of many sites at once (a campaign), those that are not seen are taken
out of it; where that cannot be done (noise, dead letters), only who sees all sites gets the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from spark_jobs.tables.ask import text
from spark_jobs.tables.schema import AGENTS, ENTITY_SITE_5M, WIN_5M, Table
from vedette_console.security.principal import ALL, Scope

Way: TypeAlias = Callable[[str, Scope], str]
"""(view of all rows, scope) -> SQL of those that are seen, in the same columns."""


def seen(scope: Scope, fleet: str = "fleet", site: str = "site") -> str:
    """SQL: whether a row of these columns is of a place that is seen; never null."""
    if scope.all:
        return "true"
    tests = []
    for place in scope.places:
        columns = ((column, value) for column, value in zip((fleet, site), place, strict=True) if value != ALL)
        tests.append(" AND ".join(f"coalesce({column}, '') = {text(value)}" for column, value in columns))
    return "(" + " OR ".join(f"({test or 'true'})" for test in tests) + ")" if tests else "false"


def seen_place(scope: Scope, place: str) -> str:
    """SQL: the same of a text ``FLEET/SITE``; names of fleets have no slash."""
    fleet = f"split_part({place}, '/', 1)"
    return seen(scope, fleet, f"substr({place}, length({fleet}) + 2)")


def _by_site(view: str, scope: Scope) -> str:
    return f"SELECT * FROM {view} WHERE {seen(scope)}"


def _whole(view: str, scope: Scope) -> str:
    """Tells nothing of any site."""
    return f"SELECT * FROM {view}"


def _none(view: str, scope: Scope) -> str:
    """No row: only who sees all gets them."""
    return f"SELECT * FROM {view} WHERE false"


def _rules(view: str, scope: Scope) -> str:
    """Rules that alerted at sites that are seen; what they had elsewhere is not counted."""
    return f"""SELECT * REPLACE (NULL::BIGINT AS alerts, NULL::BIGINT AS matches, s.first AS first_time,
        s.last AS last_time) FROM {view} SEMI JOIN (SELECT rule_id FROM seen_{WIN_5M.name}) USING (rule_id)
        LEFT JOIN (SELECT rule_id AS r, min(first_time) AS first, max(last_time) AS last FROM seen_{WIN_5M.name}
                   GROUP BY 1) s ON rule_id = s.r"""


def _seqs(view: str, scope: Scope) -> str:
    return f"SELECT * FROM {view} SEMI JOIN (SELECT fleet, agent_id FROM seen_{AGENTS.name}) USING (fleet, agent_id)"


def _campaigns(view: str, scope: Scope) -> str:
    """Those that touch a site that is seen, with its steps only."""
    sites = f"list_filter(sites, lambda place: {seen_place(scope, 'place')})"
    steps = f"list_filter(steps, lambda step: {seen(scope, 'step.fleet', 'step.site')})"
    story = f"""list_transform(list_filter(story, lambda part: len(list_filter(part.sites,
        lambda place: {seen_place(scope, "place")})) > 0), lambda part: struct_update(part,
        sites := list_filter(part.sites, lambda place: {seen_place(scope, "place")}),
        rules := []::VARCHAR[], alerts := NULL::BIGINT))"""
    return f"""SELECT * REPLACE (sites AS sites, rules AS rules, '' AS reason, NULL::BIGINT AS alerts,
            NULL::BIGINT AS matches, []::VARCHAR[] AS against, coalesce(entities, []) AS entities)
        FROM (SELECT * REPLACE ({sites} AS sites, {steps} AS steps, {story} AS story,
            list_distinct(list_transform({steps}, lambda step: step.rule_id)) AS rules) FROM {view})
        WHERE len(sites) > 0"""


def _sessions(view: str, scope: Scope) -> str:
    sites = f"list_filter(sites, lambda place: {seen_place(scope, 'place')})"
    return f"""SELECT * REPLACE ({sites} AS sites, NULL::BIGINT AS alerts, NULL::BIGINT AS matches,
        []::VARCHAR[] AS rules) FROM {view} WHERE len({sites}) > 0"""


def _risk(view: str, scope: Scope) -> str:
    """Risks of what is at a site that is seen; of others those that alerted at such a site, without their parts."""
    near = f"(kind, value) IN (SELECT kind, value FROM seen_{ENTITY_SITE_5M.name})"
    here = f"CASE WHEN kind = 'site' THEN {seen_place(scope, 'value')} ELSE {seen_place(scope, 'scope')} END"
    placed = "(scope <> '' OR kind = 'site')"
    return f"""SELECT * REPLACE (CASE WHEN {placed} THEN contributions END AS contributions,
            CASE WHEN {placed} THEN reason ELSE '' END AS reason, CASE WHEN {placed} THEN others END AS others,
            CASE WHEN {placed} THEN others_points END AS others_points)
        FROM {view} WHERE CASE WHEN {placed} THEN {here} ELSE {near} END"""


def _coverage(view: str, scope: Scope) -> str:
    """Rules that are deployed, without what they have seen."""
    return f"""SELECT * REPLACE (NULL::BIGINT AS alerts, NULL::BIGINT AS matches, NULL::BIGINT AS sites,
        NULL::TIMESTAMPTZ AS first_seen, NULL::TIMESTAMPTZ AS last_seen) FROM {view} WHERE coalesce(deployed, true)"""


SCOPED: Mapping[str, Way] = {
    "alerts": _by_site,
    "win_5m": _by_site,
    "entity_site_5m": _by_site,
    "host_1h": _by_site,
    "rules": _rules,
    "heartbeats": _by_site,
    "agents": _by_site,
    "seqs": _seqs,
    "dead_letters": _none,
    "campaigns": _campaigns,
    "sessions": _sessions,
    "baselines": _by_site,
    "anomalies": _by_site,
    "first_seen": _by_site,
    "noise": _none,
    "coverage": _coverage,
    "risk": _risk,
    "triage": _whole,
    "notices": _none,
    "runs": _whole,
}
"""By table. ``triage`` is asked by the ids of findings that were seen."""

NEEDS: Mapping[str, tuple[Table, ...]] = {
    "rules": (WIN_5M,),
    "seqs": (AGENTS,),
    "risk": (ENTITY_SITE_5M,),
}
"""Tables of which the SQL above reads the view ``seen_NAME``, within the scope."""
