"""Work of a thread that is waited for to its end (``vedette.system.ending``)."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.waits import eventually
from vedette.system.ending import to_its_end


async def test_what_the_thread_returns_or_raises() -> None:
    """The answer of the work is the caller's, an error as well."""
    assert await to_its_end(asyncio.ensure_future(asyncio.to_thread(int, "7"))) == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await to_its_end(asyncio.ensure_future(asyncio.to_thread(int, "x")))


async def test_a_caller_that_is_cancelled_again_and_again() -> None:
    """It hurries the work once, and ends after the thread has, however often it is cancelled."""
    begun = threading.Event()
    hurried = threading.Event()
    going_on = threading.Event()
    ended = threading.Event()

    def work() -> None:
        begun.set()
        going_on.wait()
        ended.set()

    caller = asyncio.create_task(to_its_end(asyncio.ensure_future(asyncio.to_thread(work)), hurried.set))
    await eventually("the thread to begin", begun.is_set)
    caller.cancel()
    await eventually("the work to be hurried", hurried.is_set)
    for _ in range(3):
        caller.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
    assert not caller.done()
    going_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()
