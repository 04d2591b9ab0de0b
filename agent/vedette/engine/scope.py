"""Facts that an answer about an event depends on, and the key under which the result cache keeps it (``match.py``).

Besides its bytes an event has an origin, and a syslog header says its time, host and process: they are in the key where
a rule in question asks for them. No rule asks for the header's time.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from vedette.decode.aliases import ALIASES
from vedette.decode.syslog import usual, without_time
from vedette.engine.cache import Hash
from vedette.model.event import Chunk

HOST, PID = frozenset({"hostname"}), frozenset({"pid"})
ORIGIN = frozenset({"peer", "topic", "topic_levels", "kafka"})
"""Names of fields that say where an event came from, which is no part of it; ``topic_level_N`` goes with topics."""

SCOPE_BYTES = 400
"""What a scope takes, with the state of its hash."""


def asks(fields: Iterable[str], names: frozenset[str]) -> bool:
    """Whether a field of this name, path or other name may be one of ``names``."""
    for field in fields:
        for name in (field, *ALIASES.get(field, ())):
            head = name.partition(".")[0]
            if head in names or ("topic" in names and head.startswith("topic_level_")):
                return True
    return False


Key = tuple[bytes, re.Match[bytes] | None]
"""The digest that the cache keeps an answer under, and the match of a usual syslog header that was read for it."""


class Scope(NamedTuple):
    """A set of candidate rules of one kind of input: what their truth depends on."""

    begin: Callable[[], Hash]
    """Gives the hash of a key: it has read what identifies this scope and no other."""
    split: bool
    """Whether events of this codec that begin with ``<`` are syslog."""
    host: bool
    pid: bool
    origin: bool
    """Whether a rule asks for these."""

    def key(self, chunk: Chunk, start: int, raw: bytes) -> Key:
        """Return that of the event ``raw``, whose first record begins at ``start`` in ``chunk``."""
        begin, split, host, pid, origin = self
        state = begin()
        if origin:
            state.update(marshal.dumps(chunk.origin(start), 2))
        line = usual(raw) if split else None
        state.update(b"*" + raw if line is None else without_time(line, raw, host, pid))
        return state.digest(), line
