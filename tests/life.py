"""A pipeline over a real raw log and a real store, from its start to its end or to a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any, cast

from tests.settings import SegmentedLog
from vedette import compile_rules
from vedette.config.settings import AgentSettings, Config, FunctionSettings, StateSettings, UplinkSettings
from vedette.delivery import envelope
from vedette.engine.match import Context as EventContext
from vedette.engine.match import Engine
from vedette.model.counters import Counters
from vedette.model.event import Alert, Chunk, LogSource
from vedette.rawlog.checkpoint import RestartPoint
from vedette.rawlog.log import RawLog
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.lives import UnderWay
from vedette.runtime.pipeline.pipeline import Pipeline
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


class Clock:
    """Says NOW, and ``later`` microseconds."""

    later = 7
    steps = 0
    ahead = 0.0

    def __call__(self) -> int:
        return NOW + self.later

    trusted = __call__


class Life:
    """A pipeline in a folder, from start to end or to a crash; the folder is all that the next one gets."""

    def __init__(self, folder: Path, engine: Engine, **settings: Any) -> None:
        """``settings``: of the raw log, besides ``outbox_bytes``, ``cache``, ``state_bytes``, ``functions``,
        ``redact``, ``certain``, ``inputs``, ``sinks``, and what was ``reported``."""
        self.folder = folder
        self.counters = Counters()
        self.clock: Any = Clock()
        self.store = Store.open(folder / "store")
        certain, outbox_bytes = settings.pop("certain", True), settings.pop("outbox_bytes", 1 << 28)
        cache, functions = settings.pop("cache", False), settings.pop("functions", False)
        state_bytes, redact = settings.pop("state_bytes", 64 << 20), settings.pop("redact", ())
        inputs, reported = settings.pop("inputs", ()), settings.pop("reported", None)
        sinks = settings.pop("sinks", ())
        config = Config(
            agent=replace(AGENT, data_dir=folder),
            raw_log=SegmentedLog(**{"max_bytes": 1 << 30, "fsync": "interval:20ms", **settings}),
            uplink=UplinkSettings(max_bytes=outbox_bytes),
            state=StateSettings(max_bytes=state_bytes),
            functions=FunctionSettings(allow=functions),
            redact=redact,
            input=inputs,
            sink=sinks,
        )
        restart = RestartPoint(self.counters)
        self.log = RawLog.open(
            folder / "raw", config.raw_log, self.counters, committed=self.store.load().cursor, certain=certain,
            describe=restart.describe,
        )  # fmt: skip
        self.context = RunContext(config, self.log, self.store, self.counters, cast(Any, self.clock), restart, reported)
        self.context.input_contexts["in"] = EventContext(UTC, LogSource("linux"), "web9")
        self.outbox = self.context.outbox
        self.under_way = UnderWay(self.context, crashed=False)
        self.pipeline = Pipeline(self.context, engine, None, self.under_way)
        self.pipeline.evaluator.save_memory(not cache)

    def give(self, *chunks: Chunk) -> None:
        """As an input does."""
        for chunk in chunks:
            self.counters.received[chunk.input] += len(chunk)
            self.pipeline.ingest.store(chunk)

    def live(self, work: Callable[[], Awaitable[Any]] | None = None) -> Life:
        """Run, do ``work``, evaluate and commit all, end."""

        async def main() -> None:
            task = asyncio.create_task(self.pipeline.run())
            if work is not None:
                await work()
            await self.pipeline.drain(120.0)  # or as soon as all is evaluated
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert self.counters.identity(self.pipeline.backlog) == []
        return self

    def end(self) -> None:
        """Also what a crash leaves behind, when nothing was committed before."""
        self.under_way.box.close()
        self.context.close()
        self.store.close()

    def alerts(self) -> list[Alert]:
        return [envelope.decode(data) for _, data in self.outbox.pending(0, 1 << 20)]

    def titled(self) -> list[tuple[str, str]]:
        """Title and text of each alert, in order."""
        return [(alert.rule_title, alert.raw) for alert in self.alerts()]
