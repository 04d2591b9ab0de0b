"""``ask.Reader`` by DuckDB, over the files that a Delta table's log names.

Rows are read in pieces, only the columns asked for, and what does not fit into ``MEMORY`` goes to a temporary folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from spark_jobs.ask import Reader, Row
from spark_jobs.schema import Table
from spark_jobs.tables import Ranges
from spark_jobs.tables_delta import DeltaTables

MEMORY = "1GB"

BATCH = 2_000
"""Rows of a batch of ``stream``."""


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


class Duck(Reader):
    """DuckDB over Delta tables."""

    def __init__(self, tables: DeltaTables) -> None:
        self._tables = tables
        self._open = ExitStack()
        self._duck = self._open.enter_context(database())

    def view(
        self, name: str, table: Table, since: str | None = None, until: str | None = None, *, near: Ranges | None = None
    ) -> None:
        # What a question asks of a column spares the reading of row groups, so ``near`` would not say more.
        self._duck.register(name, self._tables.dataset(table, since, until))

    def rows(self, sql: str) -> list[Row]:
        found: list[Row] = self._ask(sql).to_arrow_table().to_pylist()
        return found

    def stream(self, sql: str) -> Iterator[Row]:
        for batch in self._ask(sql).to_arrow_reader(BATCH):
            yield from pa.Table.from_batches([batch]).to_pylist()

    def close(self) -> None:
        self._open.close()

    def _ask(self, sql: str) -> Any:
        return self._duck.sql(sql.replace("{explode}", "unnest"))
