"""Large JSON in small pieces, so that no reader keeps the event loop for longer than some milliseconds. Pure.

orjson reads a body in one call, during which nothing else runs. What is larger than it reads in about 3 ms (``few``) is
cut before: ``records`` makes of a request many of the same make, each with some of its records, ``spans`` finds values
that follow each other. A run of children of LIMIT bytes is found by one match of a regular expression, and read by
orjson, which alone decides what is JSON. A ``None`` among what is yielded is the event loop's turn.

A record may have MAX_EVENT bytes, or ``most``, else it is given as the bytes that were sent (and is cut as any long
event); what is beside records, ABOUT_BYTES. The expressions have no nested quantifier that could fail behind what it
took, so they are linear. Possessive groups would say it more simply, and are wrong in Python 3.11.2 (gh-106052).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

from vedette.decode.values import from_strict
from vedette.inputs.push.base import Refused
from vedette.model.event import MAX_EVENT

LIMIT = 8 << 10
"""Bytes that are matched and read at once."""
FREE = 32 << 10
"""A body of so many is read at once, whatever is in it."""
WHOLE = 384 << 10
CONTAINERS = 8192
"""A body within both is read at once."""
ABOUT_BYTES = 64 << 10
MAX_LEVELS = 200
LEVELS = 6
"""Nested so deep, a container is found by one match; below the second that is not, some are passed without a try."""

STRING = rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)"'


def _nested(levels: int) -> bytes:
    inner = b"|" + _nested(levels - 1) if levels > 1 else b""
    return rb'[\[{](?>(?:[^"\[\]{}]++|' + STRING + inner + rb")*)[\]}]"


_CONTAINER = _nested(LEVELS)
_CHILD = rb'(?>(?:[^"\[\]{},]++|' + STRING + rb"|" + _CONTAINER + rb")*)"
_children = re.compile(rb"(?>(?:" + _CHILD + rb",)*)", re.DOTALL).match
child = re.compile(_CHILD, re.DOTALL).match
_skip = re.compile(rb'(?>(?:[^"\[\]{}]++|' + STRING + rb"|" + _CONTAINER + rb")*)", re.DOTALL).match
_flat = re.compile(rb'(?>(?:[^"\[\]{}]++|' + STRING + rb")*)", re.DOTALL).match
_container = re.compile(_CONTAINER, re.DOTALL).match
_in_string = re.compile(rb'(?>(?:[^"\\]++|\\.)*)', re.DOTALL).match
_blank = re.compile(rb"[ \t\r\n]*").match
_between = re.compile(rb"[ \t\r\n,]*").match
_name = re.compile(rb"[ \t\r\n]*(" + STRING + rb")[ \t\r\n]*:[ \t\r\n]*", re.DOTALL).match

Spans = Generator[tuple[int, int, bool] | None, None, None]
"""From, to, and whether it is one child that is large."""


def few(body: bytes | str) -> bool:
    """Whether JSON is read within about 3 ms."""
    if isinstance(body, str):
        return len(body) <= FREE or (len(body) <= MAX_EVENT and body.count("[") + body.count("{") <= CONTAINERS)
    return len(body) <= FREE or (len(body) <= WHOLE and _containers(body) <= CONTAINERS)


def _containers(body: bytes) -> int:
    """Objects and arrays, at most: also those in texts. Three times as fast as to count."""
    return len(body) - len(body.translate(None, b"[{"))


def _not_json(why: str) -> Refused:
    return Refused(400, f"the body is not JSON: {why}")


def _loaded(text: bytes) -> Any:
    try:
        return from_strict(text)
    except ValueError as error:
        raise _not_json(str(error)) from error


def bounded(text: bytes, what: str) -> Any:
    """The value of ``text``; raises Refused for no JSON, and where it is too much for one call."""
    if len(text) > FREE and _containers(text) > CONTAINERS:
        raise Refused(413, f"{what} with more than {CONTAINERS} objects and arrays")
    return _loaded(text)


def loaded(body: bytes) -> Any:
    """The value of a body that is read at once: of few values and MAX_EVENT bytes at most; raises Refused."""
    if len(body) > FREE and (len(body) > MAX_EVENT or body.count(b",") > CONTAINERS):
        raise Refused(413, f"a body of more than {MAX_EVENT} bytes, or of more than {CONTAINERS} values")
    return bounded(body, "a body")


def _string_end(body: bytes, at: int) -> Generator[None, None, int]:
    """Behind the text that begins at ``at``."""
    at += 1
    while True:
        match = _in_string(body, at, at + LIMIT)
        end = match.end() if match else at
        if body[end : end + 1] == b'"':
            return end + 1
        if end >= len(body) - 1:
            raise _not_json("a text without an end")
        at = end
        yield None


def _ends(body: bytes, at: int) -> Generator[None, None, dict[int, int]]:
    """Where the object or array at ``at`` ends, and each in it that is longer than LIMIT."""
    stack = [at]
    ends = dict[int, int]()
    first = at
    at += 1
    steps = tries = plain = 0
    while True:
        match = (_flat if plain else _skip)(body, at, at + LIMIT)
        at = match.end() if match else at
        char = body[at : at + 1]
        if not char:
            raise _not_json("it is cut off")
        if char in b"[{":
            stack.append(at)
            at += 1
            if plain:
                plain -= 1
            else:
                plain = tries * LEVELS
                tries += 1
            if len(stack) > MAX_LEVELS:
                raise _not_json(f"it is nested more than {MAX_LEVELS} deep")
        elif char in b"]}":
            start = stack.pop()
            at += 1
            tries = plain = 0
            if body[start] + 2 != char[0]:
                raise _not_json(f"unexpected {char.decode()}")
            if at - start > LIMIT or start == first:
                ends[start] = at
            if not stack:
                return ends
        elif char == b'"':
            at = yield from _string_end(body, at)
        steps += 1
        if steps % 16 == 0:
            yield None


def _past_blanks(body: bytes, at: int) -> int:
    blanks = _blank(body, at)
    return blanks.end() if blanks else at


def _spans(body: bytes, at: int, ends: dict[int, int]) -> Spans:
    """The children of the object or array at ``at``, as runs of some, or one that is large."""
    keyed = body[at] == ord("{")
    closing = ends[at] - 1
    first = True
    at += 1
    while True:
        most = min(at + LIMIT, closing)
        match = _children(body, at, most)
        if match and match.end() > at:
            yield at, match.end() - 1, False
            at = match.end()
            first = False
            continue
        match = child(body, at, most)
        if match and match.end() == closing:
            if not first or body[at:closing].strip():
                yield at, closing, False
            return
        at = value = _past_blanks(body, at)
        if keyed:
            name = _name(body, at, at + LIMIT)
            if name is None:
                raise _not_json("a name is expected")
            value = _past_blanks(body, name.end())
        end = yield from _value_end(body, value, ends)
        yield at, end, True
        at = _past_blanks(body, end)
        first = False
        if at == closing:
            return
        if body[at : at + 1] != b",":
            raise _not_json("a comma is expected")
        at += 1


def _value_end(body: bytes, at: int, ends: dict[int, int]) -> Generator[None, None, int]:
    """Behind the value at ``at``, which is large or nested deep."""
    if at in ends:
        return ends[at]
    char = body[at : at + 1]
    if char == b'"':
        end = yield from _string_end(body, at)
        return end
    if char not in (b"[", b"{"):
        raise _not_json("a value is expected")
    inner = yield from _ends(body, at)
    return inner[at]


def _opened(body: bytes, kind: bytes) -> Generator[None, None, tuple[int, dict[int, int]]]:
    """Where the one object or array of a body begins, and ``_ends``."""
    at = _past_blanks(body, 0)
    if body[at : at + 1] != kind:
        raise Refused(400, f"the body is not a JSON {'array' if kind == b'[' else 'object'}")
    ends = yield from _ends(body, at)
    if body[ends[at] :].strip():
        raise _not_json("something is behind its end")
    return at, ends


def spans(body: bytes) -> Spans:
    """The elements of an array, as runs of some, or one that is large. Raises Refused."""
    at, ends = yield from _opened(body, b"[")
    yield from _spans(body, at, ends)


def _run(body: bytes, span: tuple[int, int, bool], around: bytes) -> Any:
    value = _loaded(around[:1] + body[span[0] : span[1]] + around[1:])
    if not value:
        raise _not_json("a value is expected")
    return value


def check(text: bytes) -> Generator[None, None, None]:
    """Read JSON piece by piece. Raises Refused for what is none."""
    if few(text) or (at := _past_blanks(text, 0)) == len(text) or text[at] not in b"[{":
        _loaded(text)
        return
    at, ends = yield from _opened(text, text[at : at + 1])
    yield from _check(text, at, ends)


def _check(text: bytes, at: int, ends: dict[int, int]) -> Generator[None, None, None]:
    around = b"{}" if text[at] == ord("{") else b"[]"
    for span in _spans(text, at, ends):
        yield None
        if span is None:
            continue
        start, end, large = span
        value = start
        if large and around == b"{}" and (begins := _name(text, start)):
            _loaded(begins[1])
            value = begins.end()
        if not large:
            _run(text, span, around)
        elif value in ends:
            yield from _check(text, value, ends)
        else:
            _loaded(text[value:end])


def values(body: bytes) -> Generator[tuple[int, int] | None, None, None]:
    """Where the objects and arrays of a body stand that follow each other, with or without commas between. What is
    neither ends with the line. Raises Refused."""
    at = 0
    size = len(body)
    while True:
        begins = _between(body, at)
        at = begins.end() if begins else at
        if at == size:
            return
        if body[at] not in b"[{":
            end = body.find(b"\n", at)
            end = size if end < 0 else end
        else:
            match = _container(body, at, at + LIMIT)
            end = match.end() if match else (yield from _ends(body, at))[at]
        yield at, end
        at = end


def records(body: bytes, path: Sequence[str], most: int = MAX_EVENT) -> Generator[Any, None, None]:
    """Objects of the body's make, each with some of the elements of the innermost array of ``path``; in between None,
    or the first bytes of a record that is longer than ``most``. Raises Refused."""
    if few(body):
        yield _loaded(body)
        return
    at, ends = yield from _opened(body, b"{")
    yield from _records(body, at, ends, path, most, lambda part: part)


def _records(
    body: bytes,
    at: int,
    ends: dict[int, int],
    path: Sequence[str],
    most: int,
    whole: Callable[[dict[str, Any]], Any],
) -> Generator[Any, None, None]:
    name = path[0]
    about = dict[str, Any]()
    array = -1
    beside = 0
    for span in _spans(body, at, ends):
        if span is None:
            yield None
            continue
        start, end, large = span
        begins = _name(body, start, start + LIMIT) if large else None
        value = begins.end() if begins else -1
        if begins and value in ends and body[value] == ord("[") and _loaded(begins[1]) == name:
            array = value
            continue
        beside += end - start
        if beside > ABOUT_BYTES:
            raise Refused(413, f"more than {ABOUT_BYTES} bytes beside {name}")
        about |= _run(body, span, b"{}") if not large else bounded(b"{%b}" % body[start:end], f"what is beside {name}")
        yield None
    if array < 0:
        yield whole(about)
        return
    for span in _spans(body, array, ends):
        if span is None:
            yield None
            continue
        start, end, large = span
        value = _past_blanks(body, start) if large else start
        if not large:
            yield whole({**about, name: _run(body, span, b"[]")})
        elif len(path) > 1 and body[value] == ord("{") and value in ends:
            yield from _records(body, value, ends, path[1:], most, lambda part: whole({**about, name: [part]}))
        elif len(path) == 1 and end - value > most:
            yield body[value : value + most + 1]
        else:
            yield whole({**about, name: [bounded(body[value:end], "a record")]})
