"""STIX patterns (STIX 2.1, part 9) that are nothing but comparisons with constants, joined by OR: their values.

``path = 'x'``, ``path IN ('x', …)`` and, of addresses, ``path ISSUBSET 'network'``, in one observation or in several
that are joined by OR. Everything else says more than a value, so that a lookup would match what the pattern does not:
such a pattern is refused with the operator as the reason. Time is linear in the pattern; nothing recurses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vedette.region.feeds.values import Refused

MAX_PATTERN = 1 << 16
PATHS = {
    "ipv4-addr:value": "ip",
    "ipv6-addr:value": "ip",
    "network-traffic:src_ref.value": "ip",
    "network-traffic:dst_ref.value": "ip",
    "domain-name:value": "domain",
    "url:value": "url",
    "email-addr:value": "email",
    "email-message:from_ref.value": "email",
    "email-message:sender_ref.value": "email",
    "file:hashes.md5": "md5",
    "file:hashes.sha1": "sha1",
    "file:hashes.sha256": "sha256",
    "file:hashes.sha512": "sha512",
}
"""Of object paths, in lower case and without quotes and strokes in names of hashes, the kind of indicator."""
BEYOND = ("AND", "FOLLOWEDBY", "WITHIN", "REPEATS", "START", "STOP", "NOT", "LIKE", "MATCHES", "ISSUPERSET", "EXISTS",
          "!=", "<>", "<=", ">=", "<", ">")  # fmt: skip
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^'\\]|\\.)*')
    |(?P<path>[A-Za-z0-9_-]+:[A-Za-z0-9_-]+(?:\.(?:[A-Za-z0-9_-]+|'[^'\\]*'|"[^"\\]*")|\[(?:\*|\d+)\])*)
    |(?P<sign>!=|<>|<=|>=|[=<>\[\](),])
    |(?P<word>[A-Za-z_]+(?=[\s\[\]()'=]|$))
    |(?P<other>[thb]'[^']*'|[+-]?\d[\d.]*))""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def compared(pattern: str) -> list[tuple[str, str]]:
    """Object paths and texts, in the pattern's order. Raises Refused."""
    if len(pattern) > MAX_PATTERN:
        raise Refused(f"a pattern of more than {MAX_PATTERN} characters")
    tokens = list(_tokens(pattern))
    for kind, text in tokens:
        if (sign := text.upper()) in BEYOND and kind != "text":
            raise Refused(f"a pattern with {sign}")
    return _Reader(tokens).read()


def kind_of(path: str) -> str | None:
    kind, colon, rest = path.partition(":")
    if kind.lower() == "file":
        rest = re.sub("['\"-]", "", rest)
    return PATHS.get(f"{kind}{colon}{rest}".lower())


def _tokens(pattern: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(pattern.rstrip())
    while at < end:
        match = _TOKEN.match(pattern, at)
        if match is None or match.lastgroup is None:
            raise Refused("not a STIX pattern")
        yield match.lastgroup, match[match.lastgroup]
        at = match.end()


class _Reader:
    """Operands joined by OR, in parentheses inside and outside of one level of brackets."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens, self._at = tokens, 0
        self._comparisons: list[tuple[str, str]] = []

    def read(self) -> list[tuple[str, str]]:
        opened: list[str] = []
        operand = False  # whether one has just ended
        while self._at < len(self._tokens):
            kind, text = self._next()
            if not operand and text in ("(", "[") and (text == "(" or "[" not in opened):
                opened.append(text)
            elif not operand and kind == "path" and "[" in opened:
                self._comparison(text)
                operand = True
            elif operand and text == "OR" and kind == "word":
                operand = False
            elif operand and opened and text == {"(": ")", "[": "]"}[opened[-1]]:
                opened.pop()
            else:
                raise Refused("not a STIX pattern")
        if opened or not operand:
            raise Refused("not a STIX pattern")
        return self._comparisons

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise Refused("not a STIX pattern")
        self._at += 1
        return self._tokens[self._at - 1]

    def _comparison(self, path: str) -> None:
        _, sign = self._next()
        if sign == "IN":
            if self._next()[1] != "(":
                raise Refused("not a STIX pattern")
            after = ","
            while after == ",":
                self._constant(path)
                after = self._next()[1]
            if after != ")":
                raise Refused("not a STIX pattern")
        elif sign == "=" or (sign == "ISSUBSET" and kind_of(path) == "ip"):
            self._constant(path)
        else:
            raise Refused("not a STIX pattern")

    def _constant(self, path: str) -> None:
        kind, text = self._next()
        if kind != "text":
            raise Refused("a pattern with a constant that is no text" if kind == "other" else "not a STIX pattern")
        self._comparisons.append((path, _ESCAPE.sub(r"\1", text[1:-1])))
