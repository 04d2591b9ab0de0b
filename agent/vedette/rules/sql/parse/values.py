"""Values as they are written: types, literals behind a word, and functions with words between their arguments.

DATE, TIME, TIMESTAMP, INTERVAL, ARRAY[…] and MAP[…] are literals. CAST, EXTRACT, TRIM, those of JSON and their like
become ``Call`` with the words in ``options``; any other function keeps the name it is written with (``exp.Anonymous``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from vedette.plan.query import Type
from vedette.rules.sql.parse.reader import MAX_NESTING, Reader
from vedette.rules.sql.parse.trees import Call, IntervalLiteral, TimeLiteral, WindowFunction
from vedette.rules.sql.parse.words import word_list

_INTERVAL_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_SIMPLE_TYPES = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "REAL": "FLOAT",
    "DOUBLE": "DOUBLE",
    "STRING": "STRING",
    "BYTES": "BYTES",
    "DATE": "DATE",
}
_SIZED_TYPES = {
    "CHAR": "CHAR",
    "CHARACTER": "CHAR",
    "VARCHAR": "VARCHAR",
    "BINARY": "BINARY",
    "VARBINARY": "VARBINARY",
}
_MAX_SIZE = 2_147_483_647
"""The size of a VARCHAR that is a STRING."""
MAX_PRECISION = 38


class Literals(Reader):
    def type(self, depth: int = 0) -> Type:
        if depth > MAX_NESTING:
            raise self.error(f"types nested deeper than {MAX_NESTING}")
        token = self._curr
        name = token.text.upper()
        if not token or token.token_type not in (TokenType.VAR, TokenType.JSON):
            self.expected("a type")
        self._advance()
        self._mark(token)
        if name in _SIMPLE_TYPES:
            if name == "DOUBLE":
                self.words("PRECISION")
            parsed = Type(_SIMPLE_TYPES[name])
        elif name in _SIZED_TYPES:
            parsed = self._sized(_SIZED_TYPES[name])
        elif name in ("DECIMAL", "DEC", "NUMERIC"):
            parsed = self._decimal(token)
        elif name in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
            parsed = self._time_type(name, token)
        elif name in ("ARRAY", "MAP", "ROW"):
            parsed = self._nested_type(name, depth + 1)
        elif name == "MULTISET":
            raise self.error("MULTISET is not supported", token, "ARRAY<…>")
        else:
            raise self.error(
                f"the type {name[:40]} is not supported",
                token,
                "STRING, BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), TIMESTAMP(3), ARRAY<…>, ROW<…>",
            )
        if self._curr.text.upper() == "ARRAY" and self._curr.token_type is TokenType.VAR:
            raise self.error("write the element's type in ARRAY<…>", None, f"ARRAY<{parsed}>")
        return parsed

    def column_type(self, depth: int = 0) -> Type:
        """The type of a column or of what is nested in one, which may say whether it takes NULL."""
        parsed = self.type(depth)
        if not self.words("NOT", "NULL"):
            self._match(TokenType.NULL)
        return parsed

    def _sized(self, name: str) -> Type:
        sizes = self._sizes(1)
        size = sizes[0] if sizes else 1
        return Type("STRING") if name == "VARCHAR" and size == _MAX_SIZE else Type(name, size)

    def _decimal(self, token: Token) -> Type:
        sizes = self._sizes(2)
        precision = sizes[0] if sizes else 10
        scale = sizes[1] if len(sizes) > 1 else 0
        if not 1 <= precision <= MAX_PRECISION or scale > precision:
            raise self.error(f"DECIMAL has 1 to {MAX_PRECISION} digits, at most all of them behind the point", token)
        return Type("DECIMAL", precision, scale)

    def _time_type(self, name: str, token: Token) -> Type:
        sizes = self._sizes(1)
        precision = sizes[0] if sizes else (0 if name == "TIME" else 6)
        if precision > 9:
            raise self.error(f"{name} has at most 9 digits of a second", token)
        if name == "TIMESTAMP" and self.words("WITH", "LOCAL", "TIME", "ZONE"):
            return Type("TIMESTAMP_LTZ", precision)
        if name != "TIMESTAMP_LTZ" and self._match(TokenType.WITH, advance=False):
            raise self.error(f"{name} WITH TIME ZONE is not supported", token, "TIMESTAMP_LTZ(3)")
        self.words("WITHOUT", "TIME", "ZONE")
        return Type(name, precision)

    def _nested_type(self, name: str, depth: int) -> Type:
        """The types within ARRAY<…>, MAP<…>, ROW<…> or ROW(…)."""
        close = TokenType.GT
        if name == "ROW" and self._match(TokenType.L_PAREN):
            close = TokenType.R_PAREN
        else:
            self.take(TokenType.LT, "<")
        args: tuple[Any, ...]
        if name == "ARRAY":
            args = (self.column_type(depth),)
        elif name == "MAP":
            key = self.column_type(depth)
            self.take(TokenType.COMMA, ",")
            args = (key, self.column_type(depth))
        else:
            args = self._row_fields(depth)
        self.take(close, "> or ," if name == "ROW" else ">")
        return Type(name, args=args)

    def _row_fields(self, depth: int) -> tuple[tuple[str, Type], ...]:
        fields = []
        while True:
            column = self.name()
            self.noted.add(column.meta.get("start", -1))
            fields.append((column.name, self.column_type(depth)))
            if self._curr.token_type is TokenType.STRING:
                self.text()
            if not self._match(TokenType.COMMA):
                return tuple(fields)

    def _sizes(self, most: int) -> list[int]:
        sizes: list[int] = []
        if self._match(TokenType.L_PAREN):
            while len(sizes) < most:
                token = self._curr
                if not self._match(TokenType.NUMBER) or not re.fullmatch(r"\d{1,10}", token.text):
                    self.expected("a whole number")
                self._mark(token)
                sizes.append(int(token.text))
                if not self._match(TokenType.COMMA):
                    break
            self.take(TokenType.R_PAREN, ")")
        return sizes

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
        token = self._curr
        word = self._curr.text.upper() if self._curr else ""
        if token.token_type == TokenType.INTERVAL:
            return self._interval_literal()
        behind = self._next.token_type if token.token_type == TokenType.VAR else None
        if word in ("DATE", "TIME", "TIMESTAMP") and behind == TokenType.STRING:
            self._advance(2)
            self._mark(self._prev)
            return self.expression(TimeLiteral(this=word, text=self._prev.text), token)
        if word in ("ARRAY", "MAP") and behind == TokenType.L_BRACKET:
            self._advance(2)
            items = [] if self._match(TokenType.R_BRACKET, advance=False) else self._parse_csv(self.value)
            self.take(TokenType.R_BRACKET, "]")
            value = self.expression(Call(this=word, expressions=items), token)
            return self._parse_column_ops(value)
        return self._parse_column()

    def _interval_literal(self) -> Any:
        token = self._curr
        self._advance()
        sign = 1
        if self._match(TokenType.DASH):
            sign = -1
        else:
            self._match(TokenType.PLUS)
        if not self._match(TokenType.STRING):
            raise self.error("an interval's number stands in single quotes", None, "INTERVAL '10' MINUTE")
        self._mark(self._prev)
        text = self._prev.text
        unit = self._interval_unit()
        to = None
        if self.words("TO"):
            to = self._interval_unit()
        return self.expression(IntervalLiteral(text=text, unit=unit, to=to, sign=sign), token)

    def _interval_unit(self) -> str:
        word = self._curr.text.upper() if self._curr else ""
        unit = word if word in _INTERVAL_UNITS else word.removesuffix("S")
        if unit not in _INTERVAL_UNITS:
            self.expected("SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR")
        self._advance()
        self._mark(self._prev)
        self._sizes(2)
        return unit


UNITS = word_list(
    """YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND NANOSECOND DOW DOY ISODOW ISOYEAR EPOCH
    DECADE CENTURY MILLENNIUM"""
)


class Calls(Literals):
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[[Any], Any]]] = {
        "CAST": lambda self: self._cast("CAST"),
        "TRY_CAST": lambda self: self._cast("TRY_CAST"),
        "EXTRACT": lambda self: self._extract(),
        "CEIL": lambda self: self._rounded("CEIL"),
        "CEILING": lambda self: self._rounded("CEIL"),
        "FLOOR": lambda self: self._rounded("FLOOR"),
        "TRIM": lambda self: self._trim(),
        "POSITION": lambda self: self._words("POSITION", "IN"),
        "SUBSTRING": lambda self: self._words("SUBSTRING", "FROM", "FOR"),
        "OVERLAY": lambda self: self._words("OVERLAY", "PLACING", "FROM", "FOR"),
        "TIMESTAMPADD": lambda self: self._unit_first("TIMESTAMPADD"),
        "TIMESTAMPDIFF": lambda self: self._unit_first("TIMESTAMPDIFF"),
        "JSON_VALUE": lambda self: self._json("JSON_VALUE"),
        "JSON_QUERY": lambda self: self._json("JSON_QUERY"),
        "JSON_EXISTS": lambda self: self._json("JSON_EXISTS"),
        "JSON_OBJECT": lambda self: self._json_object(),
        "JSON_ARRAY": lambda self: self._json_array(),
    }

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> Any:
        token = self._curr
        call = super()._parse_function_call(*args, **kwargs)
        if call is not None and token.text.upper() in self.FUNCTION_PARSERS:
            self._mark(token)
            node = call
            while not isinstance(node, Call | WindowFunction) and isinstance(node, exp.Expr):
                node = node.this
            if isinstance(node, exp.Expr):
                node.meta["start"] = token.start
        return call

    def call(self, name: str, args: list[Any], *options: str, kind: Type | None = None) -> Any:
        if self._curr.token_type is not TokenType.R_PAREN:
            self.expected(f", or ) of {name}")
        return self.expression(
            Call(this=name, expressions=args, options=options, kind=None if kind is None else (kind,))
        )

    def _cast(self, name: str) -> Any:
        value = self.value()
        self.take(TokenType.ALIAS, "AS")
        return self.call(name, [value], kind=self.type())

    def unit(self) -> str:
        word = self._curr.text.upper() if self._curr else ""
        if word not in UNITS:
            self.expected("a unit as DAY or SECOND")
        self._advance()
        self._mark(self._prev)
        return word

    def _extract(self) -> Any:
        unit = self.unit()
        self.take(TokenType.FROM, "FROM")
        return self.call("EXTRACT", [self.value()], unit)

    def _rounded(self, name: str) -> Any:
        args = self._parse_csv(self.value)
        if self.words("TO"):
            return self.call(name, args, self.unit())
        return self.call(name, args)

    def _trim(self) -> Any:
        side = next((word for word in ("BOTH", "LEADING", "TRAILING") if self.words(word)), "")
        chars = None if self._match(TokenType.FROM, advance=False) else self.value()
        if self._match(TokenType.FROM):
            value = self.value()
            return self.call("TRIM", [value] if chars is None else [value, chars], side or "BOTH")
        if side:
            self.expected("FROM")
        return self.call(
            "TRIM", [chars, *(self._parse_csv(self.value) if self._match(TokenType.COMMA) else [])], "BOTH"
        )

    def _words(self, name: str, *between: str) -> Any:
        args = [self._parse_bitwise() if name == "POSITION" else self.value()]
        if self._match(TokenType.COMMA):
            return self.call(name, args + self._parse_csv(self.value))
        for word in between:
            if self.words(word):
                args.append(self.value())
            elif word != "FOR":
                self.expected(f", or {word}")
        return self.call(name, args)

    def _unit_first(self, name: str) -> Any:
        unit = self.unit()
        self.take(TokenType.COMMA, ",")
        return self.call(name, self._parse_csv(self.value), unit)

    def _json(self, name: str) -> Any:
        """Options of JSON_VALUE and JSON_QUERY are ``(clause, what)`` in pairs; a default is an argument."""
        args = self._parse_csv(self.value)
        if len(args) != 2:
            self.expected("a value and a path")
        options: list[str] = []
        kind = None
        words = self.words
        if name == "JSON_VALUE" and words("RETURNING"):
            kind = self.type()
        if name == "JSON_QUERY":
            if words("RETURNING"):
                kind = self.type()
            for texts, what in (
                (("WITHOUT", "ARRAY", "WRAPPER"), "WITHOUT"),
                (("WITHOUT", "WRAPPER"), "WITHOUT"),
                (("WITH", "CONDITIONAL", "ARRAY", "WRAPPER"), "CONDITIONAL"),
                (("WITH", "CONDITIONAL", "WRAPPER"), "CONDITIONAL"),
                (("WITH", "UNCONDITIONAL", "ARRAY", "WRAPPER"), "UNCONDITIONAL"),
                (("WITH", "UNCONDITIONAL", "WRAPPER"), "UNCONDITIONAL"),
                (("WITH", "ARRAY", "WRAPPER"), "UNCONDITIONAL"),
                (("WITH", "WRAPPER"), "UNCONDITIONAL"),
            ):
                if words(*texts):
                    options += ["WRAPPER", what]
                    break
        while self._curr and self._curr.token_type is not TokenType.R_PAREN:
            what = ""
            if words("DEFAULT") and name == "JSON_VALUE":
                what = "DEFAULT"
                args.append(self.value())
            else:
                choices = {
                    "JSON_VALUE": (("NULL",), ("ERROR",)),
                    "JSON_QUERY": (("NULL",), ("ERROR",), ("EMPTY", "ARRAY"), ("EMPTY", "OBJECT")),
                    "JSON_EXISTS": (("TRUE",), ("FALSE",), ("UNKNOWN",), ("ERROR",)),
                }[name]
                what = next((" ".join(texts) for texts in choices if words(*texts)), "")
            if not what or not (words("ON", "EMPTY") or words("ON", "ERROR")):
                self.expected(f"a clause of {name} or )")
            clause = self._prev.text.upper()
            if clause in options[::2] or (name == "JSON_EXISTS" and clause == "EMPTY"):
                self.expected(f"each clause of {name} once")
            options += [clause, what]
        return self.call(name, args, *options, kind=kind)

    def _json_object(self) -> Any:
        args: list[Any] = []
        while self._curr and self._curr.token_type is not TokenType.R_PAREN:
            self.words("KEY")
            args.append(self._parse_bitwise())
            if not self.words("VALUE"):
                self.expected("VALUE")
            args.append(self.value())
            if not self._match(TokenType.COMMA):
                break
        return self.call("JSON_OBJECT", args, self._on_null("NULL"))

    def _json_array(self) -> Any:
        empty = self._curr.token_type is TokenType.R_PAREN
        return self.call("JSON_ARRAY", [] if empty else self._parse_csv(self.value), self._on_null("ABSENT"))

    def _on_null(self, usual: str) -> str:
        for what in ("NULL", "ABSENT"):
            if self.words(what, "ON", "NULL"):
                return what
        return usual
