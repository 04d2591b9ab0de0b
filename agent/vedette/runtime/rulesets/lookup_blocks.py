"""The blocks of a lookup that is on its way: from the installed version, as deltas against it, or whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from vedette.lookup import delta
from vedette.lookup.installed import Earlier, Part
from vedette.lookup.layout import LookupRefused
from vedette.lookup.offer import Offer
from vedette.lookup.sign import Signed

AHEAD = 4
"""Blobs asked for at once."""


def earlier(path: Path | None) -> Earlier | None:
    """The version in ``path``; None when there is none that can be read."""
    try:
        return None if path is None else Earlier(path)
    except (LookupRefused, OSError):
        return None


def copy(part: Part, former: Earlier) -> int:
    """The blocks that the earlier version has; how many these were. Raises OSError."""
    copied = 0
    for block in list(part.missing):
        data = former.block(part.signed.digest(block))
        if data is not None and part.signed.fits(block, data):
            part.write(block, data)
            copied += 1
    return copied


class Blocks:
    """Of one offer. ``get`` fetches a blob by its digest, of so many bytes at most."""

    def __init__(
        self, part: Part, offer: Offer, former: Earlier | None, get: Callable[[str, int], Awaitable[bytes]]
    ) -> None:
        self._part, self._offer, self._get = part, offer, get
        self._base = former if former is not None and former.version == offer.base else None

    async def fetch(self, still: Callable[[], None], arrived: Callable[[], None]) -> None:
        """Those that lack. ``still`` is called before each and raises when the lookup is wanted no more, ``arrived``
        after each. Raises LookupRefused and OSError, with what has come kept."""
        tasks = set[asyncio.Task[None]]()
        try:
            for block in list(self._part.missing):
                still()
                tasks.add(asyncio.create_task(self._block(block, arrived)))
                while len(tasks) >= AHEAD:
                    tasks = await _first(tasks)
            while tasks:
                tasks = await _first(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _block(self, block: int, arrived: Callable[[], None]) -> None:
        signed, content, offer = self._part.signed, None, self._offer
        if self._base is not None and (delta_of := offer.deltas.get(block)) is not None:
            blob = await self._get(delta_of.digest.hex(), delta.MAX_BLOB)
            content = await asyncio.to_thread(
                _by_delta, signed, block, blob, self._base, delta_of.start, delta_of.length
            )
        if content is None:  # no delta, or one against other bytes than this host has
            blob = await self._get(offer.whole[32 * block : 32 * block + 32].hex(), delta.MAX_BLOB)
            content = await asyncio.to_thread(delta.unpacked, blob, signed.span(block)[1])
            if not signed.fits(block, content):
                raise LookupRefused(f"block {block} is not the one that was signed: publish it again")
        await asyncio.to_thread(self._part.write, block, content)
        arrived()


async def _first(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """What is still under way once one has ended. Raises what it raised."""
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    failed = [task for task in done if task.exception() is not None]
    if failed:
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        failed[0].result()
    return rest


def _by_delta(signed: Signed, block: int, blob: bytes, base: Earlier, start: int, length: int) -> bytes | None:
    """The block, or None when the earlier version here does not give it."""
    try:
        content = delta.unpacked(blob, signed.span(block)[1], base.read(start, length))
    except LookupRefused:
        return None
    return content if signed.fits(block, content) else None
