"""How a field's value stands in the raw bytes of its event: what the prefilter's soundness hangs on.

A rule's literal is searched in the raw bytes of events. So for every field that any decoder gives, one of these holds:

* the value stands there as it is, or under escapes that the search tolerates (``Provenance``);
* it may be **transformed** (hex in audit records); then every event in which it is, holds the field's guard, a regular
  expression (``guards``), and is a candidate of every rule that tests the field;
* it is **synthetic**, made by the agent: no literal is taken from it, unless the agent never makes that value
  (``MADE``): an event in which it is has it of its own.

A field that is known under several names (``aliases.py``) is as weak as the weakest of them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from functools import lru_cache

from vedette.decode.aliases import ALIASES
from vedette.decode.formats import auditd
from vedette.decode.syslog import FACILITIES, SEVERITIES


class Provenance(enum.Enum):
    """How a field's value stands in the raw bytes of its event."""

    VERBATIM = "verbatim"
    """As it is (but for U+FFFD in place of invalid UTF-8)."""
    ESCAPED_JSON = "escaped_json"
    """Verbatim, or escaped: as a JSON text or number; with a backslash before ``"`` ``\\`` ``]`` (RFC 5424) or ``|``
    ``=`` (CEF); with XML's entities."""
    SYNTHETIC = "synthetic"
    """Perhaps not at all."""


_SYNTHETIC = frozenset({"topic", "topic_levels", "peer", "priority", "facility", "severity", "version", "SYSCALL"})
MADE: Mapping[str, frozenset[str]] = {
    "severity": frozenset(SEVERITIES),
    "facility": frozenset(FACILITIES),
    "priority": frozenset(map(str, range(192))),
    "version": frozenset(map(str, range(1, 1000))),
}
"""All that the agent makes, of a syslog header, where documents have fields of the same names."""
_PLAIN_CODECS = frozenset({"text", "access", "apache_error", "nginx_error", "leef"})


def is_synthetic(field: str) -> bool:
    """Whether the agent makes this field."""
    head = field.partition(".")[0]
    return head in _SYNTHETIC or head.startswith("topic_level_")


def is_made(field: str, text: str) -> bool:
    """Whether a synthetic value of ``field`` may hold ``text``, in whatever case."""
    folded = text.casefold()
    for name in (field, *ALIASES.get(field, ())):
        if is_synthetic(name) and (name not in MADE or any(folded in made for made in MADE[name])):
            return True
    return False


@lru_cache(maxsize=65536)
def provenance(field: str, codec: str = "auto") -> Provenance:
    """The weakest provenance of ``field`` over all decoders that a ``codec`` can lead to (JSON may give any field)."""
    if any(is_synthetic(name) for name in (field, *ALIASES.get(field, ()))):
        return Provenance.SYNTHETIC
    return Provenance.VERBATIM if codec in _PLAIN_CODECS else Provenance.ESCAPED_JSON


@lru_cache(maxsize=65536)
def guards(field: str) -> tuple[bytes, ...]:
    """Regular expressions (matched without regard to case): an event holds one where ``field`` is transformed.

    ``field`` empty: those of the texts that a keyword searches.
    """
    if not field:
        return (auditd.KEYWORD_GUARD,)
    found = {auditd.GUARDS[name] for name in (field, *ALIASES.get(field, ())) if name in auditd.GUARDS}
    if auditd.is_argument(field):
        found.add(auditd.ARGUMENT_GUARD)
    return tuple(sorted(found))
