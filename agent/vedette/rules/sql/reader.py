# ruff: noqa: RUF012 - sqlglot's classes are configured by class attributes
"""What all parts of the parser share: which of sqlglot's forms are on, and how to take a token or say what is wrong.

Of sqlglot come SELECT, joins, OVER and expressions; functions, operators and placeholders that Flink does not have are
off. A token that goes into a node as a plain text is noted in ``taken``: ``dialect.py`` holds each tree against its
tokens. Faults are ``SqlError`` with the token's place.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from sqlglot import exp, parser
from sqlglot.tokenizer_core import Token, TokenType

from vedette.rules.sql.tokens import SqlError, Text


class Reader(parser.Parser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNC_TOKENS = {
        TokenType.VAR, TokenType.IDENTIFIER, TokenType.TABLE, TokenType.LEFT, TokenType.RIGHT, TokenType.UNNEST,
        TokenType.EXISTS, TokenType.ANY, TokenType.ALL, TokenType.SOME, TokenType.FILTER,
    }  # fmt: skip
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

    def reset(self) -> None:
        super().reset()
        self.taken: set[int] = set()

    def error(self, message: str, token: Token | None = None, hint: str = "") -> SqlError:
        at = token or self._curr or self._prev
        return SqlError(message, *Text(self.sql).place(at.start if at else 0), hint)

    def expected(self, what: str) -> NoReturn:
        found = self._curr.text if self._curr else "the statement's end"
        raise self.error(f"expected {what}, not {found[:40]!r}")

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
        found = self._parse_id_var(any_token=False)
        if not isinstance(found, exp.Identifier):
            self.expected("a name")
        return found

    def text(self) -> str:
        if not self._match(TokenType.STRING):
            self.expected("a text in single quotes")
        self._mark(self._prev)
        return str(self._prev.text)

    def _mark(self, token: Token) -> None:
        """The token went into a node as a plain text."""
        self.taken.add(token.start)

    def value(self) -> Any:
        found = self._parse_disjunction()
        if found is None:
            self.expected("an expression")
        return found

    def _query(self) -> Any:
        found = self._parse_select(table=False) if self._curr.token_type != TokenType.L_PAREN else None
        if found is None:
            found = self._parse_select(nested=True, parse_subquery_alias=False)
        if found is None:
            self.expected("SELECT")
        return self._parse_query_modifiers(self._parse_set_operations(found))
