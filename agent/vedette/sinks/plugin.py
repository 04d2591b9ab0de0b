"""``[[sink]]`` of a plugin's type: a thread of its own in which the plugin is called, with alerts or rows.

Delivery: TAKEN when ``send`` returned None, else what it answered. What it raises, answers wrongly, or does not answer
within ``timeout`` is a fault: its alerts are tried again. A call that hangs is left behind; while it hangs, nothing
else is asked of the plugin. After ``FAULTS`` in a row the plugin is in quarantine: it is made again and asked
every ``QUARANTINE_SECONDS``. Alerts wait meanwhile, as for any receiver that is away. One at which the agent has died
again and again is not asked (``runtime/agent/deaths.py``).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog

from vedette.model.counters import Log
from vedette.model.plugins import Sink
from vedette.model.settings import Options, Seconds
from vedette.sinks.base import MAX_TEXT, Answer, Outgoing, Receiver, SinkSettings, Verdict
from vedette.system.plugins import Entry, OfPlugin, health

log = structlog.get_logger()

BATCH = 50
QUARANTINE_SECONDS = 300.0
CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PluginSink(OfPlugin, SinkSettings):
    """A sink of a plugin; ``options`` are its own settings."""

    timeout: Seconds = 10.0
    options: Options = field(default_factory=dict)

    @property
    def to(self) -> str:
        return f"plugin {self.entry.label}"

    def open(self, version: str) -> Receiver:
        return PluginReceiver(self, self.entry)


_Job = tuple[Callable[[], Any], asyncio.Future[Any]]


class PluginReceiver:
    """A plugin, and the thread in which it is called."""

    batch = BATCH

    def __init__(self, settings: PluginSink, entry: Entry) -> None:
        self._settings = settings
        self._entry = entry
        self._health = health(entry, f"sink {settings.name}")
        self._jobs: queue.SimpleQueue[_Job | None] | None = None
        """The calls that the thread is to make; None: there is no thread."""
        self._under_way: asyncio.Future[Any] | None = None
        self._sink: Sink | None = None
        if self._health.condemned:
            log.error(Log.PLUGIN_QUARANTINED, plugin=entry.label, sink=settings.name, reason=self._health.error,
                      action="not asked, its alerts wait: install another version, or release it with SIGHUP, and"
                      " start again")  # fmt: skip

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        if self._health.condemned:
            return [Answer(Verdict.LATER, self._health.error or "", QUARANTINE_SECONDS)] * len(alerts)
        rows = [_row(alert) if alert.line else deepcopy(dict(alert.row)) for alert in alerts]
        try:
            answers = _checked(await self._ask(lambda: self._sent(rows), self._settings.timeout), len(alerts))
        except Exception as error:  # of the plugin, whatever it is
            self._sink = None  # made again
            before = self._health.quarantined
            reason = self._health.fault(error)
            if self._health.quarantined and not before:
                log.error(Log.PLUGIN_QUARANTINED, plugin=self._entry.label, sink=self._settings.name, reason=reason,
                          action=f"asked again every {QUARANTINE_SECONDS:g} s; alerts wait")  # fmt: skip
            wait = QUARANTINE_SECONDS if self._health.quarantined else 0.0
            return [Answer(Verdict.LATER, reason, wait)] * len(alerts)
        self._health.well()
        return answers

    async def close(self) -> None:
        if (jobs := self._jobs) is not None:
            if self._sink is not None and (self._under_way is None or self._under_way.done()):
                with suppress(Exception):
                    await self._ask(self._sink.close, CLOSE_SECONDS)
            jobs.put(None)

    def _sent(self, rows: Sequence[dict[str, Any]]) -> Any:
        """In the plugin's thread."""
        with self._health.at_work():
            if self._sink is None:
                self._sink = self._entry.load()(self._settings.options)
            return self._sink.send(rows)

    async def _ask(self, call: Callable[[], Any], seconds: float) -> Any:
        """Call ``call`` in the plugin's thread. Raises what it raises, and TimeoutError."""
        if self._under_way is not None and not self._under_way.done():
            raise TimeoutError("an earlier call has not returned yet")
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            name = f"plugin-{self._settings.name}"[:15]
            threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True).start()
        answer = self._under_way = asyncio.get_running_loop().create_future()
        self._jobs.put((call, answer))
        done, _ = await asyncio.wait({answer}, timeout=seconds)
        if not done:
            raise TimeoutError(f"no answer within {seconds:g} s")
        return answer.result()


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    """The plugin's thread."""
    while (job := jobs.get()) is not None:
        call, answer = job
        try:
            result: Any = call()
            error: Exception | None = None
        except BaseException as raised:
            result = None
            error = raised if isinstance(raised, Exception) else RuntimeError(repr(raised))
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            answer.get_loop().call_soon_threadsafe(_settle, answer, result, error)


def _settle(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if error is None:
        answer.set_result(result)
    else:
        if isinstance(error, StopIteration):  # no future takes it
            error = RuntimeError(repr(error))
        answer.set_exception(error)
        answer.exception()  # of a call that nobody waits for any more


def _row(row: Outgoing) -> dict[str, Any]:
    return {"row_id": row.id, "row": orjson.loads(row.line)}


def _checked(answers: Any, count: int) -> list[Answer]:
    """Answers for ``count`` alerts. Raises TypeError for what are none."""
    if answers is None:
        return [Answer(Verdict.TAKEN)] * count
    if not isinstance(answers, list | tuple) or len(answers) != count:
        raise TypeError(f"send returned {answers!r:.80}: expects None, or {count} answers")
    for answer in answers:
        if (
            not isinstance(answer, Answer)
            or not isinstance(answer.verdict, Verdict)
            or not isinstance(answer.text, str)
        ):
            raise TypeError(f"send returned {answer!r:.80} as an answer: expects Answer(Verdict, text, seconds)")
        if not isinstance(answer.wait, int | float) or not 0 <= answer.wait <= 86400:
            raise TypeError(f"send asked to wait {answer.wait!r:.80}: expects 0 to 86400 seconds")
    return [answer._replace(text=answer.text[:MAX_TEXT]) for answer in answers]
