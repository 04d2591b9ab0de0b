"""Java's regular expressions (``java.util.regex``) in those of the ``regex`` module, in a bounded time.

What differs is rewritten: ``.``, ``$``, ``^`` and ``\\Z`` know six line ends, ``\\p{Alpha}`` and its like are ASCII,
``[[:alpha:]]`` is a set of letters and colons, ``\\h``, ``\\v``, ``\\Q…\\E``, ``\\x{…}``, ``\\0…`` are Java's.
What Java calls an error is one. Classes and ``(?i)`` are ASCII unless ``(?u)`` or ``(?U)`` say otherwise.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import regex

from vedette.decode.bounded import compiled as compiled_by_regex
from vedette.stream.values.types import Failed

TIMEOUT = 0.05
"""Seconds that one search may take; then the row fails (as in ``engine/fallback.py``)."""


class BadPattern(ValueError):
    """Java does not compile it."""


class NotCarriedOver(ValueError):
    """Java compiles it, but this module cannot say the same."""


_ENDS = r"\n\r\x85\u2028\u2029"
_DOT = f"[^{_ENDS}]"
_LAST = rf"(?=(?:\r\n|[{_ENDS}])?\Z)"
_LINE_END = rf"(?=\r\n|[{_ENDS}]|\Z)(?<!\r(?=\n))"
_LINE_START = r"(?:(?<=\A|[\n\x85\u2028\u2029]|\r(?!\n))(?!\Z)|\A)"
_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "0-9A-Za-z",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": r"\x20-~", "Blank": r"\x20\t", "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F", "Space": r"\x20\t\n\x0b\f\r",
}  # fmt: skip
_WIDE = r"\x20\t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_TALL = r"\n\x0b\f\r\x85\u2028\u2029"
_SETS = {"h": _WIDE, "v": _TALL, "d": "0-9", "w": "a-zA-Z0-9_", "s": r"\x20\t\n\x0b\f\r"}
_LETTERS = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "a": r"\x07", "e": r"\x1b"}
_QUANTIFIERS = "*+?{"


class _Reader:
    """Rewrites one pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self.text, self.at = pattern, 0
        self.flags = [set[str]()]
        """Of the groups around, the innermost last: those of i, m, s, x that hold."""
        self.unicode = False
        self.insensitive = False
        self.property_named = ""

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def take(self, length: int = 1) -> str:
        characters = self.peek(length)
        if len(characters) < length:
            raise BadPattern("it ends too early")
        self.at += length
        return characters

    # --- the parts

    def whole(self) -> str:
        parts: list[str] = []
        quantified = True
        """Whether a quantifier may not stand here."""
        while self.at < len(self.text):
            start = len(parts)
            character = self.take()
            match character:
                case "\\":
                    parts.append(self.escape())
                case "[":
                    parts.append(self.set())
                case "(":
                    parts.append(self.group())
                case ")":
                    if len(self.flags) == 1:
                        raise BadPattern("a ) without (")
                    self.flags.pop()
                    parts.append(")")
                case "." if "s" not in self.flags[-1]:
                    parts.append(_DOT)
                case ".":
                    parts.append("(?s:.)")
                case "$":
                    parts.append(_LINE_END if "m" in self.flags[-1] else _LAST)
                case "^":
                    parts.append(_LINE_START if "m" in self.flags[-1] else r"\A")
                case "*" | "+" | "?" | "{":
                    if quantified:
                        raise BadPattern(f"{character} has nothing to repeat")
                    parts.append(self.quantifier(character))
                case "#" if "x" in self.flags[-1]:
                    while self.at < len(self.text) and self.take() not in "\n\r\x85\u2028\u2029":
                        pass
                case _ if "x" in self.flags[-1] and character in " \t\n\x0b\f\r":
                    pass
                case "]" | "}":
                    parts.append("\\" + character)
                case "|":
                    parts.append(character)
                case _:
                    parts.append(regex.escape(character, literal_spaces=True))
            if len(parts) > start:
                quantified = character in "|" or character in _QUANTIFIERS or (character == "(")
        if len(self.flags) > 1:
            raise BadPattern("a ( without )")
        return "".join(parts)

    def quantifier(self, character: str) -> str:
        if character == "{":
            end = self.text.find("}", self.at)
            bounds = self.text[self.at : end] if end >= 0 else ""
            low, comma, high = bounds.partition(",")
            if not low.isdecimal() or (high and not high.isdecimal()) or (high and int(low) > int(high)):
                raise BadPattern("{ begins no number of times")
            self.at = end + 1
            character = "{" + low + comma + high + "}"
        if self.peek() and self.peek() in "?+":
            character += self.take()
        return character

    def group(self) -> str:
        flags = set(self.flags[-1])
        if self.peek() != "?":
            self.flags.append(flags)
            return "("
        self.take()
        for opening in ("<=", "<!", ":", "=", "!", ">"):
            if self.peek(len(opening)) == opening:
                self.take(len(opening))
                self.flags.append(flags)
                return "(?" + opening
        if self.peek() == "<":
            end = self.text.find(">", self.at)
            name = self.text[self.at + 1 : end]
            if end < 0 or not name.isascii() or not name.isalnum() or name[0].isdigit():
                raise BadPattern("a group's name is of letters and digits")
            self.at = end + 1
            self.flags.append(flags)
            return f"(?P<{name}>"
        return self.inline_flags(flags)

    def inline_flags(self, flags: set[str]) -> str:
        on = True
        for each in iter(self.take, ""):
            if each == "-":
                on = False
            elif each in "imsx":
                (flags.add if on else flags.discard)(each)
            elif each in "uU" and on:
                self.unicode = True
            elif each == "d":
                raise NotCarriedOver("(?d)")
            elif each in ":)":
                break
            else:
                raise BadPattern(f"there is no flag {each}")
        insensitive = "i" in flags
        self.insensitive = self.insensitive or insensitive
        if each == ":":
            self.flags.append(flags)
            return "(?i:" if insensitive else "(?-i:"
        before, self.flags[-1] = self.flags[-1], flags
        if ("i" in before) == insensitive:
            return ""
        if len(self.flags) == 1 and insensitive and self.at <= 8:
            return "(?i)"
        raise NotCarriedOver("(?i) behind the beginning; write (?i:…)")

    def escape(self) -> str:
        """Rewrite what stands behind a backslash, outside of a set."""
        character = self.take()
        if character in "AbBG":
            if character == "G":
                raise NotCarriedOver("\\G")
            return "\\" + character
        match character:
            case "Z":
                return _LAST
            case "z":
                return r"\Z"
            case "R":
                return rf"(?>\r\n|[{_TALL}])"
            case "X":
                return r"\X"
            case "Q":
                end = self.text.find("\\E", self.at)
                quoted = self.text[self.at :] if end < 0 else self.text[self.at : end]
                self.at = len(self.text) if end < 0 else end + 2
                return f"(?:{regex.escape(quoted)})"
            case "k":
                end = self.text.find(">", self.at)
                if self.peek() != "<" or end < 0:
                    raise BadPattern("\\k needs <name>")
                name = self.text[self.at + 1 : end]
                self.at = end + 1
                return f"(?P={name})"
        if character.isdecimal() and character != "0":
            return f"(?:\\{character})"
        inside = self.member(character)
        return f"[{inside}]"

    def member(self, character: str) -> str:
        """An escape as a part of a set."""
        if character in _LETTERS:
            return _LETTERS[character]
        if character.lower() in _SETS and character not in "HV":
            if self.unicode and character.lower() in "dws":
                return "\\" + character
            return _SETS[character] if character.islower() else f"[^{_SETS[character.lower()]}]"
        if character in "HV":
            return f"[^{_SETS[character.lower()]}]"
        if character in "pP":
            return self.property(character == "P")
        if character in "xu0c":
            return self.coded(character)
        if character.isalnum() and character.isascii():
            raise BadPattern(f"there is no escape \\{character}")
        return str(regex.escape(character, special_only=False))

    def property(self, negated: bool) -> str:
        if self.peek() == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                raise BadPattern("\\p{ without }")
            name, self.at = self.text[self.at + 1 : end], end + 1
        else:
            name = self.take()
        if name in _POSIX:
            return f"[{'^' if negated else ''}{_POSIX[name]}]"
        self.property_named = f"\\p{{{name}}}"
        name = name.removeprefix("Is").removeprefix("java")
        name = {"LowerCase": "Lowercase", "UpperCase": "Uppercase", "Letter": "L"}.get(name, name)
        try:
            regex.compile(f"\\p{{{name}}}")
        except regex.error as error:
            raise BadPattern(f"there is no property {name}") from error
        return f"\\{'P' if negated else 'p'}{{{name}}}"

    def coded(self, character: str) -> str:
        try:
            if character == "u":
                code = int(self.take(4), 16)
            elif character == "c":
                code = ord(self.take()) ^ 64
            elif character == "x" and self.peek() == "{":
                end = self.text.index("}", self.at)
                code, self.at = int(self.text[self.at + 1 : end], 16), end + 1
            elif character == "x":
                code = int(self.take(2), 16)
            else:
                digits = ""
                while len(digits) < 3 and self.peek() and self.peek() in "01234567" and int("0" + digits, 8) < 32:
                    digits += self.take()
                code = int(digits, 8)
            return f"\\U{code:08x}"
        except ValueError as error:
            raise BadPattern(f"\\{character} needs digits") from error

    def set(self) -> str:
        rewritten = "["
        if self.peek() == "^":
            rewritten += self.take()
        first = True
        while True:
            character = self.take()
            if character == "]" and not first:
                return rewritten + "]"
            if character == "[":
                rewritten += self.set()
            elif self.text[self.at - 1 : self.at + 1] == "&&":
                self.take()
                rewritten += "&&"
            elif character == "\\":
                escaped = self.take()
                if escaped == "Q":
                    end = self.text.find("\\E", self.at)
                    quoted = self.text[self.at : end if end >= 0 else None]
                    self.at = len(self.text) if end < 0 else end + 2
                    rewritten += "".join(map(regex.escape, quoted))
                else:
                    rewritten += self.member(escaped)
            elif character == "-" and not first and self.is_range():
                rewritten += "-"
            else:
                rewritten += "\\" + character if not character.isalnum() and character.isascii() else character
            first = False

    def is_range(self) -> bool:
        """Whether the - that has just been read stands between two characters."""
        if self.peek() == "\\":
            return self.text[self.at + 1 : self.at + 2] not in "dwshvpDWSHVP"
        return self.peek() not in ("]", "[", "")


def translated(pattern: str) -> tuple[str, int]:
    """The pattern and the flags for ``regex``. Raises ``BadPattern`` or ``NotCarriedOver``."""
    reader = _Reader(pattern)
    text = reader.whole()
    ascii_letters = reader.insensitive and not reader.unicode
    if ascii_letters and reader.property_named:
        raise NotCarriedOver(f"(?i) beside {reader.property_named}; write (?iu)")
    return text, regex.VERSION1 | (regex.ASCII if ascii_letters else 0)


@lru_cache(2048)
def compiled(pattern: str) -> Any:
    """The compiled pattern. Raises ``BadPattern`` or ``NotCarriedOver``."""
    text, flags = translated(pattern)
    try:
        return compiled_by_regex(text, flags)
    except ValueError as error:
        raise BadPattern(str(error)) from error


class Overran(Exception):
    """Regular expressions took too long more often than ``Patience`` allows: no failure of one row."""


class Patience:
    """How often searches may still take too long, for who runs statements (``network/island.py``); it sets ``left``."""

    left = 1 << 62


def bounded(call: Any, *args: Any, **options: Any) -> Any:
    """A method of a compiled pattern, within ``TIMEOUT``. Raises ``Failed``, and ``Overran`` when patience is over."""
    try:
        return call(*args, timeout=TIMEOUT, **options)
    except TimeoutError as error:
        Patience.left -= 1
        if Patience.left <= 0:
            raise Overran(f"a regular expression took longer than {TIMEOUT} s too often") from error
        raise Failed("a regular expression took too long") from error
