"""Which fields decoders give: one table of all formats, and what the prefilter, lint and the docs read from it.

A row is a layer of an event (header, JSON, pairs …), one of the ``formats``, or a program. It names the fields that it
gives under names of its own and how their values stand in the event (``formats/base.py``); a name that no row gives of
its own stands in every event that has the field. A field that is known under several names (``aliases.py``) is as weak
as the weakest of them. Tests hold every decoder against its row.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from vedette.decode import access, cisco, peers, syslog
from vedette.decode.aliases import ALIASES
from vedette.decode.codecs import CODECS, Kind
from vedette.decode.formats.base import Field, Gives, Provenance, named, renamed
from vedette.decode.formats.table import FORMATS, SHAPES
from vedette.decode.programs import PROGRAMS

JOURNAL: Mapping[str, str] = {
    "MESSAGE": "message",
    "SYSLOG_IDENTIFIER": "program",
    "_HOSTNAME": "hostname",
    "_PID": "pid",
}
"""systemd's journal as JSON: the generic names of its fields."""

MAX_LEVELS = 32
"""Levels of an MQTT topic that are fields of their own."""

LAYERS: Mapping[str, Gives] = MappingProxyType(
    {
        "transport": Gives("a sender that the input knows", named(["peer"], Provenance.SYNTHETIC)),
        "mqtt": Gives(
            "an MQTT input",
            named(["topic", "topic_levels", "topic_level_<n>"], Provenance.SYNTHETIC),
            Provenance.ESCAPED,
        ),
        "kafka": Gives(
            "a Kafka input",
            named(["kafka.topic", "kafka.partition", "kafka.key", "kafka.headers.<name>"], Provenance.SYNTHETIC),
        ),
        "message": Gives("every text", named(["message"])),
        "header": syslog.GIVES,
        "cisco": cisco.GIVES,
        "json": Gives("`{`, also as syslog message and behind `@cee:`", named(["value"]), Provenance.ESCAPED),
        "journal": Gives("a JSON object with `MESSAGE`", renamed(JOURNAL), Provenance.ESCAPED),
        "access": access.GIVES,
        "pairs": Gives("`key=value`", any=Provenance.VERBATIM),
        "peers": Gives("the words before an address", named(peers.FIELDS)),
    }
)

TABLE: Mapping[str, Gives] = MappingProxyType(
    {
        **LAYERS,
        **{row.name: row.gives for row in FORMATS.values()},
        **{row.name: row.gives for row in SHAPES.values()},
        **{f"program {name}": row.gives for name, row in PROGRAMS.items()},
    }
)

_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    Kind.SYSLOG: ("header", "json"),
    Kind.JSON: ("json",),
    Kind.ACCESS: ("access",),
    Kind.MQTT: ("mqtt",),
    Kind.TEXT: (),
    Kind.DAEMON: (),
}
"""Layers that an event of each kind may have beside its message. With JSON any other."""


@lru_cache(maxsize=256)
def can_give_any(codec: str) -> bool:
    """Whether an event of ``codec`` can have a field of any name."""
    return any(row.any is not None for row in _rows(codec))


@lru_cache(maxsize=65536)
def can_give(codec: str, field: str) -> bool:
    """Whether an event of ``codec`` can have ``field``."""
    names = {field, *ALIASES.get(field, ())}
    return can_give_any(codec) or any(entry.name in names for row in _rows(codec) for entry in row.fields)


def _rows(codec: str) -> list[Gives]:
    program = CODECS[codec].program
    layers = {"message", "transport"}.union(*map(_OF_KIND.__getitem__, CODECS[codec].kinds))
    return [*(LAYERS[name] for name in layers), *([PROGRAMS[program].gives] if program else ())]


_BY_NAME: dict[str, list[Field]] = {}
for _row in dict.fromkeys(TABLE.values()):
    for _field in _row.fields:
        _BY_NAME.setdefault(_field.name, []).append(_field)

_HEADER = "kafka.headers."
_NUMBER = re.compile(r"\d{1,4}\Z")


def declared(name: str) -> list[Field]:
    """Return the rows' entries of the field of exactly this name."""
    rows = _BY_NAME.get(name, []) + _BY_NAME.get(_NUMBER.sub("<n>", name), [])
    return rows + _BY_NAME[_HEADER + "<name>"] if name.startswith(_HEADER) else rows


def _of_all_names(field: str) -> list[Field]:
    return [row for name in (field, *ALIASES.get(field, ())) for row in declared(name)]


def is_synthetic(field: str) -> bool:
    """Whether the agent may make the field of this name."""
    return any(row.how is Provenance.SYNTHETIC for row in declared(field))


@lru_cache(maxsize=65536)
def provenance(field: str) -> Provenance:
    """The weakest provenance of ``field`` over all decoders (JSON may give any field)."""
    synthetic = any(row.how is Provenance.SYNTHETIC for row in _of_all_names(field))
    return Provenance.SYNTHETIC if synthetic else Provenance.ESCAPED


def is_made(field: str, text: str) -> bool:
    """Whether a synthetic value of ``field`` may hold ``text``, in whatever case."""
    folded = text.casefold()
    return any(
        row.values is None or any(folded in value for value in row.values)
        for row in _of_all_names(field)
        if row.how is Provenance.SYNTHETIC
    )


@lru_cache(maxsize=65536)
def guards(field: str) -> tuple[bytes, ...]:
    """Regular expressions (matched without regard to case): an event holds one where ``field`` is transformed.

    ``field`` empty: those of the texts that a keyword searches.
    """
    if not field:
        patterns = sorted({row.guard for rows in _BY_NAME.values() for row in rows if row.guard})
        return (b"(?:" + b"|".join(patterns) + b")",)
    return tuple(sorted({row.guard for row in _of_all_names(field) if row.guard}))


@lru_cache(maxsize=65536)
def stands_as(field: str) -> frozenset[str] | None:
    """The names of which one is in the raw bytes of every event that has ``field``; None when that cannot be said.

    A dotted name may be a path: then each of its parts stands there.
    """
    rows = _of_all_names(field)
    if not field or any(not row.of or row.how is Provenance.SYNTHETIC for row in rows):
        return None
    names = {field, *ALIASES.get(field, ())}.union(*(row.of for row in rows))
    return frozenset(name for name in names if not name.endswith("<n>"))


def digest(fields: Iterable[str]) -> str:
    """Return a digest of what is declared of ``fields``: a plan's literals hold where it is the same."""

    def of(field: str) -> list[tuple[str, tuple[str, ...], str, bytes, list[str]]]:
        return sorted(
            (row.name, row.of, row.how.value, row.guard, sorted(row.values or ("", ""))) for row in _of_all_names(field)
        )

    said = [(field, of(field)) for field in sorted(set(fields))]
    return hashlib.blake2b(repr(said).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
