"""Texts. Lengths and places count code points from 1, as in Flink."""

from __future__ import annotations

import base64
import binascii
import re
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

from vedette.plan.query import Expression, Type
from vedette.stream.functions.table import Function, Infer, WrongTypes, count, gives, shared, takes
from vedette.stream.values import numbers
from vedette.stream.values.types import BINARY, BOOLEAN, BYTES, INT, NULL, STRING, TEXT, WHOLE, Failed

MOST = 1_000_000
"""Characters of a text that REPEAT and its like may make."""
_TWO_TEXTS = takes(TEXT, TEXT)
_THREE_TEXTS = takes(TEXT, TEXT, TEXT)


def _as_first(check: Callable[[Sequence[Expression]], None], fixed: bool = True) -> Infer:
    """The type of the first argument; a CHAR becomes a VARCHAR unless the length stays (``fixed``)."""

    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        check(args)
        first = args[0].type
        return Type("VARCHAR", first.precision) if first.name == "CHAR" and not fixed else first

    return infer


# --- together


def _joined_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 2)
    for place, argument in enumerate(args):
        if argument.type == NULL or argument.type.name not in TEXT:
            raise WrongTypes(f"argument {place + 1} must be a text, not {argument.type}; use CAST(… AS STRING)")
    a, b = args[0].type, args[1].type
    if "STRING" in (a.name, b.name):
        return STRING
    return Type("CHAR" if a.name == b.name == "CHAR" else "VARCHAR", a.precision + b.precision)


def _concat_ws(separator: str | None, *texts: str | None) -> str | None:
    return None if separator is None else separator.join(text for text in texts if text is not None)


# --- cut


def substring(text: str, start: int, most: int | None = None) -> str | None:
    if most is not None and most < 0:
        return None
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if begin < 0:
        return ""
    return text[begin:] if most is None else text[begin : begin + most]


def _left(text: str, most: int) -> str:
    return text[: max(most, 0)]


def _right(text: str, most: int) -> str:
    return text[max(len(text) - most, 0) :] if most > 0 else ""


def _trim(text: str, *rest: str) -> str:
    *optional, side = rest
    characters = optional[0] if optional else " "
    if side == "LEADING":
        return text.lstrip(characters) if characters else text
    if side == "TRAILING":
        return text.rstrip(characters) if characters else text
    return text.strip(characters) if characters else text


def _trimmer(side: str) -> Callable[..., str]:
    return lambda text, *rest: _trim(text, *rest, side)


# --- changed


def _bounded(length: int) -> int:
    if length > MOST:
        raise Failed(f"a text of {length} characters; {MOST} at most")
    return length


def _pad(left: bool) -> Callable[[str, int, str], str | None]:
    def pad(text: str, length: int, pad: str) -> str | None:
        if length < 0 or not pad:
            return None
        missing = _bounded(length) - len(text)
        if missing <= 0:
            return text[:length]
        filled = (pad * (missing // len(pad) + 1))[:missing]
        return filled + text if left else text + filled

    return pad


def _repeat(text: str, times: int) -> str:
    _bounded(len(text) * max(times, 0))
    return text * max(times, 0)


_WORD = re.compile(r"[A-Za-z0-9]+")


def _replace(text: str, old: str, new: str) -> str:
    _bounded(len(text) + (text.count(old) if old else len(text) + 1) * len(new))
    return text.replace(old, new)


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), new[place] if place < len(new) else None)
    return text.translate(table)


def _overlay_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(TEXT, TEXT, WHOLE, WHOLE, least=3)(args)
    text, new = args[0].type, args[1].type
    if "STRING" in (text.name, new.name):
        return STRING
    return Type("VARCHAR", text.precision + new.precision)


def _overlay(text: str, new: str, start: int, most: int | None = None) -> str:
    if start <= 0 or start > len(text):
        return text
    most = len(new) if most is None else most
    return text[: start - 1] + new + (text[start - 1 + most :] if most >= 0 else text[start - 1 :])


# --- found


def _instr(text: str, part: str, start: int = 1, occurrence: int = 1) -> int | None:
    if occurrence <= 0 or start == 0:
        return None if occurrence <= 0 else 0
    if not part:
        return 1
    at = start - 2 if start > 0 else len(text) + start + 1
    for _ in range(occurrence):
        at = text.find(part, at + 1) if start > 0 else text.rfind(part, 0, max(at - 1, 0) + len(part))
        if at < 0:
            return 0
    return at + 1


def _locate(part: str, text: str, start: int = 1) -> int:
    if not part:
        return 1
    return text.find(part, max(start - 1, 0)) + 1


def _ascii(text: str) -> int:
    first = text[:1].encode("utf-8", "replace")[:1]
    return 0 if not first else first[0] - 256 * (first[0] > 127)


def _split_index(text: str, separator: Any, index: int) -> str | None:
    if isinstance(separator, int):
        separator = chr(separator) if 0 <= separator < 256 else ""
    if index < 0 or not text:
        return None
    parts = text.split(separator) if separator else re.split(r"\s", text)
    return parts[index] if index < len(parts) else None


def _split(text: str, separator: str) -> tuple[str, ...]:
    return tuple(text.split(separator) if text and separator else text)


def _elt_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 2, 1000)
    takes(WHOLE)(args[:1])
    return shared(args, 1)


def _elt(index: int | None, *texts: Any) -> Any:
    return texts[index - 1] if index is not None and 1 <= index <= len(texts) else None


# --- codes


def _from_base64(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "replace")
    except binascii.Error as error:
        raise Failed(f"{text!r:.60} is no Base64") from error


_CHARSETS = {"US-ASCII": "ascii", "ISO-8859-1": "latin-1", "UTF-8": "utf-8", "UTF-16BE": "utf-16-be",
             "UTF-16LE": "utf-16-le", "UTF-16": "utf-16-be"}  # fmt: skip


def _charset(name: str) -> str:
    codec = _CHARSETS.get(name.upper())
    if not codec:
        raise Failed(f"there is no character set {name!r:.40}; there are {', '.join(_CHARSETS)}")
    return codec


def _encode(text: str, name: str) -> bytes:
    mark = b"\xfe\xff" if name.upper() == "UTF-16" else b""
    return mark + text.encode(_charset(name), "replace")


def _url_decode(text: str) -> str | None:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        return None
    return urllib.parse.unquote_plus(text, errors="replace")


_URL_PARTS = ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "AUTHORITY", "FILE", "USERINFO")
_PROTOCOLS = ("http", "https", "ftp", "file", "jar", "mailto")
"""Those that Java knows; a URL of another has no parts."""


def _parse_url(url: str, part: str, key: str | None = None) -> str | None:
    try:
        parsed = urllib.parse.urlsplit(url.strip())
    except ValueError:
        return None
    if parsed.scheme not in _PROTOCOLS or part not in _URL_PARTS:
        return None
    if key is not None:
        if part != "QUERY":
            return None
        match = re.search(rf"(?:^|&){re.escape(key)}=([^&]*)", parsed.query)
        return match[1] if match else None
    authority = parsed.netloc
    user, has_user, server = authority.rpartition("@")
    host = server if server.endswith("]") else server.rpartition(":")[0] if ":" in server else server
    parts = {
        "HOST": host, "PATH": parsed.path, "QUERY": parsed.query or None, "REF": parsed.fragment or None,
        "PROTOCOL": parsed.scheme, "AUTHORITY": authority, "USERINFO": user if has_user else None,
        "FILE": parsed.path + (f"?{parsed.query}" if parsed.query else ""),
    }  # fmt: skip
    return parts[part]


def _is_decimal(text: str | None) -> bool:
    if text is None:
        return False
    try:
        numbers.float_of_text(text)
    except Failed:
        return False
    return True


_ONE_TEXT = takes(TEXT)
_TEXT_WHOLE = takes(TEXT, WHOLE)

FUNCTIONS: dict[str, Function] = {
    "||": Function(_joined_types, lambda a, b: a + b, example="'a' || 'b'", gives="ab", says="both texts, joined"),
    "CONCAT": Function(gives(STRING, takes(TEXT, more=True)), lambda *texts: "".join(texts),
                       example="CONCAT('a', 'b', 'c')", gives="abc", says="NULL if any is"),
    "CONCAT_WS": Function(gives(STRING, takes(TEXT, more=True)), _concat_ws, nulls=True,
                          example="CONCAT_WS('-', 'a', CAST(NULL AS STRING), 'b')", gives="a-b",
                          says="with a separator, without those that are NULL"),
    "UPPER": Function(_as_first(_ONE_TEXT), str.upper, example="UPPER('ab')", gives="AB"),
    "LOWER": Function(_as_first(_ONE_TEXT), str.lower, example="LOWER('AB')", gives="ab"),
    "INITCAP": Function(_as_first(_ONE_TEXT), lambda text: _WORD.sub(lambda word: word[0].capitalize(), text),
                        example="INITCAP('hello wORLD')", gives="Hello World"),
    "CHAR_LENGTH": Function(gives(INT, _ONE_TEXT), len, example="CHAR_LENGTH('abc')", gives="3"),
    "CHARACTER_LENGTH": Function(gives(INT, _ONE_TEXT), len, example="CHARACTER_LENGTH('abc')", gives="3"),
    "SUBSTRING": Function(_as_first(takes(TEXT, WHOLE, WHOLE, least=2), fixed=False), substring,
                          example="SUBSTRING('abcdef', 2, 3)", gives="bcd",
                          says="from a place on (from the end if negative), so many characters"),
    "SUBSTR": Function(_as_first(takes(TEXT, WHOLE, WHOLE, least=2), fixed=False), substring,
                       example="SUBSTR('abcdef', -2)", gives="ef", says="as `SUBSTRING`"),
    "LEFT": Function(_as_first(_TEXT_WHOLE, fixed=False), _left, example="LEFT('abc', 2)", gives="ab"),
    "RIGHT": Function(_as_first(_TEXT_WHOLE, fixed=False), _right, example="RIGHT('abc', 2)", gives="bc"),
    "TRIM": Function(_as_first(takes(TEXT, TEXT, least=1), fixed=False), _trim,
                     example="TRIM(BOTH 'x' FROM 'xxabxx')", gives="ab",
                     says="without characters of a set (a space) at its ends"),
    "LTRIM": Function(_as_first(takes(TEXT, TEXT, least=1), fixed=False), _trimmer("LEADING"), example="LTRIM('  a')",
                      gives="a"),
    "RTRIM": Function(_as_first(takes(TEXT, TEXT, least=1), fixed=False), _trimmer("TRAILING"),
                      example="RTRIM('ab', 'b')", gives="a"),
    "BTRIM": Function(gives(STRING, takes(TEXT, TEXT, least=1)), _trimmer("BOTH"), example="BTRIM('xax', 'x')",
                      gives="a"),
    "LPAD": Function(gives(STRING, takes(TEXT, WHOLE, TEXT)), _pad(True), example="LPAD('7', 3, '0')", gives="007"),
    "RPAD": Function(gives(STRING, takes(TEXT, WHOLE, TEXT)), _pad(False), example="RPAD('7', 3, '.')", gives="7.."),
    "REPEAT": Function(gives(STRING, _TEXT_WHOLE), _repeat, example="REPEAT('ab', 2)", gives="abab"),
    "REVERSE": Function(gives(STRING, _ONE_TEXT), lambda text: text[::-1], example="REVERSE('abc')", gives="cba"),
    "REPLACE": Function(gives(STRING, _THREE_TEXTS), _replace, example="REPLACE('a-b-c', '-', '+')", gives="a+b+c"),
    "TRANSLATE": Function(gives(STRING, _THREE_TEXTS), _translate, example="TRANSLATE('abc', 'ac', 'x')", gives="xb",
                          says="character by character; those without a partner go"),
    "POSITION": Function(gives(INT, _TWO_TEXTS), lambda part, text: text.find(part) + 1,
                         example="POSITION('b' IN 'abc')", gives="2", says="the first place, 0 for none"),
    "INSTR": Function(gives(INT, takes(TEXT, TEXT, WHOLE, WHOLE, least=2)), _instr, example="INSTR('abcb', 'b')",
                      gives="2", says="likewise; with where to begin, and which occurrence"),
    "LOCATE": Function(gives(INT, takes(TEXT, TEXT, WHOLE, least=2)), _locate, example="LOCATE('b', 'abcb', 3)",
                       gives="4", says="likewise, from a place on"),
    "OVERLAY": Function(_overlay_types, _overlay,
                        example="OVERLAY('abcd' PLACING 'X' FROM 2 FOR 2)", gives="aXd"),
    "ASCII": Function(gives(INT, _ONE_TEXT), _ascii, example="ASCII('a')", gives="97", says="the first byte, signed"),
    "CHR": Function(gives(STRING, takes(WHOLE)), lambda code: "" if code < 0 else chr(code % 256), example="CHR(65)",
                    gives="A"),
    "SPLIT_INDEX": Function(gives(STRING, takes(TEXT, (*TEXT, *WHOLE), WHOLE)), _split_index,
                            example="SPLIT_INDEX('a,b,c', ',', 1)", gives="b", says="a part, counted from 0"),
    "SPLIT": Function(gives(Type("ARRAY", args=(STRING,)), _TWO_TEXTS), _split, example="SPLIT('a,b', ',')",
                      gives="[a, b]"),
    "STARTSWITH": Function(gives(BOOLEAN, _TWO_TEXTS), str.startswith, example="STARTSWITH('abc', 'ab')",
                           gives="TRUE"),
    "ENDSWITH": Function(gives(BOOLEAN, _TWO_TEXTS), str.endswith, example="ENDSWITH('abc', 'bc')", gives="TRUE"),
    "ELT": Function(_elt_types, _elt, nulls=True, example="ELT(2, 'a', 'b')", gives="b"),
    "URL_ENCODE": Function(gives(STRING, _ONE_TEXT), lambda text: urllib.parse.quote_plus(text, safe="*-._").replace(
        "~", "%7E"), example="URL_ENCODE('a b&c')", gives="a+b%26c"),
    "URL_DECODE": Function(gives(STRING, _ONE_TEXT), _url_decode, example="URL_DECODE('a+b%26c')", gives="a b&c"),
    "PARSE_URL": Function(gives(STRING, takes(TEXT, TEXT, TEXT, least=2)), _parse_url,
                          example="PARSE_URL('https://host.example/p?q=1', 'QUERY', 'q')", gives="1",
                          says="HOST, PATH, QUERY, REF, PROTOCOL, AUTHORITY, FILE, USERINFO, or a key of QUERY"),
    "TO_BASE64": Function(gives(STRING, _ONE_TEXT),
                          lambda text: base64.b64encode(text.encode("utf-8", "replace")).decode(),
                          example="TO_BASE64('Hello')", gives="SGVsbG8="),
    "FROM_BASE64": Function(gives(STRING, _ONE_TEXT), _from_base64, example="FROM_BASE64('SGVsbG8=')", gives="Hello"),
    "ENCODE": Function(gives(BYTES, _TWO_TEXTS), _encode, example="HEX(ENCODE('a', 'UTF-16LE'))", gives="6100"),
    "DECODE": Function(gives(STRING, takes(BINARY, TEXT)), lambda data, name: data.decode(_charset(name), "replace"),
                       example="DECODE(UNHEX('6162'), 'UTF-8')", gives="ab"),
    "IS_ALPHA": Function(gives(BOOLEAN, _ONE_TEXT), lambda text: bool(text) and text.isalpha(), nulls=True,
                         example="IS_ALPHA('ab')", gives="TRUE", says="letters only; FALSE for NULL"),
    "IS_DIGIT": Function(gives(BOOLEAN, _ONE_TEXT), lambda text: bool(text) and text.isdecimal(), nulls=True,
                         example="IS_DIGIT('12')", gives="TRUE"),
    "IS_DECIMAL": Function(gives(BOOLEAN, _ONE_TEXT), _is_decimal, nulls=True, example="IS_DECIMAL('1.5')",
                           gives="TRUE"),
}  # fmt: skip
