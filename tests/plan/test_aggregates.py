"""The table of aggregates: every row is complete, tested and documented; what its functions give is exact."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differences import walk
from vedette.plan.aggregates import Keeps, Kind, Reads, percentile
from vedette.plan.numbers import number_of

ROOT = Path(__file__).parents[2]
numbers = st.integers(-(1 << 53), 1 << 53) | st.floats(-1e300, 1e300) | st.sampled_from([0.1, 0.7, 3, 3.3, 5e-324])
percents = st.floats(0, 100) | st.sampled_from([10.0, 25.0, 33.3, 90.0, 99.9])
READ: dict[Reads, st.SearchStrategy[Any]] = {
    Reads.NOTHING: st.integers(0, 9),
    Reads.RULE: st.integers(0, 63),
    Reads.TEXT: st.sampled_from("abcdef"),
    Reads.NUMBER: numbers,
}
every_kind = pytest.mark.parametrize("kind", Kind)


@every_kind
@given(data=st.data())
def test_the_running_form_says_the_same(kind: Kind, data: st.DataObject) -> None:
    """Whatever a stretch has taken in and let go of, from its front."""
    if kind.row.running is None:
        return
    running, held, percent = kind.row.running(), list[Any](), data.draw(percents)
    for read in data.draw(st.lists(st.lists(READ[kind.row.reads], max_size=5), max_size=6)):
        running.take(read)
        held += read
        gone = data.draw(st.integers(0, len(held)))
        running.leave(held[:gone])
        del held[:gone]
        if held:
            expected = kind.row.measure(held, percent)
            assert (running.value(percent), type(running.value(percent))) == (expected, type(expected))
        else:
            assert running.value(percent) in (0, None)


@every_kind
@given(data=st.data())
def test_what_grows_never_shrinks(kind: Kind, data: st.DataObject) -> None:
    """Of numbers: as long as none is negative."""
    if not kind.row.grows:
        return
    reads = READ[kind.row.reads] if kind.row.reads is not Reads.NUMBER else st.integers(0, 1 << 40)
    read = data.draw(st.lists(reads, min_size=2, max_size=8))
    assert kind.row.measure(read, 50.0) >= kind.row.measure(read[:-1], 50.0)


@every_kind
def test_a_row_is_complete(kind: Kind) -> None:
    """What forgets knows what it looks for; rules and documentation know the aggregate."""
    row = kind.row
    assert row.grows or row.keeps is Keeps.ALL
    assert row.keeps is not Keeps.ONE_EACH or row.reads in (Reads.RULE, Reads.TEXT)
    assert row.entry_bytes == 0 or row.running is not None
    assert f"`{kind}`" in (ROOT / "docs/rules.md").read_text()
    examples = (ROOT / "tests/state/test_examples.py").read_text()
    assert str(kind) in examples, "an example in tests/state/test_examples.py"


@walk(
    ("value", "number"),
    [
        (5, 5), (2.5, 2.5), ("7", 7), (" -2.5e1 ", -25.0), ("0x10", None), ("1_0", None), ("nan", None), ("", None),
        (True, None), (None, None), (float("inf"), None), ("1e999", None), ("9" * 400, None), ("١", None),
        (1 << 70, float(1 << 70)),
    ],
)  # fmt: skip
def test_numbers(value: object, number: object) -> None:
    """Numbers and what is written as one in JSON; nothing else, and nothing infinite."""
    assert number_of(value) == number
    assert type(number_of(value)) is type(number)


@given(st.lists(st.integers(-1000, 1000), min_size=2))
def test_percentiles(values: list[int]) -> None:
    """The ends are the least and the greatest, the middle is the median, quartiles are those of the library."""
    assert percentile(values, 0) == min(values)
    assert percentile(values, 100) == max(values)
    assert percentile(values, 50) == statistics.median(values)
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    assert [percentile(values, p) for p in (25, 50, 75)] == pytest.approx(quarters)


@given(st.lists(numbers, min_size=1, max_size=12), percents, percents)
def test_a_percentile_rises(values: list[int | float], one: float, other: float) -> None:
    """A higher percentile of the same numbers is no lower number, and lies among them."""
    low, high = (percentile(values, percent) for percent in sorted((one, other)))
    assert min(values) <= low <= high <= max(values)
