"""The step from an input into the agent: every chunk of every input is counted as received here."""

from __future__ import annotations

from vedette.model.counters import Counters
from vedette.model.event import Chunk, Flag, Intake


def deliver(chunk: Chunk, intake: Intake, counters: Counters) -> int:
    """Store ``chunk`` and count its events, bytes and cut events; returns the raw offset after it.

    ``bytes_in`` grows by what the chunk adds to the raw log before compression. Raises OSError when the raw log
    cannot be written; nothing is counted then, so that the agent's last account still adds up.
    """
    offset = intake.store(chunk)
    counters.received[chunk.input] += len(chunk)
    counters.bytes_in[chunk.input] += len(chunk.data)
    if chunk.marks:
        counters.cut[chunk.input] += sum(1 for _, bits in chunk.marks if bits & Flag.CUT)
    return offset
