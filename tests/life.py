"""A pipeline over a real raw log and a real store, from its start to its end or to a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from typing import Any

from vedette import compile_rules
from vedette.config.settings import AgentSettings, RawLogSettings, StateSettings
from vedette.delivery import envelope
from vedette.delivery.queue import Outbox
from vedette.engine.match import Context, Engine
from vedette.model.counters import Counters
from vedette.model.event import Alert, Chunk, LogSource
from vedette.rawlog.log import RawLog
from vedette.runtime.pipeline import Pipeline
from vedette.store.store import Store

NOW = 1_795_228_874_000_000
"""2026-11-21T02:41:14Z"""
AGENT = AgentSettings(id="a1", site="s1", fleet="f1")
RULE = """
title: Marker {word}
id: 6a1f0000-0000-4000-8000-{number:012}
tags: [attack.t1110]
logsource: {{product: linux}}
detection:
    keywords: ['{word}']
    condition: keywords
level: low
"""


def engine(*words: str) -> Engine:
    """Rules that each find one word; the number in the id is the word's place."""
    return Engine(compile_rules(text="---".join(RULE.format(word=word, number=i) for i, word in enumerate(words))))


def lines(*events: bytes, name: str = "in", **fields: Any) -> Chunk:
    return Chunk(name, "syslog", NOW, b"".join(event + b"\n" for event in events), **fields)


class Life:
    """A pipeline in a folder, from start to end or to a crash; the folder is all that the next one gets."""

    def __init__(self, folder: Path, judge: Engine, **settings: Any) -> None:
        self.folder = folder
        self.counters = Counters()
        self.later = 7
        """Microseconds by which the clock is after NOW."""
        self.writer = ThreadPoolExecutor(1)
        self.store = Store.open(folder / "store")
        limits = {"max_bytes": 1 << 30, "segment_bytes": 64 << 20, **settings}
        self.log = RawLog.open(
            folder / "raw",
            RawLogSettings(max_bytes=limits["max_bytes"], segment_bytes=limits["segment_bytes"]),
            self.counters,
            committed=self.store.load().cursor,
            certain=bool(settings.pop("certain", True)),
        )
        self.outbox = Outbox(self.store, self.writer, self.counters)
        context = Context(UTC, LogSource("linux"), "web9")
        self.pipeline = Pipeline(
            AGENT, judge, {"in": context}, self.log, self.store, self.outbox, self.counters,
            self.writer, lambda: NOW + self.later, fsync_interval=0.02,
            outbox_bytes=limits.get("outbox_bytes", 1 << 28), state=StateSettings(), suppress=(),
        )  # fmt: skip

    def give(self, *chunks: Chunk) -> None:
        """As an input does."""
        for chunk in chunks:
            self.counters.received[chunk.input] += len(chunk)
            self.pipeline.storing.store(chunk)

    def live(self, work: Callable[[], Awaitable[Any]] | None = None) -> Life:
        """Run, do ``work``, judge and commit all, end."""

        async def main() -> None:
            task = asyncio.create_task(self.pipeline.run())
            if work is not None:
                await work()
            await self.pipeline.drain(5.0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert self.counters.identity(self.pipeline.backlog) == []
        return self

    def end(self) -> None:
        """Also what a crash leaves behind, when nothing was committed before."""
        self.writer.shutdown()
        self.log.close()
        self.store.close()

    def alerts(self) -> list[Alert]:
        return [envelope.decode(data) for _, data in self.outbox.pending(0, 10_000)]

    def found(self) -> list[tuple[str, str]]:
        """Title and text of each alert, in order."""
        return [(alert.rule_title, alert.raw) for alert in self.alerts()]
