"""How many frames a segment holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rawlog.samples import lines, open_log
from vedette.rawlog import log
from vedette.rawlog.segment import segments


def test_a_segment_holds_so_many_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small they are, and over restarts: a start, which looks at each of the last segment, is bounded."""
    monkeypatch.setattr(log, "SEGMENT_FRAMES", 10)
    for count in (7, 7, 1, 18):
        writer = open_log(tmp_path)
        for _ in range(count):
            writer.append(lines(b"x"))
        writer.close()
    assert [one.base // len(b"x\n") for one in segments(tmp_path)] == [0, 10, 20, 30]
