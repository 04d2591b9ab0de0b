"""Documents from outside: how deep they may be, and what counts as a text, a count, a table."""

from __future__ import annotations

import orjson
import pytest

from tests.region.anything import VALUES, nested, objects
from vedette.system.foreign import COUNT, DEPTH, count, items, listed, read, read_toml, table, text, texts


def test_as_deep_as_it_may_be() -> None:
    """DEPTH lists or objects within each other are read; one more is refused, or cut where that is asked."""
    assert read(b"7") == 7
    for deep in (nested, objects):
        assert orjson.dumps(read(deep(DEPTH))) == deep(DEPTH)
        with pytest.raises(ValueError, match="nested deeper than 32"):
            read(deep(DEPTH + 1))
    assert orjson.dumps(read(nested(DEPTH + 1), cut=True)) == nested(DEPTH, '"…"'.encode())
    assert read(b'{"beside": 1, "deep": ' + nested(900) + b"}", cut=True)["beside"] == 1


def test_toml_as_deep_as_it_may_be() -> None:
    """The document is one of the levels."""
    assert read_toml(f"a = {nested(DEPTH - 1).decode()}")
    for depth in (DEPTH, 100_000):
        with pytest.raises(ValueError, match="nested deeper than 32"):
            read_toml(f"a = {nested(depth).decode()}")
    with pytest.raises(ValueError, match="not valid TOML"):
        read_toml("a")


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b"\xff", b'"\\ud800"', nested(100_000)])
def test_what_is_not_json(data: bytes) -> None:
    """Is refused by one kind of error."""
    with pytest.raises(ValueError, match="not JSON"):
        read(data, cut=True)


def test_each_value_for_what_it_should_be() -> None:
    """What is something else counts as nothing."""
    assert texts({"a": "x", "n": 7, "list": ["x"], "none": None, "yes": True, "deep": {}}) == {"a": "x", "n": "7"}
    assert [len(name) for name in texts({"n" * 1000: "v" * 1000}).popitem()] == [300, 300]
    assert len(texts({f"{n}": "x" for n in range(1000)})) == len(listed(["x"] * 1000)) == 200
    assert listed(["x", 1, [], {}, None, True]) == ["x", "1"]
    assert [text(value) for value in ("x", 3, -1, 2**64 - 1, 1.5, None, ["x"], True)] == [
        "x", "3", "-1", "", "", "", "", "",
    ]  # fmt: skip
    assert [count(value) for value in (0, COUNT, COUNT + 1, -1, 1.0, "1", True, None)] == [0, COUNT, 0, 0, 0, 0, 0, 0]
    assert count(2**64 - 1, -1) == -1
    for data in VALUES:
        try:
            value = read(data, cut=True)
        except ValueError:
            continue
        assert isinstance(text(value), str)
        assert isinstance(table(value), dict)
        assert isinstance(items(value), list)
