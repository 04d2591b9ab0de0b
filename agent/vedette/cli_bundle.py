"""Commands about signed rule sets: bundle verify, show; where the region's package is, also those of region/cli.py."""

from __future__ import annotations

import time
from pathlib import Path

import click
import orjson

from vedette import __version__
from vedette.console import WithRegion, fail, json_line, safe


@click.group(cls=WithRegion, region=("keygen", "public", "build", "sign"))
def bundle() -> None:
    """Signed rule sets: make a key, build, sign, verify, show.

    Example: vedette bundle show starter-1.vbundle
    """


@bundle.command("verify")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--trusted-key", "keys", metavar="KEY", multiple=True, required=True,
              help="Public key (ed25519:…) as agents have it; may be repeated.")  # fmt: skip
def bundle_verify(path: Path, keys: tuple[str, ...]) -> None:
    """Check PATH as an agent would: structure, signature, digests, and its own self-test.

    Exit code 1 when an agent would refuse it.

    Example: vedette bundle verify starter-1.vbundle --trusted-key ed25519:…
    """
    from vedette.bundle.manifest import rfc3339
    from vedette.bundle.trust import BundleRefused
    from vedette.bundle.trust import verify as verify_bundle
    from vedette.tryout import trial

    try:
        found = verify_bundle(path.read_bytes(), keys, __version__)
        engine = trial(found)
    except OSError as error:
        fail(error)
    except (BundleRefused, ValueError) as error:
        click.echo(safe(f"{path}: refused: {error}"), err=True)
        raise SystemExit(1) from None
    rules, related = len(engine.plan.rules), len(engine.plan.correlations)
    click.echo(f"{path}: good: {rules} rules, {related} correlations, {len(found.tests)} self-tests pass")
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
    kinds = [str(rule.get("state") or rule.get("correlation", {}).get("type", "detection")) for rule in rules]
    single, refused = kinds.count("detection"), kinds.count("refused")
    related = len(kinds) - single - refused
    click.echo(
        f"{manifest.name} version {manifest.version}, digest {found.digest[:12]}, file {found.sha256[:12]}\n"
        f"created {rfc3339(manifest.created)}, expires {rfc3339(manifest.expires)}\n"
        f"needs agent {manifest.min_agent}; databases for {manifest.hyperscan}\n"
        f"{single} rules, {related} correlations, {refused} refused, {len(found.tests)} self-tests"
    )
    for rule, kind in zip(rules, kinds, strict=True):
        click.echo(safe(f"  {kind:<16} {rule.get('level', ''):<13} {rule.get('title', '')}"))
