"""Which rules can ever fire on an agent: log sources that inputs have, and fields that decoders give.

Most codecs may lead to JSON or ``key=value`` pairs and with them to any field. The closed ones (``_SAMPLES``) give what
a line that has everything gives, and nothing else. Of a program's messages the patterns tell what they usually have: a
field beside these is likely a slip, but not dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from vedette.decode import peers
from vedette.decode.decoder import ABSENT, CODECS, possible_source, record
from vedette.decode.programs import PROGRAMS
from vedette.model.event import LogSource
from vedette.plan.ir import KEYWORDS, And, Expr, Leaf, Not, Op, Or, Rule, tests
from vedette.plan.plan import Plan

_SAMPLES: dict[str, tuple[bytes, ...]] = {
    "text": (b"a line",),
    "access": (
        b'www.example:80 192.0.2.1 - bob [10/Oct/2025:13:55:36 +0000] "GET /a?b HTTP/1.1" 200 9 "http://r/" "agent"',
        b'192.0.2.1 - - [10/Oct/2025:13:55:36 +0000] "no request" 400 -',
    ),
}
"""Per closed codec lines in which every field has a value."""

Input = tuple[str, LogSource]
"""An input's codec and its own log source."""

HEADER = frozenset(
    ("message", "hostname", "program", "pid", "msgid", "priority", "facility", "severity", "version", "peer")
)


@lru_cache(maxsize=65536)
def gives(codec: str, field: str) -> bool:
    """True when an event of ``codec`` can have ``field``."""
    samples = _SAMPLES.get(codec)
    if samples is None or field == KEYWORDS:
        return True
    return any(record(line, codec, origin="192.0.2.1").get(field) is not ABSENT for line in samples)


def dead(plan: Plan, rule: Rule, inputs: Iterable[Input]) -> str | None:
    """Why ``rule`` can never fire on events of these inputs; None when it can."""
    codecs = reaching(rule, inputs)
    if not codecs:
        return f"no input has its log source {'/'.join(rule.logsource)}"
    lacking = [_lacks(plan, rule.expr, codec) for codec in codecs]
    if all(field is not None for field in lacking):
        return f"no decoder gives the field {lacking[0]!r} to events of format {codecs[0]}"
    return None


def reaching(rule: Rule, inputs: Iterable[Input]) -> list[str]:
    """The codecs of the inputs that have the log source of ``rule``."""
    fits = [codec for codec, logsource in inputs if rule.logsource.fits(possible_source(codec, logsource))]
    return list(dict.fromkeys(fits))


def _lacks(plan: Plan, expr: Expr, codec: str) -> str | None:
    """A field that ``codec`` does not give and without which ``expr`` cannot be true; None when it can be."""
    match expr:
        case Leaf(number):
            p = plan.predicates[number]
            if p.op is Op.NULL:
                return None
            return next((name for name in _fields(plan, number) if not gives(codec, name)), None)
        case And(args):
            return next((field for arg in args if (field := _lacks(plan, arg, codec)) is not None), None)
        case Or(args):
            found = [_lacks(plan, arg, codec) for arg in args]
            return found[0] if all(field is not None for field in found) else None
        case Not():
            return None


def _fields(plan: Plan, number: int) -> Iterator[str]:
    predicate = plan.predicates[number]
    yield predicate.field
    if predicate.op.value.startswith("field_"):
        yield str(predicate.value)


def unknown_source(source: LogSource) -> str | None:
    """A part of a log source that no decoder finds out: an input must say it; None when there is none."""
    own = LogSource(product=source.product)
    for part, value in (("service", source.service), ("category", source.category)):
        alone = own._replace(**{part: value})
        if value and not any(alone.fits(possible_source(codec, own)) for codec in CODECS):
            return f"{part} = {value!r}"
    return None


def unusual_fields(plan: Plan, rule: Rule) -> list[str]:
    """Fields of a rule about one service's messages that the decoders of that service do not give."""
    rows = [
        row for row in PROGRAMS.values() if rule.logsource.service and rule.logsource.service in row.source.services
    ]
    if not rows or any(row.reader is not None or not row.patterns for row in rows):
        return []
    known = set(HEADER).union(*(pattern.groupindex for row in rows for pattern in row.patterns))
    known = known.union(*(row.names.values() for row in rows), *(peers.FIELDS for row in rows if row.remote))
    asked = {name: None for number in tests(rule.expr) for name in _fields(plan, number) if name != KEYWORDS}
    return [name for name in asked if name not in known and "." not in name]
