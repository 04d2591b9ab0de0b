"""Log first: what inputs give is stored, held or waits; what must be durable is."""

from __future__ import annotations

import asyncio
import errno
from array import array
from collections.abc import Callable
from itertools import accumulate
from random import Random

import pytest

from tests.life import NOW, Clock, Life, engine, lines
from tests.waits import eventually, pauses
from vedette.config.settings import RawLogSettings
from vedette.model.event import Chunk, FilePosition, Flag, Frame
from vedette.rawlog import format
from vedette.runtime.pipeline import stored


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
    assert [raw.rpartition(" ")[2] for _, raw in life.titled()] == [str(i) for i in range(100)]


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
    life = begin(engine("evil"), max_bytes=1 << 20, segment_bytes=64 << 10, outbox_bytes=0)
    noise = Random(1)

    async def work() -> None:
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil"))  # no room for its alert: evaluation stands here
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


class Disk:
    """Of a life's raw log: while it is ``full``, nothing is appended."""

    def __init__(self, life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        self._append, self._sync = life.log.append, life.log.sync
        self.syncs = 0
        monkeypatch.setattr(life.log, "append", self._appended)
        monkeypatch.setattr(life.log, "sync", self._synced)

    def _appended(self, chunk: Chunk) -> Frame:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._append(chunk)

    def _synced(self) -> int:
        self.syncs += 1
        return self._sync()


def test_what_waits_for_the_disk_keeps_its_place(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the raw log does not take is appended once it does: each chunk once, and before what came after it."""
    life = begin(engine("evil"))
    ingest, disk = life.pipeline.ingest, Disk(life, monkeypatch)
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil 1"))
    assert not ingest.append_held()
    assert (dict(ingest.held), ingest.accepting()) == ({"in": 1}, False)
    disk.full = False
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil 2"))
    assert ingest.append_held()
    assert (dict(ingest.held), ingest.held_bytes, ingest.accepting()) == ({"in": 0}, 0, True)
    assert [text[-1] for _, text in life.live().titled()] == ["1", "2"]


async def test_what_waits_is_not_durable(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync that has nothing of a chunk which waits for the raw log is no answer: it is asked again."""
    life = begin(engine("evil"))
    ingest, disk = life.pipeline.ingest, Disk(life, monkeypatch)
    end = ingest.store(lines(b"<13>Nov 21 02:40:00 web1 app: evil"))
    waits = asyncio.create_task(ingest.durable(end))
    await eventually("a sync", lambda: disk.syncs)
    disk.full = False
    assert ingest.append_held()
    await waits
    assert life.log.durable >= end


def test_age_goes_by_the_trusted_clock(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that was set forward makes no segment too old."""
    monkeypatch.setattr(Clock, "trusted", lambda _: NOW - 1)
    life = begin(engine("evil"))
    times: list[int] = []
    monkeypatch.setattr(life.log, "maintain", lambda evaluated, now: times.append(now) or 0)
    asyncio.run(life.pipeline.ingest.maintain())
    assert times == [NOW - 1]


@pytest.mark.parametrize("held", [False, True])
def test_what_one_frame_does_not_hold(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    """Goes in several, in order, with its flags, origins and position; an event that none holds is dropped and counted,
    and what comes with it and behind it is stored. So it is with what has waited for the disk."""
    life = begin(engine("evil"))
    ingest, disk = life.pipeline.ingest, Disk(life, monkeypatch)
    monkeypatch.setattr(format, "MAX_RAW", 100)
    monkeypatch.setattr(format, "META_PLAIN", 100)
    monkeypatch.setattr(format, "MAX_META", 1000)
    disk.full = held
    at = FilePosition("/var/log/app", 7, "fingerprint", 100)
    events = [b"<13>Nov 21 02:40:00 web1 app: evil %d" % number for number in range(8)]
    life.give(lines(events[0], file=at))
    life.give(lines(*events[1:5], marks=((len(events[1]) + 1, int(Flag.CUT)),), file=at._replace(position=500)))
    ends = array("I", accumulate(map(len, events[5:])))
    origins = ("first" * 100, "\ud800", "third" * 100)  # too long together, and one that is no text
    life.give(
        Chunk("in", "syslog", NOW, b"".join(events[5:]), ends, origins, array("H", [0, 1, 2])),
        Chunk(
            "in", "mqtt", NOW, b'{"a":"evil"}' * 20, array("I", range(12, 241, 12)), ("topic",), array("H", [0] * 20),
            ((0, int(Flag.DUP)),), array("H", [5] * 15 + [6] * 4 + [0]),
        ),
    )  # fmt: skip
    disk.full = False
    assert ingest.append_held()
    frames = [*life.log.frames(0)]
    stored = [(frame.chunk.data[a:b], frame.chunk.origin(a), frame.chunk.flags(a)) for frame in frames
              for a, b in frame.chunk.spans()]  # fmt: skip
    assert stored == [
        *((event, "", Flag.CUT if number == 2 else Flag(0)) for number, event in enumerate(events[:5])),
        (events[5], origins[0], Flag(0)),
        (events[7], origins[2], Flag(0)),
        *[(b'{"a":"evil"}', "topic", Flag.DUP)] * 15,
        *[(b'{"a":"evil"}', "topic", Flag(0))] * 5,
    ]
    assert [frame.chunk.file.position for frame in frames if frame.chunk.file] == [100, 100, 500]
    assert life.counters.dropped["in", "unframed"] == 1
    assert (ingest.held["in"], ingest.held_bytes) == (0, 0)
    assert len(life.live().alerts()) == 27
