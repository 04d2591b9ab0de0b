"""Rule files to a plan: parse, choose literals by their frequency in a sample of the traffic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from vedette.engine.prefilter import measured
from vedette.plan import plan as plans
from vedette.plan.ir import And, Expr, Rule
from vedette.plan.literals import Cost, Measured, candidates, guess
from vedette.plan.plan import Plan
from vedette.plan.relation import Correlation
from vedette.rules import sigma
from vedette.rules.authoring.cases import is_test
from vedette.rules.pipelines import NONE, Pipelines
from vedette.rules.ruleset import Filter, RuleSet

MAX_SAMPLE = 16 << 20
"""Bytes of a sample that are looked at."""


def files(paths: Iterable[Path]) -> Iterator[Path]:
    """The rule files at ``paths``: files as given, folders recursively.

    Test events are left out, also where they are named, as a shell's ``*.yml`` names them. Raises FileNotFoundError for
    a path that does not exist, and when nothing but test events is named.
    """
    paths = list(paths)
    named = [path for path in paths if not is_test(path)]
    if paths and not named:
        raise FileNotFoundError(f"{paths[0]}: holds test events: give the rule file beside it, or the folder")
    return sigma.rule_files(named)


def load(paths: Iterable[Path], pipelines: Pipelines = NONE) -> RuleSet:
    """The rules of ``files(paths)``, not yet with their filters and correlations: ``from_rules`` joins these."""
    return sigma.load(files(paths), pipelines)


def build(paths: Iterable[Path], *, sample: bytes = b"", pipelines: Pipelines = NONE) -> Plan:
    """The plan of all rules at ``paths``, as ``pipelines`` map them; refused rules are listed in it.

    ``sample``: lines of the traffic to be judged, for choosing rare literals; without it their rareness is guessed.
    Raises FileNotFoundError for a path that does not exist.
    """
    return from_rules(load(paths, pipelines), sample=sample)


def from_text(text: str, *, sample: bytes = b"", pipelines: Pipelines = NONE) -> Plan:
    """The plan of the rules in one YAML text."""
    rules = RuleSet(pipelines=pipelines)
    sigma.add(rules, text)
    return from_rules(rules, sample=sample)


def from_rules(rules: RuleSet, *, sample: bytes = b"") -> Plan:
    """The plan of parsed rules, with their filters."""
    sigma.finish(rules)
    cost: Cost | Measured = cost_of(rules, sample) if sample else guess
    return plans.build(rules.rules, rules.predicates, rules.refused, cost, rules.correlations)


def cost_of(rules: RuleSet, sample: bytes) -> Measured:
    """How common in ``sample`` all is that the prefilter could search for."""
    literals: set[bytes] = set()
    for rule in rules.rules:
        literals |= candidates(rule.expr, rules.predicates)
    return measured(literals, sample[:MAX_SAMPLE])


def filters_of(rules: RuleSet, rule_id: str) -> list[Filter]:
    """The filters that are part of a rule, in the order in which they were joined to it."""
    return [one for one in rules.filters if rule_id in one.joined]


def name_of(one: Filter) -> str:
    """A filter for people: title and place."""
    return f"filter '{one.parsed.title}' ({one.path}:{one.line})"


def part_names(rules: RuleSet, rule: Rule) -> dict[Expr, str]:
    """What authors call the parts of a rule: its search identifiers, and the filters joined to it."""
    names, filters = sigma.named(rules, rule.id), filters_of(rules, rule.id)
    if filters and isinstance(rule.expr, And):  # joining puts a filter's condition behind all others
        names |= {part: name_of(one) for one, part in zip(filters, rule.expr.args[-len(filters) :], strict=True)}
    return names


def described(plan: Plan) -> list[dict[str, object]]:
    """One JSON-able row per rule and correlation: what a bundle's ``rules.json`` and ``rules list`` show."""
    rows: list[dict[str, object]] = []
    every: list[Rule | Correlation] = [*plan.rules, *plan.correlations]
    for one in every:
        row: dict[str, object] = {"id": one.id, "title": one.title, "level": one.level, "tags": list(one.tags)}
        if isinstance(one, Rule):
            row["logsource"] = {name: value for name, value in one.logsource._asdict().items() if value}
        else:
            row["correlation"] = {"type": one.kind.value, "rules": [slot.rule_id for slot in one.slots]}
        rows.append({**row, "digest": one.digest, "alerts": one.id not in plan.silent})
    return rows
