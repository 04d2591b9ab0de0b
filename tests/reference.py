"""The naive evaluator, judge of the fast one: one event, one predicate, one value at a time.

No prefilter, no groups, no bits, no Hyperscan, no memory between events. Meanings are those of ``plan/ir.py``.
"""

from __future__ import annotations

import functools
import ipaddress
import math
import operator
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from vedette.decode.decoder import ABSENT, Record
from vedette.plan.ir import ANY, KEYWORDS, STAR, And, Expr, Leaf, Not, Op, Or, Predicate
from vedette.plan.plan import Plan

_COMPARE = {Op.LT: operator.lt, Op.LTE: operator.le, Op.GT: operator.gt, Op.GTE: operator.ge}


TABLES: dict[str, dict[str, Sequence[str]]] = {
    "users": {"name:nocase": ["Anna", "\u00c9va", "svc-backup"]},
    "all": {
        "t:text": ["Security", "cmd.exe", "/usr/bin/x", "true", "1.0", "x", "h\u00e9", "47200e-1"],
        "n:nocase": [
            "security",
            "c:\\windows\\cmd.exe",
            "ta\u212a",
            "WinEventLog:Security",
            "4688",
            "-",
            "\u017f",
            "1e+20",
        ],
        "d:domain": ["exe", "x", "example", "b.c", "1", "Operational", "\u03a3.\u03c2", "203.0.113.9"],
        "i:number": ["1", "4688", "-15", "9007199254740993", "4104", "46", "22", "0"],
        "a:ip": ["1.2.3.4", "10.1.2.3", "::1", "fe80::1", "203.0.113.9", "::", "::ffff:1.1.1.1", "9.9.9.9"],
        "c:cidr": [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "fe80::/10",
            "::/8",
            "1.2.3.4",
            "0.0.0.0/2",
            "1:2::/32",
            "::ffff:0:0/96",
        ],
        "l..h:range": [
            "1..3",
            "400..4700",
            "400..500",
            "-20..-10",
            "0..0",
            "5000..10000000000",
            "4720..4720",
            "20..21",
        ],
    },
    "names": {"name:nocase": ["windows", "sshd", "dns", "Security", "4688", "tasks"]},
    "domains": {"name:domain": ["exe", "example", "module", "2.3"]},
    "addresses": {"a:ip": ["10.1.2.3", "203.0.113.9", "::", "1:2:3:4:5:6:7:0"]},
    "numbers": {"n:number": ["1", "4688", "-15", "9223372036854775807", "-9223372036854775807"]},
}
"""Small tables that predicates of the tests ask: by index the keys of their rows. One of one index keeps keys only."""


def matches(plan: Plan, record: Record, *, route: bool = False) -> list[int]:
    """The indexes of the plan's rules that are true for ``record``."""
    holds_for = functools.cache(lambda number: holds(plan.predicates[number], record))
    return [
        i
        for i, rule in enumerate(plan.rules)
        if (not route or rule.logsource.fits(record.source)) and true(rule.expr, holds_for)
    ]


def true(expr: Expr, holds_for: Callable[[int], bool]) -> bool:
    """Whether ``expr`` holds; ``holds_for``: whether the predicate of a number does."""
    match expr:
        case Leaf(number):
            return holds_for(number)
        case And(args):
            return all(true(arg, holds_for) for arg in args)
        case Or(args):
            return any(true(arg, holds_for) for arg in args)
        case Not(arg):
            return not true(arg, holds_for)


def holds(p: Predicate, record: Record) -> bool:
    """One predicate on one event."""
    if p.field == KEYWORDS:
        return any(_scalar(p, text) for text in record.keywords())
    value = record.get(p.field)
    if p.op is Op.EXISTS:
        return value is not ABSENT
    if p.op is Op.NULL:
        return value is ABSENT or value is None
    if value is ABSENT:
        return False
    if p.op.value.startswith("field_"):
        other = record.get(str(p.value))
        return any(_pair(p.op, a, b) for a in _leaves(value) for b in _leaves(other))
    return any(_scalar(p, leaf) for leaf in _leaves(value))


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [] if value is ABSENT or value is None or isinstance(value, dict) else [value]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else repr(value)


def _fold(text: str) -> str:
    return "".join(_fold_char(char) for char in text)


def _fold_char(char: str) -> str:
    """Simple case folding of one character: never more than one."""
    for form in (char.casefold(), char.lower()):
        if len(form) == 1:
            return form
    return char


def _pair(op: Op, a: Any, b: Any) -> bool:
    left, right = _fold(_text(a)), _fold(_text(b))
    return {
        Op.FIELD_EXACT: left == right,
        Op.FIELD_PREFIX: left.startswith(right),
        Op.FIELD_SUFFIX: left.endswith(right),
        Op.FIELD_CONTAINS: right in left,
    }[op]


def _scalar(p: Predicate, value: Any) -> bool:
    text = _text(value)
    shown = text if p.cased else _fold(text)
    wanted: Any = p.value
    match p.op:
        case Op.EXACT:
            return bool(shown == wanted)
        case Op.PREFIX:
            return bool(shown[: len(wanted)] == wanted)
        case Op.SUFFIX:
            return len(shown) >= len(wanted) and shown[len(shown) - len(wanted) :] == wanted
        case Op.CONTAINS:
            return shown.find(wanted) >= 0
        case Op.GLOB:
            return _glob(wanted, shown)
        case Op.REGEX:
            return _regex(wanted, p.option).search(text) is not None
        case Op.CIDR:
            return (address := _address(text)) is not None and address in _network(wanted)
        case Op.NUMBER:
            if isinstance(value, str | bool):
                return text == repr(wanted)
            return bool(value == wanted)
        case Op.LT | Op.LTE | Op.GT | Op.GTE:
            if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", text):
                return False
            number = Fraction(text) if len(text) < 300 and "e" not in text.lower() else float(text)
            return bool(_COMPARE[p.op](number, wanted))
        case Op.LOOKUP:
            return _has_key(text, p.option, TABLES[wanted])
        case Op.TIME_PART:
            return bool(_time_part(text.strip(), p.option) == wanted)
    raise AssertionError(f"no reference for {p.op}")


def _has_key(text: str, column: str, table: dict[str, Sequence[str]]) -> bool:
    """Whether a text is a key of a table: row by row."""
    ((kind, keys),) = ((name.rpartition(":")[2], keys) for name, keys in table.items() if name.startswith(column))
    shown = _fold(text)
    match kind:
        case "text":
            return text in keys
        case "nocase":
            return shown in map(_fold, keys)
        case "domain":
            shown = shown[:-1] if shown.endswith(".") else shown
            return any(shown == _fold(key) or shown.endswith(f".{_fold(key)}") for key in keys)
        case "number":
            return re.fullmatch("-?[0-9]{1,19}", text) is not None and int(text) in map(int, keys)
        case "range":
            try:
                number = float(text) if text.isascii() and text == text.strip() and "_" not in text else math.nan
            except ValueError:
                return False
            ends = ([float(end) for end in key.split("..")] for key in keys)
            return any(low <= number <= high for low, high in ends)
    address = _address(text)
    return address is not None and any(address in _network(key) for key in keys)


def _address(text: str) -> Any:
    """Written in brackets, with a zone, or within IPv6, an address is the same; None for what is none."""
    try:
        address = ipaddress.ip_address(text.strip(" \t\n\f\r").split("%")[0].strip("[]"))
    except ValueError:
        return None
    return _v4_of(address) or address


def _network(text: str) -> Any:
    network = ipaddress.ip_network(text)
    inner = _v4_of(network.network_address) if network.prefixlen >= 96 else None
    return network if inner is None else ipaddress.ip_network((inner, network.prefixlen - 96))


_TIMES = (
    ("%Y-%m-%d %H:%M:%S", "minute hour day week month year"),
    ("%Y-%m-%d %H:%M", "minute hour day week month year"),
    ("%Y-%m-%d", "day week month year"),
    ("%a, %d %b %Y %H:%M:%S", "minute hour day week month year"),
    ("%d/%b/%Y:%H:%M:%S", "minute hour day week month year"),
    ("2000 %b %d %H:%M:%S", "minute hour day month"),
)


def _time_part(text: str, unit: str) -> int | None:
    """A part of a time as it is written: its zone, fractions and separators away, then each known form is tried."""
    if len(text) > 64:
        return None
    if re.fullmatch(r"[0-9]+", text):
        scale = next((s for s in (1, 10**3, 10**6, 10**9) if 631_152_000 * s <= int(text) <= 7_258_118_400 * s), None)
        if scale is None:
            return None
        text = datetime.fromtimestamp(int(text) // scale, UTC).strftime("%Y-%m-%d %H:%M:%S")
    text = re.sub(r"(Z|z| ?[+-][0-9]{2}:?[0-9]{2})$", "", text)
    text = re.sub(r"(:[0-9]{2})[.,][0-9]+$", r"\1", text)
    text = re.sub(r"^([0-9]{4})[-/]([0-9]{2})[-/]([0-9]{2})[Tt]?", r"\1-\2-\3 ", text).strip()
    for form, units in _TIMES:
        try:
            time = datetime.strptime(f"2000 {text}" if form.startswith("2000") else text, form.replace("2000", "%Y"))
        except ValueError:
            continue
        if unit not in units.split():
            return None
        return time.isocalendar().week if unit == "week" else int(getattr(time, unit))
    return None


def _v4_of(address: Any) -> Any:
    """The IPv4 address that an IPv6 one stands for, or None."""
    return getattr(address, "ipv4_mapped", None)


@functools.cache
def _regex(pattern: str, options: str) -> re.Pattern[str]:
    """Python's own engine with PCRE's meaning: ASCII classes; no line begins after a final newline, and ``\\Z`` is
    before one.

    Without regard to case its classes are Unicode's: tests do not mix the two. Python also takes i, dotless i and
    I with dot for one letter, which simple folding does not.
    """
    number = sum({"i": re.I, "m": re.M, "s": re.S}[flag] for flag in options)
    meant = {r"\Z": r"(?=\n?\Z)", **({"^": r"(?:\A|(?<=\n)(?!\Z))"} if "m" in options else {})}
    token = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.S)
    pattern = token.sub(lambda t: meant.get(t[0], t[0]), pattern)
    return re.compile(pattern, number | (0 if "i" in options else re.ASCII))


def _glob(parts: Sequence[str], text: str) -> bool:
    """Whether texts, ``STAR`` and ``ANY`` match the whole of ``text``: of each part where it can end."""
    ends = {0}
    for part in parts:
        if part == STAR:
            ends = set(range(min(ends), len(text) + 1)) if ends else ends
        elif part == ANY:
            ends = {end + 1 for end in ends if end < len(text)}
        else:
            ends = {end + len(part) for end in ends if text.startswith(part, end)}
    return len(text) in ends


def is_assigned(char: str) -> bool:
    """True for characters that Unicode assigns: what random texts are drawn from."""
    return unicodedata.category(char) not in ("Cn", "Cs")
