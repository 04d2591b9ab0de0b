"""Arrow types of the tables' columns, and rows brought into them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from spark_jobs.tables.schema import Table

_SCALARS: dict[type[T.DataType], pa.DataType] = {
    T.StringType: pa.string(),
    T.BinaryType: pa.binary(),
    T.BooleanType: pa.bool_(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.DoubleType: pa.float64(),
    T.TimestampType: pa.timestamp("us", tz="UTC"),
}


def arrow_type(kind: T.DataType) -> pa.DataType:
    """The Arrow type of a Spark type that ``schema`` uses."""
    match kind:
        case T.ArrayType():
            return pa.list_(arrow_type(kind.elementType))
        case T.MapType():
            return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
        case T.StructType():
            return pa.struct([(field.name, arrow_type(field.dataType)) for field in kind.fields])
    return _SCALARS[type(kind)]


def arrow_schema(columns: T.StructType) -> pa.Schema:
    return pa.schema([(field.name, arrow_type(field.dataType)) for field in columns.fields])


def conform(table: Table, rows: pa.Table) -> pa.Table:
    """``rows`` with exactly the table's columns: absent ones null, text keys never null.

    Raises ValueError naming a column that the table does not have or whose type does not fit.
    """
    schema = arrow_schema(table.columns)
    if unknown := [name for name in rows.column_names if name not in schema.names]:
        raise ValueError(f"{table.name}: has no column {', '.join(unknown)}")
    columns = []
    for field in schema:
        there = field.name in rows.column_names
        column = _cast(table, field, rows[field.name]) if there else pa.nulls(rows.num_rows, field.type)
        if field.name in (*table.keys, table.partition) and column.null_count:
            if field.type != pa.string():
                raise ValueError(f"{table.name}.{field.name}: {column.null_count} rows without a value for the key")
            column = pc.fill_null(column, "")
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _cast(table: Table, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column if column.type == field.type else column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"{table.name}.{field.name}: {error}") from error
