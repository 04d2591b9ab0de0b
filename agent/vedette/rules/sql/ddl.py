"""CREATE TABLE, CREATE VIEW and CREATE FUNCTION: columns, the watermark, options.

Keys, partitions and jars, which a table of events does not have, are refused with what to write instead.
"""

from __future__ import annotations

from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from vedette.rules.sql.literals import Literals
from vedette.rules.sql.nodes import ColumnDef, CreateFunction, CreateTable, CreateView


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
            implementation, language = self.text(), ""
            if self.words("LANGUAGE"):
                self._advance()
                self._mark(self._prev)
                language = self._prev.text.upper()
            if self._match(TokenType.USING):
                raise self.error(
                    "USING JAR is not supported: functions are written in Python", self._prev, "LANGUAGE PYTHON"
                )
            return self.expression(CreateFunction(this=name, implementation=implementation, language=language,
                                                  unless_there=unless_there))  # fmt: skip
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
            CreateTable(this=name, columns=columns, watermark=watermark, mark=mark, options=(options,),
                        unless_there=unless_there)
        )  # fmt: skip

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
