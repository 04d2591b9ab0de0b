"""The pipeline over a real raw log and a real store: judged once, committed whole, replayed after a crash."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from random import Random
from typing import Any

import pytest

from vedette import compile_rules, pipeline
from vedette.config import AgentSettings, EngineSettings, RawLogSettings, StateSettings
from vedette.engine.match import Context, Engine
from vedette.event import Alert, Chunk, Entity, FilePosition, Flag, LogSource
from vedette.outbox import envelope
from vedette.outbox.queue import Outbox
from vedette.pipeline import Pipeline
from vedette.rawlog import note
from vedette.rawlog.log import RawLog
from vedette.rawlog.read import event_at
from vedette.report import Counters, Dropped
from vedette.store import Store

NOW = 1_795_228_874_000_000
"""2026-11-21T02:41:14Z"""
AGENT = AgentSettings(id="a1", site="s1", fleet="f1")
RULE = """
title: Marker {word}
id: 6a1f0000-0000-4000-8000-{number:012}
tags: [attack.t1110]
logsource: {{product: linux}}
detection:
    keywords: ['{word}']
    condition: keywords
level: low
"""


def engine(*words: str) -> Engine:
    """Rules that each find one word; the number in the id is the word's place."""
    return Engine(compile_rules(text="---".join(RULE.format(word=word, number=i) for i, word in enumerate(words))))


def lines(*events: bytes, name: str = "in", **fields: Any) -> Chunk:
    return Chunk(name, "syslog", NOW, b"".join(event + b"\n" for event in events), **fields)


class Life:
    """A pipeline in a folder, from start to end or to a crash; the folder is all that the next one gets."""

    def __init__(self, folder: Path, judge: Engine, **settings: Any) -> None:
        self.folder = folder
        self.counters = Counters()
        self.later = 7
        """Microseconds by which the clock is after NOW."""
        self.writer = ThreadPoolExecutor(1)
        self.store = Store.open(folder / "store")
        limits = {"max_bytes": 1 << 30, "segment_bytes": 64 << 20, **settings}
        self.log = RawLog.open(
            folder / "raw",
            RawLogSettings(max_bytes=limits["max_bytes"], segment_bytes=limits["segment_bytes"]),
            self.counters,
            committed=self.store.load().cursor,
        )
        self.outbox = Outbox(self.store, self.writer, self.counters)
        context = Context(UTC, LogSource("linux"), "web9")
        self.pipeline = Pipeline(
            AGENT, judge, {"in": context}, self.log, self.store, self.outbox, self.counters,
            self.writer, lambda: NOW + self.later, fsync_interval=0.02,
            outbox_bytes=limits.get("outbox_bytes", 1 << 28), state=StateSettings(), suppress=(),
        )  # fmt: skip

    def give(self, *chunks: Chunk) -> None:
        """As an input's door does."""
        for chunk in chunks:
            self.counters.received[chunk.input] += len(chunk)
            self.pipeline.store(chunk)

    def live(self, work: Callable[[], Awaitable[Any]] | None = None) -> Life:
        """Run, do ``work``, judge and commit all, end."""

        async def main() -> None:
            task = asyncio.create_task(self.pipeline.run())
            if work is not None:
                await work()
            await self.pipeline.drain(5.0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert self.counters.identity(self.pipeline.backlog) == []
        return self

    def end(self) -> None:
        """Also what a crash leaves behind, when nothing was committed before."""
        self.writer.shutdown()
        self.log.close()
        self.store.close()

    def alerts(self) -> list[Alert]:
        return [envelope.decode(data) for _, data in self.outbox.pending(0, 10_000)]

    def found(self) -> list[tuple[str, str]]:
        """Title and text of each alert, in order."""
        return [(alert.rule_title, alert.raw) for alert in self.alerts()]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Life]]:
    """Starts a life in the test's folder; the one before is over then."""
    lives: list[Life] = []

    def start(judge: Engine, **settings: Any) -> Life:
        for life in lives:
            life.end()
        lives[:] = [Life(tmp_path, judge, **settings)]
        return lives[0]

    yield start
    for life in lives:
        life.end()


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


def test_a_burst_is_judged_from_the_disk(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks beyond what is kept in memory are judged too, each once and in order."""
    monkeypatch.setattr(pipeline, "MEMORY", 500)
    life = begin(engine("evil"))
    chunks = [lines(b"<13>Nov 21 02:40:00 web1 app: evil %d" % i) for i in range(100)]

    async def trickle() -> None:
        life.give(*chunks[:40])
        for chunk in chunks[40:]:
            life.give(chunk)
            await asyncio.sleep(0)

    life.live(trickle)
    assert [raw.rpartition(" ")[2] for _, raw in life.found()] == [str(i) for i in range(100)]


def test_a_switch_between_frames(begin: Callable[..., Life]) -> None:
    """Every event is judged under the old or the new plan, none under both or neither; the bundle is the alert's."""
    old, new = engine("evil", "old"), engine("evil", "new")
    life = begin(old)
    events = [lines(b"<13>Nov 21 02:40:00 web1 app: evil old new %d" % i) for i in range(200)]

    async def change() -> None:
        for i, chunk in enumerate(events):
            if i == 100:
                life.pipeline.switch(new, "b-2")
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


def test_a_crash_before_the_commit(begin: Callable[..., Life]) -> None:
    """What was judged and not committed is judged again after the crash under the same alert ids; counters, backlog and
    file positions come from the log."""
    position = FilePosition("/var/log/a", 5, "ab", 77)
    life = begin(engine("evil"))
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil one"))
    first = life.live().alerts()
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil two", b"x", file=position))
    for frame in life.pipeline._frames():
        asyncio.run(life.pipeline._judge_frame(frame))
    assert life.pipeline.uncommitted(life.outbox.account().next_seq) == 1
    lost = [envelope.decode(data) for _, data in life.pipeline._alerts]

    life = begin(engine("evil"))
    assert life.counters.received == life.counters.stored == {"in": 3}
    assert (life.counters.judged["in"], life.pipeline.backlog["in"]) == (1, 2)
    assert list(life.pipeline.positions.values()) == [position]
    again = life.live().alerts()
    assert again == first + lost
    assert life.counters.judged == {"in": 3}
    assert life.store.load().positions

    life = begin(engine("evil")).live()
    assert life.alerts() == again


def test_nothing_is_committed_past_the_disk(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit syncs the log that far first."""
    life = begin(engine("evil"))
    order: list[str] = []
    sync, commit = life.log.sync, life.store.commit

    def spy(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            order.append(f"{name} {life.log.durable}")
            return call(*arguments)

        return called

    monkeypatch.setattr(life.log, "sync", spy("sync", sync))
    monkeypatch.setattr(life.store, "commit", spy("commit", commit))
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil"))
    life.live()
    assert order[0] == "sync 0"
    assert f"commit {life.log.end}" in order
    assert "commit 0" not in order


def test_durable_waits_for_the_disk(begin: Callable[..., Life]) -> None:
    """What an input waits for before it acknowledges is on disk then; many that wait share few syncs."""
    life = begin(engine("evil"))

    async def work() -> None:
        async def one(i: int) -> None:
            end = life.pipeline.store(lines(b"event %d" % i))
            life.counters.received["in"] += 1
            await life.pipeline.durable(end)
            assert life.log.durable >= end

        await asyncio.wait_for(asyncio.gather(*map(one, range(200))), 5)

    life.live(work)
    assert life.log.durable == life.log.end


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


def test_a_full_disk_pauses_the_inputs(begin: Callable[..., Life]) -> None:
    """At the disk budget inputs are told to wait; once judged segments could go they may go on, and none is lost."""
    life = begin(engine("evil"), max_bytes=1 << 20, segment_bytes=64 << 10, outbox_bytes=0)  # 0: judges one frame only
    noise = Random(1)

    async def work() -> None:
        async with asyncio.timeout(20):
            while life.pipeline.accepting():
                life.give(lines(noise.randbytes(30_000).replace(b"\n", b" ")))
                await asyncio.sleep(0.005)
            assert life.log.start == 0
            life.pipeline._outbox_bytes = 1 << 30
            await life.pipeline.ready()
        assert life.pipeline.accepting()

    life.live(work)
    assert life.log.start > 0
    assert life.counters.judged["in"] == life.counters.stored["in"] > 20


def test_a_full_outbox_stops_judging_only(begin: Callable[..., Life]) -> None:
    """With the outbox at its budget events are stored on and wait; receipts let judging go on, and none is missing."""
    life = begin(engine("evil"), outbox_bytes=2000)

    async def work() -> None:
        for i in range(50):
            life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil %d" % i))
            await asyncio.sleep(0.005)
        assert life.pipeline.backlog["in"] > 20
        assert life.counters.stored["in"] == 50
        seen: set[str] = set()
        async with asyncio.timeout(20):
            while len(seen) < 50:
                pending = life.outbox.pending(0, 1000)
                seen |= {envelope.decode(data).raw for _, data in pending}
                await life.outbox.receipt([(seq, seq) for seq, _ in pending])
                await asyncio.sleep(0.05)

    life.live(work)
    assert life.outbox.account().receipted == 50


def test_a_store_that_fails_is_tried_again(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that fails is tried again until it is taken: told once as trouble, each alert is committed once."""
    monkeypatch.setattr(pipeline, "RETRY_SECONDS", 0.02)
    life = begin(engine("evil"))
    commit, tries = life.store.commit, []

    def fail(*arguments: Any) -> None:
        tries.append(life.pipeline.trouble.status())
        if len(tries) <= 3:
            raise OSError(28, "no space left", "store")
        commit(*arguments)

    monkeypatch.setattr(life.store, "commit", fail)

    async def work() -> None:
        for text in (b"one", b"two"):
            life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil " + text))
        while len(tries) < 4:
            await asyncio.sleep(0.01)

    assert [text[-3:] for _, text in life.live(work).found()] == ["one", "two"]
    assert tries[0] == {}
    assert "no space left" in tries[3]["store"]["reason"]
    assert not life.pipeline.trouble


def test_damage_in_the_store_stops_the_agent(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no matter of trying again ends ``run`` with its error, and nothing of the batch counts as committed."""
    life = begin(engine("evil"))

    def fail(*_: Any) -> None:
        raise ValueError("the store is damaged")

    monkeypatch.setattr(life.store, "commit", fail)

    async def main() -> None:
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil"))
        await asyncio.wait_for(life.pipeline.run(), 5)

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert caught.group_contains(ValueError, match="is damaged")
    assert life.store.load().cursor is None


def test_nothing_is_committed_after_a_failure(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end, when there is no time to try again, no later commit moves the cursor past the alerts of one that
    failed; the next life makes them all."""
    life = begin(engine("evil"))
    life.pipeline._patient = False
    commit, failed = life.store.commit, []

    def fail_once(*arguments: Any) -> None:
        if not failed:
            failed.append(True)
            raise OSError(28, "no space left", "store")
        commit(*arguments)

    monkeypatch.setattr(life.store, "commit", fail_once)

    async def main() -> None:
        for text in (b"one", b"two"):
            life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil " + text))
            for frame in life.pipeline._frames():
                await life.pipeline._judge_frame(frame)
            with pytest.raises(OSError, match="no space left"):
                await life.pipeline._commit()

    asyncio.run(main())
    assert life.store.load().cursor is None
    monkeypatch.undo()
    assert [text[-3:] for _, text in begin(engine("evil")).live().found()] == ["one", "two"]


def test_a_frame_of_many_alerts_is_committed_in_parts(
    begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame whose alerts are far over the outbox's budget: judged in parts as receipts make room, also after a
    crash in the middle of the frame; each alert once, and the account adds up all the way."""
    monkeypatch.setattr("vedette.pipeline.COMMIT_BYTES", 4000)
    words = [f"evil{i}" for i in range(10)]
    events = [f"<13>Nov 21 02:40:00 web1 app: {i} {' '.join(words)}".encode() for i in range(200)]
    life = begin(engine(*words), outbox_bytes=20_000)
    seen: list[tuple[str, str]] = []

    async def crash() -> None:
        life.give(lines(*events))
        task = asyncio.create_task(life.pipeline.run())
        async with asyncio.timeout(20):
            while life.outbox.bytes < 20_000:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert life.outbox.bytes < 40_000
        assert life.counters.identity(life.pipeline.backlog) == []
        assert 0 < life.pipeline.backlog["in"] < 200
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(crash())
    life = begin(engine(*words), outbox_bytes=20_000)
    assert life.counters.identity(life.pipeline.backlog) == []
    assert 0 < life.pipeline.backlog["in"] < 200

    async def receipt() -> None:
        async with asyncio.timeout(20):
            while len(seen) < 2000:
                pending = life.outbox.pending(0, 1000)
                seen.extend((alert.rule_id, alert.raw) for alert in map(envelope.decode, dict(pending).values()))
                await life.outbox.receipt([(seq, seq) for seq, _ in pending])
                await asyncio.sleep(0.01)

    life.live(receipt)
    assert len(seen) == len(set(seen)) == 2000
    assert life.counters.judged["in"] == 200


def test_judging_gives_way(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that takes long to judge does not hold the loop."""
    life = begin(engine("evil"))
    matches = life.pipeline.engine.matches

    def slow(*arguments: Any) -> Any:
        time.sleep(0.002)
        return matches(*arguments)

    monkeypatch.setattr(life.pipeline.engine, "matches", slow)
    longest = 0.0

    async def work() -> None:
        nonlocal longest
        life.give(lines(*[b"<13>Nov 21 02:40:00 web1 app: evil"] * 300))
        while life.pipeline.backlog["in"]:
            before = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - before)

    life.live(work)
    assert len(life.alerts()) == 300
    assert longest < 0.3  # 0.6 s in one step without giving way


def test_a_poisonous_event_is_set_aside(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """An event on which judging raises is counted and told; the others are judged, and seqs have no gap."""
    life = begin(engine("evil"))
    matches = life.pipeline.engine.matches

    def poisoned(chunk: Chunk, candidate: Any, context: Any) -> Any:
        if b"poison" in chunk.data[candidate.start : candidate.end]:
            raise RecursionError("too deep")
        return matches(chunk, candidate, context)

    monkeypatch.setattr(life.pipeline.engine, "matches", poisoned)
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil 1", b"<13>x: evil poison", b"<13>x: evil 2"))
    life.live()
    assert [alert.seq for alert in life.alerts()] == [1, 2]
    assert life.counters.totals["poisoned"] == 1
    assert life.counters.judged["in"] == 3


def test_counters_alone_are_committed_too(begin: Callable[..., Life]) -> None:
    """A drop, which leaves nothing in the log, survives a stop and a start."""
    life = begin(engine("evil"))
    life.counters.drop("in", Dropped.FRAMING)
    life.live()
    assert begin(engine("evil")).counters.dropped["in", Dropped.FRAMING] == 1


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


def told(alerts: list[Alert]) -> list[tuple[str, int, str]]:
    return [(alert.rule_title, alert.raw_ref.offset, alert.raw) for alert in alerts]


def test_audit_records_in_several_frames(begin: Callable[..., Life], tmp_path: Path) -> None:
    """Their event makes one alert: at the place of its first record, with the text of all; the account holds while it
    waits, and its records count as judged."""
    life = begin(audit_engine())
    records = audit_event(1)

    async def work() -> None:
        for i, one in enumerate(records):
            life.give(lines(b"x", one))
            while life.pipeline.backlog["in"]:
                await asyncio.sleep(0.001)
            assert life.counters.identity(life.pipeline.backlog) == []
            assert life.counters.judged["in"] == 2 * i + 2
            audit = life.pipeline.alerting.memory.status()["audit"]
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
        life.later = later
        life.pipeline._tick()
        life.live()
        assert counts() == [3] * known


def test_audit_events_over_crashes(tmp_path: Path) -> None:
    """Killed after any frame, committed or not, the next life makes the same alerts, each once, also those of a
    correlation, whose event is read back with all its records."""
    backup = [record.replace(b"/bin/sh", b"/bin/backup") for record in audit_event(3)]
    one, two = audit_event(1), audit_event(2)
    stream = [
        one[0],
        two[0],
        two[1],
        b"x",
        one[1],
        backup[1],
        one[2],
        two[2],
        backup[2],
        backup[0],
        one[3],
        two[3],
        backup[3],
    ]
    finish = Chunk("in", "json", NOW + 200_000_000, b"{}\n")

    def end(life: Life) -> list[tuple[str, int, str]]:
        for second in range(3, 150, 3):
            life.give(Chunk("in", "json", NOW + second * 1_000_000, b"{}\n"))
        life.give(finish)
        return told(life.live().alerts())

    life = Life(tmp_path / "whole", audit_engine())
    life.give(lines(*stream))
    expected = end(life)
    assert [title for title, _, _ in expected] == ["hidden file run", "hidden file run", "hidden twice"]
    assert expected[2][1:] == (len(one[0]) + 1, b"\n".join(two).decode())
    life.end()
    for at in range(len(stream)):
        for committed in (False, True):
            folder = tmp_path / f"{at}-{committed}"
            life = Life(folder, audit_engine())
            life.give(*(lines(record) for record in stream[:at]))
            life.live().end()
            life = Life(folder, audit_engine())
            life.give(lines(stream[at]))
            for frame in life.pipeline._frames():
                asyncio.run(life.pipeline._judge_frame(frame))
            if committed:
                asyncio.run(life.pipeline._commit())
            life.end()
            life = Life(folder, audit_engine())
            life.give(*(lines(record) for record in stream[at + 1 :]))
            assert end(life) == expected
            life.end()


def test_a_crash_within_a_frame_of_audit_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit in the middle of a frame remembers the events that are open there; gone on with from there, each event
    makes its alert once."""
    monkeypatch.setattr("vedette.pipeline.COMMIT_BYTES", 0)  # before each event
    events = [audit_event(i) for i in range(1, 6)]
    stream = [event[i] for i in range(4) for event in events]

    class Killed(BaseException):
        """Not an error of an event: nothing may go on."""

    for kill in range(1, 6):
        life = Life(tmp_path / str(kill), audit_engine())
        life.give(lines(*stream))
        judge, left = life.pipeline._judge_event, iter(range(kill - 1, -1, -1))

        def judge_some(*arguments: Any, judge: Any = judge, left: Iterator[int] = left) -> None:
            if not next(left):
                raise Killed
            judge(*arguments)

        monkeypatch.setattr(life.pipeline, "_judge_event", judge_some)
        (frame,) = [*life.log.frames(0)]
        with pytest.raises(Killed):
            asyncio.run(life.pipeline._judge_frame(frame))
        life.end()
        life = Life(tmp_path / str(kill), audit_engine())
        assert life.counters.identity(life.pipeline.backlog) == []
        assert len(life.alerts()) == kill - 1
        assert len(life.pipeline.alerting.memory.joiner) == 6 - kill
        found = [raw for title, _, raw in told(life.live().alerts()) if title == "hidden file run"]
        assert found == [b"\n".join(event).decode() for event in events]
        life.end()


def test_open_audit_events_meet_another_plan(begin: Callable[..., Life]) -> None:
    """An event that is open when the rules change is judged by the rules in force when it is complete."""
    life = begin(engine("nothing"))
    records = audit_event(1)
    life.give(lines(*records[:2]))

    async def change() -> None:
        while life.pipeline.backlog["in"]:
            await asyncio.sleep(0.001)
        life.pipeline.switch(audit_engine(), None)
        life.give(lines(*records[2:]))

    life.live(change)
    assert [title for title, _, _ in told(life.alerts())] == ["hidden file run"]


@pytest.mark.parametrize(("policy", "least", "most"), [("interval:50ms", 2, 30), ("batch", 10, 200), ("never", 0, 1)])
def test_when_the_log_is_synced(
    begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch, policy: str, least: int, most: int
) -> None:
    """``interval`` syncs so often, ``batch`` after each chunk that comes by itself, ``never`` not for its own sake; and
    under each of them what must be durable is."""
    life = begin(engine("evil"))
    life.pipeline._fsync_interval = RawLogSettings(fsync=policy).fsync_interval
    sync, syncs = life.log.sync, []
    monkeypatch.setattr(life.log, "sync", lambda: syncs.append(life.log.end) or sync())

    async def work() -> None:
        for number in range(20):
            life.give(lines(b"<13>Nov 21 02:40:00 web1 app: good %d" % number))
            await asyncio.sleep(0.02)
        assert least <= len(syncs) <= most
        end = life.log.end
        await life.pipeline.durable(end)
        assert life.log.durable >= end

    life.live(work)
    assert life.log.durable == life.log.end  # what is committed


def test_memory_above_its_budget(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """Above ``max_memory`` there is no cache and frames are judged from disk, with the same alerts; below, it is as
    before. Both are told."""
    life = begin(engine("evil"))
    one = life.pipeline
    one._judging = EngineSettings()
    one._give_cache(one.engine)
    assert one.engine.cache.on
    monkeypatch.setattr(pipeline, "MEMORY_SECONDS", 0.0)
    used = [10 << 30]
    monkeypatch.setattr(pipeline, "resident", lambda: used[0])

    async def work() -> None:
        while not one.lean:
            await asyncio.sleep(0.01)
        assert not one.engine.cache.on
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil one"), lines(b"<13>Nov 21 02:40:00 web1 app: evil two"))
        assert one._recent_bytes == 0
        used[0] = one._max_memory - 1  # not yet below what is enough
        await asyncio.sleep(0.5)
        assert one.lean
        used[0] = 1 << 20
        while one.lean:
            await asyncio.sleep(0.01)
        assert one.engine.cache.on

    assert [text[-3:] for _, text in life.live(work).found()] == ["one", "two"]


def test_the_settled_place(begin: Callable[..., Life]) -> None:
    """A segment's note says how far every alert has its receipt, with the counters of that commit; alerts without one
    hold it back."""
    life = begin(engine("evil"), segment_bytes=4096)
    one = life.pipeline
    places = []

    async def commit(*texts: bytes) -> int:
        for text in texts:
            life.give(lines(b"<13>Nov 21 02:40:00 web1 app: " + text))
        while one._offset < life.log.end:
            await asyncio.sleep(0.005)
        await one._commit()
        told = note.decode(one._describe())
        assert told.cursor is not None
        assert told.counters is not None
        judged = told.counters["inputs"].get("in", {"judged": 0})["judged"]
        places.append((told.cursor.offset, judged, told.next_seq))
        return life.log.end

    async def work() -> None:
        first = await commit(b"good", b"good")
        assert places[-1] == (first, 2, 1)
        second = await commit(b"evil 1")
        assert places[-1] == (first, 2, 2)
        await commit(b"evil 2", b"good")
        assert places[-1] == (first, 2, 3)
        await life.outbox.receipt([(1, 1)])
        await commit(b"good")
        assert places[-1][:2] == (second, 3)  # the first alert has its receipt, the second comes after that place
        await life.outbox.receipt([(2, 2)])
        last = await commit(b"good")
        assert places[-1] == (last, 7, 3)

    life.live(work)
