"""Functions whose arguments have words between them: CAST, EXTRACT, TRIM, those of JSON and their like.

They become ``Call`` with the words in ``options``; any other function keeps the name it is written with
(``exp.Anonymous``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from vedette.plan.query import Type
from vedette.rules.sql.literals import Literals
from vedette.rules.sql.nodes import Call, WindowFunction

UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND",
         "NANOSECOND", "DOW", "DOY", "ISODOW", "ISOYEAR", "EPOCH", "DECADE", "CENTURY", "MILLENNIUM")  # fmt: skip


class Calls(Literals):
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
    }

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
