"""Window table functions: TUMBLE, HOP, SESSION and CUMULATE of a table, their arguments by place or by name.

The older group windows, which have the same names, stay calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from vedette.rules.sql.calls import Calls
from vedette.rules.sql.nodes import WindowFunction


class Windows(Calls):
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[[Any], Any]]] = {
        **Calls.FUNCTION_PARSERS,
        "TUMBLE": lambda self: self._window("TUMBLE"),
        "HOP": lambda self: self._window("HOP"),
        "SESSION": lambda self: self._window("SESSION"),
        "CUMULATE": lambda self: self._window("CUMULATE"),
    }

    def _window(self, name: str) -> Any:
        named = self._next.token_type is TokenType.FARROW
        parts: dict[str, Any] = {}
        if not named and self._curr.token_type not in (TokenType.TABLE, TokenType.L_PAREN):
            return self.call(name, self._parse_csv(self.value))  # the older group window
        order = {
            "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
            "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
            "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
            "SESSION": ("DATA", "TIMECOL", "GAP"),
        }[name]
        while True:
            at = len(parts) - ("PARTITION" in parts)
            key = order[at] if at < len(order) else ""
            if named:
                key = self._curr.text.upper()
                self._advance()
                self._mark(self._prev)
                self.take(TokenType.FARROW, "=>")
            if key not in order or key in parts:
                self.expected(f"the arguments of {name}: {', '.join(order)}")
            parts[key] = (
                self._data(parts) if key == "DATA" else self._descriptor() if key == "TIMECOL" else self.value()
            )
            if not self._match(TokenType.COMMA):
                break
        missing = [key for key in order if key not in parts and key != "OFFSET"]
        if missing:
            self.expected(f", and {missing[0]} of {name}")
        rest = [parts[key] for key in order[2:] if key in parts]
        if self._curr.token_type is not TokenType.R_PAREN:
            self.expected(f") of {name}")
        return self.expression(
            WindowFunction(
                this=name,
                table=parts["DATA"],
                partition=parts.get("PARTITION"),
                time=parts["TIMECOL"],
                expressions=rest,
            )
        )

    def _data(self, parts: dict[str, Any]) -> Any:
        self._match(TokenType.TABLE)
        if self._match(TokenType.L_PAREN, advance=False):
            table = self._parse_wrapped(self._query)
            table = self.expression(exp.Subquery(this=table))
        else:
            table = self.expression(exp.Table(this=self.name()))
        if self._match(TokenType.PARTITION_BY):
            wrapped = self._match(TokenType.L_PAREN)
            keys = [self._parse_column()]
            while (
                self._next
                and self._next.text.upper() not in ("DESCRIPTOR", "TIMECOL", "GAP", "SIZE", "STEP", "SLIDE", "OFFSET")
                and self._match(TokenType.COMMA)
            ):
                keys.append(self._parse_column())
            if wrapped:
                self.take(TokenType.R_PAREN, ")")
            parts["PARTITION"] = keys
        return table

    def _descriptor(self) -> Any:
        if not self.words("DESCRIPTOR"):
            self.expected("DESCRIPTOR(time column)")
        return self._parse_wrapped(self._parse_column)
