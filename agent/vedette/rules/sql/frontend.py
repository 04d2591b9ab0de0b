"""``.sql`` files to statements: the front end (``ruleset.FrontEnd``) of SQL.

A file declares tables, views and sinks and inserts into ``alerts`` or a sink; each INSERT INTO these (or SELECT by
itself) is one rule. Comment lines before it, or at the head of the file for all of its rules, say what alerts carry:

    -- title: Many failed logins by one user
    -- id: 6f2c9a54-5e0b-4d3e-9a6b-0d6c1b1f5f10
    -- level: high
    -- tags: attack.credential_access, attack.t1110
    -- entities: user=user, src_ip=ip
    -- suppress: by user for 1h

For each Scan of a statement a rule of the set selects its events (``predicates.py``); it has an id made of its meaning,
so that equal scans are one, and makes no alerts.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any

from vedette.decode.entities import KINDS
from vedette.plan.ir import LEVELS, Expr, Refusal, Rule, Suppress
from vedette.plan.limits import MAX_RULES
from vedette.plan.query import HEAD, Expression, Node, Scan, Statement, dump
from vedette.plan.stored import load
from vedette.rules.ruleset import RuleSet, Unsupported
from vedette.rules.sigma.frontend import meaning_digest
from vedette.rules.sigma.head import derived_id, own_id, suppress_of
from vedette.rules.sql.lower.insert import inserted
from vedette.rules.sql.lower.relation import Relation, renamed
from vedette.rules.sql.lower.select import Lowering
from vedette.rules.sql.lower.sources import scanned
from vedette.rules.sql.names.catalog import ALERTS, EVENTS, Catalog, Declaring, Own
from vedette.rules.sql.names.scope import Open
from vedette.rules.sql.optimise.apply import applied, merging
from vedette.rules.sql.optimise.identify import identified
from vedette.rules.sql.optimise.simplify import simplified
from vedette.rules.sql.parse import dialect, trees
from vedette.rules.sql.parse.reader import SqlError, Text
from vedette.rules.sql.parse.trees import Wrong
from vedette.rules.sql.parse.words import word_list
from vedette.rules.sql.predicates import Asked, necessary, with_rules
from vedette.stream.aggregates.table import AGGREGATES
from vedette.stream.reader import by_receipt

MAX_FILE = 1 << 20
"""Bytes of a file."""
MAX_STATEMENTS = 1_000
"""Statements of a file."""
_KEYS = word_list(
    "title id level tags description entities suppress author date modified references status falsepositives"
)
MEANT = 0.75
"""Likeness to a key from which on a word is taken for a mistyped one; other words are comments."""
_LINE = re.compile(r"\s*--\s*(\w+)\s*:\s*(.*?)\s*$")


class Sql:
    """Compiles files into ``rules``; each by itself."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules

    def names(self, rule: Rule) -> dict[Expr, str]:
        return {}

    def finish(self) -> None:
        """Nothing refers to other files."""

    def add(self, content: bytes | str, path: str) -> None:
        refused = self.rules.refused
        if len(content) > MAX_FILE:
            refused.append(Refusal(path, 1, "", "", f"a file of more than {MAX_FILE} bytes: make several of it"))
            return
        try:
            sql = content if isinstance(content, str) else content.decode("utf-8")
            sql.encode("utf-8")
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            before = content[: error.start]
            line = before.count("\n") if isinstance(before, str) else before.count(b"\n")
            refused.append(Refusal(path, line + 1, "", "", "is no UTF-8"))
            return
        File(self.rules, path, Text(sql.removeprefix("\ufeff"))).read()


class File:
    """One file while it is read."""

    def __init__(self, rules: RuleSet, path: str, text: Text) -> None:
        self.rules = rules
        self.path = path
        self.text = text
        self.catalog = Catalog()
        self.declaring = Declaring(rules, path)
        self.head: dict[str, str] = {}
        self._used: set[str] = set()
        """Ids that the file's rules have."""
        self._unknown = 0
        """Line of the first refused statement of which nobody can tell what it changes for those behind it."""

    def read(self) -> None:
        try:
            statements = list(dialect.statements(self.text))
        except SqlError as error:
            self._refuse(error, "", "")
            return
        if len(statements) > MAX_STATEMENTS:
            self._refuse(SqlError(f"more than {MAX_STATEMENTS} statements in one file", 1), "", "")
            return
        end = 0
        for number, parsed in enumerate(statements):
            own = header(self.text.sql[end : parsed.start])
            if not number:
                self.head = own
            end = parsed.start + len(parsed.words)
            head = {**self.head, **own}
            title = head.get("title") or PurePath(self.path).stem.replace("_", " ")
            rule_id = own.get("id", self.head.get("id", ""))
            first = len(self.rules.predicates)
            placeholders = len(self.rules.placeholders)
            rules = len(self.rules.rules)
            try:
                if parsed.fault is not None:
                    raise parsed.fault
                self._statement(parsed, head, title, rule_id)
            except (SqlError, Wrong, Unsupported, ValueError, LookupError, RecursionError) as error:
                for rule in self.rules.rules[rules:]:
                    self.rules.ids.discard(rule.id)
                del self.rules.rules[rules:]
                self.rules.forget(first, placeholders)
                fault = self._placed(error, parsed)
                self._refuse(fault, rule_id, title)
                self._without(parsed, fault)
        for name, fed in self.catalog.streams.items():
            if name not in self.catalog.read:
                place = trees.start(fed[0].query)
                line, column = self.text.place(max(0, place))
                why = f"nothing reads the stream {name}: INSERT INTO {ALERTS}, or a SELECT that reads it, behind this"
                self.rules.refused.append(Refusal(self.path, line, "", name, why, column))

    def _without(self, parsed: dialect.Parsed, fault: SqlError) -> None:
        """Leave no other meaning to what stands behind a statement that is refused."""
        kind, name = parsed.subject
        line = self.text.place(parsed.start)[0]
        if not kind or (kind == "FUNCTION" and name.upper() in AGGREGATES):  # no call of these asks for another
            self._unknown = self._unknown or line
        elif kind == "FUNCTION":
            self.catalog.functions[name.upper()] = Own(name.upper(), "", problem=fault.reason, hint=fault.hint)
        elif kind != "SELECT" and not (kind == "INTO" and name in (ALERTS, *self.catalog.sinks)):
            self.catalog.refused.setdefault(name, line)

    def _placed(self, error: Exception, parsed: dialect.Parsed) -> SqlError:
        if isinstance(error, SqlError):
            return error
        at = parsed.start
        hint = ""
        reason = str(error)
        if isinstance(error, Wrong):
            at = trees.start(error.node) if error.node is not None else parsed.start
            reason = error.reason
            hint = error.hint
        elif isinstance(error, Unsupported):
            hint = error.hint
        elif isinstance(error, RecursionError):
            reason = "nested too deeply"
        return SqlError(reason, *self.text.place(parsed.start if at < 0 else at), hint)

    def _refuse(self, error: SqlError, rule_id: str, title: str) -> None:
        self.rules.refused.append(
            Refusal(self.path, error.line or 1, rule_id, title, error.reason, error.column, error.hint)
        )

    def _statement(self, parsed: dialect.Parsed, head: dict[str, str], title: str, rule_id: str) -> None:
        tree = parsed.tree
        if isinstance(tree, trees.SetOfStatements):
            return
        if isinstance(tree, trees.CreateView):
            Lowering(self.catalog).view_alone(tree)
        if self.catalog.declare(tree, self.declaring):
            if isinstance(tree, trees.CreateTable) and tree.this.name in self.catalog.tables:
                try:
                    scanned(self.catalog.tables[tree.this.name], Open(EVENTS), self.catalog.functions)
                except Wrong:
                    del self.catalog.tables[tree.this.name]
                    raise
            return
        names: tuple[str, ...] = ()
        query = tree
        if isinstance(tree, trees.InsertInto):
            names = tuple(name.name for name in tree.args.get("columns") or ())
            self.catalog.usable(tree.this)
            if tree.this.name not in (ALERTS, *self.catalog.sinks):
                Lowering(self.catalog).view_alone(tree)
                self.catalog.feed(tree)
                return
            query = tree.args["query"]
        self._rule(query, names, parsed, head, title, rule_id)

    def _rule(
        self, query: Any, names: tuple[str, ...], parsed: dialect.Parsed, head: dict[str, str], title: str, rule_id: str
    ) -> None:
        """``query``: by itself, or of an INSERT INTO with its column list ``names``."""
        rules = self.rules
        if len(rules.rules) + len(rules.statements) >= MAX_RULES:
            raise Unsupported(f"the rule set holds {MAX_RULES} rules already, the most it can hold")
        for key in head:
            if key not in _KEYS and (meant := get_close_matches(key, _KEYS, 1, MEANT)):
                raise Wrong(query, f"the header has no key {key}", f"-- {meant[0]}: …")
        level = head.get("level", "medium").lower()
        if level not in LEVELS:
            raise Wrong(query, f"the level is one of {', '.join(LEVELS)}, not {level!r:.40}")
        relation = Lowering(self.catalog).statement(query)
        if self._unknown:
            reason = f"line {self._unknown} is refused, and may change what this means"
            raise Wrong(query, reason, "correct that line first")
        tree = parsed.tree
        sink = self.catalog.sinks.get(tree.this.name) if isinstance(tree, trees.InsertInto) else None
        if sink is not None:
            relation = inserted(relation, sink, names, query)
        else:
            relation = renamed(relation, names, query) if names else relation
            check_columns(relation, query)
        shown = tuple(col.name for col in relation.cols)
        root = identified(simplified(relation.node, shown))
        merging(root, self.catalog.functions.values())
        root = applied(root)
        root = with_rules(root, lambda scan, when, asked: self._selecting(scan, when, asked, title, parsed))
        _check_depth(root)
        tags = tuple(filter(None, (tag.strip() for tag in head.get("tags", "").split(","))))
        self._check_id(rule_id, head)
        rule_id = self._id(rule_id, title)
        line = self.text.place(parsed.start)[0]
        rules.ids.add(rule_id)
        rules.statements.append(
            Statement(
                rule_id,
                title,
                level,
                tags,
                root,
                root.fingerprint.hex(),
                self.path,
                line,
                entities(head, shown, query) if sink is None else (),
                suppression(head, query) if sink is None else None,
                "" if sink is None else sink.sink,
            )
        )

    def _check_id(self, rule_id: str, head: dict[str, str]) -> None:
        if rule_id and rule_id in self.rules.ids and rule_id not in self._used:
            raise Unsupported(f"id {rule_id} is used by an earlier rule")

    def _id(self, rule_id: str, title: str) -> str:
        """The file's id for the first of its rules; the others have ids made of it."""
        chosen = rule_id or derived_id({"title": title})
        if chosen in self.rules.ids:
            chosen = own_id(chosen, self.rules.ids)
        self._used.add(rule_id)
        return chosen

    def _selecting(
        self, scan: Scan, when: Expression | None, asked: Sequence[Asked], title: str, parsed: dialect.Parsed
    ) -> str:
        """The id of the rule that selects the events of a scan."""
        rules = self.rules
        table = self.catalog.tables[scan.table]
        source = table.logsource
        all_events = scan.mark is not None and table.all_events and not by_receipt(scan)  # for the mark, as in Flink
        expr = necessary(rules, scan) if all_events else necessary(rules, scan, when, asked)
        digest = meaning_digest(expr, rules.predicates, source)
        rule_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"scan/{digest}"))
        if rule_id not in rules.ids:
            line = self.text.place(parsed.start)[0]
            rules.add(
                Rule(rule_id, f"events of: {title}", "informational", (), source, (), expr, digest, self.path, line)
            )
        return rule_id


def header(before: str) -> dict[str, str]:
    """The ``-- key: value`` lines of the last run of comment lines before a statement; a key may be any word."""
    lines = before.split("\n")
    entries: dict[str, str] = {}
    last = ""
    for line in lines:
        if match := _LINE.match(line):
            last = match[1].lower()
            entries[last] = match[2]
        elif last and (more := re.match(r"\s*--\s{3,}(\S.*?)\s*$", line)):
            entries[last] += f" {more[1]}"
        elif line.strip() and not line.strip().startswith("--") and not line.strip().startswith((";", "/*", "*")):
            last = ""
    return entries


def check_columns(relation: Relation, query: Any) -> None:
    """Refuse what an alert cannot carry: it has each column once, by a name."""
    seen: set[str] = set()
    for col in relation.cols:
        if col.name.startswith("EXPR$"):
            raise Wrong(query, "each column of an alert has a name", "… AS name")
        if col.name in seen:
            raise Wrong(query, f"two columns are called {col.name}", f"… AS {col.name}_2")
        if col.name in HEAD and col.type.name not in ("STRING", "CHAR", "VARCHAR", "NULL"):
            raise Wrong(
                query, f"the column {col.name} is a text, this is {col.type}", f"CAST(… AS STRING) AS {col.name}"
            )
        seen.add(col.name)


def entities(head: dict[str, str], columns: tuple[str, ...], query: Any) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in filter(None, (part.strip() for part in head.get("entities", "").split(","))):
        column, _, kind = (text.strip() for text in part.partition("="))
        if column not in columns or kind not in KINDS:
            raise Wrong(query, f"entities: {part!r:.60} is no COLUMN=KIND, the kind one of {', '.join(KINDS)}")
        pairs.append((column, kind))
    return tuple(pairs)


def suppression(head: dict[str, str], query: Any) -> Suppress | None:
    asked = head.get("suppress")
    if asked is None:
        return None
    match = re.fullmatch(r"(?:by\s+(.+?)\s+)?for\s+(\S+)", asked)
    if match is None:
        raise Wrong(query, "suppress: says for how long", "-- suppress: by user for 10m")
    by = [name.strip() for name in (match[1] or "").split(",") if name.strip()]
    return suppress_of({"suppress": {"by": by, "for": match[2]}})


def _check_depth(root: Node) -> None:
    """Nothing that an agent would not read."""
    try:
        load(dump(root))
    except (ValueError, RecursionError):
        raise Unsupported("queries and functions nested too deeply for a plan") from None
