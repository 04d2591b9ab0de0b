"""The job ``filters``: what people closed as false positives, as proposed filters for the rules that made it.

An alert is labelled by the findings that it is of (``closed``): one of a finding that was closed as true counts as
true, whatever else it is of. For each rule with enough false positives ``findings/conjunctions.py`` looks for the
smallest condition that holds for all of them, and for no alert closed as true and none of a high level that is open. It
becomes a Sigma filter beside the rules, which is then **measured**: the agent's own engine evaluates it over the rule's
stored alerts. What would remove an alert that is to be kept, or leaves a false positive, is not written. Filters do not
apply to correlations.

Alerts are counted where they lie, by label, field and value; no row of one passes through here.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

import click

from spark_jobs.common.entities import PRIVATE, SEVERE
from spark_jobs.common.period import Period, period
from spark_jobs.common.plain import many, plain, short
from spark_jobs.findings.conjunctions import (
    FALSE,
    MAX_FIELDS,
    MAX_TEXT,
    MAX_VALUES,
    OPEN,
    OTHER,
    SPARED,
    TRUE,
    best,
)
from spark_jobs.findings.proposals import added, file_name, filter_text, selection
from spark_jobs.jobs.job import COUNT, FILE, Job, days_options, spark_job
from spark_jobs.report import closed
from spark_jobs.tables import storage
from spark_jobs.tables.ask import Reader, text, within
from spark_jobs.tables.schema import ALERTS
from spark_jobs.tables.tables import texts

DAYS = 90
LEAST = 5
MAX_AGENTS = 3
"""Agents that the printed hunt names."""


class Proposal(NamedTuple):
    """A filter, and what it would have done."""

    rule_id: str
    title: str
    about: Mapping[str, Counter[str]]
    """As of ``_about``."""
    values: Mapping[str, Sequence[str]]
    """By field; empty for a rule that has none to propose."""
    text: str
    removed: Counter[str]
    """Alerts by label."""

    @property
    def false(self) -> int:
        """How many false positives the rule has."""
        return self.about["agent"].total()

    @property
    def alerts(self) -> int:
        """How many alerts of all labels."""
        return self.about["place"].total()

    @property
    def fits(self) -> bool:
        """Whether it leaves out all false positives, and nothing that is to be kept."""
        return self.removed[FALSE] == self.false and not any(self.removed[label] for label in SPARED)

    @property
    def effect(self) -> str:
        """The effect, in words."""
        gone = self.removed
        return (
            f"would have removed {gone.total()} of {many(self.alerts, 'alert')}: {gone[FALSE]} of "
            f"{self.false} closed as false positives, {gone[TRUE]} closed as true, {gone[OPEN]} open and high, "
            f"{many(gone[OTHER], 'other')}"
        )


@spark_job()
@days_options(DAYS, "Days of alerts looked at.")
@click.option("--least", type=COUNT, default=LEAST, show_default=True, help="False positives of a rule that it takes.")
@click.option("--proposals", "folder", type=FILE, metavar="DIR", required=True,
              help="Write each filter into this folder, with its effect beside it.")  # fmt: skip
@click.option("--patch", type=FILE, metavar="FILE", help="Write all filters as one patch for the folder of the rules.")
@click.option("--rules", type=FILE, metavar="DIR", default="rules", show_default=True,
              help="Folder of the rules, for the command that is printed.")  # fmt: skip
def filters(job: Job, last: date, days: int, least: int, folder: Path, patch: Path | None, rules: Path) -> str:
    """Propose filters from false positives.

    Campaigns, anomalies and risks that were closed as false positives become Sigma filters, each with its effect on the
    alerts that are stored, and the hunt that would measure it on hosts.

    Example: vedette-spark filters --tables tables --proposals proposed --patch filters.patch
    """
    wanted = period(last, days)
    with closing(job.reader()) as reader:
        chosen, refused = proposals(reader, wanted, least)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for proposal in chosen:
        name = file_name(proposal.rule_id)
        hunt = _hunt(proposal, rules, folder / name)
        storage.replace(folder / name, proposal.text)
        storage.replace(folder / f"{Path(name).stem}.effect.json", _effect(proposal, wanted, hunt))
        lines += [f"{plain(proposal.title)}: {proposal.effect}", f"  {folder / name}", f"  on hosts: {hunt}"]
    if patch:
        storage.replace(patch, "".join(added(file_name(proposal.rule_id), proposal.text) for proposal in chosen))
    lines += [f"no filter for {plain(line)}" for line in refused]
    return "\n".join([f"filters: {many(len(chosen), 'proposal')} of {wanted.since} to {wanted.until}", *lines])


def proposals(reader: Reader, wanted: Period, least: int) -> tuple[list[Proposal], list[str]]:
    """Filters by rule, and for which rules there is none and why."""
    # Not by day of receipt: that is the edge's, whose clock may stand at 1970.
    reader.view("alerts", ALERTS, near={"counted_at": [(wanted.start, wanted.end)]})
    in_days = f"kind = 'detection' AND rule_id <> '' AND {within('counted_at', wanted.since, wanted.until)}"
    closed.take_apart(reader, datetime.now(UTC))
    findings = closed.alerts_of(f"SELECT * FROM alerts WHERE {in_days}")
    reader.table(
        "closed_alerts",
        f"""SELECT agent_id, alert_id, bool_or(is_true) AS is_true,
        array_agg(finding) AS findings FROM ({findings}) f GROUP BY agent_id, alert_id""",
    )
    rules = reader.rows(
        f"""SELECT rule_id, max(coalesce(nullif(rule_title, ''), rule_id)) AS title FROM ({_labelled(in_days)}) l
        WHERE label = '{FALSE}' GROUP BY rule_id HAVING count(*) >= {least} ORDER BY rule_id"""
    )
    chosen, refused = list[Proposal](), list[str]()
    for rule in rules:
        labelled = _labelled(f"rule_id = {text(rule['rule_id'])} AND {in_days}")
        proposal = _proposal(reader, labelled, rule["rule_id"], rule["title"])
        if not proposal.values:
            why = f"no one or two fields tell its {proposal.false} false positives from the others"
            refused.append(f"{proposal.title}: {why}")
        elif not proposal.fits:
            refused.append(f"{proposal.title}: measured, {proposal.effect}")
        else:
            chosen.append(proposal)
    return chosen, refused


def _proposal(reader: Reader, labelled: str, rule_id: str, title: str) -> Proposal:
    """The filter for a rule, of which ``labelled`` (SQL) are the alerts; without ``values`` where there is none."""
    about = _about(reader, labelled)
    values = _values(reader, labelled, about["agent"].total())
    far = len(about["place"]) > 1
    naming = {
        name
        for name, some in values.items()
        if about["entity"].keys() >= {value.lower() for value in some}
        and not (far and any(re.search(PRIVATE, value) for value in some))
    }
    fields = best(values, naming, _counts(reader, labelled, values)) if values else ()
    source = dict(zip(_SOURCE, about["source"].most_common(1)[0][0].split(_BETWEEN), strict=True))
    if not fields or not any(source.values()):
        return Proposal(rule_id, title, about, {}, "", Counter())
    some = {name: values[name] for name in fields}
    shown = ", ".join(value for name in fields for value in some[name])
    findings = many(len(about["finding"]), "finding")
    filter_of = filter_text(
        rule_id, source, some, key=f"{rule_id} {json.dumps(some, sort_keys=True)}",
        title=f"{short(shown, 60)} in {short(title, 60)}",
        description=f"{many(about['agent'].total(), 'alert')} of {findings} that were closed as false positives.",
    )  # fmt: skip
    return Proposal(rule_id, title, about, some, filter_of, _measured(reader, labelled, some))


def _effect(proposal: Proposal, wanted: Period, hunt: str) -> str:
    """The effect, as JSON."""
    removed = proposal.removed
    whole = {
        "rule_id": proposal.rule_id, "rule_title": proposal.title, "filter": file_name(proposal.rule_id),
        "fields": proposal.values, "since": wanted.since, "until": wanted.until, "alerts": proposal.alerts,
        "removed": removed.total(), **{f"removed_{label}": removed[label] for label in (FALSE, TRUE, OPEN, OTHER)},
        "findings": sorted(proposal.about["finding"]), "hunt": hunt,
    }  # fmt: skip
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _hunt(proposal: Proposal, rules: Path, file: Path) -> str:
    """The command that counts on hosts what the rules still find with the filter."""
    whom = [word for agent in sorted(proposal.about["agent"])[:MAX_AGENTS] for word in ("--agent", agent)]
    return shlex.join(["vedette", "fleet", "hunt", str(rules), str(file), "--since", "30d", *whom])


# --- questions


_SOURCE = ("product", "category", "service")
_BETWEEN = "\x1f"


def _labelled(condition: str) -> str:
    """SQL: the rows of ``alerts`` of which ``condition`` holds, with their ``label`` and the ``findings`` they are of;
    the view and the table ``closed_alerts`` are there."""
    return f"""SELECT a.*, findings,
        CASE WHEN is_true THEN '{TRUE}' WHEN is_true IS NOT NULL THEN '{FALSE}'
            WHEN level IN ({texts(SEVERE)}) THEN '{OPEN}' ELSE '{OTHER}' END AS label
    FROM (SELECT * FROM alerts WHERE {condition}) a
    LEFT JOIN closed_alerts c ON a.agent_id = c.agent_id AND a.alert_id = c.alert_id"""


def _about(reader: Reader, labelled: str) -> dict[str, Counter[str]]:
    """Count the false positives by ``agent``, ``finding``, ``entity`` (in lower case) and log
    ``source``; and all alerts by ``place``."""
    source = ", ".join(f"coalesce(logsource.{name}, '')" for name in _SOURCE)
    about: dict[str, Counter[str]] = defaultdict(Counter)
    for row in reader.rows(
        f"""WITH l AS ({labelled}), those AS (SELECT * FROM l WHERE label = '{FALSE}')
        SELECT what, name, count(*) AS alerts FROM (
            SELECT 'place' AS what, concat(coalesce(fleet, ''), '/', coalesce(site, '')) AS name FROM l
            UNION ALL SELECT 'agent', agent_id FROM those
            UNION ALL SELECT 'finding', {{explode}}(findings) FROM those
            UNION ALL SELECT 'source', concat_ws({text(_BETWEEN)}, {source}) FROM those
            UNION ALL SELECT 'entity', lower(entity.value) FROM (
                SELECT {{explode}}(entities) AS entity FROM those) e) n
        GROUP BY what, name ORDER BY what, name"""
    ):
        about[row["what"]][row["name"]] = row["alerts"]
    return about


def _values(reader: Reader, labelled: str, false: int) -> dict[str, list[str]]:
    """The fields of use of ``false`` false positives, by name, each with its values."""
    rows = reader.rows(
        f"""SELECT field, array_agg(value) AS written FROM (
            SELECT entry.key AS field, lower(entry.value) AS folded, min(entry.value) AS value, count(*) AS alerts
            FROM (SELECT {{explode}}(map_entries(fields)) AS entry FROM ({labelled}) l WHERE label = '{FALSE}') e
            WHERE entry.value <> '' GROUP BY 1, 2) v
        GROUP BY field HAVING sum(alerts) = {false} AND count(*) <= {MAX_VALUES} AND max(length(folded)) <= {MAX_TEXT}
        ORDER BY field LIMIT {MAX_FIELDS}"""
    )
    return {row["field"]: sorted(row["written"]) for row in rows}


def _counts(reader: Reader, labelled: str, values: Mapping[str, Sequence[str]]) -> dict[tuple[str, int], int]:
    """Alerts by label and by the fields of which they have one of the ``values``, a bit each."""
    bits = " ".join(
        f"""WHEN entry.key = {text(name)} AND lower(entry.value) IN ({", ".join(text(value.lower()) for value in some)})
            THEN {1 << place}"""
        for place, (name, some) in enumerate(values.items())
    )
    rows = reader.rows(
        f"""SELECT label, mask, count(*) AS alerts FROM (
            SELECT label, bit_or(CAST(CASE {bits} ELSE 0 END AS BIGINT)) AS mask FROM (
                SELECT label, agent_id, alert_id, {{explode}}(map_entries(fields)) AS entry FROM ({labelled}) l) e
            GROUP BY label, agent_id, alert_id) m
        GROUP BY label, mask"""
    )
    return {(row["label"], row["mask"]): row["alerts"] for row in rows}


def _measured(reader: Reader, labelled: str, values: Mapping[str, Sequence[str]]) -> Counter[str]:
    """How many alerts of each label a rule with the filter's selection matches, by the agent's engine."""
    from vedette import compile_rules, evaluate

    rule = ["title: What a filter leaves out", "logsource: {product: linux}", "detection:", "    selection:"]
    plan = compile_rules(text="\n".join([*rule, *selection(values, "        "), "    condition: selection", ""]))
    columns = ", ".join(f"fields[{text(name)}] AS value_{place}" for place, name in enumerate(values))
    groups = list[tuple[str, int]]()

    def events() -> Iterator[Mapping[str, str]]:
        for row in reader.stream(
            f"SELECT *, count(*) AS alerts FROM (SELECT label, {columns} FROM ({labelled}) l) v GROUP BY ALL"
        ):
            groups.append((row["label"], row["alerts"]))
            event = {name: row[f"value_{place}"] for place, name in enumerate(values)}
            yield {name: value for name, value in event.items() if value is not None}

    removed = Counter[str]()
    for detection in evaluate(plan, events(), format="json"):
        label, alerts = groups[detection.line - 1]
        removed[label] += alerts
    return removed
