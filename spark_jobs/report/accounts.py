"""How the agents fared in a period, by their own word and by what landed: health, and what was lost.

An agent's word is its newest heartbeat (table ``agents``) and those of the period. Against it stands what landed: each
alert has a number, ``seq``, and a number below one that landed in the period which has not landed itself is missing:
on its way, or lost. A list of agents begins with those in trouble.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from spark_jobs.common.period import Period
from spark_jobs.common.plain import many
from spark_jobs.report.figures import Line, Listed, lines
from spark_jobs.tables.ask import LARGEST, Reader, narrow, total, wide
from spark_jobs.tables.schema import AGENTS, ALERTS, DEAD_LETTERS, HEARTBEATS, SEQS

MAX_AGENTS = 200
MAX_LETTERS = 50
RUN_DAYS = 30
"""Runs of numbers, and agents heard, from so many days before the period on are looked at."""

SILENT = timedelta(minutes=15)
"""An agent not heard for longer than this, when others were, is silent: heartbeats come every minute."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """The agents' accounts, those in trouble first.

    ``agents`` and their sums, ``fleet``: what is null was not reported; counts are since an agent was installed, but
    ``beats``, ``landed`` and ``missing``, which are of the period. ``trouble`` is how many marks ``troubles`` names.
    ``newest`` is when any agent was last heard in the period; ``unheard``: none was within ``SILENT`` of the period's
    ``now``, so that nothing is known of them.
    Dead rules are none: a rule set for many kinds of host has rules that no input of one host feeds.
    """

    fleet: Line
    agents: Listed
    letters: Listed
    """Dead letters of the period by kind and reason."""
    dead_letters: int
    """All of them, listed or not."""


def troubles(agent: Line) -> list[str]:
    """Say what is wrong with one of ``Accounts.agents``."""
    marks = ["connection lost"] if agent.state == "lost" else []
    if agent.silent:
        marks.append("silent" if agent.last_beat is None else f"silent since {agent.last_beat:%-d %b %H:%M}")
    for number, singular, plural in (
        (agent.missing, "alert missing", "alerts missing"),
        (agent.lost, "event lost", "events lost"),
        (agent.dropped, "event dropped", "events dropped"),
    ):
        if number:
            marks.append(many(number, singular, plural))
    if agent.stated_site:
        marks.append(f"states another site than it is enrolled at: {agent.stated_site}")
    return marks + [f"account broken: {name}" for name in agent.identity_broken or ()]


def accounts(reader: Reader, period: Period) -> Accounts:
    """The accounts of ``period``."""
    whole = accounts_of(reader, period)
    reader.view("dead_letters", DEAD_LETTERS, period.since, period.until)
    fleet = reader.only(
        f"""SELECT count(*) AS agents, {total("CASE WHEN beats > 0 THEN 1 ELSE 0 END", "heard")},
        {total("CASE WHEN state = 'lost' THEN 1 ELSE 0 END", "lost")},
        {total("CASE WHEN silent THEN 1 ELSE 0 END", "silent")},
        {total("CASE WHEN trouble > 0 THEN 1 ELSE 0 END", "troubled")}, {total("received", "events")},
        {total("dropped")}, {total("lost", "events_lost")}, {total("missing")}, max(last_beat) AS newest
        FROM ({whole}) w"""
    )
    newest = fleet["newest"]
    unheard = fleet["agents"] > 0 and (newest is None or newest < period.now - SILENT)
    agents = lines(reader, f"SELECT * FROM ({whole}) w ORDER BY trouble DESC, fleet, agent_id LIMIT {MAX_AGENTS}")
    letters = """SELECT coalesce(kind, '') AS kind, coalesce(reason, '') AS reason, count(*) AS letters,
        CAST(coalesce(sum(rows), 0) AS BIGINT) AS rows FROM dead_letters GROUP BY 1, 2"""
    of_letters = reader.only(f"SELECT count(*) AS n, {total('letters')} FROM ({letters}) l")
    return Accounts(
        fleet=Line(**fleet, unheard=unheard),
        agents=Listed(agents, fleet["agents"]),
        letters=Listed(
            lines(reader, f"{letters} ORDER BY letters DESC, kind, reason LIMIT {MAX_LETTERS}"), of_letters["n"]
        ),
        dead_letters=of_letters["letters"],
    )


def accounts_of(reader: Reader, period: Period) -> str:
    """SQL: one row an agent, with ``trouble``, how many of ``troubles`` it has; makes the views that it reads."""
    reader.view("agents", AGENTS)
    # By the agent's own day, in which its numbers follow each other.
    reader.view("landed", ALERTS, period.since, period.until)
    reader.view("heartbeats", HEARTBEATS, period.since, period.until)
    # What lands later closes gaps; what landed long before tells nothing of this period's.
    reader.view("seqs", SEQS, (period.first - timedelta(days=RUN_DAYS)).isoformat())
    return _whole(period, reader.only("SELECT count(*) AS n FROM seqs")["n"] > 0)


def _whole(period: Period, runs: bool) -> str:
    """SQL: one row an agent, without what ``Agent.troubles`` words. One that was not heard for ``RUN_DAYS`` before the
    period, and of which nothing landed in it, is left out: an agent taken away would be silent in every report."""
    since = (period.first - timedelta(days=RUN_DAYS)).isoformat()
    limit = f"INTERVAL '{int(SILENT.total_seconds())}' SECOND"
    return f"""SELECT *, CAST(
        CASE WHEN state = 'lost' THEN 1 ELSE 0 END + CASE WHEN silent THEN 1 ELSE 0 END
        + CASE WHEN missing > 0 THEN 1 ELSE 0 END + CASE WHEN coalesce(lost, 0) > 0 THEN 1 ELSE 0 END
        + CASE WHEN coalesce(dropped, 0) > 0 THEN 1 ELSE 0 END
        + CASE WHEN broken THEN 1 ELSE 0 END + CASE WHEN stated_site <> '' THEN 1 ELSE 0 END AS BIGINT) AS trouble
    FROM (
        SELECT coalesce(a.fleet, r.fleet) AS fleet, coalesce(a.agent_id, r.agent_id) AS agent_id,
            coalesce(site, '') AS site, coalesce(state, '') AS state, coalesce(version, '') AS version,
            coalesce(bundle, '') AS bundle, last_seen, coalesce(beats, 0) AS beats, last_beat, received, stored, judged,
            dropped, lost, in_outbox, dead_rules,
            CASE WHEN lag_seconds BETWEEN 0 AND {LARGEST} THEN lag_seconds END AS lag_seconds, identity_broken,
            coalesce(CAST(identity_broken AS STRING), '[]') <> '[]' AS broken, coalesce(landed, 0) AS landed,
            coalesce(missing, 0) AS missing,
            coalesce(CASE WHEN a.agent_id IS NULL THEN stated_by_alerts ELSE stated_site END, '') AS stated_site,
            newest IS NOT NULL AND coalesce(last_beat < newest - {limit}, true) AS silent
        FROM agents a
        LEFT JOIN (SELECT fleet, agent_id, count(*) AS beats, max(received_at) AS last_beat
                   FROM heartbeats GROUP BY fleet, agent_id) b ON a.fleet = b.fleet AND a.agent_id = b.agent_id
        CROSS JOIN (SELECT max(received_at) AS newest FROM heartbeats) n
        FULL OUTER JOIN ({_landed(period, runs)}) r ON a.fleet = r.fleet AND a.agent_id = r.agent_id
        WHERE r.agent_id IS NOT NULL OR last_seen >= CAST('{since} 00:00:00' AS TIMESTAMP)) x"""


def _landed(period: Period, runs: bool) -> str:
    """SQL: what landed of each agent; and how many numbers are missing, by the ``runs`` of numbers that landed, or
    where no landing wrote any, by the alerts of the period."""
    missing = narrow(f"{wide('max(seq)')} - min(seq) + 1 - count(DISTINCT seq)")
    alerts = f"""SELECT coalesce(fleet, '') AS fleet, agent_id, count(*) AS landed, {missing} AS missing,
        max(stated_site) AS stated_by_alerts FROM landed GROUP BY 1, 2"""
    if not runs:
        return alerts
    gaps = f"""SELECT coalesce(fleet, '') AS fleet, agent_id, {total("first - reached - 1", "missing")} FROM (
            SELECT fleet, agent_id, date, {wide("first")} AS first, max({wide("last")}) OVER (
                PARTITION BY fleet, agent_id, log_id ORDER BY first, last
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
            FROM seqs) o
        WHERE first > reached + 1 AND date BETWEEN '{period.since}' AND '{period.until}' GROUP BY 1, 2"""
    return f"""SELECT coalesce(l.fleet, g.fleet) AS fleet, coalesce(l.agent_id, g.agent_id) AS agent_id, landed,
        g.missing AS missing, stated_by_alerts
        FROM ({alerts}) l FULL OUTER JOIN ({gaps}) g ON l.fleet = g.fleet AND l.agent_id = g.agent_id"""
