"""Which rules and correlations can make no alert on this agent, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from vedette.config.settings import Config
from vedette.decode.decoder import possible_source
from vedette.engine.match import Engine
from vedette.inputs.settings import InputSettings
from vedette.model.event import LogSource
from vedette.plan import reach
from vedette.plan.plan import Plan

if TYPE_CHECKING:
    from vedette.plan.relation import Correlation

NOT_ALLOWED = "calls functions in Python, which this agent does not allow: [functions] allow = true"


class Dead(NamedTuple):
    """Rules, correlations and statements that make no alert on this agent, those who only wait for an input last."""

    rules: list[tuple[str, str]]
    """The id of each, and the reason."""
    waiting: dict[str, int]
    """How many of them, by the input that they wait for; the most first."""
    refused: int = 0
    """How many of them, the first, do not compile."""

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason in self.rules]

    def of(self, rule: str) -> list[str]:
        """Why the rule of this id is one of them: mostly one reason, or none."""
        return [reason for rule_id, reason in self.rules if rule_id == rule]


_DEAD: WeakKeyDictionary[Engine, tuple[list[reach.Input], Dead]] = WeakKeyDictionary()
"""It depends on the rules and the inputs alone, and takes long to find out for thousands of rules."""


def dead_rules(config: Config, engine: Engine) -> Dead:
    inputs = [(item.codec, item.logsource) for item in config.input]
    remembered = _DEAD.get(engine)
    if remembered is None or remembered[0] != inputs:
        remembered = _DEAD[engine] = inputs, dead_of(config.input, engine.plan, functions=config.functions.allow)
    return remembered[1]


def dead_of(inputs: Iterable[InputSettings], plan: Plan, *, functions: bool) -> Dead:
    """Those of one plan, the refused ones first. ``functions``: whether functions in Python are allowed."""
    never, waiting, _ = unreached(inputs, plan)
    calling = [statement for statement in plan.statements if statement.modules and not functions]
    refused = [(refusal.rule_id, str(refusal)) for refusal in plan.refused]
    refused += [
        (statement.id, f"{statement.path}:{statement.line}: {NOT_ALLOWED} ({statement.title})") for statement in calling
    ]
    return Dead([*refused, *never], waiting, len(plan.refused))


def unreached(settings: Iterable[InputSettings], plan: Plan) -> Dead:
    """Those that none of these inputs can make true, and the correlations and statements that need such rules."""
    inputs = [(item.codec, item.logsource) for item in settings]
    never, late = list[tuple[str, str]](), list[tuple[str, str]]()
    wanting, idle, selecting = dict[str, str](), list[str](), dict[str, str]()
    for rule in plan.rules:
        if (reason := reach.dead(plan, rule, inputs)) is None:
            continue
        idle.append(rule.id)
        if rule.id in plan.scans:
            selecting[rule.id] = reason
        if not reach.reaching(plan, rule, inputs):
            wanting[rule.id] = _wanted(rule.logsource)
        if rule.id in plan.scans:
            continue
        line = f"{rule.path}:{rule.line}: {reason} ({rule.title})"
        (late if rule.id in wanting else never).append((rule.id, line))
    lost = {correlation.id for correlation in _starved(plan, (rule_id for rule_id in idle if rule_id not in wanting))}
    for correlation in _starved(plan, idle):
        if correlation.id not in lost:
            wanting[correlation.id] = next(
                wanting[slot.rule_id] for slot in correlation.slots if slot.rule_id in wanting
            )
        reason = f"{correlation.path}:{correlation.line}: rules that it needs cannot fire ({correlation.title})"
        (late if correlation.id in wanting else never).append((correlation.id, reason))
    for statement in plan.statements:
        if (scan := next((scan for scan in statement.scans if scan.rule in selecting), None)) is not None:
            if scan.rule in wanting:
                wanting[statement.id] = wanting[scan.rule]
            reason = (
                f"{statement.path}:{statement.line}: table {scan.table}: {selecting[scan.rule]} ({statement.title})"
            )
            (late if scan.rule in wanting else never).append((statement.id, reason))
    for rule_id in selecting:
        wanting.pop(rule_id, None)
    return Dead([*never, *late], dict(Counter(wanting.values()).most_common()))


def _starved(plan: Plan, idle: Iterable[str]) -> list[Correlation]:
    """Return the correlations of ``plan`` that can never fire when the rules ``idle`` (ids) cannot."""
    if not plan.correlations:
        return []
    from vedette.plan.relation import starved

    return starved(plan.correlations, idle)


def _wanted(logsource: LogSource) -> str:
    """The input that rules of this log source wait for."""
    mqtt, other = (logsource.fits(possible_source(codec, LogSource())) for codec in ("mqtt", "auto"))
    if mqtt and not other:
        return "an MQTT input"
    return f"an input with log source {'/'.join(logsource)}"
