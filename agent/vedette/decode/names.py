"""Under which names a field may stand in the raw bytes of its event: the prefilter's literals of last resort.

JSON, ``key=value`` pairs, CEF, LEEF, audit records, structured data and event XML give a field under the name that is
in the event. Decoders give others under names of their own, and each such name is a word in a decoder's code or tables.
So a name that no decoder holds as a word stands in every event that has the field, as itself or as one of its other
names (``aliases.py``, ``eventlog.AS_SYSMON``). That is told from the code, so that a new decoder cannot be forgotten.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from types import CodeType, FunctionType
from typing import Any

from vedette.decode import decoder as decode
from vedette.decode.aliases import ALIASES
from vedette.decode.formats import eventlog
from vedette.decode.provenance import is_synthetic, provenance

_OTHERS = frozenset({"aliases", "names", "provenance", "entities", "peers", "formats.eventlog"})
"""Modules that give no field a name, or whose names ``stands_as`` knows."""

_PREFIX = "vedette.decode."


def _words(thing: Any, seen: set[int]) -> Iterator[str]:
    """Every text in ``thing``: a value of a module, at any depth, and the constants of functions."""
    if isinstance(thing, str):
        yield thing
        return
    if id(thing) in seen:
        return
    seen.add(id(thing))
    inner: Any = ()
    if isinstance(thing, Mapping):
        inner = (*thing, *thing.values())
    elif isinstance(thing, (tuple, list, set, frozenset)):
        inner = tuple(thing)
    elif isinstance(thing, re.Pattern):
        inner = tuple(thing.groupindex)
    elif isinstance(thing, FunctionType):
        if thing.__module__.removeprefix(_PREFIX) in _OTHERS:  # a row of a decoder's table may hold such a function
            return
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        inner = (thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells)
    elif isinstance(thing, CodeType):
        inner = thing.co_consts
    elif isinstance(thing, type):
        inner = tuple(value for name, value in vars(thing).items() if name != "__doc__")
    elif isinstance(thing, property):
        inner = (thing.fget,)
    elif isinstance(thing, (staticmethod, classmethod)):
        inner = (thing.__func__,)
    elif isinstance(thing, partial):
        inner = (thing.func, thing.args, thing.keywords)
    elif isinstance(getattr(thing, "__wrapped__", None), FunctionType):
        inner = (thing.__wrapped__,)
    for item in inner:
        yield from _words(item, seen)


@cache
def _invented() -> frozenset[str]:
    """Every word of the decoders."""
    assert decode.CODECS  # whose import brings all of them
    found: set[str] = set()
    seen = {id(ALIASES), id(eventlog.AS_SYSMON)}  # imported by others; ``stands_as`` knows their names
    for name, module in list(sys.modules.items()):
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in _OTHERS:
            for key, value in vars(module).items():
                if not key.startswith("__") and not isinstance(value, type(sys)):
                    found.update(_words(value, seen))
    return frozenset(word for word in found if len(word) <= 128)


@lru_cache(maxsize=65536)
def stands_as(field: str) -> frozenset[str] | None:
    """The names of which one is in the raw bytes of every event that has ``field``; None when that cannot be said.

    A dotted name may be a path: then each of its parts stands there.
    """
    asked = (field, *ALIASES.get(field, ()))
    names = {*asked, *(own for own, name in eventlog.AS_SYSMON.items() if name in asked)}
    made = _invented()
    if not field or any(is_synthetic(name) or name in made for name in names):
        return None
    return frozenset(names)


def digest(fields: Iterable[str]) -> str:
    """Of what ``stands_as`` tells of ``fields``: it may be something else under the decoders of another version."""
    told = [(field, sorted(stands_as(field) or ()), provenance(field).value) for field in sorted(set(fields))]
    return hashlib.blake2b(repr(told).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
