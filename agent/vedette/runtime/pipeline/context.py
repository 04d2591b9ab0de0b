"""What the stages of one agent share: settings, raw log, store, outbox, counters, and what is known of all of them.

Made once, when raw log and store are open, and before the stages. All of it belongs to the event loop; what waits for
the disk runs in the one ``writer`` thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from vedette.config.settings import Config
from vedette.delivery.queue import Outbox
from vedette.engine.match import Context
from vedette.model.counters import Counters
from vedette.rawlog.checkpoint import RestartPoint
from vedette.rawlog.log import RawLog
from vedette.rawlog.replay import Replay
from vedette.runtime.pipeline.failures import QUARANTINED, DeadLetters, Failures
from vedette.runtime.pipeline.progress import SETS, Progress
from vedette.store.store import Store
from vedette.system.diskhealth import DiskHealth
from vedette.system.wallclock import WallClock

if TYPE_CHECKING:
    from vedette.delivery.rows import RowQueues
    from vedette.runtime.strict.account import Accounts


class EvaluationContext:
    """What evaluation needs, in the agent and in the process of a strict rule set (``strict/``)."""

    def __init__(
        self, config: Config, raw_log: Replay, counters: Counters, clock: WallClock, restart: RestartPoint,
        progress: Progress, failures: Failures,
    ) -> None:  # fmt: skip
        self.config = config
        """May be replaced by another; of the evaluation with the next ``Evaluator.switch``."""
        self.raw_log, self.counters, self.clock = raw_log, counters, clock
        self.restart, self.progress, self.failures = restart, progress, failures
        self.health = DiskHealth(clock)
        self.input_contexts: dict[str, Context] = {}
        """What each input's settings say of its events; those of a closed input stay: its events may still wait."""
        self.rows: RowQueues | None = None
        """Rows for sinks; None: nothing has asked for them yet (``rows_of``)."""


class RunContext(EvaluationContext):
    raw_log: RawLog

    def __init__(
        self, config: Config, raw_log: RawLog, store: Store, counters: Counters, clock: WallClock,
        restart: RestartPoint, reported: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """``restart``: the one that ``raw_log`` asks. ``reported``: the counters that were reported last."""
        saved = store.load()
        self.dead_letters = DeadLetters(config.agent.quarantine_dir)
        progress = Progress(raw_log, counters, saved, restart.positions, reported, config.input, clock)
        failures = Failures(counters, self.dead_letters, raw_log.log_id, store.get(QUARANTINED))
        super().__init__(config, raw_log, counters, clock, restart, progress, failures)
        self.store = store
        self.started_at = clock()
        self.rebuilt = store.rebuilt
        """How the store was last rebuilt: see ``rebuild.py``."""
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self.outbox = Outbox(store, self.writer, counters, self.health)
        self.accounts: Accounts | None = None
        """Of the rule sets in strict isolation; None: there was none yet."""
        if rows := (saved.counters or {}).get(SETS):
            self.isolate(rows)

    def isolate(self, rows: Mapping[str, Any] | None = None) -> Accounts:
        """Return the accounts of the rule sets in strict isolation; ``rows``: as they were saved."""
        if self.accounts is None:
            from vedette.runtime.strict.account import Accounts

            self.accounts = Accounts(self.raw_log, rows or {}, self.config.input, self.clock)
        return self.accounts

    def close(self) -> None:
        """Wait for the writer and close the raw log."""
        self.writer.shutdown(wait=True)
        self.raw_log.close()
