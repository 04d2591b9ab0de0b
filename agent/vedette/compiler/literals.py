"""From a rule's expression to literals of which at least one occurs in the raw bytes of every event it matches.

*Sound before selective*: a rule for which no such set can be proved has none (``None``: the rule is always a
candidate). The proof, bottom up:

* a predicate on a **synthetic** field has none, nor have nulls, existence, comparisons, networks, field references;
* a string predicate needs each of its texts in the value; the value stands in the raw bytes *verbatim* or escaped by
  its codec: a backslash before ``" / \\ ] | =`` (JSON, RFC 5424, CEF) or ``&quot;`` (XML), which
  ``engine/prefilter.py`` tolerates, or any character as ``\\u0041`` (JSON) or ``&#65;`` (XML), so that an event with
  such an escape of a character that literals are made of is a candidate of every rule (``GUARDS``). A field that a
  decoder transforms has guards of its own (``inputs/provenance.py``). Texts are split at characters that are often
  escaped so (``< > & '``), at controls and outside ASCII;
* folding is ASCII's in the scan. U+017F and U+212A fold to ``s`` and ``k``: they are guards too;
* a piece that could be part of a number is compared with the number as Python prints it; numbers written in a way
  that prints otherwise are guards of such pieces alone (``NUMBER_GUARDS``);
* a regex needs what every alternative of it needs, read from Python's own parse of it; where that parse may differ
  from PCRE's, nothing is concluded;
* AND: the cheapest child; OR: the union, none if one child has none; NOT: none.

Literals are lower-case ASCII bytes and are searched without regard to case.
"""

from __future__ import annotations

import math
import re
import re._constants as sre
import re._parser as sre_parse
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from vedette.compiler.ir import ANY, STAR, And, Expr, Leaf, Not, Op, Or, Predicate
from vedette.inputs.decode import Provenance, provenance

Literals = frozenset[bytes]
Cost = Callable[[bytes], float]
"""Expected share of events that hold a literal, from 0 to 1."""

_SAFE = re.compile(r"[A-Za-z0-9 _.,:;()\[\]{}!?@$*+=|^~`\"/\\#%-]+")
_ESCAPED_SAFE = b"|".join(b"%02x" % code for code in range(128) if _SAFE.fullmatch(chr(code)))

GUARDS: tuple[bytes, ...] = (
    rb"\\u00(?:" + _ESCAPED_SAFE + rb")",  # JSON: a character of a piece written as an escape
    rb"\xc5\xbf",  # U+017F, folds to s
    rb"\xe2\x84\xaa",  # U+212A, folds to k
    rb"\\u017f",
    rb"\\u212a",
    rb"&#(?:x[0-9a-f]{1,6}|[0-9]{1,7});",  # XML: any character by its number
)
"""Regular expressions without regard to case: an event that holds one is a candidate of every rule with literals."""

NUMBER_GUARDS: tuple[bytes, ...] = (rb"[0-9][eE][-+0-9]", rb"[0-9.]{16}", rb"0\.0000")
"""The same, of rules that have a literal made of digits: numbers that Python does not print as they are written."""

MIN_LENGTH = 3
"""Bytes; a shorter piece is no literal."""

MAX_LITERALS = 512
"""Of one rule. A set beyond this is no set: such a rule is always a candidate."""

_COMMON = (
    "the and for from with not was has this that all any new old user users root admin system windows linux unix"
    " debian ubuntu service services systemd systemctl session sessions started starting stopped stopping finished"
    " reached target unit info information error errors warn warning notice debug critical failed failure fail"
    " success true false null none http https html get post put head port ports ssh ssh2 sshd sudo cron crond"
    " crontab kernel daemon login logout logged password publickey accepted disconnected disconnect received"
    " connection connected closed close open opened auth authentication pam_unix program programs process processes"
    " server client localhost host hosts hostname address invalid usr bin sbin etc var log logs tmp home dev proc"
    " lib local run opt www data json message messages level time timestamp date name type value index id uid gid"
    " pid tty pwd command cmd status state code file files path public private key keys network device interface"
    " eth0 link up down nginx apache apache2 mozilla safari chrome gecko webkit applewebkit compatible assets static"
    " images css js php api item items request response query queries size bytes length total count number default"
    " example internal main test master node worker task job queue cache memory cpu disk read write update delete"
    " create com org net exe dll system32 program32 microsoft powershell cmd.exe event eventid events channel"
    " security application provider computer domain software"
)
"""Words that logs of all kinds are full of."""


def guess(literal: bytes) -> float:
    """A literal's cost where no sample of the traffic is at hand: rarer with length, dear if in a common word."""
    words = re.findall(r"[a-z0-9]+", literal.decode("ascii", "replace"))
    if not words:
        return min(0.5, math.pow(10, -len(literal) / 3))
    rare = max((len(word) // 2 if word.isdigit() else len(word) for word in words if word not in _COMMON), default=0)
    return min(0.3, math.pow(10, -(rare + 0.25 * (len(literal) - rare)) / 2.5)) if rare else 0.3


def is_numeric(literal: bytes) -> bool:
    """True when ``literal`` could be part of a number as Python prints it."""
    return re.fullmatch(rb"[-+]?[0-9]*\.?[0-9]*(e[-+]?[0-9]*)?|-?inf|nan", literal) is not None


def pieces(text: str) -> list[bytes]:
    """The runs of ``text`` that every escape leaves as they are, lower-case, long enough to search for."""
    found = (match[0].lower().encode() for match in _SAFE.finditer(text))
    return [piece for piece in found if len(piece) >= MIN_LENGTH and not piece.isspace()]


def required(expr: Expr, predicates: Sequence[Predicate], cost: Cost = guess) -> Literals | None:
    """The cheapest provable set of literals for ``expr``; None when there is none. See the module's text."""
    match expr:
        case Leaf(number):
            return _of_predicate(predicates[number], cost)
        case And(args):
            sets = [found for arg in args if (found := required(arg, predicates, cost)) is not None]
            return min(sets, key=lambda found: sum(map(cost, found)), default=None)
        case Or(args):
            union: set[bytes] = set()
            for arg in args:
                found = required(arg, predicates, cost)
                if found is None:
                    return None
                union |= found
                if len(union) > MAX_LITERALS:
                    return None
            return frozenset(union)
        case Not():
            return None


def candidates(expr: Expr, predicates: Sequence[Predicate]) -> set[bytes]:
    """Every literal that ``required`` could choose for ``expr``: what to measure in a sample."""
    seen: set[bytes] = set()

    def note(literal: bytes) -> float:
        seen.add(literal)
        return guess(literal)

    required(expr, predicates, note)
    return seen


def _cheapest(found: Sequence[bytes], cost: Cost) -> Literals | None:
    return frozenset({min(found, key=lambda piece: (cost(piece), -len(piece), piece))}) if found else None


def _of_predicate(predicate: Predicate, cost: Cost) -> Literals | None:
    if provenance(predicate.field) is Provenance.SYNTHETIC:
        return None
    value = predicate.value
    match predicate.op:
        case Op.EXACT | Op.PREFIX | Op.SUFFIX | Op.CONTAINS:
            return _cheapest(pieces(str(value)), cost)
        case Op.GLOB if isinstance(value, tuple):
            return _cheapest([p for part in value if part not in (STAR, ANY) for p in pieces(part)], cost)
        case Op.NUMBER if isinstance(value, int):
            return _cheapest(pieces(str(value)), cost)
        case Op.REGEX:
            return _of_regex(str(value), predicate.option, cost)
    return None


_READ_OTHERWISE = re.compile(r"\[[\[:.=]|\\Q")


def _of_regex(pattern: str, flags: str, cost: Cost) -> Literals | None:
    number = sum({"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}[flag] for flag in flags)
    if "(?" in pattern.replace("(?:", "") or _READ_OTHERWISE.search(pattern) or not pattern.isascii():
        return None  # inline flags, look-around, classes and quotes that Python and PCRE read differently
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # what Python may once read as a set operation
            parsed = sre_parse.parse(pattern, number)
        return _of_sequence(list(parsed), cost)
    except (re.error, RecursionError, OverflowError):
        return None


def _of_sequence(nodes: list[Any], cost: Cost) -> Literals | None:
    """What a concatenation needs: the cheapest of its literal runs and of what its parts need."""
    choices: list[Literals] = []
    run = ""

    def close() -> None:
        nonlocal run
        best = _cheapest(pieces(run), cost)
        if best is not None:
            choices.append(best)
        run = ""

    for op, argument in nodes:
        if op is sre.LITERAL and argument < 128:
            run += chr(argument)
            continue
        if op is sre.AT:
            continue  # anchors and word boundaries take no characters
        close()
        found = _of_node(op, argument, cost)
        if found is not None:
            choices.append(found)
    close()
    return min(choices, key=lambda found: sum(map(cost, found)), default=None)


def _of_node(op: Any, argument: Any, cost: Cost) -> Literals | None:
    if op is sre.SUBPATTERN:
        return _of_sequence(list(argument[3]), cost)
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and argument[0] >= 1:
        return _of_sequence(list(argument[2]), cost)
    if op is sre.BRANCH:
        union: set[bytes] = set()
        for branch in argument[1]:
            found = _of_sequence(list(branch), cost)
            if found is None:
                return None
            union |= found
        return frozenset(union)
    return None
