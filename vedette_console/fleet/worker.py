"""Work of a child on rules that somebody has typed: ``python -m vedette_console.fleet.worker FOLDER OP``.

FOLDER holds the rule files; on standard input comes JSON, ``{"rules": [path], "beside": [folder], "pipelines": [path],
"lookups": [path], "event", "format", "topic"}``, on standard output goes the answer of the op of OPS as JSON. Bounded
by its parent (``authoring.py``) in memory and time: hostile text ends the child at most.
"""

from __future__ import annotations

import base64
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import orjson

from spark_jobs.common.plain import many

MAX_FINDINGS, MAX_LINES, MAX_LISTED = 500, 2000, 500
MAX_TEXT = 2000


class Work(NamedTuple):
    """The rules that are meant, and those that they may refer to."""

    folder: Path
    order: Mapping[str, Any]

    @property
    def mine(self) -> list[Path]:
        from vedette.rules import build

        return [*build.files(self.folder / name for name in self.order["rules"])]

    def loaded(self, *, beside: bool = False) -> tuple[Any, Any]:
        """Rule set and plan; with ``beside`` those of the folders, too. Raises OSError, ValueError."""
        from vedette.rules import build

        others = [*build.files(map(Path, self.order["beside"]))] if beside else []
        pipelines, lookups = ([*map(Path, self.order[name])] for name in ("pipelines", "lookups"))
        rules = build.load_files([*self.mine, *others], pipelines, lookups)
        return rules, build.from_rules(rules)

    def plan(self) -> tuple[Any, Any]:
        """Alone, and with the folders when a rule is about rules that are not among these."""
        rules, plan = self.loaded()
        if self.order["beside"] and any("not among the rules" in refused.reason for refused in plan.refused):
            return self.loaded(beside=True)
        return rules, plan

    def own(self, path: str) -> str:
        """The name of a file that was given; empty: it is another's."""
        where = Path(path)
        return str(where.relative_to(self.folder)) if where.is_relative_to(self.folder) else ""

    def finding(self, severity: str, check: str, source: Any, message: str) -> dict[str, Any]:
        return {
            "severity": severity, "check": check, "path": self.own(source.path), "line": source.line,
            "column": source.column, "title": source.title[:MAX_TEXT], "message": self.clean(message),
            "hint": self.clean(source.hint),
        }  # fmt: skip

    def clean(self, text: str) -> str:
        """Without the folder's name."""
        return text.replace(f"{self.folder}/", "")[:MAX_TEXT]

    def refused(self, plan: Any) -> list[dict[str, Any]]:
        return [self.finding("error", "refused", rule, rule.reason) for rule in plan.refused if self.own(rule.path)]


def lint(work: Work) -> dict[str, Any]:
    from vedette.rules.authoring import lint as linter

    ruleset, plan = work.plan()
    findings = linter.lint(work.mine, ruleset, plan)
    mine = [finding for finding in findings if work.own(finding.path) or not finding.path]
    return {
        "problems": [work.finding(finding.severity.value, finding.check, finding, finding.message)
                     for finding in mine[:MAX_FINDINGS]],
        "runs": not any(finding.severity is linter.Severity.ERROR for finding in mine),
        "summary": _summary(ruleset, rules := [*_rules(work, plan)], work), "rules": rules[:MAX_LISTED],
    }  # fmt: skip


def _summary(ruleset: Any, rules: list[dict[str, Any]], work: Work) -> str:
    """The rules of the text that run, in words."""
    kinds = Counter({"detection": 0, "correlation": 0, "statement": 0, "filter": 0})
    kinds.update(rule["kind"] for rule in rules)
    kinds["filter"] = sum(bool(filter.joined and work.own(filter.path)) for filter in ruleset.filters)
    parts = [many(n, "rule" if kind == "detection" else kind) for kind, n in kinds.items() if n]
    return f"It runs: {', '.join(parts)}." if parts else ""


def _rules(work: Work, plan: Any) -> Iterator[dict[str, Any]]:
    kinds = (("detection", plan.detections), ("correlation", plan.correlations), ("statement", plan.statements))
    for kind, rules in kinds:
        for rule in rules:
            if work.own(rule.path):
                title = rule.title[:MAX_TEXT]
                yield {"id": rule.id, "title": title, "level": rule.level, "kind": kind, "line": rule.line}


def explain(work: Work) -> dict[str, Any]:
    """Explain how the rules are evaluated, and on the event."""
    from vedette.engine.match import Engine
    from vedette.rules import build
    from vedette.rules.authoring import explain as explainer

    ruleset, plan = work.plan()
    codec, topic, data = str(work.order["format"]), str(work.order["topic"]), str(work.order["event"]).encode()
    codec = "mqtt" if topic and codec == "auto" else codec
    engine = Engine(plan, route=False)
    if codec not in plan.codecs:
        raise ValueError(f"format: {codec!r} is none of {', '.join(plan.codecs)}")
    lines: list[str] = []
    matches: bool | None = None
    scanned = {scan.rule for statement in plan.statements if work.own(statement.path) for scan in statement.scans}
    for number, rule in enumerate(plan.rules):
        if not work.own(rule.path) and rule.id not in scanned:
            continue
        joins = [str(joined) for joined in ruleset.filters if rule.id in joined.joined]
        lines += explainer.rule(plan, engine.evaluator, number, joins, None)
        lines += explainer.on_event(engine, number, data, codec, origin=topic, names=build.part_names(ruleset, rule))
        matches = bool(matches) or _true(engine, number, data, codec, topic)
    for statement in plan.statements:
        if work.own(statement.path):
            lines += explainer.statement(statement)
    for relation in plan.correlations:
        if work.own(relation.path):
            lines += explainer.correlation(plan, relation)
            lines += explainer.correlation_on_event(engine, relation, data, codec, origin=topic)
    for joined in ruleset.filters:
        if work.own(joined.path):
            lines += explainer.filter_(str(joined), [rule for rule in plan.rules if rule.id in joined.joined])
    shown = [work.clean(line) for line in lines[:MAX_LINES]]
    return {"problems": work.refused(plan), "lines": shown, "matches": matches}


def _true(engine: Any, number: int, data: bytes, codec: str, topic: str) -> bool:
    from vedette.decode.decoder import record

    event = record(data, engine.plan.codecs[codec], origin=topic)
    return number in engine.true(event, frozenset({number}))


def test(work: Work) -> dict[str, Any]:
    """Run the test events beside the rules."""
    from vedette.engine.match import Engine
    from vedette.rules.authoring import cases
    from vedette.rules.selftest import check

    _, plan = work.plan()
    tests, mistakes = cases.load(plan)
    timed, more = cases.sequences(plan)
    every: list[Any] = [*tests, *timed]
    mine = [case for case in every if case.where.startswith(f"{work.folder}/")]
    failures = check(Engine(plan), mine)
    problems = work.refused(plan)
    for text in (mistake for mistake in (*mistakes, *more) if mistake.startswith(f"{work.folder}/")):
        path, _, rest = work.clean(text).partition(":")
        line, _, message = rest.partition(":")
        problems.append({"severity": "error", "check": "tests", "path": path,
                         "line": int(line) if line.isdigit() else 0,
                         "message": (message if line.isdigit() else rest).strip()})  # fmt: skip
    return {
        "events": sum(case in mine for case in tests), "sequences": sum(case in mine for case in timed),
        "ok": not problems and not failures and bool(mine), "problems": problems[:MAX_FINDINGS],
        "failures": [{"name": work.clean(failure.case.where), "ok": False, "detail": work.clean(str(failure))}
                     for failure in failures[:MAX_LISTED]],
    }  # fmt: skip


def plan(work: Work) -> dict[str, Any]:
    """Make the plan that a hunt takes along: without databases, which hosts compile themselves."""
    from vedette.engine.artifact import Artifact
    from vedette.fleet.hunt import packed

    _, rules = work.plan()
    problems = work.refused(rules)
    own = [rule for rule in (*rules.rules, *rules.correlations, *rules.statements) if work.own(rule.path)]
    if not own:
        return {"problems": problems, "plan": "", "titles": []}
    asked = {name: rules.lookups[name].data for name, _ in rules.asked}
    data = packed(Artifact.without_databases(rules)._replace(lookups=asked).to_bytes())
    titles = [str(rule["title"]) for rule in _rules(work, rules)]
    return {"problems": problems, "plan": base64.b64encode(data).decode(), "titles": titles[:MAX_LISTED]}


OPS: Mapping[str, Callable[[Work], dict[str, Any]]] = {"lint": lint, "explain": explain, "test": test, "plan": plan}


def main(folder: str, op: str, order: bytes, out: TextIO) -> None:
    work = Work(Path(folder), orjson.loads(order))
    try:
        answer = OPS[op](work)
    except (OSError, ValueError) as error:  # a path that is gone, a plan that is too large
        answer = {"failed": work.clean(str(error))}
    out.buffer.write(orjson.dumps(answer))
    out.flush()


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr
    main(sys.argv[1], sys.argv[2], sys.stdin.buffer.read(), answers)
