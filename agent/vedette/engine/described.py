"""The tests of a plan's predicates by group, as the native kernel takes them."""

from __future__ import annotations

import re
from typing import Any

from vedette.decode.decoder import ABSENT
from vedette.engine.evaluate import Evaluator
from vedette.engine.prefilter import ones
from vedette.engine.scope import ORIGIN, asks
from vedette.model import event
from vedette.plan.ir import KEYWORDS, Op, Predicate
from vedette.plan.patterns import End, search
from vedette.plan.plan import Plan

_MAX_EXACT = 1 << 53
"""Whole numbers up to this are floats exactly."""

COMPARISONS = {Op.FIELD_EXACT: 2, Op.FIELD_PREFIX: 3, Op.FIELD_SUFFIX: 4, Op.FIELD_CONTAINS: 5}
PLACES = {Op.PREFIX: 0, Op.SUFFIX: 1, Op.CONTAINS: 2}
_ORDERS = {Op.LT: 0, Op.LTE: 1, Op.GT: 2, Op.GTE: 3}
_ENDS = {End.WITHIN: 0, End.AT_END: 1, End.AT_LINE_END: 2, End.PERHAPS: 3}
EMPTY: dict[str, Any] = {
    "folded": None, "raw": None, "exact": [], "exact_cased": [], "numbers": [], "plain": [], "networks": [],
    "orders": [], "lookups": [], "open": [], "all": [], "absent": [], "joined": False,
}  # fmt: skip


def described(plan: Plan, evaluator: Evaluator, number: int) -> dict[str, Any]:
    """A group's tests."""
    group = evaluator.groups[number]
    tests: dict[str, Any] = {name: list(empty) if empty == [] else empty for name, empty in EMPTY.items()}
    scanned: dict[bool, list[int]] = {False: [], True: []}
    joined, scans = True, group.scanned
    for i in evaluator.members[number]:
        p = plan.predicates[i]
        if p.op not in (Op.NULL, Op.EXISTS):
            tests["all"].append(i)
        match p.op:
            case Op.NULL | Op.EXISTS:
                pass
            case Op.EXACT if encodes(p.value):
                tests["exact_cased" if p.cased else "exact"].append((p.value, i))
            case Op.NUMBER if isinstance(p.value, int | float):
                tests["exact_cased"].append((repr(p.value), i))
                if group.field == KEYWORDS:  # all that keywords search is text
                    pass
                elif not abs(p.value) < _MAX_EXACT:  # nor for what is no number
                    tests["open"].append(i)
                elif p.value == int(p.value):
                    tests["numbers"].append((int(p.value), i))
            case Op.CIDR if "%" not in str(p.value):
                network = event.network(str(p.value))
                tests["networks"].append((str(network.network_address), network.prefixlen, i))
            case Op.LT | Op.LTE | Op.GT | Op.GTE if isinstance(p.value, int | float) and abs(p.value) <= _MAX_EXACT:
                tests["orders"].append((_ORDERS[p.op], float(p.value), i))
            case Op.LOOKUP if (asked := _asked(plan, p)) is not None:
                tests["lookups"].append((*asked, i))
                joined = False
            case Op.PREFIX | Op.SUFFIX | Op.CONTAINS | Op.GLOB | Op.REGEX if (
                scans[p.cased] and i not in evaluator.refused
            ):
                scanned[p.cased].append(i)
                joined = joined and _joins(p)
            case Op.PREFIX | Op.SUFFIX | Op.CONTAINS if encodes(p.value):
                tests["plain"].append((PLACES[p.op], p.cased, p.value, i))
                joined = joined and p.op is Op.CONTAINS
            case _:
                tests["open"].append(i)
    for cased, kind in ((False, "folded"), (True, "raw")):
        if scanned[cased]:
            ends = [(i, _end(plan.predicates[i])) for i in scanned[cased]]
            tests[kind] = evaluator.database(number, cased), ends
    tests["joined"] = joined and not tests["networks"] and not tests["orders"]
    if group.field != KEYWORDS and not asks((group.field,), ORIGIN):
        tests["absent"] = [evaluator.members[number][bit] for bit in ones(group.bits(ABSENT))]
    return tests


def _asked(plan: Plan, p: Predicate) -> tuple[Any, int] | None:
    """A lookup as the kernel has it, and the number of its index; None: it has none."""
    lookup = plan.lookups.get(str(p.value))
    return None if lookup is None else lookup.mapped(p.option)


_ANYWHERE = 4


def _end(p: Predicate) -> int:
    if p.op in (Op.CONTAINS, Op.PREFIX):
        return _ENDS[End.WITHIN] if "\n" in str(p.value) else _ANYWHERE
    return _ENDS[End.AT_END if p.op is Op.SUFFIX else search(p).end]


def encodes(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False


def _joins(p: Predicate) -> bool:
    """Whether a search finds in many texts at once all that it finds in each."""
    if p.op is Op.CONTAINS:
        return True
    searched = search(p)
    if p.op is Op.REGEX and _BOUND.search(str(p.value)):
        return False
    return searched.end is End.WITHIN and not searched.pattern.expression.startswith(b"^")


_BOUND = re.compile(r"(?<!\[)\^|\$|\\[AzZ]")
"""What may bind a regular expression to the begin or end of a text."""


def guess(p: Predicate) -> float:
    """How rare ``p`` is beside others, until the kernel has counted."""
    if p.op is Op.TIME_PART:
        return 1e6
    if p.op is Op.LOOKUP:
        return 0.5
    size = sum(map(len, p.value)) if isinstance(p.value, tuple) else len(str(p.value))
    return 4 / (1 + size) + (1 if p.op is Op.REGEX else 0)
