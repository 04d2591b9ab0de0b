"""Commands about rules and files: scan, rules, bundle."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import click
import orjson

from vedette import __version__
from vedette.compiler.ir import Rule
from vedette.compiler.plan import Plan
from vedette.compiler.relation import Correlation, starved
from vedette.console import WithRegion, configuration, fail, json_line, pipeline_options, rule_plan, safe


@click.command()
@click.option("--rules", "rule_paths", type=click.Path(path_type=Path), multiple=True, required=True,
              help="Rule file or folder, or a bundle (*.vbundle); may be repeated.")  # fmt: skip
@click.option("--trusted-key", "keys", multiple=True, help="Public key a bundle must be signed by.")
@click.option("--format", "codec", default="auto", show_default=True, help="How events are read: see the user guide.")
@click.option("--route", is_flag=True, help="Ask a rule only about events of its log source.")
@click.option("--product", default="", help="With --route: the log source's product of all events.")
@click.option("--time-field", default="", help="Field that says when an event happened (default: as it is decoded).")
@pipeline_options
@click.argument("files", type=click.Path(path_type=Path, allow_dash=True), nargs=-1, required=True)
def scan(
    rule_paths: tuple[Path, ...], keys: tuple[str, ...], codec: str, route: bool, product: str, time_field: str,
    pipelines: tuple[Path, ...], lookups: tuple[Path, ...], files: tuple[Path, ...],
) -> None:  # fmt: skip
    """Judge files offline; one JSON object per match on standard output, a summary on standard error.

    FILES hold a line per event, or one JSON array (*.json); UTF-16 needs a byte order mark. "-" is standard input.
    Correlations are judged over all FILES, by the events' times in whatever order they stand, when all are read.

    Example: vedette scan --rules rules/sigma --route --product linux /var/log/auth.log
    """
    from vedette.engine.match import Engine
    from vedette.event import LogSource
    from vedette.inputs.decode import CODECS
    from vedette.scan import Timeline, elements, judge, lines

    if codec not in CODECS:
        fail(f"--format {codec}: expects one of {', '.join(CODECS)}")
    engine = Engine(_plan_of(rule_paths, keys, pipelines, lookups), route=route)
    for refusal in engine.plan.refused:
        click.echo(safe(f"not run: {refusal}"), err=True)
    matches, failed, began, size = 0, False, time.perf_counter(), 0
    timeline = Timeline(engine.plan, time_field)

    def say(row: dict[str, object]) -> None:
        sys.stdout.buffer.write(json_line(row).encode() + b"\n")

    for path in files:
        try:
            with _progress(path) as opened:
                file = _as_utf8(opened)
                array = path.suffix == ".json" and codec in ("json", "auto") and _first(file) == b"["
                seen_at = time.time_ns() // 1000 if str(path) == "-" else path.stat().st_mtime_ns // 1000
                chunks = elements(file, seen_at) if array else lines(file, codec, seen_at)
                source, silent = LogSource(product=product), engine.plan.silent
                for found in judge(engine, chunks, first=0 if array else 1, logsource=source, silent=True):
                    timeline.add(found, str(path))
                    if found.rule.id not in silent:
                        matches += 1
                        say(found.to_row(str(path)))
                size += file.tell() if file.seekable() else 0
        except BrokenPipeError:
            sys.exit(0)
        except (OSError, ValueError) as error:
            failed = True
            click.echo(safe(f"vedette: {path}: {error}"), err=True)
    try:
        for correlated in timeline.correlate():
            matches += 1
            say(correlated.to_row())
        sys.stdout.flush()
    except BrokenPipeError:
        sys.exit(0)
    seconds = time.perf_counter() - began
    tally = engine.tally
    click.echo(
        f"{tally.events} events, {tally.candidates} candidates, {matches} matches of {len(engine.plan.rules)} rules"
        f" and {len(engine.plan.correlations)} correlations in {seconds:.2f} s"
        f" ({tally.events / max(seconds, 1e-9):,.0f} events/s)",
        err=True,
    )
    for reason in timeline.unused():
        click.echo(safe(f"not correlated: {reason}"), err=True)
    for rule, count in tally.undecided.items():
        failed = True
        title, reason = engine.plan.rules[rule].title, tally.reasons[rule]
        click.echo(safe(f"undecided: {title} on {count} events: {reason}"), err=True)
        if rule in engine.quarantined:
            skipped = tally.skipped.get(rule, 0)
            click.echo(safe(f"quarantined: {title}: not asked on {skipped} more events"), err=True)
    sys.exit(2 if failed else 0)


def _plan_of(
    paths: tuple[Path, ...], keys: tuple[str, ...], pipelines: tuple[Path, ...], lookups: tuple[Path, ...]
) -> Plan:
    bundles = [path for path in paths if path.suffix == ".vbundle"]
    if not bundles:
        return rule_plan(paths, pipelines, lookups)
    if pipelines or lookups:
        fail("--pipeline, --lookup: a bundle is built already; give them to 'bundle build'")
    if len(paths) > 1:
        fail("--rules: one bundle, or rule files and folders")
    from vedette.bundle.trust import BundleRefused, verify

    try:
        if not keys:
            fail(f"{bundles[0]}: --trusted-key is needed: a bundle runs only when its signature is verified")
        return Plan.from_bytes(verify(bundles[0].read_bytes(), keys, __version__).plan)
    except (BundleRefused, OSError) as error:
        fail(f"{bundles[0]}: {error}")


def _as_utf8(file: BinaryIO) -> BinaryIO:
    """``file`` behind its byte order mark; one that says so is UTF-16 and read as UTF-8."""
    if not file.seekable():
        return file
    start = file.tell()
    head = file.read(3)
    file.seek(start + 3 if head == codecs.BOM_UTF8 else start)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return cast(BinaryIO, codecs.EncodedFile(file, "utf-8", "utf-16", "replace"))
    return file


def _first(file: BinaryIO) -> bytes:
    """The first byte that is not white space; the position stays."""
    start = file.tell()
    head = file.read(4096).lstrip()[:1]
    file.seek(start)
    return head


@contextmanager
def _progress(path: Path) -> Iterator[BinaryIO]:
    """The opened file, with a progress bar on a terminal."""
    if str(path) == "-":
        yield sys.stdin.buffer
    elif sys.stderr.isatty() and not sys.stdout.isatty():
        from rich.console import Console
        from rich.progress import open as open_with_progress

        with open_with_progress(path, "rb", description=path.name, console=Console(stderr=True)) as file:
            yield file
    else:
        with path.open("rb") as file:
            yield file


@click.group()
def rules() -> None:
    """Work on Sigma rules: test, lint, explain, list."""


@rules.command("test")
@pipeline_options
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
def rules_test(pipelines: tuple[Path, ...], lookups: tuple[Path, ...], paths: tuple[Path, ...]) -> None:
    """Run the test events beside the rules (NAME.test.yml beside NAME.yml).

    Exit code 1 when a rule does not run, a test fails, or a rule has none.

    Example: vedette rules test rules/sigma
    """
    from vedette.compiler import cases
    from vedette.engine.match import Engine
    from vedette.engine.selftest import check as run_cases

    plan = rule_plan(paths, pipelines, lookups)
    tests, mistakes = cases.load(plan.rules)
    timed, more = cases.sequences(plan)
    mistakes += more
    failures = run_cases(Engine(plan), [*tests, *timed])
    tested = cases.tested(plan, tests, timed)
    every: list[Rule | Correlation] = [*plan.rules, *plan.correlations]
    untested = [rule for rule in every if rule.id not in tested]
    for line in (*plan.refused, *mistakes, *failures):
        click.echo(safe(str(line)), err=True)
    for rule in untested:
        click.echo(safe(f"{rule.path}:{rule.line}: no test events beside it ({rule.title})"), err=True)
    bad = len(plan.refused) + len(mistakes) + len(failures) + len(untested)
    click.echo(
        f"{len(plan.rules)} rules, {len(plan.correlations)} correlations, {len(tests)} events, {len(timed)} sequences,"
        f" {len(failures)} failures, {bad - len(failures)} mistakes"
    )
    sys.exit(1 if bad else 0)


@rules.command("lint")
@pipeline_options
@click.option("--sample", type=click.Path(path_type=Path), help="Lines of typical traffic: tells hot literals.")
@click.option("--skip", multiple=True, help="Leave this check out; its name stands in brackets. May be repeated.")
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a finding.")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
def rules_lint(
    pipelines: tuple[Path, ...], lookups: tuple[Path, ...], sample: Path | None, skip: tuple[str, ...], strict: bool,
    as_json: bool, paths: tuple[Path, ...],
) -> None:  # fmt: skip
    """Say what is doubtful about rules: errors, warnings and notes, each with file, line and column.

    Checks: those of pySigma that work without the network; rules that are looked at on every event, patterns for the
    fallback engine, fields and log sources that no decoder gives, rules of the same meaning, metadata, tests.
    A condition of Sigma 1 is shown with the correlation to write instead. Exit code 1 when a rule does not run.

    Example: vedette rules lint rules/sigma
    """
    try:
        from vedette.compiler import build, lint, sigma
        from vedette.compiler.pipelines import load
        from vedette.engine.prefilter import measured
    except ModuleNotFoundError as error:
        fail(f"rule files need the rule compiler ({error}): pip install 'vedette[rules]'")
    try:
        found = sigma.load(paths, load(pipelines, lookups))
        lines = sample.read_bytes() if sample is not None else b""
        plan = build.from_rules(found, sample=lines)
        literals: set[bytes] = set().union(*(chosen for chosen in plan.literals if chosen is not None))
        cost = measured(literals, lines) if lines else None
        findings = lint.lint(paths, found, plan, cost=cost, skip=skip)
    except (OSError, ValueError) as error:
        fail(error)
    for finding in findings:
        if as_json:
            click.echo(json_line(finding._asdict()))
            continue
        click.echo(safe(str(finding)))
        for line in finding.hint.splitlines():
            click.echo(f"    {safe(line)}")
    counts = {kind: sum(finding.severity is kind for finding in findings) for kind in lint.Severity}
    told = ", ".join(f"{count} {kind}s" for kind, count in counts.items())
    click.echo(f"{len(plan.rules)} rules, {len(plan.refused)} refused: {told}", err=True)
    bad = counts[lint.Severity.ERROR] + (counts[lint.Severity.WARNING] if strict else 0)
    sys.exit(1 if bad else 0)


@rules.command("explain")
@pipeline_options
@click.option("--id", "wanted", default="", help="Of a file or folder with several rules: this one's id or title.")
@click.option("--format", "codec", default="auto", show_default=True, help="How the event is read.")
@click.option("--topic", default="", help="The event's MQTT topic (format mqtt).")
@click.option("--sample", type=click.Path(path_type=Path), help="Lines of typical traffic: what literals cost in it.")
@click.argument("rule", type=click.Path(path_type=Path))
@click.argument("event", required=False)
def rules_explain(
    pipelines: tuple[Path, ...], lookups: tuple[Path, ...], wanted: str, codec: str, topic: str, sample: Path | None,
    rule: Path, event: str | None,
) -> None:  # fmt: skip
    """Show what the rules in the file RULE ask, and why they fire on EVENT (a line, "-": standard input) or do not.

    Shown are predicates with their group and bit, the prefilter's literals, what else it could search for and how
    common that is, and the truth of every part of the condition with the values that the event has.

    Example: vedette rules explain rule.yml '<38>Nov 20 10:00:00 web1 sshd[7]: Invalid user admin from 203.0.113.9'
    """
    try:
        from vedette.compiler import build, explain, sigma
        from vedette.compiler.pipelines import load
    except ModuleNotFoundError as error:
        fail(f"rule files need the rule compiler ({error}): pip install 'vedette[rules]'")
    from vedette.engine.match import Engine
    from vedette.inputs.decode import CODECS

    codec = "mqtt" if topic and codec == "auto" else codec
    if codec not in CODECS:
        fail(f"--format {codec}: expects one of {', '.join(CODECS)}")
    try:
        found = sigma.load([rule], load(pipelines, lookups))
        lines = sample.read_bytes() if sample is not None else b""
        engine = Engine(build.from_rules(found, sample=lines), route=False)
        cost = build.cost_of(found, lines) if lines else None
    except (OSError, ValueError) as error:
        fail(error)
    refused = [one for one in engine.plan.refused if wanted in ("", one.rule_id, one.title)]
    for refusal in refused:
        click.echo(safe(f"does not run: {refusal}"))
        for line in refusal.hint.splitlines():
            click.echo(f"    {safe(line)}")
    numbers = [i for i, one in enumerate(engine.plan.rules) if wanted in ("", one.id, one.title)]
    correlations = [one for one in engine.plan.correlations if wanted in ("", one.id, one.title)]
    if not numbers and not correlations and not refused:
        fail(f"{rule}: no rule with id or title {wanted!r}" if wanted else f"{rule}: no rule in it")
    data = sys.stdin.buffer.read() if event == "-" else (event or "").encode()
    for number in numbers:
        for line in (*explain.rule(engine, number), *explain.choice(engine.plan, number, cost)):
            click.echo(safe(line))
        if event is not None:
            names = sigma.named(found, engine.plan.rules[number].id)
            for line in explain.on_event(engine, number, data, codec, origin=topic, names=names):
                click.echo(safe(line))
    for one in correlations:
        for line in explain.correlation(engine.plan, one):
            click.echo(safe(line))
    sys.exit(1 if refused else 0)


@rules.command("list")
@pipeline_options
@click.option("-c", "--config", type=click.Path(path_type=Path), help="Judge by this agent's inputs which are dead.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a rule.")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1)
def rules_list(
    pipelines: tuple[Path, ...], lookups: tuple[Path, ...], config: Path | None, as_json: bool, paths: tuple[Path, ...]
) -> None:
    """List rules: active, always (looked at on every event of its log source), or dead and why.

    With a configuration a rule is dead, too, when no input has its log source or no decoder gives its field; PATHS,
    pipelines and lookups are then the configuration's unless given. Exit code 1 when a rule is dead.

    Example: vedette rules list -c /etc/vedette/vedette.toml rules/sigma
    """
    from vedette.compiler.reach import dead
    from vedette.config import codec_of

    inputs = None
    if config is not None:
        settings = configuration(config)
        inputs = [(codec_of(item), item.logsource) for item in settings.input]
        rule_settings = settings.rules
        paths = paths or rule_settings.paths
        pipelines, lookups = pipelines or rule_settings.pipelines, lookups or rule_settings.lookups
    if not paths:
        fail("which rules? Give files or folders, or a configuration with rules.paths")
    plan = rule_plan(paths, pipelines, lookups)
    rows = []
    for rule, literals in zip(plan.rules, plan.literals, strict=True):
        reason = dead(plan, rule, inputs) if inputs is not None else None
        state = "dead" if reason else "always" if literals is None else "active"
        rows.append(
            (state, rule.level, "/".join(rule.logsource), rule.title, rule.id, rule.path, rule.line, reason or "")
        )
    lacking = {one.id for one in starved(plan.correlations, (row[4] for row in rows if row[0] == "dead"))}
    for relation in plan.correlations:
        reason = "rules that it needs cannot fire" if relation.id in lacking else ""
        state, kind = "dead" if reason else "active", relation.kind.value
        rows.append((state, relation.level, kind, relation.title, relation.id, relation.path, relation.line, reason))
    for one in plan.refused:
        rows.append(("dead", "", "", one.title, one.rule_id, one.path, one.line, one.reason))
    names = ("state", "level", "logsource", "title", "id", "file", "line", "reason")
    for row in rows:
        if as_json:
            click.echo(json_line(dict(zip(names, row, strict=True))))
        else:
            state, level, source, title, _, path, line, reason = row
            click.echo(
                safe(f"{state:<7} {level:<13} {source:<28} {title}" + (f": {path}:{line}: {reason}" * bool(reason)))
            )
    states = [row[0] for row in rows]
    told = ", ".join(f"{states.count(state)} {state}" for state in ("active", "always", "dead"))
    click.echo(f"{len(rows)} rules: {told}", err=True)
    sys.exit(1 if "dead" in states else 0)


@click.group(cls=WithRegion, region=("keygen", "public", "build", "sign"))
def bundle() -> None:
    """Signed rule sets: make a key, build, sign, verify, show."""


@bundle.command("verify")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--trusted-key", "keys", multiple=True, required=True, help="ed25519:… as agents have it.")
def bundle_verify(path: Path, keys: tuple[str, ...]) -> None:
    """Check PATH as an agent would: structure, signature, digests, and its own self-test.

    Exit code 1 when an agent would refuse it.

    Example: vedette bundle verify starter-1.vbundle --trusted-key ed25519:…
    """
    from vedette.bundle.manifest import rfc3339
    from vedette.bundle.trust import BundleRefused
    from vedette.bundle.trust import verify as verify_bundle
    from vedette.rules import trial

    try:
        found = verify_bundle(path.read_bytes(), keys, __version__)
        engine = trial(found)
    except OSError as error:
        fail(error)
    except (BundleRefused, ValueError) as error:
        click.echo(safe(f"{path}: refused: {error}"), err=True)
        raise SystemExit(1) from None
    click.echo(f"{path}: good: {len(engine.plan.rules)} rules, {len(found.tests)} self-tests pass")
    if found.expired(time.time_ns() // 1000):
        click.echo(f"{path}: expired at {rfc3339(found.manifest.expires)}: agents do not take it anew", err=True)
        raise SystemExit(1)


@bundle.command("show")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Manifest and rule list as JSON.")
def bundle_show(path: Path, as_json: bool) -> None:
    """Show what a bundle holds, without trusting it.

    Example: vedette bundle show starter-1.vbundle
    """
    from vedette.bundle.manifest import rfc3339
    from vedette.bundle.trust import inspect

    try:
        found = inspect(path.read_bytes())
        rules = found.rules
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    if as_json:
        document = {"manifest": orjson.loads(found.manifest_bytes), "digest": found.digest, "rules": rules}
        click.echo(json_line(document, indent=True))
        return
    manifest = found.manifest
    click.echo(
        f"{manifest.name} version {manifest.version}, digest {found.digest[:12]}, file {found.sha256[:12]}\n"
        f"created {rfc3339(manifest.created)}, expires {rfc3339(manifest.expires)}\n"
        f"needs agent {manifest.min_agent}; databases for {manifest.hyperscan}\n"
        f"{len(rules)} rules, {len(found.tests)} self-test events"
    )
    for rule in rules:
        click.echo(safe(f"  {rule.get('level', rule.get('state', '')):<13} {rule.get('title', '')}"))
