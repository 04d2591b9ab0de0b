"""What ``[[redact]]`` hides from parts of the same configuration that need it: local response, and sinks whose form
names it. Pure; ``vedette check`` warns of it.

Whether a value is hidden is found by redacting an example of it, so that fields, kinds, patterns and expressions count
alike. A field that is hidden hides what is read from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from vedette.config.redact import rules
from vedette.config.settings import Config
from vedette.decode import entities
from vedette.decode.aliases import ALIASES
from vedette.decode.redact import DROP, MASK, Redaction, Shown

ADDRESSES = ("203.0.113.7", "2001:db8::7")
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "ip": ADDRESSES,
    "user": ("alice",),
    "host": ("web1.example.org",),
    "hash": ("9f86d081884c7d659a2feaa0c55ad015",),
    "domain": ("example.org",),
    "url": ("https://example.org/a",),
    "user_agent": ("Mozilla/5.0 (X11; Linux)",),
    "device": ("sensor-1",),
}
"""By kind of entity what one may be (addresses and names of RFC 5737, 3849 and 2606)."""


def warnings(config: Config) -> Iterator[str]:
    """One line each."""
    if not config.redact:
        return
    redaction = Redaction(rules(config))
    if config.response.enabled:
        for i, block in enumerate(config.response.block):
            if block.field:
                if (action := _field(redaction, block.field, ADDRESSES)) is not None:
                    what = f"{block.field} is redacted ({action})"
                    yield f"response.block[{i}].field: {what}: none of its addresses is blocked"
            elif entity := _entity(redaction, "ip"):
                yield f"response.block[{i}]: {entity} is redacted: no such address is blocked"
    for sink in config.sink:
        hidden = [entity for kind in sink.names if (entity := _entity(redaction, kind))]
        if hidden:
            yield f"sink {sink.name}: its form names what is redacted: {', '.join(hidden)}"


def _field(redaction: Redaction, name: str, examples: Iterable[str]) -> str | None:
    """What is done with the value of a field; None: nothing."""
    if (action := redaction.action(name)) is not None:
        return action
    for text in examples:
        case = redaction.case(text, {name: text}, shown=Shown({name: text}))
        if (left := case.field(name, text)) != text:
            return DROP if left is None else MASK
    return None


def _entity(redaction: Redaction, kind: str) -> str:
    """The kind and what is done with its entities, or the fields that hide some of them; empty: nothing."""
    if (action := redaction.kind(kind)) is not None:
        return f"{kind} ({action})"
    for text in EXAMPLES[kind]:
        if redaction.case(text, {}, shown=Shown(entities=((kind, text),))).entity(kind, text) != text:
            return f"{kind} ({MASK})"
    globs = [name.lower() for rule in redaction.rules for name in rule.fields]
    names = dict.fromkeys(
        (*globs, *(alias for alias in ALIASES if any(fnmatchcase(alias.lower(), glob) for glob in globs)))
    )
    of_kind = [name for name in names if entities.kind_of(name) == kind or (kind == "host" and name == "host")]
    return f"{kind} of {of_kind[0]} ({redaction.action(of_kind[0])})" if of_kind else ""
