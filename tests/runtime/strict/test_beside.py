"""The raw log read beside its writer, as another process does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rawlog.samples import NOW, lines, noise, open_log
from tests.settings import SegmentedLog
from vedette.model.counters import Counters
from vedette.runtime.strict import beside
from vedette.runtime.strict.beside import LogBeside


@pytest.mark.parametrize("mark_bytes", [1, 10_000, 1 << 20])
def test_as_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark_bytes: int) -> None:
    """From any place it reads the frames that the writer reads, as far as it was told, over rotation, compaction and
    deletion of segments."""
    monkeypatch.setattr(beside, "MARK_BYTES", mark_bytes)
    settings = SegmentedLog(max_bytes=60_000, segment_bytes=6_000)
    log = open_log(tmp_path, settings)
    other = LogBeside(tmp_path, log.log_id, Counters())
    told, begins = 0, [0]
    for number in range(80):
        for size in (900, 10, 10):
            begins.append(log.append(lines(noise(number, size))).end)
        if number % 7 == 3:
            other.advance(log.start, log.end, log.events)
            told = log.end
        log.sync()
        log.maintain(log.end, NOW)
        other.advance(log.start, max(told, log.start), other.events)
        for begin in (begins[-1], begins[len(begins) // 2], max(log.start, told - 2000)):
            if log.start <= begin < told:
                expected = [frame for frame in log.frames(begin) if frame.offset < told]
                assert [*other.frames(begin)] == expected
                headers = [header for header in log.headers(begin) if header.offset < told]
                assert [*other.headers(begin)] == headers
    log.close()
