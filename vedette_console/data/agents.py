"""Agents by their newest heartbeats, and sites with their places for a map.

Who is in trouble, and why, is what the report says (``spark_jobs.report.accounts``). Labels stand in the heartbeat's
JSON, which is large: a list reads the heartbeats of the last minutes only, an agent's page its newest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from spark_jobs.common.period import Period
from spark_jobs.report.accounts import accounts_of, troubles
from spark_jobs.report.figures import Line
from spark_jobs.tables.ask import text, time, total
from spark_jobs.tables.schema import ALERTS, HEARTBEATS, HOST_1H, WIN_5M
from vedette.system import foreign
from vedette_console.data.alerts import newest
from vedette_console.data.models import Place
from vedette_console.data.models_fleet import AgentAccount, AgentListing, AgentRow, AgentSums, Beat, SiteRow
from vedette_console.data.reader import Reader
from vedette_console.data.rows import following, last_days, limited, none, offset
from vedette_console.data.rules import counted
from vedette_console.fleet.overview import inputs
from vedette_console.web import Listing

RECENT = timedelta(minutes=15)
"""Before the newest heartbeat of all: those whose labels a list shows."""
BEATS = 96
"""Of an agent's last day."""
MAX_VERSIONS = 20
NOTES = 5
"""Of the landing, with a heartbeat."""
NEWEST = 20
MAX_SITES = 2_000
PLACE_DAYS = 30
LATEST = 25

SEARCHED = ("agent_id", "site", "fleet", "version")
STATES = {
    "": "true",
    "troubled": "trouble > 0",
    "lost": "state = 'lost'",
    "silent": "silent",
}
"""Which agents a list may show."""


def agents(
    reader: Reader, q: str = "", state: str = "", after: str = "", limit: int = 100,
    now: datetime | None = None,
) -> AgentListing:  # fmt: skip
    """Agents whose id, site or version holds ``q``, of ``STATES``, those in trouble first; the sums are of all."""
    before, limit, period = offset(after), limited(limit), last_days(1, now)
    whole = accounts_of(reader, period)
    contains = " OR ".join(f"contains(lower({name}), lower({text(q)}))" for name in SEARCHED)
    condition = f"({STATES.get(state, 'true')})" + (f" AND ({contains})" if q else "")
    rows = reader.rows(
        f"""SELECT *, count(*) OVER () AS of FROM ({whole}) w WHERE {condition}
        ORDER BY trouble DESC, fleet, site, agent_id LIMIT {limit} OFFSET {before}"""
    )
    sums = reader.only(
        f"""SELECT count(*) AS agents, {total("CASE WHEN trouble > 0 THEN 1 ELSE 0 END", "troubled")},
        {total("CASE WHEN state = 'lost' THEN 1 ELSE 0 END", "lost")},
        {total("CASE WHEN silent THEN 1 ELSE 0 END", "silent")} FROM ({whole}) w"""
    )
    counts = {name: _counts(reader, name) for name in ("version", "bundle")}
    of = rows[0]["of"] if rows else 0
    labels = _labels(reader)
    return AgentListing(
        items=[
            AgentRow(**_values(SimpleNamespace(**row), labels.get((row["fleet"], row["agent_id"]), {}))) for row in rows
        ],
        total=of,
        next=following(before, len(rows), of),
        sums=AgentSums(**sums, versions=counts["version"], bundles=counts["bundle"]),
    )


def _counts(reader: Reader, column: str) -> dict[str, int]:
    """Agents by a column of the view ``agents``, the commonest first."""
    rows = reader.rows(
        f"SELECT coalesce({column}, '') AS name, count(*) AS n FROM agents GROUP BY 1 ORDER BY n DESC, 1 "
        f"LIMIT {MAX_VERSIONS}"
    )
    return {row["name"]: row["n"] for row in rows}


def _labels(reader: Reader) -> dict[tuple[str, str], dict[str, str]]:
    """Labels of the agents heard lately, by fleet and id; of the views ``agents`` and ``heartbeats``."""
    newest_beat = reader.only("SELECT max(last_seen) AS at FROM agents")["at"]
    if newest_beat is None:
        return {}
    rows = reader.rows(
        f"""SELECT fleet, agent_id, json_extract(arg_max(payload, received_at), '$.actual.labels')::VARCHAR AS labels
        FROM heartbeats WHERE received_at >= {time(newest_beat - RECENT)}::TIMESTAMPTZ AND state <> 'lost'
        AND json_valid(payload) GROUP BY 1, 2"""
    )
    return {(row["fleet"] or "", row["agent_id"]): foreign.texts(_json(row["labels"])) for row in rows}


def _json(payload: str | None) -> Any:
    try:
        return foreign.read(payload or "null", cut=True)
    except ValueError:
        return None


def _values(account: Line, labels: Mapping[str, str]) -> dict[str, Any]:
    same = ("fleet", "agent_id", "site", "state", "version", "bundle", "last_seen", "lag_seconds", "received", "stored",
            "dropped", "lost", "in_outbox", "dead_rules", "landed", "missing")  # fmt: skip
    return {
        **{name: getattr(account, name) for name in same},
        "evaluated": account.judged,
        "backlog": getattr(account, "backlog", None),
        "silent": bool(account.silent),
        "labels": dict(labels),
        "troubles": troubles(account),
    }


def agent(reader: Reader, fleet: str, agent_id: str, now: datetime | None = None) -> AgentAccount:
    """An agent with its newest heartbeat. Raises Problem 404."""
    period = last_days(1, now)
    is_it = f"coalesce(fleet, '') = {text(fleet)} AND agent_id = {text(agent_id)}"
    rows = reader.rows(f"SELECT * FROM ({accounts_of(reader, period)}) w WHERE {is_it}")
    if not rows:
        raise none("agent")
    table_row = next(iter(reader.rows(f"SELECT * FROM agents WHERE {is_it}")), {})
    beat = _newest_beat(reader, is_it)
    actual = foreign.table(beat.get("actual"))
    labels = foreign.texts(actual.get("labels"))
    reader.view("host", HOST_1H, period.since, period.until)
    mine = f"agent_id = {text(agent_id)} AND coalesce(fleet, '') = {text(fleet)} AND coalesce(kind, '') <> 'fold'"
    values, noted = _values(SimpleNamespace(**rows[0]), labels), foreign.listed(beat.get("notes"))[:NOTES]
    alerts = newest(reader, mine, period.start - timedelta(days=6), period.end, NEWEST)
    return AgentAccount(
        **{**values, "backlog": table_row.get("backlog"), "troubles": [*values["troubles"], *noted]},
        first_seen=table_row.get("first_seen"),
        plan_digest=table_row.get("plan_digest") or "",
        seq_high=table_row.get("seq_high"),
        alerts_made=table_row.get("alerts_made"),
        alerts_receipted=table_row.get("alerts_receipted"),
        identity_broken=list(table_row.get("identity_broken") or ()),
        group=foreign.text(actual.get("group")),
        problems=foreign.listed(actual.get("problems"))
        or [f"{key}: {value}" for key, value in foreign.texts(actual.get("problems")).items()],
        inputs=inputs(beat),
        beats=_beats(reader, is_it),
        hosts=counted(
            reader, "host", f"fleet = {text(fleet)} AND site = {text(rows[0]['site'])}", "host", limit=10
        ),
        newest=alerts,
        heartbeat=beat,
    )  # fmt: skip


def _newest_beat(reader: Reader, is_it: str) -> dict[str, Any]:
    """The JSON of the newest heartbeat that is no last will, of the last days that have any."""
    for day in reversed(reader.catalog.days(HEARTBEATS)[-LATEST:]):
        reader.view("beats", HEARTBEATS, day, day)
        rows = reader.rows(
            f"SELECT arg_max(payload, received_at) AS payload FROM beats WHERE {is_it} AND state <> 'lost'"
        )
        if rows[0]["payload"] is not None:
            beat = _json(rows[0]["payload"])
            return beat if isinstance(beat, dict) else {}
    return {}


def _beats(reader: Reader, is_it: str) -> list[Beat]:
    """The view ``heartbeats`` (a day) thinned to ``BEATS``; figures where the heartbeat has them."""
    lag = "TRY_CAST(json_extract_string(payload, '$.lag_seconds') AS DOUBLE)"
    rows = reader.rows(
        f"""SELECT received_at AS time, coalesce(state, '') AS state,
        CASE WHEN isfinite({lag}) THEN {lag} END AS lag_seconds,
        TRY_CAST(json_extract_string(payload, '$.alerts.in_outbox') AS BIGINT) AS in_outbox
        FROM (SELECT *, row_number() OVER (PARTITION BY time_bucket(INTERVAL '15 minutes', received_at)
                                           ORDER BY received_at DESC) AS place FROM heartbeats WHERE {is_it})
        WHERE place = 1 AND json_valid(payload) ORDER BY received_at DESC LIMIT {BEATS}"""
    )
    return [Beat(**row) for row in reversed(rows)]


def sites(reader: Reader, days: int = 1, now: datetime | None = None) -> Listing[SiteRow]:
    """Every site with agents or alerts, with its place, those with most critical alerts of the last ``days`` first."""
    period = last_days(days, now)
    whole = accounts_of(reader, last_days(1, now))
    reader.view("win", WIN_5M, period.since, period.until)
    rows = reader.rows(
        f"""SELECT coalesce(a.fleet, w.fleet) AS fleet, coalesce(a.site, w.site) AS site,
        coalesce(alerts, 0) AS alerts, coalesce(critical, 0) AS critical, coalesce(rules, 0) AS rules,
        coalesce(agents, 0) AS agents, coalesce(troubled, 0) AS troubled
        FROM (SELECT fleet, site, {total("alerts")}, count(DISTINCT rule_id) AS rules,
                {total("CASE WHEN level = 'critical' THEN alerts ELSE 0 END", "critical")} FROM win GROUP BY 1, 2) w
        FULL JOIN (SELECT fleet, site, count(*) AS agents,
                     {total("CASE WHEN trouble > 0 THEN 1 ELSE 0 END", "troubled")} FROM ({whole}) x GROUP BY 1, 2) a
        ON a.fleet = w.fleet AND a.site = w.site
        ORDER BY critical DESC, alerts DESC, 1, 2 LIMIT {MAX_SITES}"""
    )
    places = _places(reader, period)
    items = [SiteRow(**row, place=places.get((row["fleet"], row["site"]))) for row in rows]
    return Listing(items=items, total=len(items))


def _places(reader: Reader, period: Period) -> dict[tuple[str, str], Place]:
    """The newest place of each site, by the newest files of alerts; looked for again every ten minutes."""

    def look() -> dict[tuple[str, str], Place]:
        files = sorted(reader.files(ALERTS), key=lambda file: file.partition or "", reverse=True)
        rows = 0
        latest = []
        for file in files:
            if rows >= MOST_ROWS or (file.partition or "") < (period.last - timedelta(days=PLACE_DAYS)).isoformat():
                break
            latest.append(file)
            rows += file.rows
        reader.show("placed", ALERTS, latest)
        places = reader.rows(
            """SELECT coalesce(fleet, '') AS fleet, coalesce(site, '') AS site, arg_max(place, counted_at) AS place
            FROM placed WHERE place IS NOT NULL GROUP BY 1, 2"""
        )
        return {
            (row["fleet"], row["site"]): Place(
                **{key: value for key, value in row["place"].items() if value is not None}
            )
            for row in places
        }

    return reader.memo.get(("places", reader.scope), None, look, most=600.0)


MOST_ROWS = 2_000_000
"""Of alerts, in which places of sites are looked for."""
