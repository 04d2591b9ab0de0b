"""Rules tried on events whose outcome is known: what ``rules test`` runs and a bundle carries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from vedette.engine.match import Engine
from vedette.event import LogSource
from vedette.inputs.decode import record


class Case(NamedTuple):
    """One event and whether the rule ``rule_id`` matches it; ``where``: file and line, for the report."""

    rule_id: str
    expect: bool
    raw: bytes
    codec: str
    origin: str
    where: str

    def to_row(self) -> list[Any]:
        """What msgpack can carry; ``Case(*row)`` is its inverse."""
        return list(self)


class Failure(NamedTuple):
    case: Case
    reason: str

    def __str__(self) -> str:
        return f"{self.case.where}: {self.reason}: {self.case.raw[:200].decode('utf-8', 'replace')}"


def check(engine: Engine, cases: Iterable[Case]) -> list[Failure]:
    """The cases that do not come out as expected.

    The event has the rule's own log source besides what its decoder finds, so that routing is tried as well.
    """
    rules = {rule.id: i for i, rule in enumerate(engine.plan.rules)}
    failures = []
    for case in cases:
        number = rules.get(case.rule_id)
        if number is None:
            failures.append(Failure(case, f"the rule {case.rule_id} does not run"))
            continue
        source = engine.plan.rules[number].logsource
        event = record(case.raw, case.codec, origin=case.origin, logsource=LogSource(product=source.product))
        if (number in engine.true(event, frozenset({number}))) != case.expect:
            failures.append(Failure(case, "should match and does not" if case.expect else "should not match and does"))
    return failures
