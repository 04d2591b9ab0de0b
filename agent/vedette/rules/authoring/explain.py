"""Explanations of a rule on an event: its predicates, its literals, the truth of every part of its condition."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vedette.decode.declared import Declared
from vedette.decode.decoder import ABSENT, Record, record
from vedette.decode.redact import Redaction
from vedette.engine.evaluate import Evaluator
from vedette.engine.join import may_hold_records
from vedette.engine.match import Engine
from vedette.model.event import Chunk, LogSource
from vedette.plan.ir import FIELD_OPS, KEYWORDS, And, Expr, Leaf, Not, Or, Predicate, Rule, as_shown, tests
from vedette.plan.literals import Measured, Names, clauses, guess
from vedette.plan.operators import described
from vedette.plan.plan import Plan
from vedette.plan.query import Node, Scan, Statement
from vedette.plan.relation import Correlation
from vedette.plan.witness import witness

MAX_SHOWN = 200
"""Characters of a value."""
MAX_LISTED = 24
"""Rules that a filter is joined to, or literals of one clause."""

_COMPARE = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "eq": "is", "neq": "is not"}
_NO_NAMES: Mapping[Expr, str] = {}
NO_ORIGINS: Mapping[str, Iterable[str]] = {}
_VERDICT = {True: "MATCH", False: "no match", None: "UNDECIDED: a pattern took too long"}
_TRUTH = {True: "true ", False: "false", None: "open "}


def rule(
    plan: Plan, evaluator: Evaluator | None, number: int, filters: Iterable[str] = (), cost: Measured | None = None
) -> Iterator[str]:
    """Describe what a rule is made of: its predicates, with group and bit where there is the plan's ``evaluator``, the
    ``filters`` joined to it (a name each), the prefilter's literals with what it could search for (``cost``: see
    ``choice``), and the correlations that look at it.
    """
    detection = plan.rules[number]
    chosen = plan.literals[number]
    yield f"{detection.title} ({detection.id}), level {detection.level}"
    source = "/".join(detection.logsource)
    yield f"  {detection.path}:{detection.line}, log source {source}, meaning {detection.digest[:12]}"
    for joined in filters:
        yield f"  joined to it: {joined}"
    for index in dict.fromkeys(tests(detection.expr)):
        yield f"  predicate {index}: {described(plan.predicates[index])}{_place(plan, evaluator, index)}"
    if chosen is None:
        yield "  literals: none, so it is evaluated on every event of its log source"
        if (by_source := witness(detection.logsource)) is not None:
            part = detection.logsource._fields[by_source.part]
            listed = _several(by_source.literals)
            yield f"  where the input sets no {part}, only on events that contain one of: {listed}"
    else:
        yield f"  literals: every event it matches contains one of: {_several(chosen)}"
    if plan.further and (second := plan.further[number]) is not None:
        yield f"  and one of these, since those are common: {_several(second)}"
    yield from choice(plan, number, cost)
    yield from _looked_at(plan, detection.id)


def declared(declaration: Declared) -> Iterator[str]:
    """Describe what a format gives, and how the values stand in an event."""
    row = declaration.codec.row
    assert row is not None
    yield f'format {declaration.name}: format = "{declaration.codec.name}" of an input'
    yield f"  {declaration.path}:1, log source {'/'.join(next(iter(part), '') for part in row.sources)}"
    for field in row.gives.fields:
        yield f"  field {field.name}: {field.how.value}"
    if row.gives.any is not None:
        yield f"  and every key of an event: {row.gives.any.value}"


def declared_on_event(declaration: Declared, raw: bytes) -> Iterator[str]:
    """List what the format gives of an event."""
    event = Record(raw.rstrip(b"\r\n"), declaration.codec, "", 0, None, LogSource(), None)
    for name, value in event.fields().items():
        yield f"  {name} = {(as_shown(value) or '')[:MAX_SHOWN]}"
    yield f"  time: {event.event_time}"


def _place(plan: Plan, evaluator: Evaluator | None, index: int) -> str:
    if evaluator is None:
        return ""
    place = evaluator.place(index)
    where = "compares two fields" if place is None else f"group {place[0]} bit {place[1]}"
    slow = plan.predicates[index] in evaluator.fallback
    return f" [{where}{'; on the fallback engine, in bounded time' if slow else ''}]"


def redacted(
    redaction: Redaction, names: Iterable[str], origins: Mapping[str, Iterable[str]] = NO_ORIGINS
) -> Iterator[str]:
    """List what is taken out of a rule's alerts that show fields of these ``names``; ``origins``: of those that are
    called otherwise the fields behind them."""
    fields = [f"{name} ({action})" for name in names if (action := redaction.action(name, origins.get(name, ())))]
    yield f"  redacted fields: {', '.join(fields) or 'none of those that it shows'}"
    kinds = {f"{kind} ({rule.action})" for rule in redaction.rules for kind in rule.kinds}
    looked = [f"{name} ({rule.action})" for rule in redaction.rules for name in (*rule.patterns, *rule.expressions)]
    if kinds:
        yield f"  redacted entities: {', '.join(sorted(kinds))}"
    if looked:
        yield f"  redacted in all its texts: {', '.join(looked)}"


def choice(plan: Plan, number: int, cost: Measured | None = None) -> Iterator[str]:
    """List what the prefilter could search for, the cheapest first, and in what share of events that is.

    ``cost``: of a sample; None: guessed.
    """
    chosen = (plan.literals[number], plan.further[number] if plan.further else None)
    for clause in clauses(plan.rules[number].expr, plan.predicates, cost or guess):
        if cost is not None:
            share = f"in {cost.share([clause]):.2%} of the sample"
        elif isinstance(clause, Names):
            share = "a field's name"
        else:
            share = f"guessed in {min(1.0, sum(map(guess, clause))):.2%} of events"
        mark = "searched" if clause in chosen else "not used"
        yield f"    {mark}, {share}: {_several(clause)}"


def filter_(name: str, rules: Sequence[Rule]) -> Iterator[str]:
    """List what a filter works on: the ``rules`` that it is joined to."""
    yield name
    yield from (f"  joined to {target.title} ({target.path}:{target.line})" for target in rules[:MAX_LISTED])
    if len(rules) > MAX_LISTED:
        yield f"  … and to {len(rules) - MAX_LISTED} more"
    if not rules:
        yield "  joined to no rule: none that it names is there and of its log source"


def _looked_at(plan: Plan, rule_id: str) -> Iterator[str]:
    for correlation in plan.correlations:
        if any(slot.rule_id == rule_id for slot in correlation.slots):
            yield f"  used by the correlation {correlation.title} ({correlation.id})"
    if rule_id in plan.silent:
        by = "statements" if rule_id in plan.scans else "correlations"
        yield f"  emits no alerts: only {by} use it{'' if rule_id in plan.scans else ' (generate: true changes that)'}"


def statement(statement: Statement) -> Iterator[str]:
    """The operators of a statement, each below those that take its rows."""
    of = f"rows to sink {statement.sink}" if statement.sink else f"level {statement.level}"
    yield f"{statement.title} ({statement.id}), {of}"
    yield f"  {statement.path}:{statement.line}, meaning {statement.digest[:12]}"
    waiting: list[tuple[int, Node]] = [(1, statement.root)]
    while waiting:
        depth, node = waiting.pop()
        of = f" {node.table}, selected by rule {node.rule}" if isinstance(node, Scan) else ""
        columns = ", ".join(f"{name or number} {kind}" for number, (name, kind) in enumerate(node.columns, 1))
        yield f"{'  ' * depth}{type(node).__name__}{of}: {columns}"
        waiting += ((depth + 1, below) for below in reversed(node.inputs))


def _window(c: Correlation) -> str:
    length = f"{c.span // 1_000_000} s"
    if c.grid is None:
        return f"within {length}"
    if c.grid.kind == "TUMBLE":
        return f"in each {length} since 1970"
    return f"in sessions that {c.grid.size // 1_000_000} s without a match end, of {length} at most"


def correlation(plan: Plan, c: Correlation) -> Iterator[str]:
    """Describe what a correlation is made of, and when it is decided."""
    titles = {rule.id: rule.title for rule in plan.rules} | {
        correlation.id: correlation.title for correlation in plan.correlations
    }
    yield f"{c.title} ({c.id}), level {c.level}"
    yield f"  {c.path}:{c.line}, {c.kind} {_window(c)}, meaning {c.digest[:12]}"
    for i, slot in enumerate(c.slots):
        aliases = "".join(f", {alias} is its {field}" for alias, field in slot.names)
        yield f"  rule {i}: {titles[slot.rule_id]} ({slot.rule_id}){aliases}"
    yield (
        f"  for each {', '.join(c.group_by)}; an event without one is in no group" if c.group_by else "  of all events"
    )
    if c.clauses:
        for clause in c.clauses:
            without = f" and none of rule {', '.join(map(str, clause.forbidden))}" if clause.forbidden else ""
            yield f"  when there is rule {' and rule '.join(map(str, clause.wanted))}{without}"
    else:
        of = f" {c.percentile:g} of" if c.kind.row.percentile else " of" if c.field else ""
        metric = f"{c.kind}{of} {', '.join(c.field)}".rstrip()
        yield f"  when {metric} {' and '.join(f'{_COMPARE[name]} {number}' for name, number in c.bounds)}"
    if c.prompt:
        yield "  decided when an event arrives"
    else:
        yield "  decided when its window is over and state.max_lateness has passed"
    yield from _looked_at(plan, c.id)


def correlation_on_event(engine: Engine, c: Correlation, raw: bytes, codec: str, *, origin: str = "") -> Iterator[str]:
    """Tell which of a correlation's rules match one event, in which group it counts, and what it adds."""
    event = record(raw, engine.plan.codecs[codec], origin=origin)
    numbers = {rule.id: number for number, rule in enumerate(engine.plan.rules)}
    below = {correlation.id: correlation for correlation in engine.plan.correlations}
    yield f"event: {raw[:MAX_SHOWN].decode('utf-8', 'replace')}"
    for i, slot in enumerate(c.slots):
        if slot.correlation:
            yield f"  rule {i}: {below[slot.rule_id].title} is a correlation: one event does not tell"
            continue
        number = numbers[slot.rule_id]
        truth = _truth(engine, engine.plan.rules[number].expr, event)
        yield f"  rule {i}: {engine.plan.rules[number].title}: {_VERDICT[truth]}"
        if truth:
            for what, fields in (("in the group", c.group_by), ("adds", c.field)):
                listed = ", ".join(_shown(slot.field(name), event) for name in fields)
                if listed:
                    yield f"    {what} {listed}"
            lacking = [slot.field(name) for name in c.group_by if event.get(slot.field(name)) in (ABSENT, None)]
            if lacking:
                yield f"    it is in no group and does not count, for lack of: {', '.join(lacking)}"


def on_event(
    engine: Engine, number: int, raw: bytes, codec: str, *, origin: str = "", names: Mapping[Expr, str] = _NO_NAMES
) -> Iterator[str]:
    """Show how the rule came to its answer on one event; ``names``: what its author calls parts of its condition."""
    detection = engine.plan.rules[number]
    event = record(raw, engine.plan.codecs[codec], origin=origin)
    chunk = Chunk("explain", codec, 0, raw, array("I", [len(raw)]), (origin,) if origin else ())
    truth = _truth(engine, detection.expr, event)
    yield f"event: {raw[:MAX_SHOWN].decode('utf-8', 'replace')}"
    yield f"  {_VERDICT[truth]}"
    fits = detection.logsource.fits(event.source)
    parts = [f"{kind} {', '.join(sorted(values))}" for kind, values in event.source._asdict().items() if values]
    of = "; ".join(parts) or "none that is known"
    yield f"  log source: {'fits' if fits else 'does not fit'}; the event is of {of}"
    if not fits and detection.logsource.product and LogSource("", *detection.logsource[1:]).fits(event.source):
        yield f"  an input with logsource.product = {detection.logsource.product!r} would make it fit"
    if engine.plan.literals[number] is not None:
        hit = any(
            number in candidate.rules for candidate in engine.prefilter.hits(chunk, apart=may_hold_records(chunk))
        )
        listed = "the event contains a literal" if hit else "the event contains no literal, so it is not evaluated"
        yield f"  prefilter: {listed}"
    yield from _tree(engine, detection.expr, event, names, "  ")


def _tree(engine: Engine, expr: Expr, event: Record, names: Mapping[Expr, str], indent: str) -> Iterator[str]:
    head = f"{indent}{_TRUTH[_truth(engine, expr, event)]} "
    name = f"{names[expr]}: " if expr in names else ""
    match expr:
        case Leaf(number):
            predicate = engine.plan.predicates[number]
            yield f"{head}{name}{described(predicate)} [{_value(predicate, event)}]"
            return
        case Not(arg):
            yield f"{head}{name}not"
            args: tuple[Expr, ...] = (arg,)
        case And(()):
            yield f"{head}{name}every event"
            return
        case And(args):
            yield f"{head}{name}all of"
        case Or(args):
            yield f"{head}{name}one of"
    for arg in args:
        yield from _tree(engine, arg, event, names, indent + "  ")


def _truth(engine: Engine, expr: Expr, event: Record) -> bool | None:
    """Kleene's logic, as the evaluator's own."""
    match expr:
        case Leaf(number):
            return engine.evaluator.holds(number, event)
        case Not(arg):
            truth = _truth(engine, arg, event)
            return None if truth is None else not truth
        case And(args) | Or(args):
            truths = {_truth(engine, arg, event) for arg in args}
            settled = isinstance(expr, Or)
            return settled if settled in truths else None if None in truths else not settled


def _value(p: Predicate, event: Record) -> str:
    """The values that the event has where the predicate looks."""
    if p.field == KEYWORDS:
        return f"{sum(1 for _ in event.keywords())} texts"
    names = [p.field, str(p.value)] if p.op in FIELD_OPS else [p.field]
    return ", ".join(_shown(name, event) for name in names)


def _shown(name: str, event: Record) -> str:
    value = event.get(name)
    if value is ABSENT:
        return f"{name} is absent"
    if value is None:
        return f"{name} is null"
    text = as_shown(value)
    return f"{name} is an object" if text is None else f"{name} = {text[:MAX_SHOWN]!r}"


def _several(literals: frozenset[bytes]) -> str:
    listed = ", ".join(repr(literal.decode("utf-8", "backslashreplace")) for literal in sorted(literals)[:MAX_LISTED])
    return listed if len(literals) <= MAX_LISTED else f"{listed} and {len(literals) - MAX_LISTED} more"
