"""A document from outside as the class that declares it: its fields, their bounds and their meaning.

A document is a frozen ``msgspec.Struct``. What may stand in a field is its type: a bound is a ``msgspec.Meta``, whose
``description`` says what is expected there; what ties fields together is the class's ``__post_init__``, which raises
ValueError, or ``Misfit`` where one field is to blame. ``forbid_unknown_fields`` refuses fields that the class does not
have; else they are passed over.

``read`` takes what ``foreign.read`` or msgpack gave. It is strict: no text counts as a number, nor true as 1. What does
not fit is refused with its place, what is expected there and what is there::

    groups[0].bundles.main.to.sha256: expects 64 lower-case hex digits, not 'abc'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import EnumType
from itertools import repeat
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import Meta, Struct, ValidationError, convert, structs

from vedette.model.times import iso_time
from vedette.system import foreign
from vedette.system.within import NAME

if TYPE_CHECKING:
    Time = int
else:

    class Time(int):
        """UTC microseconds; in a document a time in RFC 3339."""


T = TypeVar("T")
Readers = Mapping[type, Callable[[Any], Any]]
"""How a class that is no document is read from what stands in one; each raises ValueError."""

Name = Annotated[str, Meta(pattern=rf"\A{NAME}\Z", description="letters, digits, '.', '_' or '-'")]
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z", description="64 lower-case hex digits")]
Hex32 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z", description="32 hex digits")]
Count = Annotated[int, Meta(ge=0, le=foreign.COUNT, description="a whole number from 0")]
Serial = Annotated[int, Meta(gt=0, lt=foreign.COUNT, description="a number above 0")]
_SHOWN = 80
"""Characters of a value or a name in a refusal."""
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", bytes: "Base64"}


class Misfit(ValueError):
    """What ``__post_init__`` raises when the field at ``place`` does not fit."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")


def opened(data: bytes, most: int, format: int) -> dict[str, Any]:
    """The JSON object in ``data``, of at most ``most`` bytes and of this ``format``. Raises ValueError."""
    if len(data) > most:
        raise ValueError(f"{len(data)} bytes, at most {most}")
    return of_format(foreign.read(data), format)


def of_format(document: Any, format: int) -> dict[str, Any]:
    """``document``, an object of this ``format``. Raises ValueError."""
    if not isinstance(document, dict):
        raise ValueError("expects a JSON object")
    stated = document.get("format")
    if stated != format:
        raise ValueError(f"format {_shown(stated)}: this agent knows {format}: upgrade the agent")
    return document


def read(
    kind: type[T],
    value: object,
    where: str = "",
    *,
    refused: type[ValueError] = ValueError,
    readers: Readers | None = None,
) -> T:
    """``value``, which stands at ``where``, as ``kind``. Raises ``refused`` for the first thing that does not fit."""
    every = {Time: _time, **(readers or {})}

    def hook(kind: type, value: object) -> Any:
        return every[kind](value)

    try:
        return convert(value, kind, dec_hook=hook)
    except ValidationError as error:
        raise refused(_fault(kind, value, where, hook, error)) from error


def unique(names: Iterable[str], where: str) -> None:
    """Raises Misfit for a name that comes twice in the list ``where``."""
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            raise Misfit(f"{where}[{i}]", f"the name {name!r} is used twice")
        seen.add(name)


def _time(value: object) -> int:
    time = iso_time(value) if isinstance(value, str) else None
    if time is None:
        raise ValueError(f'expects a time such as "2026-11-22T00:00:00Z", not {_shown(value)}')
    return Time(time)


def _fault(kind: Any, value: Any, where: str, hook: Callable[[type, object], Any], error: ValidationError) -> str:
    """The text for the first thing in ``value`` that does not fit ``kind``; ``error``: msgspec's refusal of it all."""
    bare, meaning = _bare(kind)
    for place, part_kind, part in _parts(bare, value):
        try:
            convert(part, part_kind, dec_hook=hook)
        except ValidationError as below:
            return _fault(part_kind, part, where + place, hook, below)
    if isinstance(error.__cause__, Misfit):
        return f"{where}.{error.__cause__}".removeprefix(".")
    place = where.removeprefix(".") and where.removeprefix(".") + ": "
    if isinstance(error.__cause__, ValueError):  # of ``__post_init__``, or of a reader
        return f"{place}{error.__cause__}"
    if isinstance(value, dict) and _is_struct(bare):
        names = [field.encode_name for field in structs.fields(bare)]
        unknown = min((str(name)[:_SHOWN] for name in value if name not in names), default="")
        return f"{place}{unknown}: unknown key; known: {', '.join(names) or 'none'}"
    return f"{place}expects {meaning or _word(bare)}, not {_shown(value)}"


def _bare(kind: Any) -> tuple[Any, str]:
    """A type without its bounds, and what its values are described as; empty: it does not say."""
    if get_origin(kind) is not Annotated:
        return kind, ""
    described = [meta.description for meta in kind.__metadata__ if meta.description]
    return kind.__origin__, described[0] if described else ""


def _parts(kind: Any, value: Any) -> list[tuple[str, Any, Any]]:
    """Place, type and value of what ``value`` is made of, as far as it has the form of ``kind``."""
    origin = get_origin(kind) or kind
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        others = [argument for argument in arguments if argument is not NoneType]
        return [("", others[0], value)] if len(others) == 1 and value is not None else []
    if isinstance(value, dict) and _is_struct(kind):
        fields = [field for field in structs.fields(kind) if field.required or field.encode_name in value]
        return [(f".{field.encode_name}", field.type, value.get(field.encode_name)) for field in fields]
    if isinstance(value, dict) and origin in (dict, Mapping):
        keys = [(f".{str(key)[:_SHOWN]}", arguments[0], key) for key in value]
        return [*keys, *((f".{str(key)[:_SHOWN]}", arguments[1], part) for key, part in value.items())]
    if isinstance(value, list | tuple) and origin in (list, tuple, frozenset):
        kinds = arguments if origin is tuple and arguments[-1] is not Ellipsis else repeat(arguments[0])
        return [(f"[{i}]", part_kind, part) for i, (part_kind, part) in enumerate(zip(kinds, value, strict=False))]
    return []


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _word(kind: Any) -> str:
    origin = get_origin(kind) or kind
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if isinstance(origin, EnumType):
        return f"one of {', '.join(map(str, origin))}"
    if _is_struct(origin) or origin in (dict, Mapping):
        return "an object"
    if origin is tuple and Ellipsis not in get_args(kind):
        return f"a list of {len(get_args(kind))}"
    if origin in (Union, UnionType):
        return " or ".join(_word(argument) for argument in get_args(kind))
    return _WORDS.get(origin, "nothing" if origin is NoneType else "a list")


def _shown(value: object) -> str:
    if isinstance(value, dict | list | tuple):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    return repr(value[:_SHOWN] if isinstance(value, str) else value)[: 2 * _SHOWN]
