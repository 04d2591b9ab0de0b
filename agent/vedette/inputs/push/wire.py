"""Large protobuf in small messages of the same make, so that no reader keeps the event loop for long. Pure.

Protobuf's parser reads a message in one call, some 100 ns for each message in it, during which nothing else runs. So a
body that is large, or dense (many messages of a few bytes), is cut at its records by its own framing: a field is a key
(number and wire type), and its value or its length and bytes. Fields of a message may come in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from vedette.inputs.push.base import Refused

SMALL = 16 << 10
"""Bytes that are read at once, whatever they are."""
WHOLE = 256 << 10
"""And those of a body that is not dense."""
ABOUT_BYTES = 64 << 10
MAX_RECORD = 2 << 20
TURN = 1000
MAX_FIELDS = 500_000
_FEW = bytes(range(5))


def dense(body: bytes) -> bool:
    """Whether so many messages of up to 4 bytes may be in it that it takes long to read."""
    return len(body) - len(body.translate(None, _FEW)) > 16_384 + len(body) // 16


def messages(body: bytes, path: Sequence[int]) -> Generator[bytes | None, None, None]:
    """Messages of the body's make, each with some of the fields at the end of ``path``; None is the event loop's turn.
    Raises Refused for what is no message."""
    if len(body) <= SMALL or (len(body) <= WHOLE and not dense(body)):
        yield body
        return
    yield from _messages(body, 0, len(body), path, lambda part: part)


def _messages(
    body: bytes, at: int, end: int, path: Sequence[int], whole: Callable[[bytes], bytes]
) -> Generator[bytes | None, None, None]:
    number = path[0]
    about = bytearray()
    runs = list[tuple[int, int, int]]()
    last = -1
    for turn, (field, start, value, stop) in enumerate(_fields(body, at, end), 1):
        if turn > MAX_FIELDS:
            raise Refused(413, f"more than {MAX_FIELDS} messages in one")
        if not turn % TURN:
            yield None
        if field != number:
            about += body[start:stop]
            if len(about) > ABOUT_BYTES:
                raise Refused(413, f"more than {ABOUT_BYTES} bytes beside the records")
        elif start == last and stop - runs[-1][0] <= SMALL:
            runs[-1] = runs[-1][0], runs[-1][1], stop
            last = stop
        else:
            runs.append((start, value, stop))
            last = stop
    if not runs:
        yield whole(bytes(about))
    for start, value, stop in runs:
        if stop - start <= SMALL:
            yield whole(bytes(about) + body[start:stop])
        elif len(path) > 1:
            yield from _messages(body, value, stop, path[1:], lambda part: whole(bytes(about) + _field(number, part)))
        elif stop - start > MAX_RECORD:
            raise Refused(413, f"a record of more than {MAX_RECORD} bytes")
        elif dense(body[start:stop]):
            raise Refused(413, "a record of too many values")
        else:
            yield whole(bytes(about) + body[start:stop])


def _fields(body: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, beginning, where the value begins, and the end of each field."""
    try:
        while at < end:
            start, (key, at) = at, _varint(body, at)
            kind = key & 7
            value = at
            if kind == 2:
                length, value = _varint(body, at)
                at = value + length
            elif kind == 0:
                _, at = _varint(body, at)
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            else:
                raise Refused(400, f"the body is no protobuf: wire type {kind}")
            if at > end or key < 8:
                raise Refused(400, "the body is no protobuf: it is cut off")
            yield key >> 3, start, value, at
    except IndexError:
        raise Refused(400, "the body is no protobuf: it is cut off") from None


def _varint(body: bytes, at: int) -> tuple[int, int]:
    byte = body[at]
    if byte < 128:
        return byte, at + 1
    value = byte & 127
    shift = 7
    while shift < 64:
        at += 1
        byte = body[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
        shift += 7
    raise Refused(400, "the body is no protobuf: a number of more than 64 bits")


def _field(number: int, value: bytes) -> bytes:
    out = bytearray((number << 3 | 2,))
    length = len(value)
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out) + value
