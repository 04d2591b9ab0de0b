"""How large rules may be, so that no rule set takes more time or memory than an edge has. Bounds and counting only.

The same bounds hold where rules are written (a rule beyond one is refused by name, the others run) and where a plan
arrives at an agent (it is refused). They lie far above what rules in use need: all of SigmaHQ's 3,000 rules together
stay below a third of each. Lists of thousands of values belong into a lookup file.

What they bound: the front-end's work (``MAX_FILE``, ``MAX_NODES``, ``MAX_NESTING``, ``MAX_TESTS``), the memory of the
groups' bitsets, which is quadratic in the tests of one field (``MAX_OF_FIELD``), and the pattern compiler, which spells
out counted repeats (``MAX_WEIGHT``, ``MAX_REPEATS``) and has all patterns in one database (``MAX_WEIGHTS``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

from vedette.plan.ir import Op, Predicate

MAX_FILE = 8 << 20
"""Bytes of a rule file."""
MAX_NODES = 50_000
"""Keys and values of one document, each alias counted with all that it refers to."""
MAX_FILE_NODES = 1_000_000
"""The same of a file's documents together, what an ``action`` takes over counted each time."""
MAX_NESTING = 60
"""Lists and mappings within each other, aliases followed."""
MAX_CONDITION = 64 << 10
"""Characters of a condition."""
MAX_TESTS = 50_000
"""Tests in the expression of one rule, those of several places counted each time."""
MAX_TEXT = 64 << 10
"""Characters of a value that is searched for."""
MAX_WILDCARDS = 200
"""Parts of a value with wildcards."""
MAX_PREDICATES = 100_000
"""Different tests of a rule set."""
MAX_OF_FIELD = 20_000
"""Of them, those of one field."""
MAX_WEIGHT = 5_000
"""Characters that a regular expression spells out, its counted repeats taken at their most."""
MAX_REPEATS = 20_000
"""What counted repeats add to the regular expressions of a rule set, all together: the pattern compiler takes about a
millisecond for each character."""
MAX_WEIGHTS = 200_000
"""Characters that the regular expressions of a rule set spell out, all together: 20 s of the pattern compiler.
SigmaHQ's rules have 5,000."""
MAX_RULES = 50_000
"""Rules and correlations of a rule set."""

REGEX_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*\]|\{(\d*)(,?)(\d*)\}|.", re.S)
_HUGE = 1 << 40


def weight(source: str) -> int:
    """How many characters (or classes) a regular expression is when its counted repeats are spelled out.

    ``a{2,5}`` is 5, ``(ab{3}){4}`` 16, ``a{9,}`` 9; ``*``, ``+`` and ``?`` add nothing.
    """
    stack = [[0, 0]]  # of each open group: its weight so far, and that of its last part
    for token in REGEX_TOKEN.finditer(source):
        text, top = token[0], stack[-1]
        if text == "(":
            stack.append([0, 0])
        elif text == ")" and len(stack) > 1:
            inner = max(1, stack.pop()[0])
            stack[-1][0] += inner
            stack[-1][1] = inner
        elif len(text) > 2 and text[0] == "{" and (token[1] or token[3]):
            times = max(int((token[1] or "0")[:9]), int((token[3] or "0")[:9]))
            top[0] += top[1] * max(0, times - 1)
            top[1] *= max(1, times)
            if top[0] > _HUGE:
                return _HUGE
        elif text not in "*+?|":
            top[0] += 1
            top[1] = 1
    return min(_HUGE, sum(part[0] for part in stack))


def check_regex(source: str) -> int:
    """The weight of a regular expression; raises ValueError when it is beyond its bound. Before any engine sees it."""
    if len(source) > MAX_TEXT:
        raise ValueError(f"a regular expression of {len(source)} characters: the limit is {MAX_TEXT}")
    heavy = weight(source)
    if heavy > MAX_WEIGHT:
        count = heavy if heavy < _HUGE else "countless"
        raise ValueError(
            f"a regular expression that spells out {count} characters: the limit is {MAX_WEIGHT}"
            "; shorten its counted repeats"
        )
    return heavy


class SetFull(ValueError):
    """Not the rule is beyond a bound, but the rule set would be with it."""


class Tally:
    """The predicates of a rule set, counted against the bounds."""

    __slots__ = ("_fields", "_repeats", "_weight", "count")

    def __init__(self) -> None:
        self.count = 0
        self._fields: Counter[str] = Counter()
        self._repeats = 0
        self._weight = 0

    def check(self, p: Predicate) -> tuple[int, int]:
        """The weight of a regular expression ``p``, and what of it are counted repeats; raises ValueError when ``p`` is
        beyond a bound itself, SetFull when the set would be."""
        size = max(map(len, map(str, p.value))) if isinstance(p.value, tuple) else len(str(p.value))
        if size > MAX_TEXT:
            raise ValueError(f"a value of {size} characters: the limit is {MAX_TEXT}")
        if p.op is Op.GLOB and isinstance(p.value, tuple) and len(p.value) > MAX_WILDCARDS:
            raise ValueError(f"a value of {len(p.value)} parts between wildcards: the limit is {MAX_WILDCARDS}")
        heavy = check_regex(str(p.value)) if p.op is Op.REGEX else 0
        repeats = max(0, heavy - size)
        if self._weight + heavy > MAX_WEIGHTS:
            raise SetFull(f"the rule set's regular expressions have more than {MAX_WEIGHTS} characters together")
        if self._repeats + repeats > MAX_REPEATS:
            raise SetFull(
                f"the counted repeats of the rule set's regular expressions add more than {MAX_REPEATS} characters"
            )
        if self.count >= MAX_PREDICATES:
            raise SetFull(f"the rule set has more than {MAX_PREDICATES} different tests: use lookups")
        if self._fields[p.field] >= MAX_OF_FIELD:
            raise SetFull(f"the rule set has more than {MAX_OF_FIELD} tests of the field {p.field!r:.60}: use lookups")
        return heavy, repeats

    def add(self, p: Predicate) -> None:
        """Count a predicate in; raises as ``check`` does, and it is not counted then."""
        heavy, repeats = self.check(p)
        self._weight += heavy
        self._repeats += repeats
        self.count += 1
        self._fields[p.field] += 1

    def remove(self, p: Predicate) -> None:
        """Count a predicate out."""
        self.count -= 1
        self._fields[p.field] -= 1
        if p.op is Op.REGEX:
            heavy = weight(str(p.value))
            self._weight -= heavy
            self._repeats -= max(0, heavy - len(str(p.value)))


def check(predicates: Collection[Predicate]) -> None:
    """Raises ValueError when the predicates of a plan are beyond a bound."""
    fields = Counter([p.field for p in predicates])
    few = len(predicates) <= MAX_PREDICATES and (not fields or fields.most_common(1)[0][1] <= MAX_OF_FIELD)
    tally = Tally()
    for p in predicates:
        if not few or type(p.value) is not str or p.op is Op.REGEX or len(p.value) > MAX_TEXT:  # of 30,000 a few
            tally.add(p)
