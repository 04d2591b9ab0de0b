"""What of a log line, a rule or a name may reach a terminal or a line-wise log: text that acts on neither.

Events are written by strangers. Printed as they are they could move the cursor, change a window's title, turn the
direction of text so that it reads as something else, or begin a line of their own and so forge one of ours.
"""

from __future__ import annotations

import re

import orjson

DIRECTION = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that turn the direction of text, so that it reads as something else."""
LINES = r"\u2028\u2029"
"""Characters at which some programs begin a line."""
UNSAFE = re.compile(rf"[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff{LINES}{DIRECTION}]")
"""What must not reach a terminal; surrogates stand for bytes that are no text, and cannot be written at all."""
UNSAFE_JSON = re.compile(rf"[\x7f-\x9f{LINES}{DIRECTION}]")
"""What of that JSON allows to stand in a string as it is."""


def safe(text: str) -> str:
    """``text``, one line, with line ends, other controls but the tab, and DIRECTION written as Python escapes."""
    return UNSAFE.sub(
        lambda match: f"\\x{ord(match[0]):02x}" if match[0] <= "\xff" else f"\\u{ord(match[0]):04x}", text
    )


def json_line(value: object, *, indent: bool = False) -> str:
    """``value`` as JSON that is safe to print: what a terminal may act on is escaped, so it parses to the same value.

    On one line, unless ``indent``. Raises TypeError for what JSON does not have.
    """
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None).decode()
    return UNSAFE_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class Shown:
    """A text that is unsafe, as something whose ``repr`` is not."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"'{safe(self._text)}'"


def shown(value: object) -> object:
    """``value`` of a log line: a text that is unsafe as ``Shown``; all else has a safe ``repr``."""
    return Shown(value) if isinstance(value, str) and UNSAFE.search(value) else value
