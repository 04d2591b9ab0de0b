"""Places of sinks: what the ring keeps for them, how far, and what is counted when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.model.event import Cursor
from vedette.store import store as module
from vedette.store.store import Store


def put(store: Store, first: int, last: int, size: int = 100) -> None:
    store.commit(Cursor("ab" * 16, 0), {}, {}, [(seq, bytes(size)) for seq in range(first, last + 1)])


def seqs(store: Store, after: int = 0, limit: int = 100_000) -> list[int]:
    whole, damaged = store.kept(after, limit)
    assert not damaged
    return [seq for seq, _ in whole]


def test_places_outlive_the_store(tmp_path: Path) -> None:
    """A new sink begins behind the newest alert, one that is known goes on where it was, one that is gone is
    forgotten."""
    with Store.open(tmp_path) as store:
        first = store.open_sinks(["a"])["a"]
        assert first.after == 0
        put(store, 1, 5)
        first.after, first.delivered, first.refused = 3, 2, 1
        store.keep_sinks()
    with Store.open(tmp_path) as store:
        found = store.open_sinks(["a", "b"])
        assert (found["a"].row(), found["b"].row()) == ((3, 2, 1, 0), (5, 0, 0, 0))
        store.open_sinks(["b"])
    with Store.open(tmp_path) as store:
        assert store.open_sinks(["a"])["a"].after == 5


def test_outbox_and_ring_are_one_order(tmp_path: Path) -> None:
    """Alerts are read by seq, whether or not they have a receipt, from any place and in any steps."""
    with Store.open(tmp_path) as store:
        put(store, 1, 20)
        store.receipt([(2, 5), (9, 9), (18, 20)])
        assert seqs(store) == list(range(1, 21))
        found: list[int] = []
        while step := seqs(store, found[-1] if found else 0, 3):
            found += step
        assert found == list(range(1, 21))


def test_the_ring_keeps_what_a_sink_has_not_got(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its own bounds it keeps alerts for the sink furthest behind; they go when that has them."""
    monkeypatch.setattr(module, "RING_ALERTS", 10)
    with Store.open(tmp_path) as store:
        slow, fast = store.open_sinks(["slow", "fast"]).values()
        put(store, 1, 100)
        fast.after = 100
        store.receipt([(1, 100)])
        assert seqs(store) == list(range(1, 101))
        slow.after = 60
        store.keep_sinks()
        assert seqs(store) == list(range(61, 101))
        slow.after = 100
        store.keep_sinks()
        assert seqs(store) == list(range(91, 101))
        assert (slow.dropped, fast.dropped) == (0, 0)
        assert store.account().ring_bytes == 1000


def test_what_the_bound_takes_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond ``sink_bytes`` the oldest go all the same, and count for each sink that had not got them; a sink that is
    new later, and a restart, know of it."""
    monkeypatch.setattr(module, "RING_ALERTS", 10)
    with Store.open(tmp_path) as store:
        store.sink_bytes = 5000
        dead, half = store.open_sinks(["dead", "half"]).values()
        put(store, 1, 100)
        half.after = 30
        store.receipt([(1, 100)])
        assert seqs(store) == list(range(51, 101))
        assert (dead.dropped, dead.passed) == (50, 50)
        assert (half.dropped, half.passed) == (20, 50)
        store.keep_sinks()
    with Store.open(tmp_path) as store:
        assert store.open_sinks(["dead"])["dead"].dropped == 50


def test_no_transaction_trims_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sink leaves behind at once goes in steps."""
    monkeypatch.setattr(module, "RING_ALERTS", 10)
    monkeypatch.setattr(module, "TRIMMED", 30)
    with Store.open(tmp_path) as store:
        (place,) = store.open_sinks(["a"]).values()
        put(store, 1, 100)
        store.receipt([(1, 100)])
        place.after = 100
        left = []
        for _ in range(4):
            store.keep_sinks()
            left.append(len(seqs(store)))
        assert left == [70, 40, 10, 10]
