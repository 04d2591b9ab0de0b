"""Table functions: the rows that ``Expand`` puts behind a row, as a list of tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vedette.plan.query import Expression, Type
from vedette.stream.functions.table import Function, WrongTypes, count
from vedette.stream.values.types import INT

ORDINALITY = "ORDINALITY"
"""The option of WITH ORDINALITY: the number of each row behind its columns, from 1."""


def columns(of: Type) -> tuple[tuple[str, Type], ...]:
    """Names and types of the columns that UNNEST of a value gives. Raises ``WrongTypes``."""
    if of.name == "MAP":
        return ("key", of.args[0]), ("value", of.args[1])
    if of.name != "ARRAY":
        raise WrongTypes(f"argument 1 must be an array or a map, not {of}")
    element = of.args[0]
    return tuple(element.args) if element.name == "ROW" else (("element", element),)


def _unnest_type(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 1)
    more = (("ordinality", INT),) if ORDINALITY in options else ()
    return Type("ARRAY", args=(Type("ROW", args=(*columns(args[0].type), *more)),))


def _unnest(args: Sequence[Expression], options: tuple[Any, ...], to: Type) -> Callable[[Any], list[tuple[Any, ...]]]:
    of = args[0].type
    rows: Callable[[Any], list[tuple[Any, ...]]]
    if of.name == "MAP":
        rows = lambda value: list(value.items())  # noqa: E731
    elif of.args[0].name == "ROW":
        nothing = (None,) * len(of.args[0].args)
        rows = lambda value: [nothing if element is None else tuple(element) for element in value]  # noqa: E731
    else:
        rows = lambda value: [(element,) for element in value]  # noqa: E731
    if ORDINALITY in options:
        return lambda value: [(*row, number) for number, row in enumerate(rows(value), 1)]
    return rows


def _bound(value: Any) -> Any:
    raise AssertionError("UNNEST is bound to a type")


FUNCTIONS: dict[str, Function] = {
    "UNNEST": Function(
        _unnest_type, _bound, bind=_unnest, example="SELECT t FROM events CROSS JOIN UNNEST(ARRAY[1, 2]) AS u (t)",
        says="a row for each element of an array or a map; WITH ORDINALITY numbers them",
    ),
}  # fmt: skip
