"""Types as they are written, and literals behind a word: DATE, TIME, TIMESTAMP, INTERVAL, ARRAY[…] and MAP[…]."""

from __future__ import annotations

import re
from typing import Any

from sqlglot.tokenizer_core import TokenType

from vedette.plan.query import Type
from vedette.rules.sql.nodes import Call, IntervalLiteral, TimeLiteral
from vedette.rules.sql.reader import Reader
from vedette.rules.sql.tokens import MAX_NESTING

_INTERVAL_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_SIMPLE_TYPES = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INT", "INTEGER": "INT",
    "BIGINT": "BIGINT", "FLOAT": "FLOAT", "REAL": "FLOAT", "DOUBLE": "DOUBLE", "STRING": "STRING", "BYTES": "BYTES",
    "DATE": "DATE",
}  # fmt: skip
_SIZED_TYPES = {"CHAR": 1, "CHARACTER": 1, "VARCHAR": 1, "BINARY": 1, "VARBINARY": 1}
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
            found = Type(_SIMPLE_TYPES[name])
        elif name in _SIZED_TYPES:
            sizes = self._sizes(1)
            kind = {"CHARACTER": "CHAR"}.get(name, name)
            found = Type(kind, sizes[0] if sizes else 1)
            if kind == "VARCHAR" and found.precision == 2147483647:
                found = Type("STRING")
        elif name in ("DECIMAL", "DEC", "NUMERIC"):
            sizes = self._sizes(2)
            precision = sizes[0] if sizes else 10
            scale = sizes[1] if len(sizes) > 1 else 0
            if not 1 <= precision <= MAX_PRECISION or scale > precision:
                raise self.error(
                    f"DECIMAL has 1 to {MAX_PRECISION} digits, at most all of them behind the point", token
                )
            found = Type("DECIMAL", precision, scale)
        elif name in ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ"):
            sizes = self._sizes(1)
            precision = sizes[0] if sizes else (0 if name == "TIME" else 6)
            if precision > 9:
                raise self.error(f"{name} has at most 9 digits of a second", token)
            if name == "TIMESTAMP" and self.words("WITH", "LOCAL", "TIME", "ZONE"):
                name = "TIMESTAMP_LTZ"
            elif name != "TIMESTAMP_LTZ" and self._match(TokenType.WITH, advance=False):
                raise self.error(f"{name} WITH TIME ZONE is not supported", token, "TIMESTAMP_LTZ(3)")
            else:
                self.words("WITHOUT", "TIME", "ZONE")
            found = Type(name, precision)
        elif name in ("ARRAY", "MULTISET"):
            if name == "MULTISET":
                raise self.error("MULTISET is not supported", token, "ARRAY<…>")
            self.take(TokenType.LT, "<")
            found = Type("ARRAY", args=(self.type(depth + 1),))
            self.take(TokenType.GT, ">")
        elif name == "MAP":
            self.take(TokenType.LT, "<")
            key = self.type(depth + 1)
            self.take(TokenType.COMMA, ",")
            found = Type("MAP", args=(key, self.type(depth + 1)))
            self.take(TokenType.GT, ">")
        elif name == "ROW":
            close = TokenType.R_PAREN if self._match(TokenType.L_PAREN) else TokenType.GT
            if close is TokenType.GT:
                self.take(TokenType.LT, "<")
            parts = []
            while True:
                column = self.name()
                self.taken.add(column.meta.get("start", -1))
                parts.append((column.name, self.type(depth + 1)))
                if self._curr.token_type is TokenType.STRING:
                    self.text()
                if not self._match(TokenType.COMMA):
                    break
            self.take(close, "> or ,")
            found = Type("ROW", args=tuple(parts))
        else:
            raise self.error(
                f"the type {name[:40]} is not supported",
                token,
                "STRING, BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(p, s), TIMESTAMP(3), ARRAY<…>, ROW<…>",
            )
        if self._curr.text.upper() == "ARRAY" and self._curr.token_type is TokenType.VAR:
            raise self.error("write the element's type in ARRAY<…>", None, f"ARRAY<{found}>")
        if not self.words("NOT", "NULL"):
            self._match(TokenType.NULL)
        return found

    def _sizes(self, most: int) -> list[int]:
        found: list[int] = []
        if self._match(TokenType.L_PAREN):
            while len(found) < most:
                token = self._curr
                if not self._match(TokenType.NUMBER) or not re.fullmatch(r"\d{1,10}", token.text):
                    self.expected("a whole number")
                self._mark(token)
                found.append(int(token.text))
                if not self._match(TokenType.COMMA):
                    break
            self.take(TokenType.R_PAREN, ")")
        return found

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
        token, word = self._curr, self._curr.text.upper() if self._curr else ""
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
            made = self.expression(Call(this=word, expressions=items), token)
            return self._parse_column_ops(made)
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
        unit, to = self._interval_unit(), None
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
