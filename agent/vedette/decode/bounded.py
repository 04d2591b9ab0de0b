"""Patterns that somebody else wrote, on texts that a third wrote: no pair of them holds the agent.

* A pattern that is surely linear, by its syntax (``why_slow``), runs in ``re``, without a clock.
* Every other one runs in ``regex``, whose time-out is the CPU time of this process: a busy host does not bring it
  closer. Other threads' work counts too, so ``SECONDS`` is a thousand times what a good pattern takes.
* A question that takes longer raises ``TooSlow``: it is undecided, never "no". After ``QUARANTINE_AFTER`` of them, or
  when questions take more than ``MEAN`` for long, the pattern's ``Guard`` is in quarantine, and it is asked no more.

Whoever asks says what an undecided text becomes; no text is lost by it.
"""

from __future__ import annotations

import re
import re._constants as sre
import re._parser as sre_parse
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import regex

SECONDS = 0.05
"""Seconds of CPU for one pattern on one text."""
QUARANTINE_AFTER = 10
MEAN = 0.001
MEAN_BYTES = 4096
"""Seconds of CPU that a question may take in the long run, for so many letters or part of them."""
DEBT = 1.0
"""Seconds of CPU beyond that until quarantine."""
MOST_WAYS = 100
"""In which a linear pattern may fit at one place of a text."""
MOST_COPIES = 100_000
_REST = (
    r"\\.|\[\^?\]?(?:\\.|[^]\\])*+\]?|(?P<open>\()\??|(?P<close>\))"
    r"|(?P<repeat>\{(?P<least>\d*+),?\d*+\}|[*+?])[?+]?|."
)
_TOKEN = re.compile(r"(?P<skip>\(\?#[^)]*+\)?)|" + _REST, re.S)
_VERBOSE = re.compile(r"(?P<skip>\(\?#[^)]*+\)?|\s|#[^\n]*)|" + _REST, re.S)
"""Tokens of a regular expression, as far as ``copies`` must know them; a repeat applies over what is skipped."""

T = TypeVar("T", str, bytes)


class TooSlow(Exception):
    """It could not be decided in time."""


@dataclass(slots=True)
class Guard:
    """The CPU time that the patterns of one owner have taken."""

    overruns: int = 0
    """Texts on which one took too long."""
    debt: float = 0.0

    @property
    def quarantined(self) -> bool:
        return self.overruns >= QUARANTINE_AFTER or self.debt >= DEBT

    def ask(self, question: Callable[..., Any], text: str | bytes, seconds: float = SECONDS) -> Any:
        """Call a method of a ``compiled`` pattern. Raises ``TooSlow``."""
        if self.quarantined:
            raise TooSlow
        began = time.thread_time()
        try:
            return question(text, timeout=seconds)
        except TimeoutError:
            self.overruns += 1
            raise TooSlow from None
        finally:
            self.debt = max(0.0, self.debt + time.thread_time() - began - MEAN * (1 + len(text) // MEAN_BYTES))


def compiled(pattern: str | bytes, flags: int = 0) -> Any:
    """A pattern whose methods take ``timeout``. Raises ValueError for what is no regular expression, or takes too much
    memory."""
    if copies(pattern) > MOST_COPIES:
        raise ValueError("its repeats within each other multiply: write smaller counts, or fewer groups")
    try:
        return regex.compile(pattern, flags)
    except RecursionError:
        raise ValueError("its groups are nested too deep") from None
    except (regex.error, OverflowError) as error:
        raise ValueError(str(error)) from None


def copies(pattern: str | bytes) -> int:
    """Return how many copies of its innermost part ``regex`` makes, at most: of a repeat as many as must be there and
    one more, of repeats within each other the product."""
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    forms = (_TOKEN, _VERBOSE) if re.search(r"\(\?[A-Za-z01]*x", text) else (_TOKEN,)
    return max(_copies(text, form) for form in forms)


def _copies(text: str, form: re.Pattern[str]) -> int:
    most, last = [1], 1
    for token in form.finditer(text):
        if token["skip"]:
            continue
        if token["open"]:
            most.append(1)
        elif token["close"] and len(most) > 1:
            last = most.pop()
        elif repeat := token["repeat"]:
            last *= 1 + (int(token["least"] or 0) if token["least"] is not None else repeat == "+")
        else:
            last = 1
        most[-1] = max(most[-1], 1 if token["open"] else last)
    return max(most)


def finder(pattern: T, guard: Guard) -> Callable[[T], object]:
    """Return a search for ``pattern`` in a text, which gives a match, or None, and raises ``TooSlow``. Raises
    ValueError."""
    search = compiled(pattern).search
    if not why_slow(pattern):
        with suppress(re.error):  # ``regex`` takes more, as a look-behind of any width
            plain = re.compile(pattern)
            return plain.match if _anchored(_parsed(pattern)) else plain.search
    return lambda text: guard.ask(search, text)


def why_slow(pattern: str | bytes, *, matched: bool = False, flags: int = 0) -> str:
    """Why a search (``matched``: at the text's beginning only) may take more than a time linear in the text; empty: it
    cannot."""
    try:
        parsed = _parsed(pattern, flags)
        cost = _cost(parsed, last=True)
    except (re.error, RecursionError, OverflowError):
        return "it is more than this can tell of"
    except _Backtracks as error:
        return str(error)
    if cost.ways > MOST_WAYS:
        return _MANY_WAYS
    if cost.work + (not matched and not _anchored(parsed)) > 1:
        return "it has several parts of any length, or one that is sought at any place"
    return ""


def grows(pattern: str | bytes) -> str:
    """Why the time of a search may grow beyond every power of a short text's length; empty: it does not, or this cannot
    tell."""
    why = why_slow(pattern)
    return why if why in (_REPEATED, _MANY_WAYS) else ""


_REPEATED = "a part that fits in several ways is repeated"
_MANY_WAYS = "its parts fit in many ways"


class _Backtracks(Exception):
    """The time may grow beyond every power of the text's length."""


class _Cost(NamedTuple):
    """How a part fits from one place on: the steps are of ``work`` powers of the text's length; it may end at places
    of as many as ``many`` powers, and for each of these in ``ways``."""

    work: int = 0
    many: int = 0
    ways: int = 1


def _parsed(pattern: str | bytes, flags: int = 0) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sre_parse.parse(pattern, flags)


def _anchored(parsed: Any) -> bool:
    """Whether it fits at the text's beginning or nowhere."""
    if parsed.state.flags & re.MULTILINE:
        return False
    return _begins(parsed.data)


def _begins(items: Any) -> bool:
    if not items:
        return False
    op, value = items[0]
    if op is sre.AT:
        return bool(value in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING))
    if op is sre.SUBPATTERN:
        return not value[1] & re.MULTILINE and _begins(value[3].data)
    return op is sre.BRANCH and all(_begins(branch.data) for branch in value[1])


def _cost(items: Any, last: bool = False) -> _Cost:
    """Return the cost of a sequence; ``last``: nothing follows it. Raises ``_Backtracks``."""
    work = 0
    many = 0
    ways = 1
    for place, (op, value) in enumerate(items):
        cost = _of(op, value)
        if cost.many and op in _REPEATS and _one_end(value[2], items[place + 1 :], last):
            cost = _Cost(cost.work, 0)
        work = max(work, many + cost.work)
        many += cost.many
        ways = min(ways * cost.ways, 1 << 30)
    return _Cost(work, many, ways)


def _of(op: Any, value: Any) -> _Cost:
    match op:
        case sre.BRANCH:
            several = [_cost(branch) for branch in value[1]]
            return _Cost(
                max(cost.work for cost in several),
                max(cost.many for cost in several),
                sum(cost.ways for cost in several),
            )
        case sre.SUBPATTERN:
            return _cost(value[3])
        case sre.ATOMIC_GROUP:
            return _Cost(_cost(value).work)
        case sre.ASSERT | sre.ASSERT_NOT:
            return _Cost(_cost(value[1]).work)
        case sre.MAX_REPEAT | sre.MIN_REPEAT | sre.POSSESSIVE_REPEAT:
            return _repeated(op, *value)
        case sre.GROUPREF | sre.GROUPREF_EXISTS:
            raise _Backtracks("it refers to a group")
    return _Cost()


_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)


def _repeated(op: Any, least: int, most: Any, body: Any) -> _Cost:
    cost = _cost(body)
    alone = op is sre.POSSESSIVE_REPEAT
    if most is sre.MAXREPEAT or most > MOST_WAYS:
        if cost.many or cost.ways > 1:
            raise _Backtracks(_REPEATED)
        return _Cost(cost.work + 1, 0 if alone else 1)
    work = cost.work + max(0, most - 1) * cost.many
    if alone:
        return _Cost(work)
    return _Cost(work, most * cost.many, min(max(1, most - least + 1) * cost.ways**most, 1 << 30))


# --- a repeat of one character behind which another must stand ends at one place alone

_OTHER = 256
"""In place of all characters beyond Latin-1."""
_EVERY = frozenset(range(257))
_Between = tuple[frozenset[int], frozenset[int]]
"""Characters that surely fit, and those that perhaps do: with and without Unicode, with and without regard to case."""


def _kind(escape: str) -> _Between:
    plain = frozenset(code for code in range(256) if re.match(escape, chr(code), re.ASCII))
    return plain, plain | {code for code in range(256) if re.match(escape, chr(code))} | {_OTHER}


_KINDS = {
    sre.CATEGORY_DIGIT: _kind(r"\d"), sre.CATEGORY_NOT_DIGIT: _kind(r"\D"), sre.CATEGORY_SPACE: _kind(r"\s"),
    sre.CATEGORY_NOT_SPACE: _kind(r"\S"), sre.CATEGORY_WORD: _kind(r"\w"), sre.CATEGORY_NOT_WORD: _kind(r"\W"),
}  # fmt: skip


def _one_end(body: Any, behind: Any, last: bool) -> bool:
    if len(body) != 1 or (repeated := _characters(*body[0])) is None:
        return False
    if not behind:
        return last
    op, value = behind[0]
    if op in _REPEATS and value[0] > 0 and len(value[2]) == 1:
        op, value = value[2][0]
    if op is sre.AT and value in (sre.AT_END, sre.AT_END_STRING):
        return ord("\n") not in repeated[1]
    following = _characters(op, value)
    return following is not None and repeated[1].isdisjoint(following[1])


def _characters(op: Any, value: Any) -> _Between | None:
    """Return the characters that fit an item of one character; None: it is another item."""
    match op:
        case sre.LITERAL:
            return _range(value, value)
        case sre.NOT_LITERAL:
            return frozenset(), _EVERY - _range(value, value)[0]
        case sre.ANY:
            return frozenset(), _EVERY
        case sre.IN:
            negated = value[0][0] is sre.NEGATE
            parts = [
                _KINDS[item] if kind is sre.CATEGORY else _range(*((item, item) if kind is sre.LITERAL else item))
                for kind, item in value[negated:]
            ]
            surely, perhaps = (frozenset[int]().union(*several) for several in zip(*parts, strict=True))
            return (_EVERY - perhaps, _EVERY - surely) if negated else (surely, perhaps)
    return None


_WITH_OTHERS = frozenset(map(ord, "iIkKsS")) | frozenset(range(128, 256))
"""Characters whose upper or lower case is a letter beyond Latin-1."""


def _range(first: int, last: int) -> _Between:
    codes = range(first, min(last, 255) + 1)
    letters = {ord(both) for code in codes for both in chr(code).swapcase() if chr(code).isalpha()}
    others = {_OTHER} if last > 255 or not letters.isdisjoint(_WITH_OTHERS) else set[int]()
    return frozenset(codes), frozenset(codes) | {code for code in letters if code < 256} | others
