"""Questions in SQL to the tables of ``schema``, over the days of a period, with small answers.

``duck.Duck`` reads the files of Delta tables in this process: bounded memory, no JVM. ``Sparks`` asks a Spark
session, for the other backends and for clusters. Both take the same SQL: plain grouping, ordering and windows, with
``{explode}`` for the function that makes a row of each element of a list. Questions are asked of views; a view holds
the partitions of a range of days, and where there is no table it has all columns and no rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

from spark_jobs.tables.schema import Table
from spark_jobs.tables.tables import Ranges, Tables, Where

Row: TypeAlias = Mapping[str, Any]

LEVELS = ("critical", "high", "medium", "low", "informational")
"""Most severe first; other texts come after them."""


class Reader(ABC):
    """Views of tables, and answers to questions about them."""

    def view(
        self, name: str, table: Table, since: str | None = None, until: str | None = None, *,
        near: Ranges | None = None, only: str = "",
    ) -> None:  # fmt: skip
        """Let ``name`` stand for the partitions of ``table`` from ``since`` to ``until``, both included, and of these
        for the rows that pass ``only`` (SQL). Rows outside of ``near`` may be left out, and may be there: the question
        says again what it wants."""
        self._view(f"every_{name}" if only else name, table, Where(since, until, near=near))
        if only:
            self._over(name, f"SELECT * FROM every_{name} WHERE {only}")

    @abstractmethod
    def _view(self, name: str, table: Table, where: Where) -> None: ...

    @abstractmethod
    def _over(self, name: str, sql: str) -> None:
        """Let ``name`` stand for the answer to ``sql``, a question to other views."""

    def table(self, name: str, sql: str) -> None:
        """Materialise the answer to ``sql`` as the table ``name``, which several questions join."""
        raise NotImplementedError

    @abstractmethod
    def has(self, table: Table) -> bool:
        """Whether any job has written ``table``, if only that there is nothing."""

    @abstractmethod
    def rows(self, sql: str) -> list[Row]:
        """The answer, all of it: for questions with a bounded one. Times are aware, in UTC."""

    @abstractmethod
    def stream(self, sql: str) -> Iterator[Row]:
        """The answer row by row, however long. Maps may be lists of pairs."""

    @abstractmethod
    def close(self) -> None:
        """Forget the views."""

    def only(self, sql: str) -> Row:
        """The one row of a global aggregate."""
        return self.rows(sql)[0]


class Sparks(Reader):
    """A Spark session over tables of any backend."""

    def __init__(self, tables: Tables, spark: SparkSession) -> None:
        self._tables = tables
        self._spark = spark
        self._views: set[str] = set()

    def _view(self, name: str, table: Table, where: Where) -> None:
        self._tables.read(self._spark, table, where).createOrReplaceTempView(name)
        self._views.add(name)

    def _over(self, name: str, sql: str) -> None:
        self._spark.sql(sql).createOrReplaceTempView(name)
        self._views.add(name)

    def table(self, name: str, sql: str) -> None:
        answer = self._spark.sql(sql.replace("{explode}", "explode")).localCheckpoint()
        answer.createOrReplaceTempView(name)
        self._views.add(name)

    def has(self, table: Table) -> bool:
        return self._tables.exists(table)

    def rows(self, sql: str) -> list[Row]:
        rows: list[Row] = self._spark.sql(sql.replace("{explode}", "explode")).toArrow().to_pylist()
        return rows

    def stream(self, sql: str) -> Iterator[Row]:
        for row in self._spark.sql(sql.replace("{explode}", "explode")).toLocalIterator():
            yield row.asDict(recursive=True)

    def close(self) -> None:
        for name in self._views:
            self._spark.catalog.dropTempView(name)


def open_reader(tables: Tables, spark: SparkSession | None) -> Reader:
    """A reader of ``tables``; without a session they are Delta tables and DuckDB reads them.

    Raises ImportError when DuckDB is missing.
    """
    if spark is not None:
        return Sparks(tables, spark)
    from spark_jobs.tables.delta import DeltaTables
    from spark_jobs.tables.duck import Duck

    assert isinstance(tables, DeltaTables)
    return Duck(tables)


LARGEST = (1 << 63) - 1


def wide(number: str) -> str:
    """SQL: a whole number for arithmetic. Of two that an agent says, a sum of 64 bits could end the question."""
    return f"CAST({number} AS DECIMAL(38, 0))"


def narrow(number: str) -> str:
    """SQL: what comes of ``wide`` numbers as one of 64 bits, the nearest where it is beyond these, 0 for none."""
    return f"CAST(greatest(least(coalesce({number}, 0), {LARGEST}), -{LARGEST}) AS BIGINT)"


def total(column: str, name: str = "") -> str:
    """SQL: the sum of a column of whole numbers, 0 for none, under its own name."""
    return f"{narrow(f'sum({wide(column)})')} AS {name or column}"


def severity(column: str = "level") -> str:
    """SQL: 5 for critical down to 1 for informational, 0 for another text."""
    cases = " ".join(f"WHEN '{name}' THEN {len(LEVELS) - place}" for place, name in enumerate(LEVELS))
    return f"CASE {column} {cases} ELSE 0 END"


def time(at: datetime) -> str:
    """SQL: a time, UTC as every reader's session is."""
    return f"CAST('{at.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'microseconds')}' AS TIMESTAMP)"


def text(value: str) -> str:
    """SQL: a text. Hexadecimal, because the dialects escape differently and values come from attackers."""
    return f"decode(unhex('{value.encode(errors='replace').hex()}'), 'utf-8')"


def within(column: str, since: str, until: str) -> str:
    """SQL: whether a time lies in the UTC days ``since`` to ``until``, ``YYYY-MM-DD``, both included."""
    end = date.fromisoformat(until) + timedelta(days=1)
    return f"{column} >= CAST('{since} 00:00:00' AS TIMESTAMP) AND {column} < CAST('{end} 00:00:00' AS TIMESTAMP)"
