"""The job ``filters``: what people closed as false positives, as proposed filters for the rules that made it.

A **case** is a campaign, an anomaly or a risk that somebody closed (``triage``), as long as that decision holds. An
alert is of a case when its rule, site, host, entity and time are, up to the decision: what came later nobody has looked
at. One of a case that was closed as true counts as true, whatever else it is of.

For each rule with enough false positives ``findings/conjunctions.py`` looks for the smallest condition that holds for
all of them, and for no alert closed as true and none of a high level that is open. It becomes a Sigma filter beside the
rules, which is then **measured**: the agent's own engine evaluates it over the fields of the rule's stored alerts. What
would remove an alert that is to be kept, or leaves a false positive, is not written. Filters do not apply to
correlations.
"""

from __future__ import annotations

import json
import shlex
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from spark_jobs.common.entities import SEVERE
from spark_jobs.common.period import Period, period
from spark_jobs.common.plain import many, plain, short
from spark_jobs.findings.conjunctions import FALSE, KEPT, OPEN, OTHER, TRUE, Counts, FalseOnes
from spark_jobs.findings.proposals import NAMESPACE, added, file_name, filter_text, selection
from spark_jobs.jobs.job import COUNT, FILE, Job, days_options, spark_job
from spark_jobs.report.triage import CLOSED, decisions
from spark_jobs.tables import storage
from spark_jobs.tables.ask import Reader, within
from spark_jobs.tables.schema import ALERTS, ANOMALIES, CAMPAIGNS, RISK, TRIAGE
from spark_jobs.tables.tables import texts

DAYS = 90
LEAST = 5
MAX_AGENTS = 3
"""Agents that the printed hunt names."""


class Case(NamedTuple):
    """What somebody closed. ``rules``, ``places`` (``FLEET/SITE``), ``entities`` (folded) and ``hosts``: any, where
    they are empty."""

    finding: str
    label: str
    rules: frozenset[str]
    places: frozenset[str]
    entities: frozenset[tuple[str, str]]
    first: datetime
    last: datetime
    hosts: frozenset[str] = frozenset()

    def holds(self, rule: str, place: str, host: str, entities: Collection[tuple[str, str]], at: datetime) -> bool:
        return (
            self.first <= at <= self.last
            and (not self.rules or rule in self.rules)
            and (not self.places or place in self.places)
            and (not self.hosts or host in self.hosts)
            and (not self.entities or not self.entities.isdisjoint(entities))
        )


class Alert(NamedTuple):
    """An alert with what was decided about it."""

    row: Mapping[str, Any]
    fields: Mapping[str, str]
    entities: frozenset[tuple[str, str]]
    place: str
    label: str
    findings: tuple[str, ...]


class Proposal(NamedTuple):
    """A filter, and what it would have done."""

    rule_id: str
    false: FalseOnes
    values: Mapping[str, Sequence[str]]
    text: str
    removed: Counter[str]
    alerts: int


@spark_job()
@days_options(DAYS, "Days of alerts looked at.")
@click.option("--least", type=COUNT, default=LEAST, show_default=True, help="False positives of a rule that it takes.")
@click.option("--proposals", "folder", type=FILE, metavar="DIR", required=True,
              help="Write each filter into this folder, with its effect beside it.")  # fmt: skip
@click.option("--patch", type=FILE, metavar="FILE", help="Write all filters as one patch for the folder of the rules.")
@click.option("--rules", type=FILE, metavar="DIR", default="rules", show_default=True,
              help="Folder of the rules, for the command that is printed.")  # fmt: skip
def filters(
    job: Job, last: date, days: int, least: int, folder: Path, patch: Path | None, rules: Path
) -> str:  # fmt: skip
    """Propose filters from false positives.

    Campaigns, anomalies and risks that were closed as false positives become Sigma filters, each with its effect on the
    alerts that are stored, and the hunt that would measure it on hosts.

    Example: vedette-spark filters --tables tables --proposals proposed --patch filters.patch
    """
    wanted = period(last, days)
    with closing(job.reader()) as reader:
        found, refused = proposals(reader, wanted, least)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for one in found:
        name = file_name(one.rule_id)
        hunt = _hunt(one, rules, folder / name)
        storage.replace(folder / name, one.text)
        storage.replace(folder / f"{Path(name).stem}.effect.json", _effect(one, wanted, hunt))
        lines += [f"{plain(one.false.title)}: {_words(one)}", f"  {folder / name}", f"  on hosts: {hunt}"]
    if patch:
        storage.replace(patch, "".join(added(file_name(one.rule_id), one.text) for one in found))
    lines += [f"no filter for {plain(line)}" for line in refused]
    return "\n".join([f"filters: {many(len(found), 'proposal')} of {wanted.since} to {wanted.until}", *lines])


def proposals(reader: Reader, wanted: Period, least: int) -> tuple[list[Proposal], list[str]]:
    """Filters by rule, and for which rules there is none and why."""
    # Not by day of receipt: that is the edge's, whose clock may stand at 1970.
    reader.view("alerts", ALERTS, near={"counted_at": [(wanted.start, wanted.end)]})
    cases = closed_cases(reader, datetime.now(UTC))
    rules = _rules_of(reader, wanted, [one for one in cases if one.label == FALSE])
    false: dict[str, FalseOnes] = defaultdict(FalseOnes)
    for one in alerts(reader, wanted, rules, cases):
        if one.label == FALSE:
            of = false[one.row["rule_id"]]
            of.add(one.fields)
            of.entities |= {value for _, value in one.entities}
            of.findings.update(one.findings)
            of.agents.add(one.row["agent_id"])
            of.sources[tuple((one.row["logsource"] or {}).items())] += 1
            of.title = one.row["rule_title"] or one.row["rule_id"]
    enough = {rule: of for rule, of in false.items() if of.alerts >= least}
    counts = {rule: Counts(of) for rule, of in enough.items()}
    for one in alerts(reader, wanted, enough, cases):
        counts[one.row["rule_id"]].add(one.label, one.fields, one.place)
    made, refused = dict[str, tuple[dict[str, list[str]], str]](), list[str]()
    for rule, of in sorted(enough.items()):
        chosen, source = counts[rule].best(), dict(of.sources.most_common(1)[0][0])
        if not chosen or not any(source.values()):
            refused.append(f"{of.title}: no one or two fields tell its {of.alerts} false positives from the others")
            continue
        values = {name: sorted(of.values[name].values()) for name in chosen}
        made[rule] = values, _text(rule, of, source, values)
    return _measured(reader, wanted, cases, enough, made, refused)


def _text(rule: str, of: FalseOnes, source: Mapping[str, str | None], values: Mapping[str, Sequence[str]]) -> str:
    shown = ", ".join(value for some in values.values() for value in some)
    about = many(of.alerts, "alert")
    return filter_text(
        rule, source, values, key=f"{rule} {json.dumps(values, sort_keys=True)}",
        title=f"{short(shown, 60)} in {short(of.title, 60)}",
        description=f"{about} of {many(len(of.findings), 'finding')} that were closed as false positives.",
    )  # fmt: skip


def _measured(
    reader: Reader, wanted: Period, cases: Sequence[Case], enough: Mapping[str, FalseOnes],
    made: Mapping[str, tuple[dict[str, list[str]], str]], refused: list[str],
) -> tuple[list[Proposal], list[str]]:  # fmt: skip
    """What the filters that were ``made`` do to the stored alerts, by the agent's engine."""
    from vedette import compile_rules, evaluate

    if not made:
        return [], refused
    plan = compile_rules(text="---\n".join(_as_rule(rule, values) for rule, (values, _) in made.items()))
    labels, removed, totals = list[tuple[str, str]](), defaultdict[str, Counter[str]](Counter), Counter[str]()

    def events() -> Iterator[Mapping[str, str]]:
        for one in alerts(reader, wanted, made, cases):
            labels.append((one.row["rule_id"], one.label))
            totals[one.row["rule_id"]] += 1
            yield one.fields

    for found in evaluate(plan, events(), format="json"):
        rule, label = labels[found.line - 1]
        if found.rule.id == _measuring(rule):
            removed[rule][label] += 1
    kept = list[Proposal]()
    for rule, (values, text) in made.items():
        one = Proposal(rule, enough[rule], values, text, removed[rule], totals[rule])
        if any(removed[rule][label] for label in KEPT) or removed[rule][FALSE] < enough[rule].alerts:
            refused.append(f"{enough[rule].title}: measured, {_words(one)}")
        else:
            kept.append(one)
    return kept, refused


def _measuring(rule: str) -> str:
    """The id of the rule by which the filter for ``rule`` is measured."""
    return str(uuid.uuid5(NAMESPACE, rule))


def _as_rule(rule: str, values: Mapping[str, Sequence[str]]) -> str:
    """A rule that matches what the filter for ``rule`` leaves out."""
    head = ["title: What a filter leaves out", f"id: {_measuring(rule)}", "logsource: {product: linux}", "detection:"]
    return "\n".join([*head, "    selection:", *selection(values, "        "), "    condition: selection"]) + "\n"


def _words(one: Proposal) -> str:
    gone = one.removed
    return (
        f"would have removed {gone.total()} of {many(one.alerts, 'alert')}: {gone[FALSE]} of "
        f"{one.false.alerts} closed as false positives, {gone[TRUE]} closed as true, {gone[OPEN]} open and high, "
        f"{many(gone[OTHER], 'other')}"
    )


def _effect(one: Proposal, wanted: Period, hunt: str) -> str:
    whole = {
        "rule_id": one.rule_id, "rule_title": one.false.title, "filter": file_name(one.rule_id), "fields": one.values,
        "since": wanted.since, "until": wanted.until, "alerts": one.alerts, "removed": one.removed.total(),
        **{f"removed_{label}": one.removed[label] for label in (FALSE, TRUE, OPEN, OTHER)},
        "findings": sorted(one.false.findings), "hunt": hunt,
    }  # fmt: skip
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _hunt(one: Proposal, rules: Path, file: Path) -> str:
    """The command that counts on hosts what the rules still find with the filter."""
    whom = [word for agent in sorted(one.false.agents)[:MAX_AGENTS] for word in ("--agent", agent)]
    return shlex.join(["vedette", "fleet", "hunt", str(rules), str(file), "--since", "30d", *whom])


# --- cases and alerts


def closed_cases(reader: Reader, now: datetime) -> list[Case]:
    """What was closed, and still is at ``now``."""
    reader.view("triage", TRIAGE)
    reader.view("campaigns", CAMPAIGNS)
    reader.view("anomalies", ANOMALIES)
    ids = [row["finding_id"] for row in reader.rows("SELECT DISTINCT finding_id FROM triage")]
    held = {one: what for one, what in decisions(reader, ids, now).items() if what.state in CLOSED}
    if not held:
        return []
    cases = []
    for row in reader.rows(f"SELECT * FROM campaigns WHERE campaign_id IN ({texts(held)})"):
        who = [(row["kind"], row["value"]), *((one["kind"], one["value"]) for one in row["entities"] or ())]
        entities = frozenset((kind, value.casefold()) for kind, value in who)
        span = row["first_seen"], row["last_seen"]
        cases.append(_case(row["campaign_id"], held, row["rules"] or (), row["sites"] or (), entities, *span))
    for row in reader.rows(f"SELECT * FROM anomalies WHERE anomaly_id IN ({texts(held)}) AND kind <> 'silence'"):
        who = [(row["entity_kind"], row["entity_value"].casefold())] if row["entity_value"] else []
        rules, site = [row["rule_id"]] if row["rule_id"] else [], row["site"]
        places = [f"{row['fleet']}/{site}"] if site and row["kind"] != "new_entity" else []
        if rules or who:
            span = row["started_at"], row["ended_at"] or datetime.max.replace(tzinfo=UTC)
            cases.append(_case(row["anomaly_id"], held, rules, places, frozenset(who), *span))
    return [*cases, *_of_risks(reader, held)]


def _of_risks(reader: Reader, held: Mapping[str, Any]) -> Iterator[Case]:
    """Those of risks, each as it was on the day of its decision: an entity's alerts of the rules it was made of."""
    reader.view("risk", RISK)
    newest: dict[str, Mapping[str, Any]] = {}
    for row in reader.rows(f"SELECT * FROM risk WHERE risk_id IN ({texts(held)}) ORDER BY as_of"):
        if row["as_of"] <= f"{held[row['risk_id']].updated_at:%Y-%m-%d}":
            newest[row["risk_id"]] = row
    for finding, row in newest.items():
        kind, value, scope = row["kind"], row["value"], row["scope"]
        places = [value] if kind == "site" else [scope] if scope else []
        who = frozenset() if kind in ("host", "site") else frozenset({(kind, value.casefold())})
        rules = [one["rule_id"] for one in row["contributions"] or ()]
        case = _case(finding, held, rules, places, who, row["first_seen"], row["last_seen"])
        yield case._replace(hosts=frozenset({value} if kind == "host" else ()))


def _case(
    finding: str, held: Mapping[str, Any], rules: Collection[str], places: Collection[str],
    entities: frozenset[tuple[str, str]], first: datetime, last: datetime,
) -> Case:  # fmt: skip
    decision = held[finding]
    label = FALSE if decision.state == "false-positive" else TRUE
    last = min(last, decision.updated_at)
    return Case(finding, label, frozenset(rules), frozenset(places), entities, first, last)


def _rules_of(reader: Reader, wanted: Period, cases: Sequence[Case]) -> list[str]:
    """The rules that made alerts of ``cases``, and perhaps others."""
    if not cases:
        return []
    named = {rule for case in cases for rule in case.rules}
    if all(case.rules for case in cases):
        return sorted(named)
    rows = reader.rows(f"SELECT DISTINCT rule_id FROM alerts WHERE {within('counted_at', wanted.since, wanted.until)}")
    return sorted(row["rule_id"] for row in rows if row["rule_id"])


def alerts(reader: Reader, wanted: Period, rules: Collection[str], cases: Sequence[Case]) -> Iterator[Alert]:
    """Alerts of single events by ``rules``, with their labels; in the same order each time."""
    if not rules:
        return
    of_rule = {rule: [one for one in cases if not one.rules or rule in one.rules] for rule in rules}
    for row in reader.stream(
        f"""SELECT rule_id, rule_title, level, fleet, site, host, agent_id, logsource, fields, entities, counted_at
        FROM alerts WHERE kind = 'detection' AND rule_id IN ({texts(rules)})
        AND {within("counted_at", wanted.since, wanted.until)} ORDER BY agent_id, alert_id"""
    ):
        place = f"{row['fleet'] or ''}/{row['site'] or ''}"
        entities = frozenset((one["kind"], (one["value"] or "").casefold()) for one in row["entities"] or ())
        at = row["counted_at"].astimezone(UTC)  # Spark streams times without a zone: of this host's
        who = row["rule_id"], place, row["host"] or "", entities, at
        mine = [one for one in of_rule[row["rule_id"]] if one.holds(*who)]
        said = {one.label for one in mine}
        label = TRUE if TRUE in said else FALSE if FALSE in said else OPEN if row["level"] in SEVERE else OTHER
        fields = {name: value for name, value in dict(row["fields"] or {}).items() if value is not None}
        yield Alert(row, fields, entities, place, label, tuple(one.finding for one in mine))
