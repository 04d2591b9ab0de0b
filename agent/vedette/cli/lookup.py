"""Dimension tables: lookup build, show, get, verify, list, rollback, remove; at the region also fetch, refresh,
sign.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from vedette.cli.console import Commands, config_option, fail, json_line, safe, whom
from vedette.config.read import load

ROLLBACK_SECONDS = 300.0
"""A rollback may wait for another change of rules."""
KINDS = "text (default), nocase, number, ip, cidr, domain; or LOW..HIGH:range; may be repeated."


@click.group(cls=Commands, region={"fetch": "lookup_fetch", "refresh": "lookup_refresh", "sign": "lookup_sign"})
def lookup() -> None:
    """Build and ask dimension tables.

    Example: vedette lookup get assets.vlookup 10.1.2.3
    """


@lookup.command("build")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file to write.")
@click.option("--plugin", metavar="DISTRIBUTION:NAME",
              help="An installed plugin that gives the rows; SOURCE is what it takes.")  # fmt: skip
@click.option("--key", "keys", metavar="COLUMN[:KIND]", multiple=True, help=KINDS)
@click.option(
    "--rules",
    "rule_paths",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Rule files or folders: keys, columns and types as they ask for; may be repeated.",
)
@click.option(
    "--pipeline",
    "pipelines",
    type=click.Path(path_type=Path),
    multiple=True,
    help="pySigma processing pipeline (YAML) of these rules; may be repeated.",
)
@click.option("--type", "types", metavar="COLUMN:TYPE", multiple=True,
              help="text (default for CSV), int, float, bool or time; may be repeated.")  # fmt: skip
@click.option("--columns", metavar="A,B,…", default="", help="Take only these columns.")
@click.option("--name", metavar="NAME", default="", help="What rules call it.  [default: the name of the file]")
@click.option("--valid", metavar="FROM,UNTIL", help="Two columns of times: when a row holds.")
@click.option("--previous", type=click.Path(path_type=Path),
              help="The version before, whose arrangement is kept, so that little has to be sent.  [default: what is at"
                   " the output]")  # fmt: skip
@click.option("--duplicates", type=click.Choice(["refuse", "keep", "first"]),
              help="What to do with rows that have the same key.  [default: refuse, or keep where --rules"
                   " allow it]")  # fmt: skip
def build(
    source: Path,
    output: Path,
    plugin: str | None,
    keys: tuple[str, ...],
    rule_paths: tuple[Path, ...],
    pipelines: tuple[Path, ...],
    types: tuple[str, ...],
    columns: str,
    name: str,
    valid: str | None,
    previous: Path | None,
    duplicates: str | None,
) -> None:
    """Build a lookup from a table.

    SOURCE is CSV with a header line (.csv, .tsv), JSON Lines (.jsonl) or Parquet. What was at the output is replaced
    when the new file is whole. Exit code 2, with file and line, when a row cannot be taken: nothing is built.

    With --rules the table has the keys that rules ask for under its name, beside those of --key, and without --columns
    only the columns that they return.

    Example: vedette lookup build assets.csv -o assets.vlookup --key ip:ip --key host:domain
    """
    with ExitStack() as stack:
        if plugin is not None:
            source = stack.enter_context(_rows_of(plugin, source))
        _build(source, output, keys, rule_paths, pipelines, types, columns, name, valid, previous, duplicates)


@contextmanager
def _rows_of(plugin: str, source: Path) -> Iterator[Path]:
    """What ``plugin`` gives for ``source``, as JSON Lines in a file of its own."""
    import json
    import tempfile

    from vedette.system import plugins

    entries, mistakes = plugins.found([plugin])
    entry_points = [entry for entry in entries if entry.kind == "lookups"]
    if mistakes or len(entry_points) != 1:
        count = f"it names {len(entry_points)} entry points of vedette.lookups"
        what = mistakes[0].partition(": ")[2] if mistakes else count
        fail(f"--plugin {safe(plugin)}: {what}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        with file.open("w", encoding="utf-8") as out:
            try:
                for number, row in enumerate(entry_points[0].load()(str(source)), 1):
                    wrong = not isinstance(row, Mapping) or not all(isinstance(key, str) for key in row)
                    if wrong or not all(isinstance(value, str | int | float | None) for value in row.values()):
                        raise TypeError(f"row {number} is {row!r:.80}: expects names and texts, numbers, bools or None")
                    out.write(json.dumps(dict(row)) + "\n")
            except Exception as error:  # the plugin's, whatever it is
                fail(f"--plugin {entry_points[0].label}: {source}: {type(error).__name__}: {error}")
        yield file


def _build(
    source: Path,
    output: Path,
    keys: tuple[str, ...],
    rule_paths: tuple[Path, ...],
    pipelines: tuple[Path, ...],
    types: tuple[str, ...],
    columns: str,
    name: str,
    valid: str | None,
    previous: Path | None,
    duplicates: str | None,
) -> None:
    if previous is not None and not previous.is_file():
        fail(f"--previous {previous}: no such file")
    from vedette.lookup.batch import Key
    from vedette.lookup.recipe import Recipe

    recipe = Recipe(
        tuple(Key.parse(key) for key in keys),
        dict(_pair(pair, ":", "--type") for pair in types),
        tuple(column for column in columns.split(",") if column),
        _pair(valid, ",", "--valid") if valid else None,
        duplicates or "",
    )
    if rule_paths:
        from vedette.rules import asks
        from vedette.rules.build import joined, load

        called = name or output.name.partition(".")[0]
        rules = joined(load(rule_paths, pipelines, wanted=frozenset((called,))))
        recipe = asks.recipe(called, source, rules, recipe)
    if not recipe.keys:
        fail("--key, --rules: what is the table asked by?")
    built = recipe.build(source, output, name=name, created=time.time_ns() // 1000, previous=previous)
    each = built.size / built.rows if built.rows else 0.0
    click.echo(
        f"{output}: {built.rows:,} rows, {built.size:,} bytes ({each:.1f} a row), keys {', '.join(built.indexes)},"
        f" version {built.version[:12]}, not signed yet"
    )


def _pair(text: str, sign: str, option: str) -> tuple[str, str]:
    there, left, other = text.rpartition(sign)
    if not (there and left and other):
        fail(f"{option} {text}: expects two names with {sign!r} between")
    return there, other


@lookup.command("show")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="All of it as JSON.")
def show(path: Path, as_json: bool) -> None:
    """Show what a lookup has.

    Columns, keys, size; neither signature nor contents are checked.

    Example: vedette lookup show assets.vlookup
    """
    from vedette.bundle.manifest import rfc3339
    from vedette.lookup.sign import stated
    from vedette.lookup.table import Lookup

    try:
        signed = stated(path)
        with Lookup.open(path, native=False) as lookup:
            header = lookup.header
            document = {
                "name": lookup.name,
                "version": lookup.version,
                "created": rfc3339(header.created),
                "rows": header.rows,
                "bytes": path.stat().st_size,
                "signed_for": None if signed is None else {"fleet": signed[0], "channel": signed[1]},
                "columns": [column._asdict() for column in lookup.columns],
                "keys": [
                    {"name": i.name, "kind": i.kind, "columns": list(i.columns), "layout": layout["layout"]}
                    for i, layout in zip(lookup.indexes, header.layouts, strict=True)
                ],
            }
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    if as_json:
        click.echo(json_line(document, indent=True))
        return
    click.echo(
        safe(f"{lookup.name} version {lookup.version[:12]}, created {rfc3339(header.created)}\n")
        + f"{header.rows:,} rows, {document['bytes']:,} bytes\n"
        + ("not signed" if signed is None else f"signed {whom(*signed)}")
    )
    for index, layout in zip(lookup.indexes, header.layouts, strict=True):
        click.echo(safe(f"  key     {index.name} ({index.kind}, {layout['layout']})"))
    for column in lookup.columns:
        click.echo(safe(f"  column  {column.name} ({column.type})"))


@lookup.command("get")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("key")
@click.option("--index", metavar="NAME", help="Which key of the table.  [default: the first]")
@click.option("--all", "every", is_flag=True, help="All rows: every network around an address, for one.")
@click.option("--at", metavar="TIME", help="Only rows that hold then, as 2026-05-06T07:08:09Z.")
def get(path: Path, key: str, index: str | None, every: bool, at: str | None) -> None:
    """Look a key up.

    Prints a JSON object for each row. Exit code 1 when there is none.

    Example: vedette lookup get assets.vlookup 10.1.2.3 --index ip
    """
    from vedette.lookup.table import Lookup
    from vedette.model.times import iso_time

    moment = iso_time(at) if at else None
    if at and moment is None:
        fail(f"--at {at}: expects a time, as 2026-05-06T07:08:09Z")
    try:
        with Lookup.open(path) as lookup:
            names = [column_index.name for column_index in lookup.indexes]
            try:
                rows = lookup.all(index or names[0], key, moment)
            except KeyError:
                fail(f"{path}: no key {index}; there are {', '.join(names)}")
            columns = [column.name for column in lookup.columns]
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    for row in rows if every else rows[:1]:
        click.echo(json_line(dict(zip(columns, row, strict=True))))
    if not rows:
        raise SystemExit(1)


@lookup.command("verify")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--trusted-key", "keys", metavar="KEY", multiple=True,
              help="Public key (ed25519:…) that has to have signed it; may be repeated.")  # fmt: skip
def verify(path: Path, keys: tuple[str, ...]) -> None:
    """Check a lookup as an agent would.

    Reads the whole file: every part has the digest that it was built with, and with --trusted-key the signature is by
    one of these. Exit code 1 when an agent would refuse it.

    Example: vedette lookup verify assets.vlookup --trusted-key ed25519:…
    """
    from vedette.lookup.layout import LookupRefused
    from vedette.lookup.sign import verify as signed
    from vedette.lookup.table import Lookup

    try:
        sealed = signed(path, keys) if keys else None
        with Lookup.open(path) as lookup:
            if (part := lookup.damaged()) is not None:
                raise LookupRefused(f"its part {part} is damaged: copy it again")
            rows, version = len(lookup), lookup.version
    except OSError as error:
        fail(f"{path}: {error}")
    except LookupRefused as error:
        click.echo(safe(f"{path}: refused: {error}"), err=True)
        raise SystemExit(1) from None
    by = "signature not checked" if sealed is None else f"signed {whom(sealed.fleet, sealed.channel)}"
    click.echo(f"{path}: good: {rows:,} rows, version {version[:12]}, {by}")


@lookup.command("list")
@config_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def listed(config: Path, as_json: bool) -> None:
    """List the lookups of the agent on this host.

    Those that its rules may ask, those on their way, and why one was refused. Without a running agent: those that are
    installed.

    Example: vedette lookup list -c vedette.toml
    """
    from vedette.cli.status_page import lookup_lines
    from vedette.runtime.agent.control import ask
    from vedette.runtime.agent.status import lookups_of

    settings = load(config)
    try:
        report = ask(settings.agent.control_socket, "status")["lookups"]
    except ConnectionRefusedError:
        report = {
            "in_use": lookups_of(settings.agent.lookup_dir, time.time_ns() // 1000),
            "incoming": [],
            "refused": [],
        }
        click.echo("no agent answers; these are installed:", err=True)
    if as_json:
        click.echo(json_line(report, indent=True))
        return
    for line in lookup_lines(report, most=None) or ["no lookups"]:
        click.echo(safe(line))


@lookup.command("rollback")
@config_option
@click.argument("name")
def rollback(config: Path, name: str) -> None:
    """Return to the version of a lookup before the current one.

    On this host, at once. The version rolled back from, and those built before it, are refused from then on. Exit code
    2 when no earlier version is kept.

    Example: vedette lookup rollback assets -c vedette.toml
    """
    from vedette.runtime.agent.control import ask

    done = ask(load(config).agent.control_socket, "lookup_rollback", seconds=ROLLBACK_SECONDS, name=name)
    click.echo(safe(f"{done['lookup']}: {done['current']} is current"))


@lookup.command("remove")
@config_option
@click.argument("name")
def remove(config: Path, name: str) -> None:
    """Remove a lookup that came by itself from this host.

    Refused while rules ask it and no bundle carries it. The agent fetches it again when it is published again, or at
    its next start where the channel still holds it: withdraw it there first.

    Example: vedette lookup remove assets -c vedette.toml
    """
    from vedette.runtime.agent.control import ask

    done = ask(load(config).agent.control_socket, "lookup_remove", seconds=ROLLBACK_SECONDS, name=name)
    click.echo(safe(f"{done['lookup']}: removed"))
