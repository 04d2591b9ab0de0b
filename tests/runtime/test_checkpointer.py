"""One transaction per batch over a real store: whole, never past the disk, tried again."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.life import NOW, Life, engine, lines
from tests.rawlog.samples import noise
from tests.waits import DEADLINE, eventually, pauses
from vedette.delivery import envelope
from vedette.model.counters import Dropped
from vedette.rawlog import checkpoint
from vedette.runtime.pipeline.account import broken
from vedette.runtime.pipeline.failures import QUARANTINED
from vedette.runtime.strict.account import Sent
from vedette.store.rebuild import open_store


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


def test_a_full_outbox_stops_judging_only(begin: Callable[..., Life]) -> None:
    """With the outbox at its budget events are stored on and wait; receipts let judging go on, and none is missing."""
    life = begin(engine("evil"), outbox_bytes=2000)

    async def work() -> None:
        for i in range(50):
            life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil %d" % i))
            await asyncio.sleep(0)
        await eventually("a full outbox", lambda: life.outbox.bytes >= 2000)
        assert life.pipeline.checkpointer.full
        for _ in range(2):
            await life.pipeline.checkpointer.commit()
        assert life.pipeline.backlog["in"] > 20
        assert life.counters.stored["in"] == 50
        seen: set[str] = set()
        for pause in pauses():
            pending = life.outbox.pending(0, 1000)
            seen |= {envelope.decode(data).raw for _, data in pending}
            await life.outbox.receipt([(seq, seq) for seq, _ in pending])
            if len(seen) == 50:
                break
            await asyncio.sleep(pause)

    life.live(work)
    assert life.outbox.account().receipted == 50


def test_a_stop_that_does_not_wait_for_its_commit(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """When the time for evaluating is over in the middle of a commit, that ends by itself, and another may follow."""
    life = begin(engine("evil"))
    commit, under_way, goes_on = life.store.commit, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        under_way.set()
        assert goes_on.wait(DEADLINE)
        return commit(*arguments)

    async def main() -> None:
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil"))
        running = asyncio.create_task(life.pipeline.run())
        await eventually("a commit", lambda: 0 < life.log.end == life.context.progress.committed)
        running.cancel()
        await asyncio.wait([running])
        monkeypatch.setattr(life.store, "commit", slow)
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil"))
        draining = asyncio.create_task(life.pipeline.drain(0.0))
        await asyncio.to_thread(under_way.wait, DEADLINE)
        draining.cancel()
        await asyncio.wait([draining])
        goes_on.set()
        await life.pipeline.checkpointer.commit()

    asyncio.run(main())
    assert life.context.progress.committed == life.context.progress.evaluated > 0


def test_damage_in_the_store_stops_the_agent(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no matter of trying again ends ``run`` with its error, and nothing of the batch counts as committed."""
    life = begin(engine("evil"))

    def fail(*_: Any) -> None:
        raise ValueError("the store is damaged")

    monkeypatch.setattr(life.store, "commit", fail)

    async def main() -> None:
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil"))
        await asyncio.wait_for(life.pipeline.run(), DEADLINE)

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert caught.group_contains(ValueError, match="is damaged")
    assert life.store.load().cursor is None


def test_nothing_is_committed_after_a_failure(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end, when there is no time to try again, no later commit moves the cursor past the alerts of one that
    failed; the next life makes them all."""
    life = begin(engine("evil"))
    life.pipeline.checkpointer.patient = False
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
            for frame in life.pipeline.ingest.frames():
                await life.pipeline.evaluator.frame(frame)
            with pytest.raises(OSError, match="no space left"):
                await life.pipeline.checkpointer.commit()

    asyncio.run(main())
    assert life.store.load().cursor is None
    monkeypatch.undo()
    assert [text[-3:] for _, text in begin(engine("evil")).live().titled()] == ["one", "two"]


def test_a_list_that_cannot_be_stored(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule goes into quarantine with a commit; where the disk takes the batch and not the list, the batch is not
    committed a second time, and the list is tried again."""
    monkeypatch.setattr("vedette.runtime.pipeline.checkpointer.RETRY_SECONDS", 0)
    life = begin(evil := engine("evil"))
    put, refused = life.store.put, list[str]()

    def takes_it_the_second_time(name: str, value: Any) -> None:
        if name == QUARANTINED and not refused:
            refused.append(name)
            raise OSError(28, "no space left", "store")
        put(name, value)

    monkeypatch.setattr(life.store, "put", takes_it_the_second_time)
    life.context.failures.quarantine(evil.plan.rules[0], 10, "too long", NOW)

    async def main() -> None:
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil"))
        for frame in life.pipeline.ingest.frames():
            await life.pipeline.evaluator.frame(frame)
        await life.pipeline.checkpointer.commit()

    asyncio.run(main())
    assert (len(life.titled()), refused) == (1, [QUARANTINED])
    assert life.store.get(QUARANTINED) == life.context.failures.quarantined != {}


async def test_no_commit_in_the_middle(begin: Callable[..., Life]) -> None:
    """While state and alerts are ahead of the cursor a commit waits, with nothing taken."""
    life = begin(engine("evil"))
    checkpointer = life.pipeline.checkpointer
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil"))
    for frame in life.pipeline.ingest.frames():
        await life.pipeline.evaluator.frame(frame)
    checkpointer.hold()
    commit = asyncio.create_task(checkpointer.commit())
    await asyncio.wait([commit], timeout=0)
    assert (len(checkpointer.alerts), commit.done()) == (1, False)
    checkpointer.let_go()
    await commit
    assert (checkpointer.alerts, len(life.titled())) == ([], 1)


@pytest.mark.long
def test_a_frame_of_many_alerts_is_committed_in_parts(
    begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame whose alerts are far over the outbox's budget: judged in parts as receipts make room, also after a
    crash in the middle of the frame; each alert once, and the account adds up all the way."""
    monkeypatch.setattr("vedette.runtime.pipeline.uncommitted.COMMIT_BYTES", 4000)
    words = [f"evil{i}" for i in range(10)]
    events = [f"<13>Nov 21 02:40:00 web1 app: {i} {' '.join(words)}".encode() for i in range(200)]
    life = begin(engine(*words), outbox_bytes=20_000)
    seen: list[tuple[str, str]] = []

    async def crash() -> None:
        life.give(lines(*events))
        task = asyncio.create_task(life.pipeline.run())
        await eventually("a full outbox", lambda: life.outbox.bytes >= 20_000)
        for _ in range(2):
            await life.pipeline.checkpointer.commit()
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
        for pause in pauses():
            pending = life.outbox.pending(0, 1000)
            seen.extend((alert.rule_id, alert.raw) for alert in map(envelope.decode, dict(pending).values()))
            await life.outbox.receipt([(seq, seq) for seq, _ in pending])
            if len(seen) >= 2000:
                break
            await asyncio.sleep(pause)

    life.live(receipt)
    assert len(seen) == len(set(seen)) == 2000
    assert life.counters.judged["in"] == 200


def test_counters_alone_are_committed_too(begin: Callable[..., Life]) -> None:
    """A drop, which leaves nothing in the log, survives a stop and a start."""
    life = begin(engine("evil"))
    life.counters.drop("in", Dropped.FRAMING)
    life.live()
    assert begin(engine("evil")).counters.dropped["in", Dropped.FRAMING] == 1


def test_alerts_that_wait_over_a_start_are_not_settled(begin: Callable[..., Life]) -> None:
    """A life that begins with alerts without a receipt notes no place after them, until they have one."""
    first = begin(engine("evil"))
    first.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil"))
    first.live()
    (waiting,) = first.alerts()
    for receipted in (False, True):
        life = begin(engine("evil"))

        async def work(life: Life = life, receipted: bool = receipted) -> None:
            if receipted:
                await life.outbox.receipt([(1, waiting.seq)])
            for _ in range(2):
                life.give(lines(b"<13>Nov 21 02:40:00 web1 app: fine"))
                await asyncio.sleep(0)
                await eventually("evaluation", lambda: life.context.progress.caught_up)
                await life.pipeline.checkpointer.commit()
            cursor = checkpoint.decode(life.context.restart.describe()).cursor
            if receipted:
                assert cursor is not None
                assert cursor.offset > waiting.raw_ref.offset
            else:
                assert cursor is None or cursor.offset <= waiting.raw_ref.offset

        life.live(work)


def test_the_settled_place(begin: Callable[..., Life]) -> None:
    """A segment's checkpoint says how far every alert has its receipt, with the counters of that commit; alerts without
    one hold it back."""
    life = begin(engine("evil"), segment_bytes=4096)
    one = life.pipeline
    places = []

    async def commit(*texts: bytes) -> int:
        for text in texts:
            life.give(lines(b"<13>Nov 21 02:40:00 web1 app: " + text))
        await eventually("evaluation", lambda: life.context.progress.evaluated >= life.log.end)
        await one.checkpointer.commit()
        told = checkpoint.decode(life.context.restart.describe())
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


def test_rows_of_a_strict_set_hold_the_place_back(begin: Callable[..., Life]) -> None:
    """While rows of a strict set wait to be alerts, no later place is noted: a store made again there would not have
    them."""
    life = begin(engine("evil"))
    account = life.context.isolate().begin("set", 0, 1 << 30)
    places = []

    async def commit(rows_wait: bool) -> None:
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: good"))
        await eventually("evaluation", lambda: life.context.progress.evaluated >= life.log.end)
        counters = account.counters.snapshot()
        counters["inputs"]["in"]["judged"] += account.progress.backlog["in"]
        done = asyncio.get_running_loop().create_future()
        sent = Sent(account, life.log.end, counters, [], b"", False, False, None, rows_wait, done)
        life.pipeline.checkpointer.take_sent(sent)
        await life.pipeline.checkpointer.commit()
        told = checkpoint.decode(life.context.restart.describe())
        assert told.cursor is not None
        places.append((told.cursor.offset, life.log.end))

    async def work() -> None:
        for rows_wait in (False, True, True, False):
            await commit(rows_wait)

    life.live(work)
    (first, end), held, also, (last, last_end) = places
    assert (first, held[0], also[0], last) == (end, end, end, last_end)
    assert end < held[1] < also[1] < last_end


def rebuilt(folder: Path, shown: dict[str, Any] | None) -> None:
    """The store in ``folder`` is lost and made again."""
    shutil.rmtree(folder / "store")
    known = None if shown is None else {"store": "", "commits": 0, "totals": shown}
    made = open_store(folder / "store", folder / "raw", map_bytes=1 << 24, clock=lambda: NOW, reported=known)
    made.close()


def figures(life: Life) -> tuple[int, int, int, int]:
    """Made, receipted, in the outbox, lost; they add up."""
    account = life.outbox.account()
    assert broken(life.pipeline) == []
    return account.made, account.receipted, account.entries, account.lost


def test_alerts_of_a_lost_store_are_lost_until_they_are_made_again(begin: Callable[..., Life], tmp_path: Path) -> None:
    """Nobody has receipted them: so they count, over a second loss too, and new alerts take none of them back."""
    life = begin(engine("evil"))
    life.give(*(lines(b"<13>Nov 21 02:40:00 web1 app: evil %d" % i) for i in range(10)))
    life.live()
    assert figures(life) == (10, 0, 10, 0)
    life.end()
    shown = dict(life.counters.totals)
    for _ in range(2):
        rebuilt(tmp_path, shown)
        life.end = lambda: None  # type: ignore[method-assign]
        life = begin(engine("evil"), certain=False)
        assert figures(life) == (10, 0, 0, 10)
        life.live()
        assert figures(life) == (10, 0, 10, 0)
        life.end()
    rebuilt(tmp_path, {**shown, "alerts_made": 12, "alerts_receipted": 3})
    life.end = lambda: None  # type: ignore[method-assign]
    life = begin(engine("evil"), certain=False)
    assert figures(life) == (12, 3, 0, 9)
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil new"))
    life.live()
    assert figures(life) == (12 + 3 + 1, 3, 11, 2)
    life = begin(engine("evil"))
    assert figures(life.live()) == (16, 3, 11, 2)


def test_alerts_of_another_log_are_new(begin: Callable[..., Life], tmp_path: Path) -> None:
    """With the store the raw log was lost: what comes then takes none of the lost alerts back, wherever it lies."""
    life = begin(engine("evil"))
    life.give(*(lines(b"<13>Nov 21 02:40:00 web1 app: evil %d" % i) for i in range(10)))
    life.live()
    life.end()
    rebuilt(tmp_path, dict(life.counters.totals))
    shutil.rmtree(tmp_path / "raw")
    life.end = lambda: None  # type: ignore[method-assign]
    life = begin(engine("evil"), certain=False)
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: evil new"))
    life.live()
    assert figures(life) == (11, 0, 1, 10)


def test_what_was_receipted_of_a_lost_store_is_known_by_its_note(begin: Callable[..., Life], tmp_path: Path) -> None:
    """Without what was shown, the newest segment's checkpoint says how many alerts were made and had their receipt."""
    small = {"segment_bytes": 10_000, "max_bytes": 1 << 20}
    life = begin(engine("evil"), **small)

    async def work() -> None:
        for begun, upto in ((0, 6), (6, 10)):
            life.give(*(lines(b"<13>Nov 21 02:40:00 web1 app: evil %d" % i) for i in range(begun, upto)))
            await eventually("alerts", lambda alerts=upto - begun: life.outbox.account().entries >= alerts)
            if not begun:
                await life.outbox.receipt([(1, 6)])
                life.give(lines(b"nothing"))
                await eventually("evaluation", lambda: life.context.progress.caught_up)
            await life.pipeline.checkpointer.commit()  # with nothing in the outbox, then with four alerts
        life.give(*(lines(noise(i)) for i in range(20)))

    life.live(work)
    assert figures(life) == (10, 6, 4, 0)
    life.end()
    rebuilt(tmp_path, None)
    life.end = lambda: None  # type: ignore[method-assign]
    life = begin(engine("evil"), certain=False, **small)
    assert figures(life) == (10, 6, 0, 4)
    assert figures(life.live()) == (10, 6, 4, 0)
