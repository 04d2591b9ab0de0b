"""The search language of alerts: text to a tree, with errors that say at which column, and what to write.

| written | means |
|---|---|
| ``level:high site:vienna`` | both; ``AND`` may stand between |
| ``a OR b``, ``NOT a``, ``-a``, ``( … )`` | either; not; together. AND binds closer than OR |
| ``host:web1``, ``user:"ann b"``, ``host:web*`` | the field is this text, whatever its case; ``*`` any characters |
| ``level>=high``, ``count>10``, ``fields.size<=1e3`` | severity, and numbers |
| ``sshd``, ``"failed password"``, ``text:fail*root`` | title, raw text or a field's value holds it |
| ``since:24h``, ``from:2026-11-01``, ``to:2026-11-20`` | time in UTC; ``to`` a day includes it |

In quotes ``*`` is a star; ``\\"`` is a quote and ``\\\\`` a backslash. ``FIELDS`` has the names. Pure: the time is an
argument; ``sql`` makes the question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import TypeAlias

from spark_jobs.tables.ask import LEVELS
from vedette.model.event import address
from vedette.model.times import seconds
from vedette_console.web import Problem

MAX_SEARCH = 4_000
"""Characters."""
MAX_TERMS = 100
MAX_DEPTH = 30
MAX_AGE = timedelta(days=36_500)

KINDS = ("ip", "user", "hash", "domain", "url", "user_agent", "device")
"""Kinds of entities that are fields."""
NUMBERS = ("count", "seq")
FIELDS: dict[str, str] = {
    "level": "informational, low, medium, high or critical; also level>=high",
    "rule": "a rule's id or title",
    "title": "a rule's title",
    "tag": "a tag of the rule",
    "technique": "of ATT&CK, T1110; those below it, too",
    "tactic": "of ATT&CK, credential-access",
    "site": "a site",
    "fleet": "a fleet",
    "host": "the host that the event names",
    "agent": "an agent's id",
    "kind": "detection, correlation or fold; without it folds are left out",
    "source": "an agent's input",
    "bundle": "the bundle that held the rule",
    "flag": "a flag of the alert, such as cut",
    "entity": "any entity",
    "ip": "an address",
    "user": "a user",
    "hash": "a file's hash",
    "domain": "a domain",
    "url": "a URL",
    "user_agent": "a user agent",
    "device": "a device",
    "id": "an alert's id",
    "fields.NAME": "a field of the event; also fields.NAME>=5",
    "count": "of a correlation or fold",
    "seq": "the number of the alert in its agent's outbox",
    "text": "title, raw text or a field's value holds it",
    "since": "how long ago at most: since:24h, since:7d",
    "from": "a day or time, UTC: from:2026-11-01, from:2026-11-01T08:00",
    "to": "a day, included, or a time before which: to:2026-11-20",
}
"""Every field, and what it is."""

_WORD = re.compile(r'[^\s()"]+')
_FIELD = re.compile(r'([A-Za-z_][\w]*(?:\.(?:"(?:[^"\\]|\\.)*"|[^\s:()"<>=]+))?)(:|>=|<=|>|<|=|!=)', re.ASCII)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:e[0-9]{1,2})?")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text with a star between each two ``parts``; one part is the text itself."""

    parts: tuple[str, ...]

    @property
    def anything(self) -> bool:
        return len(self.parts) > 1 and not any(self.parts)


@dataclass(frozen=True, slots=True)
class Term:
    """``field`` (of ``FIELDS``; ``name`` of fields.NAME) compared by ``:``, or ``>=``, ``<=``, ``>``, ``<`` with a
    ``number`` (of level: its severity)."""

    field: str
    pattern: Pattern = Pattern(("",))
    op: str = ":"
    number: float = 0.0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Not:
    part: Tree


@dataclass(frozen=True, slots=True)
class All:
    """Every part; without any: everything."""

    parts: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Any:
    parts: tuple[Tree, ...]


Tree: TypeAlias = Term | Not | All | Any


@dataclass(frozen=True, slots=True)
class Search:
    """A search at times from ``since`` to before ``until`` (None: unbounded). ``timed``: its text says something about
    time."""

    tree: Tree = All()
    since: datetime | None = None
    until: datetime | None = None

    @property
    def timed(self) -> bool:
        return self.since is not None or self.until is not None

    def has(self, *fields: str) -> bool:
        """Whether a term of one of ``fields`` is in it."""
        return any(term.field in fields for term in terms(self.tree))


def terms(tree: Tree) -> Iterator[Term]:
    """All terms of ``tree``."""
    match tree:
        case Term():
            yield tree
        case Not(part):
            yield from terms(part)
        case All(parts) | Any(parts):
            for part in parts:
                yield from terms(part)


def wrong(column: int, error: str, what_to_do: str) -> Problem:
    """The error at ``column`` (from 1) of a search."""
    return Problem(400, error, where=f"column {column}", what_to_do=what_to_do)


def parse(text: str, now: datetime) -> Search:
    """Parse ``text``, as of ``now``. Raises Problem 400 with the column, from 1, as ``where``."""
    if len(text) > MAX_SEARCH:
        raise wrong(MAX_SEARCH + 1, f"the search has over {MAX_SEARCH:,} characters", "search for less")
    parser = _Parser(text, now)
    tree = parser.whole()
    return Search(tree, parser.since, parser.until)


def quoted(value: str) -> str:
    """``value`` as it is written in a search, in quotes where it must be."""
    if re.fullmatch(r"[\w.@:/+-]+", value) and value not in ("AND", "OR", "NOT"):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def term(field: str, value: str) -> str:
    """The term that asks for this value of a field; one without a value is asked for by ``-field:*``."""
    return f"{field}:{quoted(value)}" if value else f"-{field}:*"


class _Parser:
    """Recursive descent over ``text``; ``at`` is the next character."""

    def __init__(self, text: str, now: datetime) -> None:
        self.text, self.now = text, now
        self.at = 0
        self.depth = 0
        self.terms = 0
        self.inside = 0
        """Of how many NOT, OR or brackets the next term is a part."""
        self.since: datetime | None = None
        self.until: datetime | None = None

    def whole(self) -> Tree:
        tree = self.either()
        if self.at < len(self.text):
            raise wrong(self.at + 1, "a bracket closes that none opened", "leave out this )")
        return tree

    def either(self) -> Tree:
        parts: list[Tree] = []
        start, before = self.at, (self.since, self.until)
        while True:
            self.blank()
            begin = self.at
            parts.append(self.both())
            if self.at == begin and self.word("OR", take=False):
                raise wrong(begin + 1, "OR has nothing before it", "write a term before OR, or leave it out")
            if not self.word("OR"):
                break
            self.operand("OR")
        if len(parts) > 1 and (self.since, self.until) != before:
            raise wrong(start + 1, "a time stands in an OR", "write since:, from: and to: once, outside of OR and NOT")
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def both(self) -> Tree:
        parts: list[Tree] = []
        while (part := self.single()) is not None:
            if part != All():
                parts.append(part)
            if self.word("AND"):
                self.operand("AND")
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def single(self) -> Tree | None:
        """The next term or bracket; None at the end, before OR and before a closing bracket."""
        self.blank()
        start = self.at
        if start >= len(self.text) or self.text[start] == ")" or self.word("OR", take=False):
            return None
        if self.word("AND", take=False):
            raise wrong(start + 1, "AND has nothing before it", "write a term before AND, or leave it out")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise wrong(start + 1, f"over {MAX_DEPTH} levels of brackets", "search for less")
        try:
            if self.word("NOT") or (self.text[start] == "-" and self.text[start + 1 : start + 2].strip()):
                self.at += self.at == start
                self.operand("NOT")
                before = (self.since, self.until)
                part = self.single()
                if (self.since, self.until) != before:
                    raise wrong(start + 1, "a time cannot be denied", "write from: and to: for the time that you want")
                assert part is not None
                return Not(part)
            if self.text[start] == "(":
                return self.bracket(start)
            return self.term(start)
        finally:
            self.depth -= 1

    def bracket(self, start: int) -> Tree:
        self.at += 1
        self.blank()
        if self.text[self.at : self.at + 1] == ")":
            raise wrong(start + 1, "there is nothing between the brackets", "write terms between ( and )")
        tree = self.either()
        if self.text[self.at : self.at + 1] != ")":
            raise wrong(start + 1, "this bracket is not closed", "write ) where it ends")
        self.at += 1
        return tree

    def operand(self, after: str) -> None:
        """Raises when nothing stands after an operator."""
        self.blank()
        if (
            self.at >= len(self.text)
            or self.text[self.at] == ")"
            or any(self.word(word, take=False) for word in ("AND", "OR"))
        ):
            raise wrong(self.at + 1, f"{after} has nothing after it", f"write a term after {after}, or leave it out")

    def term(self, start: int) -> Tree:
        self.terms += 1
        if self.terms > MAX_TERMS:
            raise wrong(start + 1, f"over {MAX_TERMS} terms", "search for less")
        if self.text[start] == '"':
            return Term("text", self.pattern(start))
        match = _FIELD.match(self.text, start)
        if match is None:
            return Term("text", self.pattern(start))
        self.at = match.end()
        return self.compared(start, match[1], match[2])

    def compared(self, start: int, field: str, op: str) -> Tree:
        """A term of a field, whose value comes next."""
        name = ""
        if field.startswith("fields."):
            field, name = "fields.NAME", field.removeprefix("fields.")
            name = _unquoted(name[1:-1]) if name.startswith('"') else name
        if field not in FIELDS or (field == "fields.NAME" and not name):
            whole = _WORD.match(self.text, start)
            instead = f'write "{whole[0]}" to look for that text' if whole else "put it in quotes"
            raise wrong(start + 1, f"there is no field {field}", f"{instead}, or one of {', '.join(FIELDS)}")
        if op in ("=", "!="):
            instead = f"{'-' if op == '!=' else ''}{field}:…"
            raise wrong(start + 1, f"{op} is not written here", f"write {instead}")
        begin = self.at
        if begin >= len(self.text) or self.text[begin].isspace() or self.text[begin] in "()":
            raise wrong(begin + 1, f"{field} has no value", f'write {field}{op}VALUE without a blank; "" is no text')
        pattern = self.pattern(begin)
        if field in ("ip", "entity") and len(pattern.parts) == 1 and (own := address(pattern.parts[0])):
            pattern = Pattern((str(own),))
        if field in ("since", "from", "to"):
            return self.time(field, op, "*".join(pattern.parts), start, begin)
        if op == ":" and field not in NUMBERS:
            return Term(field, pattern, name=name)
        return Term(field, op=op, number=_number(field, "*".join(pattern.parts), begin), name=name)

    def pattern(self, start: int) -> Pattern:
        """The value at ``start``; moves behind it."""
        if self.text[start] == '"':
            match = _QUOTED.match(self.text, start)
            if match is None:
                raise wrong(start + 1, "this quote is not closed", 'write " where the text ends')
            self.at = match.end()
            if not match[1]:
                raise wrong(start + 1, "an empty text", "write what is to be found; -FIELD:* finds those without")
            return Pattern((_unquoted(match[1]),))
        match = _WORD.match(self.text, start)
        assert match is not None
        self.at = match.end()
        if self.text[self.at : self.at + 1] == '"':
            raise wrong(
                self.at + 1, "a quote in the middle of a word", 'put the whole value in quotes: "…"; \\" is a quote'
            )
        parts = match[0].split("*")
        return Pattern((parts[0], *(part for part in parts[1:-1] if part), *parts[1:][-1:]))

    def time(self, field: str, op: str, text: str, start: int, begin: int) -> Tree:
        if op != ":":
            raise wrong(start + 1, f"{field}{op} is not written here", f"write {field}:…")
        if field == "since":
            try:
                age = timedelta(seconds=seconds(text))
            except (ValueError, OverflowError):
                raise wrong(begin + 1, f"{text!r} is no duration", "write since:30m, since:24h, since:7d") from None
            at: datetime | None = self.now - min(age, MAX_AGE)
        else:
            at = _at(text, begin, whole_day=field == "to")
        if at is None:
            return All()
        if field == "to":
            self.until = at if self.until is None else min(at, self.until)
        else:
            self.since = at if self.since is None else max(at, self.since)
        return All()

    def word(self, word: str, *, take: bool = True) -> bool:
        """Whether the operator ``word`` comes next."""
        self.blank()
        end = self.at + len(word)
        if self.text[self.at : end] != word or (
            end < len(self.text) and not (self.text[end].isspace() or self.text[end] in '()"')
        ):
            return False
        if take:
            self.at = end
        return True

    def blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1


def _unquoted(text: str) -> str:
    return re.sub(r'\\(["\\])', r"\1", text)


def _number(field: str, text: str, begin: int) -> float:
    if field == "level":
        if text.lower() not in LEVELS:
            raise wrong(begin + 1, f"{text!r} is no level", f"write one of {', '.join(reversed(LEVELS))}")
        return len(LEVELS) - LEVELS.index(text.lower())
    if field not in (*NUMBERS, "fields.NAME"):
        raise wrong(begin + 1, f"{field} is a text", f"write {field}:VALUE")
    if not _NUMBER.fullmatch(text):
        raise wrong(begin + 1, f"{text!r} is no number", "write a number such as 10 or 2.5")
    return float(text)


def _at(text: str, begin: int, *, whole_day: bool) -> datetime | None:
    """A day, or a time; of a day with ``whole_day`` its end. None, an open end: to the last year, or from the first."""
    try:
        at = datetime.fromisoformat(text)
        if at.year == (MAXYEAR if whole_day else MINYEAR):
            return None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        if whole_day and len(text) <= len("2026-11-20"):
            at += timedelta(days=1)
    except (ValueError, OverflowError):
        raise wrong(begin + 1, f"{text!r} is no day or time", "write 2026-11-20, or 2026-11-20T08:30 (UTC)") from None
    return at
