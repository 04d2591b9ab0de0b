"""Comparison, logic, and the choice between values. AND, OR, CASE and COALESCE evaluate no more than they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vedette.plan.query import Expression, Literal, Type
from vedette.stream.functions import cast
from vedette.stream.functions.table import Function, Infer, WrongTypes, count, of, shared, shown
from vedette.stream.values.types import (
    APPROXIMATE,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    NULL,
    NUMERIC,
    STAMP,
    STRING,
    TEXT,
    WHOLE,
    common,
)

# --- = <> < <= > >=


def compared(args: Sequence[Expression], ordered: bool) -> Type:
    """The type in which two values are compared. Raises ``WrongTypes`` where Flink refuses to compare them."""
    a, b = of(args)
    merged = comparable(a, b, ordered)
    if merged is None:
        raise WrongTypes("the two cannot be compared; CAST one of them")
    if ordered and merged.name in ("ARRAY", "MAP", "ROW"):
        raise WrongTypes(f"values of {merged} have no order")
    return merged


def comparable(a: Type, b: Type, ordered: bool) -> Type | None:
    """As ``compared``; None where Flink refuses. A text is read as the other's type, but ``=`` takes no text beside a
    number."""
    if a.name in NUMERIC and b.name in NUMERIC and (a.name in APPROXIMATE or b.name in APPROXIMATE):
        return FLOAT if {a.name, b.name} <= {*WHOLE, "FLOAT"} else DOUBLE
    merged = common((a, b))
    if merged is not None:
        return merged
    for text, other in ((a, b), (b, a)):
        if text.name in TEXT and (other.name in (*STAMP, "DATE", "TIME") or (ordered and other.name in NUMERIC)):
            return other
    return None


def _compares(ordered: bool) -> Infer:
    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        count(args, 2)
        compared(args, ordered)
        return BOOLEAN

    return infer


def _comparison(name: str, test: Callable[[Any, Any], Any]) -> Function:
    ordered = name not in ("=", "<>")

    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
        to = compared(args, ordered)
        left, right = both(args, to)
        if to.name in ("ARRAY", "MAP", "ROW"):
            first, second, wanted = left or _same, right or _same, test(0, 0)
            return lambda a, b: _same_nested(first(a), second(b)) is wanted
        if left is None and right is None:
            return test
        first, second = left or _same, right or _same
        if opposite := turned(name, args):
            other = COMPARISONS[opposite].implementation
            return lambda a, b: not other(first(a), second(b))
        return lambda a, b: test(first(a), second(b))

    return Function(_compares(ordered), test, bind=bind)


def turned(name: str, args: Sequence[Expression]) -> str | None:
    """The comparison that must be false for this one to be true, where Python's own takes NaN otherwise: beside a
    DECIMAL, NaN is the largest (Java's ``Double.compare``)."""
    a, b = of(args)
    if a.name == "DECIMAL" and b.name in APPROXIMATE:
        return {"<": ">=", "<=": ">"}.get(name)
    if b.name == "DECIMAL" and a.name in APPROXIMATE:
        return {">": "<=", ">=": "<"}.get(name)
    return None


def both(args: Sequence[Expression], to: Type) -> list[Callable[[Any], Any] | None]:
    """For each argument what brings its values to ``to``; None where they are so."""
    return [cast.implicit(argument.type, to) for argument in args]


def _same(value: Any) -> Any:
    return value


def _same_nested(a: Any, b: Any) -> bool:
    """Whether two arrays, maps or rows are equal; with a NULL in an array they are not."""
    return bool(a == b and (not isinstance(a, tuple) or None not in a))


# --- IN, BETWEEN


def _in_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 2, 100_000)
    _in_type(args)
    return BOOLEAN


def _in_type(args: Sequence[Expression]) -> Type:
    """The type in which IN compares; here a number beside texts is one of them, and a DECIMAL beside a FLOAT is."""
    merged = args[0].type
    if {argument.type.name in TEXT for argument in args} == {True, False} and all(
        argument.type.name in (*TEXT, *NUMERIC, "NULL") for argument in args
    ):
        return STRING
    for argument in args[1:]:
        if merged != FLOAT or argument.type.name not in (*WHOLE, "DECIMAL"):
            merged = compared((Literal(None, merged), argument), True)
    return merged


def _in(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    to = both(args, _in_type(args))

    def test(value: Any, *listed: Any) -> bool | None:
        if value is None:
            return None
        value = to[0](value) if to[0] else value
        unknown = False
        for place, candidate in enumerate(listed, 1):
            if candidate is None:
                unknown = True
            elif (change(candidate) if (change := to[place]) else candidate) == value:
                return True
        return None if unknown else False

    return test


def _between_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 3)
    compared(args[:2], True)
    compared((args[0], args[2]), True)
    return BOOLEAN


def _bound(function: Function, args: Sequence[Expression]) -> Callable[..., Any]:
    """The comparison for arguments of these types."""
    assert function.bind is not None
    return function.bind(args, (), BOOLEAN)


def _between(symmetric: bool) -> Function:
    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
        not_less = _bound(COMPARISONS[">="], args[:2])
        not_more = _bound(COMPARISONS["<="], (args[0], args[2]))

        def within(x: Any, a: Any, b: Any) -> bool | None:
            above = None if x is None or a is None else not_less(x, a)
            below = None if x is None or b is None else not_more(x, b)
            if above is False or below is False:
                return False
            return None if above is None or below is None else True

        def either(x: Any, a: Any, b: Any) -> bool | None:
            forwards = within(x, a, b)
            backwards = other_way(x, b, a)
            if forwards or backwards:
                return True
            return None if forwards is None or backwards is None else False

        if not symmetric:
            return within
        other_way = _bound(_between(False), (args[0], args[2], args[1]))
        return either

    return Function(_between_types, _same, nulls=True, bind=bind)


def _distinct(negated: bool) -> Function:
    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        count(args, 2)
        compared(args, False)
        return BOOLEAN

    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
        left, right = (change or _same for change in both(args, compared(args, False)))

        def test(a: Any, b: Any) -> bool:
            same = a is b if a is None or b is None else left(a) == right(b)
            return bool(same) is negated

        return test

    return Function(infer, _same, nulls=True, bind=bind)


# --- AND, OR, NOT, IS


def _logic(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 1, 100_000)
    for place, argument in enumerate(args):
        if argument.type not in (BOOLEAN, NULL):
            raise WrongTypes(f"argument {place + 1} must be BOOLEAN, not {argument.type}")
    return BOOLEAN


def conjunction(*values: bool | None) -> bool | None:
    return False if False in values else None if None in values else True


def disjunction(*values: bool | None) -> bool | None:
    return True if True in values else None if None in values else False


def _is(test: Callable[[Any], bool], any_type: bool = False) -> Function:
    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        count(args, 1)
        return BOOLEAN if any_type else _logic(args, options)

    return Function(infer, test, nulls=True)


# --- CASE, COALESCE and their like


def _case_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    if len(args) < 3 or len(args) % 2 == 0:
        raise WrongTypes("takes pairs of WHEN and THEN, and ELSE")
    for when in args[:-1:2]:
        if when.type not in (BOOLEAN, NULL):
            raise WrongTypes(f"WHEN must be BOOLEAN, not {when.type}")
    return shared([*args[1::2], args[-1]])


def _case(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    to = [cast.implicit(argument.type, type) or _same for argument in args]

    def choose(*values: Any) -> Any:
        for place in range(0, len(values) - 1, 2):
            if values[place]:
                chosen = place + 1
                break
        else:
            chosen = len(values) - 1
        return None if values[chosen] is None else to[chosen](values[chosen])

    return choose


def _common_types(least: int, most: int = 1000) -> Infer:
    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        count(args, least, most)
        merged = shared(args)
        return DOUBLE if merged == FLOAT and any(argument.type == DOUBLE for argument in args) else merged

    return infer


def _first(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    to = [cast.implicit(argument.type, type) or _same for argument in args]

    def choose(*values: Any) -> Any:
        for value, change in zip(values, to, strict=True):
            if value is not None:
                return change(value)
        return None

    return choose


def _if_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 3)
    return _case_types(args, options)


def _nullif_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 2)
    compared(args, False)
    return args[0].type


def _nullif(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    left, right = (change or _same for change in both(args, compared(args, False)))
    return lambda a, b: None if a is None or (b is not None and left(a) == right(b)) else a


def _extreme(choose: Callable[..., Any]) -> Function:
    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
        to = [cast.implicit(argument.type, type) or _same for argument in args]
        if type.name in APPROXIMATE:  # NaN is above all
            return lambda *values: choose(
                (change(value) for value, change in zip(values, to, strict=True)),
                key=lambda value: (value != value, value),
            )
        return lambda *values: choose(change(value) for value, change in zip(values, to, strict=True))

    return Function(_common_types(1), choose, bind=bind)


COMPARISONS: dict[str, Function] = {
    "=": _comparison("=", lambda a, b: a == b),
    "<>": _comparison("<>", lambda a, b: a != b),
    "<": _comparison("<", lambda a, b: a < b),
    "<=": _comparison("<=", lambda a, b: a <= b),
    ">": _comparison(">", lambda a, b: a > b),
    ">=": _comparison(">=", lambda a, b: a >= b),
}

FUNCTIONS: dict[str, Function] = {
    **COMPARISONS,
    "IS DISTINCT FROM": _distinct(False),
    "IS NOT DISTINCT FROM": _distinct(True),
    "BETWEEN": _between(False),
    "BETWEEN SYMMETRIC": _between(True),
    "IN": Function(_in_types, _same, nulls=True, bind=_in),
    "AND": Function(_logic, conjunction, nulls=True),
    "OR": Function(_logic, disjunction, nulls=True),
    "NOT": Function(_logic, lambda value: not value),
    "IS NULL": _is(lambda value: value is None, True),
    "IS NOT NULL": _is(lambda value: value is not None, True),
    "IS TRUE": _is(lambda value: value is True),
    "IS NOT TRUE": _is(lambda value: value is not True),
    "IS FALSE": _is(lambda value: value is False),
    "IS NOT FALSE": _is(lambda value: value is not False),
    "IS UNKNOWN": _is(lambda value: value is None),
    "IS NOT UNKNOWN": _is(lambda value: value is not None),
    "CASE": Function(_case_types, _same, nulls=True, bind=_case),
    "IF": Function(_if_types, _same, nulls=True, bind=_case),
    "COALESCE": Function(_common_types(1), _same, nulls=True, bind=_first),
    "IFNULL": Function(_common_types(2, 2), _same, nulls=True, bind=_first),
    "NULLIF": Function(_nullif_types, _same, nulls=True, bind=_nullif),
    "GREATEST": _extreme(max),
    "LEAST": _extreme(min),
}

shown(
    FUNCTIONS,
    {
        "=": ("1 = 1.0", "TRUE", "in the type that both have in common; a text beside a number is refused"),
        "<>": ("1 <> 2", "TRUE", ""),
        "<": ("1 < 2", "TRUE", "a text beside a number or a time is read as one"),
        "<=": ("1 <= 2", "TRUE", ""),
        ">": ("2 > '1'", "TRUE", ""),
        ">=": ("2 >= 2", "TRUE", ""),
        "IS DISTINCT FROM": ("1 IS DISTINCT FROM CAST(NULL AS INT)", "TRUE", "never NULL"),
        "IS NOT DISTINCT FROM": ("1 IS NOT DISTINCT FROM 1", "TRUE", "never NULL"),
        "BETWEEN": ("2 BETWEEN 1 AND 3", "TRUE", "both ends are within"),
        "BETWEEN SYMMETRIC": ("2 BETWEEN SYMMETRIC 3 AND 1", "TRUE", "the ends in either order"),
        "IN": ("2 IN (1, 2)", "TRUE", "NULL if it is not there beside a NULL"),
        "AND": ("FALSE AND CAST(NULL AS BOOLEAN)", "FALSE", "no further than what decides"),
        "OR": ("TRUE OR CAST(NULL AS BOOLEAN)", "TRUE", "no further than what decides"),
        "NOT": ("NOT FALSE", "TRUE", ""),
        "IS NULL": ("1 IS NULL", "FALSE", ""),
        "IS NOT NULL": ("1 IS NOT NULL", "TRUE", ""),
        "IS TRUE": ("TRUE IS TRUE", "TRUE", "never NULL"),
        "IS NOT TRUE": ("CAST(NULL AS BOOLEAN) IS NOT TRUE", "TRUE", ""),
        "IS FALSE": ("FALSE IS FALSE", "TRUE", ""),
        "IS NOT FALSE": ("TRUE IS NOT FALSE", "TRUE", ""),
        "IS UNKNOWN": ("CAST(NULL AS BOOLEAN) IS UNKNOWN", "TRUE", ""),
        "IS NOT UNKNOWN": ("TRUE IS NOT UNKNOWN", "TRUE", ""),
        "CASE": ("CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END", "b", "also `CASE x WHEN 1 THEN …`; NULL without ELSE"),
        "IF": ("IF(1 > 2, 'a', 'b')", "b", ""),
        "COALESCE": ("COALESCE(CAST(NULL AS INT), 2)", "2", "the first that is not NULL"),
        "IFNULL": ("IFNULL(CAST(NULL AS INT), 2)", "2", ""),
        "NULLIF": ("NULLIF(1, 1)", "NULL", ""),
        "GREATEST": ("GREATEST(1, 3, 2)", "3", "NULL if any is"),
        "LEAST": ("LEAST(1, 3, 2)", "1", "NULL if any is"),
    },
)
