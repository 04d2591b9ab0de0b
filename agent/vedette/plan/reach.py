"""Rules that can ever fire on an agent: log sources that inputs have, and fields that decoders give.

Most codecs may lead to JSON or ``key=value`` pairs and with them to any field; the others give what their rows declare
(``decode/fields.py``). Of a program's messages the patterns tell what they usually have: a field beside these is likely
a slip, but not dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vedette.decode.codecs import CODECS
from vedette.decode.decoder import possible_source
from vedette.decode.fields import LAYERS, can_give, can_give_any
from vedette.decode.programs import PROGRAMS
from vedette.model.event import LogSource
from vedette.plan.ir import KEYWORDS, And, Expr, Leaf, Not, Op, Or, Rule, tests
from vedette.plan.plan import Plan

Input = tuple[str, LogSource]
"""An input's codec and its own log source."""


def dead(plan: Plan, rule: Rule, inputs: Iterable[Input]) -> str | None:
    """The reason why ``rule`` can never fire on events of these inputs; None when it can."""
    codecs = reaching(plan, rule, inputs)
    if not codecs:
        return f"no input has its log source {'/'.join(rule.logsource)}"
    if any(codec not in CODECS or can_give_any(codec) for codec in codecs):  # any format may lead to JSON or pairs
        return None
    lacking = [_lacks(plan, rule.expr, codec) for codec in codecs]
    if all(field is not None for field in lacking):
        return f"no decoder gives the field {lacking[0]!r} to events of format {codecs[0]}"
    return None


def reaching(plan: Plan, rule: Rule, inputs: Iterable[Input]) -> list[str]:
    """The codecs of the inputs that have the log source of ``rule``."""
    codecs = [(plan.codecs[codec], logsource) for codec, logsource in inputs]
    fits = [codec.name for codec, logsource in codecs if rule.logsource.fits(possible_source(codec, logsource))]
    return list(dict.fromkeys(fits))


def _lacks(plan: Plan, expr: Expr, codec: str) -> str | None:
    """A field that ``codec`` does not give and without which ``expr`` cannot be true; None when it can be."""
    match expr:
        case Leaf(number):
            p = plan.predicates[number]
            if p.op is Op.NULL:
                return None
            return next(
                (name for name in _fields(plan, number) if name != KEYWORDS and not can_give(codec, name)), None
            )
        case And(args):
            return next((field for arg in args if (field := _lacks(plan, arg, codec)) is not None), None)
        case Or(args):
            lacking = None
            for arg in args:
                field = _lacks(plan, arg, codec)
                if field is None:
                    return None
                lacking = lacking or field
            return lacking
        case Not():
            return None


def _fields(plan: Plan, number: int) -> Iterator[str]:
    predicate = plan.predicates[number]
    yield predicate.field
    if predicate.op.value.startswith("field_"):
        yield str(predicate.value)


def unknown_source(plan: Plan, source: LogSource) -> str | None:
    """A part of a log source that no decoder finds out: an input must say it; None when there is none."""
    own = LogSource(product=source.product)
    for part, value in (("service", source.service), ("category", source.category)):
        alone = own._replace(**{part: value})
        if value and not any(alone.fits(possible_source(codec, own)) for codec in plan.codecs.values()):
            return f"{part} = {value!r}"
    return None


def unusual_fields(plan: Plan, rule: Rule) -> list[str]:
    """Fields of a rule about one service's messages that the decoders of that service do not give."""
    rows = [
        row for row in PROGRAMS.values() if rule.logsource.service and rule.logsource.service in row.source.services
    ]
    if not rows or any(row.reader is not None or not row.patterns for row in rows):
        return []
    layers = [LAYERS[name] for name in ("header", "message", "transport")]
    usual = {field.name for gives in (*layers, *(row.gives for row in rows)) for field in gives.fields}
    asked = {name: None for number in tests(rule.expr) for name in _fields(plan, number) if name != KEYWORDS}
    return [name for name in asked if name not in usual and "." not in name]
