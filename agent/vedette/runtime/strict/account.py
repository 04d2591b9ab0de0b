"""What each rule set in strict isolation has of the raw log: its cursor, its counters, what is kept for it.

Per set and input ``stored = judged + backlog + lost``: stored and backlog are counted when the raw log takes an event,
judged and lost when a commit has moved the set's cursor past it. The rows (``Accounts.rows``) are saved with the
counters of the commit, so that they are in the raw log's checkpoints as well. A row is ``[log_id, cursor, counters,
rows_wait]``.

Raw log is kept for a set within its ``max_backlog`` only. Where the log's own budget needs the room and a set is
further behind than that, or the log is full, the set's cursor moves past the oldest segment (``release``), what lay
there is lost to this set as OVERRUN, and its process begins again there: ``generation`` says that it must.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import structlog

from vedette.inputs.settings import InputSettings
from vedette.model.counters import Counters, Log, Lost
from vedette.model.event import Cursor
from vedette.rawlog.log import RawLog
from vedette.runtime.pipeline.progress import Progress
from vedette.store.store import Saved
from vedette.system.wallclock import utc_now

log = structlog.get_logger()


class Sent(NamedTuple):
    """What the process of the set ``account`` evaluated up to ``offset``, to be committed."""

    account: Account
    offset: int
    counters: Mapping[str, Any]
    alerts: list[bytes]
    state: bytes
    begins: bool
    """The state begins to be written again with this part."""
    whole: bool
    """Whether what was written before it began has been written again by now."""
    quarantined: Any
    """The rules in quarantine; None: as before."""
    rows_wait: bool
    """Rows of its statements wait in its state to be alerts."""
    done: asyncio.Future[None]
    """Done when it is committed."""


class Account:
    """See the module's text. Belongs to the event loop."""

    def __init__(
        self, name: str, raw_log: RawLog, saved: Saved, max_backlog: int, inputs: Sequence[InputSettings],
        clock: Callable[[], int],
    ) -> None:  # fmt: skip
        self.name, self.max_backlog, self._log = name, max_backlog, raw_log
        self.counters = Counters()
        self.progress = Progress(raw_log, self.counters, saved, {}, inputs=inputs, clock=clock)
        self.generation = 0
        """Rises when the cursor moves otherwise than by a commit."""
        self.rows_wait = False
        """Whether rows of its statements wait in its state to be alerts, as of its last commit."""
        self.committing = False
        """What its process sent is to be committed, or being so."""
        self.arrived = asyncio.Event()
        """Set when the raw log has taken something."""

    @property
    def committed(self) -> int:
        return self.progress.committed

    def stored(self, input: str, events: int, offset: int) -> None:
        self.counters.received[input] += events
        self.counters.stored[input] += events
        self.progress.stored(input, events, offset)
        self.arrived.set()

    def row(self, sent: Sent | None = None) -> list[Any]:
        """What is saved; with ``sent``: as it is when that is committed."""
        counters = self.counters.snapshot()
        if sent is None:
            return [self._log.log_id, self.committed, counters, self.rows_wait]
        for name, counts in sent.counters["inputs"].items():
            if (own := counters["inputs"].get(name)) is not None:
                own["judged"], own["lost"] = counts["judged"], {**own["lost"], **counts["lost"]}
            else:
                counters["inputs"][name] = counts
        counters["totals"] = dict(sent.counters["totals"])
        return [self._log.log_id, sent.offset, counters, sent.rows_wait]

    def take(self, sent: Sent) -> None:
        """``sent`` is committed."""
        counters, backlog, damaged = self.counters, self.progress.backlog, False
        for name, counts in sent.counters["inputs"].items():
            backlog[name] -= counts["judged"] - counters.judged[name]
            counters.judged[name] = counts["judged"]
            for reason, events in counts["lost"].items():
                damaged = damaged or counters.lost[name, reason] != events
                counters.lost[name, reason] = events
        counters.totals.update(sent.counters["totals"])
        self.progress.evaluated = self.progress.committed = sent.offset
        self.rows_wait = sent.rows_wait
        if damaged:
            backlog.clear()
            backlog.update(self._log.backlog(sent.offset))

    async def lose(self, offset: int) -> None:
        """Go over what lies before ``offset``, the beginning of a frame. Raises OSError."""
        self.generation += 1
        begin = self.committed

        def count() -> Counter[str]:
            events = Counter[str]()
            for header in self._log.headers(begin):
                if header.offset >= offset:
                    break
                events[header.input] += header.events
            return events

        lost = await asyncio.to_thread(count)
        for name, events in lost.items():
            self.counters.lost[name, Lost.OVERRUN] += events
            self.progress.backlog[name] -= events
        self.progress.evaluated = self.progress.committed = offset
        log.error(
            Log.BACKLOG_OVERRUN, ruleset=self.name, events=lost.total(), offset=offset,
            action="the raw log needed the room; the other rule sets have these events",
        )  # fmt: skip

    def status(self) -> dict[str, Any]:
        """JSON-able, by input."""
        return {
            name: {"stored": row["stored"], "judged": row["judged"], "lost": row["lost"],
                   "backlog": self.progress.backlog.get(name, 0)}
            for name, row in self.counters.snapshot()["inputs"].items()
        }  # fmt: skip

    def broken(self) -> list[str]:
        """The equations that do not hold now."""
        return [f"rule set {self.name}: {line}" for line in self.counters.identity(self.progress.backlog)]


class Accounts:
    """Of all sets in strict isolation, by name."""

    def __init__(
        self, raw_log: RawLog, rows: Mapping[str, Any], inputs: Sequence[InputSettings] = (),
        clock: Callable[[], int] = utc_now,
    ) -> None:  # fmt: skip
        """``rows``: of the last commit, by set; ``inputs``, ``clock``: of the agent."""
        self._log, self._inputs, self._clock = raw_log, inputs, clock
        self._saved: dict[str, Any] = dict(rows)
        self.open: dict[str, Account] = {}

    @property
    def left(self) -> list[str]:
        """Sets with a row of an earlier life that nobody has begun with."""
        return [*self._saved]

    def forget(self, name: str) -> None:
        self._saved.pop(name, None)
        self.open.pop(name, None)

    def begin(self, name: str, offset: int, max_backlog: int) -> Account:
        """The account of a set: as it was saved, or a new one from raw ``offset`` on."""
        row = self._saved.pop(name, None)
        cursor, counters = (Cursor(*row[:2]), row[2]) if row else (Cursor(self._log.log_id, offset), None)
        inputs = self._inputs if cursor.log_id == self._log.log_id else ()  # of a log that is gone nothing comes again
        saved = Saved(cursor, counters, [])
        account = self.open[name] = Account(name, self._log, saved, max_backlog, inputs, self._clock)
        account.rows_wait = bool(row) and row[3]
        return account

    @property
    def rows_wait(self) -> bool:
        """Whether in the state of some set rows of statements wait to be alerts."""
        waiting = [account.rows_wait for account in self.open.values()]
        return any(waiting) or any(row[3] for row in self._saved.values() if row)

    def stored(self, input: str, events: int, offset: int) -> None:
        """The raw log has taken so many events of an input, at raw ``offset``."""
        for account in self.open.values():
            account.stored(input, events, offset)

    def rows(self, sent: list[Sent]) -> dict[str, Any]:
        """What is saved with a commit of ``sent``; of sets that have not begun yet as it was."""
        by_name = {account.account.name: account for account in sent}
        return {**self._saved, **{name: account.row(by_name.get(name)) for name, account in self.open.items()}}

    async def release(self, evaluated: int, now: int, *, force: bool = False) -> int:
        """Raw log below this offset is needed by none, given that the others have ``evaluated``. ``force``: room is
        needed now. Raises OSError."""
        least = evaluated
        for account in [*self.open.values()]:
            if account.committed < evaluated and not account.committing:
                wanted = self._log.wanted(now, make_room=force)
                behind = force or self._log.full() or self._log.end - account.committed > account.max_backlog
                if wanted is not None and account.committed < wanted <= evaluated and behind:
                    await account.lose(wanted)
            least = min(least, account.committed)
        return least
