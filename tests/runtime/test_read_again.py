"""A file that is read again where the end of the raw log is lost: none of its lines counts as lost, over any kills."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.inputs.intake import Kept
from tests.life import NOW, Life, engine
from tests.settings import PolledFiles
from tests.waits import eventually
from vedette.inputs.base import Surroundings
from vedette.inputs.opening import opened
from vedette.model.counters import visible
from vedette.rawlog import read
from vedette.rawlog.segment import segments
from vedette.store.rebuild import open_store

FILES, LINES = 12, 240
ENGINE = engine("evil")


class Killed(Exception):
    """Nothing of this life is committed any more."""


def _begun(folder: Path, reported: dict[str, Any] | None) -> Life:
    """As the agent starts."""
    with open_store(folder / "store", folder / "raw", map_bytes=1 << 24, clock=lambda: NOW, reported=reported) as store:
        certain = not store.uncertain
    inputs = (PolledFiles("in", paths=(f"{folder}/logs/*.log",), poll=0.001),)
    life = Life(folder, ENGINE, segment_bytes=4096, certain=certain, reported=reported, inputs=inputs)
    life.store.settle()
    return life


def _lived(life: Life, until: int, *, killed: bool = False) -> dict[str, Any]:
    """Read the files until so many lines are stored, and end or be killed then; what is shown at the end."""

    async def work() -> None:
        (settings,) = life.context.config.input
        positions = life.context.progress.positions
        given = Surroundings(
            life.pipeline.ingest, life.counters, life.clock, "a1",
            positions=positions.values, recent=lambda name: (), private=lambda file: False,
            recall=Kept().get, remember=Kept().put,
        )  # fmt: skip
        running = await opened(settings, given, 64)
        reading = asyncio.create_task(running.run())
        await eventually("lines that are stored", lambda: life.counters.stored["in"] >= until)
        if killed:
            reading.cancel()
            raise Killed
        await running.stop()
        await reading

    with suppress(Killed):
        life.live(work)
    account, checkpointer = life.outbox.account(), life.pipeline.checkpointer
    shown = visible(life.counters, checkpointer.counted, life.pipeline.backlog)
    life.end()
    return {"store": account.log_id, "commits": account.commits, **shown}


def _stored(folder: Path) -> Counter[bytes]:
    frames = read.frames(folder / "raw", on_gap=lambda gap: None)
    return Counter(line for frame in frames for line in frame.chunk.data.splitlines())


def _torn(folder: Path, rng: Random) -> None:
    """The newest segments of the raw log go, and the one before ends anywhere."""
    parts = segments(folder / "raw")
    gone = rng.randrange(len(parts))
    for segment in parts[len(parts) - gone :]:
        segment.path.unlink()
    last = parts[-1 - gone].path
    os.truncate(last, rng.randrange(last.stat().st_size))


@examples(3)
@given(st.integers(0, 1 << 32))
def test_double_faults(seed: int) -> None:
    """The end of the raw log is gone, before anything was committed or with the store, which is lost or put back as it
    was; and the agent is killed once more while it recovers or reads again: each line is stored once, evaluated once,
    and none is in the account otherwise."""
    rng = Random(seed)
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        for number in range(FILES):
            lines = (f"<13>Nov 21 02:40:00 web1 app: line {number} of {at}\n" for at in range(LINES // FILES))
            (folder / "logs" / f"{number}.log").write_text("".join(lines))
        first = rng.randrange(LINES // 2)
        shown = _lived(_begun(folder, None), first, killed=True)
        if first % 3:
            shutil.copytree(folder / "store", folder / "earlier")
            shown = _lived(_begun(folder, shown), LINES)
            shutil.rmtree(folder / "store")
            if first % 2:
                (folder / "earlier").rename(folder / "store")
        _torn(folder, rng)
        for _ in range(rng.randrange(3)):
            life = _begun(folder, shown)
            now = life.counters.stored["in"]
            shown = _lived(life, rng.randint(now, LINES), killed=True)
        life = _begun(folder, shown)
        _lived(life, LINES)
        assert (*_stored(folder).values(),) == (1,) * LINES
        counters = life.counters
        assert counters.received == counters.stored == counters.judged == {"in": LINES}
        assert not any(counters.lost.values())
        assert not any(counters.dropped.values())
