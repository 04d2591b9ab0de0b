"""The Parquet writer, read back by pyarrow."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.delivery import parquet
from vedette.delivery.columns import (
    BINARY,
    BOOL,
    EARLIEST,
    INT32,
    INT64,
    LATEST,
    MAP,
    STRING,
    TIMESTAMP,
    Column,
    List,
    Map,
    Scalar,
    Schema,
    Struct,
    Type,
    fit,
)
from vedette.delivery.envelope import DEAD_LETTER, LANDED_ALERT, SEQS, STATUS

ARROW = {
    STRING: pa.string(),
    BINARY: pa.binary(),
    BOOL: pa.bool_(),
    INT32: pa.int32(),
    INT64: pa.int64(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
}

VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    BINARY: st.binary(max_size=9),
    BOOL: st.booleans(),
    INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    TIMESTAMP: st.integers(EARLIEST, LATEST),
}


def arrow_type(kind: Type) -> pa.DataType:
    """The Arrow type that a reader should see."""
    if isinstance(kind, Scalar):
        return ARROW[kind]
    if isinstance(kind, List):
        return pa.list_(pa.field("element", arrow_type(kind.of), nullable=False))
    if isinstance(kind, Map):
        return pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))
    return pa.struct(arrow_schema(kind.columns))


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema that a reader should see."""
    return pa.schema([pa.field(c.name, arrow_type(c.type), nullable=not c.required) for c in schema])


def plain(kind: Type, value: Any) -> Any:
    """``value`` in the form that pyarrow takes and gives: maps as pairs."""
    if value is None or isinstance(kind, Scalar):
        return value
    if isinstance(kind, List):
        return [plain(kind.of, item) for item in value]
    if isinstance(kind, Map):
        return list(value.items())
    return {c.name: plain(c.type, value.get(c.name)) for c in kind.columns}


def values(kind: Type) -> st.SearchStrategy[Any]:
    """Values of a type."""
    if isinstance(kind, Scalar):
        return VALUES[kind]
    if isinstance(kind, List):
        return st.lists(values(kind.of), max_size=4)
    if isinstance(kind, Map):
        return st.dictionaries(VALUES[STRING], VALUES[STRING], max_size=4)
    return rows_of(kind.columns)


def rows_of(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    """Rows of a schema."""
    return st.fixed_dictionaries({c.name: values(c.type) if c.required else st.none() | values(c.type) for c in schema})


def schemas(types: st.SearchStrategy[Type]) -> st.SearchStrategy[Schema]:
    """One to four columns of ``types``."""
    kinds = st.lists(st.tuples(types, st.booleans()), min_size=1, max_size=4)
    return kinds.map(lambda drawn: tuple(Column(f"c{i}", kind, required) for i, (kind, required) in enumerate(drawn)))


SCALARS = st.sampled_from(list(Scalar))
FLAT = SCALARS | st.builds(Struct, schemas(SCALARS | st.builds(Struct, schemas(SCALARS))))
TYPES = (
    SCALARS
    | st.builds(Struct, schemas(SCALARS | st.just(MAP) | st.builds(List, FLAT)))
    | st.builds(List, FLAT)
    | st.just(MAP)
)


def check(schema: Schema, rows: list[dict[str, Any]]) -> None:
    """pyarrow must read exactly ``rows`` from what the writer makes of them."""
    table = pq.read_table(io.BytesIO(parquet.write(schema, rows)), page_checksum_verification=True)
    expected = arrow_schema(schema)
    assert table.schema.equals(expected), f"{table.schema}\n{expected}"
    table.validate(full=True)
    pairs = [{c.name: plain(c.type, row.get(c.name)) for c in schema} for row in rows]
    assert table.equals(pa.Table.from_pylist(pairs, schema=expected))


@settings(max_examples=100)
@given(st.data())
def test_pyarrow_reads_back_any_schema(data: st.DataObject) -> None:
    """Any rows of any schema come back equal, with the types and the nullability of the schema."""
    schema = data.draw(schemas(TYPES))
    check(schema, data.draw(st.lists(rows_of(schema), max_size=20)))


@pytest.mark.parametrize("schema", [LANDED_ALERT, STATUS, DEAD_LETTER, SEQS], ids=["alerts", "status", "bad", "seqs"])
@settings(max_examples=20)
@given(st.data())
def test_pyarrow_reads_back_the_landing(schema: Schema, data: st.DataObject) -> None:
    """The landing's tables come back equal, and what fits them is written as it was."""
    rows = data.draw(st.lists(rows_of(schema), max_size=6))
    check(schema, rows)
    assert [fit(schema, row) for row in rows] == rows


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 127, 128, 5000])
def test_row_counts(count: int) -> None:
    """Files of no, one and many rows, with runs and changes in their levels, come back equal."""
    schema = (
        Column("n", INT64, True),
        Column("even", STRING),
        Column("late", BOOL),
        Column("many", List(Struct((Column("a", INT32), Column("b", BINARY, True))))),
        Column("map", MAP),
    )
    rows = [
        {
            "n": i,
            "even": str(i) if i % 2 else None,
            "late": True if i > count - 3 else None,
            "many": None if i % 5 == 0 else [{"a": j or None, "b": b"x" * 5000 * (j == 3)} for j in range(i % 7)],
            "map": {str(j): "v" for j in range(i % 3)},
        }
        for i in range(count)
    ]
    check(schema, rows)


def test_a_file_of_no_rows_has_its_schema() -> None:
    """No rows make a file with the schema and no row group."""
    metadata = pq.read_metadata(io.BytesIO(parquet.write(LANDED_ALERT, [])))
    assert (metadata.num_rows, metadata.num_row_groups) == (0, 0)


def test_the_footer_tells_how_the_file_is_made() -> None:
    """One row group of zstd pages, with the sizes and row counts of what is in the file."""
    data = parquet.write((Column("a", STRING, True), Column("b", INT64)), [{"a": "x" * 1000, "b": None}] * 100)
    metadata = pq.read_metadata(io.BytesIO(data))
    assert (metadata.num_rows, metadata.num_row_groups, metadata.created_by) == (100, 1, parquet.CREATED_BY)
    columns = [metadata.row_group(0).column(i) for i in range(2)]
    assert [column.compression for column in columns] == ["ZSTD", "ZSTD"]
    assert [column.num_values for column in columns] == [100, 100]
    assert columns[0].total_uncompressed_size > 100 * 1004 > len(data)
    assert columns[0].file_offset + columns[0].total_compressed_size == columns[1].file_offset


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (STRING, None, "c: missing"),
        (STRING, 5, "c: a value is not a string"),
        (STRING, "\ud800", "c: a value is not a string"),
        (BINARY, "text", "c: a value is not a binary"),
        (BOOL, 2, "c: a value is not a bool"),
        (INT32, 1 << 31, "c: a value is not a int32"),
        (INT64, 1.5, "c: a value is not a int64"),
        (List(STRING), "text", "c: a value is not a list"),
        (List(STRING), [None], "c.list.element: missing"),
        (MAP, ["a"], "c: a value is not a map"),
        (MAP, {"a": 1}, "c.key_value.value: a value is not a string"),
        (Struct((Column("d", INT64, True),)), {}, "c.d: missing"),
        (Struct((Column("d", INT64, True),)), (1,), "c: a value is not a struct"),
    ],
)
def test_a_value_that_does_not_fit_is_named(kind: Type, value: Any, message: str) -> None:
    """A missing or wrong value raises ValueError with its column."""
    with pytest.raises(ValueError, match=message):
        parquet.write((Column("c", kind, True),), [{"c": value}])
    with pytest.raises(ValueError, match=r"c"):
        fit((Column("c", kind, True),), {"c": value})


def test_a_page_beyond_its_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """More in one page than its header can say is an error that names the column."""
    monkeypatch.setattr(parquet, "MAX_PAGE", 100)
    with pytest.raises(ValueError, match="c: 104 bytes in one page, at most 100"):
        parquet.write((Column("c", BINARY, True),), [{"c": bytes(100)}])
