"""``ask.Reader`` by DuckDB, over the files that a Delta table's log names.

Rows are read in pieces, only the columns asked for, and what does not fit into ``MEMORY`` goes to a temporary folder.
Files on this host are read by DuckDB itself, others through pyarrow, which has the file systems.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow.dataset import Dataset, FileSystemDataset
from pyarrow.fs import LocalFileSystem

from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.ask import Reader, Row
from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import Table
from spark_jobs.tables.tables import Where, texts

MEMORY = "1GB"

BATCH = 2_000
"""Rows of a batch of ``stream``."""

_PATTERN = set("*?[")
"""Characters by which DuckDB takes a path for a pattern."""


@contextmanager
def database() -> Iterator[Any]:
    """An empty database within the bounds above, with times in UTC; gone at the end."""
    with tempfile.TemporaryDirectory(prefix="vedette-") as folder:
        settings: dict[str, Any] = {
            "memory_limit": MEMORY,
            "temp_directory": folder,
            "autoinstall_known_extensions": "false",
        }
        with duckdb.connect(config=settings) as duck:
            duck.execute("SET TimeZone = 'UTC'")
            yield duck


def view(duck: Any, name: str, tables: DeltaTables, table: Table, where: Where) -> None:
    """Let ``name`` stand in the database ``duck`` for what ``tables.read`` would give, in the columns of ``table``."""
    show(duck, name, table, tables.dataset(table, where))


def show(duck: Any, name: str, table: Table, rows: Dataset) -> None:
    """Let ``name`` stand in the database ``duck`` for ``rows``, a dataset of ``table``, in its columns."""
    here = isinstance(rows, FileSystemDataset) and isinstance(rows.filesystem, LocalFileSystem)
    if not here or _PATTERN & set("".join(rows.files)):
        duck.register(name, rows)
        return
    # Whatever columns the files were written with, the view has those of now, in their types.
    duck.register(f"no_{name}", arrow_schema(table.columns).empty_table())
    columns, partition = "*", table.partition
    options = "union_by_name = true"
    if partition:
        columns = f"* REPLACE (coalesce({partition}, '') AS {partition})"
        options += f", hive_partitioning = true, hive_types = {{'{partition}': VARCHAR}}"
    files = f"FROM no_{name} UNION ALL BY NAME SELECT {columns} FROM read_parquet([{texts(rows.files)}], {options})"
    names = ", ".join(f'"{column}"' for column in table.names)
    duck.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT {names} FROM ({files})")


class Duck(Reader):
    """DuckDB over Delta tables."""

    def __init__(self, tables: DeltaTables) -> None:
        self._tables = tables
        self._open = ExitStack()
        self._duck = self._open.enter_context(database())

    def _view(self, name: str, table: Table, where: Where) -> None:
        view(self._duck, name, self._tables, table, where)

    def _over(self, name: str, sql: str) -> None:
        self._duck.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {sql}")

    def table(self, name: str, sql: str) -> None:
        self._duck.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql.replace('{explode}', 'unnest')}")

    def has(self, table: Table) -> bool:
        return self._tables.exists(table)

    def rows(self, sql: str) -> list[Row]:
        rows: list[Row] = self._ask(sql).to_arrow_table().to_pylist()
        return rows

    def stream(self, sql: str) -> Iterator[Row]:
        for batch in self._ask(sql).to_arrow_reader(BATCH):
            yield from pa.Table.from_batches([batch]).to_pylist()

    def close(self) -> None:
        self._open.close()

    def _ask(self, sql: str) -> Any:
        return self._duck.sql(sql.replace("{explode}", "unnest"))
