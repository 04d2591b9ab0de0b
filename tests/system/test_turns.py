"""A step in a thread takes turns with the loop: never both at once, and the loop goes on while the step waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from tests.waits import until
from vedette.system import turns
from vedette.system.turns import Turns

PACE = 0.001
"""Seconds between two turns."""


def test_the_loop_goes_on_while_a_step_waits() -> None:
    """And stands still while it computes: what both change needs no lock."""
    shared: list[str] = []

    def stands() -> None:
        """Another thread of the loop's pace goes on, and the loop does not."""
        before, beats = len(shared), list[int]()

        def beat() -> None:
            while len(beats) < 20:
                beats.append(1)
                time.sleep(PACE)

        other = threading.Thread(target=beat)
        other.start()
        other.join()
        assert len(shared) == before

    def step() -> str:
        shared.append("begins")
        stands()
        with turns.waiting():
            until("turns of the loop", lambda: len(shared) > 10)
        stands()
        return threading.current_thread().name

    async def main() -> str:
        async def other() -> None:
            while True:
                shared.append("loop")
                await asyncio.sleep(PACE)

        beside = asyncio.create_task(other())
        found = await Turns("steps").run(step)
        beside.cancel()
        return found

    assert asyncio.run(main()) == "steps"


def test_a_step_that_does_not_wait() -> None:
    """It is done before the loop goes on; what it raises is the caller's, and the next step runs all the same."""

    async def main() -> Iterator[int]:
        steps = Turns("steps")
        with pytest.raises(ValueError, match="no"):
            await steps.run(lambda: _raise(ValueError("no")))
        return iter([await steps.run(lambda: 1), await steps.run(lambda: 2)])

    assert [*asyncio.run(main())] == [1, 2]


def test_a_caller_that_is_cancelled_waits_for_the_end() -> None:
    """A step is never left in the middle."""
    go, done = threading.Event(), threading.Event()

    def step() -> None:
        with turns.waiting():
            go.wait()
        done.set()

    async def main() -> None:
        task = asyncio.create_task(Turns("steps").run(step))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    asyncio.run(main())


def test_waiting_elsewhere_changes_nothing() -> None:
    """Functions run without a loop, too: in ``scan``, in a child that compiles."""
    with turns.waiting():
        assert turns.patience() > 0


def _raise(error: Exception) -> None:
    raise error
