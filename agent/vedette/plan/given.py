"""What formats that are no rows of the decoders' tables (declared ones, plugins') mean for literals.

The tables say which names of fields need not stand in an event, and what is made (``decode/fields.py``). A further
format gives its fields under names of its own, too, and some synthetic. So where one gives the field of a predicate,
literals are chosen as if the predicate were about the event as a whole: its value stands there, under whatever name;
of a synthetic field nothing does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from vedette.decode.aliases import ALIASES
from vedette.decode.codecs import Codec
from vedette.decode.fields import provenance
from vedette.decode.provenance import Provenance
from vedette.plan.ir import FIELD_OPS, KEYWORDS, Op, Predicate

_NOTHING = Predicate(KEYWORDS, Op.NULL)
"""No literal is taken of it, nor of its negation."""


def given_by(codecs: Iterable[Codec]) -> dict[str, bool]:
    """The fields that formats of their own give, and whether one of these makes it."""
    found: dict[str, bool] = {}
    for codec in codecs:
        for field in codec.row.gives.fields if codec.row is not None else ():
            found[field.name] = found.get(field.name, False) or field.how is Provenance.SYNTHETIC
    return found


def _of(field: str, given: Mapping[str, bool]) -> bool | None:
    """Whether ``field`` may be one that is made; None: it is none of ``given``."""
    found = [given[name] for name in (field, *ALIASES.get(field, ())) if name in given]
    return any(found) if found else None


def sought(predicates: tuple[Predicate, ...], given: Mapping[str, bool]) -> tuple[Predicate, ...]:
    """``predicates`` as literals are to be chosen for them."""
    return tuple(_sought(one, given) for one in predicates) if given else predicates


def _sought(predicate: Predicate, given: Mapping[str, bool]) -> Predicate:
    made = _of(predicate.field, given)
    if made or (made is not None and provenance(predicate.field) is Provenance.SYNTHETIC):
        return _NOTHING
    if predicate.op in FIELD_OPS and _of(str(predicate.value), given) is not None:
        predicate = predicate._replace(value=KEYWORDS)
    return predicate if made is None else predicate._replace(field=KEYWORDS)


def digest(fields: Iterable[str], given: Mapping[str, bool]) -> str:
    """Of what ``given`` says of ``fields``; empty when that is nothing."""
    said = [(field, made) for field in sorted(set(fields)) if (made := _of(field, given)) is not None]
    return f"+{hashlib.blake2b(repr(said).encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}" if said else ""
