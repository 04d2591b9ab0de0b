"""Long literals cut to a window: what is in every event that holds the literal, and is found faster.

Hyperscan finds a text of up to ``WINDOW`` bytes in one step; a longer one, or one with a byte that a codec may escape,
it must look at again. So of a longer literal the rarest part of that length is searched for, by what a sample of the
traffic holds. Any part is sound: it is in every text that the literal is in. A literal that may be part of a number
stays whole, and no other becomes one, so which guards a literal needs does not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from vedette.plan.literals import guess, is_foreign, is_numeric

WINDOW = 8
MAX_BYTES = 4 << 20
"""Of the sample that are looked through."""

_ESCAPED = frozenset(b'"/\\]|=')


def windows(literal: bytes) -> list[bytes]:
    """The parts of ``literal`` that may be searched for in its place, in order; none when it is to stay whole."""
    if len(literal) <= WINDOW or is_numeric(literal) or is_foreign(literal):
        return []
    parts = dict.fromkeys(literal[i : i + WINDOW] for i in range(len(literal) - WINDOW + 1))
    return [part for part in parts if not part.isspace() and not is_numeric(part)]


def rarest(literals: Iterable[bytes], lines: Sequence[bytes]) -> Mapping[bytes, bytes]:
    """A window for each of ``literals`` that has one: that of the fewest ``lines``, without escapes if there is one."""
    parts = {literal: found for literal in literals if (found := windows(literal))}
    wanted = {part for found in parts.values() for part in found}
    held: Counter[bytes] = Counter()
    left = MAX_BYTES
    for line in lines[:: sum(map(len, lines)) // MAX_BYTES + 1] if wanted else ():
        left -= len(line)
        if left < 0:
            break
        text = line.lower().replace(b"\\\\", b"\\").replace(b'\\"', b'"').replace(b"\\/", b"/")
        held.update({text[i : i + WINDOW] for i in range(len(text) - WINDOW + 1)} & wanted)
    price = {part: (held[part], sum(map(_ESCAPED.__contains__, part)), guess(part), part) for part in wanted}
    return {literal: min(found, key=price.__getitem__) for literal, found in parts.items()}
