"""Input plugins: what they hand over is stored before ``put`` returns, and their faults are their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from tests.inputs.intake import Bin, agent
from tests.waits import DEADLINE, eventually
from vedette.inputs.plugin import PluginInput, PluginRun
from vedette.model.counters import Counters
from vedette.model.event import CHUNK_BYTES, MAX_EVENT, Flag
from vedette.model.plugins import Feed, Stopped
from vedette.system import plugins
from vedette.system.plugins import FAULTS, Entry, settings_of


class Plugin:
    """What a test lets the plugin do, each time that it is run."""

    steps: ClassVar[list[Any]] = []
    ran: ClassVar[int] = 0

    def __init__(self, options: Mapping[str, Any]) -> None:
        if "bad" in options:
            raise ValueError("options.bad: not known")

    def run(self, feed: Feed) -> None:
        type(self).ran += 1
        self.steps[min(self.ran, len(self.steps)) - 1](feed)


def rests(feed: Feed) -> None:
    while not feed.wait(DEADLINE):
        pass


def raises(feed: Feed) -> None:
    raise SystemExit("on its own")


def puts(*events: Any, then: Any = rests, **more: Any) -> Any:
    def step(feed: Feed) -> None:
        feed.put(*events, **more)
        then(feed)

    return step


@asynccontextmanager
async def running(
    *steps: Any, bin: Bin | None = None, target: str = f"{__name__}:Plugin", **options: Any
) -> AsyncIterator[tuple[Bin, plugins.Health, asyncio.Task[None]]]:
    Plugin.steps, Plugin.ran = [*steps], 0
    entry = Entry("inputs", "acme", "1", "one", target)
    settings = settings_of(PluginInput, entry)("x", options=options)
    bin = bin or Bin()
    surroundings = agent(bin, Counters())
    run = PluginRun(settings, entry, surroundings, backoff=(0.001, 0.002), stop_seconds=0.3)
    health = plugins._health["inputs", "acme:one", "input x"]
    health.faults = 0
    task = asyncio.create_task(run.run())
    try:
        yield bin, health, task
    finally:
        await run.stop()
        await asyncio.wait({task})


async def test_events() -> None:
    """They are stored as they are, with their peer; an empty one has a byte, one that is too long is cut."""
    long = b"y" * (MAX_EVENT + 1)
    async with running(puts([b"a", b"", b"b\nc"], origin="10.0.0.1"), puts([long])) as (bin, health, _):
        await eventually("the events", lambda: bin.events)
    assert bin.events == [b"a", b"\n", b"b\nc"]
    assert (bin.chunks[0].input, bin.chunks[0].codec, bin.chunks[0].origins) == ("x", "auto", ("10.0.0.1",))
    assert health.faults == 0
    async with running(puts([b"a", long])) as (bin, _, _):
        await eventually("2 events", lambda: len(bin.events) == 2)
    assert [len(one) for one in bin.events] == [1, MAX_EVENT]
    assert bin.chunks[-1].flags(len(bin.chunks[-1].data) - MAX_EVENT) == Flag.CUT


async def test_many_at_once() -> None:
    """Chunks are bounded, however many events one call has."""
    event = b"z" * 1000
    async with running(puts([event] * 1000)) as (bin, _, _):
        await eventually("1000 events", lambda: len(bin.events) == 1000)
    assert max(len(chunk.data) for chunk in bin.chunks) <= CHUNK_BYTES


async def test_waits_while_nothing_is_taken() -> None:
    """While the raw log takes nothing ``put`` does not return."""
    returned = threading.Event()
    bin = Bin()
    bin.close()
    async with running(puts([b"a"], then=lambda feed: returned.set() or rests(feed)), bin=bin):
        await eventually("the plugin's thread", lambda: Plugin.ran)
        await asyncio.sleep(0)
        assert (bin.events, returned.is_set()) == ([], False)
        bin.reopen()
        await eventually("the plugin's return", returned.is_set)
    assert bin.events == [b"a"]


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (raises, "SystemExit: on its own"),
        (lambda feed: None, "it ended before it was to end"),
        (puts(["text"]), "TypeError: put expects a list of bytes, not ['text']"),
        (puts(b"bytes"), "TypeError: put expects a list of bytes, not b'bytes'"),
        (puts([b"a"], origin=7), "TypeError: put expects a text as origin, not 7"),
    ],
)
async def test_a_fault(step: Any, why: str) -> None:
    """It is counted and shown, and the plugin is run again."""
    async with running(step, puts([b"after"])) as (bin, health, _):
        await eventually("the error", lambda: health.error == why or bin.events)
        await eventually("the events", lambda: b"after" in bin.events)
        assert (health.faults, health.error, health.row) == (1, None, 0)


async def test_quarantine() -> None:
    """One that only fails is not run any more after some times; the input's task goes on."""
    async with running(raises) as (_, health, task):
        await eventually("quarantine", lambda: health.quarantined)
        assert not task.done()
        ran = Plugin.ran
        assert (ran, health.faults, health.error) == (FAULTS, FAULTS, "SystemExit: on its own")
    assert Plugin.ran == ran


@pytest.mark.parametrize(
    ("target", "options", "why"),
    [
        ("no_such_module:X", {}, "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{__name__}:Nothing", {}, "AttributeError: module "),
        (f"{__name__}:Plugin", {"bad": 1}, "ValueError: options.bad: not known"),
        (f"{__name__}:FAULTS", {}, "TypeError: 'int' object is not callable"),
    ],
)
async def test_what_cannot_be_made(target: str, options: dict[str, Any], why: str) -> None:
    """An import that fails, options that it refuses: faults of the plugin as any other."""
    async with running(rests, target=target, **options) as (_, health, _):
        await eventually("quarantine", lambda: health.quarantined)
        assert str(health.error).startswith(why)


async def test_one_that_does_not_end() -> None:
    """It is left behind after a while; what it hands over then is not taken."""
    over, seen = threading.Event(), list[str]()

    def deaf(feed: Feed) -> None:
        over.wait(DEADLINE)
        try:
            feed.put([b"late"])
        except Stopped:
            seen.append("stopped")

    async with running(deaf) as (bin, health, _):
        await eventually("the plugin's thread", lambda: Plugin.ran)
    assert str(health.error).startswith("did not end within 0.3 s")
    over.set()
    await eventually("the descriptors", lambda: seen)
    assert (seen, bin.events) == (["stopped"], [])


async def test_a_raw_log_that_cannot_be_written() -> None:
    """That is no fault of the plugin's: the input's task raises it."""
    bin = Bin()
    bin.broken = True
    async with running(puts([b"a"]), bin=bin) as (_, health, task):
        await asyncio.wait({task})
        with pytest.raises(OSError, match="disk gone"):
            task.result()
    assert health.faults == 0
