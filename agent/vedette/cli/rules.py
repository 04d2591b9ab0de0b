"""Commands about rules: test, lint, explain, list."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette.cli.console import fail, json_line, ruleset_of, safe
from vedette.cli.options import compiled, format_option, host_of, pipeline_options, rule_plan, rule_set
from vedette.config.read import load
from vedette.config.settings import DEFAULT_SET
from vedette.plan.ir import KEYWORDS, Refusal
from vedette.plan.relation import starved

if TYPE_CHECKING:
    from vedette.plan.plan import AnyRule
    from vedette.plan.query import Statement
    from vedette.rules.ruleset import RuleSet
    from vedette.udf.host import Host


@click.group()
def rules() -> None:
    """Test, lint, explain and list rules.

    Rules are Sigma (*.yml) and SQL (*.sql) files or folders of them; *.test.yml beside them hold test events and are
    skipped elsewhere.

    Example: vedette rules test rules/sigma
    """


@rules.command("test")
@pipeline_options
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
def rules_test(
    pipelines: tuple[Path, ...], lookups: tuple[Path, ...], functions: Host | None, paths: tuple[Path, ...]
) -> None:
    """Run the test events of rules.

    NAME.test.yml beside NAME.yml or NAME.sql holds them, sequences for correlations and statements included; formats
    have [[examples]] in their own file. Exit code 1 when a rule does not run, a test fails, a test file has a mistake
    or a rule has no test; 2 when a path cannot be read.

    Example: vedette rules test rules/sigma
    """
    from vedette.engine.match import Engine
    from vedette.rules import formats
    from vedette.rules.authoring import cases
    from vedette.rules.selftest import check as run_cases

    plan = rule_plan(paths, pipelines, lookups, functions)
    tests, mistakes = cases.load(plan)
    timed, more = cases.sequences(plan)
    mistakes += more
    failures = run_cases(Engine(plan), [*tests, *timed], functions)
    unlike = [failure for form in plan.formats for failure in formats.failures(form)]
    tested = cases.tested(plan, tests, timed)
    untested = [rule for rule in plan.written if rule.id not in tested]
    for line in (*plan.refused, *mistakes, *failures, *unlike):
        click.echo(safe(str(line)), err=True)
    for rule in untested:
        click.echo(safe(f"{rule.path}:{rule.line}: no test events beside it ({rule.title})"), err=True)
    unshown = [form for form in plan.formats if not form.examples]
    for form in unshown:
        click.echo(safe(f"{form.path}:1: no [[examples]] in it (format {form.name})"), err=True)
    examples = sum(len(form.examples) for form in plan.formats)
    bad = len(plan.refused) + len(mistakes) + len(failures) + len(unlike) + len(untested) + len(unshown)
    click.echo(
        f"{plan.counted}, {len(tests)} events, {len(timed)} sequences,"
        + (f" {len(plan.formats)} formats, {examples} examples," if plan.formats else "")
        + f" {len(failures) + len(unlike)} failures, {bad - len(failures) - len(unlike)} mistakes"
    )
    sys.exit(1 if bad else 0)


@rules.command("lint")
@pipeline_options
@click.option(
    "--sample",
    type=click.Path(path_type=Path),
    help="Lines of typical traffic: reports literals that are frequent in it.",
)
@click.option(
    "--skip", metavar="NAME", multiple=True, help="Skip this check, by its name in brackets; may be repeated."
)
@click.option("--strict", is_flag=True, help="Exit code 1 also for warnings.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per finding.")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
def rules_lint(
    pipelines: tuple[Path, ...], lookups: tuple[Path, ...], functions: Host | None, sample: Path | None,
    skip: tuple[str, ...], strict: bool, as_json: bool, paths: tuple[Path, ...],
) -> None:  # fmt: skip
    """Report mistakes and doubtful parts of rules.

    An error is a rule that does not run, a warning likely a mistake or costly, a note is style; each with file, line,
    column and the name of the check. The checks: those of pySigma that work without the network; rules evaluated on
    every event, patterns for the fallback engine, fields and log sources that no decoder gives, rules of the same
    meaning, metadata, tests. Exit code 1 when there are errors; 2 when a path cannot be read.

    Example: vedette rules lint rules/sigma
    """
    from vedette.engine.prefilter import measured
    from vedette.rules import build
    from vedette.rules.authoring import lint

    ruleset = build.load(paths, pipelines, lookups, functions)
    lines = sample.read_bytes() if sample is not None else b""
    plan = build.from_rules(ruleset, sample=lines)
    literals: set[bytes] = set().union(*(chosen for chosen in plan.literals if chosen is not None))
    cost = measured(literals, lines) if lines else None
    findings = lint.lint(paths, ruleset, plan, cost=cost, skip=skip)
    for finding in findings:
        if as_json:
            click.echo(json_line(finding._asdict()))
            continue
        click.echo(safe(str(finding)))
        for line in finding.hint.splitlines():
            click.echo(f"    {safe(line)}")
    counts = {kind: sum(finding.severity is kind for finding in findings) for kind in lint.Severity}
    summary = ", ".join(f"{count} {kind}s" for kind, count in counts.items())
    click.echo(f"{plan.counted}, {len(plan.refused)} refused: {summary}", err=True)
    bad = counts[lint.Severity.ERROR] + (counts[lint.Severity.WARNING] if strict else 0)
    sys.exit(1 if bad else 0)


@rules.command("explain")
@pipeline_options
@click.option(
    "--id",
    "wanted",
    metavar="NAME",
    default="",
    help="Explain only the rule with this id or title; ID@SET, as alerts of several rule sets have it, is ID.",
)
@format_option("EVENT is")
@click.option("--topic", metavar="TOPIC", default="", help="The event's MQTT topic (format mqtt).")
@click.option("--with", "beside", type=click.Path(path_type=Path), multiple=True,
              help="File or folder of rules that RULE refers to; may be repeated.")  # fmt: skip
@click.option(
    "--sample", type=click.Path(path_type=Path), help="Lines of typical traffic: shows what literals cost in it."
)
@click.option("-c", "--config", type=click.Path(path_type=Path), help="Show what this agent redacts in their alerts.")
@click.argument("rule", type=click.Path(path_type=Path))
@click.argument("event", required=False)
def rules_explain(
    pipelines: tuple[Path, ...], lookups: tuple[Path, ...], functions: Host | None, wanted: str, codec: str,
    topic: str, beside: tuple[Path, ...], sample: Path | None, config: Path | None, rule: Path, event: str | None,
) -> None:  # fmt: skip
    """Show how rules are evaluated, and why they match an event.

    RULE is a file or a folder, EVENT a line ("-": standard input). Of a detection: its predicates with group and bit,
    the prefilter's literals, what else it could search for and how common that is, its filters, and the truth of every
    part of the condition with the event's values. Of a correlation: its rules, groups and condition, and which of its
    rules match. Of a filter: its rules. With a configuration that has [[redact]]: which fields of their alerts are
    redacted, and how. Exit code 1 when a rule is refused.

    Example: vedette rules explain rule.yml '<38>Nov 20 10:00:00 web1 sshd[7]: Invalid user admin from 203.0.113.9'

    Example: vedette rules explain --with rules/sigma my_filter.yml
    """
    from vedette.config.redact import rules as rules_of
    from vedette.decode.redact import Redaction
    from vedette.engine.match import Engine
    from vedette.plan import lineage
    from vedette.rules import build
    from vedette.rules.authoring import explain

    codec = "mqtt" if topic and codec == "auto" else codec
    asked = list(build.files([rule]))
    asked_paths = {path.resolve() for path in asked}
    others = [path for path in build.files(beside) if path.resolve() not in asked_paths]
    ruleset = build.load_files([*asked, *others], pipelines, lookups, functions)
    lines = sample.read_bytes() if sample is not None else b""
    engine = Engine(build.from_rules(ruleset, sample=lines), route=False)
    cost = build.cost_of(ruleset, lines) if lines else None
    plan = engine.plan
    here = {str(path).encode("utf-8", "replace").decode() for path in asked}

    def meant(path: str, *names: str) -> bool:
        return path in here and (not wanted or wanted in names or wanted.rpartition("@")[0] in names[:1])

    refused = [refusal for refusal in plan.refused if meant(refusal.path, refusal.rule_id, refusal.title)]
    numbers = [i for i, rule in enumerate(plan.rules) if meant(rule.path, rule.id, rule.title)]
    statements = [statement for statement in plan.statements if meant(statement.path, statement.id, statement.title)]
    numbers += [i for i, rule in enumerate(plan.rules) for statement in statements
                if i not in numbers and any(scan.rule == rule.id for scan in statement.scans)]  # fmt: skip
    correlations = [relation for relation in plan.correlations if meant(relation.path, relation.id, relation.title)]
    filters = [joined for joined in ruleset.filters if meant(joined.path, joined.id, joined.title)]
    declared = [form for form in plan.formats if meant(form.path, form.name)]
    if not (numbers or correlations or statements or filters or refused or declared):
        fail(f"{rule}: no rule with id or title {wanted!r}" if wanted else f"{rule}: no rule in it")

    def show(lines: Iterable[str]) -> None:
        for line in lines:
            click.echo(safe(line))

    redaction = Redaction(rules_of(load(config))) if config is not None else None

    def show_redacted(names: Iterable[str], origins: Mapping[str, Iterable[str]] = explain.NO_ORIGINS) -> None:
        if redaction is not None:
            show(explain.redacted(redaction, names, origins))

    for refusal in refused:
        show([f"does not run: {refusal}", *(f"    {line}" for line in refusal.hint.splitlines())])
        if not beside and "not among the rules" in refusal.reason:
            show(["    rules of other files are given by --with"])
    data = sys.stdin.buffer.read() if event == "-" else (event or "").encode()
    for form in declared:
        show(explain.declared(form))
        if event is not None:
            show(explain.declared_on_event(form, data))
    for number in numbers:
        detection = plan.rules[number]
        joins = [str(joined) for joined in ruleset.filters if detection.id in joined.joined]
        show(explain.rule(plan, engine.evaluator, number, joins, cost))
        if detection.id not in plan.scans:
            show_redacted(name for name in plan.fields_of[number] if name != KEYWORDS)
        if event is not None:
            show(
                explain.on_event(engine, number, data, codec, origin=topic, names=build.part_names(ruleset, detection))
            )
    for statement in statements:
        show(explain.statement(statement))
        show_redacted((named.name for named in statement.root.columns), lineage.of_statement(statement))
    for relation in correlations:
        show(explain.correlation(plan, relation))
        show_redacted(lineage.of_correlation(relation), lineage.of_correlation(relation))
        if event is not None:
            show(explain.correlation_on_event(engine, relation, data, codec, origin=topic))
    for joined in filters:
        show(explain.filter_(str(joined), [rule for rule in plan.rules if rule.id in joined.joined]))
    sys.exit(1 if refused else 0)


@rules.command("list")
@pipeline_options
@click.option("-c", "--config", type=click.Path(path_type=Path), help="Find dead rules by the inputs of this agent.")
@click.option("--set", "ruleset", metavar="NAME", default=DEFAULT_SET, show_default=True,
              help="The rule set of the configuration whose rules are listed.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object a rule.")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1)
def rules_list(
    pipelines: tuple[Path, ...], lookups: tuple[Path, ...], functions: Host | None, config: Path | None, ruleset: str,
    as_json: bool, paths: tuple[Path, ...],
) -> None:  # fmt: skip
    """List rules and correlations: active, always (looked at on every event of its log source), or dead and why.

    With a configuration a rule is dead, too, when no input has its log source or no decoder gives its field; PATHS,
    pipelines and lookups are then the configuration's unless given. Rules without pipelines, lookups and functions are
    kept compiled, as `vedette scan` does it. Exit code 1 when a rule is dead.

    Example: vedette rules list -c vedette.toml
    """
    from vedette.plan.reach import dead
    from vedette.runtime.rulesets.compiled import Sources
    from vedette.runtime.rulesets.usercache import user_folder

    inputs = None
    if config is not None:
        settings = load(config)
        inputs = [(item.codec, item.logsource) for item in settings.input]
        rule_settings = ruleset_of(settings, ruleset)
        paths = paths or rule_settings.paths
        pipelines, lookups = pipelines or rule_settings.pipelines, lookups or rule_settings.lookups
        if settings.functions.allow and functions is None:
            functions = host_of(settings)
    if not paths:
        fail("which rules? Give files or folders, or a configuration whose rule set has paths")
    loaded: RuleSet | None = None
    if (folder := user_folder()) is None or pipelines or lookups or functions:
        loaded, plan = rule_set(paths, pipelines, lookups, functions)
    else:  # no lookup can be at fault then, nor give a placeholder its values
        plan = compiled(Sources(paths), None, folder, databases=False).read_plan()
    rows: list[dict[str, str | int]] = []

    def add(state: str, kind: str, level: str, source: str, entry: AnyRule | Refusal, reason: str) -> None:
        number = entry.rule_id if isinstance(entry, Refusal) else entry.id
        rows.append({"state": state, "kind": kind, "level": level, "logsource": source, "title": entry.title,
                     "id": number, "file": entry.path, "line": entry.line, "reason": reason})  # fmt: skip

    statements: dict[str, list[Statement]] = {}
    for statement in plan.statements:
        for scan in statement.scans:
            statements.setdefault(scan.rule, []).append(statement)
    idle: dict[str, str] = {}
    for rule, literals in zip(plan.rules, plan.literals, strict=True):
        reason = dead(plan, rule, inputs) or "" if inputs is not None else ""
        state = "dead" if reason else "always" if literals is None else "active"
        if state == "always":
            from vedette.rules.authoring.lint import why_always  # takes 0.2 s: with pySigma's validators

            if why := why_always(loaded.placeholders if loaded else {}, plan, rule.expr):
                reason = f"evaluated on every event of its log source: {why}"
        if rule.id in plan.scans:
            idle.update((statement.id, reason) for statement in statements[rule.id] if state == "dead")
            continue
        add(state, "detection", rule.level, "/".join(rule.logsource), rule, reason)
    for statement in plan.statements:
        reason = idle.get(statement.id, "")
        to = f"sink {statement.sink}" if statement.sink else ""
        add("dead" if reason else "active", "statement", "" if to else statement.level, to, statement, reason)
    lacking = {
        relation.id
        for relation in starved(plan.correlations, (str(row["id"]) for row in rows if row["state"] == "dead"))
    }
    for relation in plan.correlations:
        reason = "rules that it needs cannot fire" if relation.id in lacking else ""
        add("dead" if reason else "active", relation.kind.value, relation.level, "", relation, reason)
    for form in plan.formats:
        rows.append({"state": "active", "kind": "format", "level": "", "logsource": "", "title": form.name,
                     "id": form.codec.name, "file": form.path, "line": 1, "reason": ""})  # fmt: skip
    lookups_at_fault = {refusal.path for refusal in loaded.lookups_refused} if loaded else set()
    for refusal in plan.refused:
        add("dead", "lookup" if refusal.path in lookups_at_fault else "", "", "", refusal, refusal.reason)
    for row in rows:
        if as_json:
            click.echo(json_line(row))
            continue
        why = f": {row['file']}:{row['line']}: {row['reason']}" if row["reason"] else ""
        head = f"{row['state']:<7} {row['kind']:<16} {row['level']:<13} {row['logsource']:<28} {row['title']}"
        click.echo(safe(head + why))
    lookup_count = sum(row["kind"] == "lookup" for row in rows)
    states = [row["state"] for row in rows if row["kind"] != "lookup"]
    summary = ", ".join(f"{states.count(state)} {state}" for state in ("active", "always", "dead"))
    summary += f"; {lookup_count} lookups that cannot be used" if lookup_count else ""
    counted = sum(row["kind"] == "detection" for row in rows)
    refused = len(plan.refused) - lookup_count
    more = f", {len(plan.statements)} statements" if plan.statements else ""
    more += f", {refused} refused" if refused else ""
    click.echo(f"{counted} rules, {len(plan.correlations)} correlations{more}: {summary}", err=True)
    sys.exit(1 if "dead" in states or lookup_count else 0)
