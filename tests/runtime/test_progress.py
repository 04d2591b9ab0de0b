"""How far judging is, after a crash and over damage."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.life import NOW, Life, engine, lines
from tests.rawlog.samples import noise, open_log
from vedette.delivery import envelope
from vedette.inputs.settings import AuditInput, FileInput, InputSettings, JournalInput, KafkaInput
from vedette.model.counters import UNKNOWN, Counters
from vedette.model.event import Cursor, FilePosition
from vedette.rawlog.segment import segments
from vedette.runtime.pipeline.progress import Progress
from vedette.store.rebuild import open_store
from vedette.store.store import Saved


def test_damage_is_counted_as_lost(begin: Callable[..., Life], tmp_path: Path) -> None:
    """A frame that was damaged on disk before it was judged is lost with the right count, and the rest is judged."""
    life = begin(engine("evil"))
    life.give(*(lines(*[b"<13>Nov 21 02:40:00 web1 app: evil %d" % i] * 3) for i in range(3)))
    life.log.sync()
    life.give(lines(b"last"))  # its header says that the frames before it were on disk
    life.end()
    (segment,) = (tmp_path / "raw").glob("*.seg*")
    data = bytearray(segment.read_bytes())
    third = len(data) // 2
    data[third - 4 : third + 4] = b"\xff" * 8
    segment.write_bytes(data)

    again = Life(tmp_path, engine("evil"))
    try:
        again.live()
        lost = sum(again.counters.lost.values())
        assert lost in (3, 6)
        assert again.counters.judged["in"] == 10 - lost
        assert len(again.alerts()) == 9 - lost
    finally:
        again.end()
    life.end = lambda: None  # type: ignore[method-assign]


def test_a_crash_before_the_commit(begin: Callable[..., Life]) -> None:
    """What was judged and not committed is judged again after the crash under the same alert ids; counters, backlog and
    file positions come from the log."""
    position = FilePosition("/var/log/a", 5, "ab", 77)
    life = begin(engine("evil"))
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil one"))
    first = life.live().alerts()
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil two", b"x", file=position))
    for frame in life.pipeline.ingest.frames():
        asyncio.run(life.pipeline.evaluator.frame(frame))
    assert life.pipeline.checkpointer.uncommitted(life.outbox.account().next_seq) == 1
    lost = [envelope.decode(data) for _, data in life.pipeline.checkpointer.alerts]

    life = begin(engine("evil"))
    assert life.counters.received == life.counters.stored == {"in": 3}
    assert (life.counters.judged["in"], life.pipeline.backlog["in"]) == (1, 2)
    assert list(life.context.progress.positions.values()) == [position]
    again = life.live().alerts()
    assert again == first + lost
    assert life.counters.judged == {"in": 3}
    assert life.store.load().positions

    life = begin(engine("evil")).live()
    assert life.alerts() == again


@pytest.mark.parametrize("checkpoints", ["whole", "damaged"])
def test_what_retention_took_before_a_lost_store_is_lost(
    checkpoints: str, begin: Callable[..., Life], tmp_path: Path
) -> None:
    """The region never answered, retention deleted what was judged, then the store was lost: events whose alerts can
    never be made again stay in the account, over the next restarts too."""
    small = {"max_bytes": 100_000, "segment_bytes": 10_000}
    life = begin(engine("evil"), **small)
    for i in range(80):
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil " + noise(i).hex().encode()[:2000]))
    life.live()
    life.log.retain(life.log.end, NOW)
    assert life.log.start > 0
    assert life.store.account().entries == 80
    life.end()
    shutil.rmtree(tmp_path / "store")
    if checkpoints == "damaged":
        for segment in segments(tmp_path / "raw"):
            with segment.path.open("r+b") as file:
                file.seek(90)
                file.write(b"damage")
    open_store(tmp_path / "store", tmp_path / "raw", map_bytes=1 << 24, clock=lambda: NOW).close()
    life.end = lambda: None  # type: ignore[method-assign]
    for _ in range(2):
        life = begin(engine("evil"), **small)
        kept = life.counters.judged["in"] + sum(life.pipeline.backlog.values())
        assert 0 < kept < 80
        for counter in (life.counters.received, life.counters.stored):
            assert counter == {"in": kept, UNKNOWN: 80 - kept}
        assert life.counters.lost == {(UNKNOWN, "missing"): 80 - kept}
        life.live()
        assert len(life.alerts()) == kept


@pytest.mark.parametrize(
    ("settings", "path", "again"),
    [
        (FileInput("in", paths=("/var/log/*",)), "", True),
        (FileInput("in", paths=("/var/log/*",), from_start=False), "/var/log/a", True),
        (FileInput("in", paths=("/var/log/*",), from_start=False), "", False),
        (FileInput("in", paths=("/srv/*",), from_start=False), "/var/log/a", False),
        (FileInput("other", paths=("/var/log/*",)), "/var/log/a", False),
        (JournalInput("in"), "", True),
        (JournalInput("in", from_start=False), "journal:in:", True),
        (JournalInput("in", from_start=False), "journal:other:", False),
        (AuditInput("in"), "audit:in", False),
        (KafkaInput("in", brokers=("b:9092",), topics=("t",)), "kafka:in:vedette:t", False),
    ],
)
def test_what_comes_again_is_not_lost(
    begin: Callable[..., Life], settings: InputSettings, path: str, again: bool
) -> None:
    """Of what was shown and is not in the log only that is not counted which the input reads once more; where a group's
    offset or nothing is known, it may not."""
    life = begin(engine("evil"))
    life.give(lines(b"a", b"b", file=FilePosition(path, 5, "ab", 4) if path else None))
    life.live()
    shown = life.counters.snapshot()
    for counter in ("received", "stored"):
        shown["inputs"]["in"][counter] += 7
    life = begin(engine("evil"), reported=shown, inputs=(settings,))
    assert life.counters.received == life.counters.stored == {"in": 2 if again else 9}
    assert sum(life.counters.lost.values()) == (0 if again else 7)
    assert life.counters.identity(life.pipeline.backlog) == []


def test_a_cursor_of_another_log(tmp_path: Path) -> None:
    """It says nothing of this one: evaluation begins at this log's start, and all that it holds waits."""
    log = open_log(tmp_path)
    log.append(lines(b"a", b"b"))
    progress = Progress(log, Counters(), Saved(Cursor("ab" * 16, 10**9), None, []), {})
    assert (progress.evaluated, progress.committed, progress.backlog) == (0, 0, {"in": 2})
    log.close()
