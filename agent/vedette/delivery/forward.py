"""One sink at work: alerts from outbox and ring, or rows of statements (``rows.py``), to its receiver, at its own pace.

Delivery: at least once. The sink's place moves behind an alert only when the receiver has taken it, when the filter
does not want it, or when it is a dead letter. The place is on disk within a second (``runtime/options/sinks.py``), so
after a kill some alerts come twice, under the same ``alert_id``. Alerts that are tried again come behind newer ones.

* A receiver that takes nothing is away: it is asked again after 1 s, then twice as long each time, up to 30 s. That is
  logged when it begins, and when it ends. A longer ``Retry-After`` holds, for all alerts.
* An alert that fails while others are taken waits by itself. After ``MAX_TRIES`` such failures it is a dead letter: the
  fault is the alert's, and not the receiver's.
* What the receiver refuses for good is a dead letter at once.
* When ``batch`` alerts wait so, one new alert is tried with them each time: that it is taken shows that the others are
  at fault. Of new ones that fail, too, PROBES wait at most.

**Dead letters** are in ``DATA_DIR/sinks/NAME.ndjson``, rotated at ``DEAD_BYTES``, one older file: the alert's row and
``refused``: the ``reason``, and when it was (UTC microseconds, ``at``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
import structlog

from vedette.delivery.envelope import decode_row
from vedette.model.counters import Log
from vedette.sinks.base import Answer, Outgoing, Receiver, SinkSettings, Verdict
from vedette.sinks.formats import BEGINS
from vedette.store.sinks import Place
from vedette.system.ending import to_its_end
from vedette.system.rotated import Rotated
from vedette.system.trouble import BACKOFF, Backoff

log = structlog.get_logger()

READ = 50
"""Alerts that are read and filtered in one step of the event loop."""
MAX_TRIES = 10
PROBES = 100
"""Alerts beyond a batch that may wait: each was read to find out whether the receiver takes anything."""
DEAD_BYTES = 8 << 20
IDLE_SECONDS = 60.0


@dataclass(slots=True)
class _Failed:
    """An alert to be tried again, not before ``due`` (of the loop's time)."""

    alert: Outgoing
    backoff: Backoff
    tries: int = 0
    due: float = 0.0


class Queue(Protocol):
    """Where a sink's alerts, or rows, come from, by numbers that ascend."""

    @property
    def newest_seq(self) -> int: ...
    def kept(self, after_seq: int, limit: int, /) -> list[tuple[int, bytes]]: ...
    def watch(self, event: asyncio.Event) -> None: ...
    def unwatch(self, event: asyncio.Event) -> None: ...


class Forwarder:
    """See the module's text."""

    step, noun = READ, "alerts"
    dead: tuple[str, Sequence[bytes]] = (".ndjson", BEGINS)
    """How the file of dead letters is called behind the sink's name, and how its lines begin."""

    def __init__(
        self, settings: SinkSettings, receiver: Receiver, place: Place, queue: Queue, folder: Path,
        clock: Callable[[], int], *, backoff: tuple[float, float] = BACKOFF,
    ) -> None:  # fmt: skip
        """``folder``: of the dead letters; ``clock``: UTC microseconds."""
        self.settings, self.place = settings, place
        self._receiver, self._queue, self._clock = receiver, queue, clock
        self._dead = Rotated(folder / f"{settings.name}{self.dead[0]}", DEAD_BYTES, 1, self.dead[1])
        self._bounds, self._backoff = backoff, Backoff(backoff)
        self._looked = place.after
        """Every alert up to this seq is done, or in ``_left``."""
        self._left: dict[int, _Failed] = {}
        self._not_before = 0.0
        """When the receiver may be asked again (of the loop's time)."""
        self._wake = asyncio.Event()
        self._stopping = False
        self._error = ""
        self._since = 0
        self._retries = 0

    def state(self) -> dict[str, Any]:
        """JSON-able; ``waiting``: alerts that it is not done with, wanted or not."""
        place = self.place
        return {
            "name": self.settings.name,
            "type": self.settings.type,
            "to": self.settings.to,
            "waiting": max(0, self._queue.newest_seq - place.passed),
            "delivered": place.delivered,
            "refused": place.refused,
            "dropped": place.dropped,
            "retries": self._retries,
            "failing": bool(self._error),
            "error": self._error or None,
            "since": self._since or None,
        }

    async def run(self) -> None:
        """Until ``stop`` or cancelled. Raises OSError of the store."""
        self._queue.watch(self._wake)
        try:
            while True:
                self._wake.clear()
                last = self._stopping
                wait = await self._round()
                if self._stopping and (self._error or (last and wait)):
                    return
                if wait:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(wait):
                            await self._wake.wait()
        finally:
            self._queue.unwatch(self._wake)

    async def stop(self, deadline: float, task: asyncio.Task[None]) -> None:
        """Deliver what there is now, at most ``deadline`` seconds, but not to a receiver that is away; ``task``, which
        is ``run``, has then ended."""
        self._stopping = True
        self._wake.set()
        await asyncio.wait({task}, timeout=0.0 if self._error else deadline)
        task.cancel()
        await asyncio.wait({task})
        await self._receiver.close()

    async def _round(self) -> float:
        """Deliver what is due; seconds until there is something to do, unless a new alert comes before."""
        now = asyncio.get_running_loop().time()
        if now < self._not_before:
            return self._not_before - now
        due = [failed for failed in self._left.values() if failed.due <= now]
        new, more = self._read(self._room())
        alerts = [failed.alert for failed in due] + new
        if not alerts:
            self._advance()
            if more:
                await asyncio.sleep(0)
                return 0.0
            return max(0.001, min((failed.due - now for failed in self._left.values()), default=IDLE_SECONDS))
        self._left.update((alert.seq, _Failed(alert, Backoff(self._bounds))) for alert in new)
        try:
            answers = await self._receiver.deliver(alerts)
        except Exception as error:  # a defect of one type of sink: the agent and the other sinks go on
            answers = [Answer(Verdict.LATER, f"{type(error).__name__}: {error}; please report it")] * len(alerts)
        await self._settle(list(zip(alerts, answers, strict=True)))
        return 0.0

    def _room(self) -> int:
        """How many new ones may be tried now."""
        room = self._receiver.batch - len(self._left)
        return 1 if -PROBES < room <= 0 else room

    def _read(self, most: int) -> tuple[list[Outgoing], bool]:
        """Up to so many new alerts that the filter wants, and whether there may be more."""
        if most <= 0:
            return [], False
        alerts: list[Outgoing] = []
        entries = self._queue.kept(self._looked, min(self.step, most))
        for seq, data in entries:
            if (alert := self._outgoing(seq, data)) is not None:
                alerts.append(alert)
            self._looked = seq
        return alerts, bool(entries)

    def _outgoing(self, seq: int, data: bytes) -> Outgoing | None:
        """None for one that the filter does not want, or that cannot be read."""
        try:
            row = decode_row(data)
        except ValueError as error:
            log.error(Log.PAYLOAD_UNDECODABLE, seq=seq, sink=self.settings.name, reason=str(error))
            self.place.refused += 1
            return None
        return Outgoing(seq, row["alert_id"], row) if self.settings.wants(row) else None

    async def _settle(self, answered: list[tuple[Outgoing, Answer]]) -> None:
        """Act on the answers."""
        now = asyncio.get_running_loop().time()
        verdicts = {answer.verdict for _, answer in answered}
        alive = bool(verdicts & {Verdict.TAKEN, Verdict.REFUSED})
        pause = max(answer.wait for _, answer in answered)
        dead: list[tuple[Outgoing, str]] = []
        for alert, answer in answered:
            failed = self._left[alert.seq]
            match answer.verdict:
                case Verdict.TAKEN:
                    self.place.delivered += 1
                    del self._left[alert.seq]
                case Verdict.REFUSED:
                    dead.append((alert, answer.text))
                case Verdict.LATER:
                    self._retries += 1
                    if alive and not pause:
                        failed.tries += 1
                        failed.due = now + failed.backoff.failed()
                        if failed.tries >= MAX_TRIES:
                            dead.append((alert, f"failed {MAX_TRIES} times while others were taken: {answer.text}"))
                case Verdict.UNTRIED:
                    pass
        if dead:
            await self._keep_dead(dead)
        self._advance()
        if alive:
            self._recovered()
        else:
            self._failing(next((answer.text for _, answer in answered if answer.verdict is Verdict.LATER), ""))
            pause = max(self._backoff.failed(), pause)
        self._not_before = now + pause

    async def _keep_dead(self, dead: list[tuple[Outgoing, str]]) -> None:
        """Keep what is refused. What the disk does not take is logged."""
        now = self._clock()
        lines = b"".join(self._dead_line(alert, {"reason": reason, "at": now}) + b"\n" for alert, reason in dead)
        writing = asyncio.create_task(asyncio.to_thread(self._write, lines))
        try:
            await to_its_end(writing)
        except OSError as error:
            log.error(Log.DEAD_LETTER_LOST, sink=self.settings.name, file=str(self._dead.path), reason=str(error))
        for alert, _ in dead:
            self.place.refused += 1
            del self._left[alert.seq]
        self._say_dead(dead)

    def _dead_line(self, alert: Outgoing, refused: Mapping[str, Any]) -> bytes:
        return orjson.dumps({**alert.row, "refused": refused})

    def _say_dead(self, dead: list[tuple[Outgoing, str]]) -> None:
        for alert, reason in dead:
            log.error(
                Log.SINK_REFUSED, sink=self.settings.name, alert=alert.id, reason=reason,
                action=f"kept in {self._dead.path}, not sent again",
            )  # fmt: skip

    def _write(self, lines: bytes) -> None:
        self._dead.path.parent.mkdir(mode=0o750, exist_ok=True)
        self._dead.append(lines)

    def _advance(self) -> None:
        self.place.after = max(self.place.after, min(self._left) - 1 if self._left else self._looked)

    def _failing(self, reason: str) -> None:
        if not self._error:
            self._since = self._clock()
            action = f"{self.noun} wait, within the store's bounds; retrying"
            log.error(Log.SINK_FAILING, sink=self.settings.name, to=self.settings.to, reason=reason, action=action)
        self._error = reason or self._error or "no answer"

    def _recovered(self) -> None:
        if self._error:
            seconds = round((self._clock() - self._since) / 1e6, 1)
            log.warning(Log.SINK_RECOVERED, sink=self.settings.name, to=self.settings.to, seconds=seconds)
        self._error, self._since = "", 0
        self._backoff.reset()
