"""Intelligence feeds to lookups, where the region's package is: lookup fetch."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette.bundle.manifest import rfc3339
from vedette.cli.console import fail, json_line, safe

if TYPE_CHECKING:
    from vedette.region.feeds.fetch import Made, Read


@click.command("fetch")
@click.argument("feeds", type=click.Path(path_type=Path), metavar="FEEDS")
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), required=True,
              help="The folder of the lookups.")  # fmt: skip
@click.option("--state", type=click.Path(path_type=Path),
              help="Where what was read is kept.  [default: FOLDER/.feeds]")  # fmt: skip
@click.option("--prefix", metavar="TEXT", default="intel_", show_default=True,
              help="What lookups' names begin with, before the kind.")  # fmt: skip
@click.option("--only", metavar="NAME", multiple=True, help="Read this feed only; may be repeated.")
@click.option("--full", is_flag=True, help="Read all of each feed, not only what is new.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def fetch(
    feeds: Path, folder: Path, state: Path | None, prefix: str, only: tuple[str, ...], full: bool, as_json: bool
) -> None:
    """Read intelligence feeds into lookups.

    FEEDS is a TOML file of [[feed]] tables: STIX bundles, TAXII 2.1 collections, MISP exports and feed folders. Of all
    feeds together a lookup is built for each kind of indicator, of what holds now; one whose rows did not change stays
    as it is. Run it by a timer.

    Exit code 1 when a feed could not be read: what was read of it before stays in the lookups. 2 when FEEDS has a
    mistake, or a lookup cannot be written.

    Example: vedette lookup fetch feeds.toml -o lookups
    """
    from vedette.lookup.layout import NAME
    from vedette.region.feeds import fetch as reader
    from vedette.region.feeds.settings import read
    from vedette.region.feeds.store import Store

    if not NAME.fullmatch(f"{prefix}feeds"):
        fail(f"--prefix {safe(prefix)}: expects what the name of a lookup may begin with")
    wanted = read(feeds)
    if unknown := sorted({*only} - {feed.name for feed in wanted}):
        fail(f"--only {safe(unknown[0])}: no such feed; there are {', '.join(feed.name for feed in wanted)}")
    store = Store(state or folder / ".feeds")
    try:
        readings = []
        for feed in wanted:
            if not only or feed.name in only:
                done = reader.fetch(feed, store, time.time_ns() // 1000, full=full)
                readings.append(done)
                if not as_json:
                    _show_reading(done)
        lookups = list(reader.lookups(wanted, store, folder, prefix, time.time_ns() // 1000))
    except sqlite3.Error as error:
        fail(f"{state or folder / '.feeds'}: {error}: remove this folder, and all feeds are read again")
    finally:
        store.close()
    failed = any(reading.error for reading in readings)
    if as_json:
        click.echo(json_line(_document(readings, lookups), indent=True))
    else:
        for lookup in lookups:
            was = "unchanged" if lookup.built is None else f"version {lookup.built.version[:12]}, not signed yet"
            dropped = ", ".join(f"{count:,} {reason}" for reason, count in sorted(lookup.dropped.items()))
            click.echo(
                safe(f"{lookup.path}: {lookup.rows:,} rows, {was}" + (f"; dropped {dropped}" if dropped else ""))
            )
    raise SystemExit(1 if failed else 0)


def _show_reading(reading: Read) -> None:
    if reading.error:
        remains = (
            f"{reading.indicators:,} indicators of {rfc3339(reading.read)} stay"
            if reading.read
            else "nothing is kept of it"
        )
        click.echo(safe(f"{reading.name}: not read: {reading.error}; {remains}"), err=True)
    else:
        click.echo(
            safe(f"{reading.name}: {reading.indicators:,} indicators" + ("" if reading.changed else ", unchanged"))
        )
    for reason, (count, first) in sorted(reading.left.reasons.items()):
        click.echo(safe(f"  left out {count:,}: {reason} (the first: {first})"))


def _document(readings: list[Read], lookups: list[Made]) -> dict[str, object]:
    return {
        "feeds": [
            {
                "name": reading.name,
                "indicators": reading.indicators,
                "read": rfc3339(reading.read) if reading.read else None,
                "changed": reading.changed,
                "error": reading.error or None,
                "left_out": [
                    {"reason": reason, "count": count, "first": first}
                    for reason, (count, first) in sorted(reading.left.reasons.items())
                ],
            }
            for reading in readings
        ],
        "lookups": [
            {
                "path": str(lookup.path),
                "kind": lookup.kind,
                "rows": lookup.rows,
                "changed": lookup.built is not None,
                "dropped": dict(sorted(lookup.dropped.items())),
            }
            for lookup in lookups
        ],
    }
