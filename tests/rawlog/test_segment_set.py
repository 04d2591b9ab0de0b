"""Which segments stay: retention by size and by age."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.rawlog.samples import NOW, chunks_of, lines, noise, open_log
from tests.settings import SegmentedLog
from tests.waits import until
from vedette.model.counters import Counters
from vedette.rawlog import segment_set
from vedette.rawlog.log import RawLog
from vedette.rawlog.segment import segments
from vedette.system.wallclock import utc_now

SMALL = SegmentedLog(max_bytes=80_000, segment_bytes=10_000, max_age=86400)


def test_segments_stay_a_share_of_the_budget(tmp_path: Path) -> None:
    """segment_bytes over the budget does not leave a log that can only fill up."""
    log = open_log(tmp_path, SegmentedLog(max_bytes=40_000, segment_bytes=64 << 20))
    for i in range(200):
        log.append(lines(noise(i)))
        log.retain(log.end, NOW)
        assert not log.full()
    assert len(segments(tmp_path)) > 1
    log.close()


def test_retention_by_size_spares_what_is_unjudged(tmp_path: Path) -> None:
    """Judged segments go, oldest first, until there is room; unjudged ones never do, and then the log is full."""
    log = open_log(tmp_path, SMALL)
    for i in range(60):
        log.append(lines(noise(i)))
    before = log.size()
    assert log.full()
    assert log.retain(0, NOW) == 0
    assert log.full()
    bases = [segment.base for segment in segments(tmp_path)]
    assert log.retain(bases[2] - 1, NOW) > 0
    assert log.start == bases[1]
    deleted = before - log.size()
    assert log.retain(log.end, NOW) > 0
    assert not log.full()
    assert log.size() <= 70_000 < log.size() + 13_000
    assert log.start in bases
    assert segments(tmp_path)[0].base == log.start
    assert chunks_of(log, 0)[0][0] == log.start
    assert deleted > 0
    start = log.start
    log.close()
    log = open_log(tmp_path, SMALL)
    assert log.start == start
    log.close()


def test_retention_by_age(tmp_path: Path) -> None:
    """Segments sealed longer ago than max_age go when judged; the active one stays whatever its age."""
    day = 86400 * 10**6
    now = [NOW]
    log = RawLog.open(tmp_path, SMALL, Counters(), clock=lambda: now[0])
    log.append(lines(b"first"))
    now[0] += day // 3
    log.append(lines(b"second", at=now[0]))  # the segment has been written for over a quarter of max_age
    assert len(segments(tmp_path)) == 2
    assert log.retain(log.end, NOW + day) == 0
    now[0] += day + 1
    assert log.retain(0, now[0]) == 0
    assert log.retain(log.end, now[0]) > 0
    assert [chunk.data for _, chunk in chunks_of(log)] == [b"second\n"]
    assert log.retain(log.end, now[0] + 9 * day) == 0
    log.close()


def test_what_was_sealed_while_the_clock_was_ahead(tmp_path: Path) -> None:
    """It goes max_age after it was looked at first, not when that time comes; segments are begun by age as before. A
    clock that is behind lets nothing go."""
    day, year, today = 86400 * 10**6, 365 * 86400 * 10**6, utc_now()
    now = [today + year]
    log = RawLog.open(tmp_path, SMALL, Counters(), clock=lambda: now[0])
    for i in range(12):
        log.append(lines(noise(i)))
    before = len(segments(tmp_path))
    assert before > 2
    now[0] = today
    log.append(lines(b"late"))
    assert log.retain(log.end, today) == 0
    now[0] += day // 3
    log.append(lines(b"later"))
    assert len(segments(tmp_path)) == before + 1
    assert log.retain(log.end, 0) == 0
    log.close()

    brief = replace(SMALL, max_age=1e-6)
    log = RawLog.open(tmp_path, brief, Counters(), clock=lambda: now[0])
    until("all but the active one to go", lambda: log.retain(log.end, now[0]) >= 0 and len(segments(tmp_path)) == 1)
    log.close()


def test_that_age_outlives_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a segment that was sealed while the clock was ahead each life counts on from the one before: it goes, though
    none is as long as max_age."""
    passed, today = [1000.0], utc_now()
    monkeypatch.setattr(segment_set.time, "monotonic", lambda: passed[0])
    log = open_log(tmp_path, SMALL, now=today + 365 * 86400 * 10**6)
    for i in range(12):
        log.append(lines(noise(i)))
    log.close()
    before, lives = len(segments(tmp_path)), 0
    while len(segments(tmp_path)) == before:
        assert lives < 4
        lives += 1
        log = open_log(tmp_path, SMALL, now=today)
        log.retain(log.end, today)
        for _ in range(2):
            passed[0] += SMALL.max_age / 5
            log.retain(log.end, today)
        log.close()
        passed[0] += 10 * SMALL.max_age  # which nobody counts: it says nothing of another boot's clock
    assert lives == 3


def test_age_survives_a_clock_that_goes_back(tmp_path: Path) -> None:
    """A segment counts as no older than the newest time that the log has seen before it."""
    log = open_log(tmp_path, SMALL, now=NOW)
    for i in range(12):
        log.append(lines(noise(i)))
    log.close()
    log = open_log(tmp_path, SMALL, now=0)
    for i in range(12):
        log.append(lines(noise(i), at=0))
    assert log.retain(log.end, NOW + 1000) == 0
    log.close()
