"""A fault of one input is no end of the agent: it is failing, said once, and tried again; the raw log's errors are."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from tests.life import Life, engine
from tests.looptime import forward
from tests.waits import eventually
from vedette.inputs.condition import WORKS
from vedette.inputs.listen import SyslogListener
from vedette.inputs.settings import FileInput, InputSettings, SyslogInput
from vedette.runtime.agent.app import _log_loop_error
from vedette.runtime.options import inputs
from vedette.runtime.options.inputs import Inputs
from vedette.system.trouble import Backoff

FIRST, LONGEST = 1000.0, 30_000.0
"""Pauses, by a time that a test moves: so long that no real time comes near."""
HOSTILE, QUIET = FileInput("hostile", paths=("/none/a",)), FileInput("quiet", paths=("/none/b",))


class Transport:
    """An input that works until a test sets what it raises."""

    condition = WORKS

    def __init__(self) -> None:
        self.ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stops = 0
        self.fault_at_stop: Exception | None = None

    async def run(self) -> None:
        await self.ends

    async def stop(self) -> None:
        self.stops += 1
        if not self.ends.done():
            self.ends.set_result(None)
        if self.fault_at_stop is not None:
            raise self.fault_at_stop

    def bound(self, descriptors: int) -> None:
        pass


class Open(NamedTuple):
    inputs: Inputs
    transports: dict[str, list[Transport]]
    """By input, as they were opened."""

    @property
    def hostile(self) -> list[Transport]:
        return self.transports["hostile"]

    def state(self, name: str = "hostile") -> dict[str, Any]:
        (row,) = (row for row in self.inputs.states((HOSTILE, QUIET)) if row["name"] == name)
        return row


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path, engine("evil"))
    yield life
    life.end()


@asynccontextmanager
async def opened(life: Life, monkeypatch: pytest.MonkeyPatch, **faults: Exception) -> AsyncIterator[Open]:
    """Both inputs, open in a group as the agent has it; ``faults``: of the first opening, by input."""
    transports: dict[str, list[Transport]] = {"hostile": [], "quiet": []}

    async def transport(settings: InputSettings, *_: Any) -> Transport:
        if settings.name in faults:
            raise faults.pop(settings.name)
        transports[settings.name].append(Transport())
        return transports[settings.name][-1]

    monkeypatch.setattr(inputs, "opened", transport)
    monkeypatch.setattr(inputs, "Backoff", lambda: Backoff((FIRST, LONGEST)))
    monkeypatch.setattr(inputs, "STEADY_SECONDS", LONGEST)
    async with asyncio.TaskGroup() as group:
        them = Inputs(life.context, life.pipeline.ingest, group, None)
        await them.start((HOSTILE, QUIET))
        yield Open(them, transports)
        await them.close_all()


async def raised(them: Open, error: Exception) -> None:
    """The hostile input ends by ``error``, and is closed."""
    transport = them.hostile[-1]
    transport.ends.set_exception(error)
    await eventually("its end", lambda: them.state()["state"] == "failing" and len(them.inputs) == 1)
    assert transport.stops == 1


async def turns() -> None:
    """All tasks have gone as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def again(them: Open, seconds: float) -> None:
    """It is opened again after a pause of at most ``seconds``, and not after half of that."""
    await turns()
    times = len(them.hostile)
    loop = asyncio.get_running_loop()
    forward(loop, seconds / 2)
    await turns()
    assert len(them.hostile) == times
    forward(loop, seconds / 2)
    await eventually("another", lambda: len(them.hostile) == times + 1 and len(them.inputs) == 2)


async def test_a_fault_is_of_its_input_alone(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other goes on. The faulty one is failing, with the kind and place of the fault and none of its text, said
    once while it lasts, tried again after pauses that grow; once it has run for as long as the longest, it works."""
    with capture_logs() as logs:
        async with opened(life, monkeypatch) as them:
            loop = asyncio.get_running_loop()
            for seconds in (FIRST, 2 * FIRST, 4 * FIRST):
                await raised(them, SystemError("of a secret event"))
                await again(them, seconds)
                state = them.state()  # still, until it has run for a while
                assert state["state"] == "failing"
                reason = state["reason"]
                assert reason.startswith("a fault of the agent: SystemError at vedette.runtime.options.inputs:")
            assert [line["reason"] for line in logs if line["event"] == "input_failed"] == [reason]
            await raised(them, KeyError("another"))
            await again(them, 8 * FIRST)
            forward(loop, LONGEST)
            assert them.state() == {"name": "hostile", "state": "works", "reason": ""}
            await raised(them, KeyError("another"))
            await again(them, FIRST)
            assert them.state("quiet")["state"] == "works"
            assert (len(them.transports["quiet"]), them.transports["quiet"][0].stops) == (1, 0)
    lines = [line for line in logs if line["event"] == "input_failed"]
    assert [line["text"] for line in lines] == ["of a secret event", "'another'", "'another'"]


async def test_a_fault_in_a_callback(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a listener whose callbacks and tasks raise: it is failing, said once while that lasts, and goes on; once it
    has run for a while without, it works. What came through no input is left to the event loop."""
    syslog = SyslogInput("syslog", udp="127.0.0.1:0", tcp="127.0.0.1:0")
    broken = True
    receive, give = SyslogListener.received, SyslogListener._give_small

    def received(self: SyslogListener, *values: Any) -> None:
        if broken:
            raise SystemError("of a secret event")
        receive(self, *values)

    def given_small(self: SyslogListener, *values: Any) -> None:
        if broken:
            raise KeyError("of a timer")
        give(self, *values)

    monkeypatch.setattr(SyslogListener, "received", received)
    monkeypatch.setattr(SyslogListener, "_give_small", given_small)
    monkeypatch.setattr(inputs, "STEADY_SECONDS", LONGEST)
    loop = asyncio.get_running_loop()
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as group:
            them = Inputs(life.context, life.pipeline.ingest, group, None)
            loop.set_exception_handler(partial(_log_loop_error, them))
            await them.start((syslog,))
            port = {line["transport"]: line["port"] for line in logs if line["event"] == "listening"}

            def state() -> tuple[str, str]:
                (row,) = them.states((syslog,))
                return row["state"], row["reason"]

            def send(transport: str) -> None:
                kind = socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM
                with socket.socket(socket.AF_INET, kind) as sender:
                    sender.connect(("127.0.0.1", port[transport]))
                    sender.send(b"<13>a\n")

            assert state() == ("works", "")
            send("tcp")
            await eventually("the protocol's fault", lambda: "SystemError" in state()[1])
            send("tcp")
            send("udp")
            await eventually("the timer's fault", lambda: "KeyError" in state()[1])
            assert state()[0] == "failing"
            broken = False
            send("tcp")
            await eventually("the message", lambda: life.context.counters.received["syslog"] == 2)
            assert state()[0] == "failing"
            forward(loop, LONGEST)
            assert state() == ("works", "")
            assert not them.blamed(ValueError("of nobody"))
            await them.close_all()
    assert [line["text"] for line in logs if line["event"] == "input_failed"] == ["of a secret event", "'of a timer'"]


async def test_the_raw_log_cannot_be_written(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """That ends the agent, from whichever input it comes."""

    async def disk_gone() -> None:
        async with opened(life, monkeypatch) as them:
            them.hostile[0].ends.set_exception(OSError(errno.EIO, "disk gone"))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raising:
        await disk_gone()
    assert raising.group_contains(OSError, match="disk gone")


async def test_a_fault_when_it_is_opened(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other opens, and the faulty one is tried again."""
    with capture_logs() as logs:
        async with opened(life, monkeypatch, hostile=ValueError("of an event")) as them:
            state = them.state()
            assert state["state"] == "failing"
            assert state["reason"].startswith("a fault of the agent: ValueError at vedette.runtime.options.inputs:")
            assert them.state("quiet")["state"] == "works"
            await again(them, FIRST)
            forward(asyncio.get_running_loop(), LONGEST)
            assert them.state()["state"] == "works"
    assert [line["text"] for line in logs if line["event"] == "input_failed"] == ["of an event"]


async def test_a_fault_at_the_stop(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps nothing from its end, and nothing is opened again."""
    async with opened(life, monkeypatch) as them:
        them.hostile[0].fault_at_stop = ValueError("late")
    assert len(them.hostile) == 1


async def test_a_reload(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is changed, or gone, while it waits to be tried again is not opened as it was; its fault is over."""
    async with opened(life, monkeypatch) as them:
        await raised(them, ValueError("x"))
        changed = FileInput("hostile", paths=("/none/c",))
        assert await them.inputs.adopt((HOSTILE, QUIET), (changed, QUIET)) == ((changed, QUIET), [])
        assert them.state()["state"] == "works"
        them.hostile[-1].fault_at_stop = ValueError("late")
        assert await them.inputs.adopt((changed, QUIET), (QUIET,)) == ((QUIET,), [])
        forward(asyncio.get_running_loop(), LONGEST)
        await turns()
        assert (len(them.hostile), len(them.inputs)) == (2, 1)
