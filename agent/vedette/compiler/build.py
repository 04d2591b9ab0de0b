"""Rule files to a plan: parse, choose literals by their frequency in a sample of the traffic."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vedette.compiler import plan as plans
from vedette.compiler import sigma
from vedette.compiler.ir import Rule
from vedette.compiler.literals import Cost, candidates, guess
from vedette.compiler.plan import Plan
from vedette.compiler.sigma import RuleSet
from vedette.engine.prefilter import measured

MAX_SAMPLE = 16 << 20
"""Bytes of a sample that are looked at."""


def build(paths: Iterable[Path], *, sample: bytes = b"") -> Plan:
    """The plan of all rules at ``paths``; refused rules are listed in it.

    ``sample``: lines of the traffic to be judged, for choosing rare literals; without it their rareness is guessed.
    Raises FileNotFoundError for a path that does not exist.
    """
    return from_rules(sigma.load(paths), sample=sample)


def from_text(text: str, *, sample: bytes = b"") -> Plan:
    """The plan of the rules in one YAML text."""
    rules = RuleSet()
    sigma.add(rules, text)
    return from_rules(rules, sample=sample)


def from_rules(rules: RuleSet, *, sample: bytes = b"") -> Plan:
    """The plan of parsed rules."""
    cost: Cost = guess
    if sample:
        literals: set[bytes] = set()
        for rule in rules.rules:
            literals |= candidates(rule.expr, rules.predicates)
        cost = measured(literals, sample[:MAX_SAMPLE])
    return plans.build(rules.rules, rules.predicates, rules.refused, cost)


def described(rules: Iterable[Rule]) -> list[dict[str, object]]:
    """One JSON-able row per rule: what a bundle's ``rules.json`` and ``rules list`` show."""
    return [
        {
            "id": rule.id,
            "title": rule.title,
            "level": rule.level,
            "tags": list(rule.tags),
            "logsource": {name: value for name, value in rule.logsource._asdict().items() if value},
            "digest": rule.digest,
        }
        for rule in rules
    ]
