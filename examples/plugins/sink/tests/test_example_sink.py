"""Each alert becomes a file, the same one when it comes again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from vedette_example_sink import MAX_BYTES, Spool

from vedette.plugins import Verdict


def test_files(tmp_path: Path) -> None:
    """Named by the alert's id; nothing half-written is left."""
    spool = Spool({"folder": str(tmp_path)})
    for _ in range(2):
        assert [one.verdict for one in spool.send([{"alert_id": "a"}, {"alert_id": "b"}])] == [Verdict.TAKEN] * 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.json", "b.json"]
    assert json.loads((tmp_path / "a.json").read_text()) == {"alert_id": "a"}


def test_refused(tmp_path: Path) -> None:
    """What is too long is refused, and a folder that is not there is a fault."""
    (answer,) = Spool({"folder": str(tmp_path)}).send([{"alert_id": "a", "raw": "x" * MAX_BYTES}])
    assert answer.verdict is Verdict.REFUSED
    with pytest.raises(FileNotFoundError):
        Spool({"folder": str(tmp_path / "gone")}).send([{"alert_id": "a"}])
