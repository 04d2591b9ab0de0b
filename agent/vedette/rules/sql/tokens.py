# ruff: noqa: RUF012 - sqlglot's classes are configured by class attributes
"""The text of a file as tokens: Flink's words alone, places by line and column, and one row of tokens a statement.

sqlglot's own tokenizer knows the words of many dialects; here all that are not in ``_WORDS`` are names or errors.
``check_size`` bounds a statement before a parser that calls itself sees it. Apache Flink 2.3, "SQL" reference; Apache
Calcite 1.36, "SQL language".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import ClassVar

from sqlglot import tokens
from sqlglot.tokenizer_core import Token, TokenType

MAX_TOKENS = 50_000
"""Words, numbers and signs of one statement."""
MAX_NESTING = 40
"""Brackets, CASEs and signs within each other."""


class SqlError(ValueError):
    """What is wrong with a statement, where (line and column from 1), and what to write instead."""

    def __init__(self, reason: str, line: int = 0, column: int = 0, hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.line, self.column, self.hint = reason, line, column, hint


class Text:
    """The text of a file, for lines and columns of offsets."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._lines = [0, *(match.end() for match in re.finditer("\n", sql))]

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1


_WORDS = {
    "/*+": TokenType.HINT,
    "||": TokenType.DPIPE,
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "<=": TokenType.LTE,
    ">=": TokenType.GTE,
    "=>": TokenType.FARROW,
    "ALL": TokenType.ALL,
    "AND": TokenType.AND,
    "ANY": TokenType.ANY,
    "AS": TokenType.ALIAS,
    "ASC": TokenType.ASC,
    "BETWEEN": TokenType.BETWEEN,
    "CASE": TokenType.CASE,
    "CREATE": TokenType.CREATE,
    "CROSS": TokenType.CROSS,
    "CUBE": TokenType.CUBE,
    "DESC": TokenType.DESC,
    "DISTINCT": TokenType.DISTINCT,
    "ELSE": TokenType.ELSE,
    "END": TokenType.END,
    "ESCAPE": TokenType.ESCAPE,
    "EXCEPT": TokenType.EXCEPT,
    "EXISTS": TokenType.EXISTS,
    "FALSE": TokenType.FALSE,
    "FETCH": TokenType.FETCH,
    "FILTER": TokenType.FILTER,
    "FOR": TokenType.FOR,
    "FROM": TokenType.FROM,
    "FULL": TokenType.FULL,
    "GROUP BY": TokenType.GROUP_BY,
    "GROUPING SETS": TokenType.GROUPING_SETS,
    "HAVING": TokenType.HAVING,
    "IN": TokenType.IN,
    "INNER": TokenType.INNER,
    "INSERT": TokenType.INSERT,
    "INTERSECT": TokenType.INTERSECT,
    "INTERVAL": TokenType.INTERVAL,
    "INTO": TokenType.INTO,
    "IS": TokenType.IS,
    "JOIN": TokenType.JOIN,
    "JSON": TokenType.JSON,
    "LATERAL": TokenType.LATERAL,
    "LEFT": TokenType.LEFT,
    "LIKE": TokenType.LIKE,
    "LIMIT": TokenType.LIMIT,
    "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
    "NATURAL": TokenType.NATURAL,
    "NOT": TokenType.NOT,
    "NULL": TokenType.NULL,
    "OFFSET": TokenType.OFFSET,
    "ON": TokenType.ON,
    "OR": TokenType.OR,
    "ORDER BY": TokenType.ORDER_BY,
    "ORDINALITY": TokenType.ORDINALITY,
    "OUTER": TokenType.OUTER,
    "OVER": TokenType.OVER,
    "PARTITION BY": TokenType.PARTITION_BY,
    "QUALIFY": TokenType.QUALIFY,
    "RANGE": TokenType.RANGE,
    "RIGHT": TokenType.RIGHT,
    "ROLLUP": TokenType.ROLLUP,
    "ROWS": TokenType.ROWS,
    "SELECT": TokenType.SELECT,
    "SIMILAR TO": TokenType.SIMILAR_TO,
    "SOME": TokenType.SOME,
    "TABLE": TokenType.TABLE,
    "THEN": TokenType.THEN,
    "TRUE": TokenType.TRUE,
    "UNION": TokenType.UNION,
    "UNNEST": TokenType.UNNEST,
    "USING": TokenType.USING,
    "VALUES": TokenType.VALUES,
    "WHEN": TokenType.WHEN,
    "WHERE": TokenType.WHERE,
    "WINDOW": TokenType.WINDOW,
    "WITH": TokenType.WITH,
}


class Tokenizer(tokens.Tokenizer):
    IDENTIFIERS = ["`"]
    HEX_STRINGS = [("x'", "'"), ("X'", "'")]
    KEYWORDS = _WORDS
    COMMANDS: ClassVar[set[TokenType]] = set()
    NESTED_COMMENTS = False


def cut(found: Iterable[Token]) -> Iterator[list[Token]]:
    """The tokens of each statement of a file; empty ones are left out."""
    chunk: list[Token] = []
    for token in found:
        if token.token_type is not TokenType.SEMICOLON:
            chunk.append(token)
        elif chunk:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


_OPENS = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSES = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_ENDS = {TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.UNION, *_CLOSES}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.WITH, TokenType.LT}


def check_size(chunk: list[Token], text: Text) -> None:
    """Before a parser that calls itself sees it."""
    if len(chunk) > MAX_TOKENS:
        raise SqlError(f"a statement of more than {MAX_TOKENS} words", *text.place(chunk[0].start))
    depth = run = 0
    previous = None
    for token in chunk:
        kind = token.token_type
        if kind in _OPENS:
            depth += 1
        elif kind in _CLOSES:
            depth -= 1
        run = run + 1 if kind in _PREFIXES else 0
        if depth > MAX_NESTING or run > MAX_NESTING:
            raise SqlError(f"nested deeper than {MAX_NESTING}", *text.place(token.start))
        if kind in _ENDS and previous is TokenType.COMMA and kind is not TokenType.R_BRACE:  # a pattern's {2,}
            raise SqlError("a comma with nothing behind it", *text.place(token.start))
        previous = kind
        if kind is TokenType.HINT:
            raise SqlError("hints are not supported", *text.place(token.start), "the query without /*+ … */")
