"""Log first: what inputs give is stored, held or waits; what must be durable is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from tests.life import Life, engine, lines
from tests.waits import eventually, pauses
from vedette.config.settings import RawLogSettings
from vedette.runtime import stored


def test_a_burst_is_judged_from_the_disk(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks beyond what is kept in memory are judged too, each once and in order."""
    monkeypatch.setattr(stored, "RECENT_BYTES", 500)
    life = begin(engine("evil"))
    chunks = [lines(b"<13>Nov 21 02:40:00 web1 app: evil %d" % i) for i in range(100)]

    async def trickle() -> None:
        life.give(*chunks[:40])
        for chunk in chunks[40:]:
            life.give(chunk)
            await asyncio.sleep(0)

    life.live(trickle)
    assert [raw.rpartition(" ")[2] for _, raw in life.found()] == [str(i) for i in range(100)]


def test_durable_waits_for_the_disk(begin: Callable[..., Life]) -> None:
    """What an input waits for before it acknowledges is on disk then; many that wait share few syncs."""
    life = begin(engine("evil"))

    async def work() -> None:
        async def one(i: int) -> None:
            end = life.pipeline.ingest.store(lines(b"event %d" % i))
            life.counters.received["in"] += 1
            await life.pipeline.ingest.durable(end)
            assert life.log.durable >= end

        await asyncio.gather(*map(one, range(200)))

    life.live(work)
    assert life.log.durable == life.log.end


def test_a_full_disk_pauses_the_inputs(begin: Callable[..., Life]) -> None:
    """At the disk budget inputs are told to wait; once judged segments could go they may go on, and none is lost."""
    life = begin(engine("evil"), max_bytes=1 << 20, segment_bytes=64 << 10, outbox_bytes=0)  # 0: judges one frame only
    noise = Random(1)

    async def work() -> None:
        for pause in pauses():
            if not life.pipeline.ingest.accepting():
                break
            life.give(lines(noise.randbytes(30_000).replace(b"\n", b" ")))
            await asyncio.sleep(pause)
        assert life.log.start == 0
        life.pipeline.checkpointer.outbox_bytes = 1 << 30
        await life.pipeline.ingest.ready()
        assert life.pipeline.ingest.accepting()

    life.live(work)
    assert life.log.start > 0
    assert life.counters.judged["in"] == life.counters.stored["in"] > 20


@pytest.mark.parametrize(("policy", "least", "most"), [("interval:50ms", 2, 40), ("batch", 10, 200), ("never", 0, 1)])
def test_when_the_log_is_synced(
    begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch, policy: str, least: int, most: int
) -> None:
    """``interval`` syncs so often, ``batch`` after each chunk that comes by itself, ``never`` not for its own sake; and
    under each of them what must be durable is."""
    life = begin(engine("evil"))
    life.pipeline.ingest.fsync_interval = RawLogSettings(fsync=policy).fsync_interval
    sync, syncs = life.log.sync, []
    monkeypatch.setattr(life.log, "sync", lambda: syncs.append(life.log.end) or sync())

    async def work() -> None:
        for number in range(20):
            life.give(lines(b"<13>Nov 21 02:40:00 web1 app: good %d" % number))
            if policy == "never":
                await asyncio.sleep(0)
            else:
                await eventually("it on the disk", lambda: life.log.durable == life.log.end)
        assert least <= len(syncs) <= most
        end = life.log.end
        await life.pipeline.ingest.durable(end)
        assert life.log.durable >= end

    life.live(work)
    assert life.log.durable == life.log.end  # what is committed


def test_a_busy_agent_verifies_its_log(begin: Callable[..., Life]) -> None:
    """While more is stored than evaluated, too: an agent that is never idle would not hear of damage."""
    life = begin(engine("evil"))
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: waits"))
    asyncio.run(life.pipeline.ingest.maintain())
    assert not life.context.progress.caught_up
    assert life.log.verifier.rounds == 1
