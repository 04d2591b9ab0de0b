"""Commands about archived segments: status, list, verify, restore."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette.bundle.manifest import rfc3339
from vedette.cli.console import config_option, fail, json_line, safe
from vedette.cli.options import moment
from vedette.config.settings import Config
from vedette.fleet.overlay import load
from vedette.system.durable import sync_path

if TYPE_CHECKING:
    from vedette.archive.index import Row
    from vedette.archive.reach import Reach
    from vedette.archive.stores import Store

agent_option = click.option("--agent", metavar="ID", help="Of this agent, by the store's list; default: this host's.")
identity_option = click.option(
    "--identity", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="The owner's key (age), for archived segments that are encrypted.",
)  # fmt: skip


@click.group()
def archive() -> None:
    """Look after the archive of the raw log.

    Example: vedette archive list
    """


def _settings(path: Path) -> Config:
    config = load(path)
    if not config.archive.url:
        fail(f"{path}: names no archive: [archive] url")
    return config


def _say(error: OSError) -> None:
    click.echo(f"vedette: {safe(str(error))}", err=True)


def _rows(config: Config, agent: str | None, refuse: Callable[[OSError], None] = _say) -> tuple[str, list[Row]]:
    """The agent's id, and what it has in the archive. ``refuse`` is called for each row in the store that is none."""
    from vedette.archive.archiver import stored_rows
    from vedette.archive.index import Index
    from vedette.archive.stores import open_store

    if agent is not None:
        rows = stored_rows(open_store(config.archive), agent, refuse)
        return agent, sorted(rows, key=lambda row: row.segment)
    return config.agent.id, Index(config.agent.archive_dir, config.archive, config.agent.id).rows()


@archive.command()
@config_option
def status(config: Path) -> None:
    """Show what is archived, what waits, and what fails.

    Exit code 1 when the running agent's archive fails.

    Example: vedette archive status
    """
    from vedette.cli.status_page import archive_lines
    from vedette.runtime.agent.control import ask

    settings = _settings(config)
    try:
        with suppress(ConnectionError, FileNotFoundError):
            shown = ask(settings.agent.control_socket, "status")["archive"]
            click.echo("\n".join(map(safe, archive_lines(shown))))
            sys.exit(1 if shown["failing"] else 0)
        _, rows = _rows(settings, None)
    except (OSError, ValueError) as error:
        fail(error)
    size = sum(row.stored_size for row in rows)
    click.echo(f"archive  {settings.archive.url}: {len(rows)} segments, {size:,} bytes; the agent is not running")


@archive.command("list")
@config_option
@agent_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per segment.")
def list_(config: Path, agent: str | None, as_json: bool) -> None:
    """Print the archived segments, oldest first.

    A line each: first and last time of receipt, events, bytes in the store, name.

    Example: vedette archive list
    """
    from msgspec.structs import asdict

    try:
        _, rows = _rows(_settings(config), agent)
    except OSError as error:
        fail(error)
    for row in rows:
        if as_json:
            click.echo(json_line(asdict(row)))
        else:
            times = f"{rfc3339(row.received_from)} {rfc3339(row.received_to)}"
            click.echo(f"{times} {row.events:>9} {row.stored_size:>11} {row.name}")


@archive.command()
@config_option
@agent_option
@click.option("--read", is_flag=True, help="Read each object as a whole, also where the store's ETag is its digest.")
def verify(config: Path, agent: str | None, read: bool) -> None:
    """Compare the store's objects with what was archived.

    Exit code 1 when objects are missing or differ, or a KEY.json beside one cannot be read: each is named.

    Example: vedette archive verify
    """
    from vedette.archive.stores import open_store

    settings = _settings(config)
    try:
        refused = list[OSError]()
        who, rows = _rows(settings, agent, refused.append)
        store = open_store(settings.archive)
        wrong = [mistake for row in rows if (mistake := _wrong(store, f"{who}/{row.name}", row, read))]
    except OSError as error:
        fail(error)
    total = f"{len(rows) - len(wrong)} of {len(rows)} objects are as they were archived"
    click.echo("\n".join([*(safe(str(error)) for error in refused), *wrong, total]))
    sys.exit(1 if wrong or refused else 0)


def _wrong(store: Store, key: str, row: Row, read: bool) -> str:
    """What is wrong with an object; empty: nothing. Raises OSError."""
    from vedette.archive.archiver import matches

    if (properties := store.stat(key)) is None:
        return f"{key}: missing"
    same = matches(store, key, row, properties._replace(tag="") if read else properties, lambda size: None)
    return "" if same else f"{key}: differs from what was archived"


@archive.command()
@config_option
@agent_option
@identity_option
@click.option("--since", metavar="TIME", callback=moment,
              help="Received at this time or later: RFC 3339, or back from now (90s, 15m, 2h, 3d).")  # fmt: skip
@click.option("--until", metavar="TIME", callback=moment, help="Received before this time, in the same form.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def restore(
    config: Path, agent: str | None, identity: Path | None, since: int | None, until: int | None, folder: Path
) -> None:
    """Copy segments from the store to FOLDER/raw, decrypted and verified.

    Then "vedette logs search --data-dir FOLDER" reads them, on any host. What lies there whole already is not copied
    again, so a restore that was interrupted may be started again.

    Example: vedette archive restore --agent edge-1 --since 30d /srv/restored
    """
    from vedette.archive.index import Index
    from vedette.archive.reach import Reach
    from vedette.archive.stores import open_store

    settings = _settings(config)
    try:
        who, rows = _rows(settings, agent)
        (folder / "raw").mkdir(mode=0o750, parents=True, exist_ok=True)
        index = Index(folder, settings.archive, who)
        reach = Reach(folder / "raw", index, lambda: open_store(settings.archive), who, identity)
        taken = 0
        for row in rows:
            if (since is None or row.received_to >= since) and (until is None or row.received_from < until):
                taken += _restored(reach, row, folder / "raw" / row.segment)
    except OSError as error:
        fail(error)
    click.echo(f"vedette: {taken} segments copied to {folder / 'raw'}", err=True)


def _restored(reach: Reach, row: Row, path: Path) -> bool:
    """Whether it had to be copied. Raises OSError."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() == row.sha256:
            return False
    with reach.fetch(row) as source:
        source.seek(0)
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as sink:
            shutil.copyfileobj(source, sink)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.rename(path)
        sync_path(path.parent)
    return True
