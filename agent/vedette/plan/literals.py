"""From a rule's expression to literals of which at least one occurs in the raw bytes of every event it matches.

*Sound before selective*: a rule for which no such set can be proved has none (``None``: the rule is always a
candidate). The proof, bottom up:

* a **clause** is a set of literals of which one is in every event that a part of the rule holds for;
* a predicate on a **synthetic** field has none, nor has the absence of a field. Any other that holds needs its field:
  where no decoder makes up its name (``decode/fields.py``), the names that it may stand under are a clause;
* a string predicate needs each of its texts in the value; the value stands in the raw bytes *verbatim* or escaped by
  its codec: a backslash before ``" / \\ ] | =`` (JSON, RFC 5424, CEF) or ``&quot;`` (XML), which
  ``engine/prefilter.py`` tolerates, or any character as ``\\u0041`` (JSON) or ``&#65;`` (XML), so that an event with
  such an escape of a character that literals are made of is searched once more, ``unescaped`` and ``folded``
  (``GUARDS``). A field that a decoder transforms has guards of its own (``decode/fields.py``). Texts are split at
  characters that are often escaped so (``< > & '``), at controls and outside ASCII;
* a run outside ASCII is a clause of its own, in all its cases, as UTF-8; escapes of such characters are not undone but
  guards of such pieces alone (``FOREIGN_GUARDS``);
* folding is ASCII's in the scan. U+017F and U+212A fold to ``s`` and ``k``: they are guards too;
* a piece that could be part of a number is compared with the number as Python prints it; numbers written in a way
  that prints otherwise are guards of such pieces alone (``NUMBER_GUARDS``);
* a regex needs what every alternative of it needs, read from Python's own parse of it; where that parse may differ
  from PCRE's, nothing is concluded;
* AND: the clauses of all children; OR: unions of one clause of each child, none if one child has none; NOT: none,
  but for what the negation of "null or absent" needs.

Of a rule's clauses one or two are searched for (``choose``): the cheapest, and where that one is hot a second, so that
an event is a candidate only if it has a literal of both. Of a long literal a part is searched for (``WINDOW``).

The decoders' tables say which names of fields need not stand in an event, and what is made (``decode/fields.py``). A
further format, declared or a plugin's, gives its fields under names of its own, too, and some synthetic. So where one
gives the field of a predicate, literals are chosen as if the predicate were about the event as a whole (``sought``):
its value stands there, under whatever name; of a synthetic field nothing does.

Literals are lower-case bytes and are searched without regard to the case of ASCII.
"""

from __future__ import annotations

import hashlib
import math
import re
import re._constants as sre
import re._parser as sre_parse
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from vedette.decode.aliases import ALIASES
from vedette.decode.codecs import Codec
from vedette.decode.fields import is_made, provenance, stands_as
from vedette.decode.formats.base import Provenance
from vedette.plan.ir import ANY, FIELD_OPS, KEYWORDS, STAR, And, Expr, Leaf, Not, Op, Or, Predicate, variants
from vedette.plan.operators import OPERATORS, Value

Literals = frozenset[bytes]
"""A clause: one of them is in every event that matches."""

Cost = Callable[[bytes], float]
"""Expected share of events that hold a literal, from 0 to 1."""


class Names(frozenset[bytes]):
    """A clause with names of fields in it: common where such events are, whatever their words look like."""

    __slots__ = ()


class Measured(Protocol):
    """A ``Cost`` that has seen traffic."""

    def __call__(self, literal: bytes) -> float: ...

    def share(self, clauses: Sequence[Literals]) -> float:
        """The share of events that hold a literal of each of ``clauses``."""

    def cut(self, literals: Collection[bytes]) -> Mapping[bytes, bytes]:
        """By literal a part of it to search for in its place, no more common, for those that have one."""


class Choice(NamedTuple):
    """The clauses of a rule that are searched for."""

    first: Literals | None
    """None: the rule is always a candidate."""
    second: Literals | None = None


_SAFE = re.compile(r"[A-Za-z0-9 _.,:;()\[\]{}!?@$*+=|^~`\"/\\#%-]+")
_ESCAPED_SAFE = b"|".join(b"%02x" % code for code in range(128) if _SAFE.fullmatch(chr(code)))

GUARDS: tuple[bytes, ...] = (
    rb"\\u00(?:" + _ESCAPED_SAFE + rb")",  # JSON: a character of a piece written as an escape
    rb"\xc5\xbf",  # U+017F, folds to s
    rb"\xe2\x84\xaa",  # U+212A, folds to k
    rb"\\u017f",
    rb"\\u212a",
    rb"&#(?:x[0-9a-f]{1,6}|[0-9]{1,7});",  # XML: any character by its number
    rb"\\u0026(?:#|quot;)",  # the same, and a quotation mark, of XML within JSON
)
"""Regular expressions without regard to case; an event that holds one is searched again, ``unescaped``, ``folded``."""

_ESCAPE = re.compile(rb"\\(?:u00([0-7][0-9a-fA-F])|u(017[fF]|212[aA])|[\x00-\x7f])|\xc5\xbf|\xe2\x84\xaa")

_ENTITY = re.compile(rb"&#(?:[xX]([0-9a-fA-F]{1,6})|([0-9]{1,7}));")

NUMBER_GUARDS: tuple[bytes, ...] = (rb"[:,\[\s\x00\xbf]-?[0-9]+(?:\.[0-9]+)?e[-+0-9]", rb"[0-9.]{16}", rb"0\.0000")
"""An event that holds one is a candidate of every rule with a literal made of digits: it may hold a number that
Python does not print as it is written. Such a number is one of JSON, so behind one of these characters, or it is all of
an event (``BARE_NUMBER``), which counts as the first guard."""

BARE_NUMBER = re.compile(rb"-?[0-9][0-9.]*[eE][-+]?[0-9]")

FOREIGN_GUARDS: tuple[bytes, ...] = (rb"\\u[0-9a-f]{4}", rb"&#")
"""An event that holds one is a candidate of every rule with a literal outside ASCII."""

MIN_LENGTH = 3
"""Bytes; a shorter piece is no literal, but for two that are not both letters or digits, and one of ``_RARE``."""

_RARE = frozenset(b"%c" % code for code in b"`^~|$!+*{}?@#%")
"""Characters that are rare enough in logs to be searched for when there is nothing better."""

MAX_CLAUSES = 8
"""Of one part of a rule that are considered."""

MAX_LITERALS = 2048
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


def unescaped(event: bytes) -> bytes:
    """``event`` with what ``GUARDS`` find as the ASCII characters that they stand for or fold to, read as JSON.

    Escapes are read from left to right, so that ``\\\\u0041``, an escaped backslash before a text, stays as it is.
    """
    plain = _ESCAPE.sub(_unescape, event)
    return _ENTITY.sub(_character, plain) if b"&#" in plain else plain


def folded(event: bytes) -> bytes:
    """``event`` with what folds to ASCII as that, read verbatim or as XML: a backslash is a plain character."""
    plain = event.replace(b"\xc5\xbf", b"s").replace(b"\xe2\x84\xaa", b"k")
    return _ENTITY.sub(_character, plain) if b"&#" in plain else plain


def _character(match: re.Match[bytes]) -> bytes:
    char = chr(min(int(match[1], 16) if match[1] else int(match[2]), 0x10FFFF))
    shown = {"\u017f": "s", "\u212a": "k"}.get(char, char)
    return shown.encode() if _SAFE.fullmatch(shown) else match[0]


def _unescape(match: re.Match[bytes]) -> bytes:
    code, folded = match[1], match[2]
    if code is not None:
        char = bytes([int(code, 16)])
        return char if char == b"&" or _SAFE.fullmatch(char.decode()) else match[0]
    if folded is not None:
        return b"s" if folded[:1] == b"0" else b"k"
    return {b"\xc5\xbf": b"s", b"\xe2\x84\xaa": b"k"}.get(match[0], match[0])


def is_numeric(literal: bytes) -> bool:
    """True when ``literal`` could be part of a number as Python prints it."""
    return _NUMERIC.fullmatch(literal) is not None


_NUMERIC = re.compile(rb"[-+]?[0-9]*\.?[0-9]*(e[-+]?[0-9]*)?|-?inf|nan")


def pieces(text: str) -> list[bytes]:
    """The runs of ``text`` that every escape leaves as they are, lower-case, long enough to search for."""
    runs = (match[0].lower().encode() for match in _SAFE.finditer(text))
    return [piece for piece in runs if not piece.isspace() and _long_enough(piece)]


def _long_enough(piece: bytes) -> bool:
    if len(piece) >= MIN_LENGTH:
        return True
    return piece in _RARE if len(piece) == 1 else not piece.isalnum() and not is_numeric(piece)


def is_foreign(literal: bytes) -> bool:
    """True when ``literal`` is outside ASCII."""
    return not literal.isascii()


def required(expr: Expr, predicates: Sequence[Predicate], cost: Cost = guess) -> Literals | None:
    """The cheapest provable set of literals for ``expr``; None when there is none. See the module's text."""
    return next(iter(clauses(expr, predicates, cost)), None)


def clauses(expr: Expr, predicates: Sequence[Predicate], cost: Cost = guess) -> list[Literals]:
    """Clauses that every event needs for which ``expr`` is true, the cheapest first, at most ``MAX_CLAUSES``."""
    match expr:
        case Leaf(number):
            return _ranked(clauses_of(predicates[number], cost), cost)
        case And(args):
            return _ranked([clause for arg in args for clause in clauses(arg, predicates, cost)], cost)
        case Or(args):
            return _ranked(_unions([clauses(arg, predicates, cost) for arg in args]), cost)
        case Not(arg):
            return _ranked(_of_negation(arg, predicates, cost), cost)


def _of_negation(expr: Expr, predicates: Sequence[Predicate], cost: Cost) -> list[Literals]:
    """Clauses that every event needs for which ``expr`` is false: a field that is neither null nor absent is there."""
    match expr:
        case Leaf(number):
            predicate = predicates[number]
            return [names] if predicate.op is Op.NULL and (names := _name_of(predicate.field)) else []
        case And(args):
            return _unions([_ranked(_of_negation(arg, predicates, cost), cost) for arg in args])
        case Or(args):
            return [clause for arg in args for clause in _of_negation(arg, predicates, cost)]
        case Not(arg):
            return clauses(arg, predicates, cost)


def _unions(children: Sequence[Sequence[Literals]]) -> list[Literals]:
    """Clauses of an OR: the first of each child, the second of each …; none when one child has none."""
    if not all(children):
        return []
    unions = []
    for rank in range(max(map(len, children), default=0)):
        picked = [child[min(rank, len(child) - 1)] for child in children]
        union = frozenset().union(*picked)
        if len(union) <= MAX_LITERALS:
            unions.append(Names(union) if any(isinstance(clause, Names) for clause in picked) else union)
    return unions


def _ranked(unranked: Sequence[Literals], cost: Cost) -> list[Literals]:
    def price(clause: Literals) -> tuple[float, int, list[bytes]]:
        return _price(clause, cost), -sum(map(len, clause)), sorted(clause)

    return sorted(set(unranked), key=price)[:MAX_CLAUSES]


NAME = 0.3
"""Share of events that hold a clause of names, where no traffic was measured."""


def _price(clause: Literals, cost: Cost | Measured) -> float:
    """Return what the hits of ``clause`` cost. Unmeasured, any other comes before one of names."""
    price = sum(map(cost, sorted(clause)))
    return price + MAX_LITERALS if isinstance(clause, Names) and not hasattr(cost, "share") else price


CALL, LOOK = 1.0, 8.0
"""What a hit costs, and what it costs to look at a rule for a candidate: measured, by their ratio."""


def choose(expr: Expr, predicates: Sequence[Predicate], cost: Cost | Measured = guess) -> Choice:
    """The cheapest clause, and a second when its hits cost less than what it spares.

    Without a measured ``cost`` clauses count as independent of each other.
    """
    ranked = clauses(expr, predicates, cost)
    if not ranked:
        return Choice(None)

    def hits(clause: Literals) -> float:
        price = _price(clause, cost)
        return price if price < MAX_LITERALS else NAME

    def independent(several: Sequence[Literals]) -> float:
        return math.prod(min(1.0, hits(clause)) for clause in several)

    first, *others = ranked
    share: Callable[[Sequence[Literals]], float] = getattr(cost, "share", independent)
    alone = share([first])
    best, gain = None, 0.0
    for other in others:
        spared = LOOK * (alone - share([first, other])) - CALL * hits(other)
        if spared > gain:
            best, gain = other, spared
    return Choice(first, best if gain > LOOK * 0.001 else None)


def candidates(expr: Expr, predicates: Sequence[Predicate]) -> set[bytes]:
    """Every literal that ``choose`` could take for ``expr``: what to measure in a sample."""
    seen: set[bytes] = set()

    def note(literal: bytes) -> float:
        seen.add(literal)
        return guess(literal)

    clauses(expr, predicates, note)
    return seen


def clauses_of(predicate: Predicate, cost: Cost = guess) -> list[Literals]:
    value, row = predicate.value, OPERATORS[predicate.op]
    kind = row.value if row.literal else None
    if predicate.op is Op.NULL:
        return []
    if provenance(predicate.field) is Provenance.SYNTHETIC:
        return _of_text(str(value)) if kind is Value.TEXT and not is_made(predicate.field, str(value)) else []
    needed = [names] if (names := _name_of(predicate.field)) else []
    match kind:
        case Value.TEXT:
            needed += _of_text(str(value))
        case Value.PARTS if isinstance(value, tuple):
            needed += [clause for part in value if part not in (STAR, ANY) for clause in _of_text(part)]
        case Value.NUMBER if isinstance(value, int):
            needed += _of_text(str(value))
        case Value.REGEX:
            needed += _of_regex(str(value), predicate.option, cost)
    if predicate.op in FIELD_OPS and (names := _name_of(str(value))):
        needed.append(names)
    return needed


def _name_of(field: str) -> Literals | None:
    """The names that ``field`` may stand under. Of a path only the last part is for sure a name in the event."""
    if provenance(field) is Provenance.SYNTHETIC or (names := stands_as(field)) is None:
        return None
    longest = set()
    for name in names:
        parts = pieces(name.rpartition(".")[2])
        if not parts:
            return None
        longest.add(max(parts, key=len))
    return Names(longest)


def _of_text(text: str) -> list[Literals]:
    needed = [frozenset({piece}) for piece in pieces(text)]
    if not text.isascii():
        needed += [clause for run in _FOREIGN.findall(text) if (clause := _of_foreign(run))]
    return needed


_FOREIGN = re.compile("[^\0-\x7f\ud800-\udfff\ufffd]+")
_MAX_VARIANTS = 16


def _of_foreign(run: str) -> Literals | None:
    """The first characters of ``run``, in all cases of each; None when one of these is in ASCII."""
    forms = [""]
    for char in run[:4]:
        more = [form + other for form in forms for other in variants(char)]
        if len(more) > _MAX_VARIANTS:
            break
        forms = more
    whole = forms != [""] and not any(char.isascii() for form in forms for char in form)
    return frozenset(form.encode() for form in forms) if whole else None


_READ_OTHERWISE = re.compile(r"\[[\[:.=]|\\Q|\(\?(?!:|=|!|<=|<!|[ims]+:)")
_FLAGS = re.compile(r"\(\?[ims]+\)")


def _of_regex(pattern: str, flags: str, cost: Cost) -> list[Literals]:
    number = sum({"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}[flag] for flag in flags)
    if leading := _FLAGS.match(pattern):
        pattern = pattern[leading.end() :]  # they change what ``.`` and anchors match, and the case: no literal
    if _READ_OTHERWISE.search(pattern) or not pattern.isascii():
        return []  # what Python and PCRE read differently, or may
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # what Python may once read as a set operation
            parsed = sre_parse.parse(pattern, number)
        return _of_sequence(list(parsed), cost)
    except (re.error, RecursionError, OverflowError):
        return []


def _of_sequence(nodes: list[Any], cost: Cost) -> list[Literals]:
    """The clauses of a concatenation: its literal runs, and what its parts need."""
    needed: list[Literals] = []
    run = ""

    def close() -> None:
        nonlocal run
        needed.extend(frozenset({piece}) for piece in pieces(run))
        run = ""

    for op, argument in nodes:
        if (char := _character_of(op, argument)) is not None:
            run += char
            continue
        if op is sre.AT:
            continue  # anchors and word boundaries take no characters
        close()
        needed += _of_node(op, argument, cost)
    close()
    return _ranked(needed, cost)


def _character_of(op: Any, argument: Any) -> str | None:
    """The one character that a node matches, but for its case."""
    if op is sre.LITERAL and argument < 128:
        return chr(argument)
    if op is sre.IN and all(inner is sre.LITERAL and code < 128 for inner, code in argument):
        chars = {chr(code).lower() for _, code in argument}
        return chars.pop() if len(chars) == 1 else None
    return None


def _of_node(op: Any, argument: Any, cost: Cost) -> list[Literals]:
    if op is sre.SUBPATTERN:
        return _of_sequence(list(argument[3]), cost)
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and argument[0] >= 1:
        return _of_sequence(list(argument[2]), cost)
    if op is sre.BRANCH:
        return _unions([_of_sequence(list(branch), cost) for branch in argument[1]])
    return []  # among them look-around, which takes no characters


WINDOW = 8
"""Bytes of a text that Hyperscan finds in one step. A longer one, or one with a byte that a codec may escape, it must
look at again. So of a longer literal the rarest part of that length is searched for, by what a sample of the traffic
holds. Any part is sound: it is in every text that the literal is in. A literal that may be part of a number stays
whole, and no other becomes one, so which guards a literal needs does not change."""
MAX_BYTES = 4 << 20
"""Of the sample that are looked through."""

_ESCAPED = frozenset(b'"/\\]|=')


def windows(literal: bytes) -> list[bytes]:
    """The parts of ``literal`` that may be searched for in its place, in order; none when it is to stay whole."""
    if len(literal) <= WINDOW or is_numeric(literal) or is_foreign(literal):
        return []
    parts = dict.fromkeys(literal[i : i + WINDOW] for i in range(len(literal) - WINDOW + 1))
    return [part for part in parts if not part.isspace() and not is_numeric(part)]


def rarest(literals: Iterable[bytes], lines: Sequence[bytes]) -> Mapping[bytes, bytes]:
    """A window for each of ``literals`` that has one: that of the fewest ``lines``, without escapes if there is one."""
    parts = {literal: pieces for literal in literals if (pieces := windows(literal))}
    wanted = {part for pieces in parts.values() for part in pieces}
    counts: Counter[bytes] = Counter()
    left = MAX_BYTES
    for line in lines[:: sum(map(len, lines)) // MAX_BYTES + 1] if wanted else ():
        left -= len(line)
        if left < 0:
            break
        text = line.lower().replace(b"\\\\", b"\\").replace(b'\\"', b'"').replace(b"\\/", b"/")
        counts.update({text[i : i + WINDOW] for i in range(len(text) - WINDOW + 1)} & wanted)
    price = {part: (counts[part], sum(map(_ESCAPED.__contains__, part)), guess(part), part) for part in wanted}
    return {literal: min(pieces, key=price.__getitem__) for literal, pieces in parts.items()}


_NOTHING = Predicate(KEYWORDS, Op.NULL)
"""No literal is taken of it, nor of its negation."""


def declared_by(codecs: Iterable[Codec]) -> dict[str, bool]:
    """The fields that formats of their own give, and whether one of these makes it."""
    synthetic: dict[str, bool] = {}
    for codec in codecs:
        for field in codec.row.gives.fields if codec.row is not None else ():
            synthetic[field.name] = synthetic.get(field.name, False) or field.how is Provenance.SYNTHETIC
    return synthetic


def _of(field: str, declared: Mapping[str, bool]) -> bool | None:
    """Whether ``field`` may be one that is made; None: it is none of ``declared``."""
    flags = [declared[name] for name in (field, *ALIASES.get(field, ())) if name in declared]
    return any(flags) if flags else None


def sought(predicates: tuple[Predicate, ...], declared: Mapping[str, bool]) -> tuple[Predicate, ...]:
    """``predicates`` as literals are to be chosen for them."""
    return tuple(_sought(predicate, declared) for predicate in predicates) if declared else predicates


def _sought(predicate: Predicate, declared: Mapping[str, bool]) -> Predicate:
    synthetic = _of(predicate.field, declared)
    if synthetic or (synthetic is not None and provenance(predicate.field) is Provenance.SYNTHETIC):
        return _NOTHING
    if predicate.op in FIELD_OPS and _of(str(predicate.value), declared) is not None:
        predicate = predicate._replace(value=KEYWORDS)
    return predicate if synthetic is None else predicate._replace(field=KEYWORDS)


def digest(fields: Iterable[str], declared: Mapping[str, bool]) -> str:
    """Digest what ``declared`` says of ``fields``; empty when that is nothing."""
    facts = [(field, synthetic) for field in sorted(set(fields)) if (synthetic := _of(field, declared)) is not None]
    return (
        f"+{hashlib.blake2b(repr(facts).encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}" if facts else ""
    )
