"""Flink SQL as sqlglot's trees; ``statements`` is how to parse.

sqlglot reads many dialects at once and lets pass what it does not know; a rule must not lose a word that way. So words
and operators are Flink's only (``reader.py``), what sqlglot reads otherwise is parsed here and in the parts
(``values.py``, ``clauses.py``), and each tree is held against the tokens: a name, number or text that is in none of the
tree's nodes refuses the statement (``_check_covered``).

Keys, partitions and jars of CREATE, which a table of events does not have, are refused with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from vedette.rules.sql.parse import reader
from vedette.rules.sql.parse.clauses import Patterns, Windows
from vedette.rules.sql.parse.reader import SqlError, Text, check_name, check_size, cut
from vedette.rules.sql.parse.trees import (
    ColumnDef,
    CreateFunction,
    CreateTable,
    CreateView,
    InsertInto,
    SetOfStatements,
)
from vedette.rules.sql.parse.values import Literals
from vedette.rules.sql.parse.words import word_list


class Definitions(Literals):
    def _create(self, begin: Token) -> Any:
        replaced = self.words("OR", "REPLACE")
        self.words("TEMPORARY")
        if self.words("SYSTEM"):
            pass
        if replaced or not self._curr:
            raise self.error("CREATE OR REPLACE is not supported", begin, "CREATE TABLE or CREATE VIEW, once")
        if self._match(TokenType.TABLE):
            return self._create_table()
        if self.words("VIEW"):
            unless_there = self.words("IF", "NOT", "EXISTS")
            name = self.name()
            columns = self._parse_wrapped_csv(self.name) if self._match(TokenType.L_PAREN, advance=False) else None
            self._comment()
            self.take(TokenType.ALIAS, "AS")
            query = self._query()
            return self.expression(CreateView(this=name, columns=columns, query=query, unless_there=unless_there))
        if self.words("FUNCTION"):
            unless_there = self.words("IF", "NOT", "EXISTS")
            name = self.name()
            self.take(TokenType.ALIAS, "AS")
            implementation = self.text()
            language = ""
            if self.words("LANGUAGE"):
                self._advance()
                self._mark(self._prev)
                language = self._prev.text.upper()
            if self._match(TokenType.USING):
                raise self.error(
                    "USING JAR is not supported: functions are written in Python", self._prev, "LANGUAGE PYTHON"
                )
            return self.expression(
                CreateFunction(this=name, implementation=implementation, language=language, unless_there=unless_there)
            )
        raise self.error(
            f"CREATE {self._curr.text.upper()[:40]} is not supported",
            None,
            "CREATE TABLE, CREATE VIEW or CREATE TEMPORARY FUNCTION",
        )

    def _comment(self) -> None:
        if self.words("COMMENT"):
            self.text()

    def _create_table(self) -> Any:
        unless_there = self.words("IF", "NOT", "EXISTS")
        name = self.name()
        columns: list[Any] = []
        watermark = mark = None
        self.take(TokenType.L_PAREN, "(")
        while True:
            if self.words("WATERMARK", "FOR"):
                if mark is not None:
                    raise self.error("a table has one WATERMARK", self._prev)
                watermark = self._parse_column()
                self.take(TokenType.ALIAS, "AS")
                mark = self.value()
            elif self.words("PRIMARY", "KEY") or self._curr.text.upper() == "CONSTRAINT":
                raise self.error("a table of events has no keys", self._prev, "no PRIMARY KEY")
            else:
                columns.append(self._column())
            if not self._match(TokenType.COMMA):
                break
        self.take(TokenType.R_PAREN, ") or ,")
        self._comment()
        if self._curr.text.upper() in ("PARTITIONED", "DISTRIBUTED") or self._curr.token_type == TokenType.LIKE:
            raise self.error(f"{self._curr.text.upper()} of a table is not supported", None, "columns, then WITH (…)")
        options = {}
        if self._match(TokenType.WITH):
            self.take(TokenType.L_PAREN, "(")
            while True:
                token = self._curr
                key = self.text()
                self.take(TokenType.EQ, "=")
                if key in options:
                    raise self.error(f"the option {key!r} twice", token)
                at = self._curr
                options[key] = (self.text(), at.start)
                if not self._match(TokenType.COMMA):
                    break
            self.take(TokenType.R_PAREN, ") or ,")
        return self.expression(
            CreateTable(
                this=name,
                columns=columns,
                watermark=watermark,
                mark=mark,
                options=(options,),
                unless_there=unless_there,
            )
        )

    def _column(self) -> Any:
        name = self.name()
        if self._match(TokenType.ALIAS):
            column = self.expression(ColumnDef(this=name, value=self.value()))
            self._comment()
            return column
        kind = self.column_type()
        metadata = None
        if self.words("METADATA"):
            metadata = (self.text() if self._match(TokenType.FROM) else name.name,)
            self.words("VIRTUAL")
        elif self._curr.text.upper() in ("PRIMARY", "UNIQUE", "CONSTRAINT"):
            raise self.error("a table of events has no keys", None, "no PRIMARY KEY")
        self._comment()
        return self.expression(ColumnDef(this=name, kind=(kind,), metadata=metadata))


MAX_NODES = 50_000
_SOFT = word_list(
    """BOTH BY CURRENT DISTINCT EMPTY ERROR FIRST FOLLOWING IGNORE KEYS LAST NULLS OBJECT ORDINALITY PARTITION
    PRECEDING RECURSIVE RESPECT ROW ROWS SCALAR SYMMETRIC ASYMMETRIC SYSTEM_TIME TO UNBOUNDED UNIQUE VALUE ARRAY
    OF WITHIN GROUP WITHOUT SEPARATOR"""
)
"""Words that sqlglot reads as such without a node of their own; where they are refused or taken, the node's arguments
say (``check.py``)."""


class Flink(Dialect):
    """The tokenizer and the parser, put together from their parts."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE

    Tokenizer = reader.Tokenizer

    class Parser(Definitions, Patterns, Windows):
        def _parse_statement(self) -> Any:
            begin = self._curr
            if self._match(TokenType.CREATE):
                statement = self._create(begin)
            elif self._match(TokenType.INSERT):
                statement = self._insert()
            elif self.words("EXECUTE", "STATEMENT", "SET"):
                self.words("BEGIN")
                if not self._curr:
                    return self.expression(SetOfStatements(this="BEGIN"))
                statement = self._parse_statement()
            elif self.words("BEGIN", "STATEMENT", "SET"):
                statement = self.expression(SetOfStatements(this="BEGIN"))
            elif self._match(TokenType.END):
                statement = self.expression(SetOfStatements(this="END"))
            elif self._curr.token_type in (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN):
                statement = self._query()
            else:
                raise self.no_statement(begin)
            return statement

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
        kind = next((word.text.upper() for word in words if word.text.upper() not in _BEFORE), "")
        name = next((word for word in words if word.text.upper() not in _BEFORE), None)
        behind = next(words, None)
        whole = behind is None or behind.token_type is not TokenType.DOT
        if kind not in _KINDS or name is None or name.token_type not in _NAMED or not whole:
            return "", ""
        return _KINDS[kind], name.text


def statements(text: Text) -> Iterator[Parsed]:
    """The statements of a file, each parsed by itself. Raises SqlError when the file is no row of words at all."""
    try:
        file_tokens = Flink().tokenize(text.sql)
    except TokenError as error:
        at = re.search(r"[Ll]ine:? (\d+), [Cc]ol(?:umn)?:? (\d+)", str(error))
        place = (int(at[1]), int(at[2])) if at else text.place(max(0, len(text.sql) - 1))
        raise SqlError("a quote or comment is not closed, or a sign is none of SQL's", *place) from error
    for chunk in cut(file_tokens):
        words = text.sql[chunk[0].start : chunk[-1].end + 1]
        try:
            yield Parsed(_parsed(chunk, text), None, chunk[0].start, words, chunk)
        except SqlError as error:
            yield Parsed(None, error, chunk[0].start, words, chunk)


def _parsed(chunk: list[Token], text: Text) -> Any:
    check_size(chunk, text)
    _check_ends(chunk, text)
    parser = Flink.Parser(error_level=ErrorLevel.IMMEDIATE, max_nodes=MAX_NODES, dialect=Flink())
    try:
        trees = parser.parse(chunk, text.sql)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        last = next(
            (token for token in chunk if token.line == first.get("line") and token.col == first.get("col")), chunk[-1]
        )
        reason = str(first.get("description") or "")
        what = "something is missing" if reason.startswith(("Required", "Expected")) else "is not understood here"
        raise SqlError(f"{last.text[:40]!r}: {what}", *text.place(last.start)) from error
    except (RecursionError, AttributeError, TypeError, IndexError, KeyError, AssertionError) as error:
        where = getattr(parser, "_curr", None) or chunk[0]
        raise SqlError("cannot be read", *text.place(where.start)) from error
    if not trees:  # sqlglot leaves out what begins with ELSE
        raise parser.no_statement(chunk[0])
    (tree,) = trees
    _check_covered(tree, chunk, parser.noted, text)
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


def _check_covered(tree: Any, chunk: list[Token], noted: set[int], text: Text) -> None:
    """Nothing that says something is lost between the tokens and the tree."""
    seen = set(noted)
    for node in tree.walk():
        if isinstance(node, exp.Identifier):
            check_name(node, text)
        if node._meta and "start" in node._meta:
            seen.add(node._meta["start"])
    for token in chunk:
        if token.token_type in _NAMES and token.start not in seen:
            if token.token_type is TokenType.VAR and token.text.upper() in _SOFT:
                continue
            if token.token_type is TokenType.VAR and token is chunk[0]:
                continue
            raise SqlError(f"{token.text[:40]!r} is not understood here", *text.place(token.start))
