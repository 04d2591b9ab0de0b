"""``vedette scan``: files through the rules, without an agent."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from vedette.cli.console import fail, json_line, safe
from vedette.cli.options import compiled, format_option, pipeline_options, rule_plan
from vedette.version import __version__

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

    from vedette.engine.match import Engine
    from vedette.system.compressed import Ahead, Unpacked
    from vedette.udf.host import Host


@click.command()
@click.option("--rules", "rule_paths", type=click.Path(path_type=Path), multiple=True, required=True,
              help="Rule file or folder, or a bundle (*.vbundle); may be repeated.")  # fmt: skip
@click.option("--trusted-key", "keys", metavar="KEY", multiple=True,
              help="Public key (ed25519:…) that a bundle must be signed by; may be repeated.")  # fmt: skip
@format_option("events are")
@click.option(
    "--route", is_flag=True, help="Evaluate a rule only on events of its log source; default: on every event."
)
@click.option("--product", metavar="NAME", default="", help="With --route: the log source's product of all events.")
@click.option("--time-field", metavar="FIELD", default="",
              help="Field with the time of an event, for correlations; default: its decoder's.")  # fmt: skip
@click.option("--cache/--no-cache", "cached", default=True, show_default=True,
              help="Keep compiled rule files in the user's cache folder for the next scan.")  # fmt: skip
@pipeline_options
@click.argument("files", type=click.Path(path_type=Path, allow_dash=True), nargs=-1, required=True)
def scan(
    rule_paths: tuple[Path, ...], keys: tuple[str, ...], codec: str, route: bool, product: str, time_field: str,
    cached: bool, pipelines: tuple[Path, ...], lookups: tuple[Path, ...], functions: Host | None,
    files: tuple[Path, ...],
) -> None:  # fmt: skip
    """Evaluate files without an agent.

    Prints one JSON object per match on standard output and a summary on standard error. FILES hold a line per event,
    one JSON array, or one JSON object over several lines; compressed ones (gzip, zstd, xz) are recognised by their
    first bytes, UTF-16 by its byte order mark; "-" is standard input. Correlations are evaluated over all FILES by
    event time, and come last.

    Rule files are compiled once: what was made of them lies in $XDG_CACHE_HOME/vedette (else ~/.cache/vedette), is used
    as long as none of them changes, and may be deleted.

    Exit code 0 with or without matches; 2 when no rule runs, a file cannot be read whole, an event cannot be decoded,
    or a rule cannot be decided on some event.

    Example: vedette scan --rules rules/sigma --route --product linux /var/log/auth.log*
    """
    from vedette.model.event import LogSource
    from vedette.runtime.offline.evaluation import evaluate
    from vedette.runtime.offline.scan import as_utf8, events
    from vedette.runtime.offline.timeline import Stated, Timeline
    from vedette.system.compressed import unpacked

    engine = _engine_of(rule_paths, keys, Given(pipelines, lookups, functions), route=route, cached=cached)
    for refusal in engine.plan.refused:
        click.echo(safe(f"not run: {refusal}"), err=True)
    if engine.plan.refused and not engine.plan.rules:
        fail("no rule runs")
    matches, failed, began = 0, False, time.perf_counter()
    timeline = Timeline(engine.plan, time_field, functions=functions)
    for title in timeline.without_functions:
        click.echo(safe(f"not run: {title}: it calls functions in Python: --functions"), err=True)

    def say(row: dict[str, object]) -> None:
        sys.stdout.buffer.write(json_line(row).encode() + b"\n")

    def lost(path: Path, number: int, error: Exception) -> None:
        nonlocal failed
        failed = True
        click.echo(safe(f"vedette: {path}: event {number}: {type(error).__name__}: {error}"), err=True)

    for path in files:
        file: Ahead | Unpacked | None = None
        try:
            with _progress(path) as opened:
                file = unpacked(opened)
                seen_at = time.time_ns() // 1000 if str(path) == "-" else path.stat().st_mtime_ns // 1000
                named = Path(path.stem if path.suffix.lower() in _COMPRESSED else path.name)
                first, chunks = events(as_utf8(file), codec, seen_at, is_json=named.suffix.lower() == ".json")
                source, silent = LogSource(product=product), engine.plan.silent
                for match in evaluate(
                    engine, chunks, first=first, logsource=source, silent=True, failed=partial(lost, path)
                ):
                    try:
                        timeline.add(match, str(path))
                    except Exception as error:  # the match itself is printed
                        lost(path, match.line, error)
                    if match.rule.id not in silent:
                        matches += 1
                        say(match.to_row(str(path)))
        except BrokenPipeError:
            raise
        except (OSError, ValueError, RecursionError) as error:
            sys.stdout.flush()  # when standard output is what failed it fails again, and not for this file
            failed = True
            click.echo(safe(f"vedette: {path}: {error}"), err=True)
        if file is not None and file.damage:
            failed = True
            click.echo(safe(f"vedette: {path}: {file.damage}"), err=True)
    for correlated in timeline.correlate():
        matches += 1
        row = correlated.to_row()
        if "sink" in row and isinstance(correlated, Stated):
            row = {
                **{name: value for name, value in row.items() if name not in ("level", "fields")},
                "row": correlated.row,
            }
        say(row)
    sys.stdout.flush()
    seconds = time.perf_counter() - began
    tally, plan = engine.tally, engine.plan
    more = f" and {len(plan.statements)} statements" if plan.statements else ""
    click.echo(
        f"{tally.events} events, {tally.candidates} candidates, {matches} matches of {len(plan.detections)} rules"
        f" and {len(plan.correlations)} correlations{more} in {seconds:.2f} s"
        f" ({tally.events / max(seconds, 1e-9):,.0f} events/s)",
        err=True,
    )
    for reason in timeline.failures():
        click.echo(safe(f"failed: {reason}"), err=True)
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


_COMPRESSED = (".gz", ".zst", ".xz")


class Given(NamedTuple):
    """What rule files are compiled with."""

    pipelines: tuple[Path, ...]
    lookups: tuple[Path, ...]
    functions: Host | None


def _engine_of(paths: tuple[Path, ...], keys: tuple[str, ...], options: Given, *, route: bool, cached: bool) -> Engine:
    """Of a bundle with the databases that it carries, of rule files as they were last compiled."""
    bundles = [path for path in paths if path.suffix == ".vbundle"]
    if not bundles:
        from vedette.engine.match import Engine
        from vedette.lookup.sets import made, opened
        from vedette.runtime.rulesets.compiled import Sources
        from vedette.runtime.rulesets.usercache import user_folder

        sources = Sources(paths, options.pipelines, options.lookups)
        folder = user_folder() if cached else None
        if folder is None:
            return Engine(rule_plan(*sources, options.functions), route=route)
        artifact = compiled(sources, options.functions, folder)
        return artifact.engine({**opened(options.lookups), **made(artifact.lookups)}, route=route)
    if options.pipelines or options.lookups:
        fail("--pipeline, --lookup: a bundle is built already; give them to 'bundle build'")
    if len(paths) > 1:
        fail("--rules: one bundle, or rule files and folders")
    from vedette.bundle.install import read_bundle
    from vedette.bundle.seal import BundleRefused
    from vedette.bundle.trust import verify
    from vedette.engine.artifact import Artifact
    from vedette.lookup.sets import carried

    try:
        if not keys:
            fail(f"{bundles[0]}: --trusted-key is needed: a bundle runs only when its signature is verified")
        bundle = verify(read_bundle(bundles[0]), keys, __version__)
        artifact = Artifact(bundle.plan, bundle.databases, bundle.manifest.hyperscan)
        return artifact.engine(carried(bundle.parts), route=route)
    except (BundleRefused, OSError, ValueError) as error:
        fail(f"{bundles[0]}: {error}")


class _Watched(io.FileIO):
    def __init__(self, path: Path, report: Callable[[int], None]) -> None:
        super().__init__(path)
        self._report = report

    def readinto(self, buffer: Buffer, /) -> int | None:
        count = super().readinto(buffer)
        self._report(count or 0)
        return count


@contextmanager
def _progress(path: Path) -> Iterator[BinaryIO]:
    """The opened file, with a progress bar on a terminal."""
    if str(path) == "-":
        yield sys.stdin.buffer
    elif sys.stderr.isatty() and not sys.stdout.isatty():
        size = path.stat().st_size
        with (
            click.progressbar(length=size, label=safe(path.name), file=sys.stderr) as bar,
            io.BufferedReader(_Watched(path, bar.update)) as file,
        ):
            yield file
    else:
        with path.open("rb") as file:
            yield file
