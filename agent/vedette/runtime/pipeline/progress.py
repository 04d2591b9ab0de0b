"""How far the raw log is evaluated and committed, and what lies behind: events and files per input.

``evaluated`` is where the evaluator goes on, ``committed`` where the next start would. What is stored and not evaluated
is ``backlog``, counted up by ``ingest.py`` and down by ``evaluator.py``, never worked out from offsets: so the account
(``account.py``) can tell when one of them miscounts.

At a start it is made of what the store has: counters as of its cursor, then what lies behind the cursor in the log;
and of the counters that were reported after that (``lives.py``). Where the end of the log is lost, files and the
journal are read again from where it ends now (``_read_again``): nothing of theirs is lost then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vedette.inputs.settings import FileInput, InputSettings, JournalInput
from vedette.model.counters import Counters
from vedette.model.event import FilePosition
from vedette.rawlog.replay import Replay
from vedette.store.store import Saved

SETS = "sets"
"""In the counters of a commit: the rows of the rule sets in strict isolation (``strict/account.py``)."""


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
    ) -> None:  # fmt: skip
        """Restores ``counters`` and fills ``positions``; ``reported``: the snapshot that was reported last; ``inputs``:
        those that go on from ``positions``."""
        self._log, self._counters = log, counters
        self.backlog: defaultdict[str, int] = defaultdict(int)
        """Events stored and not yet evaluated, per input."""
        self.waiting_since = 0
        """``received_at`` of the oldest frame that is not evaluated to its end; 0: there is none."""
        self.positions = positions
        """Where every tailed file ends in the raw log, committed or not: what a tail goes on from."""
        self.inherited: list[str] = []
        """What did not add up in the account of the life before."""
        positions.update((position.file, position) for position in saved.positions)
        self.evaluated = self.committed = self._recover(saved, reported, inputs)

    def _recover(self, saved: Saved, reported: Mapping[str, Any] | None, inputs: Sequence[InputSettings]) -> int:
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
            self.waiting_since = self.waiting_since or header.received_at
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

    def lag(self, now: int) -> float:
        """Seconds for which the oldest event that is not evaluated has been waiting, at ``now`` (UTC microseconds)."""
        return 0.0 if self.caught_up or not self.waiting_since else max(0.0, (now - self.waiting_since) / 1e6)
