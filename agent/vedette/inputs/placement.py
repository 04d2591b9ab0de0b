"""Where reading a partition of Kafka begins. Pure: what is stored, and what the brokers know, are arguments.

the raw log's place, the group's place     the further one: of another agent, or of this one before it was killed
neither                                    the first record, or the next one that comes
below the first record that is left        there, and the records between are lost
beyond the end, or another topic's id      the topic was made again: the group's place if it has one, else the start
beyond the end of the same topic           the end: brokers lost what was read here
"""

from __future__ import annotations

from typing import NamedTuple

from vedette.model.event import FilePosition


class Offsets(NamedTuple):
    """The offsets of a partition, as the brokers know them."""

    topic_id: str
    """Empty: they have none."""
    committed: int
    """The group's offset; -1: it has none."""
    low: int
    """Offset of the first record that is left."""
    high: int
    """Offset of the next record that comes."""


class Begin(NamedTuple):
    offset: int
    lost: int = 0
    """Records that are known to be gone."""
    reason: str = ""
    """Why it is not where reading was left; empty: it is."""


def placed(left: FilePosition | None, offsets: Offsets, *, from_start: bool) -> Begin:
    """``left``: what the raw log has read, of this topic or of one that had its name."""
    read = -1 if left is None else left.position
    same = left is None or not offsets.topic_id or not left.fingerprint or left.fingerprint == offsets.topic_id
    in_bounds = offsets.low <= offsets.committed <= offsets.high
    if not same or (max(read, offsets.committed) > offsets.high and not offsets.topic_id):
        begin = offsets.committed if in_bounds else offsets.low
        return Begin(begin, 0, "the topic was deleted and made again; it is read from its start")
    place = max(read, offsets.committed)
    if place < 0:
        return Begin(offsets.low if from_start else offsets.high)
    if place < offsets.low:
        return Begin(offsets.low, offsets.low - place, "records were deleted before they were read")
    if place > offsets.high:
        return Begin(offsets.high, 0, "the brokers have lost records that were read; reading goes on at the end")
    return Begin(place)
