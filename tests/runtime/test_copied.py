"""What is done first in a data folder that is a copy, over a real raw log and a real store."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

from structlog.testing import capture_logs

from tests.life import RULE, Life, engine, lines
from tests.settings import SegmentedLog
from vedette.config.settings import Config, RuleSettings
from vedette.delivery.envelope import alert_id
from vedette.inputs.settings import SyslogInput
from vedette.rawlog.machine import copied
from vedette.rawlog.segment import segments
from vedette.runtime.agent.optional import settled
from vedette.runtime.pipeline.account import broken

RULE_ID = "6a1f0000-0000-4000-8000-000000000000"


def place(folder: Path, rules: Path, life: Life) -> Config:
    """The configuration of an agent in ``folder``, with the rule of ``life``."""
    rules.mkdir(exist_ok=True)
    (rules / "rule.yml").write_text(RULE.format(word="one", number=0))
    return Config(
        agent=replace(life.context.config.agent, data_dir=folder),
        raw_log=SegmentedLog(max_bytes=1 << 30, segment_bytes=1 << 20),
        rules=RuleSettings(paths=(rules,)),
        input=(SyslogInput(name="in"),),
    )


def test_what_a_copy_does_first(tmp_path: Path) -> None:
    """What waits is evaluated under the ids that the first host gives, committed, and numbered anew; then a new log
    begins beside the old one. Stopped before, nothing of that is done; done once, it is no copy any more."""
    first = Life(tmp_path / "first", engine("one"))
    first.give(lines(b"one evaluated"))
    first.live()
    numbering, log_id = first.outbox.log_id, first.log.log_id
    first.give(lines(b"one stored", b"two stored"))
    first.end()
    shutil.copytree(first.folder, tmp_path / "copy")
    config = place(tmp_path / "copy", tmp_path / "rules", first)

    stop = asyncio.Event()
    stop.set()
    assert not asyncio.run(settled(config, stop))
    assert copied(config.agent.raw_dir)
    assert {part.log_id for part in segments(config.agent.raw_dir)} == {log_id}

    with capture_logs() as logs:
        assert asyncio.run(settled(config, asyncio.Event()))
        assert asyncio.run(settled(config, asyncio.Event()))
    (noticed,) = [entry for entry in logs if entry["event"] == "copy_noticed"]
    (cut,) = [entry for entry in logs if entry["event"] == "raw_log_cut"]
    assert noticed["reason"] == cut["reason"] == "its files are others than this agent wrote"

    copy = Life(tmp_path / "copy", engine("one"))
    assert [part.log_id for part in segments(config.agent.raw_dir)] == [log_id, copy.log.log_id]
    assert cut["new_log"] == copy.log.log_id
    assert copy.outbox.log_id != numbering
    copy.give(lines(b"one of the copy"))
    copy.live()
    assert broken(copy.pipeline) == []
    assert copy.counters.snapshot()["inputs"]["in"]["lost"] == {}
    assert copy.counters.totals["copies_noticed"] == 1
    made = copy.alerts()
    assert [alert.raw for alert in made] == ["one evaluated", "one stored", "one of the copy"]
    places = [(log_id, 0), (log_id, 14), (copy.log.log_id, 0)]
    assert [alert.alert_id for alert in made] == [alert_id("a1", log, RULE_ID, at) for log, at in places]
    assert [alert.seq for alert in made] == [1, 2, 3]
    copy.end()


def test_nothing_to_do(tmp_path: Path) -> None:
    """Without a raw log, and with one of its own, an agent goes on, and writes nothing before it holds the lock."""
    first = Life(tmp_path / "first", engine("one"))
    config = place(first.folder, tmp_path / "rules", first)
    first.end()
    record = config.agent.raw_dir / "machine"
    before = record.stat().st_ino
    assert asyncio.run(settled(config, asyncio.Event()))
    assert record.stat().st_ino == before
    assert asyncio.run(
        settled(replace(config, agent=replace(config.agent, data_dir=tmp_path / "none")), asyncio.Event())
    )
    assert not (tmp_path / "none").exists()


def test_a_copy_without_events(tmp_path: Path) -> None:
    """As often as a folder is copied that holds no event since its log began, an agent goes on there."""
    first = Life(tmp_path / "first", engine("one"))
    place(first.folder, tmp_path / "rules", first)
    first.end()
    before = first.folder
    for number in range(3):
        folder = tmp_path / f"copy{number}"
        shutil.copytree(before, folder)
        config = place(folder, tmp_path / "rules", first)
        assert asyncio.run(settled(config, asyncio.Event()))
        assert copied(config.agent.raw_dir) == ""
        before = folder
