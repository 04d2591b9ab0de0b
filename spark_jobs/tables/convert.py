"""``python -m spark_jobs.tables.convert OLD NEW``: tables of plain Parquet, as release 0.1 could keep them, as Delta.

Plain Parquet had a folder for each write, ``TABLE/[DAY/]write=LABEL``, and merged rows of one key when they were read.
So every write is done again, in the order of its ``written_at``; ``TABLE/_txn/APP`` names an application's last one. A
write that is not in there was cut short: it is left out, and ingest, which goes on at its checkpoint, does it again.

``OLD`` stays as it is. ``NEW`` must not exist; it appears when it is whole. Both are local folders.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from urllib.parse import unquote

import click
import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.tables.delta import NO_PARTITION, DeltaTables
from spark_jobs.tables.schema import TABLES, Table
from spark_jobs.tables.tables import Tables, Txn

log = logging.getLogger(__name__)

_WRITTEN = "written_at"


def convert(old: Path, new: Path) -> int:
    """Make ``new`` of ``old``; how many writes. Raises ValueError, OSError."""
    if new.exists():
        raise ValueError(f"{new}: exists")
    if not old.is_dir():
        raise ValueError(f"{old}: no such folder")
    building = new.with_name(f"{new.name}.tmp")
    if building.exists():
        shutil.rmtree(building)
    building.mkdir(parents=True)
    number = sum(_table(table, old / table.name, DeltaTables(str(building))) for table in TABLES.values())
    if (old / "_checkpoints").is_dir():
        shutil.copytree(old / "_checkpoints", building / "_checkpoints")
    building.rename(new)
    return number


def _table(table: Table, folder: Path, into: Tables) -> int:
    if (folder / "_replaced").exists():
        raise ValueError(f"{folder}: a write was cut short; run `report` of the release that wrote it, then convert")
    notes = {path.name: int(path.read_text()) for path in folder.glob("_txn/[!.]*")}
    writes: dict[str, list[pa.Table]] = defaultdict(list)
    for path in sorted(folder.glob("*=*/write=*/*.parquet" if table.partition else "write=*/*.parquet")):
        rows = pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")
        if table.partition:
            value = unquote(path.parent.parent.name.partition("=")[2])
            day = pa.repeat("" if value == NO_PARTITION else value, rows.num_rows)
            rows = rows.append_column(table.partition, day)
        writes[path.parent.name.removeprefix("write=")].append(rows)
    done = 0
    for label, parts in sorted(writes.items(), key=lambda one: one[1][0][_WRITTEN][0].as_py()):
        named = re.fullmatch(r"(.+)-([0-9]{9,})", label)
        if named and notes.get(named[1], -1) < int(named[2]):
            log.warning("%s: write %s was cut short; left out", folder, label)
            continue
        rows = pa.concat_tables(parts, promote_options="default").drop_columns([_WRITTEN])
        (into.upsert if table.keys else into.append)(table, rows)
        done += 1
    for app, version in notes.items():
        name = "first_seen" if app == "first-seen" else app  # the one name that the file's could not hold
        into.append(table, pa.table({}), Txn(name, version))
    return done


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
def main(old: Path, new: Path) -> None:
    """Convert tables of plain Parquet in the folder OLD into Delta tables in the folder NEW.

    Example: python -m spark_jobs.tables.convert tables tables-delta
    """
    try:
        click.echo(f"{new}: {convert(old, new)} writes converted; give this folder as --tables from now on")
    except (OSError, ValueError) as error:
        click.echo(f"convert: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
