# ruff: noqa: RUF012 - sqlglot's classes are configured by class attributes
"""Flink SQL as sqlglot's trees: a tokenizer of Flink's words alone, and the forms that sqlglot does not have.

sqlglot reads many dialects at once and lets pass what it does not know; a rule must not lose a word that way. So:

* words and operators are Flink's only (``_WORDS``): all others are names or errors;
* statements, types, literals of time, intervals, window table functions, functions with words between their arguments
  and MATCH_RECOGNIZE are parsed here;
* ``statements`` holds each tree against the tokens: a name, number or text that is in none of the tree's nodes refuses
  the statement (``_uncovered``).

Functions keep the name they are written with (``exp.Anonymous``, or ``Call`` with ``options``). Positions: ``place`` of
any node. Apache Flink 2.3, "SQL" reference; Apache Calcite 1.36, "SQL language".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, NoReturn

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from vedette.plan.query import Type, Variable

MAX_TOKENS = 50_000
"""Words, numbers and signs of one statement."""
MAX_NODES = 50_000
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


def start(node: Any) -> int:
    """Where a node begins in the text: the least offset known of it and what is below it; -1 for none."""
    if not isinstance(node, exp.Expr):
        return -1
    known = [one.meta["start"] for one in node.walk() if one._meta and "start" in one._meta]
    return min(known, default=-1)


# --- what sqlglot has no node for


class CreateTable(exp.Expression):
    """``columns``: ``ColumnDef``s; ``marks``: (name, expression) of WATERMARK; ``options``: a dict."""

    arg_types = {"this": True, "columns": True, "watermark": False, "mark": False, "options": True}


class ColumnDef(exp.Expression):
    """A physical column (``kind``), a METADATA column (``kind`` and ``metadata``), or a computed one (``value``)."""

    arg_types = {"this": True, "kind": False, "metadata": False, "value": False}


class CreateView(exp.Expression):
    arg_types = {"this": True, "columns": False, "query": True}


class CreateFunction(exp.Expression):
    arg_types = {"this": True, "implementation": True, "language": False}


class InsertInto(exp.Expression):
    arg_types = {"this": True, "columns": False, "query": True}


class SetOfStatements(exp.Expression):
    """BEGIN or END of a STATEMENT SET."""

    arg_types = {"this": True}


class Call(exp.Expression, exp.Func):
    """A function whose arguments have words between them. ``options``: these words, as texts; ``kind``: a ``Type``."""

    arg_types = {"this": True, "expressions": False, "options": False, "kind": False}


class TimeLiteral(exp.Expression):
    """``DATE '…'``, ``TIME '…'``, ``TIMESTAMP '…'``; ``this`` is the type's name, ``text`` the text."""

    arg_types = {"this": True, "text": True}


class IntervalLiteral(exp.Expression):
    """``INTERVAL 'text' unit [TO to]``; ``sign`` is 1 or -1."""

    arg_types = {"text": True, "unit": True, "to": False, "sign": True}


class WindowFunction(exp.Expression, exp.Func):
    """TUMBLE, HOP, SESSION, CUMULATE over a table. ``table``: a Table or Subquery; ``time``: a Column."""

    arg_types = {"this": True, "table": True, "partition": False, "time": True, "expressions": True}


class Pattern(exp.Expression):
    """MATCH_RECOGNIZE. ``partition``, ``measures`` (Aliases) and ``define`` (Aliases) are lists, ``order`` an Order,
    ``pattern`` a tuple of ``Variable``, ``skip`` and ``skip_to`` texts, ``within`` an expression."""

    arg_types = {
        "partition": False, "order": False, "measures": False, "skip": True, "skip_to": False, "pattern": True,
        "within": False, "define": False, "alias": False,
    }  # fmt: skip


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
UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND",
         "NANOSECOND", "DOW", "DOY", "ISODOW", "ISOYEAR", "EPOCH", "DECADE", "CENTURY", "MILLENNIUM")  # fmt: skip
_INTERVAL_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_SIMPLE_TYPES = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INT", "INTEGER": "INT",
    "BIGINT": "BIGINT", "FLOAT": "FLOAT", "REAL": "FLOAT", "DOUBLE": "DOUBLE", "STRING": "STRING", "BYTES": "BYTES",
    "DATE": "DATE",
}  # fmt: skip
_SIZED_TYPES = {"CHAR": 1, "CHARACTER": 1, "VARCHAR": 1, "BINARY": 1, "VARBINARY": 1}
MAX_PRECISION = 38


class Flink(Dialect):
    """The dialect. ``statements`` is how to parse."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_SENSITIVE

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS = ["`"]
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]
        KEYWORDS = _WORDS
        COMMANDS: ClassVar[set[TokenType]] = set()
        NESTED_COMMENTS = False

    class Parser(parser.Parser):
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
            "TUMBLE": lambda self: self._window("TUMBLE"),
            "HOP": lambda self: self._window("HOP"),
            "SESSION": lambda self: self._window("SESSION"),
            "CUMULATE": lambda self: self._window("CUMULATE"),
        }

        # --- statements

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
                raise self.error(
                    f"a statement does not begin with {self._curr.text.upper()[:40]!r}",
                    begin,
                    "CREATE TABLE, CREATE VIEW, INSERT INTO alerts SELECT … or SELECT …",
                )
            return found

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

        def reset(self) -> None:
            super().reset()
            self.taken: set[int] = set()

        def _query(self) -> Any:
            found = self._parse_select(table=False) if self._curr.token_type != TokenType.L_PAREN else None
            if found is None:
                found = self._parse_select(nested=True, parse_subquery_alias=False)
            if found is None:
                self.expected("SELECT")
            return self._parse_query_modifiers(self._parse_set_operations(found))

        def _create(self, begin: Token) -> Any:
            replaced = self.words("OR", "REPLACE")
            self.words("TEMPORARY")
            if self.words("SYSTEM"):
                pass
            if replaced or not self._curr:
                raise self.error("CREATE OR REPLACE is not there", begin, "CREATE TABLE or CREATE VIEW, once")
            if self._match(TokenType.TABLE):
                return self._create_table()
            if self.words("VIEW"):
                self.words("IF", "NOT", "EXISTS")
                name = self.name()
                columns = self._parse_wrapped_csv(self.name) if self._match(TokenType.L_PAREN, advance=False) else None
                self._comment()
                self.take(TokenType.ALIAS, "AS")
                return self.expression(CreateView(this=name, columns=columns, query=self._query()))
            if self.words("FUNCTION"):
                self.words("IF", "NOT", "EXISTS")
                name = self.name()
                self.take(TokenType.ALIAS, "AS")
                implementation, language = self.text(), ""
                if self.words("LANGUAGE"):
                    self._advance()
                    self._mark(self._prev)
                    language = self._prev.text.upper()
                if self._match(TokenType.USING):
                    raise self.error(
                        "USING JAR is not there: functions are written in Python", self._prev, "LANGUAGE PYTHON"
                    )
                return self.expression(CreateFunction(this=name, implementation=implementation, language=language))
            raise self.error(
                f"CREATE {self._curr.text.upper()[:40]} is not there",
                None,
                "CREATE TABLE, CREATE VIEW or CREATE TEMPORARY FUNCTION",
            )

        def _comment(self) -> None:
            if self.words("COMMENT"):
                self.text()

        def _create_table(self) -> Any:
            self.words("IF", "NOT", "EXISTS")
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
                raise self.error(f"{self._curr.text.upper()} of a table is not there", None, "columns, then WITH (…)")
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
                CreateTable(this=name, columns=columns, watermark=watermark, mark=mark, options=(options,))
            )

        def _column(self) -> Any:
            name = self.name()
            if self._match(TokenType.ALIAS):
                found = self.expression(ColumnDef(this=name, value=self.value()))
                self._comment()
                return found
            kind, metadata = self.type(), None
            if self.words("METADATA"):
                metadata = (self.text() if self._match(TokenType.FROM) else name.name,)
                self.words("VIRTUAL")
            elif self._curr.text.upper() in ("PRIMARY", "UNIQUE", "CONSTRAINT"):
                raise self.error("a table of events has no keys", None, "no PRIMARY KEY")
            self._comment()
            return self.expression(ColumnDef(this=name, kind=(kind,), metadata=metadata))

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

        # --- types and literals

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
                    raise self.error(f"{name} WITH TIME ZONE is not there", token, "TIMESTAMP_LTZ(3)")
                else:
                    self.words("WITHOUT", "TIME", "ZONE")
                found = Type(name, precision)
            elif name in ("ARRAY", "MULTISET"):
                if name == "MULTISET":
                    raise self.error("MULTISET is not there", token, "ARRAY<…>")
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
                    f"the type {name[:40]} is not there",
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

        def value(self) -> Any:
            found = self._parse_disjunction()
            if found is None:
                self.expected("an expression")
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

        def _parse_function_call(self, *args: Any, **kwargs: Any) -> Any:
            token = self._curr
            found = super()._parse_function_call(*args, **kwargs)
            if found is not None and token.text.upper() in self.FUNCTION_PARSERS:
                self._mark(token)
                node = found
                while not isinstance(node, Call | WindowFunction) and isinstance(node, exp.Expr):
                    node = node.this
                if isinstance(node, exp.Expr):
                    node.meta["start"] = token.start
            return found

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

        # --- functions with words between their arguments

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
            side = next((one for one in ("BOTH", "LEADING", "TRAILING") if self.words(one)), "")
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
                if clause in options or (name == "JSON_EXISTS" and clause == "EMPTY"):
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

        # --- windows

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
                    and self._next.text.upper()
                    not in ("DESCRIPTOR", "TIMECOL", "GAP", "SIZE", "STEP", "SLIDE", "OFFSET")
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

        # --- patterns

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
                raise self.error("ALL ROWS PER MATCH is not there (nor in Flink)", None, "ONE ROW PER MATCH")
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
                raise self.error("SUBSET is not there (nor in Flink)", self._prev, "the variables one by one")
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
                    f"{self._curr.text.upper()} is not there (nor in Flink)", None, "LAST(A.x, 1), SUM(A.x)"
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
                    TokenType.PIPE: ("alternation | is not there (nor in Flink)", "a statement for each way"),
                    TokenType.L_PAREN: ("a group in PATTERN is not there (nor in Flink)", "the variables one by one"),
                    TokenType.CARET: ("the anchor ^ is not there (Flink ignores it)", "no ^"),
                    TokenType.L_BRACE: ("an exclusion {- -} is not there (nor in Flink)", "the variable without it"),
                }.get(token.token_type)
                if token.text == "$":
                    why = ("the anchor $ is not there (Flink ignores it)", "no $")
                if token.text.upper() == "PERMUTE" and self._next.token_type is TokenType.L_PAREN:
                    why = ("PERMUTE is not there (nor in Flink)", "a statement for each order, UNION ALL")
                if why:
                    raise self.error(why[0], token, why[1])
                name = self._variable()
                if any(one.name == name for one in found):
                    raise self.error(
                        f"the variable {name} twice in PATTERN is not there (nor in Flink)",
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
                    raise self.error("the quantifier ?? is not there (nor in Flink)", token, f"{name}?")
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
                raise self.error("this quantifier is not there (nor in Flink)", token, "{n}, {n,} or {n,m} with m > 0")
            return least, most


# --- a file


class Parsed(NamedTuple):
    """One statement of a file: its tree, or what is wrong with it; ``start``: the offset of its first word."""

    tree: Any
    fault: SqlError | None
    start: int
    words: str
    """Its text."""


def statements(text: Text) -> Iterator[Parsed]:
    """The statements of a file, each parsed by itself. Raises SqlError when the file is no row of words at all."""
    try:
        found = Flink().tokenize(text.sql)
    except TokenError as error:
        at = re.search(r"[Ll]ine:? (\d+), [Cc]ol(?:umn)?:? (\d+)", str(error))
        place = (int(at[1]), int(at[2])) if at else text.place(max(0, len(text.sql) - 1))
        raise SqlError("a quote or comment is not closed, or a sign is none of SQL's", *place) from error
    chunk: list[Token] = []
    for token in [*found, None]:
        if token is not None and token.token_type is not TokenType.SEMICOLON:
            chunk.append(token)
        elif chunk:
            words = text.sql[chunk[0].start : chunk[-1].end + 1]
            try:
                yield Parsed(_parsed(chunk, text), None, chunk[0].start, words)
            except SqlError as error:
                yield Parsed(None, error, chunk[0].start, words)
            chunk = []


def _parsed(chunk: list[Token], text: Text) -> Any:
    _check_size(chunk, text)
    reader = Flink.Parser(error_level=ErrorLevel.IMMEDIATE, max_nodes=MAX_NODES, dialect=Flink())
    try:
        (tree,) = reader.parse(chunk, text.sql)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        last = next((one for one in chunk if one.line == first.get("line") and one.col == first.get("col")), chunk[-1])
        reason = str(first.get("description") or "")
        what = "something is missing" if reason.startswith(("Required", "Expected")) else "is not understood here"
        raise SqlError(f"{last.text[:40]!r}: {what}", *text.place(last.start)) from error
    except (RecursionError, AttributeError, TypeError, IndexError, KeyError, AssertionError) as error:
        where = getattr(reader, "_curr", None) or chunk[0]
        raise SqlError("cannot be read", *text.place(where.start)) from error
    _check_covered(tree, chunk, reader.taken, text)
    return tree


_OPENS = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSES = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_ENDS = {TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.UNION, *_CLOSES}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.WITH, TokenType.LT}


def _check_size(chunk: list[Token], text: Text) -> None:
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
            raise SqlError("hints are not there", *text.place(token.start), "the query without /*+ … */")


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
