"""Making signed rule sets, where the region's package is: bundle keygen, public, build, sign."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from vedette.bundle.seal import MAX_BODY
from vedette.cli.console import fail, safe, whom
from vedette.cli.options import pipeline_options
from vedette.region import build as builder
from vedette.region import sign as signer
from vedette.system.folders import read_regular
from vedette.system.within import is_name

if TYPE_CHECKING:
    from vedette.udf.host import Host


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
def keygen(path: Path) -> None:
    """Make a signing key.

    Writes the private key to PATH (mode 0600) and prints the public key, which agents have in bundles.trusted_keys.

    Example: vedette bundle keygen region.pem
    """
    try:
        click.echo(signer.keygen(path))
    except OSError as error:
        fail(f"{path}: {error.strerror or error}")


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
def public(path: Path) -> None:
    """Print the public key of a private key.

    As agents have it in bundles.trusted_keys.

    Example: vedette bundle public region.pem
    """
    click.echo(signer.public_text(signer.load_key(path)))


@click.command()
@click.argument("rules", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The bundle file to write.")
@click.option("--version", type=click.IntRange(1), required=True, help="Must rise with every published bundle.")
@click.option("--name", metavar="NAME", default="rules", show_default=True, help="Shown in alerts as NAME-VERSION.")
@click.option(
    "--days",
    default=365,
    show_default=True,
    type=click.IntRange(1),
    help="Days until it expires; an expired bundle stays in use, with a warning.",
)
@click.option("--sample", type=click.Path(path_type=Path), help="Lines of typical traffic: tune the prefilter to them.")
@click.option(
    "--strict", is_flag=True, help="Build nothing when a rule does not run or a test file has mistakes, either."
)
@click.option("--apart", metavar="NAME", multiple=True,
              help="Leave this lookup out of the bundle: it is published by itself; may be repeated.")  # fmt: skip
@pipeline_options
def build(
    rules: tuple[Path, ...], output: Path, version: int, name: str, days: int, sample: Path | None, strict: bool,
    apart: tuple[str, ...], pipelines: tuple[Path, ...], lookups: tuple[Path, ...], functions: Host | None,
) -> None:  # fmt: skip
    """Build an unsigned bundle.

    From the rule files and folders RULES, with the test events beside them. Of tables (--lookup CSV, JSON Lines,
    Parquet) lookups are built with the keys that these rules ask for, and travel in the bundle.
    Rules that do not run are listed and left out. Exit code 2 when a test event fails: nothing is built.

    Example: vedette bundle build rules/sigma -o starter-1.vbundle --version 1
    """
    from vedette.engine.artifact import Artifact
    from vedette.rules import build as compiler
    from vedette.rules.authoring import cases
    from vedette.rules.selftest import check
    from vedette.rules.tables import build_lookups

    if not is_name(name, 64):
        fail(f"--name {safe(name)}: expects letters, digits, '_', '-' or '.' (at most 64, no '.' first)")
    traffic = sample.read_bytes() if sample else b""
    now = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()) * 1_000_000  # the former: reproducible builds
    with TemporaryDirectory() as folder:  # a lookup stays mapped when its file is gone
        tables = build_lookups(rules, pipelines, lookups, functions, Path(folder), now)
        ruleset = compiler.load(rules, pipelines, tables.lookups, functions)
    for table in tables.unasked:
        click.echo(safe(f"{table}: no rule asks the lookup {table.stem}: left out"), err=True)
    plan = compiler.from_rules(ruleset, sample=traffic)
    asked = {name for name, _ in plan.asked}
    if others := sorted({*apart} - asked):
        fail(f"--apart {safe(others[0])}: no rule asks a lookup of that name")
    size = sum(plan.lookups[name].size for name in asked - {*apart})
    if size > MAX_BODY:
        fail(
            f"the lookups of the rules have {size:,} bytes, a bundle at most {MAX_BODY:,}:"
            " publish large ones by themselves and name them with --apart"
        )
    tests, mistakes = cases.load(plan)
    timed, more = cases.sequences(plan)
    mistakes += more
    artifact = Artifact.of(plan)
    failures = check(artifact.engine(plan.lookups), [*tests, *timed], functions)
    for line in (*plan.refused, *mistakes, *failures):
        click.echo(safe(str(line)), err=True)
    if failures or (strict and (plan.refused or mistakes)):
        fail("not built: a test event fails or a rule does not run; see above")
    listed = [*compiler.described(plan), *({"state": "refused", **r._asdict()} for r in plan.refused)]
    data = builder.build(
        name=name,
        version=version,
        created=now,
        expires=now + days * 86_400_000_000,
        plan=artifact.plan,
        databases=artifact.databases,
        sources=_sources(
            rules, [*compiler.files(rules), *ruleset.module_files], {refusal.path for refusal in plan.refused}
        ),
        rules=listed,
        lookups={name: plan.lookups[name].data for name in sorted(asked - {*apart})},
        tests=[*(case.to_row() for case in tests), *(case.to_row() for case in timed)],
        hyperscan_version=artifact.library,
    )
    output.write_bytes(data)
    click.echo(
        f"{output}: {plan.counted}, {len(tests)} test events,"
        f" {len(timed)} sequences, {len(data):,} bytes, not signed yet"
    )


def _sources(roots: tuple[Path, ...], files: list[Path], refused: set[str]) -> dict[str, bytes]:
    """Rule files by path below the folder they were found in; ``.yaml`` becomes ``.yml``, other signs ``-``. Of the
    ``refused`` those that can be read."""
    sources = {}
    for file in files:
        root = next((root for root in roots if file.is_relative_to(root) and root.is_dir()), file.parent)
        name = file.relative_to(root).with_suffix(file.suffix if file.suffix in (".sql", ".py") else ".yml")
        parts = [re.sub(r"[^A-Za-z0-9._-]", "-", part) for part in name.parts]
        try:
            sources["/".join(parts)] = read_regular(file)
        except OSError:
            if str(file) not in refused:
                raise
    return sources


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path), required=True, help="Private key from `bundle keygen`.")
@click.option("--fleet", metavar="NAME", default="", help="The agents' agent.fleet, for a bundle to be published.")
@click.option("--channel", metavar="NAME", default="", help="With --fleet: their bundles.channel.  [default: stable]")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here instead of replacing PATH.")
def sign(path: Path, key: Path, fleet: str, channel: str, output: Path | None) -> None:
    """Sign a bundle for a fleet and channel.

    Without --fleet it can be installed only from a file on the host ([bundles] file), not published. One build may be
    signed for several fleets: write each with -o.

    Example: vedette bundle sign starter-1.vbundle --key region.pem --fleet plants -o plants-1.vbundle
    """
    from vedette.bundle.install import read_bundle

    if channel and not fleet:
        raise ValueError("--channel goes with --fleet")
    private = signer.load_key(key)
    channel = channel or (fleet and "stable")
    (output or path).write_bytes(signer.sign(read_bundle(path), private, fleet, channel))
    click.echo(f"{output or path}: signed by {signer.public_text(private)}, {whom(fleet, channel)}")
