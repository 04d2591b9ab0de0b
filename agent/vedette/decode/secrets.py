"""Secrets, by how they look: the table of patterns that ``[[redact]]`` can name.

A row has an expression, the literals of which a text needs one, and what tells a hit from a number that only looks like
one: the check digits of a card (ISO/IEC 7812-1, Annex B) and of an IBAN (ISO 13616). Where an expression has a group
``secret``, that is what is meant, not the words around it. ``named`` are fields whose whole value is such a secret.
Addresses in a network are no secret everywhere, so each row is asked for by its name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import regex

from vedette.decode import bounded
from vedette.decode.entities import OCTET

Spans = Iterator[tuple[int, int]]


class Pattern(NamedTuple):
    """``spans``: of a match those parts that are meant; None: all of it, or its group ``secret``."""

    about: str
    expression: str
    needs: tuple[str, ...] = ()
    """One of them stands in every text that it matches, in lower case; empty: not known."""
    spans: Callable[[regex.Match[str]], Spans] | None = None
    named: re.Pattern[str] | None = None


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        number = int(digit) * (1 + place % 2)
        total += number - 9 if number > 9 else number
    return total % 10 == 0


def _cards(match: regex.Match[str]) -> Spans:
    """A run of digits may hold other numbers before and behind the card's, apart by a blank or a hyphen."""
    groups = list(re.finditer("[0-9]+", match[0]))
    done = -1
    for i, first in enumerate(groups):
        if i <= done or first[0][0] not in "23456":
            continue
        digits = ""
        best = -1
        for j in range(i, len(groups)):
            digits += groups[j][0]
            if len(digits) > 19:
                break
            if len(digits) >= 13 and _luhn(digits):
                best = j
        if best >= 0:
            done = best
            yield match.start() + first.start(), match.start() + groups[best].end()


def _ibans(match: regex.Match[str]) -> Spans:
    """Words may follow it."""
    parts = match[0].split(" ")
    for number in range(len(parts), 0, -1):
        text = " ".join(parts[:number])
        bare = text.replace(" ", "").upper()
        if 15 <= len(bare) <= 34 and int("".join(str(int(c, 36)) for c in bare[4:] + bare[:4])) % 97 == 1:
            yield match.start(), match.start() + len(text)
            return


def _ipv6(match: regex.Match[str]) -> Spans:
    text = match[0].rstrip(".")
    for end in (len(text), len(text) - 1):  # a colon may follow it
        try:
            ipaddress.IPv6Address(text[:end])
        except ValueError:
            continue
        yield match.start(), match.start() + end
        return


def _basic(match: regex.Match[str]) -> Spans:
    """Not "basic authentication"."""
    secret = match["secret"]
    if any(c.isdigit() or c == "=" for c in secret) or not (secret.islower() or secret.istitle()):
        yield match.span("secret")


def _phones(match: regex.Match[str]) -> Spans:
    if 8 <= sum(c.isdigit() for c in match[0]) <= 15:
        yield match.span()


_WORDS = (
    r"password|passwd|passphrase|passcode|(?<![A-Za-z])pass|secret|credentials?|token"
    r"|(?:api|access|private|auth)[_-]?key"
)
_DIRECTORY = r"[\"']?\s{0,4}[=:]\s{0,4}[\"']?/"
_GIVEN = rf"(?:{_WORDS}|(?<![A-Za-z])pwd(?!{_DIRECTORY}))"
"""``pwd`` is a directory as often."""

_BARE = r"(?:[^\s\"'&,;<>]|(?<=\\)[ ]|[\"'<](?=\w)|[&,;](?=[^\s&,;])(?![\w.@-]{1,40}[\"'`]?\s?[=:]))"
"""A sign of a value without quotes: in doubt it goes on, but not over the next name."""

PATTERNS: Mapping[str, Pattern] = {
    "card": Pattern(
        "card numbers of 13 to 19 digits, also in groups, whose check digit is right",
        r"(?<![0-9A-Za-z.])[0-9](?:[ -]?[0-9]){12,}(?![0-9A-Za-z])",
        spans=_cards,
    ),
    "iban": Pattern(
        "IBANs whose check digits are right",
        r"(?i)(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?![A-Za-z0-9])",
        spans=_ibans,
    ),
    "email": Pattern(
        "e-mail addresses",
        r"(?<![\w.%+'-])[\w.%+'-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,63}",
        ("@",),
    ),
    "ipv4": Pattern(
        "IPv4 addresses",
        rf"(?<![0-9.])(?:{OCTET}\.){{3}}{OCTET}(?![0-9]|\.[0-9])",
        (".",),
    ),
    "ipv6": Pattern(
        "IPv6 addresses",
        r"(?<![0-9A-Za-z:.])[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]{1,45}(?![0-9A-Za-z])",
        (":",),
        _ipv6,
    ),
    "phone": Pattern(
        "telephone numbers written with + and the country, or as (555) 123-4567",
        r"(?<![\w+])\+[1-9](?:[ ()./-]{0,2}[0-9]){7,14}(?![0-9])|\([0-9]{3}\) ?[0-9]{3}-[0-9]{4}(?![0-9])",
        ("+", "("),
        _phones,
    ),
    "password": Pattern(
        "what follows password=, secret:, token= and their like, passwords in URLs, and fields of such names",
        rf"(?i)(?:{_GIVEN}[\"'`]?\s{{0,4}}(?:=>|[=:])\s{{0,4}}"
        rf"|(?<![\w-])--?(?:[a-z]{{1,20}}[_-]){{0,4}}{_GIVEN}[ \t]{{1,4}})"
        rf"(?:\"(?P<secret>(?:[^\"\\]|\\.)+(?:\"(?=\w){_BARE}+)?)|'(?P<secret>(?:[^'\\]|\\.)+(?:'(?=\w){_BARE}+)?)"
        rf"|(?P<secret>{_BARE}+))"
        r"|(?<=://)[^/\s:\"<>]*:(?P<secret>(?:[^/\s\"<>]|\"(?=\w))+)(?=@)",
        ("pass", "pwd", "secret", "credential", "key", "token", "://"),
        named=re.compile(rf"(?i).*(?:{_WORDS})"),
    ),
    "bearer": Pattern(
        "credentials of HTTP's Authorization, bearer and basic",
        r"(?i)(?<![A-Za-z])(?:bearer|basic)\s+(?P<secret>[A-Za-z0-9._~+/=-]{8,})",
        ("bearer", "basic"),
        _basic,
    ),
    "aws": Pattern(
        "ids and secrets of AWS access keys",
        r"(?<![A-Za-z0-9])(?P<secret>(?:AKIA|ASIA|AIDA|AROA|AGPA|ANPA|ANVA|ABIA|ACCA)[A-Z0-9]{16})(?![A-Za-z0-9])"
        r"|(?i:secret_?(?:access_?)?key)[\"']?\s{0,4}[=:]\s{0,4}[\"']?(?P<secret>[A-Za-z0-9/+=]{40})(?![A-Za-z0-9/+=])",
        ("a", "secret"),
    ),
    "token": Pattern(
        "API tokens of GitHub, GitLab, Slack, Stripe, Google, npm, OpenAI",
        r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,}"
        r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|AIza[A-Za-z0-9_-]{35}"
        r"|npm_[A-Za-z0-9]{36}|sk-[A-Za-z0-9_-]{20,})",
        ("gh", "glpat-", "xox", "k_", "aiza", "npm_", "sk-"),
    ),
    "jwt": Pattern(
        "JSON Web Tokens",
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{2,}\.[A-Za-z0-9_-]*",
        ("eyj",),
    ),
    "private_key": Pattern(
        "private keys in PEM, also where their end is cut off",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?s:.)*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)",
        ("private key",),
    ),
}


class Compiled(NamedTuple):
    """A pattern of the table, or an expression of the owner's, ready for texts."""

    expression: regex.Pattern[str]
    needs: tuple[str, ...] = ()
    spans: Callable[[regex.Match[str]], Spans] | None = None

    def of(self, text: str, lowered: str, seconds: float) -> list[tuple[int, int]]:
        """Return the spans of ``text`` that are meant. Raises TimeoutError."""
        if self.needs and not any(map(lowered.__contains__, self.needs)):
            return []
        spans = list[tuple[int, int]]()
        secret = "secret" in self.expression.groupindex
        for match in self.expression.finditer(text, timeout=seconds):
            if self.spans is not None:
                spans += self.spans(match)
            elif secret and match.start("secret") >= 0:
                spans.append(match.span("secret"))
            else:
                spans.append(match.span())
        return [(start, end) for start, end in spans if start < end]


def named(name: str) -> Compiled:
    """The pattern of the table; raises KeyError."""
    row = PATTERNS[name]
    return Compiled(regex.compile(row.expression), row.needs, row.spans)


def written(expression: str) -> Compiled:
    """An owner's expression; raises ValueError for one that is no regular expression."""
    try:
        return Compiled(bounded.compiled(expression))
    except ValueError as error:
        raise ValueError(f"not a regular expression: {error}") from None
