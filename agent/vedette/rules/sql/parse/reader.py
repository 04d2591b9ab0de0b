# ruff: noqa: RUF012 - sqlglot's classes are configured by class attributes
"""The text of a file as tokens, and how all parts of the parser take them.

sqlglot's own tokenizer knows the words of many dialects; here all that are not in ``_WORDS`` are names or errors. A
statement is one row of tokens, and ``check_size`` bounds it before a parser that calls itself sees it. Apache Flink
2.3, "SQL" reference; Apache Calcite 1.36, "SQL language".

Of sqlglot's parser come SELECT, joins, OVER and expressions; functions, operators and placeholders that Flink does not
have are off. A token that goes into a node as a plain text is noted in ``noted``: ``dialect.py`` holds each tree
against its tokens. Faults are ``SqlError`` with the token's place.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NoReturn

from sqlglot import exp, parser, tokens
from sqlglot.tokenizer_core import Token, TokenType

from vedette.rules.sql.parse.words import RESERVED, VALUES, word_list

MAX_TOKENS = 50_000
"""Words, numbers and signs of one statement."""
MAX_NESTING = 40
"""Brackets, CASEs and signs within each other."""


ALONE = {*VALUES, "UNKNOWN"}
"""Words that are no names where they stand alone: ``names/check.py`` says what they are."""


class SqlError(ValueError):
    """A fault of a statement: the reason, where it is (line and column from 1), and what to write instead."""

    def __init__(self, reason: str, line: int = 0, column: int = 0, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column
        self.hint = hint


class Text:
    """The text of a file, for lines and columns of offsets."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._lines = [0, *(match.end() for match in re.finditer("\n", sql))]

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1


_NAMESAKES = word_list(
    """ALL AND ANY ASC BETWEEN CASE CREATE CROSS CUBE DESC DISTINCT ELSE END ESCAPE EXCEPT EXISTS FALSE FETCH
    FILTER FOR FROM FULL GROUP_BY GROUPING_SETS HAVING IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN JSON
    LATERAL LEFT LIKE LIMIT NATURAL NOT NULL OFFSET ON OR ORDER_BY ORDINALITY OUTER OVER
    PARTITION_BY QUALIFY RANGE RIGHT ROLLUP ROWS SELECT SIMILAR_TO SOME TABLE THEN TRUE UNION UNNEST USING
    VALUES WHEN WHERE WINDOW WITH"""
)
"""Kinds of tokens that are called as their word, or words, in SQL."""
_WORDS = {
    "/*+": TokenType.HINT,
    "||": TokenType.DPIPE,
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "<=": TokenType.LTE,
    ">=": TokenType.GTE,
    "=>": TokenType.FARROW,
    "AS": TokenType.ALIAS,
    "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
    **{kind.replace("_", " "): TokenType[kind] for kind in _NAMESAKES},
}


def check_name(identifier: exp.Identifier, text: Text) -> None:
    """Raise SqlError for a word that Flink reserves."""
    word = identifier.name
    alone = isinstance(identifier.parent, exp.Column) and not identifier.parent.args.get("table")
    if not identifier.args.get("quoted") and word.upper() in RESERVED and not (alone and word.upper() in ALONE):
        place = text.place(identifier.meta.get("start", 0))
        raise SqlError(f"{word.upper()} is no name: Flink reserves the word", *place, f"`{word}` in backticks")


class Tokenizer(tokens.Tokenizer):
    IDENTIFIERS = ["`"]
    HEX_STRINGS = [("x'", "'"), ("X'", "'")]
    KEYWORDS = _WORDS
    COMMANDS: ClassVar[set[TokenType]] = set()
    NESTED_COMMENTS = False


def cut(file_tokens: Iterable[Token]) -> Iterator[list[Token]]:
    """The tokens of each statement of a file; empty ones are left out."""
    chunk: list[Token] = []
    for token in file_tokens:
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


class Reader(parser.Parser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNC_TOKENS = {
        TokenType.VAR,
        TokenType.IDENTIFIER,
        TokenType.TABLE,
        TokenType.LEFT,
        TokenType.RIGHT,
        TokenType.UNNEST,
        TokenType.EXISTS,
        TokenType.ANY,
        TokenType.ALL,
        TokenType.SOME,
        TokenType.FILTER,
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS = {"CASE": lambda self: self._parse_case()}
    RANGE_PARSERS = {
        kind: parser.Parser.RANGE_PARSERS[kind]
        for kind in (TokenType.BETWEEN, TokenType.IN, TokenType.IS, TokenType.LIKE, TokenType.SIMILAR_TO)
    }
    UNARY_PARSERS = {
        kind: parser.Parser.UNARY_PARSERS[kind] for kind in (TokenType.PLUS, TokenType.DASH, TokenType.NOT)
    }
    TERM = {TokenType.PLUS: exp.Add, TokenType.DASH: exp.Sub}
    FACTOR = {TokenType.MOD: exp.Mod, TokenType.SLASH: exp.Div, TokenType.STAR: exp.Mul}
    BITWISE: ClassVar[dict[Any, Any]] = {}
    EQUALITY = {TokenType.EQ: exp.EQ, TokenType.NEQ: exp.NEQ}
    COLUMN_OPERATORS = {TokenType.DOT: None}
    PLACEHOLDER_PARSERS: ClassVar[dict[Any, Any]] = {}
    JOIN_KINDS = {TokenType.INNER, TokenType.CROSS, TokenType.OUTER}
    JOIN_METHODS = {TokenType.NATURAL}
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}

    def reset(self) -> None:
        super().reset()
        self.noted: set[int] = set()

    def error(self, message: str, token: Token | None = None, hint: str = "") -> SqlError:
        at = token or self._curr or self._prev
        return SqlError(message, *Text(self.sql).place(at.start if at else 0), hint)

    def expected(self, what: str) -> NoReturn:
        next_text = self._curr.text if self._curr else "the statement's end"
        raise self.error(f"expected {what}, not {next_text[:40]!r}")

    def take(self, kind: TokenType, what: str) -> None:
        if not self._match(kind):
            self.expected(what)

    def words(self, *texts: str) -> bool:
        """Take these words, if they are next."""
        if not self._match_text_seq(*texts):
            return False
        for back in range(1, len(texts) + 1):
            self._mark(self._tokens[self._index - back])
        return True

    def name(self) -> exp.Identifier:
        identifier = self._parse_id_var(any_token=False)
        if not isinstance(identifier, exp.Identifier):
            self.expected("a name")
        check_name(identifier, Text(self.sql))  # some go into no tree
        return identifier

    def _parse_primary(self) -> Any:
        if self._match_pair(TokenType.DOT, TokenType.NUMBER):  # .5
            return self.expression(exp.Literal.number(f".{self._prev.text}"), self._prev)
        return super()._parse_primary()

    def text(self) -> str:
        if not self._match(TokenType.STRING):
            self.expected("a text in single quotes")
        self._mark(self._prev)
        return str(self._prev.text)

    def _mark(self, token: Token) -> None:
        """The token went into a node as a plain text."""
        self.noted.add(token.start)

    def value(self) -> Any:
        expression = self._parse_disjunction()
        if expression is None:
            self.expected("an expression")
        return expression

    def _query(self) -> Any:
        query = self._parse_select(table=False) if self._curr.token_type != TokenType.L_PAREN else None
        if query is None:
            query = self._parse_select(nested=True, parse_subquery_alias=False)
        if query is None:
            self.expected("SELECT")
        return self._parse_query_modifiers(self._parse_set_operations(query))
