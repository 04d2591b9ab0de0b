"""Frames judged in order under one engine each; audit events, whose records come in several."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.life import NOW, Life, engine, lines
from tests.waits import eventually
from vedette import compile_rules
from vedette.delivery import envelope
from vedette.engine.match import Engine
from vedette.model.event import Alert, Chunk
from vedette.rawlog.read import event_at
from vedette.runtime.alerts import events
from vedette.runtime.alerts.alerts import AlertBuilder


def test_a_switch_between_frames(begin: Callable[..., Life]) -> None:
    """Every event is judged under the old or the new plan, none under both or neither; the bundle is the alert's."""
    old, new = engine("evil", "old"), engine("evil", "new")
    life = begin(old)
    events = [lines(b"<13>Nov 21 02:40:00 web1 app: evil old new %d" % i) for i in range(200)]

    async def change() -> None:
        for i, chunk in enumerate(events):
            if i == 100:
                life.pipeline.evaluator.switch(new, "b-2")
            life.give(chunk)
            if i % 10 == 0:
                await asyncio.sleep(0)

    life.live(change)
    by_event: dict[str, list[tuple[str, str | None]]] = {}
    for alert in life.alerts():
        by_event.setdefault(alert.raw.rpartition(" ")[2], []).append((alert.rule_title, alert.bundle))
    before = [("Marker evil", None), ("Marker old", None)]
    after = [("Marker evil", "b-2"), ("Marker new", "b-2")]
    assert len(by_event) == 200
    turns = [sorted(by_event[str(i)]) == after for i in range(200)]
    assert turns == sorted(turns)
    assert all(sorted(found) in (before, after) for found in by_event.values())


def test_what_changes_within_a_frame_goes_over_to_the_next_plan(
    begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that comes into quarantine, and a cache that is given up, between the order to switch and the switch."""
    new = engine("evil", "new")
    life = begin(engine("evil"), cache=True)
    evaluator, old = life.pipeline.evaluator, life.pipeline.evaluator.engine
    matches, seen = old.matches, []

    def change(*arguments: Any) -> Any:
        seen.append(arguments)
        if len(seen) == 1:
            life.pipeline.evaluator.switch(new, "b-2")
            old.quarantine([old.plan.rules[0].digest])
            evaluator.save_memory(True)
        return matches(*arguments)

    monkeypatch.setattr(old, "matches", change)
    life.give(lines(*[b"<13>Nov 21 02:40:00 web1 app: evil"] * 3), lines(b"<13>Nov 21 02:40:00 web1 app: evil new"))
    life.live()
    assert evaluator.engine is new
    assert [new.plan.rules[i].title for i in new.quarantined] == ["Marker evil"]
    assert [title for title, _ in life.titled()] == ["Marker new"]
    assert not old.cache.on
    assert not new.cache.on
    evaluator.save_memory(False)
    assert new.cache.on


def test_evaluation_gives_way(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop comes round after every few events of a frame that takes long."""
    life = begin(engine("evil"))
    matches = life.pipeline.evaluator.engine.matches

    def slow(*arguments: Any) -> Any:
        time.sleep(0.002)
        return matches(*arguments)

    monkeypatch.setattr(life.pipeline.evaluator.engine, "matches", slow)
    turns = 0

    async def work() -> None:
        nonlocal turns
        life.give(lines(*[b"<13>Nov 21 02:40:00 web1 app: evil"] * 60))
        while life.pipeline.backlog["in"]:
            await asyncio.sleep(0)
            turns += 1

    life.live(work)
    assert len(life.alerts()) == 60
    assert turns > 10


@pytest.mark.parametrize(
    ("owner", "name", "count", "rules"),
    [(AlertBuilder, "_alert", 60, 1), (AlertBuilder, "_alert", 1, 60), (events, "entities", 60, 1)],
)
def test_making_alerts_gives_way(
    owner: Any, name: str, count: int, rules: int, begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop comes round after every few alerts that take long, of many events or of one; no commit has a part."""
    life = begin(engine(*["evil"] * rules))
    quick, turns = getattr(owner, name), 0

    def slow(*arguments: Any, **settings: Any) -> Any:
        time.sleep(0.002)
        return quick(*arguments, **settings)

    monkeypatch.setattr(owner, name, slow)

    async def work() -> None:
        nonlocal turns
        life.give(lines(*[b"<13>Nov 21 02:40:00 web1 app: evil"] * count))
        while life.pipeline.backlog["in"]:
            life.pipeline.checkpointer.due.set()
            await asyncio.sleep(0)
            turns += 1
            assert len(life.alerts()) % rules == 0

    life.live(work)
    assert len(life.alerts()) == 60
    assert turns > 10


AUDIT = """
title: hidden file run
id: 6a1f0000-0000-4000-8000-0000000000a1
name: hidden
logsource: {product: linux, service: auditd}
fields: [exe]
detection:
  ran: {type: EXECVE, a1|contains: payload}
  file: {type: PATH, name|startswith: /tmp/hidden}
  known: {exe: /bin/backup}
  condition: ran and file and not known
---
title: hidden twice
id: 6a1f0000-0000-4000-8000-0000000000a2
correlation:
  type: event_count
  rules: [hidden]
  group-by: [name]
  timespan: 1m
  condition: {eq: 2}
  generate: true
"""
"""The correlation is decided later than its events come, so that its alert is about an event read back."""


def audit_event(number: int, more: str = "") -> list[bytes]:
    """The records of an event that matches."""
    bodies = (
        f'SYSCALL msg=audit({{}}): arch=c000003e exe="/bin/sh"{more}',
        'EXECVE msg=audit({}): a0="sh" a1="payload"',
        'PATH msg=audit({}): name="/tmp/hidden/x"',
        "PROCTITLE msg=audit({}): proctitle=6C73",
    )
    return [f"type={body.format(f'{NOW // 1_000_000}.{number:03}:{number}')}".encode() for body in bodies]


def audit_engine() -> Engine:
    return Engine(compile_rules(text=AUDIT))


def places_of(alerts: list[Alert]) -> list[tuple[str, int, str]]:
    return [(alert.rule_title, alert.raw_ref.offset, alert.raw) for alert in alerts]


def test_audit_records_in_several_frames(begin: Callable[..., Life], tmp_path: Path) -> None:
    """Their event makes one alert: at the place of its first record, with the text of all; the account holds while it
    waits, and its records count as judged."""
    life = begin(audit_engine())
    records = audit_event(1)

    async def work() -> None:
        for i, one in enumerate(records):
            life.give(lines(b"x", one))
            await eventually("evaluation", lambda: not life.pipeline.backlog["in"])
            assert life.counters.identity(life.pipeline.backlog) == []
            assert life.counters.judged["in"] == 2 * i + 2
            audit = life.pipeline.state.status()["audit"]
            assert audit["open"] == (i < 3)

    (alert,) = life.live(work).alerts()
    assert alert.raw == b"\n".join(records).decode()
    assert event_at(tmp_path / "raw", alert.raw_ref) == records[0]
    assert alert.alert_id == envelope.alert_id("a1", life.log.log_id, alert.rule_id, 2, "")
    assert alert.fields["exe"] == "/bin/sh"
    assert {"exe", "a1", "name"} <= set(alert.fields)


def test_time_completes_an_audit_event(begin: Callable[..., Life]) -> None:
    """An event without its last record is judged when another frame comes late enough, or the clock says so when none
    comes, also after a restart; not before."""

    def counts() -> list[int]:
        return [alert.raw.count("\n") + 1 for alert in life.alerts()]

    life = begin(audit_engine())
    life.give(lines(*audit_event(1)[:2]), lines(*audit_event(1)[2:3]))
    assert life.live().alerts() == []
    life = begin(audit_engine())
    life.give(*(Chunk("other", "json", NOW + later, b"{}\n") for later in (1_000_000, 2_000_000)))
    life.live()
    assert counts() == []
    life = begin(audit_engine())
    life.give(Chunk("other", "json", NOW + 2_000_001, b"{}\n"))
    life.live()
    assert counts() == [3]
    life = begin(audit_engine())
    life.give(Chunk("in", "syslog", NOW + 3_000_000, b"".join(one + b"\n" for one in audit_event(2)[:3])))
    life.live()
    for later, known in ((4_000_000, 1), (5_000_000, 1), (5_000_001, 2), (9_000_000, 2)):
        life = begin(audit_engine())
        life.clock.later = later
        asyncio.run(life.pipeline.evaluator.tick())
        life.live()
        assert counts() == [3] * known


def test_audit_events_over_crashes(tmp_path: Path) -> None:
    """Killed after any frame, committed or not, the next life makes the same alerts, each once, also those of a
    correlation, whose event is read back with all its records."""
    backup = [record.replace(b"/bin/sh", b"/bin/backup") for record in audit_event(3)]
    shell, other = audit_event(1), audit_event(2)
    stream = [
        shell[0],
        other[0],
        other[1],
        b"x",
        shell[1],
        backup[1],
        shell[2],
        other[2],
        backup[2],
        backup[0],
        shell[3],
        other[3],
        backup[3],
    ]
    finish = Chunk("in", "json", NOW + 200_000_000, b"{}\n")

    def end(life: Life) -> list[tuple[str, int, str]]:
        for second in range(3, 150, 3):
            life.give(Chunk("in", "json", NOW + second * 1_000_000, b"{}\n"))
        life.give(finish)
        return places_of(life.live().alerts())

    life = Life(tmp_path / "whole", audit_engine())
    life.give(lines(*stream))
    expected = end(life)
    assert [title for title, _, _ in expected] == ["hidden file run", "hidden file run", "hidden twice"]
    assert expected[2][1:] == (len(shell[0]) + 1, b"\n".join(other).decode())
    life.end()
    for at in range(len(stream)):
        for committed in (False, True):
            folder = tmp_path / f"{at}-{committed}"
            life = Life(folder, audit_engine())
            life.give(*(lines(record) for record in stream[:at]))
            life.live().end()
            life = Life(folder, audit_engine())
            life.give(lines(stream[at]))
            for frame in life.pipeline.ingest.frames():
                asyncio.run(life.pipeline.evaluator.frame(frame))
            if committed:
                asyncio.run(life.pipeline.checkpointer.commit())
            life.end()
            life = Life(folder, audit_engine())
            life.give(*(lines(record) for record in stream[at + 1 :]))
            assert end(life) == expected
            life.end()


def test_a_crash_within_a_frame_of_audit_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit in the middle of a frame remembers the events that are open there; gone on with from there, each event
    makes its alert once."""
    monkeypatch.setattr("vedette.runtime.pipeline.uncommitted.COMMIT_BYTES", 0)  # before each event
    events = [audit_event(i) for i in range(1, 6)]
    stream = [event[i] for i in range(4) for event in events]

    class Killed(BaseException):
        """Not an error of an event: nothing may go on."""

    for kill in range(1, 6):
        life = Life(tmp_path / str(kill), audit_engine())
        life.give(lines(*stream))
        judge, left = life.pipeline.evaluator.event, iter(range(kill - 1, -1, -1))

        def judge_some(*arguments: Any, judge: Any = judge, left: Iterator[int] = left) -> None:
            if not next(left):
                raise Killed
            judge(*arguments)

        monkeypatch.setattr(life.pipeline.evaluator, "event", judge_some)
        (frame,) = [*life.log.frames(0)]
        with pytest.raises(Killed):
            asyncio.run(life.pipeline.evaluator.frame(frame))
        life.end()
        life = Life(tmp_path / str(kill), audit_engine())
        assert life.counters.identity(life.pipeline.backlog) == []
        assert len(life.alerts()) == kill - 1
        assert len(life.pipeline.state.joiner) == 6 - kill
        found = [raw for title, _, raw in places_of(life.live().alerts()) if title == "hidden file run"]
        assert found == [b"\n".join(event).decode() for event in events]
        life.end()


def test_open_audit_events_meet_another_plan(begin: Callable[..., Life]) -> None:
    """An event that is open when the rules change is judged by the rules in force when it is complete."""
    life = begin(engine("nothing"))
    records = audit_event(1)
    life.give(lines(*records[:2]))

    async def change() -> None:
        await eventually("evaluation", lambda: not life.pipeline.backlog["in"])
        life.pipeline.evaluator.switch(audit_engine(), None)
        life.give(lines(*records[2:]))

    life.live(change)
    assert [title for title, _, _ in places_of(life.alerts())] == ["hidden file run"]
