"""Commands about the agent of this host: check, status, alerts, logs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette.bundle.manifest import rfc3339
from vedette.cli.archive import identity_option
from vedette.cli.console import config_option, data_folder, data_option, fail, json_line, safe
from vedette.cli.options import host_of, moment, rule_plan
from vedette.config.enrolled import enrolled
from vedette.config.read import load
from vedette.config.settings import DEFAULT_SET, ArchiveSettings, Config, RulesetSettings
from vedette.fleet.overlay import load as load_with_overlay

if TYPE_CHECKING:
    from vedette.decode.codecs import Codec, Codecs
    from vedette.decode.declared import Declared
    from vedette.rawlog.segment import Tiers

IDLE_SHOWN = 10
"""Rules that no input reaches, which ``check`` names."""


@click.command()
@config_option
def check(config: Path) -> None:
    """Check the configuration and the rules.

    Reports all mistakes at once, settings whose name has changed, what must be installed for [archive], and rules that
    no input reaches: none has their log source, or none has one of their fields; and what [[redact]] hides from local
    response and from sinks whose form names it. Says whether the native kernel is in use, what contains functions in
    Python, and which patterns may take long. Looks, as the user of this command, whether inputs find what they read: a
    file, journalctl, the journal, a certificate. Exit code 1 when a rule does not run, an input cannot read what it
    needs, uplink.path cannot be written, the fleet's root of trust or the key of [[redact]] cannot be used, [archive]
    lacks its libraries, or functions are allowed that this host cannot contain, 2 when the configuration is invalid.

    Example: vedette check -c vedette.toml
    """
    from vedette.archive import stores
    from vedette.config import backtracking, hidden, redact
    from vedette.decode.codecs import DECLARED
    from vedette.delivery.directory import unwritable
    from vedette.engine import kernel
    from vedette.runtime.options.inputs import remarks, share
    from vedette.system import descriptors

    settings = load(config)
    click.echo(
        f"{config}: ok: agent {settings.agent.id}, {len(settings.input)} inputs, uplink {settings.uplink.type}"
        f"{f', {len(settings.sink)} sinks' if settings.sink else ''}"
    )
    if settings.uplink.warning:
        click.echo(f"uplink: warning: {settings.uplink.warning}", err=True)
    shares = share(descriptors.limit(), settings.input)
    files, connections = sum(shares.files.values()), sum(shares.connections.values())
    click.echo(
        f"open files: {shares.limit} allowed here; {files} for files that are read, {connections} for connections"
    )
    for remark in remarks(shares, settings.input):
        click.echo(safe(remark), err=True)
    if settings.response.enabled:
        _check_response(settings)
    click.echo(f"native kernel: {kernel.why_not or 'in use'}")
    bad = _check_inputs(settings, config)
    if settings.uplink.path and (wrong := unwritable(settings.uplink.path)):
        click.echo(safe(f"uplink: {wrong}"), err=True)
        bad = True
    bad = _check_root(settings) or bad
    if lack := stores.lacking(settings.archive):
        click.echo(safe(lack), err=True)
        bad = True
    if settings.redact and (wrong := redact.problem(settings)):
        click.echo(safe(wrong), err=True)
        bad = True
    if settings.functions.allow:
        bad = _check_functions(settings) or bad
    for line in (
        *hidden.warnings(settings),
        *backtracking.warnings(settings),
        *stores.warnings(settings.archive, settings.agent.data_dir),
    ):
        click.echo(safe(f"{config}: warning: {line}"), err=True)
    formats: set[str] = set()
    for ruleset in settings.rulesets:
        named = "" if ruleset.name == DEFAULT_SET else f" of {ruleset.name}"
        if ruleset.paths:
            bad = _check_rules(settings, ruleset, named, config, formats) or bad
        else:
            first = f", first {ruleset.file}" if ruleset.file else ""
            click.echo(f"rules{named}: from bundles{first}")
    if all(ruleset.paths for ruleset in settings.rulesets):
        for item in settings.input:
            if item.codec.startswith(DECLARED) and item.codec not in formats:
                reason = f"no rule set has the format {item.codec!r}: its events are read as auto"
                click.echo(safe(f"input {item.name}: {reason}"), err=True)
                bad = True
    if strict := [ruleset for ruleset in settings.rulesets if ruleset.strict]:
        beside = sum(ruleset.max_memory for ruleset in strict) >> 20
        names = ", ".join(ruleset.name for ruleset in strict)
        most = settings.agent.max_memory >> 20
        click.echo(f"memory: at most {most} MiB of the agent and {beside} MiB of the strict rule sets {names}")
    sys.exit(1 if bad else 0)


def _check_inputs(settings: Config, file: Path) -> bool:
    """Whether an input cannot work here."""
    from vedette.config.private import is_private

    bad = False
    for item in settings.input:
        state, reason = item.foreseen(partial(is_private, settings, file))
        bad = bad or state == "failing"
        if reason:
            click.echo(safe(f"input {item.name}: {state}: {reason}"), err=True)
    return bad


def _check_functions(settings: Config) -> bool:
    """Whether this host cannot contain functions in Python."""
    from vedette.udf.host import Host, Limits

    host = Host(Limits(settings.functions.max_seconds, settings.functions.max_memory))
    why = host.refused()
    host.close()
    click.echo(f"functions in Python: {why or 'contained by ' + ', '.join(host.isolation)}", err=bool(why))
    return bool(why)


def _check_response(settings: Config) -> None:
    from vedette.response.allowed import of_host
    from vedette.response.decide import Allowed, configured
    from vedette.response.nft import NFT, Nft

    response = settings.response
    allowed = Allowed([*configured(response.allow), *of_host(sessions=response.allow_sessions)])
    how = "dry run" if response.dry_run else f"nftables, table inet {response.table}"
    tables = f"{len(response.block)} tables of alerts"
    click.echo(f"response: {how}; {tables}; {len(allowed.networks)} networks never blocked")
    if not response.dry_run:
        nft = Nft(NFT, response.table, response.max_blocked)
        try:
            nft.run(nft.replace({}, allowed.networks), check=True)
        except OSError as error:
            click.echo(safe(f"response: warning: as the user of this command: {error}"), err=True)


def _check_root(settings: Config) -> bool:
    """Whether the agent cannot follow its fleet."""
    root = enrolled(settings).fleet.root
    if root is None:
        return False
    from vedette.fleet.trust import check_root

    try:
        check_root(root.read_bytes())
    except (OSError, ValueError) as error:
        click.echo(safe(f"fleet.root: {error}: the agent does not follow its fleet"), err=True)
        return True
    return False


def _check_rules(settings: Config, ruleset: RulesetSettings, named: str, config: Path, formats: set[str]) -> bool:
    """Whether a rule does not run. ``formats`` gets what inputs may call those that the set declares."""
    from vedette.runtime.rulesets.deadrules import unreached

    plan = rule_plan(ruleset.paths, ruleset.pipelines, ruleset.lookups, host_of(settings))
    formats.update(declared.codec.name for declared in plan.formats)
    idle = unreached(settings.input, plan).reasons
    for line in [*map(str, plan.refused), *idle[:IDLE_SHOWN]]:
        click.echo(safe(line), err=True)
    if (more := len(idle) - IDLE_SHOWN) > 0:
        click.echo(f"… and {more} more that no input reaches: vedette rules list -c {config}", err=True)
    click.echo(
        f"rules{named}: {len(plan.detections)} and {len(plan.correlations)} correlations"
        f"{f' and {len(plan.statements)} statements' if plan.statements else ''} run ({len(plan.always)} always"
        f" candidates), {len(plan.refused)} do not run; {len(idle)} are reached by no input"
    )
    return bool(plan.refused)


@click.command()
@config_option
@data_option
@click.option("--json", "as_json", is_flag=True, help="The whole status as one JSON object.")
def status(config: Path, data_dir: Path | None, as_json: bool) -> None:
    """Show the state of the running agent.

    Its first line is OK, or NOT OK with all that keeps the agent from its work: an input that does not work, a change
    that was refused, a rule that does not compile, a disk, uplink or sink that fails, counters that do not add up. Then
    what it received, stored and evaluated, alerts, rules, lag. Exit code 1 when it is NOT OK or no agent answers, 2
    when it may not be asked.

    Example: vedette status -c vedette.toml --json
    """
    from vedette.cli.status_page import status_lines
    from vedette.runtime.agent.control import ask
    from vedette.runtime.agent.health import headline

    try:
        answer = ask(data_folder(config, data_dir) / "control.sock", "status")
    except ConnectionError as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        click.echo(safe(headline([f"no agent runs: {error}"])), err=as_json)
        sys.exit(1)
    try:
        click.echo(json_line(answer, indent=True) if as_json else "\n".join(map(safe, status_lines(answer))))
    except KeyError as error:
        fail(f"the running agent is of another release, without {error} in its status: restart it, or use --json")
    sys.exit(1 if answer.get("problems", True) else 0)


@click.group()
def logs() -> None:
    """Search the raw log of this host.

    Example: vedette logs search --since 2h 'failed password'
    """


def _raw_log(config: Path, data_dir: Path | None, identity: Path | None = None) -> Path | Tiers:
    """The folder, with what of it is archived where the configuration names an archive."""
    folder = data_folder(config, data_dir) / "raw"
    if config.exists() and (settings := load_with_overlay(config)).archive.url and settings.agent.raw_dir == folder:
        from vedette.archive.reach import whole

        return whole(settings.agent, settings.archive, identity)
    if not folder.is_dir():
        fail(f"{folder}: no raw log here: has an agent run with this data folder?")
    return folder


def _codecs(config: Config) -> Codecs:
    """The codecs by which the agent reads events: also those of its plugins, and of the formats in its rule folders or
    else in its bundles. Raises OSError for rules or a bundle that cannot be read, and ValueError."""
    from vedette.decode.codecs import with_declared

    if config.plugins.allow:
        from vedette.runtime.options import decoders

        decoders.plug(config.plugins.allow)
    codecs: dict[str, Codec] = {}
    for ruleset in config.rulesets:
        codecs.update((declared.name, declared.codec) for declared in _declared(config, ruleset))
    return with_declared(codecs.values())


def _declared(config: Config, ruleset: RulesetSettings) -> Iterator[Declared]:
    """The formats that a rule set declares."""
    installed = config.agent.bundle_dir(ruleset.name) / "current"
    if ruleset.paths:
        from vedette.rules.formats import declared_at

        yield from declared_at(ruleset.paths)
    elif installed.exists():
        from vedette.bundle.install import read_bundle
        from vedette.bundle.trust import inspect
        from vedette.lookup.sets import bundled

        yield from bundled(inspect(read_bundle(installed))).read_plan().formats  # verified when it was installed


@logs.command("search")
@config_option
@data_option
@click.option("--since", metavar="TIME", callback=moment,
              help="Received at this time or later: RFC 3339, or back from now (90s, 15m, 2h, 3d).")  # fmt: skip
@click.option("--until", metavar="TIME", callback=moment, help="Received before this time, in the same form.")
@click.option("--input", "input_name", metavar="NAME", help="Only events of this input.")
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=1000, show_default=True, help="Print at most this many events."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object per event, with its place in the raw log.",
)
@identity_option
@click.argument("pattern")
def logs_search(
    config: Path, data_dir: Path | None, identity: Path | None, since: int | None, until: int | None,
    input_name: str | None, limit: int, as_json: bool, pattern: str,
) -> None:  # fmt: skip
    """Print stored events that match PATTERN.

    PATTERN is a regular expression, upper and lower case alike. The agent may be running. Exit code 1 when nothing is
    found. Damaged places, and what the archive does not give, are reported on standard error.

    Example: vedette logs search --since 2h 'failed password'
    """
    from vedette.rawlog.read import search
    from vedette.runtime.agent.logs import log_to_stderr

    log_to_stderr()
    folder = _raw_log(config, data_dir, identity)
    try:
        compiled = re.compile(pattern.encode(), re.IGNORECASE)
    except re.error as error:
        fail(f"{pattern!r} is not a regular expression: {error}")
    count = 0
    for hit in search(folder, pattern=compiled, since=since, until=until, input=input_name, limit=limit):
        count += 1
        text = hit.raw.decode("utf-8", "replace")
        if as_json:
            row = {"log_id": hit.log_id, "offset": hit.offset, "length": hit.length, "input": hit.input,
                   "received_at": hit.received_at, "raw": text}  # fmt: skip
            click.echo(json_line(row))
        else:
            click.echo(f"{rfc3339(hit.received_at)} {hit.input} {safe(text)}")
    if count == limit:
        click.echo(f"vedette: stopped after {limit} events; there may be more: --limit, --since", err=True)
    sys.exit(0 if count else 1)


@logs.command("show")
@config_option
@data_option
@identity_option
@click.argument("place", metavar="LOG_ID:OFFSET+LENGTH")
def logs_show(config: Path, data_dir: Path | None, identity: Path | None, place: str) -> None:
    """Print the event that an alert refers to.

    The place is the alert's raw_ref, written LOG_ID:OFFSET+LENGTH. The agent may be running. Exit code 1 when the raw
    log does not hold the event any more.

    Example: vedette logs show 7e72c5fe35ad4d4f8ea989e9894794d1:94+102
    """
    from vedette.model.event import RawRef
    from vedette.rawlog.read import event_at

    folder = _raw_log(config, data_dir, identity)
    match = re.fullmatch(r"([0-9a-f]{32}):([0-9]{1,18})\+([0-9]{1,9})", place)
    if match is None:
        fail(f"{place!r} is not LOG_ID:OFFSET+LENGTH: give the three parts of an alert's raw_ref, as its report does")
    try:
        raw = event_at(folder, RawRef(match[1], int(match[2]), int(match[3])))
    except LookupError as error:
        click.echo(f"vedette: {safe(str(error))}", err=True)
        sys.exit(1)
    click.echo(safe(raw.decode("utf-8", "replace")))


@logs.command("export")
@config_option
@data_option
@click.option("--since", metavar="TIME", callback=moment,
              help="Received at this time or later: RFC 3339, or back from now (90s, 15m, 2h, 3d).")  # fmt: skip
@click.option("--until", metavar="TIME", callback=moment, help="Received before this time; default: now.")
@click.option("--input", "inputs", metavar="NAME", multiple=True, help="Only events of this input; may be repeated.")
@click.option("--filter", "pattern", metavar="REGEX", default="",
              help="Only events that match, upper and lower case alike.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["raw", "jsonl", "parquet", "ocsf"]), default="jsonl",
              show_default=True,
              help="The bytes; JSON or Parquet with place, times and fields; Base Events of OCSF.")  # fmt: skip
@click.option("-o", "--output", metavar="-|FOLDER|URL", default="-", show_default=True,
              help="Standard output, or a folder or store (s3://, az://, gs://) of parts with a manifest.")  # fmt: skip
@click.option("--options-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="TOML of the store's options and keys; default: that of [archive].")  # fmt: skip
@identity_option
def logs_export(
    config: Path, data_dir: Path | None, since: int | None, until: int | None, inputs: tuple[str, ...], pattern: str,
    form: str, output: str, options_file: Path | None, identity: Path | None,
) -> None:  # fmt: skip
    """Give the raw log to its owner.

    A folder or store gets zstd-compressed parts and manifest.json, with the SHA-256 of each part and the places of its
    first and last event. An export that was interrupted goes on when it is started again with the same options. The
    agent may be running. Exit code 1 when events are damaged or were deleted meanwhile: they are reported, and counted
    in the manifest; 2 when the export cannot be written, or the archive does not give a segment of it.

    Example: vedette logs export --since 7d --format parquet -o /mnt/export

    Example: vedette logs export --since 7d -o s3://owner/edge-1 --options-file owner.toml
    """
    from vedette.archive.stores import FolderStore, open_store
    from vedette.runtime.agent.logs import log_to_stderr
    from vedette.runtime.offline.export import LINES, Parts, Reader, Wanted
    from vedette.runtime.options.inputs import context_of
    from vedette.system.wallclock import utc_now

    log_to_stderr()
    folder = _raw_log(config, data_dir, identity)
    settings = load(config) if data_dir is None or config.exists() else Config()
    if data_dir is not None:
        settings = replace(settings, agent=replace(settings.agent, data_dir=data_dir))
    contexts = {entry.name: context_of(entry) for entry in settings.input}
    try:
        codecs = _codecs(settings)
        wanted = Wanted(form, since, utc_now() if until is None else until, inputs, pattern)
        if output == "-":
            if form not in LINES:
                fail("Parquet goes to a folder: --output FOLDER")
            reader, out = Reader(folder, wanted, contexts, codecs), sys.stdout.buffer
            for events in reader.frames():
                out.write(b"".join(map(LINES[form], events)))
            out.flush()
            missing = reader.damaged + reader.gone
        else:
            if "://" in output:
                place = ArchiveSettings(output, options_file or settings.archive.options_file)
                if mistake := next(place.mistakes(), ""):
                    fail(f"--output{mistake.removeprefix('.url')}")
                store = open_store(place)
            else:
                Path(output).mkdir(parents=True, exist_ok=True)
                store = FolderStore(Path(output), 0o600)
            export = Parts(store, output, wanted, settings.agent.id)
            export.take(folder, contexts, codecs)
            state = export.state
            missing = state["damaged"] + state["gone"]
            click.echo(f"vedette: {state['events']} events in {len(state['parts'])} parts: {output}", err=True)
    except (OSError, ValueError) as error:
        fail(error)
    if missing:
        click.echo(f"vedette: {missing} events could not be read", err=True)
    sys.exit(1 if missing else 0)


@click.command()
@config_option
@data_option
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Show at most this many, the newest ones.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new alerts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per alert, all columns.")
def alerts(config: Path, data_dir: Path | None, limit: int, follow: bool, as_json: bool) -> None:
    """Show this host's alerts, oldest first.

    Those without a receipt (here) and the newest 10,000 with one (sent). A line each: here or sent, time, level, kind,
    host, rule and text. The text of a detection is its event; of a correlation its count, group and last event; of a
    fold how many further alerts it counts. The agent may be running or not.

    Example: vedette alerts --follow
    """
    from vedette.store.store import Store

    folder = data_folder(config, data_dir) / "store"
    print_alert: Callable[[bytes, bool], None] = _alert_json if as_json else _alert_line
    with suppress(KeyboardInterrupt), Store.open(folder, readonly=True) as store:
        shown = store.tail(limit)
        last = shown[-1].seq if shown else 0
        for alert in shown:
            print_alert(alert.data, alert.receipted)
        while follow:
            time.sleep(0.2)
            for alert in store.since(last):
                print_alert(alert.data, alert.receipted)
                last = alert.seq


def _alert_json(data: bytes, receipted: bool) -> None:
    from vedette.delivery.envelope import decode_row

    click.echo(json_line({**decode_row(data), "receipted": receipted}))


def _alert_line(data: bytes, receipted: bool) -> None:
    click.echo(f"{'sent' if receipted else 'here'} {alert_line(data)}")


def alert_line(data: bytes) -> str:
    """An alert on one line that is safe to print, of at most 400 characters."""
    from vedette.delivery.envelope import decode
    from vedette.plan.aggregates import Kind

    alert = decode(data)
    where = alert.host or alert.source
    group = [f"{name}={value}" for name, value in (alert.group_by or {}).items()]
    match alert.kind:
        case "fold":
            text = ", ".join([f"{alert.count} more", *group])
        case "correlation":
            metrics = [f"{kind} {alert.fields[kind]}" for kind in Kind if kind.row.numeric and kind in alert.fields]
            text = f"{', '.join([f'count {alert.count}', *metrics, *group])}: {alert.raw}"
        case _:
            text = alert.raw
    line = f"{rfc3339(alert.event_time)} {alert.level:<13} {alert.kind:<11} {where} {alert.rule_title}: {text}"
    return safe(line)[:400]
