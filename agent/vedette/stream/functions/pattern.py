"""LIKE, SIMILAR TO and regular expressions (Java's, see ``javaregex.py``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from vedette.plan.query import Expression, Type
from vedette.stream.functions.javaregex import BadPattern, NotCarriedOver, bounded, compiled
from vedette.stream.functions.table import Function, Infer, WrongTypes, constant, takes
from vedette.stream.values.types import BOOLEAN, INT, STRING, TEXT, WHOLE, Failed

_NO_END = r"[^\n\r\x85\u2028\u2029]"
_LIKE = takes(TEXT, TEXT, TEXT, least=2)


# --- LIKE


def _parts(pattern: str, escape: str) -> list[str | None]:
    """Characters of a LIKE pattern; ``%`` and ``_`` that are wildcards as ``"%"`` and None. Raises Failed."""
    parts: list[str | None] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if escape and character == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise Failed(f"the escape {escape!r} must stand before %, _ or itself, in {pattern!r:.60}")
            parts.append("\\" + pattern[at])
        else:
            parts.append(None if character == "_" else "%" if character == "%" else "\\" + character)
        at += 1
    return parts


@lru_cache(2048)
def _like_test(pattern: str, escape: str) -> Callable[[str], bool]:
    """The test of a text. Raises Failed for a misplaced escape."""
    if len(escape) > 1:
        raise Failed(f"the escape {escape!r:.20} must be one character")
    parts = _parts(pattern, escape)
    if None not in parts:
        pieces = "".join("\0" if part == "%" else part[1:] for part in parts if part is not None).split("\0")
        if "\0" not in pattern:
            return _chain(pieces)
    search = re.compile(_linear(parts)).fullmatch
    return lambda value: search(value) is not None


def _linear(parts: Sequence[str | None]) -> str:
    """The expression of a pattern. What stands between two ``%`` is of a fixed length, so its first place is the best
    one, and no other is tried: the time does not grow with the number of ``%``."""
    pieces = [""]
    for part in parts:
        if part == "%":
            pieces.append("")
        else:
            pieces[-1] += _NO_END if part is None else re.escape(part[1:])
    first, *between = pieces
    if not between:
        return first
    last = between.pop()
    return first + "".join(f"(?>(?s:.)*?{piece})" for piece in between if piece) + "(?s:.*)" + last


def _chain(pieces: list[str]) -> Callable[[str], bool]:
    """A text that begins with the first piece, ends with the last, and has the others between in their order."""
    first, last, between = pieces[0], pieces[-1], [piece for piece in pieces[1:-1] if piece]
    if len(pieces) == 1:
        return lambda value: value == first
    if not between:
        if not last:
            return lambda value: value.startswith(first)
        if not first:
            return lambda value: value.endswith(last)
        least = len(first) + len(last)
        return lambda value: len(value) >= least and value.startswith(first) and value.endswith(last)
    if not first and not last and len(between) == 1:
        middle = between[0]
        return lambda value: middle in value

    def test(value: str) -> bool:
        end = len(value) - len(last)
        if not value.startswith(first) or not value.endswith(last):
            return False
        at = len(first)
        for piece in between:
            at = value.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return at <= end

    return test


def _constants(args: Sequence[Expression]) -> tuple[Any, Any] | None:
    """Pattern and escape of a LIKE or SIMILAR TO if both are constants."""
    constants = [constant(argument) for argument in args[1:]]
    return None if None in constants else (constants[0], constants[1] if len(constants) > 1 else "")


def _checked(test: Callable[[str, str], Any]) -> Infer:
    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        _LIKE(args)
        constants = _constants(args)
        if constants is not None:
            try:
                test(*constants)
            except ValueError as error:
                raise WrongTypes(str(error)) from error
        return BOOLEAN

    return infer


def _matcher(test: Callable[[str, str], Callable[[str], Any]]) -> Function:
    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
        constants = _constants(args)
        if constants is not None:
            matches = test(*constants)
            return lambda value, *rest: matches(value)
        return lambda value, pattern, escape="": test(pattern, escape)(value)

    return Function(_checked(test), test, bind=bind)


# --- SIMILAR TO

_CLASSES = {
    "ALPHA": "Alpha", "DIGIT": "Digit", "UPPER": "Upper", "LOWER": "Lower", "ALNUM": "Alnum", "SPACE": "Space",
    "WHITESPACE": "Space",
}  # fmt: skip
_SPECIAL = "[]()|^-+*_%?{}"


@lru_cache(2048)
def _similar_test(pattern: str, escape: str) -> Callable[[str], bool]:
    """Raises Failed for a bad pattern."""
    if len(escape) > 1:
        raise Failed(f"the escape {escape!r:.20} must be one character")
    rewritten = ""
    at = 0
    inside = False
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if escape and character == escape:
            following = pattern[at : at + 1]
            if not following or (following not in _SPECIAL and following != escape):
                raise Failed(f"the escape {escape!r} must stand before one of {_SPECIAL} or itself")
            rewritten += "\\" + following if not following.isalnum() else following
            at += 1
        elif inside:
            name = re.match(r"\[:(\w+):\]", pattern[at - 1 :])
            if name:
                if name[1].upper() not in _CLASSES:
                    raise Failed(f"there is no class [:{name[1]}:]")
                rewritten += f"\\p{{{_CLASSES[name[1].upper()]}}}"
                at += len(name[0]) - 1
            else:
                inside = character != "]"
                rewritten += character
        elif character == "[":
            rewritten, inside = rewritten + "[", True
        elif character in "\\$":
            rewritten += "\\" + character
        else:
            rewritten += {"_": ".", "%": "(?s:.*)"}.get(character, character)
    try:
        search = compiled(rewritten).fullmatch
    except (BadPattern, NotCarriedOver) as error:
        raise Failed(f"{pattern!r:.60} is no pattern of SIMILAR TO: {error}") from error
    return lambda value: bounded(search, value) is not None


# --- regular expressions


def _searching(pattern: str) -> Any:
    """The compiled pattern; None for a bad one. Raises Failed for what is not carried over."""
    try:
        return compiled(pattern)
    except BadPattern:
        return None
    except NotCarriedOver as error:
        raise Failed(f"{pattern!r:.60}: {error} is not supported in regular expressions here") from error


def _with_pattern(result: Type, check: Callable[[Sequence[Expression]], None], place: int = 1) -> Infer:
    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        check(args)
        pattern = constant(args[place])
        if isinstance(pattern, str):
            try:
                compiled(pattern)
            except BadPattern:
                pass  # Flink's answer to it is false or NULL
            except NotCarriedOver as error:
                raise WrongTypes(f"{error} is not supported in regular expressions here") from error
        return result

    return infer


def _regexp(text: str, pattern: str) -> bool:
    expression = _searching(pattern) if pattern else None
    return expression is not None and bounded(expression.search, text) is not None


def _extract(text: str, pattern: str, group: int = 0) -> str | None:
    expression = _searching(pattern)
    if expression is None or not 0 <= group <= expression.groups:
        return None
    match = bounded(expression.search, text)
    return None if match is None else match[group]


def _extract_all(text: str, pattern: str, group: int = 1) -> tuple[str | None, ...] | None:
    expression = _searching(pattern)
    if expression is None or not 0 <= group <= expression.groups:
        return None
    return tuple(match[group] for match in _all(expression, text))


def _all(expression: Any, text: str) -> list[Any]:
    return list(bounded(lambda **options: list(expression.finditer(text, **options))))


def _regexp_replace(text: str, pattern: str, new: str) -> str | None:
    expression = _searching(pattern)
    return None if expression is None else bounded(expression.sub, lambda match: new, text)


def _regexp_count(text: str, pattern: str) -> int | None:
    expression = _searching(pattern)
    return None if expression is None else len(_all(expression, text))


def _regexp_instr(text: str, pattern: str) -> int | None:
    expression = _searching(pattern)
    if expression is None:
        return None
    match = bounded(expression.search, text)
    return 0 if match is None else match.start() + 1


def _regexp_substr(text: str, pattern: str) -> str | None:
    return _extract(text, pattern)


_TWO = takes(TEXT, TEXT)
_GROUP = takes(TEXT, TEXT, WHOLE, least=2)


def _shown(row: Function, example: str, value: str, says: str) -> Function:
    return Function(row.infer, row.implementation, bind=row.bind, example=example, gives=value, says=says)


FUNCTIONS: dict[str, Function] = {
    "LIKE": _shown(_matcher(_like_test), "'a_b' LIKE '%!_b' ESCAPE '!'", "TRUE",
                   "`%` any characters, `_` one that ends no line; no escape unless named"),
    "SIMILAR TO": _shown(_matcher(_similar_test), "'abc' SIMILAR TO '(a|x)[[:ALPHA:]]+'", "TRUE",
                         "SQL's regular expressions, of the whole text"),
    "REGEXP": Function(_with_pattern(BOOLEAN, _TWO), _regexp, example="REGEXP('user=root', '=r\\w+$')", gives="TRUE",
                       says="whether Java's expression is found; a bad or empty one is not"),
    "REGEXP_EXTRACT": Function(_with_pattern(STRING, _GROUP), _extract, example="REGEXP_EXTRACT('a=12', '=(\\d+)', 1)",
                               gives="12", says="the match, or a group of it"),
    "REGEXP_EXTRACT_ALL": Function(_with_pattern(Type("ARRAY", args=(STRING,)), _GROUP), _extract_all,
                                   example="REGEXP_EXTRACT_ALL('a1b2', '(\\d)', 1)", gives="[1, 2]",
                                   says="of all matches a group, the first if none is named"),
    "REGEXP_REPLACE": Function(_with_pattern(STRING, takes(TEXT, TEXT, TEXT)), _regexp_replace,
                               example="REGEXP_REPLACE('a1b22', '\\d+', '#')", gives="a#b#",
                               says="all matches by a text, in which `$1` is two characters"),
    "REGEXP_COUNT": Function(_with_pattern(INT, _TWO), _regexp_count, example="REGEXP_COUNT('a1b22', '\\d')",
                             gives="3"),
    "REGEXP_INSTR": Function(_with_pattern(INT, _TWO), _regexp_instr, example="REGEXP_INSTR('ab1', '\\d')", gives="3"),
    "REGEXP_SUBSTR": Function(_with_pattern(STRING, _TWO), _regexp_substr, example="REGEXP_SUBSTR('ab12', '\\d+')",
                              gives="12"),
}  # fmt: skip
