"""What is blocked, on disk: read as it was written, and what an older alert may not do again."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.response.record import MAX_UNDONE, Block, Record

NOW = 1_790_000_000_000_000


def test_written_and_read(tmp_path: Path) -> None:
    """All of it comes back, with times; a file that is not there is an empty record."""
    record = Record(tmp_path / "r" / "blocked.json")
    record.read()
    assert record.blocked == {}
    record.blocked = {
        "203.0.113.9": Block(NOW, NOW + 5_000_000, "alert", "a1", "r1"),
        "2001:db8::9": Block(1, NOW, "operator"),
    }
    record.undone, record.flushed = {"203.0.113.8": NOW}, 7
    record.write()
    again = Record(tmp_path / "r" / "blocked.json")
    again.read()
    assert (again.blocked, again.undone, again.flushed) == (record.blocked, record.undone, record.flushed)
    assert again.left(NOW) == {"203.0.113.9": 5000}
    assert [one["seconds"] for one in again.rows(NOW)] == [5]
    assert (tmp_path / "r" / "blocked.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"blocked": {"x; y": [1, 2, ""]}, "undone": {}, "flushed": 0}',
     '{"blocked": {"192.0.2.1": ["a", "b", ""]}, "undone": {}, "flushed": 0}',
     '{"blocked": {"192.0.2.1": [1]}, "undone": {}, "flushed": 0}'],
)  # fmt: skip
def test_no_record(tmp_path: Path, text: str) -> None:
    """Anything else is refused with what to do, and nothing of it is taken."""
    (tmp_path / "blocked.json").write_text(text)
    record = Record(tmp_path / "blocked.json")
    with pytest.raises(ValueError, match="remove it"):
        record.read()
    assert record.blocked == {}


def test_undone_and_over() -> None:
    """An alert from before its address was undone, or all were, is stale; one from later is not. What is over is
    forgotten, what was undone once its alerts are over, and its number is bounded."""
    record = Record(Path("none"))
    record.undone, record.flushed = {"203.0.113.9": NOW}, NOW - 100
    assert record.stale("203.0.113.9", NOW) == "undone after this alert"
    assert record.stale("203.0.113.9", NOW + 1) == ""
    assert record.stale("203.0.113.8", NOW - 100) == "all blocks were undone after this alert"
    assert record.stale("203.0.113.8", NOW - 99) == ""
    record.blocked = {"203.0.113.8": Block(0, NOW, "alert")}
    assert record.expire(NOW, 10)
    assert (record.blocked, record.undone) == ({}, {"203.0.113.9": NOW})
    assert not record.expire(NOW + 10, 10)
    assert record.undone == {}
    assert MAX_UNDONE == 10_000


def test_noted_while_the_clock_was_ahead() -> None:
    """A block lasts as long as it was meant to, and what was undone then keeps no later alert from blocking."""
    record, ahead = Record(Path("none")), NOW + 10**12
    record.blocked = {"203.0.113.8": Block(ahead, ahead + 60, "alert")}
    record.undone, record.flushed = {"203.0.113.9": ahead}, ahead
    assert not record.expire(NOW, 60)
    assert record.blocked == {"203.0.113.8": Block(NOW, NOW + 60, "alert")}
    assert record.stale("203.0.113.8", NOW + 1) == ""
    assert record.stale("203.0.113.9", NOW + 1) == ""
    assert record.expire(NOW + 60, 60)
