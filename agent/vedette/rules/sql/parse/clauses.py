"""Clauses behind a table's name or in its place: window table functions and MATCH_RECOGNIZE.

TUMBLE, HOP, SESSION and CUMULATE take their arguments by place or by name; the older group windows, which have the same
names, stay calls. PATTERN is a row of variables with quantifiers: what Flink refuses or ignores there (alternation,
groups, anchors, ALL ROWS PER MATCH) is refused with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from vedette.plan.query import Variable
from vedette.rules.sql.parse.reader import Reader
from vedette.rules.sql.parse.trees import Pattern, WindowFunction
from vedette.rules.sql.parse.values import Calls


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


class Patterns(Reader):
    def _parse_match_recognize(self) -> Any:
        if not self._match(TokenType.MATCH_RECOGNIZE):
            return None
        begin = self._prev
        self.take(TokenType.L_PAREN, "(")
        partition = self._parse_csv(self._parse_column) if self._match(TokenType.PARTITION_BY) else []
        order = self._parse_order() if self._match(TokenType.ORDER_BY, advance=False) else None
        measures = self._parse_csv(self._measure) if self.words("MEASURES") else []
        if self.words("ONE", "ROW", "PER", "MATCH"):
            pass
        elif self._match_texts(("ALL",), advance=False):
            raise self.error("ALL ROWS PER MATCH is not supported (nor in Flink)", None, "ONE ROW PER MATCH")
        skip = "NEXT"
        skip_to = ""
        if self.words("AFTER", "MATCH"):
            if not self.words("SKIP"):
                self.expected("SKIP")
            if self.words("PAST", "LAST", "ROW"):
                skip = "PAST"
            elif self.words("TO", "NEXT", "ROW"):
                skip = "NEXT"
            elif self.words("TO", "FIRST") or self.words("TO", "LAST"):
                skip = self._prev.text.upper()
                skip_to = self._variable()
            elif self.words("TO"):
                skip = "LAST"
                skip_to = self._variable()
            else:
                self.expected("PAST LAST ROW, TO NEXT ROW, TO FIRST or TO LAST")
        if not self.words("PATTERN"):
            self.expected("PATTERN")
        pattern = self._pattern()
        within = None
        if self.words("WITHIN"):
            within = self.value()
        if self.words("SUBSET"):
            raise self.error("SUBSET is not supported (nor in Flink)", self._prev, "the variables one by one")
        define = self._parse_csv(self._define) if self.words("DEFINE") else []
        self.take(TokenType.R_PAREN, ") of MATCH_RECOGNIZE")
        return self.expression(
            Pattern(
                partition=partition,
                order=order,
                measures=measures,
                skip=skip,
                skip_to=skip_to,
                pattern=pattern,
                within=within,
                define=define,
                alias=self._parse_table_alias(),
            ),
            begin,
        )

    def _variable(self) -> str:
        name = self.name()
        self.noted.add(name.meta.get("start", -1))
        return str(name.name)

    def _measure(self) -> Any:
        if self._match_texts(("FINAL", "RUNNING"), advance=False) and self._next.token_type is TokenType.VAR:
            raise self.error(
                f"{self._curr.text.upper()} is not supported (nor in Flink)", None, "LAST(A.x, 1), SUM(A.x)"
            )
        value = self.value()
        self.take(TokenType.ALIAS, "AS")
        return self.expression(exp.Alias(this=value, alias=self.name()))

    def _define(self) -> Any:
        name = self.name()
        self.take(TokenType.ALIAS, "AS")
        return self.expression(exp.Alias(this=self.value(), alias=name))

    def _pattern(self) -> tuple[Variable, ...]:
        self.take(TokenType.L_PAREN, "(")
        variables: list[Variable] = []
        while self._curr and self._curr.token_type is not TokenType.R_PAREN:
            token = self._curr
            why = {
                TokenType.PIPE: ("alternation | is not supported (nor in Flink)", "a statement for each way"),
                TokenType.L_PAREN: ("a group in PATTERN is not supported (nor in Flink)", "the variables one by one"),
                TokenType.CARET: ("the anchor ^ is not supported (Flink ignores it)", "no ^"),
                TokenType.L_BRACE: ("an exclusion {- -} is not supported (nor in Flink)", "the variable without it"),
            }.get(token.token_type)
            if token.text == "$":
                why = ("the anchor $ is not supported (Flink ignores it)", "no $")
            if token.text.upper() == "PERMUTE" and self._next.token_type is TokenType.L_PAREN:
                why = ("PERMUTE is not supported (nor in Flink)", "a statement for each order, UNION ALL")
            if why:
                raise self.error(why[0], token, why[1])
            name = self._variable()
            if any(variable.name == name for variable in variables):
                raise self.error(
                    f"the variable {name} twice in PATTERN is not supported (nor in Flink)",
                    token,
                    "a second variable with the same condition",
                )
            least = 1
            most: int | None = 1
            counted = True
            if self._match(TokenType.STAR):
                least = 0
                most = None
            elif self._match(TokenType.PLUS):
                most = None
            elif self._match(TokenType.PLACEHOLDER):
                least = 0
            elif self._match(TokenType.L_BRACE):
                least, most = self._counts(token)
            else:
                counted = False
            reluctant = counted and self._match(TokenType.PLACEHOLDER)
            if reluctant and (least, most) == (0, 1):
                raise self.error("the quantifier ?? is not supported (nor in Flink)", token, f"{name}?")
            variables.append(Variable(name, least, most, not reluctant))
        self.take(TokenType.R_PAREN, ") of PATTERN")
        if not variables:
            self.expected("a variable in PATTERN")
        return tuple(variables)

    def _counts(self, token: Token) -> tuple[int, int | None]:
        def number() -> int | None:
            if self._match(TokenType.NUMBER):
                self._mark(self._prev)
                if re.fullmatch(r"\d{1,6}", self._prev.text):
                    return int(self._prev.text)
                self.expected("a whole number")
            return None

        least = number()
        if self._match(TokenType.COMMA):
            most = number()
            open_ended = most is None
        else:
            most = least
            open_ended = False
        self.take(TokenType.R_BRACE, "}")
        if least is None or (not open_ended and not most) or (most is not None and most < least):
            raise self.error("this quantifier is not supported (nor in Flink)", token, "{n}, {n,} or {n,m} with m > 0")
        return least, most
