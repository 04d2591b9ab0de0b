"""The pipeline over a real raw log and a real store: an alert in full, and less memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.life import NOW, Life, engine, lines
from tests.waits import eventually
from vedette.delivery import envelope
from vedette.model.event import Chunk, Entity, Flag
from vedette.rawlog.read import event_at
from vedette.runtime.pipeline import pipeline


def test_an_alert_in_full(begin: Callable[..., Life], tmp_path: Path) -> None:
    """What leaves for a match: who, what, when and where, and a reference that the raw log answers."""
    life = begin(engine("evil"))
    event = b"<13>Nov 21 02:40:00 web1 app: evil by user=root from 203.0.113.9"
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: nothing", event))
    (alert,) = life.live().alerts()
    assert (alert.rule_id, alert.rule_title, alert.level) == (
        "6a1f0000-0000-4000-8000-000000000000",
        "Marker evil",
        "low",
    )
    assert (alert.agent_id, alert.site, alert.fleet, alert.source) == ("a1", "s1", "f1", "in")
    assert (alert.seq, alert.kind, alert.count, alert.host, alert.tags) == (
        1,
        "detection",
        1,
        "web1",
        ("attack.t1110",),
    )
    assert (alert.event_time, alert.detected_at, alert.received_date) == (NOW - 74_000_000, NOW + 7, "2026-11-21")
    assert Entity("host", "web1") in alert.entities
    assert alert.raw == event.decode()
    assert alert.alert_id == envelope.alert_id("a1", life.log.log_id, alert.rule_id, alert.raw_ref.offset, "")
    assert event_at(tmp_path / "raw", alert.raw_ref) == event
    saved = life.store.load()
    assert saved.cursor == (life.log.log_id, life.log.end)
    assert saved.counters is not None
    assert saved.counters["totals"]["alerts_made"] == 1


def test_event_times_and_flags(begin: Callable[..., Life]) -> None:
    """A time far after the receipt is clamped and flagged; cut and redelivered events keep their flags; an event that
    names no host is its input's."""
    life = begin(engine("evil"))
    ahead = b"<13>1 2026-11-21T03:41:14Z web1 app - - - evil ahead"
    chunk = Chunk(
        "in", "auto", NOW, b"evil cut evil dup", array("I", [8, 17]), marks=((0, int(Flag.CUT)), (8, int(Flag.DUP)))
    )
    life.give(lines(ahead), chunk)
    clamped, cut, dup = life.live().alerts()
    assert (clamped.event_time, clamped.flags) == (NOW, ("clamped_time",))
    assert (cut.event_time, cut.flags, cut.host) == (NOW, ("cut",), "web9")
    assert dup.flags == ("dup",)


def test_memory_above_its_budget(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """Above ``max_memory`` there is no cache and frames are read back from disk, with the same alerts; below, it is as
    before. Both are logged."""
    life = begin(engine("evil"), cache=True)
    one, cache = life.pipeline, lambda: life.pipeline.evaluator.engine.cache
    assert cache().on
    monkeypatch.setattr(pipeline, "MEMORY_SECONDS", 0.0)
    used, looks = [10 << 30], 0

    def resident() -> int:
        nonlocal looks
        looks += 1
        return used[0]

    monkeypatch.setattr(pipeline, "resident", resident)

    async def work() -> None:
        await eventually("pressure", lambda: one.memory_pressure)
        assert not cache().on
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil one"), lines(b"<13>Nov 21 02:40:00 web1 app: evil two"))
        assert one.ingest._recent_bytes == 0
        used[0] = life.context.config.agent.max_memory - 1  # not yet below what is enough
        before = looks
        await eventually("two further looks", lambda: looks >= before + 2)
        assert one.memory_pressure
        used[0] = 1 << 20
        await eventually("its end", lambda: not one.memory_pressure)
        assert cache().on

    assert [text[-3:] for _, text in life.live(work).titled()] == ["one", "two"]
