"""Answers that are kept: the former one at once, one thread makes the next."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from vedette_console.data.memo import BeingMade, Memo


def test_an_answer_is_kept_while_its_state_stays() -> None:
    """Made once for a state, again for another."""
    memo, makings = Memo(), []

    def make() -> int:
        makings.append(1)
        return len(makings)

    assert [memo.get("k", state, make) for state in (1, 1, 2, 2)] == [1, 1, 2, 2]
    assert memo.get("k", 3, make, least=60) == 2
    assert memo.get("k", 2, make, most=0) == 3


def test_others_get_the_former_answer_meanwhile() -> None:
    """While one makes the next, nobody else waits."""
    memo, begun, go_on = Memo(), threading.Event(), threading.Event()
    memo.get("k", 1, lambda: "old")

    def slow() -> str:
        begun.set()
        assert go_on.wait(30)
        return "new"

    maker = threading.Thread(target=lambda: memo.get("k", 2, slow))
    maker.start()
    assert begun.wait(30)
    assert memo.get("k", 2, slow) == "old"
    go_on.set()
    maker.join()
    assert memo.get("k", 2, slow) == "new"


def test_nobody_waits_for_the_first_answer_in_a_thread() -> None:
    """Who asks while it is made, well or not, is given what to wait for; others' answers are made meanwhile."""
    memo = Memo()

    def fails() -> str:
        with pytest.raises(BeingMade) as raised:
            memo.get("k", 1, lambda: "twice")
        making.append(raised.value.over)
        assert memo.get("other", 1, lambda: "other") == "other"
        raise ValueError("no answer")

    making = list[Future[None]]()
    with pytest.raises(ValueError, match="no answer"):
        memo.get("k", 1, fails)
    assert making[0].done()
    assert memo.get("k", 1, lambda: "new") == "new"


def test_the_oldest_is_forgotten() -> None:
    """There are never more than so many answers."""
    memo = Memo(most=2)
    for key in "abc":
        memo.get(key, 1, lambda: 1)
    assert memo.get("a", 1, lambda: 2) == 2
    assert memo.get("c", 1, lambda: 2) == 1
