"""A chunk that no frame holds, as two. Whatever an input hands over, what fits is kept: whoever appends it halves until
it fits, and leaves out an event that does not fit alone. Loaded when that happens first.
"""

from __future__ import annotations

from array import array
from itertools import islice

from vedette.model.event import Chunk, FilePosition


def halves(chunk: Chunk, before: FilePosition | None) -> tuple[Chunk, Chunk]:
    """The events of ``chunk``, two at least, as two chunks. The position of its file is behind the second; ``before``:
    where the first begins, so that a kill between the two leaves nothing out."""
    middle = len(chunk) // 2
    at = next(islice(chunk.spans(), middle, None))[0]
    return _part(chunk, 0, middle, 0, at, before), _part(chunk, middle, len(chunk), at, len(chunk.data), chunk.file)


def _part(chunk: Chunk, first: int, last: int, start: int, end: int, file: FilePosition | None) -> Chunk:
    """Events ``first`` to ``last``, which are the bytes from ``start`` to ``end``."""
    marks = {at - start: bits for at, bits in chunk.marks if start <= at < end}
    if begins := int(chunk.flags(start)):
        marks = {0: begins} | marks
    origins = chunk.origins
    origin_of = chunk.origin_of and chunk.origin_of[first:last]
    if origin_of is not None:
        places = {number: place for place, number in enumerate(dict.fromkeys(origin_of))}
        origins = tuple(chunk.origins[number] for number in places)
        origin_of = array("H", map(places.__getitem__, origin_of))
    return Chunk(
        chunk.input, chunk.codec, chunk.received_at, chunk.data[start:end],
        chunk.ends and array("I", (stop - start for stop in chunk.ends[first:last])),
        origins, origin_of, tuple(marks.items()), chunk.message_ids and chunk.message_ids[first:last], file,
    )  # fmt: skip
