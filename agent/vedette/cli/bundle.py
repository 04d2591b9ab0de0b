"""Signed rule sets: bundle verify, show, rollback; where the region's package is, also those of ``author.py``."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from vedette.cli.console import Commands, config_option, fail, json_line, ruleset_of, safe, whom
from vedette.config.read import load
from vedette.config.settings import DEFAULT_SET
from vedette.version import __version__

if TYPE_CHECKING:
    from vedette.bundle.install import BundleDir
    from vedette.config.settings import Config


ROLLBACK_SECONDS = 300.0
"""A rollback may wait for a dry run in progress and for its own, each of at most 120 s."""


@click.group(cls=Commands, region=dict.fromkeys(("keygen", "public", "build", "sign"), "author"))
def bundle() -> None:
    """Build, sign, verify and roll back rule sets.

    Example: vedette bundle show starter-1.vbundle
    """


@bundle.command("verify")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--trusted-key", "keys", metavar="KEY", multiple=True, required=True,
              help="Public key (ed25519:…) as agents have it; may be repeated.")  # fmt: skip
def bundle_verify(path: Path, keys: tuple[str, ...]) -> None:
    """Check a bundle as an agent would.

    Structure, signature, digests, and its self-test.
    Exit code 1 when an agent would refuse it.

    Example: vedette bundle verify starter-1.vbundle --trusted-key ed25519:…
    """
    from vedette.bundle.install import read_bundle
    from vedette.bundle.manifest import rfc3339
    from vedette.bundle.trust import verify as verify_bundle
    from vedette.runtime.rulesets.validate import validate

    try:
        bundle = verify_bundle(read_bundle(path), keys, __version__)
        engine = validate(bundle)
    except ValueError as error:
        click.echo(safe(f"{path}: refused: {error}"), err=True)
        raise SystemExit(1) from None
    addressee = whom(bundle.fleet, bundle.channel)
    click.echo(f"{path}: good: {engine.plan.counted}, {len(bundle.tests)} self-tests pass; {addressee}")
    if bundle.expired(time.time_ns() // 1000):
        ended = rfc3339(bundle.manifest.expires)
        click.echo(f"{path}: expired at {ended}: agents do not install it any more", err=True)
        raise SystemExit(1)


@bundle.command("show")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Manifest and rule list as JSON.")
def bundle_show(path: Path, as_json: bool) -> None:
    """Show what is in a bundle.

    The signature is not checked.

    Example: vedette bundle show starter-1.vbundle
    """
    from vedette.bundle.install import read_bundle
    from vedette.bundle.manifest import rfc3339
    from vedette.bundle.trust import inspect

    try:
        contents = inspect(read_bundle(path))
        rules = contents.rules
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    if as_json:
        document = {"manifest": orjson.loads(contents.manifest_bytes), "digest": contents.digest, "rules": rules}
        click.echo(json_line(document, indent=True))
        return
    manifest = contents.manifest
    kinds = [_kind(rule) for rule in rules]
    single, refused, stated = (kinds.count(kind) for kind in ("detection", "refused", "statement"))
    related = len(kinds) - single - refused - stated
    counted = f"{single} rules, {related} correlations" + (f", {stated} statements" if stated else "")
    click.echo(
        f"{manifest.name} version {manifest.version}, digest {contents.digest[:12]}, file {contents.sha256[:12]}\n"
        f"created {rfc3339(manifest.created)}, expires {rfc3339(manifest.expires)}\n"
        f"needs agent {manifest.min_agent}; databases for {manifest.hyperscan}\n"
        f"{whom(contents.fleet, contents.channel)}\n"
        f"{counted}, {refused} refused, {len(contents.tests)} self-tests"
    )
    for rule, kind in zip(rules, kinds, strict=True):
        click.echo(safe(f"  {kind:<16} {rule.get('level', ''):<13} {rule.get('title', '')}"))


def _kind(rule: Mapping[str, Any]) -> str:
    if "tables" in rule:
        return "statement"
    return str(rule.get("state") or rule.get("correlation", {}).get("type", "detection"))


@bundle.command("rollback")
@config_option
@click.option("--set", "ruleset", metavar="NAME", default=DEFAULT_SET, show_default=True, help="The rule set.")
@click.option("--from", "version", metavar="N", type=click.IntRange(1),
              help="Version to roll back; does nothing when that was done before.")  # fmt: skip
def bundle_rollback(config: Path, ruleset: str, version: int | None) -> None:
    """Return to the bundle before the current one, of one rule set.

    On this host, at once.
    The version rolled back, and all below it, are refused from then on: the next bundle needs a higher version. If the
    agent is not running, it starts with the earlier bundle. Exit code 2 when there is no earlier bundle or it does not
    work, with nothing changed; or when the agent does not answer in time: run the command again with --from, as shown.

    Example: vedette bundle rollback -c vedette.toml
    """
    from vedette.bundle.install import BundleDir
    from vedette.runtime.agent.control import ask
    from vedette.runtime.agent.logs import log_to_stderr

    log_to_stderr()
    settings = load(config)
    chosen = ruleset_of(settings, ruleset)
    if chosen.paths:
        raise ValueError("the rules come from folders (paths), not from bundles: change them there")
    bundles = BundleDir(
        settings.agent.bundle_dir(ruleset),
        settings.bundles.trusted_keys,
        fleet=settings.agent.fleet,
        channel=chosen.channel,
    )
    named = {} if ruleset == DEFAULT_SET else {"ruleset": ruleset}
    if version is None and (current := bundles.installed()) is not None:
        version = current.version
    try:
        done = ask(settings.agent.control_socket, "rollback", seconds=ROLLBACK_SECONDS, version=version, **named)
    except ConnectionRefusedError:
        done = _rollback_on_disk(settings, bundles, version)
    except ConnectionError as error:
        option = f" --set {ruleset}" if named else ""
        again = f"vedette bundle rollback -c {config}{option} --from {version}"
        raise ValueError(f"{error}\nit may still roll back; this does nothing if it has: {again}") from error
    now = f"{done['bundle']} is current; no other bundle up to version {done['withdrawn']} is accepted"
    click.echo(safe(now if done["done"] else f"nothing to do, version {version} was rolled back before: {now}"))


def _rollback_on_disk(settings: Config, bundles: BundleDir, version: int | None) -> dict[str, Any]:
    """For an agent that is not running. Raises BlockingIOError when it is, FileNotFoundError when it never was: files
    made here would belong to whoever runs the command, not to the agent's user."""
    from vedette.runtime.rulesets.validate import validate
    from vedette.store.store import own

    folder = settings.agent.store_dir
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: the agent has not run here yet: start it first, or name its own data_dir")
    owner = own(folder)
    try:
        if version is not None and bundles.gone_back(version):
            return {"bundle": f"version {_current(bundles)}", "withdrawn": bundles.withdrawn(), "done": False}
        bundle, _ = bundles.rollback(validate)
        return {
            "bundle": f"{bundle.manifest.name}-{bundle.version}",
            "withdrawn": bundles.withdrawn(),
            "done": True,
        }
    finally:
        os.close(owner)


def _current(bundles: BundleDir) -> int:
    installed = bundles.installed()
    return installed.version if installed else 0
