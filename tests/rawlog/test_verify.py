"""Damage in what is judged already: found at leisure, counted, logged once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.rawlog.samples import NOW, lines, noise, open_log
from tests.rawlog.test_recover import SMALL, fill, flip, located
from tests.settings import SegmentedLog
from vedette.model.counters import Counters
from vedette.rawlog.log import RawLog
from vedette.rawlog.segment import Segment, segments
from vedette.rawlog.verify import BUSY_ROUND_SECONDS, BYTES_PER_SECOND, ROUND_SECONDS, STEP_BYTES, Verifier


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def round_of(verifier: Verifier, clock: Clock, segments: list[Segment]) -> float:
    """One round, a step each 0.2 s as the agent makes them; the seconds that it took."""
    began, rounds = clock.now, verifier.rounds
    while verifier.rounds == rounds:
        verifier.step(segments)
        clock.now += 0.2
        assert clock.now < began + 3600
    return clock.now - began


def test_nothing_is_found_in_a_whole_log(tmp_path: Path) -> None:
    """All of it is read, at the stated speed, and again after a day; offsets that were left out are no damage."""
    fill(tmp_path, [lines(noise(i)) for i in range(100)])
    log = RawLog.open(tmp_path, SMALL, Counters(), certain=False, clock=lambda: NOW)
    assert log.recovery.resumed_at
    for i in range(8):
        log.append(lines(noise(i)))
    log.close()
    kept = segments(tmp_path)
    clock = Clock()
    verifier = Verifier(clock)
    size = sum(segment.path.stat().st_size for segment in kept[:-1])
    assert size > 3 * STEP_BYTES
    least = (size - STEP_BYTES) / BYTES_PER_SECOND
    with capture_logs() as said:
        assert least - 0.2 <= round_of(verifier, clock, kept) < 2 * size / BYTES_PER_SECOND + 1
        for _ in range(3):
            verifier.step(kept)
        assert verifier.rounds == 1
        clock.now += ROUND_SECONDS
        round_of(verifier, clock, kept)
    assert (verifier.damaged(), said) == (0, [])


def test_a_busy_agent_verifies_its_log_as_well(tmp_path: Path) -> None:
    """Under a constant backlog a round takes as long as it may, and no longer; an idle moment is used at once."""
    fill(tmp_path, [lines(noise(i)) for i in range(200)])
    kept, clock = segments(tmp_path), Clock()
    flip(kept[0].path, located(kept[0])[1].after - 1)
    verifier, began, steps = Verifier(clock), clock.now, 0
    while not verifier.rounds:
        verifier.step(kept, busy=True)
        clock.now += 60.0
        steps += 1
        assert clock.now < began + BUSY_ROUND_SECONDS
    assert verifier.damaged() == 1
    assert clock.now > began + BUSY_ROUND_SECONDS / 2
    clock.now += ROUND_SECONDS
    verifier.step(kept, busy=True)
    clock.now += 1.0
    verifier.step(kept, busy=True)  # too early
    assert round_of(verifier, clock, kept) < 3600


def frame(number: int, at: Callable[[int, int], int]) -> Callable[[Path], None]:
    """A byte of the first segment's frame ``number``; ``at`` gives it by the frame's begin and end."""

    def damage(folder: Path) -> None:
        first = segments(folder)[0]
        found = located(first)[number]
        flip(first.path, at(found.position, found.after))

    return damage


DAMAGE: dict[str, Callable[[Path], None]] = {
    "segment header": lambda folder: flip(segments(folder)[0].path, 3),
    "frame header": frame(1, lambda begin, end: begin + 8),
    "body": frame(1, lambda begin, end: end - 1),
    "last frame": frame(-1, lambda begin, end: begin),
    "its end cut off": lambda folder: os.truncate(segments(folder)[0].path, located(segments(folder)[0])[-1].position),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found(tmp_path: Path, what: str) -> None:
    """Wherever it is in a sealed segment; logged once, however often it is read; gone with its segment."""
    fill(tmp_path, [lines(noise(i)) for i in range(30)], sync_each=True)
    DAMAGE[what](tmp_path)
    kept, clock = segments(tmp_path), Clock()
    verifier = Verifier(clock)
    with capture_logs() as said:
        for _ in range(3):
            round_of(verifier, clock, kept)
            clock.now += ROUND_SECONDS
    assert verifier.damaged() == 1
    (line,) = said
    assert (line["event"], line["segment"]) == ("raw_log_damaged", str(kept[0].path))
    assert line["reason"]
    round_of(verifier, clock, kept[1:])
    assert verifier.damaged() == 0


def test_a_disk_that_cannot_read(tmp_path: Path) -> None:
    """An error of the disk is damage as well, and the other segments are read all the same."""
    fill(tmp_path, [lines(noise(i)) for i in range(30)], sync_each=True)
    kept, clock = segments(tmp_path), Clock()
    flip(kept[2].path, located(kept[2])[0].after - 1)
    kept[1].path.unlink()
    kept[1].path.mkdir()  # reading it is an error
    verifier = Verifier(clock)
    with capture_logs() as said:
        round_of(verifier, clock, kept)
    assert verifier.damaged() == len(said) == 2


def test_the_log_verifies_what_is_sealed(tmp_path: Path) -> None:
    """Also what has been compacted; what is being written is left alone."""
    log = open_log(tmp_path, SegmentedLog(max_bytes=1 << 20, segment_bytes=40_000))
    for i in range(600):
        log.append(lines(b"<13>Nov 20 10:00:00 web1 app: line %d" % i))
    log.sync()
    assert any(log.maintain(0, NOW) for _ in range(100))
    clock = Clock()
    log.verifier = Verifier(clock)
    compacted = segments(tmp_path)[0]
    flip(compacted.path, compacted.path.stat().st_size - 1)
    with segments(tmp_path)[-1].path.open("ab") as file:
        file.write(b"unfinished")
    while not log.verifier.rounds:
        log.verify()
        clock.now += 0.2
    assert log.verifier.damaged() == 1
    log.close()
