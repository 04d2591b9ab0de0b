"""How far judging is, after a crash and over damage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.life import Life, engine, lines
from vedette.delivery import envelope
from vedette.model.event import FilePosition


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
    for frame in life.pipeline.storing.frames():
        asyncio.run(life.pipeline.judging.frame(frame))
    assert life.pipeline.committing.uncommitted(life.outbox.account().next_seq) == 1
    lost = [envelope.decode(data) for _, data in life.pipeline.committing.alerts]

    life = begin(engine("evil"))
    assert life.counters.received == life.counters.stored == {"in": 3}
    assert (life.counters.judged["in"], life.pipeline.backlog["in"]) == (1, 2)
    assert list(life.pipeline.progress.positions.values()) == [position]
    again = life.live().alerts()
    assert again == first + lost
    assert life.counters.judged == {"in": 3}
    assert life.store.load().positions

    life = begin(engine("evil")).live()
    assert life.alerts() == again
