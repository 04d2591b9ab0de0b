"""Typed expressions compiled to Python: one function for a whole Calc, and functions of a row.

SQL's three-valued logic is inlined (NULL is None); comparisons, sums, AND, OR, CASE, COALESCE, IN and BETWEEN are
Python operators, everything else calls its row of the function table. A subexpression that occurs twice is computed
once, but only where both would be computed. Of AND, OR, CASE and COALESCE no more is evaluated than decides them; of
all else each argument is, also beside a NULL, as in Flink.

The source holds names and numbers of columns only: literals, functions and types are bound as constants, so that no
text of a rule is ever code. It is a list of short statements over local names, however deep the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from vedette.plan.numbers import BITS
from vedette.plan.query import Call, Column, Expression, Literal, Row, Type
from vedette.stream.functions import cast, compare
from vedette.stream.functions.library import LIBRARY
from vedette.stream.functions.table import Function
from vedette.stream.values.numbers import WRAP
from vedette.stream.values.types import APPROXIMATE, DOUBLE, STAMP, TEXT, WHOLE

FAILURES = (ArithmeticError, ValueError, RecursionError)
"""What a function raises that has no value for its arguments, or of a text that nests too deep or is too long a
pattern: the row is dropped and counted."""

Library = Mapping[str, Function]
MAX_INDENT = 60
"""Levels of indentation (Python allows 100) from which on branches become functions of their own."""


def calc(exprs: Sequence[Expression], when: Expression | None = None, library: Library = LIBRARY) -> Calculate:
    """Compile a Calc: of rows those for which ``when`` is true, as their origin and ``exprs``; and how many failed."""
    code = _Code(library)
    same = all(isinstance(expr, Column) and expr.index == place for place, expr in enumerate(exprs, 1))
    with code.block("def compiled(rows):"):
        code.add("out = []")
        code.add("keep = out.append")
        code.add("failed = 0")
        with code.block("for r in rows:"):
            with code.block("try:"):
                if when is not None:
                    code.require(when, "continue")
                values = [code.value(expr) for expr in exprs] if not same else []
                code.add(f"keep(({', '.join(['r[0]', *values])},))" if not same else f"keep(r[:{len(exprs) + 1}])")
            with code.block("except FAILURES:"):
                code.add("failed += 1")
        code.add("return out, failed")
    return code.function()


def evaluator(expression: Expression, library: Library = LIBRARY) -> Callable[[Row], Any]:
    """The expression's value for a row; it raises one of ``FAILURES`` where there is none."""
    code = _Code(library)
    with code.block("def compiled(r):"):
        code.add(f"return {code.value(expression)}")
    return code.function()


def several(expressions: Sequence[Expression], library: Library = LIBRARY) -> Callable[[Row], tuple[Any, ...]]:
    """Likewise of several expressions, as a tuple."""
    code = _Code(library)
    with code.block("def compiled(r):"):
        values = [code.value(each) for each in expressions]
        code.add(f"return ({''.join(f'{value}, ' for value in values)})")
    return code.function()


def condition(expression: Expression, library: Library = LIBRARY) -> Callable[[Row], bool]:
    """Whether the expression is true of a row (False for NULL)."""
    code = _Code(library)
    with code.block("def compiled(r):"):
        code.require(expression, "return False")
        code.add("return True")
    return code.function()


Calculate = Callable[[Sequence[Row]], tuple[list[Row], int]]

_SIGNS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OPPOSITES = {"=": "!=", "<>": "=="}
_LAZY = ("AND", "OR", "CASE", "IF", "COALESCE", "IFNULL")


class _Code:
    """Source in the making. ``value`` gives a name that holds an expression's value from the current line on."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lines: list[str] = []
        self._indent = 0
        self._bound: dict[str, Any] = {"FAILURES": FAILURES}
        self._numbers: dict[Any, int] = {}
        self._seen: dict[int, tuple[int, Expression]] = {}
        """By ``id``: an expression's number, and the expression, so that no other gets its id."""
        self._holders: dict[int, str] = {}
        """By the number of an expression the name that holds its value, here."""
        self._solid: set[str] = set()
        """Names that are not None, here."""
        self._names = 0

    # --- lines

    def add(self, line: str) -> None:
        self._lines.append(" " * self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines below ``head``; what they compute is not known behind them."""
        holders, solid = dict(self._holders), set(self._solid)
        self.add(head)
        self._indent += 1
        before = len(self._lines)
        yield
        if len(self._lines) == before:
            self.add("pass")
        self._indent -= 1
        self._holders, self._solid = holders, solid

    def function(self) -> Callable[..., Any]:
        space = dict(self._bound)
        exec(compile("\n".join(self._lines), "<SQL>", "exec"), space)  # noqa: S102  # names and signs of ours only
        compiled: Callable[..., Any] = space["compiled"]
        return compiled

    @property
    def source(self) -> str:
        return "\n".join(self._lines)

    def _name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def _constant(self, value: Any) -> str:
        if value is None or value is True or value is False:
            return str(value)
        name = f"k{len(self._bound)}"
        self._bound[name] = value
        return name

    def _is_none(self, names: Sequence[str], joined: str = " or ") -> str:
        """A test whether one of the names is None; empty if none can be."""
        return joined.join(f"{name} is None" for name in dict.fromkeys(names) if not self._is_solid(name))

    def _is_solid(self, name: str) -> bool:
        return name in self._solid or name in self._bound or name in ("True", "False")

    # --- values

    def number(self, expression: Expression) -> int:
        """Equal for expressions that mean the same."""
        seen = self._seen.get(id(expression))
        if seen is not None:
            return seen[0]
        if isinstance(expression, Column):
            key: Any = expression.index
        elif isinstance(expression, Literal):
            key = (type(expression.value), repr(expression.value), expression.type)
        else:
            args = tuple(map(self.number, expression.args))
            key = (expression.name, args, expression.type, expression.options)
        number = self._numbers.setdefault(key, len(self._numbers))
        self._seen[id(expression)] = number, expression
        return number

    def value(self, expression: Expression) -> str:
        """The name that holds its value."""
        if isinstance(expression, Literal):
            number = self.number(expression)
            if number not in self._holders:
                self._holders[number] = self._constant(expression.value)
            return self._holders[number]
        number = self.number(expression)
        below: Expression = expression
        chain = []  # a || b || c …: from within, so that a long one is no deep recursion
        while isinstance(below, Column | Call) and self.number(below) not in self._holders:
            chain.append(below)
            if isinstance(below, Column) or below.name in _LAZY or not below.args or self._folded(below) is not None:
                break
            below = below.args[0]
        for each in reversed(chain):
            self._holders[self.number(each)] = self._compute(each)
        return self._holders[number]

    def _compute(self, expression: Column | Call) -> str:
        if isinstance(expression, Column):
            name = self._name()
            self.add(f"{name} = r[{int(expression.index)}]")
            return name
        folded = self._folded(expression)
        if folded is not None:
            return folded
        if expression.name in _LAZY:
            return self._deep(expression) if self._indent > MAX_INDENT else self._lazy(expression)
        return self._strict(expression)

    def _folded(self, call: Call) -> str | None:
        """The constant that a call of constants is; None when it is not, or has no value."""
        if not all(isinstance(arg, Literal) for arg in call.args) or not self._library[call.name].folds:
            return None
        try:
            values = [arg.value for arg in call.args if isinstance(arg, Literal)]
            function = self._library[call.name]
            if not function.nulls and None in values:
                return "None"
            return self._constant(self._implementation(call)(*values))
        except FAILURES:
            return None

    def _implementation(self, call: Call) -> Callable[..., Any]:
        """Return what computes it of its arguments' values."""
        function = self._library[call.name]
        if function.bind is not None:
            return function.bind(call.args, call.options, call.type)
        options, plain = call.options, function.implementation
        return plain if not options else lambda *values: plain(*values, *options)

    def _strict(self, call: Call) -> str:
        inline = self._inline(call)
        name = self._name()
        if inline is None:
            names = [self.value(arg) for arg in call.args]
            test = "" if self._library[call.name].nulls else self._is_none(names)
            text = f"{self._constant(self._implementation(call))}({', '.join(names)})"
        else:
            names, text = inline
            test = self._is_none(names)
        self.add(f"{name} = None if {test} else {text}" if test else f"{name} = {text}")
        if call.type.name in BITS and call.name in ("+", "-", "*") and inline is not None:
            most = 1 << (BITS[call.type.name] - 1)
            wrap = self._constant(WRAP[call.type.name])
            guard = f"{name} is not None and " if test else ""
            with self.block(f"if {guard}not {-most} <= {name} < {most}:"):
                self.add(f"{name} = {wrap}({name})")
        if not test and inline is not None:
            self._solid.add(name)
        return name

    def _inline(self, call: Call) -> tuple[list[str], str] | None:
        """Names that must not be None, and the value as a Python expression; None for what is called."""
        args = call.args
        if call.name in _SIGNS:
            if self._same(args):  # also NaN, and an array with NULL
                return [self.value(args[0])], str(call.name in ("=", "<=", ">="))
            pair = self._compared(args, call.name not in ("=", "<>"))
            if pair is None:
                return None
            if opposite := compare.turned(call.name, args):
                return pair, f"not {pair[0]} {opposite} {pair[1]}"
            return pair, f"{pair[0]} {_SIGNS[call.name]} {pair[1]}"
        match call.name:
            case "IS NULL" | "IS UNKNOWN":
                return [], f"{self.value(args[0])} is None"
            case "IS NOT NULL" | "IS NOT UNKNOWN":
                return [], f"{self.value(args[0])} is not None"
            case "IS DISTINCT FROM" | "IS NOT DISTINCT FROM" if self._same(args):
                return [], str("NOT" in call.name)
            case "IS TRUE" | "IS FALSE":
                return [], f"{self.value(args[0])} is {call.name[3:].capitalize()}"
            case "IS NOT TRUE" | "IS NOT FALSE":
                return [], f"{self.value(args[0])} is not {call.name[7:].capitalize()}"
            case "NOT":
                name = self.value(args[0])
                return [name], f"not {name}"
            case "+" | "-" | "*":
                return self._arithmetic(call)
            case "IN":
                listed = self._listed(args)
                if listed is not None:
                    name, values = listed
                    return [name], f"{name} in {values}"
            case "BETWEEN" if all(isinstance(arg, Literal) and arg.value is not None for arg in args[1:]):
                low, high = self._compared(args[:2], True), self._compared((args[0], args[2]), True)
                if low and high and low[0] == high[0]:
                    return [low[0]], f"{low[1]} <= {low[0]} <= {high[1]}"
        return None

    def _same(self, args: Sequence[Expression]) -> bool:
        return self.number(args[0]) == self.number(args[1])

    def _compared(self, args: Sequence[Expression], ordered: bool) -> list[str] | None:
        """The names of two values that Python compares as Flink does; None where it would not."""
        to = compare.compared(args, ordered)
        if to.name in ("ARRAY", "MAP", "ROW"):
            return None
        return [self._as(arg, to, mixed=True) for arg in args]

    def _as(self, arg: Expression, to: Type, mixed: bool = False) -> str:
        """The name of an argument's value, brought to ``to``; ``mixed``: a whole number beside a float may stay."""
        if mixed and to == DOUBLE and arg.type.name in ("TINYINT", "SMALLINT", "INT") and not isinstance(arg, Literal):
            return self.value(arg)  # exact as a float
        change = cast.implicit(arg.type, to)
        if change is None or (isinstance(arg, Literal) and arg.value is None):
            return self.value(arg)
        if isinstance(arg, Literal):
            try:
                return self._constant(change(arg.value))
            except FAILURES:
                pass  # fails on each row
        key = ("as", self.number(arg), to)
        number = self._numbers.setdefault(key, len(self._numbers))
        if number not in self._holders:
            operand = self.value(arg)
            name = self._name()
            test = self._is_none([operand])
            text = f"{self._constant(change)}({operand})"
            self.add(f"{name} = None if {test} else {text}" if test else f"{name} = {text}")
            self._holders[number] = name
        return self._holders[number]

    def _arithmetic(self, call: Call) -> tuple[list[str], str] | None:
        a, b = (arg.type.name for arg in call.args)
        whole = call.type.name in WHOLE and a in WHOLE and b in WHOLE
        double = call.type == DOUBLE and {a, b} <= {*WHOLE, *APPROXIMATE} and call.name != "/"
        moved = a in STAMP and b == "INTERVAL_SECOND" and call.name != "*"
        if not (whole or double or moved):
            return None
        names = [self._as(arg, DOUBLE, mixed=True) if double else self.value(arg) for arg in call.args]
        return names, f"{names[0]} {call.name} {names[1]}"

    def _listed(self, args: Sequence[Expression]) -> tuple[str, str] | None:
        """For IN of constants (no NULL): the name of the value, and that of their set."""
        first, rest = args[0], args[1:]
        types = {arg.type for arg in rest}
        if not all(isinstance(arg, Literal) and arg.value is not None for arg in rest):
            return None
        plain = first.type.name in TEXT and all(kind.name in TEXT for kind in types)
        plain = plain or (first.type.name in WHOLE and all(kind.name in WHOLE for kind in types))
        plain = plain or (first.type.name in STAMP and all(kind.name == first.type.name for kind in types))
        if not plain:
            return None
        return self.value(first), self._constant(frozenset(arg.value for arg in rest if isinstance(arg, Literal)))

    # --- what is evaluated only as far as needed

    def _lazy(self, call: Call) -> str:
        name = self._name()
        match call.name:
            case "AND" | "OR":
                self._logic(name, call.args, call.name == "AND")
            case "COALESCE" | "IFNULL":
                self._first(name, call.args, call.type)
            case _:
                self._case(name, call.args, call.type)
        return name

    def _logic(self, name: str, args: Sequence[Expression], every: bool) -> None:
        """AND (``every``) or OR of ``args``, into ``name``."""
        first = self.value(args[0])
        self.add(f"{name} = {first}")
        decided = "False" if every else "True"
        for arg in args[1:]:
            with self.block(f"if {name} is not {decided}:"):
                operand = self.value(arg)  # decides, or says the same, or one of the two is NULL
                self.add(f"{name} = {operand} if {operand} is {decided} or {name} is not None else None")

    def _first(self, name: str, args: Sequence[Expression], to: Type) -> None:
        self.add(f"{name} = {self._as(args[0], to)}")
        for arg in args[1:]:
            with self.block(f"if {name} is None:"):
                self.add(f"{name} = {self._as(arg, to)}")

    def _case(self, name: str, args: Sequence[Expression], to: Type) -> None:
        if len(args) == 1:
            self.add(f"{name} = {self._as(args[0], to)}")
            return
        when = self.value(args[0])
        with self.block(f"if {when}:"):
            self.add(f"{name} = {self._as(args[1], to)}")
        with self.block("else:"):
            if self._indent > MAX_INDENT and len(args) > 3:
                self.add(f"{name} = {self._deep(Call('CASE', tuple(args[2:]), to))}")
            else:
                self._case(name, args[2:], to)

    def _deep(self, call: Call) -> str:
        """A function of its own, so that indentation ends."""
        name = self._name()
        self.add(f"{name} = {self._constant(evaluator(call, self._library))}(r)")
        return name

    # --- conditions

    def require(self, expression: Expression, otherwise: str) -> None:
        """Lines that do ``otherwise`` unless the expression is true; behind a part that is not, none is evaluated."""
        if isinstance(expression, Call):
            if expression.name == "AND":
                for arg in expression.args:
                    self.require(arg, otherwise)
                return
            if expression.name in _SIGNS and self._folded(expression) is None and not self._same(expression.args):
                pair = self._compared(expression.args, expression.name not in ("=", "<>"))
                if pair is not None:
                    self._require_compared(pair, expression.name, otherwise)
                    return
            if expression.name in ("IS NOT NULL", "IS NULL"):
                name = self.value(expression.args[0])
                self.add(f"if {name} is {'' if expression.name == 'IS NOT NULL' else 'not '}None: {otherwise}")
                if expression.name == "IS NOT NULL":
                    self._solid.add(name)
                return
            if expression.name in ("IN", "BETWEEN") and self._folded(expression) is None:
                inline = self._inline(expression)
                if inline is not None:
                    names, text = inline
                    test = self._is_none(names)
                    self.add(f"if {f'{test} or ' if test else ''}not {text}: {otherwise}")
                    self._solid.update(names)
                    return
        name = self.value(expression)
        self.add(f"if {name} is not True: {otherwise}")

    def _require_compared(self, pair: list[str], sign: str, otherwise: str) -> None:
        left, right = pair
        test = f"{left} {_OPPOSITES[sign]} {right}" if sign in _OPPOSITES else f"not {left} {_SIGNS[sign]} {right}"
        none = self._is_none(pair)
        if sign == "=" and (self._is_solid(left) or self._is_solid(right)):
            none = ""  # None is not equal to what is not None
        self.add(f"if {f'{none} or ' if none else ''}{test}: {otherwise}")
        self._solid.update(pair)
