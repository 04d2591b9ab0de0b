"""Lookups from their sources, where the region's package is: lookup refresh."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vedette.bundle.manifest import rfc3339
from vedette.cli.console import fail, json_line, safe
from vedette.cli.options import broker_options, broker_settings
from vedette.system.within import is_name

if TYPE_CHECKING:
    from vedette.region.reload.refresh import Outcome


@click.command("refresh")
@click.argument("file", type=click.Path(path_type=Path), default=Path("fleet.toml"))
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), required=True,
              help="The folder of the lookups, and of what is known of their sources.")  # fmt: skip
@click.option("--key", type=click.Path(path_type=Path), required=True, help="Private key from `bundle keygen`.")
@click.option("--fleet", metavar="NAME", required=True, help="The agents' agent.fleet.")
@click.option("--only", metavar="NAME", multiple=True, help="Refresh this lookup only; may be repeated.")
@click.option("--now", "at_once", is_flag=True, help="Read the sources that are not due as well.")
@click.option("--fewer", metavar="NAME", multiple=True,
              help="Take this lookup now, however many rows it has lost; may be repeated.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object a lookup.")
@lambda command: broker_options(command, required=False)
def refresh(
    file: Path, folder: Path, key: Path, fleet: str, only: tuple[str, ...], at_once: bool, fewer: tuple[str, ...],
    as_json: bool, **broker: Any,
) -> None:  # fmt: skip
    """Rebuild lookups from their sources.

    FILE has [[lookup]] tables: fleet.toml, or a file of nothing else. Reads the sources that are due, builds and signs
    what changed, and publishes with --broker what that does not hold. Run it by a timer.

    Exit code 1 when a source cannot be read, or its lookup cannot be built or published: the version before stays in
    force. 2 when FILE has a mistake, or the broker cannot be reached.

    Example: vedette lookup refresh fleet.toml -o lookups --key region.pem --fleet plants --broker mqtts://…
    """
    from vedette.region.reload.refresh import Refresher
    from vedette.region.reload.settings import read
    from vedette.region.sign import load_key
    from vedette.runtime.agent.logs import log_to_stderr

    log_to_stderr()
    if not is_name(fleet):
        fail(f"--fleet {safe(fleet)}: expects letters, digits, '_', '-' or '.' (at most 128, no '.' first)")
    tables = read(file)
    names = {table.name for table in tables}
    for name in (*only, *fewer):
        if name not in names:
            fail(f"{safe(name)}: no such lookup in {file}; there are {', '.join(sorted(names))}")
    settings = broker_settings(broker) if broker["url"] else None
    refresher = Refresher(folder, load_key(key), fleet)
    try:
        now = time.time_ns() // 1000
        outcomes = asyncio.run(refresher.run(tables, settings, now, only=only, at_once=at_once, fewer=fewer))
    finally:
        refresher.close()
    for outcome in outcomes:
        if as_json:
            click.echo(json_line({**outcome._asdict(), "since": rfc3339(outcome.since)}))
        else:
            _show(outcome)
    raise SystemExit(1 if any(outcome.error or outcome.trouble for outcome in outcomes) else 0)


def _show(outcome: Outcome) -> None:
    version = f"{outcome.rows:,} rows, version {outcome.version[:12]}" if outcome.version else "nothing in force"
    published = ", published" if outcome.published else ""
    wrong = outcome.trouble or outcome.error
    mark = "NOT OK" if outcome.trouble else outcome.state
    click.echo(safe(f"{outcome.name}: {mark}: {version}{published}" + (f"; {wrong}" if wrong else "")), err=bool(wrong))
