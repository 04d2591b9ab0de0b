"""Commands about rules and files: scan, rules, bundle."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click
import orjson

from vedette import __version__
from vedette.compiler.plan import Plan
from vedette.console import WithRegion, fail, json_line, rule_plan, safe


@click.command()
@click.option("--rules", "rule_paths", type=click.Path(path_type=Path), multiple=True, required=True,
              help="Rule file or folder, or a bundle (*.vbundle); may be repeated.")  # fmt: skip
@click.option("--trusted-key", "keys", multiple=True, help="Public key a bundle must be signed by.")
@click.option("--format", "codec", default="auto", show_default=True, help="How events are read: see the user guide.")
@click.option("--route", is_flag=True, help="Ask a rule only about events of its log source.")
@click.option("--product", default="", help="With --route: the log source's product of all events.")
@click.argument("files", type=click.Path(path_type=Path, allow_dash=True), nargs=-1, required=True)
def scan(
    rule_paths: tuple[Path, ...], keys: tuple[str, ...], codec: str, route: bool, product: str, files: tuple[Path, ...]
) -> None:
    """Judge files offline; one JSON object per match on standard output, a summary on standard error.

    FILES hold a line per event, or one JSON array (*.json with --format json); "-" is standard input.

    Example: vedette scan --rules rules/sigma --route --product linux /var/log/auth.log
    """
    from vedette.engine.match import Engine
    from vedette.event import LogSource
    from vedette.inputs.decode import CODECS
    from vedette.scan import elements, judge, lines

    if codec not in CODECS:
        fail(f"--format {codec}: expects one of {', '.join(CODECS)}")
    engine = Engine(_plan_of(rule_paths, keys), route=route)
    for refusal in engine.plan.refused:
        click.echo(safe(f"not run: {refusal}"), err=True)
    matches, failed, began, size = 0, False, time.perf_counter(), 0
    for path in files:
        try:
            with _progress(path) as file:
                array = path.suffix == ".json" and codec in ("json", "auto") and _first(file) == b"["
                chunks = elements(file) if array else lines(file, codec)
                for found in judge(engine, chunks, first=0 if array else 1, logsource=LogSource(product=product)):
                    matches += 1
                    sys.stdout.buffer.write(json_line(found.to_row(str(path))).encode() + b"\n")
                size += file.tell() if file.seekable() else 0
        except BrokenPipeError:
            sys.exit(0)
        except (OSError, ValueError) as error:
            failed = True
            click.echo(safe(f"vedette: {path}: {error}"), err=True)
    sys.stdout.flush()
    seconds = time.perf_counter() - began
    tally = engine.tally
    click.echo(
        f"{tally.events} events, {tally.candidates} candidates, {matches} matches of {len(engine.plan.rules)} rules"
        f" in {seconds:.2f} s ({tally.events / max(seconds, 1e-9):,.0f} events/s)",
        err=True,
    )
    for rule, count in tally.undecided.items():
        failed = True
        title, reason = engine.plan.rules[rule].title, tally.reasons[rule]
        click.echo(safe(f"undecided: {title} on {count} events: {reason}"), err=True)
    sys.exit(2 if failed else 0)


def _plan_of(paths: tuple[Path, ...], keys: tuple[str, ...]) -> Plan:
    bundles = [path for path in paths if path.suffix == ".vbundle"]
    if not bundles:
        return rule_plan(paths)
    if len(paths) > 1:
        fail("--rules: one bundle, or rule files and folders")
    from vedette.bundle.trust import BundleRefused, verify

    try:
        if not keys:
            fail(f"{bundles[0]}: --trusted-key is needed: a bundle runs only when its signature is verified")
        return Plan.from_bytes(verify(bundles[0].read_bytes(), keys, __version__).plan)
    except (BundleRefused, OSError) as error:
        fail(f"{bundles[0]}: {error}")


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
    """Work on Sigma rules: test, list."""


@rules.command("test")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
def rules_test(paths: tuple[Path, ...]) -> None:
    """Run the test events beside the rules (NAME.test.yml beside NAME.yml).

    Exit code 1 when a rule does not run, a test fails, or a rule has none.

    Example: vedette rules test rules/sigma
    """
    from vedette.compiler import cases
    from vedette.engine.match import Engine
    from vedette.engine.selftest import check as run_cases

    plan = rule_plan(paths)
    tests, mistakes = cases.load(plan.rules)
    failures = run_cases(Engine(plan), tests)
    tested = {case.rule_id for case in tests}
    untested = [rule for rule in plan.rules if rule.id not in tested]
    for line in (*plan.refused, *mistakes, *failures):
        click.echo(safe(str(line)), err=True)
    for rule in untested:
        click.echo(safe(f"{rule.path}:{rule.line}: no test events beside it ({rule.title})"), err=True)
    bad = len(plan.refused) + len(mistakes) + len(failures) + len(untested)
    click.echo(
        f"{len(plan.rules)} rules, {len(tests)} events, {len(failures)} failures, {bad - len(failures)} mistakes"
    )
    sys.exit(1 if bad else 0)


@rules.command("list")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
def rules_list(paths: tuple[Path, ...]) -> None:
    """List rules: level, whether the prefilter can tell when to look at them, log source, title.

    Example: vedette rules list rules/sigma
    """
    plan = rule_plan(paths)
    for rule, literals in zip(plan.rules, plan.literals, strict=True):
        source = "/".join(rule.logsource)
        needs = "always" if literals is None else "filtered"
        click.echo(safe(f"{rule.level:<13} {needs:<9} {source:<28} {rule.title}"))
    for refusal in plan.refused:
        click.echo(safe(f"refused       {refusal}"))
    sys.exit(1 if plan.refused else 0)


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
