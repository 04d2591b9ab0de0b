"""Sink plugins: their answers are taken as they are, and their faults leave the alerts to be tried again."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from vedette.sinks.base import Answer, Outgoing, Verdict
from vedette.sinks.plugin import QUARANTINE_SECONDS, PluginReceiver, PluginSink
from vedette.system import plugins
from vedette.system.plugins import FAULTS, Entry, settings_of

ALERTS = [Outgoing(i, f"a{i}", {"alert_id": f"a{i}", "tags": ["t"]}) for i in (1, 2)]


class Plugin:
    send: ClassVar[Any]
    opened: ClassVar[int] = 0
    closed: ClassVar[list[str]] = []

    def __init__(self, options: dict[str, Any]) -> None:
        type(self).opened += 1

    def close(self) -> None:
        self.closed.append(threading.current_thread().name)


@asynccontextmanager
async def sink(send: Any, timeout: float = 5.0) -> AsyncIterator[tuple[PluginReceiver, plugins.Health]]:
    Plugin.send, Plugin.opened, Plugin.closed = staticmethod(send), 0, []
    entry = Entry("sinks", "acme", "1", "one", f"{__name__}:Plugin")
    receiver = PluginReceiver(settings_of(PluginSink, entry)("x", timeout=timeout), entry)
    yield receiver, plugins._health["sinks", "acme:one", "sink x"]
    await receiver.close()


async def test_taken() -> None:
    """None is yes for all; the plugin has rows of its own, in one thread."""
    seen: list[Any] = []

    def send(alerts: Any) -> None:
        seen.extend(alerts)
        alerts[0]["tags"].append("its own")
        seen.append(threading.current_thread().name)

    async with sink(send) as (receiver, health):
        assert await receiver.deliver(ALERTS) == [Answer(Verdict.TAKEN)] * 2
        assert health.error is None
    assert [one["alert_id"] for one in seen[:2]] == ["a1", "a2"]
    assert ALERTS[0].row["tags"] == ["t"]
    assert (seen[2], Plugin.closed, Plugin.opened) == ("plugin-x", ["plugin-x"], 1)


async def test_answers() -> None:
    """One for each alert, as it is."""
    given = [Answer(Verdict.TAKEN, "x" * 1000), Answer(Verdict.REFUSED, "no such ticket")]
    async with sink(lambda alerts: given) as (receiver, _):
        first, second = await receiver.deliver(ALERTS)
    assert (first.verdict, len(first.text), second) == (Verdict.TAKEN, 500, given[1])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("yes", "TypeError: send returned 'yes': expects None, or 2 answers"),
        ([Answer(Verdict.TAKEN)], "TypeError: send returned [Answer("),
        ([True, True], "TypeError: send returned True as an answer: expects Answer(Verdict, text, seconds)"),
        ([Answer(Verdict.LATER, "", -1)] * 2, "TypeError: send asked to wait -1: expects 0 to 86400 seconds"),
        ([Answer(Verdict.LATER, "", float("nan"))] * 2, "TypeError: send asked to wait nan"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (StopIteration(), "RuntimeError: StopIteration()"),
        (SystemExit(3), "RuntimeError: SystemExit(3)"),
    ],
)
async def test_a_fault(answer: Any, why: str) -> None:
    """What it raises or answers wrongly: all alerts later, and the plugin is made again."""

    def send(alerts: Any) -> Any:
        if Plugin.opened > 1:
            return None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async with sink(send) as (receiver, health):
        first, second = await receiver.deliver(ALERTS)
        assert first == second
        assert (first.verdict, first.wait) == (Verdict.LATER, 0.0)
        assert first.text.startswith(why)
        assert health.row == 1
        assert await receiver.deliver(ALERTS) == [Answer(Verdict.TAKEN)] * 2
        assert (health.row, Plugin.opened) == (0, 2)


async def test_a_call_that_hangs() -> None:
    """It is not waited for any longer, and nothing is asked before it returns."""
    go, calls = threading.Event(), list[int]()

    def send(alerts: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            go.wait()

    async with sink(send, timeout=0.05) as (receiver, health):
        assert (await receiver.deliver(ALERTS))[0].text == "TimeoutError: no answer within 0.05 s"
        assert (await receiver.deliver(ALERTS))[0].text == "TimeoutError: an earlier call has not returned yet"
        assert (len(calls), health.row) == (1, 2)
        under_way = receiver._under_way
        assert under_way is not None
        go.set()
        await under_way
        assert await receiver.deliver(ALERTS) == [Answer(Verdict.TAKEN)] * 2


async def test_quarantine() -> None:
    """After some faults in a row it is asked seldom, and an answer ends that."""
    good = threading.Event()

    def send(alerts: Any) -> None:
        if not good.is_set():
            raise OSError("away")

    async with sink(send) as (receiver, health):
        waits = [(await receiver.deliver(ALERTS))[0].wait for _ in range(FAULTS)]
        assert (waits, health.quarantined) == ([0.0] * (FAULTS - 1) + [QUARANTINE_SECONDS], True)
        good.set()
        assert (await receiver.deliver(ALERTS))[0].verdict is Verdict.TAKEN
        assert not health.quarantined
