"""Rules tried on events whose outcome is known: what ``rules test`` runs and a bundle carries."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.decode.decoder import Record, record
from vedette.engine.match import Engine
from vedette.model.event import LogSource
from vedette.plan.query import Statement
from vedette.state.clock import Clock
from vedette.state.correlate import Correlator
from vedette.state.graph import Item

if TYPE_CHECKING:
    from vedette.stream.reader import Event
    from vedette.stream.userfunctions import Functions

SOME_TIME = 1_767_225_600_000_000
"""2026-01-01, in UTC microseconds."""


class Case(NamedTuple):
    """One event and whether the rule ``rule_id`` matches it; ``where``: file and line, for the report."""

    rule_id: str
    expect: bool
    raw: bytes
    codec: str
    origin: str
    where: str

    def to_row(self) -> list[Any]:
        """Return what msgpack can carry; ``from_row`` is its inverse."""
        return list(self)


class Timed(NamedTuple):
    """One event of a sequence, at ``time`` (UTC microseconds)."""

    raw: bytes
    codec: str
    origin: str
    time: int


class Sequence(NamedTuple):
    """Events and how often the correlation ``rule_id`` fires on them, or how many rows the statement gives."""

    rule_id: str
    expect: int
    events: tuple[Timed, ...]
    where: str

    def to_row(self) -> list[Any]:
        """Return what msgpack can carry."""
        return [self.rule_id, self.expect, [list(event) for event in self.events], self.where]


def from_row(row: list[Any]) -> Case | Sequence:
    """The inverse of ``to_row``; raises TypeError or ValueError."""
    if len(row) == len(Sequence._fields):
        rule_id, expect, events, where = row
        return Sequence(rule_id, expect, tuple(Timed(*event) for event in events), where)
    return Case(*row)


class Failure(NamedTuple):
    case: Case | Sequence
    reason: str

    def __str__(self) -> str:
        shown = f": {self.case.raw[:200].decode('utf-8', 'replace')}" if isinstance(self.case, Case) else ""
        return f"{self.case.where}: {self.reason}{shown}"


def check(engine: Engine, cases: Iterable[Case | Sequence], functions: Functions | None = None) -> list[Failure]:
    """The cases that do not come out as expected. Those of statements that call user functions are left out where
    nothing runs ``functions``.

    The event has the rule's own log source besides what its decoder finds, so that routing is tried as well.
    """
    rules = {rule.id: i for i, rule in enumerate(engine.plan.rules)}
    statements = {statement.id: statement for statement in engine.plan.statements}
    left_out = {statement.id for statement in engine.plan.statements if statement.modules and functions is None}
    failures = []
    for case in (case for case in cases if case.rule_id not in left_out):
        if isinstance(case, Sequence):
            statement = statements.get(case.rule_id)
            fired = selected(engine, statement, case.events, functions) if statement else firings(engine, case)
            if fired is None:
                failures.append(Failure(case, f"the rule {case.rule_id} does not run"))
            elif fired != case.expect:
                failures.append(Failure(case, f"should fire {case.expect} times and fires {fired} times"))
            continue
        if (statement := statements.get(case.rule_id)) is not None:
            rows = selected(engine, statement, [Timed(case.raw, case.codec, case.origin, 0)], functions)
            if bool(rows) != case.expect:
                wrong = "should match and does not" if case.expect else "should not match and does"
                failures.append(Failure(case, wrong))
            continue
        number = rules.get(case.rule_id)
        if number is None:
            failures.append(Failure(case, f"the rule {case.rule_id} does not run"))
            continue
        source = engine.plan.rules[number].logsource
        event = record(
            case.raw, engine.plan.codecs[case.codec], origin=case.origin, logsource=LogSource(product=source.product)
        )
        if (number in engine.true(event, frozenset({number}))) != case.expect:
            failures.append(Failure(case, "should match and does not" if case.expect else "should not match and does"))
    return failures


def firings(engine: Engine, case: Sequence) -> int | None:
    """Count how often the correlation fires on the sequence; None when it is not in the plan."""
    plan = engine.plan
    by_id = {c.id: c for c in engine.plan.correlations}
    if case.rule_id not in by_id:
        return None
    needed = [by_id[case.rule_id]]  # it, and what it looks at: no other has a say in when it fires
    for correlation in needed:
        needed += [by_id[slot.rule_id] for slot in correlation.slots if slot.correlation]
    correlator = Correlator(dict.fromkeys(needed), Clock(0), max_bytes=1 << 30)
    asked: dict[str, set[int]] = {}  # by product: rules of one product see the same event
    for number, rule in enumerate(plan.rules):
        if correlator.graph.wants(rule.id):
            asked.setdefault(rule.logsource.product, set()).add(number)
    products = [(product, frozenset(numbers)) for product, numbers in asked.items()]
    fired = []
    for offset, timed in enumerate(sorted(case.events, key=lambda event: event.time)):
        correlator.clock.move(1, timed.time)
        matches: list[tuple[int, Record]] = []
        for product, numbers in products:
            own = LogSource(product=product)
            event = record(
                timed.raw, engine.plan.codecs[timed.codec], origin=timed.origin, received_at=timed.time, logsource=own
            )
            matches += ((number, event) for number in engine.true(event, numbers))
        items: list[Item] = []
        for number, event in sorted(matches, key=itemgetter(0)):
            items += correlator.graph.prepare(plan.rules[number].id, event)
        fired += correlator.add(items, 1, timed.time, offset, len(timed.raw))
    fired += correlator.finish()
    return sum(firing.correlation.id == case.rule_id for firing in fired)


def selected(engine: Engine, statement: Statement, events: Iterable[Timed], functions: Functions | None = None) -> int:
    """Count the rows that the statement gives for the events, taken by time, when nothing comes after them. An event's
    time is what its sequence says, else what the event says, else ``SOME_TIME``."""
    plan = engine.plan
    from vedette.stream.statements import Statements  # with the first statement

    statements = Statements([statement], plan.lookups, max_bytes=1 << 30, functions=functions, modules=plan.modules)
    asked: dict[str, set[int]] = {}  # by product, as in ``firings``
    for number, rule in enumerate(plan.rules):
        if statements.wants(rule.id):
            asked.setdefault(rule.logsource.product, set()).add(number)
    for offset, timed in enumerate(sorted(events, key=lambda event: event.time)):
        for product, numbers in asked.items():
            own = LogSource(product=product)
            event = record(
                timed.raw, engine.plan.codecs[timed.codec], origin=timed.origin, received_at=timed.time, logsource=own
            )
            row = _row(event, offset, timed.time)
            for number in sorted(engine.true(event, frozenset(numbers))):
                statements.add(plan.rules[number].id, row)
    return sum(1 for _ in statements.finish())


def _row(event: Record, offset: int, time: int) -> Event:
    from vedette.stream.reader import Event

    when = time or event.event_time or SOME_TIME
    return Event(event, offset, input="test", host=lambda: event.host, time=lambda: when, received_at=when)
