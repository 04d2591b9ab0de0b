"""PyFlink's types by its names: a text and a constructor mean the same."""

from __future__ import annotations

import pytest

from vedette.udf.datatypes import DataType, DataTypes, data_type_of


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("DECIMAL(5, 2)", DataTypes.DECIMAL(5, 2)),
        ("NUMERIC", DataTypes.DECIMAL(10, 0)),
        ("TIMESTAMP(3)", DataTypes.TIMESTAMP(3)),
        ("ROW<a DECIMAL(38, 18), b ARRAY<STRING NOT NULL>>",
         DataTypes.ROW([("a", DataTypes.DECIMAL(38, 18)), ("b", DataTypes.ARRAY(DataTypes.STRING()))])),
    ],
)  # fmt: skip
def test_a_text_is_the_type_that_it_names(text: str, meant: DataType) -> None:
    """With its precision and its scale, within other types, too."""
    assert data_type_of(text).dumped == meant.dumped
