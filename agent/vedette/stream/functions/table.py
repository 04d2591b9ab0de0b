"""The scalar functions by name, as ``Call.name`` has them; what SQL writes as an operator is one, too.

A row says which types it takes and gives (``infer``) and what computes it; ``stream/expression.py`` compiles calls to
Python code. The families' files list their rows in ``FUNCTIONS``; ``functions.library`` puts them together, and a plan
with functions of its own gets a ``Library`` with more rows.

Names: those of Flink's documentation, in capitals. What SQL writes by signs or by words of grammar is a ``Call`` so:

    = <> < <= > >= AND OR NOT         the same names; != is <>; AND and OR take any number of arguments
    + - * / % ||                      the same names, two arguments; also with times and intervals; a sign is NEGATE
    IS [NOT] NULL TRUE FALSE UNKNOWN  IS NULL … IS NOT UNKNOWN, one argument
    a IS [NOT] DISTINCT FROM b        IS DISTINCT FROM, IS NOT DISTINCT FROM
    x BETWEEN [SYMMETRIC] a AND b     BETWEEN, BETWEEN SYMMETRIC: x, a, b (NOT BETWEEN: below NOT; so IN, LIKE …)
    x IN (a, …)                       IN: x, a, …
    x LIKE p [ESCAPE e], SIMILAR TO   LIKE, SIMILAR TO: x, p, e
    CASE WHEN w THEN t … ELSE e END   CASE: w, t, …, e; a simple CASE has = in each w; without ELSE, e is a bare NULL
    CAST(x AS t), TRY_CAST            CAST, TRY_CAST: x; the option is the type
    EXTRACT(u FROM x), FLOOR(x TO u)  EXTRACT, FLOOR, CEIL: x; the option is the unit, in capitals
    TIMESTAMPADD(u, n, x), …DIFF      TIMESTAMPADD, TIMESTAMPDIFF: the two others; the option is the unit
    TRIM(BOTH c FROM x)               TRIM: x or x, c; the option is BOTH, LEADING or TRAILING
    POSITION(a IN b)                  POSITION: a, b
    OVERLAY(a PLACING b FROM n FOR m) OVERLAY: a, b, n, m
    SUBSTRING(a FROM n FOR m)         SUBSTRING: a, n, m
    a[i], r.name                      ITEM: a, i; FIELD: r, the option is the name
    ARRAY[…], MAP[k, v, …], ROW(…)    ARRAY, MAP, ROW
    JSON_VALUE(x, p …)                JSON_VALUE: x, p, then what DEFAULT names; ``json.py`` has its options
    x IS [NOT] JSON [OBJECT …]        IS JSON, IS NOT JSON: x; the option is VALUE, OBJECT, ARRAY or SCALAR

Arguments need no casts that SQL does not write: a function converts by its own rules (``1 = 1.5`` compares DECIMAL).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vedette.plan.query import Expression, Literal, Type
from vedette.stream.values.types import BINARY, NULL, NUMERIC, STAMP, TEXT, WHOLE, common


class WrongTypes(ValueError):
    """A function cannot take arguments of these types or this number; the text says what it takes instead."""


Infer = Callable[[Sequence[Expression], tuple[Any, ...]], Type]


@dataclass(frozen=True)
class Function:
    """One row.

    ``infer``: of the arguments (with their types) and options the type of the value; raises ``WrongTypes``.
    ``implementation``: what computes it of the arguments' values, options last; NULL in any argument gives NULL without
    a call, unless ``nulls``. It raises ``ArithmeticError`` or ``ValueError`` (``Failed``) where there is no value.
    """

    infer: Infer
    implementation: Callable[..., Any]
    nulls: bool = False
    """Whether it is called with NULL as well."""
    example: str = ""
    """SQL that shows it, for ``docs/sql.md``."""
    gives: str = ""
    """The example's value, as text."""
    bind: Callable[[Sequence[Expression], tuple[Any, ...], Type], Callable[..., Any]] | None = None
    """Where types, options or constant arguments decide how it is computed: makes the implementation for one call
    (arguments, options, type of the value); it then takes the arguments' values only."""
    folds: bool = True
    """Whether a call of constants is computed when a plan is loaded, once."""
    says: str = ""
    """What it does, half a line for ``docs/sql.md``."""


@dataclass(frozen=True)
class Refused:
    """A function that Flink has and a rule may not use; ``instead`` says why, and what to write."""

    instead: str


class Library(Mapping[str, Function]):
    """Functions by name."""

    def __init__(self, rows: Mapping[str, Function], refused: Mapping[str, Refused] | None = None) -> None:
        self._rows, self.refused = dict(rows), dict(refused or {})

    def __getitem__(self, name: str) -> Function:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def infer(self, name: str, args: Sequence[Expression], options: tuple[Any, ...] = ()) -> Type:
        """The type of a call's value. Raises ``WrongTypes``, whose text names the function and the types given."""
        if name in self.refused:
            raise WrongTypes(f"{name}: {self.refused[name].instead}")
        if name not in self._rows:
            raise WrongTypes(f"there is no function {name}")
        try:
            return self._rows[name].infer(args, options)
        except WrongTypes as error:
            types = ", ".join(str(argument.type) for argument in args)
            raise WrongTypes(f"{name}({types}): {error}") from None


def shown(rows: dict[str, Function], examples: Mapping[str, tuple[str, str, str]]) -> None:
    """Gives rows their example, its value, and what they do."""
    for name, (example, value, says) in examples.items():
        rows[name] = replace(rows[name], example=example, gives=value, says=says)


# --- arguments, for ``infer``


def constant(expression: Expression) -> Any:
    """The value of a literal; None for all else."""
    return expression.value if isinstance(expression, Literal) else None


def of(args: Sequence[Expression]) -> list[Type]:
    return [argument.type for argument in args]


def count(args: Sequence[Expression], least: int, most: int | None = None) -> None:
    """Raises ``WrongTypes`` unless there are ``least`` to ``most`` arguments."""
    most = least if most is None else most
    if not least <= len(args) <= most:
        wanted = str(least) if least == most else f"{least} or more" if most > 99 else f"{least} to {most}"
        raise WrongTypes(f"takes {wanted} argument{'s' if wanted != '1' else ''}, got {len(args)}")


def takes(*families: Sequence[str], least: int | None = None, more: bool = False) -> Callable[..., None]:
    """A check that the arguments are of these families, one for each; the last may repeat if ``more``."""
    needed = len(families) if least is None else least

    def check(args: Sequence[Expression]) -> None:
        count(args, needed, 1000 if more else len(families))
        for place, argument in enumerate(args):
            family = families[min(place, len(families) - 1)]
            if argument.type != NULL and argument.type.name not in family:
                raise WrongTypes(f"argument {place + 1} must be {named(family)}, not {argument.type}")

    return check


_FAMILIES = {NUMERIC: "a number", TEXT: "a text", WHOLE: "a whole number", BINARY: "bytes", STAMP: "a timestamp"}


def named(family: Sequence[str]) -> str:
    return _FAMILIES.get(tuple(family)) or " or ".join(family)


def gives(result: Type, check: Callable[[Sequence[Expression]], None]) -> Infer:
    """An ``infer`` for a function of one type of value, whatever its arguments' types are."""

    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        check(args)
        return result

    return infer


def shared(args: Sequence[Expression], start: int = 0) -> Type:
    """The common type of the arguments from ``start`` on. Raises ``WrongTypes``."""
    merged = common(of(args[start:]))
    if merged is None:
        raise WrongTypes("the types have nothing in common; use CAST")
    return merged
