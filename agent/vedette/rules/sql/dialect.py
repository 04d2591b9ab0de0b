"""Flink SQL as sqlglot's trees; ``statements`` is how to parse.

sqlglot reads many dialects at once and lets pass what it does not know; a rule must not lose a word that way. So words
and operators are Flink's only (``tokens.py``, ``reader.py``), what sqlglot reads otherwise is parsed here and in the
parts (``ddl.py``, ``literals.py``, ``calls.py``, ``windows.py``, ``pattern.py``), and each tree is held against the
tokens: a name, number or text that is in none of the tree's nodes refuses the statement (``_check_covered``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from vedette.rules.sql import tokens
from vedette.rules.sql.ddl import Definitions
from vedette.rules.sql.nodes import InsertInto, SetOfStatements
from vedette.rules.sql.pattern import Patterns
from vedette.rules.sql.tokens import SqlError, Text, check_size, cut
from vedette.rules.sql.windows import Windows

MAX_NODES = 50_000
_SOFT = frozenset(
    [
        "BOTH",
        "BY",
        "CURRENT",
        "DISTINCT",
        "EMPTY",
        "ERROR",
        "FIRST",
        "FOLLOWING",
        "IGNORE",
        "KEYS",
        "LAST",
        "NULLS",
        "OBJECT",
        "ORDINALITY",
        "PARTITION",
        "PRECEDING",
        "RECURSIVE",
        "RESPECT",
        "ROW",
        "ROWS",
        "SCALAR",
        "SYMMETRIC",
        "ASYMMETRIC",
        "SYSTEM_TIME",
        "TO",
        "UNBOUNDED",
        "UNIQUE",
        "VALUE",
        "ARRAY",
        "OF",
        "WITHIN",
        "GROUP",
        "WITHOUT",
        "SEPARATOR",
    ]
)
"""Words that sqlglot reads as such without a node of their own; where they are refused or taken, the node's arguments
say (``check.py``)."""


class Flink(Dialect):
    """The tokenizer and the parser, put together from their parts."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE

    Tokenizer = tokens.Tokenizer

    class Parser(Definitions, Patterns, Windows):
        def _parse_statement(self) -> Any:
            begin = self._curr
            if self._match(TokenType.CREATE):
                found = self._create(begin)
            elif self._match(TokenType.INSERT):
                found = self._insert()
            elif self.words("EXECUTE", "STATEMENT", "SET"):
                self.words("BEGIN")
                if not self._curr:
                    return self.expression(SetOfStatements(this="BEGIN"))
                found = self._parse_statement()
            elif self.words("BEGIN", "STATEMENT", "SET"):
                found = self.expression(SetOfStatements(this="BEGIN"))
            elif self._match(TokenType.END):
                found = self.expression(SetOfStatements(this="END"))
            elif self._curr.token_type in (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN):
                found = self._query()
            else:
                raise self.no_statement(begin)
            return found

        def no_statement(self, begin: Token) -> SqlError:
            return self.error(
                f"a statement does not begin with {begin.text.upper()[:40]!r}",
                begin,
                "CREATE TABLE, CREATE VIEW, INSERT INTO alerts SELECT … or SELECT …",
            )

        def _insert(self) -> Any:
            if not self._match(TokenType.INTO):
                raise self.error("only INSERT INTO is there", None, "INSERT INTO alerts SELECT …")
            name = self.name()
            columns = None
            if self._match(TokenType.L_PAREN, advance=False) and self._next.token_type != TokenType.SELECT:
                columns = self._parse_wrapped_csv(self.name)
            if self._curr.token_type not in (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN):
                self.expected("SELECT")
            return self.expression(InsertInto(this=name, columns=columns, query=self._query()))


_QUERIES = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.VALUES)
_KINDS = {"TABLE": "TABLE", "VIEW": "VIEW", "FUNCTION": "FUNCTION", "INTO": "INTO", "OVERWRITE": "INTO"}
_BEFORE = {
    *("EXECUTE", "STATEMENT", "SET", "BEGIN", "INSERT"),
    *("CREATE", "OR", "REPLACE", "TEMPORARY", "SYSTEM", "IF", "NOT", "EXISTS"),
}
"""Words between a statement's beginning and the name that it is about, besides those of ``_KINDS``."""
_NAMED = (TokenType.VAR, TokenType.IDENTIFIER)


class Parsed(NamedTuple):
    """One statement of a file: its tree, or what is wrong with it; ``start``: the offset of its first word."""

    tree: Any
    fault: SqlError | None
    start: int
    words: str
    """Its text."""
    tokens: list[Token]

    @property
    def subject(self) -> tuple[str, str]:
        """TABLE, VIEW, FUNCTION or INTO, and the name of which it says something; SELECT and no name for a query. Of a
        statement that cannot be read, perhaps neither."""
        if self.tokens[0].token_type in _QUERIES:
            return "SELECT", ""
        words = iter(self.tokens)
        kind = next((one.text.upper() for one in words if one.text.upper() not in _BEFORE), "")
        name = next((one for one in words if one.text.upper() not in _BEFORE), None)
        behind = next(words, None)
        whole = behind is None or behind.token_type is not TokenType.DOT
        if kind not in _KINDS or name is None or name.token_type not in _NAMED or not whole:
            return "", ""
        return _KINDS[kind], name.text


def statements(text: Text) -> Iterator[Parsed]:
    """The statements of a file, each parsed by itself. Raises SqlError when the file is no row of words at all."""
    try:
        found = Flink().tokenize(text.sql)
    except TokenError as error:
        at = re.search(r"[Ll]ine:? (\d+), [Cc]ol(?:umn)?:? (\d+)", str(error))
        place = (int(at[1]), int(at[2])) if at else text.place(max(0, len(text.sql) - 1))
        raise SqlError("a quote or comment is not closed, or a sign is none of SQL's", *place) from error
    for chunk in cut(found):
        words = text.sql[chunk[0].start : chunk[-1].end + 1]
        try:
            yield Parsed(_parsed(chunk, text), None, chunk[0].start, words, chunk)
        except SqlError as error:
            yield Parsed(None, error, chunk[0].start, words, chunk)


def _parsed(chunk: list[Token], text: Text) -> Any:
    check_size(chunk, text)
    _check_ends(chunk, text)
    reader = Flink.Parser(error_level=ErrorLevel.IMMEDIATE, max_nodes=MAX_NODES, dialect=Flink())
    try:
        found = reader.parse(chunk, text.sql)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        last = next((one for one in chunk if one.line == first.get("line") and one.col == first.get("col")), chunk[-1])
        reason = str(first.get("description") or "")
        what = "something is missing" if reason.startswith(("Required", "Expected")) else "is not understood here"
        raise SqlError(f"{last.text[:40]!r}: {what}", *text.place(last.start)) from error
    except (RecursionError, AttributeError, TypeError, IndexError, KeyError, AssertionError) as error:
        where = getattr(reader, "_curr", None) or chunk[0]
        raise SqlError("cannot be read", *text.place(where.start)) from error
    if not found:  # sqlglot leaves out what begins with ELSE
        raise reader.no_statement(chunk[0])
    (tree,) = found
    _check_covered(tree, chunk, reader.taken, text)
    return tree


def _check_ends(chunk: list[Token], text: Text) -> None:
    """END ends a CASE, or stands by itself: sqlglot takes it for a name as well."""
    open_ = int(chunk[0].token_type is TokenType.END)
    for token, before in zip(chunk, [None, *chunk], strict=False):
        if before is not None and before.token_type is TokenType.DOT:  # a field, as in event.end
            continue
        if token.token_type is TokenType.CASE:
            open_ += 1
        elif token.token_type is TokenType.END:
            open_ -= 1
            if open_ < 0:
                raise SqlError("END is no name", *text.place(token.start), "`END` in backticks")


_NAMES = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.HEX_STRING}


def _check_covered(tree: Any, chunk: list[Token], taken: set[int], text: Text) -> None:
    """Nothing that says something is lost between the tokens and the tree."""
    seen = set(taken)
    for node in tree.walk():
        if node._meta and "start" in node._meta:
            seen.add(node._meta["start"])
    for token in chunk:
        if token.token_type in _NAMES and token.start not in seen:
            if token.token_type is TokenType.VAR and token.text.upper() in _SOFT:
                continue
            if token.token_type is TokenType.VAR and token is chunk[0]:
                continue
            raise SqlError(f"{token.text[:40]!r} is not understood here", *text.place(token.start))
