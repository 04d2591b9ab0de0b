"""The operator's side of a fleet: fleet init, plan, sign, apply, status, rotate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from vedette.bundle.manifest import rfc3339
from vedette.bundle.seal import key_text, public_key
from vedette.cli.console import json_line, safe
from vedette.cli.options import broker_options
from vedette.delivery.topics import steer_topic
from vedette.fleet.operators import Operators
from vedette.mqtt.settings import MqttSettings
from vedette.region import announce, compare, fleetfile, fleetlookups, sites
from vedette.region.publish import ruled
from vedette.region.reload.health import Trouble, troubles
from vedette.region.repository import Repository, copied
from vedette.region.roles import ONLINE, Signatory
from vedette.region.sign import keygen, load_key
from vedette.runtime.agent.logs import log_to_stderr
from vedette.system.wallclock import utc_now
from vedette.system.within import is_name

trust_option = click.option(
    "--trust",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("trust"),
    show_default=True,
    help="The fleet's metadata, public but for trust/online.",
)
SHOWN = 20
"""Agents of a group that are named."""


@contextmanager
def _signatories(
    folder: Path, *roles: tuple[Sequence[str], Mapping[str, Signatory]]
) -> Iterator[list[list[Signatory]]]:
    """Those of each role, by entries ``NAME=ed25519:…`` or ``NAME``: one of the mapping, else a key is made in
    ``folder``. When what is done with them fails, no key is left. Raises ValueError and OSError."""
    paths: list[Path] = []
    new = not folder.exists()

    def signatory(entry: str) -> Signatory:
        name, sign, text = entry.partition("=")
        if not sign:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = keygen(folder / f"{name}.pem")
            paths.append(folder / f"{name}.pem")
        return Signatory(name, public_key(text))

    for entries, _ in roles:
        names = [entry.partition("=")[0] for entry in entries]
        for entry, name in zip(entries, names, strict=True):
            if not is_name(name, 64) or names.count(name) > 1:
                raise ValueError(f"{entry!r}: expects NAME or NAME=ed25519:…, each name once")
    try:
        yield [[present.get(entry) or signatory(entry) for entry in entries] for entries, present in roles]
    except (OSError, ValueError):
        for path in paths:
            path.unlink()
        if new and paths:
            folder.rmdir()
        raise
    for path in paths:
        click.echo(f"made {path}: give it to {path.stem}, and keep no copy here")


def key_options(required: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add(command: Callable[..., None]) -> Callable[..., None]:
        for role, what in (("targets", "says what agents may run"), ("root", "says whose keys count")):
            command = click.option(
                f"--{role}-threshold",
                type=click.IntRange(1),
                help="How many of them must sign. Default: 2, or 1 of 1.",
            )(command)
            command = click.option(
                f"--{role}-key", f"{role}_keys", multiple=True, metavar="NAME[=KEY]", required=required,
                help=f"Who {what}: a key is made for NAME, or is ed25519:… of one that NAME has made. Repeat it.",
            )(command)  # fmt: skip
        return click.option(
            "--keys", type=click.Path(path_type=Path), default=Path("keys"), show_default=True,
            help="Folder for keys that are made here.",
        )(command)  # fmt: skip

    return add


@click.command()
@click.argument("name")
@trust_option
@key_options(required=True)
def init(
    name: str, folder: Path, keys: Path, root_keys: tuple[str, ...], root_threshold: int | None,
    targets_keys: tuple[str, ...], targets_threshold: int | None,
) -> None:  # fmt: skip
    """Make the keys and the root of trust of the fleet NAME.

    Keys that are made here sign at once; owners of the others sign with `vedette fleet sign`, and then `vedette fleet
    apply` puts the root in force. Agents take trust/tuf/1.root.json as [fleet] root.

    Example: vedette fleet init plants --root-key alice --root-key bob --targets-key carol --targets-key dave
    """
    repository = Repository(folder)
    with _signatories(keys, (root_keys, {}), (targets_keys, {})) as (roots, operators):
        repository.create(
            name, roots, root_threshold or min(2, len(roots)), operators, targets_threshold or min(2, len(operators))
        )
    for signatory in dict.fromkeys(signatory.name for signatory in (*roots, *operators)):
        if (keys / f"{signatory}.pem").exists():
            repository.sign(load_key(keys / f"{signatory}.pem"))
    if any(signature.missing for signature in repository.signatures()):
        _show_signatures(repository)
        return
    repository.commit()
    click.echo(f"fleet {name}: agents trust {folder / 'tuf' / '1.root.json'}")
    click.echo(f"{folder / 'online'} holds the controller's keys: it stays on one machine, and in no git")


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("fleet.toml"))
@trust_option
@click.option("--retry", is_flag=True, help="Begin changes that were aborted again.")
@click.option("--discard", is_flag=True, help="Only forget what is staged.")
@lambda command: broker_options(command, required=False)
def plan(path: Path, folder: Path, retry: bool, discard: bool, **broker: Any) -> None:
    """Show what fleet.toml changes, and stage it to be signed.

    Reads the file and all that it names, compares them with what is in force and, with --broker, with what agents
    report. Nothing is signed or published. Exit code 2 for a mistake, with all of them.

    Example: vedette fleet plan fleet.toml --broker mqtts://region.example:8883
    """
    repository = Repository(folder)
    if discard:
        repository.discard()
        click.echo("nothing is staged now")
        return
    wanted = fleetfile.read(path, repository.fleet)
    before, rollout = repository.desired(), repository.rollout()
    after = fleetfile.next_desired(wanted, repository.fleet, before, rollout, utc_now(), retry=retry)
    operators = fleetfile.next_operators(wanted, repository.fleet, repository.operators())
    _warn(repository)
    if after is None and operators is not None and before is not None:
        _show_operators(repository.operators(), operators)
        repository.stage_desired(before, wanted.files, operators)
        _show_signatures(repository)
        return
    if after is None:
        click.echo(f"{path}: nothing changes")
        if before is not None and any(warning.role == "targets" for warning in repository.warnings()):
            repository.stage_desired(before, wanted.files)
            fleetlookups.keep(folder, wanted.lookups)
            _show_signatures(repository)
        return
    beats = _heartbeats(broker, repository.fleet)
    who = compare.members(after, beats)
    click.echo(f"fleet {after.fleet}: desired document {after.serial}")
    changed = compare.differences(before, after)
    for group in after.groups:
        agents = f": {len(who[group.name])} agents" if broker["url"] else ""
        click.echo(safe(f"group {group.name} ({group.match}){agents}"))
        if who[group.name]:
            more = f" and {len(who[group.name]) - SHOWN} more" if len(who[group.name]) > SHOWN else ""
            click.echo(safe(f"  {', '.join(who[group.name][:SHOWN])}{more}"))
        for difference in changed:
            if difference.group == group.name:
                click.echo(safe(f"  {_moved(difference)}"))
    gone = {group.name for group in before.groups} - {*who} if before else set()
    for name in sorted(gone):
        click.echo(safe(f"group {name}: gone; its agents stay as they are"))
    if after.rings:
        click.echo(f"in rings: {', '.join(ring.name for ring in after.rings)}")
    fleetlookups.keep(folder, wanted.lookups)
    if operators is not None:
        _show_operators(repository.operators(), operators)
    repository.stage_desired(after, wanted.files, operators)
    _show_signatures(repository)


@click.command()
@trust_option
@click.option("--key", type=click.Path(path_type=Path), required=True, help="Your private key (PEM, mode 0600).")
def sign(folder: Path, key: Path) -> None:
    """Add your signature to what is staged.

    It shows what you sign. The staged files carry all signatures, so they may travel: by git, mail or a stick. Exit
    code 2 when the key may sign nothing of it.

    Example: vedette fleet sign --key carol.pem
    """
    repository = Repository(folder)
    staged = repository.desired(staged=True) if repository.staged("targets") else None
    if staged is not None:
        for difference in compare.differences(repository.desired(), staged):
            click.echo(safe(f"group {difference.group}: {_moved(difference)}"))
        if (asking := repository.operators(staged=True)) is not None and not asking.same(repository.operators()):
            _show_operators(repository.operators(), asking)
    roles = repository.sign(load_key(key))
    click.echo(f"signed: {', '.join(roles)}")
    _show_signatures(repository)


@click.command()
@trust_option
@click.option("--folder", "target", type=click.Path(path_type=Path),
              help="Write the published files here, for agents without a connection.")  # fmt: skip
@click.option("--landing", type=click.Path(path_type=Path),
              help="Write the bundles' rule lists there, for the Spark jobs.")  # fmt: skip
@click.option("--all", "whole", is_flag=True, help="Send every file again, also those that the broker should have.")
@lambda command: broker_options(command, required=False)
def apply(folder: Path, target: Path | None, landing: Path | None, whole: bool, **broker: Any) -> None:
    """Put what is staged and signed in force, and publish it.

    With nothing staged it renews what expires soon (the online keys do that), and publishes. Killed anywhere, run it
    again. Exit code 2 when signatures lack.

    Example: vedette fleet apply --broker mqtts://region.example:8883 --cert-file agent.pem --key-file agent.key
    """
    repository = Repository(folder)
    if repository.commit():
        versions = ", ".join(
            f"{role} {repository.version(role)}" for role in ("root", "targets", "rollout", "timestamp")
        )
        click.echo(f"in force: {versions}")
    if target is not None:
        copied(repository, target)
        click.echo(f"written to {target}")
    if landing is not None:
        lists = ruled(repository.folder, repository.desired(), landing)
        click.echo(f"rule lists of {lists} {'bundle' if lists == 1 else 'bundles'} written to {landing / 'rules'}")
    if broker["url"]:
        log_to_stderr()
        done = asyncio.run(announce.announce(MqttSettings(**broker), repository, whole=whole))
        click.echo(
            f"published: {done.blobs} files, {done.metadata} files of metadata, {done.lookups} lookups;"
            f" {done.cleared} old ones cleared"
        )
    desired = repository.desired()
    if desired is not None and desired.rings:
        begun = ((rollout := repository.rollout()) and rollout.changes) or {}
        changes = (change for group in desired.groups for _, _, change in group.changes())
        waiting = [change.id for change in changes if change.id not in begun and not change.stays]
        if waiting:
            click.echo(f"{len(waiting)} changes wait for the controller to begin their first ring")
    _warn(repository)


@click.command()
@trust_option
@lambda command: broker_options(command, required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per agent.")
def status(folder: Path, as_json: bool, **broker: Any) -> None:
    """Show what agents should run against what they run.

    By group, with reasons; hosts without a connection by their last answer (`vedette fleet import --answers`). Lookups
    that were not reloaded in time are NOT OK. Exit code 1 for one of these, when an agent reports a problem, or the
    metadata have expired.

    Example: vedette fleet status --broker mqtts://region.example:8883
    """
    repository = Repository(folder)
    desired = repository.desired()
    if desired is None:
        raise ValueError("nothing is desired yet: `vedette fleet plan`")
    beats = sites.answers(folder)
    if not broker["url"] and not beats:
        raise ValueError("give --broker, or `vedette fleet import --answers` what hosts have answered")
    for agent_id, beat in _heartbeats(broker, repository.fleet).items():
        time = beat.get("time")
        if agent_id not in beats or (type(time) is int and time >= beats[agent_id]["time"]):
            beats[agent_id] = beat
    rows = compare.rows(desired, repository.rollout(), beats)
    group = None
    for row in rows:
        if as_json:
            click.echo(json_line({**row._asdict(), "reasons": [*row.reasons]}))
            continue
        if row.group != group:
            same = [other for other in rows if other.group == row.group]
            good = sum(other.state == compare.AS_WANTED for other in same)
            click.echo(safe(f"{row.group or 'in no group'}: {good} of {len(same)} as wanted"))
            group = row.group
        click.echo(safe(f"  {row.agent_id:<24} {row.state:<10} {'; '.join(row.reasons)}".rstrip()))
    expired = _warn(repository)
    old = _old_lookups(broker, repository.fleet)
    for trouble in old:
        click.echo(safe(f"NOT OK: lookup {trouble.name}: {trouble.text}"), err=True)
    raise SystemExit(1 if expired or old or any(row.state == compare.PROBLEM for row in rows) else 0)


@click.command()
@trust_option
@key_options(required=False)
@click.option("--online", multiple=True, type=click.Choice(ONLINE), help="Make a new key of this role. Repeat it.")
def rotate(
    folder: Path, keys: Path, root_keys: tuple[str, ...], root_threshold: int | None,
    targets_keys: tuple[str, ...], targets_threshold: int | None, online: tuple[str, ...],
) -> None:  # fmt: skip
    """Stage a new root: other keys, other thresholds, or the same for longer.

    The keys named take the place of all of that role; NAME alone keeps the key of one who has one. Old and new owners
    of root keys sign with `vedette fleet sign`, then `vedette fleet apply`. Agents that were away follow root by root.

    Example: vedette fleet rotate --targets-key carol --targets-key erin=ed25519:…
    """
    repository = Repository(folder)
    if repository.newest("root") is None:
        raise FileNotFoundError(f"{folder}: no fleet here: `vedette fleet init` makes one")
    wanted = {"root": (root_keys, root_threshold), "targets": (targets_keys, targets_threshold)}
    present = {role: {signatory.name: signatory for signatory in repository.signatories(role)} for role in wanted}
    with _signatories(keys, *((entries, present[role]) for role, (entries, _) in wanted.items())) as signatories:
        roles = {
            role: (named, threshold or min(2, len(named)))
            for (role, (_, threshold)), named in zip(wanted.items(), signatories, strict=True)
            if named
        }
        repository.stage_root(roles=roles, online=online)
    _show_signatures(repository)


def _show_operators(before: Operators | None, after: Operators) -> None:
    """Who may ask hosts from now on, and who no longer."""
    former = before.by_name if before else {}
    for name, operator in after.by_name.items():
        row = f"{', '.join(sorted(operator.roles))}, until {rfc3339(operator.expires)}, {key_text(operator.key)}"
        click.echo(safe(f"operator {name}: {row}{'' if former.get(name) == operator else '  (changed)'}"))
    for name in sorted(former.keys() - after.by_name.keys()):
        click.echo(safe(f"operator {name}: taken out"))


def _heartbeats(broker: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    log_to_stderr()
    return asyncio.run(announce.heartbeats(MqttSettings(**broker), name)) if broker["url"] else {}


def _old_lookups(broker: dict[str, Any], fleet: str) -> list[Trouble]:
    topic = steer_topic(fleet, "lookups")
    said = asyncio.run(announce.retained(MqttSettings(**broker), [topic])) if broker["url"] else {}
    return troubles(said.get(topic, b""), utc_now())


def _show_signatures(repository: Repository) -> None:
    """What is staged, who has signed it, and what to do next."""
    staged = repository.signatures()
    for role in staged:
        by = f"signed by {', '.join(role.signed)}" if role.signed else "not signed"
        click.echo(safe(f"staged: {role.role} version {role.version}: {by}, {role.missing} signatures missing"))
    if staged:
        signed = not any(role.missing for role in staged)
        click.echo("next: vedette fleet apply" if signed else "next: vedette fleet sign --key YOUR.pem")


def _warn(repository: Repository) -> bool:
    """What expires soon; True when something has."""
    warnings = repository.warnings()
    for warning in warnings:
        what = "has expired: agents install nothing new" if warning.expired else "expires soon"
        how = "fleet rotate" if warning.role == "root" else "fleet plan" if warning.role == "targets" else "fleet apply"
        click.echo(f"warning: {warning.role} {what} ({warning.expires:%Y-%m-%d %H:%M} UTC): vedette {how}", err=True)
    return any(warning.expired for warning in warnings)


def _moved(difference: compare.Difference) -> str:
    if difference.before == difference.after:
        return f"{difference.what}: stays {_target(difference.after)}"
    return f"{difference.what}: {_target(difference.before)} -> {_target(difference.after)}"


def _target(pin: Any) -> str:
    return "none" if pin is None else f"{pin.target.partition('/')[2]} ({pin.sha256[:12]})"
