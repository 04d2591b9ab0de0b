"""Findings that people closed as true or false, and the rules, places, hosts and entities that each is made of.

Everything here is SQL for a reader of any engine (``tables.ask``). A finding counts as long as the decision that closed
it holds (``triage``); of a risk the parts are those of the day of the decision. A silence has no alerts, and no parts.
"""

from __future__ import annotations

from datetime import datetime

from spark_jobs.report.triage import CLOSED, MADE
from spark_jobs.tables.ask import Reader, Row, time
from spark_jobs.tables.schema import ANOMALIES, CAMPAIGNS, RISK, TRIAGE
from spark_jobs.tables.tables import texts

LAST = "9999-12-31"


def take_apart(reader: Reader, now: datetime, before: str = LAST) -> None:
    """Make the table ``closed_parts``: a row for each part of each finding that is closed at ``now``.

    ``finding`` is the id, ``is_true`` how it was closed. ``what`` is ``rule``, ``place``, ``host`` or ``entity``, and
    ``name`` the rule's id, ``FLEET/SITE``, the host, or ``KIND VALUE`` in lower case. An alert is of a finding when it
    has a part of it of each ``what`` that the finding has, and was counted between ``since`` and ``until``: after the
    decision nobody has looked. Of ``RISK`` only days ``before`` that one are read.
    """
    reader.view("triage", TRIAGE)
    reader.view("campaigns", CAMPAIGNS)
    reader.view("anomalies", ANOMALIES)
    reader.view("risk", RISK)
    sql = f"""WITH decided AS (
        SELECT finding_id, state = 'true-positive' AS is_true, updated_at AS decided_at FROM (
            SELECT *, row_number() OVER (PARTITION BY finding_id ORDER BY updated_at DESC, state) AS place
            FROM triage WHERE {MADE}) t
        WHERE place = 1 AND state IN ({texts(CLOSED)}) AND (expires_at IS NULL OR expires_at > {time(now)})),
    risks AS (
        SELECT * FROM (
            SELECT r.*, row_number() OVER (PARTITION BY risk_id ORDER BY as_of DESC) AS place
            FROM risk r JOIN decided ON risk_id = finding_id
            WHERE as_of < '{before}' AND as_of <= CAST(CAST(decided_at AS DATE) AS STRING)) n
        WHERE place = 1)
    SELECT finding, is_true, what, name, since, least(coalesce(last, decided_at), decided_at) AS until FROM (
        SELECT campaign_id AS finding, first_seen AS since, last_seen AS last, 'rule' AS what,
            {{explode}}(rules) AS name FROM campaigns
        UNION ALL SELECT campaign_id, first_seen, last_seen, 'place', {{explode}}(sites) FROM campaigns
        UNION ALL SELECT campaign_id, first_seen, last_seen, 'entity', {_entity("kind", "value")} FROM campaigns
        UNION ALL SELECT campaign_id, first_seen, last_seen, 'entity', {_entity("other.kind", "other.value")} FROM (
            SELECT campaign_id, first_seen, last_seen, {{explode}}(entities) AS other FROM campaigns) c
        UNION ALL SELECT anomaly_id, started_at, ended_at, 'rule', rule_id FROM anomalies WHERE rule_id <> ''
        UNION ALL SELECT anomaly_id, started_at, ended_at, 'entity', {_entity("entity_kind", "entity_value")}
            FROM anomalies WHERE entity_value <> ''
        UNION ALL SELECT anomaly_id, started_at, ended_at, 'place', concat(fleet, '/', site)
            FROM anomalies WHERE site <> '' AND kind NOT IN ('silence', 'new_entity')
        UNION ALL SELECT risk_id, first_seen, last_seen, 'rule', contribution.rule_id FROM (
            SELECT risk_id, first_seen, last_seen, {{explode}}(contributions) AS contribution FROM risks) c
        UNION ALL SELECT risk_id, first_seen, last_seen, 'place', CASE WHEN kind = 'site' THEN value ELSE scope END
            FROM risks WHERE kind = 'site' OR scope <> ''
        UNION ALL SELECT risk_id, first_seen, last_seen, 'host', value FROM risks WHERE kind = 'host'
        UNION ALL SELECT risk_id, first_seen, last_seen, 'entity', {_entity("kind", "value")}
            FROM risks WHERE kind NOT IN ('host', 'site')) p
    JOIN decided ON finding = finding_id"""
    reader.table("closed_parts", sql)


def _entity(kind: str, value: str) -> str:
    """SQL: the name of an entity."""
    return f"concat({kind}, ' ', lower({value}))"


def alerts_of(alerts: str) -> str:
    """SQL: ``agent_id``, ``alert_id``, ``finding`` and ``is_true`` for each of ``alerts`` (SQL, rows of ``ALERTS``)
    that is of a finding."""
    return f"""WITH candidates AS ({alerts})
    SELECT agent_id, alert_id, finding, is_true FROM (
        SELECT agent_id, alert_id, counted_at, 'rule' AS what, rule_id AS name FROM candidates
        UNION ALL SELECT agent_id, alert_id, counted_at, 'place', concat(coalesce(fleet, ''), '/', coalesce(site, ''))
            FROM candidates
        UNION ALL SELECT agent_id, alert_id, counted_at, 'host', coalesce(host, '') FROM candidates
        UNION ALL SELECT agent_id, alert_id, counted_at, 'entity', {_entity("entity.kind", "entity.value")} FROM (
            SELECT agent_id, alert_id, counted_at, {{explode}}(entities) AS entity FROM candidates) e) n
    JOIN closed_parts USING (what, name)
    JOIN (SELECT finding, count(DISTINCT what) AS needed FROM closed_parts GROUP BY finding) f USING (finding)
    WHERE counted_at BETWEEN since AND until
    GROUP BY agent_id, alert_id, finding, is_true, needed HAVING count(DISTINCT what) = needed"""


_COUNTS = """count(DISTINCT CASE WHEN is_true THEN finding END) AS correct,
    count(DISTINCT CASE WHEN NOT is_true THEN finding END) AS incorrect"""


def findings(reader: Reader) -> Row:
    """How many findings of ``closed_parts`` are true (``correct``) and false (``incorrect``)."""
    return reader.only(f"SELECT {_COUNTS} FROM closed_parts")


def rules(reader: Reader) -> list[Row]:
    """The same by ``rule_id``, of the findings that the rule has a part in."""
    of_rules = "SELECT * FROM closed_parts WHERE what = 'rule' AND name <> ''"
    return reader.rows(f"SELECT name AS rule_id, {_COUNTS} FROM ({of_rules}) r GROUP BY name ORDER BY name")
