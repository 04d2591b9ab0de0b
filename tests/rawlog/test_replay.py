"""The writer reads its own log: what lies from a place on, and what damage took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rawlog.samples import lines, messages, open_log
from vedette.model.counters import Counters, Lost
from vedette.model.event import Flag
from vedette.rawlog import replay
from vedette.rawlog.segment import segments


def test_headers_from_the_middle_of_a_frame(tmp_path: Path) -> None:
    """A cursor may stand between two events of a frame: what lies behind it is counted, with its cut events."""
    log = open_log(tmp_path)
    log.append(replace(lines(b"a", b"bb", b"c"), marks=((0, Flag.CUT), (2, Flag.CUT))))
    log.append(messages(b"d", b"ee"))
    told = [(h.offset, h.end, h.input, h.events, h.cut) for h in log.headers(2)]
    assert told == [(2, 7, "auth", 2, 1), (7, 10, "plant", 2, 0)]
    assert [h.events for h in log.headers(8)] == [1]
    assert log.backlog(5) == {"auth": 1, "plant": 2}
    log.close()


def test_damage_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a damaged place is read, its events are lost once, and only where losses are counted; what is
    remembered of such places is bounded, what is counted is not."""
    monkeypatch.setattr(replay, "DAMAGED", 2)
    counters = Counters()
    log = open_log(tmp_path, counters=counters)
    sizes = [log.size()]
    for number in range(9):
        log.append(lines(b"%d" % number, b"and another"))
        sizes.append(log.size())
    (segment,) = segments(tmp_path)
    with segment.path.open("r+b") as file:
        for number in (1, 3, 5, 7):
            file.seek(sizes[number + 1] - 3)
            file.write(b"\xff\x00\xff")
    whole = [b"%d" % number for number in (0, 2, 4, 6, 8)]
    assert [frame.chunk.data[:1] for frame in log.frames(0, count_lost=False)] == whole
    assert sum(counters.lost.values()) == 0
    for _ in range(2):
        assert [frame.chunk.data[:1] for frame in log.frames(0)] == whole
        assert counters.lost == {("auth", Lost.DAMAGED): 8}
    assert len(log.damaged) == 2
    log.close()
