"""Landed rows in full, by place, read by this process: wide rows that need not pass through Spark to be stored.

Only of files in which every column is of the type that Spark would give it. Of any other (an older or later writer's,
damaged ones) nothing is given: then Spark reads all of them, converts what it can, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T

from spark_jobs.intake.frames import PLACE
from spark_jobs.tables.arrow import arrow_schema
from spark_jobs.tables.storage import bare

THREADS = 2
"""Files that are read at the same time."""
ROWS = 32_768
"""Rows of a file that are in memory at a time, beside those that are wanted."""


def rows(places: pa.Table, origins: Mapping[int, str], schema: T.StructType) -> pa.Table | None:
    """The rows at ``places`` (columns ``frames.PLACE``, each row once) with the columns of ``schema`` and the further
    ones of ``places``; None when they are unavailable this way. ``origins`` are the URLs of their files."""
    wanted = arrow_schema(schema)
    others = places.drop_columns(PLACE)
    file, position = (places[name].to_numpy() for name in PLACE)
    order = np.lexsort((position, file))
    files, begins = np.unique(file[order], return_index=True)
    ends = np.searchsorted(file[order], files, side="right")

    def of(file_number: int, begin: int, end: int) -> tuple[pa.Table, pa.Table] | None:
        mine, origin = order[begin:end], origins.get(file_number, "")
        rows_of_file = _of(bare(origin, encoded=True), position[mine], wanted) if origin.startswith("file:") else None
        return None if rows_of_file is None else (rows_of_file, others.take(mine))

    pieces = []
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            for piece in pool.map(of, files.tolist(), begins, ends):
                if piece is None:
                    pool.shutdown(cancel_futures=True)
                    return None
                pieces.append(piece)
    except (pa.ArrowException, OSError):
        return None
    whole = pa.concat_tables([piece for piece, _ in pieces]) if pieces else wanted.empty_table()
    beside = pa.concat_tables([more for _, more in pieces]) if pieces else others
    for name, column in zip(beside.column_names, beside.columns, strict=True):
        whole = whole.append_column(name, column)
    return whole


def _of(path: str, positions: np.ndarray, wanted: pa.Schema) -> pa.Table | None:
    """The rows of one file at ``positions``, which rise."""
    with pq.ParquetFile(path) as file:
        there = file.schema_arrow
        # Spark finds a column whatever the case of its name, and brings types that differ into these.
        names = [name.lower() for name in there.names]
        present = [field for field in wanted if field.name in names]
        if len(set(names)) < len(names) or any(
            field.name not in there.names or there.field(field.name).type != field.type for field in present
        ):
            return None
        pieces, first = [], 0
        for batch in file.iter_batches(ROWS, columns=[field.name for field in present]):
            start, end = np.searchsorted(positions, (first, first + batch.num_rows))
            if start < end:
                pieces.append(batch.take(pa.array(positions[start:end] - first)))
            first += batch.num_rows
    if sum(piece.num_rows for piece in pieces) != len(positions):
        return None
    table = pa.Table.from_batches(pieces)
    columns = [table[field.name] if field in present else pa.nulls(table.num_rows, field.type) for field in wanted]
    return pa.Table.from_arrays(columns, schema=wanted)
