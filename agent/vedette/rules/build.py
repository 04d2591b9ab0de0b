"""Rule files to a plan: each file to the front end of its language, then literals by their frequency in a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from vedette.engine.prefilter import measured
from vedette.plan import plan as plans
from vedette.plan.ir import And, Expr, Refusal, Rule
from vedette.plan.limits import MAX_FILE
from vedette.plan.literals import Cost, Measured, candidates, guess
from vedette.plan.plan import Plan
from vedette.plan.query import Statement
from vedette.rules.authoring.cases import is_test
from vedette.rules.formats import Formats, is_format
from vedette.rules.ruleset import Describer, FrontEnd, RuleSet
from vedette.rules.sigma import pipelines as processing
from vedette.rules.sigma.frontend import Sigma
from vedette.system.folders import listed, read_regular

MAX_SAMPLE = 16 << 20
"""Bytes of a sample that are looked at."""

SUFFIXES = (".yml", ".yaml", ".sql", ".toml")
"""Suffixes of rule files."""
SIGMA = ".yml"
"""The language of a file whose suffix names none, and of text without a file."""


def front_ends(
    rules: RuleSet, pipelines: Iterable[Path], lookups: Iterable[Path], wanted: frozenset[str] = frozenset()
) -> dict[str, FrontEnd]:
    """The rule languages, by the suffix of their files."""
    processed = replace(processing.load(pipelines, lookups), wanted=wanted)
    rules.lookups = dict(processed.tables)
    sigma = Sigma(rules, processed)
    return {SIGMA: sigma, ".yaml": sigma, ".sql": _Late(rules), ".toml": Formats(rules)}


class _Late:
    """SQL's front end, imported for the first file: its parser takes a third of what Sigma alone imports."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._sql: FrontEnd | None = None

    def add(self, content: bytes | str, path: str) -> None:
        self._loaded().add(content, path)

    def finish(self) -> None:
        if self._sql is not None:
            self._sql.finish()

    def names(self, rule: Rule) -> dict[Expr, str]:
        return self._loaded().names(rule)

    def _loaded(self) -> FrontEnd:
        if self._sql is None:
            from vedette.rules.sql.frontend import Sql

            self._sql = Sql(self._rules)
        return self._sql


def files(paths: Iterable[Path]) -> Iterator[Path]:
    """The rule files at ``paths``: files as given, folders recursively, without hidden files and test events.

    Test events are left out also where they are named, as a shell's ``*.yml`` names them. Raises FileNotFoundError for
    a path that does not exist, and when nothing but test events is named.
    """
    paths = list(paths)
    rule_paths = [path for path in paths if not is_test(path)]
    if paths and not rule_paths:
        raise FileNotFoundError(f"{paths[0]}: holds test events: give the rule file beside it, or the folder")
    for path in rule_paths:
        if path.is_dir():
            listing = (file for file in listed(path, SUFFIXES) if not is_test(file))
            yield from (file for file in listing if is_format(file) is not False)
        elif path.exists():
            yield path
        else:
            raise FileNotFoundError(f"{path}: no such rule file or folder")


def empty(
    pipelines: Iterable[Path] = (),
    lookups: Iterable[Path] = (),
    functions: Describer | None = None,
    wanted: frozenset[str] = frozenset(),
) -> RuleSet:
    """A rule set that rules can be added to. ``functions``: what imports the modules of user functions to look into
    them (``udf/host.py``); None: rules that call some are refused. Raises OSError for a pipeline or lookup that does
    not exist, ValueError for a pipeline that cannot be used."""
    rules = RuleSet(functions=functions)
    rules.front_ends.update(front_ends(rules, pipelines, lookups, wanted))
    return rules


def load(
    paths: Iterable[Path],
    pipelines: Iterable[Path] = (),
    lookups: Iterable[Path] = (),
    functions: Describer | None = None,
    wanted: frozenset[str] = frozenset(),
) -> RuleSet:
    """The rules of ``files(paths)``, not yet with their filters and correlations: ``from_rules`` joins these.
    ``wanted``: the names of lookups that are to be built, which are in none of ``lookups``."""
    return load_files(files(paths), pipelines, lookups, functions, wanted)


def load_files(
    paths: Iterable[Path],
    pipelines: Iterable[Path] = (),
    lookups: Iterable[Path] = (),
    functions: Describer | None = None,
    wanted: frozenset[str] = frozenset(),
) -> RuleSet:
    """``load`` of what ``files`` gave. A file that cannot be read is refused by itself, and so is the second rule of an
    id."""
    rules = empty(pipelines, lookups, functions, wanted)
    for path in paths:
        name = str(path).encode("utf-8", "replace").decode()  # a plan's texts are UTF-8, file names need not be
        try:
            content = read_regular(path, MAX_FILE + 1)
        except OSError as error:
            rules.refused.append(Refusal(name, 1, "", "", f"cannot be read: {error.strerror}"))
            continue
        rules.front_ends.get(path.suffix, rules.front_ends[SIGMA]).add(content, name)
    return rules


def add(rules: RuleSet, content: bytes | str, path: str = "<rule>") -> None:
    """Compile the Sigma rules of one text into ``rules``."""
    rules.front_ends[SIGMA].add(content, path)


def read(content: bytes | str, path: str = "<rule>") -> RuleSet:
    """The rules of one Sigma text, not yet with their filters and correlations."""
    rules = empty()
    add(rules, content, path)
    return rules


def build(
    paths: Iterable[Path],
    *,
    sample: bytes = b"",
    pipelines: Iterable[Path] = (),
    lookups: Iterable[Path] = (),
    functions: Describer | None = None,
) -> Plan:
    """The plan of all rules at ``paths``, as ``pipelines`` map them; refused rules are listed in it.

    ``sample``: lines of the traffic to be evaluated, for choosing rare literals; without it their frequency is guessed.
    Raises as ``files`` and ``empty`` do.
    """
    return from_rules(load(paths, pipelines, lookups, functions), sample=sample)


def from_text(text: str, *, sample: bytes = b"") -> Plan:
    """The plan of the Sigma rules in one text."""
    return from_rules(read(text), sample=sample)


def from_rules(rules: RuleSet, *, sample: bytes = b"") -> Plan:
    """The plan of loaded rules, with their filters and correlations."""
    joined(rules)
    _refuse_lacking(rules)
    cost: Cost | Measured = cost_of(rules, sample) if sample else guess
    plan = plans.build(
        rules.rules, rules.predicates, rules.refused, cost, rules.correlations, rules.statements, rules.formats.values()
    )
    called = {digest for statement in plan.statements for digest in statement.modules}
    modules = tuple(module for digest, module in sorted(rules.modules.items()) if digest in called)
    return replace(plan, modules=modules).with_lookups(rules.lookups)


def joined(rules: RuleSet) -> RuleSet:
    """``rules``, once, with their filters and correlations."""
    for front_end in dict.fromkeys(rules.front_ends.values()):
        front_end.finish()
    return rules


def _refuse_lacking(rules: RuleSet) -> None:
    """Refuse the statements that ask a lookup which is not there, with the rules that select events for them alone."""
    for statement in list(rules.statements):
        lacks = (plans.lacking(rules.lookups, node.lookup, node.index, node.wanted) for node in statement.lookups)
        if reason := next(filter(None, lacks), ""):
            rules.statements.remove(statement)
            hint = (
                "vedette lookup build --rules makes what rules ask; --lookup or rules.lookups names its file or folder"
            )
            rules.refused.append(
                Refusal(statement.path, statement.line, statement.id, statement.title, f"asks {reason}", hint=hint)
            )
            alone = {scan.rule for scan in statement.scans}.difference(
                scan.rule for other in rules.statements for scan in other.scans
            )
            rules.rules[:] = [rule for rule in rules.rules if rule.id not in alone]
            rules.ids -= alone


def cost_of(rules: RuleSet, sample: bytes) -> Measured:
    """Measure how common in ``sample`` everything is that the prefilter could search for."""
    literals: set[bytes] = set()
    for rule in rules.rules:
        literals |= candidates(rule.expr, rules.predicates)
    return measured(literals, sample[:MAX_SAMPLE])


def part_names(rules: RuleSet, rule: Rule) -> dict[Expr, str]:
    """Names that authors give to the parts of a rule: its search identifiers, and the filters joined to it."""
    names = rules.front_ends.get(Path(rule.path).suffix, rules.front_ends[SIGMA]).names(rule)
    filters = [rule_filter for rule_filter in rules.filters if rule.id in rule_filter.joined]
    if filters and isinstance(rule.expr, And):  # joining puts a filter's condition behind all others
        names |= {
            part: str(rule_filter) for rule_filter, part in zip(filters, rule.expr.args[-len(filters) :], strict=True)
        }
    return names


def described(plan: Plan) -> list[dict[str, object]]:
    """One JSON-able row per rule, correlation and statement: what a bundle's ``rules.json`` and ``rules list`` show."""
    rows: list[dict[str, object]] = []
    for rule in plan.written:
        row: dict[str, object] = {"id": rule.id, "title": rule.title, "level": rule.level, "tags": list(rule.tags)}
        if isinstance(rule, Rule):
            row["logsource"] = {name: value for name, value in rule.logsource._asdict().items() if value}
        elif isinstance(rule, Statement):
            row["tables"] = sorted({scan.table for scan in rule.scans})
        else:
            row["correlation"] = {"type": rule.kind.value, "rules": [slot.rule_id for slot in rule.slots]}
        rows.append({**row, "digest": rule.digest, "alerts": rule.id not in plan.silent})
    return rows
