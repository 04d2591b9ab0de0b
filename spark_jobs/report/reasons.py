"""Why a finding is one, in words: the column ``reason`` of a row, from its other columns and a few more.

Jobs write the words with the row, so that whoever queries a table has them as the report does. The reason of a campaign
is ``findings.weight``'s, which knows what was against it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from spark_jobs.common.entities import LEVELS
from spark_jobs.common.plain import many
from spark_jobs.findings import risk
from spark_jobs.findings.weight import ATTEMPTS
from spark_jobs.tables.ask import Row


def of_anomaly(row: Row) -> str:
    """The reason of a row of ``ANOMALIES`` with ``findings.anomalies.FACTS``."""
    sites = row["sites"] or 0
    if row["kind"] == "burst":
        matches = many(int(row["observed"]), "match", "matches")
        return f"up to {matches} an hour where {_rounded(row['median'] * 10) / 10} are usual"
    if row["kind"] == "silence":
        hours = (row["ended_at"] - row["started_at"]).total_seconds() / 3600
        few = many(int(row["observed"]), "match", "matches") if row["observed"] else "no match"
        heard = f"{row['reporting']:,} of {many(row['agents'], 'agent')}"
        text = f"{few} for {hours:.0f} h where {_rounded(row['median']):,} are usual; {heard} sent heartbeats"
        text += " in half of these hours or more"
        if not row["agents"]:
            return text
        if not row["reporting"]:
            return f"{text}: they or the way from them are down"
        if row["fed"]:
            return f"{text}: {row['fed']:,} took in events, and no rule matched"
        starved = row["starved"] == row["reporting"]
        return f"{text}: they run, and {'their inputs took in nothing' if starved else 'what they read is silent'}"
    if row["kind"] == "new_entity":
        where = f"at {many(sites, 'site')}" if sites > 1 else "here"
        return f"{row['entity_kind']} {row['entity_value']} is new {where}"
    if row["kind"] != "new_rule":
        raise ValueError(f"no reason is known of the kind {row['kind']}")
    rule = row["rule_title"] or row["rule_id"]
    if not row["site"]:
        return f"the fleet's first alerts of {rule}, at {many(sites, 'site')}"
    others = f", and those of {many(sites - 1, 'other')}" if sites > 1 else ""
    return f"the site's first alerts of {rule}{others}"


def of_noise(row: Row) -> str:
    """The reason of a row of ``NOISE``."""
    top = f"; {_percent(row['top_share'])} of the alerts name {row['top_kind']} {row['top_value']}"
    return (
        f"{many(row['matches'], 'match', 'matches')}, {_percent(row['share'])} of all; "
        f"{_percent(row['share_suppressed'])} suppressed; at {many(row['sites'], 'site')}, "
        f"{many(row['hosts'], 'host')}{'' if row['top_value'] is None else top}"
    )


def of_risk(row: Row) -> str:
    """The reason of a row of ``findings.risk.chosen``."""
    own = row["usual"] is not None and risk.OWN_TIMES * row["usual"] >= risk.MIN_THRESHOLD
    counts = ", ".join(many(row[f"{name}s"], name) for name in ("rule", "tactic", "day"))
    return (
        f"{_rounded(row['score'])} points, {_rounded(row['threshold'])} needed{' by its own past' if own else ''}; "
        f"{counts}{'; a critical alert' if row['recent'] else ''}"
    )


def of_contribution(kind: str, part: dict[str, Any]) -> str:
    """Say what is not usual about one of the ``contributions`` (``findings.risk.scored``) of an entity of ``kind``."""

    def words() -> Iterator[str]:
        if part["new_tactic"]:
            yield "first of its tactic"
        elif part["turn"] == 1:
            yield "first of this rule"
        if part["turn"] > 1:
            yield f"day {part['turn']} of this rule" + (", first at a site" if part["new_place"] else "")
        if kind in ("host", "site") and part["tactic"] in ATTEMPTS and part["level"] != LEVELS[-1]:
            yield "an attempt"
        if part["confidence"] < 1:
            yield f"rule confidence {_percent(part['confidence'])}"
        if part["rarity"] < 0.995:
            yield f"rarity {_percent(part['rarity'])}"
        if part["surprise"] < 0.995:
            yield f"surprise {_percent(part['surprise'])}"
        if part["breadth"] >= 1.005:
            yield f"breadth {_percent(part['breadth'])}"
        if part["criticality"] in risk.CRITICALITY:
            yield f"criticality {part['criticality']}"

    return ", ".join(words())


def _percent(share: float) -> str:
    return f"{_rounded(share * 100)} %"


def _rounded(number: float) -> int:
    """The nearest whole number; of two, the larger one."""
    return math.floor(number + 0.5)
