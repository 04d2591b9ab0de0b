"""Large lists of values: a lookup in place of as many patterns.

What the values of a placeholder are compared with as a whole, ``field|expand``, ``cased|expand`` or ``cidr|expand``, is
asked of a lookup that is made of the list: it means the same as each value spelled out. Values with wildcards stay
patterns, and so do short lists: the prefilter searches for up to ``SPELLED`` texts at once, and then lines of other
formats than JSON are no candidates either. Of networks there is nothing to search for.

Its name holds a digest of its keys, so that a rule whose list has changed is another rule, as where values are spelled
out.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple

from sigma.types import SigmaString

from vedette.lookup.build import of_keys
from vedette.lookup.table import Lookup
from vedette.plan.ir import fold
from vedette.rules.ruleset import Unsupported

SPELLED = {"nocase": 1_000, "text": 1_000, "cidr": 15}
"""Values that are spelled out, by kind of key (measured: ``docs/decisions/0061-lookups-in-the-kernel.md``)."""

INDEX = "value"


class Listed(NamedTuple):
    """``rest``: the values that are patterns."""

    lookup: Lookup
    rest: tuple[str, ...]


def listed(name: str, kind: str, values: Iterable[str], spelled: int) -> Listed | None:
    """The lookup of a list's values as keys of ``kind``; None: they are spelled out. Raises Unsupported."""
    keys: dict[str, None] = {}
    rest = []
    for value in values:
        parts = SigmaString(value).s
        text = parts[0] if len(parts) == 1 else None
        if type(text) is not str or "\0" in text:
            rest.append(value)
        elif kind == "cidr":
            keys[_network(value)] = None
        else:
            keys[fold(text) if kind == "nocase" else text] = None
    if len(keys) <= spelled:
        return None
    digest = hashlib.blake2b("\0".join([kind, *sorted(keys)]).encode(), digest_size=6).hexdigest()
    title = f"{re.sub('[^A-Za-z0-9_.-]', '_', name).lstrip('.-')[:80]}-{digest}"
    return Listed(Lookup.of(of_keys(title, kind, sorted(keys)), title), tuple(rest))


def _network(value: str) -> str:
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise Unsupported(f"a value of its placeholder is not a network: {error}") from error
