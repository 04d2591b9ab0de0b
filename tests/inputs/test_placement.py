"""Where reading a partition of Kafka begins."""

from __future__ import annotations

import pytest

from vedette.inputs.placement import Offsets, placed
from vedette.model.event import FilePosition


def left(offset: int, topic_id: str = "T") -> FilePosition:
    return FilePosition("kafka:in:g:t", 0, topic_id, offset)


@pytest.mark.parametrize(
    ("read", "offsets", "offset", "lost", "why"),
    [
        (None, Offsets("T", -1, 5, 9), 5, 0, ""),  # nothing known: from the start
        (None, Offsets("T", 7, 5, 9), 7, 0, ""),  # another agent has read on
        (left(8), Offsets("T", 6, 5, 9), 8, 0, ""),  # killed before it committed
        (left(6), Offsets("T", 8, 5, 9), 8, 0, ""),  # it moved away and came back
        (left(9), Offsets("T", 9, 5, 9), 9, 0, ""),  # all is read
        (left(2), Offsets("T", 1, 5, 9), 5, 3, "deleted before"),  # retention
        (left(8), Offsets("U", -1, 0, 3), 0, 0, "made again"),
        (left(2), Offsets("U", -1, 0, 3), 0, 0, "made again"),  # whatever its size
        (left(8), Offsets("U", 2, 0, 3), 2, 0, "made again"),  # the group has read some of the new one
        (left(8), Offsets("U", 8, 0, 3), 0, 0, "made again"),  # the group's offset is of the old one
        (left(8, ""), Offsets("", 8, 0, 3), 0, 0, "made again"),  # no ids: an offset beyond the end
        (left(12), Offsets("T", 12, 0, 9), 9, 0, "brokers have lost"),
        (left(8, ""), Offsets("T", 8, 5, 9), 8, 0, ""),  # brokers were upgraded
    ],
)
def test_placed(read: FilePosition | None, offsets: Offsets, offset: int, lost: int, why: str) -> None:
    """The further place; what is gone is counted, and a topic made again is read from its start."""
    begin = placed(read, offsets, from_start=True)
    assert (begin.offset, begin.lost) == (offset, lost)
    assert why in begin.reason
    assert bool(why) == bool(begin.reason)


def test_from_the_end() -> None:
    """Only where nothing is known: what was read before goes on where it was."""
    assert placed(None, Offsets("T", -1, 5, 9), from_start=False).offset == 9
    assert placed(left(6), Offsets("T", -1, 5, 9), from_start=False).offset == 6
    assert placed(left(6), Offsets("U", -1, 0, 9), from_start=False).offset == 0
