"""Grok: ``%{NAME}`` and ``%{NAME:field}`` in a pattern, by a table of patterns that have names.

The names are those that Logstash and Elastic made common; the patterns are this file's own, each linear in the text: a
run that may be long is possessive or ends at a character that it does not hold. A format adds its own (``patterns``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

MAX_PATTERN = 16 << 10
"""Characters of a pattern with all that it names in it."""
MAX_DEPTH = 16
_NAMED = re.compile(r"%\{(\w+)(?::([^:}]+))?(?::([^}]*))?\}")

_IPV4 = r"(?:\d{1,3}\.){3}\d{1,3}"
_IPV6 = r"(?=[0-9A-Fa-f.]*:)[0-9A-Fa-f:.]{2,45}(?:%[\w.-]{1,32})?"
_HOST = r"[\w](?:[\w.-]{0,253}\w)?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"

PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "WORD": r"\b\w++\b",
        "NOTSPACE": r"\S++",
        "SPACE": r"\s*+",
        "DATA": r".*?",
        "GREEDYDATA": r".*",
        "INT": r"[+-]?\d++",
        "POSINT": r"[1-9]\d*+",
        "NONNEGINT": r"\d++",
        "NUMBER": r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)",
        "BASE16NUM": r"(?:0[xX])?[0-9A-Fa-f]++",
        "PORT": r"\d{1,5}",
        "IPV4": _IPV4,
        "IPV6": _IPV6,
        "IP": rf"(?:{_IPV4}|{_IPV6})",
        "HOSTNAME": _HOST,
        "HOST": _HOST,
        "IPORHOST": rf"(?:{_IPV6}|{_HOST})",
        "HOSTPORT": rf"(?:{_IPV4}|{_HOST}):\d{{1,5}}",
        "MAC": r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}|(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}",
        "UUID": r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
        "USER": r"[\w.@$\\-]++",
        "USERNAME": r"[\w.@$\\-]++",
        "EMAILADDRESS": r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[\w.-]{1,253}",
        "PATH": r"(?:[A-Za-z]:\\|\\\\|/)[^\s\"'<>|]*+",
        "URI": r"[A-Za-z][A-Za-z0-9+.-]{0,31}://[^\s\"'<>]*+",
        "URIPATH": r"/[^\s?#\"'<>]*+",
        "QUOTEDSTRING": r"\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+'",
        "QS": r"\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+'",
        "LOGLEVEL": r"(?i:trace|debug|info(?:rmation)?|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|alert|fatal|emerg)",
        "MONTH": _MONTH,
        "MONTHDAY": r"\d{1,2}",
        "YEAR": r"\d{4}",
        "TIME": _CLOCK,
        "SYSLOGTIMESTAMP": rf"{_MONTH} +\d{{1,2}} {_CLOCK}",
        "TIMESTAMP_ISO8601": rf"\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK} ?(?:Z|[+-]\d{{2}}:?\d{{2}})?",
        "HTTPDATE": rf"\d{{1,2}}/{_MONTH}/\d{{4}}:{_CLOCK} [+-]\d{{4}}",
        "DATE_EU": r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}",
        "DATE_US": r"\d{1,2}[/-]\d{1,2}[/-]\d{2,4}",
    }
)


def expanded(pattern: str, own: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """``pattern`` as a regular expression, and by its groups' names the fields. Raises ValueError."""
    groups: dict[str, str] = {}

    def of(text: str, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise ValueError(f"patterns name each other more than {MAX_DEPTH} deep")

        def expand(match: re.Match[str]) -> str:
            name, field, kind = match.groups()
            if kind is not None:
                raise ValueError(f"{match[0]}: values are texts: leave out :{kind}")
            below = own.get(name, PATTERNS.get(name))
            if below is None:
                raise ValueError(f"{match[0]}: there is no pattern {name}")
            inner = of(below, depth + 1)
            if field is None:
                return f"(?:{inner})"
            group = f"_g{len(groups)}"
            groups[group] = field
            return f"(?P<{group}>{inner})"

        whole = _NAMED.sub(expand, text)
        if len(whole) > MAX_PATTERN:
            raise ValueError(f"longer than {MAX_PATTERN} characters with all that it names")
        return whole

    return of(pattern, 0), groups
