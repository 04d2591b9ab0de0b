"""A search as a Hyperscan pattern, and which of its hits count.

Vectorscan 5.4.12 can miss a match that ends at the very last byte of what it scans (VectorCamp/vectorscan, issue 358).
So no value is scanned bare: ``PAD`` follows it, and an end anchor is written as the first newline of the pad. A hit
counts by where it ends (``End``). The same holds for any library, so nothing depends on its version.

``regex`` is the second engine: for patterns that Hyperscan does not take, and where a hit may be one of the pad.
"""

from __future__ import annotations

import enum
import re
from typing import Any, NamedTuple

from vedette.plan.database import CASELESS, DOTALL, MAY_BE_EMPTY, MULTILINE, ONCE, UTF8, Pattern, literal
from vedette.plan.ir import ANY, STAR, Op, Predicate
from vedette.plan.limits import REGEX_TOKEN

PAD = b"\n\n"
"""What follows a value in a scan: one newline for an end anchor, one that no pattern needs."""


class End(enum.Enum):
    """Which hits of a pattern count, by where they end."""

    WITHIN = "not behind the value's end"
    AT_END = "one newline behind it"
    AT_LINE_END = "one newline behind it, or behind the value's own last newline"
    PERHAPS = "anywhere, if the second engine finds the pattern too"


class Search(NamedTuple):
    pattern: Pattern
    end: End


def counts(end: End, to: int, value: bytes) -> bool:
    """True when a hit that ends at ``to`` in ``value + PAD`` is for sure one in ``value``.

    Of a pattern that is reported once, the library may report a hit that reaches into the pad although one within the
    value is there: so what does not count of ``WITHIN`` and ``PERHAPS`` is for the second engine to say.
    """
    size = len(value)
    if end is End.AT_END:
        return to == size + 1
    if end is End.AT_LINE_END:
        return to == size + 1 or (to == size and value.endswith(b"\n"))
    return end is End.WITHIN and to <= size


def search(p: Predicate) -> Search:
    """The search of a predicate over the UTF-8 of a folded (or, when ``cased``, plain) text.

    Raises ValueError for a regular expression that cannot be rewritten.
    """
    if p.op is Op.REGEX:
        return _regex(str(p.value), p.option)
    if p.op is Op.GLOB and isinstance(p.value, tuple):
        # A run of characters at either end needs no pattern, only no anchor.
        parts = [b".*" if v == STAR else b"." if v == ANY else literal(v.encode()) for v in p.value]
        head, at_end = b"^", True
        if parts[0] == b".*":
            head, parts = b"", parts[1:]
        if not parts or parts[-1] == b".*":
            at_end, parts = False, parts[:-1]
        return _ended(head + b"".join(parts), UTF8 | DOTALL | MAY_BE_EMPTY, at_end)
    head = b"^" if p.op is Op.PREFIX else b""
    return _ended(head + literal(str(p.value).encode()), DOTALL | MAY_BE_EMPTY, p.op is Op.SUFFIX)


def _ended(expression: bytes, flags: int, at_end: bool) -> Search:
    if at_end:  # every hit is needed: earlier newlines are not the end
        return Search(Pattern(expression + rb"\n", flags), End.AT_END)
    return Search(Pattern(expression, flags | ONCE), End.WITHIN)


_LEADING_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_END_ANCHORS = ("$", r"\z", r"\Z")


def _regex(source: str, option: str) -> Search:
    flags = UTF8 | MAY_BE_EMPTY
    for flag in option:
        flags |= {"i": CASELESS, "m": MULTILINE, "s": DOTALL}[flag]
    tokens = [token[0] for token in REGEX_TOKEN.finditer(source)]
    if r"\Q" in tokens:
        raise ValueError(r"quoting by \Q is not supported: escape the characters")
    leading = _LEADING_FLAGS.match(source)
    multiline = "m" in option or re.search(r"\(\?[a-zA-Z]*m", source) is not None
    anchors = [i for i, token in enumerate(tokens) if token in _END_ANCHORS]
    if not anchors and not (multiline and "^" in tokens):
        return Search(Pattern(_ascii(source), flags | ONCE), End.WITHIN)
    if anchors == [len(tokens) - 1] and not multiline and not _alternates(tokens):
        body = _ascii("".join(tokens[:-1]))
        return Search(Pattern(body + rb"\n", flags), End.AT_END if tokens[-1] == r"\z" else End.AT_LINE_END)
    if re.search(r"\(\?[a-zA-Z]+\)", source[leading.end() :] if leading else source):
        raise ValueError("flags in the middle of a pattern with anchors are not supported: use the modifiers i, m, s")
    body = _ascii("".join("(?:)" if token in _END_ANCHORS else token for token in tokens))
    return Search(Pattern(body, flags | ONCE), End.PERHAPS)


def _ascii(source: str) -> bytes:
    """``source`` with other characters as escapes: Hyperscan 5.4.11 calls each expression with one bad UTF-8."""
    return _OTHER.sub(lambda match: match[1] or f"\\x{{{ord(match[2]):x}}}", source).encode()


_OTHER = re.compile(r"(\\[\x00-\x7f])|\\?([^\x00-\x7f])", re.DOTALL)


def _alternates(tokens: list[str]) -> bool:
    """True when a ``|`` stands outside all parentheses."""
    depth = 0
    for token in tokens:
        if token == "|" and depth == 0:
            return True
        depth += (token == "(") - (token == ")")
    return False


def fallback(source: str, flags: str) -> Any:
    """A Sigma regex compiled by the second engine; raises ValueError when it cannot read it.

    Anchors get PCRE's meaning. Without regard to case it folds ASCII only when the pattern has classes, which are
    ASCII's.
    """
    import regex  # 3 MiB, which few rule sets need

    from vedette.decode.bounded import compiled

    leading = _LEADING_FLAGS.match(source)
    if leading:
        flags += leading[1]

    def as_pcre(token: re.Match[str]) -> str:
        match token[0]:
            case r"\z":
                return r"\Z"
            case r"\Z":
                return r"(?=\n?\Z)"
            case "^" if "m" in flags:
                return r"(?:\A|(?<=\n)(?!\Z))"
        return token[0]

    number = regex.VERSION0
    for flag in flags:
        number |= {"i": regex.IGNORECASE, "m": regex.MULTILINE, "s": regex.DOTALL}.get(flag, 0)
    if "i" not in flags or re.search(r"\\[wWdDsSbB]|\[:", source):
        number |= regex.ASCII
    try:
        return compiled(REGEX_TOKEN.sub(as_pcre, source), number)
    except ValueError as error:
        raise ValueError(f"the regular expression cannot be read: {error}") from error
