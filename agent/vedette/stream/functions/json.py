"""JSON in texts: JSON_VALUE, JSON_QUERY, JSON_EXISTS, IS JSON, and what makes JSON.

Options of the first three are clauses and what they say, one behind the other: ``RETURNING`` (a type); ``WRAPPER``
(``WITHOUT``, ``CONDITIONAL``, ``UNCONDITIONAL``); ``EMPTY`` and ``ERROR`` (``NULL``, ``ERROR``, ``DEFAULT``, ``TRUE``,
``FALSE``, ``UNKNOWN``, ``EMPTY ARRAY``, ``EMPTY OBJECT``). Values of DEFAULT are arguments behind the path, as their
clauses follow each other.

A path without ``lax`` is strict, as in Flink: what is missing is an ERROR, not EMPTY. Paths are those of Jayway's
JsonPath without filters and functions. Numbers keep their digits (1.50 stays); objects are written with sorted keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from vedette.plan.query import Call, Expression, Type
from vedette.stream.functions import cast
from vedette.stream.functions.table import Function, WrongTypes, constant, count, gives, takes
from vedette.stream.values.types import BOOLEAN, NULL, STRING, TEXT, Failed


class _Broken(ValueError):
    """No JSON, or a path that finds nothing."""


def _no_constant(text: str) -> Any:
    raise _Broken(text)


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant)


_ESCAPE = re.compile(
    r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Half a pair of UTF-16, which Java's UTF-8 has as a question mark."""


MAX_KEPT = 16 << 10
"""Characters of a text of which several are remembered: as Python's objects each may take thirty times its bytes."""


def parsed(text: str) -> Any:
    """The first value of a text, as Jackson reads it. Raises ``_Broken``."""
    return _short(text) if len(text) <= MAX_KEPT else _long(text)


def _parse(text: str) -> Any:
    start = len(text) - len(text.lstrip(" \t\n\r"))
    if "\\u" in text:
        text = _ESCAPE.sub(lambda match: "?" if match[1] else match[0], text)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise _Broken(str(error)) from error
    if not isinstance(value, dict | list | str) and text[end : end + 1] not in ("", " ", "\t", "\n", "\r"):
        raise _Broken(text)
    return value


_short, _long = lru_cache(64)(_parse), lru_cache(1)(_parse)


# --- paths

_STEP = re.compile(
    r"""\.\.(?P<deep>[^.\[\]()\s'"]+) | \.\.\[(?P<deepword>'[^']*'|"[^"]*")\] | \.(?P<name>[^.\[\]()\s'"]+)
    | \[\s*(?P<all>\*)\s*\] | \[\s*(?P<words>(?:'[^']*'|"[^"]*")(?:\s*,\s*(?:'[^']*'|"[^"]*"))*)\s*\]
    | \[\s*(?P<indexes>-?\d+(?:\s*,\s*-?\d+)*)\s*\] | \[\s*(?P<slice>(?:-?\d+)?\s*:\s*(?:-?\d+)?)\s*\]""",
    re.VERBOSE,
)
_MODE = re.compile(r"\s*(strict|lax)\s+(.+)", re.IGNORECASE | re.DOTALL)
Step = tuple[str, Any]


@lru_cache(1024)
def path_of(text: str) -> tuple[bool, tuple[Step, ...] | None]:
    """Whether it is lax, and its steps; None for a path that is none."""
    mode = _MODE.fullmatch(text)
    lax, path = (mode[1].lower() == "lax", mode[2]) if mode else (False, text)
    path = path.strip()
    if not path:
        return lax, None
    if path[0] not in "$@":
        path = "$." + path
    at, steps = 1, []
    while at < len(path):
        match = _STEP.match(path, at)
        if not match:
            return lax, None
        kind = str(match.lastgroup)
        value: Any = match[kind]
        if kind in ("words", "deepword"):
            value = tuple(word[1:-1] for word in re.findall(r"'[^']*'|\"[^\"]*\"", value))
            kind = "words" if kind == "words" else "deep"
            value = value if kind == "words" else value[0]
        elif kind == "indexes":
            value = tuple(map(int, value.split(",")))
        elif kind == "slice":
            value = tuple(int(bound) if bound.strip() else None for bound in value.split(":"))
        elif value == "*":
            kind = "all" if kind in ("name", "all") else "deepall"
        steps.append((kind, value))
        at = match.end()
    return lax, tuple(steps)


def _definite(steps: Sequence[Step]) -> bool:
    """Whether a path names one value at most."""
    return all(kind == "name" or (kind in ("words", "indexes") and len(value) == 1) for kind, value in steps)


def _below(value: Any) -> Iterator[Any]:
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in inner:
        yield from _below(child)


def _step(value: Any, step: Step) -> Iterator[Any]:
    kind, argument = step
    if kind in ("deep", "deepall"):
        for descendant in _below(value):
            yield from _step(descendant, ("all", "*") if kind == "deepall" else ("name", argument))
    elif kind == "all":
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif kind in ("name", "words") and isinstance(value, dict):
        names = (argument,) if kind == "name" else argument
        if len(names) > 1:
            yield {name: value[name] for name in names if name in value}
        elif names[0] in value:
            yield value[names[0]]
    elif kind == "indexes" and isinstance(value, list):
        for index in argument:
            if -len(value) <= index < len(value):
                yield value[index]
    elif kind == "slice" and isinstance(value, list):
        yield from value[argument[0] : argument[1]]


def at_path(document: Any, steps: Sequence[Step]) -> Any:
    """Return what a path finds; of one that may name several values a list. Raises ``_Broken`` for nothing."""
    values = [document]
    definite = True
    for step in steps:
        below = values
        values = [child for value in below for child in _step(value, step)]
        definite = definite and (_definite((step,)) or (step[0] == "words" and step is steps[-1]))  # one object
        if definite and not values:
            raise _Broken("nothing is there")
    return values[0] if definite else values


def _looked_up(text: str, path: str) -> tuple[bool, Any, bool]:
    """Whether the path is lax, what it finds, and whether that is an error."""
    lax, steps = path_of(path)
    try:
        document = parsed(text)
    except _Broken:
        return lax, None, not lax
    if steps is None:
        return False, None, True
    try:
        return lax, at_path(document, steps), False
    except (_Broken, RecursionError):
        return lax, None, not lax


# --- texts


def written(value: Any) -> str:
    """Compact JSON with sorted keys, as Jackson writes it."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{written(key)}:{written(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _scalar_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


# --- JSON_VALUE, JSON_QUERY, JSON_EXISTS


def clauses(options: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(options[::2], options[1::2], strict=True))


def _paths(args: Sequence[Expression]) -> None:
    """Raises ``WrongTypes`` for a constant path that is none."""
    if len(args) < 2:
        raise WrongTypes("takes a text and a path")
    takes(TEXT, TEXT)(args[:2])
    path = constant(args[1])
    if isinstance(path, str):
        if "?(" in path or path.rstrip().endswith("()"):
            raise WrongTypes(f"the path {path!r:.60} has a filter or a function; name the members instead")
        if path_of(path)[1] is None:
            raise WrongTypes(f"{path!r:.60} is no path such as $.a.b[0]")


_RETURNED = ("STRING", "VARCHAR", "BOOLEAN", "INT", "DOUBLE")


def _value_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    _paths(args)
    chosen = clauses(options)
    to: Type = chosen.get("RETURNING", STRING)
    if to.name not in _RETURNED:
        raise WrongTypes(f"RETURNING {to}: there are STRING, BOOLEAN, INT and DOUBLE; CAST the value")
    defaults = list(chosen.values()).count("DEFAULT")
    count(args, 2 + defaults)
    for default in args[2:]:
        if default.type != NULL and cast.conversion(default.type, to) is None:
            raise WrongTypes(f"a DEFAULT of {default.type} beside RETURNING {to}")
    return to


def _returned(to: Type) -> Callable[[Any], Any]:
    def change(value: Any) -> Any:
        match to.name:
            case "BOOLEAN" if isinstance(value, bool):
                return value
            case "INT" if type(value) is int and -(1 << 31) <= value < 1 << 31:
                return value
            case "DOUBLE" if isinstance(value, int | Decimal) and not isinstance(value, bool):
                return float(value)
            case "STRING" | "VARCHAR":
                return _scalar_text(value)
        raise Failed(f"{value!r:.60} in JSON is no {to}")

    return change


def _value(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    chosen, change = clauses(options), _returned(type)
    places = {clause: 2 + place for place, clause in enumerate(key for key in chosen if chosen[key] == "DEFAULT")}
    converted = {
        place: _scalar_text
        if args[place].type == BOOLEAN and type.name in TEXT
        else cast.implicit(args[place].type, type)
        for place in places.values()
    }

    def otherwise(clause: str, values: Sequence[Any]) -> Any:
        action = chosen.get(clause, "NULL")
        if action == "ERROR":
            raise Failed(f"JSON_VALUE: {clause}")
        if action == "NULL":
            return None
        value, to = values[places[clause]], converted[places[clause]]
        return value if value is None or to is None else to(value)

    def value(*values: Any) -> Any:
        if values[0] is None or values[1] is None:
            return None
        lax, selected, error = _looked_up(values[0], values[1])
        if error:
            return otherwise("ERROR", values)
        if selected is None or isinstance(selected, dict | list):
            return otherwise("EMPTY" if lax else "ERROR", values)
        return change(selected)

    return value


def _query_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    _paths(args)
    count(args, 2)
    to: Type = clauses(options).get("RETURNING", STRING)
    if to.name not in ("STRING", "VARCHAR"):
        raise WrongTypes(f"RETURNING {to}: there is STRING")
    return to


def _query(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    chosen = clauses(options)
    wrapper = chosen.get("WRAPPER", "WITHOUT")

    def otherwise(clause: str) -> str | None:
        action = chosen.get(clause, "NULL")
        if action == "ERROR":
            raise Failed(f"JSON_QUERY: {clause}")
        return {"NULL": None, "EMPTY ARRAY": "[]", "EMPTY OBJECT": "{}"}[action]

    def query(text: str, path: str) -> str | None:
        lax, selected, error = _looked_up(text, path)
        if error:
            return otherwise("ERROR")
        if selected is not None and (
            wrapper == "UNCONDITIONAL" or (wrapper == "CONDITIONAL" and not isinstance(selected, list))
        ):
            selected = [selected]
        if not isinstance(selected, dict | list):
            return otherwise("EMPTY" if lax else "ERROR")
        return written(selected)

    return query


def _exists_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    _paths(args)
    count(args, 2)
    return BOOLEAN


def _exists(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    action = clauses(options).get("ERROR", "FALSE")

    def exists(text: str, path: str) -> bool | None:
        _, selected, error = _looked_up(text, path)
        if not error:
            return selected is not None
        if action == "ERROR":
            raise Failed("JSON_EXISTS: ERROR")
        return {"TRUE": True, "FALSE": False, "UNKNOWN": None}[action]

    return exists


# --- IS JSON


def _is_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(TEXT)(args)
    return BOOLEAN


def _is_json(text: str | None, kind: str = "VALUE") -> bool:
    if text is None:
        return False
    try:
        value = parsed(text)
    except _Broken:
        return False
    match kind:
        case "OBJECT":
            return isinstance(value, dict)
        case "ARRAY":
            return isinstance(value, list)
        case "SCALAR":
            return not isinstance(value, dict | list)
    return True


# --- what makes JSON


def writer(source: Type) -> Callable[[Any], str]:
    """Return what writes values of a type as JSON."""
    write = cast.text_of(source) or str
    match source.name:
        case "CHAR" | "VARCHAR" | "STRING":
            return _quoted
        case "BOOLEAN":
            return lambda value: "true" if value else "false"
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT" | "DECIMAL":
            return str
        case "DATE":
            return lambda value: f'"{write(value)}"'
        case "TIMESTAMP":
            return lambda value: f'"{_iso(write(value))}"'
        case "TIMESTAMP_LTZ":
            return lambda value: f'"{_iso(write(value))}Z"'
        case "FLOAT" | "DOUBLE":
            return lambda value: write(value).replace("E", "E+").replace("E+-", "E-") if value else "0.0"
        case "ARRAY":
            inner = _or_null(writer(source.args[0]))
            return lambda value: f"[{','.join(map(inner, value))}]"
        case "MAP" if source.args[0].name in TEXT:
            inner = _or_null(writer(source.args[1]))
            return lambda value: _object((key, inner(item)) for key, item in value.items())
        case "ROW":
            parts = [(name, _or_null(writer(of))) for name, of in source.args]
            return lambda value: _object((name, part(field)) for (name, part), field in zip(parts, value, strict=True))
    raise WrongTypes(f"{source} is not written as JSON; CAST it to STRING")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _object(pairs: Iterable[tuple[str, str]]) -> str:
    return f"{{{','.join(f'{_quoted(name)}:{value}' for name, value in pairs)}}}"


def _or_null(write: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "null" if value is None else write(value)


def _iso(text: str) -> str:
    whole, _, fraction = text.replace(" ", "T").partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def _string_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 1)
    writer(args[0].type)
    return STRING


def _string(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    return writer(args[0].type)


def _object_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    if len(args) % 2:
        raise WrongTypes("takes pairs of a name and a value")
    for name, value in zip(args[::2], args[1::2], strict=True):
        takes(TEXT)((name,))
        if value.type != NULL:
            writer(value.type)
    return STRING


def _object_of(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    absent = bool(options) and options[0] == "ABSENT"
    writers = [_or_null(str if argument.type == NULL else _part_writer(argument)) for argument in args[1::2]]

    def build(*values: Any) -> str:
        entries = zip(values[::2], values[1::2], writers, strict=True)
        pairs = {name: write(value) for name, value, write in entries if value is not None or not absent}
        return _object(pairs.items())

    return build


def _part_writer(argument: Expression) -> Callable[[Any], str]:
    """Return what writes an argument; the text of a JSON function is put in as JSON."""
    if isinstance(argument, Call) and argument.name in ("JSON_OBJECT", "JSON_ARRAY", "JSON_STRING"):
        return str
    return writer(argument.type)


def _array_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    for argument in args:
        if argument.type != NULL:
            writer(argument.type)
    return STRING


def _array_of(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    absent = not options or options[0] == "ABSENT"
    writers = [_or_null(str if argument.type == NULL else _part_writer(argument)) for argument in args]

    def build(*values: Any) -> str:
        items = zip(values, writers, strict=True)
        return f"[{','.join(write(value) for value, write in items if value is not None or not absent)}]"

    return build


def _unquote(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            value = json.loads(text)
        except ValueError:
            return text
        return value if isinstance(value, str) else text
    return text


FUNCTIONS: dict[str, Function] = {
    "JSON_VALUE": Function(_value_types, _unquote, nulls=True, bind=_value,
                           example="JSON_VALUE('{\"a\": {\"b\": 1.50}}', '$.a.b')", gives="1.50",
                           says="a scalar; RETURNING STRING, BOOLEAN, INT or DOUBLE; ON EMPTY, ON ERROR"),
    "JSON_QUERY": Function(_query_types, _unquote, bind=_query,
                           example="JSON_QUERY('{\"b\": 1, \"a\": [2]}', '$')", gives='{"a":[2],"b":1}',
                           says="an object or array as text; WRAPPER, ON EMPTY, ON ERROR"),
    "JSON_EXISTS": Function(_exists_types, _unquote, bind=_exists, example="JSON_EXISTS('{\"a\": 1}', '$.a')",
                            gives="TRUE", says="whether something other than null is there"),
    "IS JSON": Function(_is_types, _is_json, nulls=True, example="'[1]' IS JSON ARRAY", gives="TRUE",
                        says="VALUE, OBJECT, ARRAY, SCALAR; FALSE for NULL"),
    "IS NOT JSON": Function(_is_types, lambda text, kind="VALUE": not _is_json(text, kind), nulls=True,
                            example="'x' IS NOT JSON", gives="TRUE", says="TRUE for NULL"),
    "JSON_STRING": Function(_string_types, _unquote, bind=_string, example="JSON_STRING('a\"b')", gives='"a\\"b"',
                            says="a value as JSON"),
    "JSON_OBJECT": Function(_object_types, _unquote, nulls=True, bind=_object_of,
                            example="JSON_OBJECT('a' VALUE 1)", gives='{"a":1}'),
    "JSON_ARRAY": Function(_array_types, _unquote, nulls=True, bind=_array_of, example="JSON_ARRAY(1, 'a')",
                           gives='[1,"a"]'),
    "JSON_QUOTE": Function(gives(STRING, takes(TEXT)), _quoted, example="JSON_QUOTE('a')", gives='"a"'),
    "JSON_UNQUOTE": Function(gives(STRING, takes(TEXT)), _unquote, example="JSON_UNQUOTE('\"a\"')", gives="a"),
}  # fmt: skip
