"""A text as it stands, and as it reads with its escapes undone: of each character where it stands in the original.

What a decoder gives as ``a"b`` may stand in the event as ``a\\"b`` (JSON, pairs), ``a&quot;b`` (XML), ``a%22b`` (URLs)
or ``612262`` (audit records), one within the other. ``views`` undoes each, in any order, up to ``DEPTH`` deep, so that
a search in all views finds a value in any of its forms. Pure, and linear in the text for each view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

DEPTH = 3
MAX_VIEWS = 16


class View(NamedTuple):
    """``text``, whose character ``i`` is that of the original from ``starts[i]`` to ``ends[i]``; None: it is the
    original."""

    text: str
    starts: Sequence[int] | None = None
    ends: Sequence[int] | None = None

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where ``text[start:end]``, which is not empty, stands in the original."""
        if self.starts is None or self.ends is None:
            return start, end
        return self.starts[start], self.ends[end - 1]


_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_BACKSLASH = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|(?:\\x[0-9a-fA-F]{2})+|\\[^ux]"
)
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#[xX]([0-9a-fA-F]{1,6})|#([0-9]{1,7}));")
_PERCENT = re.compile(r"(?:%[0-9a-fA-F]{2})+")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{2}){3,}(?![0-9A-Za-z])")


def _backslash(match: re.Match[str]) -> str | None:
    text = match[0]
    if text[1] == "x":
        return _utf8(text.replace("\\x", ""))
    if text[1] != "u":
        return _SIMPLE.get(text[1], text[1])
    codes = [int(part, 16) for part in text.split("\\u")[1:]]
    if len(codes) == 2:
        return chr(0x10000 + ((codes[0] - 0xD800) << 10) + codes[1] - 0xDC00)
    return chr(codes[0])


def _entity(match: re.Match[str]) -> str | None:
    if match[1]:
        return _NAMED[match[1]]
    code = int(match[2], 16) if match[2] else int(match[3])
    return chr(code) if 0 < code < 0x110000 else None


def _percent(match: re.Match[str]) -> str | None:
    return _utf8(match[0].replace("%", ""))


def _hex(match: re.Match[str]) -> str | None:
    text = _utf8(match[0])
    return None if text is None else text.replace("\0", " ")


def _utf8(digits: str) -> str | None:
    try:
        return bytes.fromhex(digits).decode()
    except UnicodeDecodeError:
        return None


_FORMS: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], str | None]], ...] = (
    ("\\", _BACKSLASH, _backslash),
    ("&", _ENTITY, _entity),
    ("%", _PERCENT, _percent),
    ("", _HEX, _hex),
)
"""A character that a text with such escapes has, the escapes, and what each stands for (None: for itself)."""


def views(text: str) -> Iterator[View]:
    """``text`` itself first; ``MAX_VIEWS`` at most."""
    level = [View(text)]
    seen = {text}
    yield level[0]
    for _ in range(DEPTH):
        deeper = []
        for view in level:
            for mark, pattern, undo in _FORMS:
                if len(seen) >= MAX_VIEWS:
                    return
                if mark in view.text and (plain := undone(view, pattern, undo)) is not None and plain.text not in seen:
                    seen.add(plain.text)
                    deeper.append(plain)
                    yield plain
        level = deeper


def undone(view: View, pattern: re.Pattern[str], undo: Callable[[re.Match[str]], str | None]) -> View | None:
    """None: there is nothing to undo."""
    text = view.text
    at = 0
    parts = list[str]()
    starts = list[int]()
    ends = list[int]()

    def keep(upto: int) -> None:
        parts.append(text[at:upto])
        starts.extend(range(at, upto) if view.starts is None else view.starts[at:upto])
        ends.extend(range(at + 1, upto + 1) if view.ends is None else view.ends[at:upto])

    for match in pattern.finditer(text):
        plain = undo(match)
        if not plain:
            continue
        keep(match.start())
        at = match.end()
        parts.append(plain)
        each, rest = divmod(at - match.start(), len(plain))
        if rest or len(plain) == 1:  # some characters have more bytes: each stands for the whole run
            first, last = view.span(match.start(), at)
            starts.extend([first] * len(plain))
            ends.extend([last] * len(plain))
        else:
            spans = [view.span(begin, begin + each) for begin in range(match.start(), at, each)]
            starts.extend(first for first, _ in spans)
            ends.extend(last for _, last in spans)
    if not at:
        return None
    keep(len(text))
    return View("".join(parts), starts, ends)
