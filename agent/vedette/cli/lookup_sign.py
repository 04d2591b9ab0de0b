"""Signing lookups, where the region's package is: lookup sign."""

from __future__ import annotations

from pathlib import Path

import click

from vedette.cli.console import whom
from vedette.region import sign as signer


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path), required=True, help="Private key from `bundle keygen`.")
@click.option("--fleet", metavar="NAME", default="", help="The agents' agent.fleet, for a lookup to be published.")
@click.option("--channel", metavar="NAME", default="", help="With --fleet: their bundles.channel.  [default: stable]")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here instead of replacing PATH.")
def sign(path: Path, key: Path, fleet: str, channel: str, output: Path | None) -> None:
    """Sign a lookup, with the keys of bundles.

    Example: vedette lookup sign assets.vlookup --key region.pem --fleet plants
    """
    from vedette.lookup.sign import sign as write

    if channel and not fleet:
        raise ValueError("--channel goes with --fleet")
    private = signer.load_key(key)
    channel = channel or (fleet and "stable")
    write(path, output or path, private, fleet, channel)
    click.echo(f"{output or path}: signed by {signer.public_text(private)}, {whom(fleet, channel)}")
