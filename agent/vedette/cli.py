"""The command line: ``vedette COMMAND``. Results go to standard output, the rest to standard error.

Exit codes: 0 done; 1 done, and something is wrong with what was looked at; 2 not done: usage, configuration, or the
thing asked for is not there. Every message says what, where and what to do.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import click
import orjson

from vedette import __version__
from vedette.config import Config, ConfigError, load

CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
"""What must not reach a terminal from a log line."""


def fail(message: object) -> NoReturn:
    """End with exit code 2 and ``message``."""
    click.echo(f"vedette: {message}", err=True)
    sys.exit(2)


def safe(text: str) -> str:
    """``text`` with control characters made visible."""
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def configuration(path: Path) -> Config:
    try:
        return load(path)
    except ConfigError as error:
        fail(error)


def data_dir(config: Path, given: Path | None) -> Path:
    return given if given is not None else configuration(config).agent.data_dir


config_option = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    default=Path("/etc/vedette/vedette.toml"),
    show_default=True,
    help="The agent's configuration.",
)
data_option = click.option(
    "--data-dir", type=click.Path(path_type=Path), help="The agent's data folder, instead of a configuration."
)


class WithRegion(click.Group):
    """A group with further commands, named in ``region``, where the region's package is installed: not on an edge."""

    def __init__(self, *args: Any, region: tuple[str, ...] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._region = region if importlib.util.find_spec("vedette.region") else ()

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self._region])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._region:
            return super().get_command(ctx, cmd_name)
        from vedette.region import cli

        command: click.Command = getattr(cli, cmd_name)
        return command


@click.group(
    cls=WithRegion,
    region=("region",),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def main() -> None:
    """Vedette: judge logs where they arise, forward only alerts.

    Example: vedette scan --rules rules/sigma /var/log/auth.log
    """


@main.command()
def version() -> None:
    """Print the version of the agent and of its pattern engine.

    Example: vedette version
    """
    from vedette.engine.scan import LIBRARY

    click.echo(f"vedette {__version__} ({LIBRARY}, Python {sys.version.split()[0]})")


@main.command()
@config_option
def run(config: Path) -> None:
    """Run the agent until SIGTERM or SIGINT; SIGHUP reads the rules again.

    Example: vedette run -c vedette.toml
    """
    from vedette.app import run as run_agent

    settings = configuration(config)
    try:
        run_agent(settings)
    except (OSError, ValueError) as error:
        fail(error)


@main.command()
@config_option
def check(config: Path) -> None:
    """Check the configuration and the rules; report all mistakes at once.

    Example: vedette check -c vedette.toml
    """
    settings = configuration(config)
    click.echo(f"{config}: ok: agent {settings.agent.id}, {len(settings.input)} inputs, uplink {settings.uplink.type}")
    if not settings.rules.paths:
        click.echo("rules: from bundles" + (f", first {settings.bundles.file}" if settings.bundles.file else ""))
        return
    plan = rule_plan(settings.rules.paths)
    for refusal in plan.refused:
        click.echo(str(refusal), err=True)
    click.echo(
        f"rules: {len(plan.rules)} run, {len(plan.always)} of them always candidates, {len(plan.refused)} do not"
    )
    sys.exit(1 if plan.refused else 0)


def rule_plan(paths: tuple[Path, ...]) -> Any:
    """The plan of rule files; ends with a message when it cannot be built."""
    try:
        from vedette.api import compile_rules

        return compile_rules(*paths)
    except ModuleNotFoundError as error:
        fail(f"rule files need the rule compiler ({error}): pip install 'vedette[rules]'")
    except OSError as error:
        fail(error)


@main.command()
@config_option
@data_option
@click.option("--json", "as_json", is_flag=True, help="The whole status as one JSON object.")
def status(config: Path, data_dir: Path | None, as_json: bool) -> None:
    """Show the running agent's account: received, stored, judged, alerts, rules, lag.

    Exit code 1 when the account does not add up or the rules could not be renewed.

    Example: vedette status -c vedette.toml --json
    """
    from vedette.control import ask
    from vedette.status import render

    folder = data_dir if data_dir is not None else configuration(config).agent.data_dir
    try:
        answer = ask(folder / "control.sock", "status")
    except (ConnectionError, ValueError) as error:
        fail(error)
    click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode() if as_json else render(answer))
    sys.exit(1 if answer["identity_broken"] or answer["rules"]["error"] else 0)


@main.command()
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
        click.echo(f"not run: {refusal}", err=True)
    matches, failed, began, size = 0, False, time.perf_counter(), 0
    for path in files:
        try:
            with _progress(path) as file:
                array = path.suffix == ".json" and codec in ("json", "auto") and _first(file) == b"["
                chunks = elements(file) if array else lines(file, codec)
                for found in judge(engine, chunks, first=0 if array else 1, logsource=LogSource(product=product)):
                    matches += 1
                    sys.stdout.buffer.write(orjson.dumps(found.to_row(str(path)), option=orjson.OPT_APPEND_NEWLINE))
                size += file.tell() if file.seekable() else 0
        except BrokenPipeError:
            sys.exit(0)
        except (OSError, ValueError) as error:
            failed = True
            click.echo(f"vedette: {path}: {error}", err=True)
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
        click.echo(f"undecided: {engine.plan.rules[rule].title} on {count} events: {tally.reasons[rule]}", err=True)
    sys.exit(2 if failed else 0)


def _plan_of(paths: tuple[Path, ...], keys: tuple[str, ...]) -> Any:
    from vedette.compiler.plan import Plan

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


@main.group()
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
        click.echo(f"{rule.path}:{rule.line}: no test events beside it ({rule.title})", err=True)
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
        click.echo(f"{rule.level:<13} {'always' if literals is None else 'filtered':<9} {source:<28} {rule.title}")
    for refusal in plan.refused:
        click.echo(f"refused       {refusal}")
    sys.exit(1 if plan.refused else 0)


@main.group(cls=WithRegion, region=("keygen", "build", "sign"))
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
        click.echo(f"{path}: refused: {error}", err=True)
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
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
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


@main.group()
def logs() -> None:
    """Look into the raw log of this host."""


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """UTC microseconds from RFC 3339 or a duration back from now."""
    if value is None:
        return None
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if match := re.fullmatch(r"(\d+)([smhd])", value):
        return time.time_ns() // 1000 - int(match[1]) * units[match[2]] * 1_000_000
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter("expects RFC 3339, or a duration back from now such as 2h") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)


@logs.command("search")
@config_option
@data_option
@click.option("--since", callback=_time, help="RFC 3339, or a duration back from now: 2h.")
@click.option("--until", callback=_time, help="The same.")
@click.option("--input", "input_name", help="Only events of this input.")
@click.option("--limit", default=1000, show_default=True, help="Events printed at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per event, with its place in the log.")
@click.argument("pattern")
def logs_search(
    config: Path, data_dir: Path | None, since: int | None, until: int | None, input_name: str | None, limit: int,
    as_json: bool, pattern: str,
) -> None:  # fmt: skip
    """Print stored events that match the regular expression PATTERN (without regard to case).

    The agent may be running. Exit code 1 when nothing is found.

    Example: vedette logs search --since 2h 'failed password'
    """
    from vedette.rawlog.read import search

    folder = (data_dir if data_dir is not None else configuration(config).agent.data_dir) / "raw"
    if not folder.is_dir():
        fail(f"{folder}: no raw log here: has the agent run with this data folder?")
    try:
        compiled = re.compile(pattern.encode(), re.IGNORECASE)
    except re.error as error:
        fail(f"{pattern!r} is not a regular expression: {error}")
    found = 0
    for hit in search(folder, pattern=compiled, since=since, until=until, input=input_name, limit=limit):
        found += 1
        text = hit.raw.decode("utf-8", "replace")
        if as_json:
            row = {"log_id": hit.log_id, "offset": hit.offset, "length": hit.length, "input": hit.input,
                   "received_at": hit.received_at, "raw": text}  # fmt: skip
            click.echo(orjson.dumps(row).decode())
        else:
            click.echo(f"{_stamp(hit.received_at)} {hit.input} {safe(text)}")
    sys.exit(0 if found else 1)


def _stamp(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@main.command()
@config_option
@data_option
@click.option("-n", "--number", default=20, show_default=True, help="Newest alerts shown.")
@click.option("-f", "--follow", is_flag=True, help="Go on printing alerts as they are made.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per alert, all columns.")
def alerts(config: Path, data_dir: Path | None, number: int, follow: bool, as_json: bool) -> None:
    """Show this host's alerts: those waiting for the region, and the last 10,000 it has receipted.

    Example: vedette alerts --follow
    """
    from vedette.store import Store

    folder = (data_dir if data_dir is not None else configuration(config).agent.data_dir) / "store"
    print_alert: Callable[[bytes, bool], None] = _alert_json if as_json else _alert_line
    try:
        with Store.open(folder, readonly=True) as store:
            shown = store.tail(number)
            last = shown[-1].seq if shown else 0
            for alert in shown:
                print_alert(alert.data, alert.receipted)
            while follow:
                time.sleep(0.2)
                for alert in store.since(last):
                    print_alert(alert.data, alert.receipted)
                    last = alert.seq
    except KeyboardInterrupt:
        return
    except (OSError, ValueError) as error:
        fail(error)


def _alert_json(data: bytes, receipted: bool) -> None:
    from vedette.outbox.envelope import decode_row

    click.echo(orjson.dumps({**decode_row(data), "receipted": receipted}).decode())


def _alert_line(data: bytes, receipted: bool) -> None:
    from vedette.outbox.envelope import decode

    alert = decode(data)
    where = alert.host or alert.source
    line = f"{_stamp(alert.event_time)} {alert.level:<13} {where} {alert.rule_title}: {alert.raw}"
    click.echo(f"{'sent' if receipted else 'here'} {safe(line)[:400]}")


if __name__ == "__main__":
    main()
