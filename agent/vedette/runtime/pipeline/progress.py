"""How far the raw log is evaluated and committed, and what lies behind: events and files per input.

``evaluated`` is where the evaluator goes on, ``committed`` where the next start would. What is stored and not evaluated
is ``backlog``, counted up by ``ingest.py`` and down by ``evaluator.py``, never worked out from offsets: so the account
(``account.py``) can tell when one of them miscounts. How long it has been waiting, ``Lag`` knows; what waited when this
life began is as old as the host's clock said then.

At a start it is made of what the store has: counters as of its cursor, then what lies behind the cursor in the log;
and of the counters that were reported after that (``lives.py``). Where the end of the log is lost, files and the
journal are read again from where it ends now (``_read_again``): nothing of theirs is lost then.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vedette.inputs.settings import FileInput, InputSettings, JournalInput
from vedette.model.counters import Counters
from vedette.model.event import FilePosition
from vedette.rawlog.replay import Replay
from vedette.store.store import Saved
from vedette.system.wallclock import utc_now

SETS = "sets"
"""In the counters of a commit: the rows of the rule sets in strict isolation (``strict/account.py``)."""
STEP = 0.1
"""Seconds."""
SHARE = 0.01


class Lag:
    """How long the oldest event that is not evaluated has been waiting, by a clock that nobody sets.

    Marks say from which raw offset on events wait since when. They are as far apart as STEP, or as SHARE of how long
    the oldest has waited: an age is too great by no more, and a thousand are enough for days. Of the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._marks = deque[tuple[int, float]]()
        """Raw offsets and times, both rising."""

    def stored(self, offset: int, evaluated: int, age: float = 0.0) -> None:
        """Note that what is at raw ``offset`` has waited for ``age`` seconds, and what was before it no shorter; what
        is before ``evaluated`` waits no more."""
        since, marks = self._clock() - age, self._marks
        self._pass(evaluated)
        if offset <= evaluated:
            marks.clear()
        while marks and marks[-1][1] > since:
            offset, _ = marks.pop()
        if not marks or since - marks[-1][1] >= max(STEP, SHARE * (since - marks[0][1])):
            marks.append((offset, since))

    def seconds(self, evaluated: int) -> float:
        """Return for how long the event at raw offset ``evaluated``, which is stored, has been waiting."""
        self._pass(evaluated)
        return self._clock() - self._marks[0][1] if self._marks else 0.0

    def _pass(self, evaluated: int) -> None:
        while len(self._marks) > 1 and self._marks[1][0] <= evaluated:
            self._marks.popleft()


def _read_again(settings: InputSettings, positions: Iterable[FilePosition]) -> bool:
    """Whether an input goes on where its events end in the raw log."""
    if isinstance(settings, FileInput):
        from vedette.inputs.files import belongs  # with the first input of files

        return settings.from_start or any(belongs(position.path, settings.paths) for position in positions)
    if isinstance(settings, JournalInput):
        begin = f"journal:{settings.name}:"
        return settings.from_start or any(position.path.startswith(begin) for position in positions)
    return False


class Progress:
    """See the module's text. Belongs to the event loop."""

    def __init__(
        self, log: Replay, counters: Counters, saved: Saved, positions: dict[tuple[str, int], FilePosition],
        reported: Mapping[str, Any] | None = None, inputs: Sequence[InputSettings] = (),
        clock: Callable[[], int] = utc_now,
    ) -> None:  # fmt: skip
        """Restores ``counters`` and fills ``positions``; ``reported``: the snapshot that was reported last; ``inputs``:
        those that go on from ``positions``; ``clock``: UTC microseconds."""
        self._log, self._counters = log, counters
        self.backlog: defaultdict[str, int] = defaultdict(int)
        """Events stored and not yet evaluated, per input."""
        self.waiting = Lag()
        self.positions = positions
        """Where every tailed file ends in the raw log, committed or not: what a tail goes on from."""
        self.inherited: list[str] = []
        """What did not add up in the account of the life before."""
        positions.update((position.file, position) for position in saved.positions)
        self.evaluated = self.committed = self._recover(saved, reported, inputs, clock())

    def _recover(
        self, saved: Saved, reported: Mapping[str, Any] | None, inputs: Sequence[InputSettings], now: int
    ) -> int:
        """Restore the counters as of the cursor, then count what lies behind it in the log; returns where to go on.

        A cursor of another log (a new one was begun because nothing of it was left) goes on from this log's start.
        """
        if saved.counters is not None:
            self._counters.restore(saved.counters)
            self.inherited = self._counters.inherited(saved.counters)
        if reported is not None:
            self._counters.raise_to(reported)
        cursor = saved.cursor
        same = cursor is not None and cursor.log_id == self._log.log_id
        offset = max(cursor.offset, self._log.start) if cursor is not None and same else self._log.start
        behind = []
        for header in self._log.headers(offset):
            self.backlog[header.input] += header.events
            if header.received_at:  # 0: damage hides it
                self.waiting.stored(header.offset, offset, max(0, now - header.received_at) / 1e6)
            behind.append((header.input, header.events, header.end - header.offset, header.cut))
            if header.file is not None:
                self.positions[header.file.file] = header.file
        # Where retention has passed a rebuilt store's cursor, nobody else knows how many events it took.
        covered = cursor is not None and same and cursor.offset >= self._log.start
        if covered or not self._log.start:
            again = {settings.name for settings in inputs if _read_again(settings, self.positions.values())}
            self._counters.settle(behind, again=again)
        else:
            self._counters.settle(behind, stored=self._log.events)
        return offset

    def stored(self, input: str, events: int, offset: int) -> None:
        """So many events of an input are in the raw log, at ``offset``, and wait."""
        self.backlog[input] += events
        self.waiting.stored(offset, self.evaluated)

    def advance(self, input: str, events: int, offset: int) -> None:
        """So many events of an input are evaluated; all before ``offset`` is."""
        self._counters.judged[input] += events
        self.backlog[input] -= events
        self.evaluated = offset

    def skip(self, offset: int) -> None:
        """Go over a damaged stretch of the log, whose events the log has counted as lost. Raises OSError."""
        if offset > self.evaluated:
            behind = self._log.backlog(offset)
            self.evaluated = offset
            self.backlog.clear()
            self.backlog.update(behind)

    @property
    def caught_up(self) -> bool:
        return self.evaluated >= self._log.end

    @property
    def lag(self) -> float:
        """Seconds for which the oldest event that is not evaluated has been waiting."""
        return 0.0 if self.caught_up else self.waiting.seconds(self.evaluated)
