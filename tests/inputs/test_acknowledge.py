"""Acknowledging after the batch is stored: in order, not before the disk, and what is left at a stop."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.inputs.intake import Bin
from tests.waits import eventually
from vedette.inputs import acknowledge
from vedette.inputs.acknowledge import Acknowledgements


class Disk(Bin):
    """An intake whose disk is a number that the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = 0
        self.looks = 0
        """How often it was asked for what is not there yet."""
        self._moved = asyncio.Condition()

    async def sync(self, offset: int) -> None:
        async with self._moved:
            self.synced = offset
            self._moved.notify_all()

    async def durable(self, offset: int) -> None:
        async with self._moved:
            while self.synced < offset:
                self.looks += 1
                await self._moved.wait()


async def test_given_in_order_once_on_disk() -> None:
    """Nothing is given before all below its offset is on disk; then all of it, in the order in which it was owed."""
    disk, given = Disk(), list[int]()
    owed = Acknowledgements(disk, given.append)
    running = asyncio.create_task(owed.run())
    owed.owe([1, 2], 10)
    owed.owe([3])  # goes with what was stored last
    owed.owe([4], 20)
    await eventually("a look at the disk", lambda: disk.looks == 1)
    await disk.sync(9)
    await eventually("another", lambda: disk.looks == 2)
    assert given == []
    await disk.sync(10)
    await eventually("what is given", lambda: given == [1, 2, 3])
    await disk.sync(30)
    await owed.drain()
    assert given == [1, 2, 3, 4]
    running.cancel()


async def test_a_stop_does_not_wait_for_a_disk_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not on disk in time is not given: its sender sends it again."""
    monkeypatch.setattr(acknowledge, "DRAIN_SECONDS", 0.05)
    disk, given = Disk(), list[int]()
    owed = Acknowledgements(disk, given.append)
    running = asyncio.create_task(owed.run())
    owed.owe([1], 10)
    await owed.drain()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert given == []
