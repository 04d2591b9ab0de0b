"""Doubts about rules: pySigma's validators that work without the network, and what only this engine knows.

A finding is an **error** (the rule does not run), a **warning** (it likely does not do what its author meant, or it is
dear) or a **note** (style, metadata). The checks are the rows of ``CHECKS``; pySigma's have its own names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from sigma.correlations import SigmaCorrelationRule
from sigma.exceptions import SigmaError, SigmaRuleLocation
from sigma.rule import SigmaRule
from sigma.rule.attributes import SigmaRelatedType, SigmaStatus
from sigma.validation import SigmaValidator
from sigma.validators.base import SigmaValidationIssue, SigmaValidationIssueSeverity
from sigma.validators.core import validators

from vedette.engine.evaluate import Evaluator
from vedette.plan import reach
from vedette.plan.ir import And, Expr, Leaf, Not, Op, Or, Rule, tests
from vedette.plan.limits import MAX_FILE
from vedette.plan.literals import MAX_LITERALS, Cost, required
from vedette.plan.operators import described
from vedette.plan.plan import AnyRule, Plan
from vedette.plan.relation import Correlation
from vedette.rules import formats
from vedette.rules.authoring import cases
from vedette.rules.build import files
from vedette.rules.ruleset import RuleSet
from vedette.rules.sigma import items
from vedette.rules.sigma.correlation import first_bound
from vedette.rules.sigma.documents import child, collected, construct, pair, place, read
from vedette.rules.sigma.faults import MAX_TRIED
from vedette.rules.sigma.pipelines import POLICY
from vedette.system.folders import read_regular

HOT = 0.05
"""Share of events from which on a literal is called hot."""

OFFLINE = {name: kind for name, kind in validators.items() if name not in ("attacktag", "d3_fendtag", "d3fendtag")}
"""Validators without those that load MITRE's lists from the Internet; see ``ATTACK``."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """``check``: the name it is known and left out by (``--skip``); ``hint``: lines to write instead."""

    severity: Severity
    check: str
    path: str
    line: int
    column: int
    title: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" + (f":{self.column}" if self.column else "")
        return f"{place}: {self.severity}: {self.message} [{self.check}]" + (f" ({self.title})" if self.title else "")


class Written(NamedTuple):
    """A document as it stands in its file; ``node``: its YAML, for places."""

    path: str
    node: Any
    document: dict[str, Any]
    rule: Rule | None
    """The rule that it was compiled to; None when it was not, or is no detection."""
    correlation: Correlation | None = None
    """The correlation that it was compiled to; None when it was not, or is none."""

    @property
    def place(self) -> tuple[int, int]:
        return place(self.node)

    def at(self, *keys: str) -> tuple[int, int]:
        """The place of a key (of a key …), or of the document."""
        nearest = node = self.node
        for name in keys:
            key, node = pair(node, name)
            nearest = key or nearest
        return place(nearest)


class Set(NamedTuple):
    """All that a check may look at."""

    rules: RuleSet
    plan: Plan
    written: list[Written]
    cost: Cost | None
    evaluator: Evaluator
    tested: set[str]
    by_digest: dict[str, list[AnyRule]]


Doubts = Iterator[tuple[Severity, tuple[int, int], str]]


def lint(
    paths: Iterable[Path], rules: RuleSet, plan: Plan, *, cost: Cost | None = None, skip: Iterable[str] = ()
) -> list[Finding]:
    """All findings about the rules at ``paths``, which were loaded as ``rules`` and built as ``plan``.

    ``cost``: how often literals occur (``prefilter.measured`` of a sample); without it none is called hot.
    ``skip``: names of checks to leave out.
    """
    paths = list(paths)
    written = list(_read(paths, plan))
    tests, mistakes = cases.load(plan)
    timed, more = cases.sequences(plan)
    by_digest: dict[str, list[AnyRule]] = {}
    for rule in plan.written:
        by_digest.setdefault(rule.digest, []).append(rule)
    tested = cases.tested(plan, tests, timed)
    everything = Set(rules, plan, written, cost, Evaluator(plan), tested, by_digest)
    findings = [
        Finding(Severity.ERROR, "refused", r.path, r.line, r.column, r.title, r.reason, r.hint) for r in plan.refused
    ]
    failures = [failure for declaration in plan.formats for failure in formats.failures(declaration)]
    findings += [Finding(Severity.ERROR, "tests", *_split(mistake)) for mistake in (*mistakes, *more, *failures)]
    findings += [
        Finding(Severity.NOTE, "tests", declaration.path, 1, 0, declaration.name, "no [[examples]]")
        for declaration in plan.formats
        if not declaration.examples
    ]
    for entry in written:
        for name, check in CHECKS.items():
            for severity, (line, column), message in check(everything, entry):
                title = str(entry.document.get("title", ""))
                findings.append(Finding(severity, name, entry.path, line, column, title, message))
    findings += _validated(written)
    left_out = set(skip)
    shown = [finding for finding in dict.fromkeys(findings) if finding.check not in left_out]
    return sorted(shown, key=lambda finding: (finding.path, finding.line, finding.column, finding.check))


def _split(mistake: str) -> tuple[str, int, int, str, str]:
    """A mistake of a test file as path, line, column, title and message."""
    match = re.match(r"(?s)(.*?\.(?:ya?ml|toml)):(?:(\d+):)? ?(.*)", mistake)
    path, line, message = match.groups() if match is not None else (mistake, None, mistake)
    return path, int(line or 1), 0, "", message


def _read(paths: Iterable[Path], plan: Plan) -> Iterator[Written]:
    """The documents that are YAML mappings; others are refused already."""
    compiled = {(rule.path, rule.line): rule for rule in plan.rules}
    related = {(correlation.path, correlation.line): correlation for correlation in plan.correlations}
    for path in files(paths):
        if path.suffix == ".toml":
            continue
        name = str(path).encode("utf-8", "replace").decode()
        try:
            nodes, _ = read(read_regular(path, MAX_FILE + 1))
        except OSError:
            continue
        for node, _ in collected(nodes):
            try:
                document = construct(node)
            except (yaml.YAMLError, ValueError):
                continue
            if isinstance(document, dict):
                place = (name, node.start_mark.line + 1)
                yield Written(name, node, document, compiled.get(place), related.get(place))


def _validated(written: Iterable[Written]) -> Iterator[Finding]:
    """pySigma's findings, at the parts of the rules that they are about."""
    validator = SigmaValidator(OFFLINE.values())
    parsed_rules: list[tuple[SigmaRule | SigmaCorrelationRule, Written]] = []
    issues: list[SigmaValidationIssue] = []
    for entry in written:
        location = SigmaRuleLocation(Path(entry.path), entry.place[0])
        parsed: SigmaRule | SigmaCorrelationRule
        if entry.correlation is not None:
            parsed = SigmaCorrelationRule.from_dict(first_bound(entry.document), collect_errors=True, source=location)
        elif entry.rule is not None:
            parsed = SigmaRule.from_dict(entry.document, collect_errors=True, source=location, policy=POLICY)
        else:
            continue
        for error in parsed.errors:  # of what is no meaning: else the rule would not have been compiled
            key = type(error).__name__.removeprefix("Sigma").removesuffix("Error").lower()
            title = str(entry.document.get("title", ""))
            message = str(error.args[0] if error.args else error)
            yield Finding(Severity.WARNING, "metadata", entry.path, *entry.at(key), title, message)
        parsed_rules.append((parsed, entry))
        try:
            issues += validator.validate_rule(parsed)  # type: ignore[arg-type]  # its validators take both
        except (SigmaError, AttributeError, TypeError, ValueError) as error:
            yield Finding(
                Severity.NOTE, "validator", entry.path, *entry.place, "", f"pySigma's validators fail: {error}"
            )
    issues += validator.finalize()
    places = {id(parsed): entry for parsed, entry in parsed_rules}
    for issue in issues:
        for rule in issue.rules:
            if (origin := places.get(id(rule))) is not None:
                yield _finding(issue, origin)


_SEVERITIES = {
    SigmaValidationIssueSeverity.HIGH: Severity.WARNING,
    SigmaValidationIssueSeverity.MEDIUM: Severity.WARNING,
    SigmaValidationIssueSeverity.LOW: Severity.NOTE,
}


def _finding(issue: SigmaValidationIssue, entry: Written) -> Finding:
    details = {k: v for k, v in vars(issue).items() if k not in ("rules", "severity", "description") and v}
    keys = {"tag": "tags", "reference": "references", "identifier": "id", "title": "title"}
    key = next(
        (keys[name] for name in details if name in keys), "detection" if "detection" in issue.description else ""
    )
    summary = ", ".join(f"{name} {getattr(value, 'field', None) or value}" for name, value in details.items())
    check = type(issue).__name__.removesuffix("Issue")
    message = issue.description + (f": {summary[:200]}" if summary else "")
    title = str(entry.document.get("title", ""))
    place = entry.at("detection", str(details["detection_name"])) if "detection_name" in details else entry.at(key)
    return Finding(_SEVERITIES[issue.severity], check, entry.path, *place, title, message)


# --- ours


def _metadata(all: Set, entry: Written) -> Doubts:
    if "detection" not in entry.document and "correlation" not in entry.document:
        return
    for key in ("id", "status", "level", "falsepositives", "description"):
        if not entry.document.get(key):
            yield Severity.NOTE, entry.place, f"{key} is missing"


def _tests(all: Set, entry: Written) -> Doubts:
    compiled = entry.rule or entry.correlation
    if compiled is not None and compiled.id not in all.tested:
        what = "no test events" if entry.correlation is None else "no sequence of test events"
        yield Severity.NOTE, entry.place, f"{what} beside it (NAME.test.yml)"


def _attack(all: Set, entry: Written) -> Doubts:
    tags = entry.document.get("tags")
    for tag in tags if isinstance(tags, list) else []:
        text = str(tag)
        if text.startswith("attack.") and not re.fullmatch(r"attack\.(t\d{4}(\.\d{3})?|[gs]\d{4}|[a-z][a-z_-]+)", text):
            yield Severity.WARNING, entry.at("tags"), f"{text!r} is not an ATT&CK tactic, technique, group or software"


def _retired(all: Set, entry: Written) -> Doubts:
    if entry.document.get("status") == SigmaStatus.DEPRECATED.name.lower():
        yield Severity.WARNING, entry.at("status"), "it is deprecated, and still runs"
    related = entry.document.get("related")
    for item in related if isinstance(related, list) else []:
        if isinstance(item, dict) and str(item.get("type")).lower() in _OBSOLETE and item.get("id") in all.rules.ids:
            yield Severity.WARNING, entry.at("related"), f"the rule {item['id']}, which it replaces, is loaded as well"


_OBSOLETE = (SigmaRelatedType.OBSOLETE.name.lower(), "obsoletes", SigmaRelatedType.RENAMED.name.lower())


def _cost(all: Set, entry: Written) -> Doubts:
    if entry.rule is None:
        return
    chosen = all.plan.literals[all.plan.rules.index(entry.rule)]
    if chosen is None:
        why = why_always(all.rules.placeholders, all.plan, entry.rule.expr)
        yield Severity.WARNING, entry.at("detection"), f"no literal can be derived: evaluated on every event ({why})"
        return
    for literal in sorted(chosen):
        if all.cost is not None and (share := all.cost(literal)) >= HOT:
            shown = literal.decode("ascii", "backslashreplace")
            yield Severity.NOTE, entry.at("detection"), f"its literal {shown!r} is hot: in about {share:.0%} of events"


def why_always(named: Mapping[Expr, tuple[str, ...]], plan: Plan, expr: Expr) -> str:
    """The first part of an expression that has no literal. ``named``: ``RuleSet.placeholders``."""
    match expr:
        case Leaf(number):
            return described(plan.predicates[number])
        case Not(arg):
            return f"not: {why_always(named, plan, arg)}" if not isinstance(arg, And | Or) else "a negation alone"
        case And(()):
            return "it holds for every event"
        case And(args) | Or(args):
            lacking = [arg for arg in args if required(arg, plan.predicates) is None]
            count = len(set(tests(expr)))
            if isinstance(expr, Or) and (not lacking or (expr in named and count > MAX_LITERALS)):
                return f"{_choice(named, expr, count)}, more than the {MAX_LITERALS:,} that the prefilter searches for"
            return why_always(named, plan, (lacking or args)[0])


def _choice(named: Mapping[Expr, tuple[str, ...]], expr: Expr, count: int) -> str:
    """The number of values that a choice has, and the placeholders that they come from."""
    names: dict[str, None] = {}
    theirs: set[int] = set()
    waiting = [expr]
    while waiting:
        choice = waiting.pop()
        if choice in named:
            names.update(dict.fromkeys(named[choice]))
            theirs.update(tests(choice))
        elif isinstance(choice, And | Or):
            waiting += reversed(choice.args)
    if not names:
        return f"a choice of {count:,} values"
    share = f"{count:,}" if len(theirs) == count else f"{len(theirs):,} of {count:,}"
    return f"{' and '.join(names)} {'stands' if len(names) == 1 else 'stand'} for {share} values"


def _values(all: Set, entry: Written) -> Doubts:
    for part in ("detection", "filter"):
        searches = entry.document.get(part)
        node = child(entry.node, part)
        for name in ("timeframe", "window"):
            span = searches.get(name) if isinstance(searches, dict) else None
            if isinstance(span, str) and re.fullmatch(r"\d+\s*[smhdwMy]", span):
                short = "".join(span.split())
                instead = f"write a correlation with timespan: {short}"
                yield Severity.WARNING, entry.at(part, name), f"'{name}' is Sigma 1, and here a search: {instead}"
        for key, value in node.value if isinstance(searches, dict) and isinstance(node, yaml.MappingNode) else ():
            if searches is None or key.value in ("condition", "rules") or key.value not in searches:
                continue
            for item, item_node in islice(items.single(searches[key.value], key, value), MAX_TRIED):
                for summary in items.doubts(item):
                    yield Severity.WARNING, place(item_node), summary


def _unknown_keys(all: Set, entry: Written) -> Doubts:
    source = entry.document.get("logsource")
    for key in source if isinstance(source, dict) else ():
        if key not in ("product", "category", "service", "definition"):
            message = f"{key!r} is no attribute of a log source and has no effect"
            yield Severity.WARNING, entry.at("logsource"), message
    for key in entry.document:
        near = get_close_matches(str(key), _ATTRIBUTES, 1, 0.8)
        if key not in _ATTRIBUTES and near and near[0] not in entry.document:
            yield Severity.WARNING, entry.at(str(key)), f"unknown attribute {key!r}: did you mean {near[0]!r}?"


_ATTRIBUTES = (
    *("title", "id", "name", "taxonomy", "related", "status", "description", "license", "references", "author", "date"),
    *("modified", "tags", "fields", "falsepositives", "level", "scope", "logsource", "detection", "correlation"),
    *("filter", "suppress", "generate", "action"),
)
"""Keys that a document has on top."""


def _fallback(all: Set, entry: Written) -> Doubts:
    slow = set(all.evaluator.fallback)
    for number in tests(entry.rule.expr) if entry.rule is not None else ():
        p = all.plan.predicates[number]
        if p in slow:
            kind = "glob" if p.op is Op.GLOB else "regular expression"
            message = f"Hyperscan does not take this {kind}; it runs on the fallback engine, in bounded time"
            yield Severity.WARNING, entry.at("detection"), f"{described(p)}: {message}"


def _fields(all: Set, entry: Written) -> Doubts:
    if entry.rule is not None:
        of = f"no decoder of {entry.rule.logsource.service} gives the field"
        for name in reach.unusual_fields(all.plan, entry.rule):
            yield (
                Severity.WARNING,
                entry.at("detection"),
                f"{of} {name!r}: only events in JSON or with {name}=… have it",
            )


def _source(all: Set, entry: Written) -> Doubts:
    if entry.rule is not None and (part := reach.unknown_source(all.plan, entry.rule.logsource)) is not None:
        yield Severity.NOTE, entry.at("logsource"), f"no decoder detects {part}: the input must set it (logsource)"


def _duplicate(all: Set, entry: Written) -> Doubts:
    compiled = entry.rule or entry.correlation
    if compiled is not None:
        for other in all.by_digest[compiled.digest]:
            if other.id != compiled.id:
                at = entry.at("detection" if entry.correlation is None else "correlation")
                yield Severity.WARNING, at, f"same meaning as {other.path}:{other.line} ({other.title})"


def _filter(all: Set, entry: Written) -> Doubts:
    body = entry.document.get("filter")
    if isinstance(body, dict) and "not" not in str(body.get("condition", "")).split():
        message = "the condition has no 'not': it is joined by AND, so its rules match only what the filter describes"
        yield Severity.WARNING, entry.at("filter", "condition"), message


CHECKS: dict[str, Callable[[Set, Written], Doubts]] = {
    "metadata": _metadata,
    "tests": _tests,
    "attack": _attack,
    "retired": _retired,
    "cost": _cost,
    "values": _values,
    "keys": _unknown_keys,
    "fallback": _fallback,
    "fields": _fields,
    "logsource": _source,
    "duplicate": _duplicate,
    "filter": _filter,
}
