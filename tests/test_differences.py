"""The walk of a table ends with every difference, each by its case."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differences import differences, walk


def squared(squares: dict[int, int]) -> None:
    with differences() as case:
        for number, square in squares.items():
            with case(number, "squared"):
                assert number**2 == square
        with case("raises"):
            {}["key"]
        with case("fails"):
            pytest.fail("by hand")


def test_every_difference_is_listed() -> None:
    """By the names of its case, with what was expected and what came; a case that raises is one, too."""
    with pytest.raises(pytest.fail.Exception) as failure:
        squared({1: 1, 2: 5, 3: 9, 4: 15})
    head, *listed = str(failure.value).splitlines()
    assert head == "4 of 6 cases differ"
    names = [line.partition(" (")[0] for line in listed if not line.startswith(" ")]
    assert names == ["2, squared", "4, squared", "raises", "fails"]
    assert {"    assert (2 ** 2) == 5", "    KeyError('key')", "    by hand"} <= set(listed)


def test_a_table_without_cases_fails() -> None:
    """It has proved nothing."""
    with pytest.raises(AssertionError, match="without cases"), differences():
        pass


@walk("number", (1, 2))
@walk(("text", "length"), [("", 0), ("a", 1)])
def test_tables_over_tables(number: int, text: str, length: int, tmp_path: Path) -> None:
    """Every case of the one with every case of the other; none sees another's folder."""
    assert len(text) == length
    assert not list(tmp_path.iterdir())
    (tmp_path / f"{number} {text}").touch()


def test_every_difference_of_a_walk_is_listed() -> None:
    """The walk goes on behind a case that differs."""
    walked = []

    @walk("number", (1, 2, 3))
    def odd(number: int) -> None:
        walked.append(number)
        assert number % 2

    with pytest.raises(pytest.fail.Exception, match=r"1 of 3 cases differ\n2 "):
        odd()
    assert walked == [1, 2, 3]
