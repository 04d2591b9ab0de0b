"""What the stages of one agent share: settings, raw log, store, outbox, counters, and what is known of all of them.

Made once, when raw log and store are open, and before the stages. All of it belongs to the event loop; what waits for
the disk runs in the one ``writer`` thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vedette.config.settings import Config
from vedette.delivery.queue import Outbox
from vedette.engine.match import Context
from vedette.model.counters import Counters
from vedette.rawlog.log import RawLog
from vedette.runtime.failures import QUARANTINED, DeadLetters, Failures
from vedette.runtime.progress import Progress
from vedette.runtime.restart import RestartPoint
from vedette.store.store import Store
from vedette.system.diskhealth import DiskHealth
from vedette.system.wallclock import WallClock


class RunContext:
    def __init__(
        self, config: Config, raw_log: RawLog, store: Store, counters: Counters, clock: WallClock,
        restart: RestartPoint, reported: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """``restart``: the one that ``raw_log`` asks. ``reported``: the counters that were reported last."""
        self.config = config
        """May be replaced by another; of the evaluation with the next ``Evaluator.switch``."""
        self.raw_log, self.store, self.counters, self.clock = raw_log, store, counters, clock
        self.restart = restart
        self.started_at = clock()
        self.rebuilt = store.rebuilt
        """How the store was last rebuilt: see ``rebuild.py``."""
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self.health = DiskHealth(clock)
        self.outbox = Outbox(store, self.writer, counters, self.health)
        self.progress = Progress(raw_log, counters, store.load(), restart.positions, reported)
        self.dead_letters = DeadLetters(config.agent.quarantine_dir, config.rules.quarantine_bytes)
        self.failures = Failures(counters, self.dead_letters, raw_log.log_id, store.get(QUARANTINED))
        self.input_contexts: dict[str, Context] = {}
        """What each input's settings say of its events; those of a closed input stay: its events may still wait."""

    def close(self) -> None:
        """Wait for the writer and close the raw log."""
        self.writer.shutdown(wait=True)
        self.raw_log.close()
