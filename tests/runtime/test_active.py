"""The memory of rules that were replaced."""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from weakref import ref

import pytest

from tests.waits import eventually
from vedette.runtime.rulesets import active


class Engine:
    """Refers to itself in a circle, as a real one does: only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


async def test_an_engine_that_is_in_use_when_replaced_is_freed_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen while a frame was evaluated with it: looked at again until it is gone, then no more."""
    monkeypatch.setattr(active, "TRIM_SECONDS", 0.01)
    looks: list[None] = []
    monkeypatch.setattr(active, "freeze", lambda freeze=active.freeze: (looks.append(None), freeze()))
    under_way = [Engine()]
    old: Any = ref(under_way[0])
    giving = asyncio.create_task(active.give_back(old))
    try:
        await eventually("three looks", lambda: len(looks) > 2)
        assert gc.get_freeze_count() > 0
        assert not giving.done()
        under_way.clear()
        await giving
        assert old() is None
    finally:
        giving.cancel()
        gc.unfreeze()


async def test_what_never_goes_is_not_looked_at_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active, "TRIM_SECONDS", 0.01)
    monkeypatch.setattr(active, "MAX_TRIM_SECONDS", 0.1)
    kept: Any = Engine()
    try:
        await active.give_back(ref(kept))
    finally:
        gc.unfreeze()
