"""What else was there: alerts near in time to one that share an entity, its host or its rule, and its folds."""

from __future__ import annotations

from datetime import datetime

from spark_jobs.tables.ask import Row, text, time
from spark_jobs.tables.schema import ALERTS
from spark_jobs.tables.tables import Where
from vedette_console.data.alerts import around, one_alert, whole
from vedette_console.data.models import Related, RelatedGroup
from vedette_console.data.query import KINDS, term
from vedette_console.data.reader import Reader
from vedette_console.data.rows import ALERT_ROW, NEWEST, alert_row, entities
from vedette_console.security.principal import Principal

SHOWN = 10
"""Of a group."""
MAX_ENTITIES = 6
MINUTES = (1, 7 * 24 * 60)


def related(reader: Reader, who: Principal, day: str, agent_id: str, alert_id: str, minutes: int = 60) -> Related:
    """Alerts of at most ``minutes`` before and after. Raises Problem 404 when there is no such alert."""
    minutes = max(MINUTES[0], min(minutes, MINUTES[1]))
    row = one_alert(reader, day, agent_id, alert_id)
    if row["counted_at"] is None:
        return Related(minutes=minutes, groups=[])
    since, until = around(row["counted_at"], minutes)
    near = f"counted_at BETWEEN {time(since)}::TIMESTAMPTZ AND {time(until)}::TIMESTAMPTZ"
    reader.show("alerts", ALERTS, reader.files(ALERTS, Where(near={"counted_at": [(since, until)]})))
    groups = []
    # All tests in one pass over these hours; each alert counts in every group that it is of.
    tests = _tests(row)
    marks = ", ".join(f"({test}) AS in_{number}" for number, (_, _, _, test) in enumerate(tests))
    any_of = " OR ".join(f"in_{number}" for number in range(len(tests)))
    keys = reader.rows(
        f"""SELECT * FROM (
            SELECT g, received_date, counted_at, agent_id, alert_id, row_number() OVER (
                PARTITION BY g ORDER BY abs(epoch_us(counted_at) - epoch_us({time(row["counted_at"])}::TIMESTAMPTZ)),
                agent_id, alert_id) AS place
            FROM (SELECT unnest([{", ".join(f"CASE WHEN in_{n} THEN {n} END" for n in range(len(tests)))}]) AS g,
                      received_date, counted_at, agent_id, alert_id
                  FROM (SELECT received_date, counted_at, agent_id, alert_id, {marks} FROM alerts WHERE {near}
                        AND NOT (agent_id = {text(agent_id)} AND alert_id = {text(alert_id)})) WHERE {any_of})
            WHERE g IS NOT NULL) WHERE place <= {SHOWN + 1} ORDER BY g, {NEWEST}"""
    )
    rows = {(one["agent_id"], one["alert_id"]): alert_row(one) for one in whole(reader, keys, ALERT_ROW)}
    for number, (by, value, query, _) in enumerate(tests):
        found = [rows[key] for one in keys if one["g"] == number
                 and (key := (one["agent_id"], one["alert_id"])) in rows]  # fmt: skip
        if found:
            groups.append(RelatedGroup(by=by, value=value, query=f"{query} {_range(since, until)}".strip(),
                                       items=found[:SHOWN], more=len(found) > SHOWN))  # fmt: skip
    return Related(minutes=minutes, groups=groups)


def _tests(row: Row) -> list[tuple[str, str, str, str]]:
    """By what an alert may be related, the value, the search for all such, and the SQL."""
    kin = f"parent_id = {text(row['alert_id'])}"
    if row["parent_id"]:
        kin += f" OR alert_id = {text(row['parent_id'])} OR parent_id = {text(row['parent_id'])}"
    agent = text(row["agent_id"])
    found = [("fold", row["alert_id"], f"kind:* {term('agent', row['agent_id'])}",
              f"agent_id = {agent} AND coalesce({kin}, false)")]  # fmt: skip
    for one in list(dict.fromkeys((e.kind, e.value) for e in entities(row["entities"]) if e.value))[:MAX_ENTITIES]:
        field = one[0] if one[0] in KINDS else "entity"
        test = f"list_contains(entities, {{'kind': {text(one[0])}, 'value': {text(one[1])}}})"
        found.append(("entity", f"{one[0]} {one[1]}", term(field, one[1]),
                      f"coalesce({test}, false) AND coalesce(kind, '') <> 'fold'"))  # fmt: skip
    if row["host"]:
        place = {name: row[name] or "" for name in ("host", "fleet", "site")}
        query = " ".join(term(name, value) for name, value in place.items())
        test = " AND ".join(f"coalesce({name}, '') = {text(value)}" for name, value in place.items())
        found.append(("host", row["host"], query, f"{test} AND coalesce(kind, '') <> 'fold'"))
    if row["rule_id"]:
        test = f"coalesce(rule_id = {text(row['rule_id'])}, false) AND coalesce(kind, '') <> 'fold'"
        found.append(("rule", row["rule_title"] or row["rule_id"], term("rule", row["rule_id"]), test))
    return found


def _range(since: datetime, until: datetime) -> str:
    return f"from:{since:%Y-%m-%dT%H:%M:%S} to:{until:%Y-%m-%dT%H:%M:%S}"
