"""MATCH_RECOGNIZE: its clauses, and PATTERN as a row of variables with quantifiers.

What Flink refuses or ignores (alternation, groups, anchors, ALL ROWS PER MATCH) is refused with what to write instead.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from vedette.plan.query import Variable
from vedette.rules.sql.nodes import Pattern
from vedette.rules.sql.reader import Reader


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
        skip, skip_to = "NEXT", ""
        if self.words("AFTER", "MATCH"):
            if not self.words("SKIP"):
                self.expected("SKIP")
            if self.words("PAST", "LAST", "ROW"):
                skip = "PAST"
            elif self.words("TO", "NEXT", "ROW"):
                skip = "NEXT"
            elif self.words("TO", "FIRST") or self.words("TO", "LAST"):
                skip, skip_to = self._prev.text.upper(), self._variable()
            elif self.words("TO"):
                skip, skip_to = "LAST", self._variable()
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
        self.taken.add(name.meta.get("start", -1))
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
        found: list[Variable] = []
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
            if any(one.name == name for one in found):
                raise self.error(
                    f"the variable {name} twice in PATTERN is not supported (nor in Flink)",
                    token,
                    "a second variable with the same condition",
                )
            least, most, counted = 1, 1, True  # type: int, int | None, bool
            if self._match(TokenType.STAR):
                least, most = 0, None
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
            found.append(Variable(name, least, most, not reluctant))
        self.take(TokenType.R_PAREN, ") of PATTERN")
        if not found:
            self.expected("a variable in PATTERN")
        return tuple(found)

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
            most, open_ended = least, False
        self.take(TokenType.R_BRACE, "}")
        if least is None or (not open_ended and not most) or (most is not None and most < least):
            raise self.error("this quantifier is not supported (nor in Flink)", token, "{n}, {n,} or {n,m} with m > 0")
        return least, most
