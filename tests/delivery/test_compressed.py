"""The uplink compresses what a landing has said it can read, and only that: against a real mosquitto."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker import Broker
from tests.delivery.kit import Box, Up
from tests.delivery.test_uplink import Region, region
from tests.waits import eventually
from vedette.delivery.batch import DICTIONARIES

pytestmark = pytest.mark.peer


async def arrived(centre: Region, box: Box, count: int) -> bool:
    """Put ``count`` alerts into the outbox and receipt them once they are there; whether they came compressed."""
    first = box.next
    box.put(count)
    await eventually("the alerts at the centre", lambda: {*range(first, first + count)} <= centre.compressed.keys())
    centre.receipt(first, first + count - 1)
    await eventually("the receipt", lambda: all(seq < first or seq >= first + count for seq, _ in box.outbox.pending()))
    (compressed,) = {centre.compressed[seq][0] for seq in range(first, first + count)}
    return compressed


async def test_a_receipt_turns_it_on_and_off(broker: Broker, box: Box) -> None:
    """Plain until a receipt names a dictionary that the agent has, and from one on that names none."""
    async with region(broker.url) as centre:
        up = await Up(broker.url, box).connected()
        centre.dictionaries = [50_000]  # of a later version
        assert not await arrived(centre, box, 100)
        assert not await arrived(centre, box, 100)
        assert not up.uplink.state()["compressed"]
        centre.dictionaries = [50_000, *DICTIONARIES]
        assert not await arrived(centre, box, 100)
        before = box.counters.totals["bytes_sent"]
        assert box.counters.totals["bytes_saved"] == 0
        assert await arrived(centre, box, 100)
        sent, saved = box.counters.totals["bytes_sent"] - before, box.counters.totals["bytes_saved"]
        assert 100 * 10 < sent < 100 * 70
        assert sent + saved > 100 * 500
        assert up.uplink.state()["compressed"]

        centre.dictionaries = ()
        assert await arrived(centre, box, 100)
        assert not up.uplink.state()["compressed"]
        centre.dictionaries = [*DICTIONARIES]  # of another landing beside it
        assert not await arrived(centre, box, 100)
        assert not await arrived(centre, box, 100)
        await up.stop()


async def test_a_former_landing_holds_for_resend_after(broker: Broker, box: Box) -> None:
    """Then what others have said counts again."""
    async with region(broker.url) as centre:
        up = await Up(broker.url, box, resend_after=0.5).connected()
        began = asyncio.get_running_loop().time()
        assert not await arrived(centre, box, 1)
        centre.dictionaries = [*DICTIONARIES]
        while not await arrived(centre, box, 1):
            pass
        assert asyncio.get_running_loop().time() - began > 0.5
        await up.stop()


async def test_what_has_no_receipt_goes_again_as_it_was(broker: Broker, box: Box) -> None:
    """A former landing that got a compressed batch cannot read it: it comes again, plain; new ones go on compressed."""
    async with region(broker.url) as centre:
        centre.dictionaries = [*DICTIONARIES]
        up = await Up(broker.url, box, resend_after=0.5).connected()
        assert not await arrived(centre, box, 10)
        box.put(300)  # 11 to 310
        await eventually("each alert plain", lambda: all(False in centre.compressed.get(n, ()) for n in range(11, 311)))
        assert all(centre.compressed[seq][0] for seq in range(11, 311))
        assert await arrived(centre, box, 10)
        centre.receipt(11, 310)
        await eventually("an empty outbox", lambda: box.outbox.depth == 0)
        await up.stop()
