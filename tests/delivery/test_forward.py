"""One sink at work, over a real store: what it does with each kind of answer, at its own pace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from tests.delivery.kit import NOW, Box, alert
from tests.looptime import forward
from tests.waits import eventually
from vedette.delivery.envelope import encode
from vedette.delivery.forward import MAX_TRIES, PROBES, Forwarder
from vedette.model.counters import Log
from vedette.sinks.base import Answer, Outgoing, Verdict
from vedette.sinks.settings import WebhookSink

TAKEN, AWAY = Answer(Verdict.TAKEN, "ok"), Answer(Verdict.LATER, "away")
QUICK = (0.001, 0.004)


class Scripted:
    """A receiver that answers as ``answer`` says, and keeps what it took."""

    batch = 5

    def __init__(self, answer: Callable[[Outgoing], Answer]) -> None:
        self.answer = answer
        self.accepted: list[int] = []
        self.asked: list[list[int]] = []

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        self.asked.append([one.seq for one in alerts])
        found = [self.answer(one) for one in alerts]
        self.accepted += [one.seq for one, said in zip(alerts, found, strict=True) if said.verdict is Verdict.TAKEN]
        return found

    async def close(self) -> None:
        pass


@asynccontextmanager
async def forwarding(
    tmp_path: Path, box: Box, answer: Callable[[Outgoing], Answer], **settings: Any
) -> AsyncIterator[tuple[Forwarder, Scripted, asyncio.Task[None]]]:
    receiver = Scripted(answer)
    made = WebhookSink("w", url="http://127.0.0.1:1", **settings)
    place = (await box.outbox.open_sinks(["w"]))["w"]
    forwarder = Forwarder(made, receiver, place, box.outbox, tmp_path / "sinks", lambda: NOW, backoff=QUICK)
    task = asyncio.create_task(forwarder.run())
    try:
        yield forwarder, receiver, task
    finally:
        await forwarder.stop(0.0, task)
        box.close()


def dead(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "sinks" / "w.ndjson").read_text().splitlines()]


async def test_all_that_is_made_is_delivered(tmp_path: Path) -> None:
    """In order, with a receipt or without, what was made before it runs and while it does."""
    box = Box(tmp_path / "store")
    await box.outbox.open_sinks(["w"])
    box.put(12)
    await box.outbox.receipt([(1, 4)])
    async with forwarding(tmp_path, box, lambda one: TAKEN) as (forwarder, receiver, _):
        await eventually("the alerts at the receiver", lambda: len(receiver.accepted) == 12)
        box.put(3)
        await eventually("the sink's place", lambda: forwarder.place.after == 15)
        assert receiver.accepted == list(range(1, 16))
        assert forwarder.state()["waiting"] == 0
        assert forwarder.place.delivered == 15


async def test_the_filter(tmp_path: Path) -> None:
    """Level, rules and tags must all fit; the place moves behind what is not wanted."""
    box = Box(tmp_path / "store")
    rows = [
        {},
        {"level": "low"},
        {"rule_id": "other"},
        {"tags": ("attack.t1110.001",)},
        {"level": "critical", "rule_id": "r1", "tags": ("x", "attack.t1110")},
        {"level": "made-up", "tags": ("attack.t1110",)},
    ]
    async with forwarding(
        tmp_path, box, lambda one: TAKEN, level="medium", rules=("r?",), tags=("attack.t1110*",)
    ) as (forwarder, receiver, _):  # fmt: skip
        box.put_bytes([(seq, encode(alert(seq, **row))) for seq, row in enumerate(rows, 1)])
        await eventually("the sink's place", lambda: forwarder.place.after == len(rows))
        assert receiver.accepted == [4, 5, 6]


async def test_a_receiver_that_is_away(tmp_path: Path) -> None:
    """Its alerts wait and come when it is back; the log says once that it is away and once that it is back."""
    box, away = Box(tmp_path / "store"), True
    with capture_logs() as logged:
        async with forwarding(tmp_path, box, lambda one: AWAY if away else TAKEN) as (forwarder, receiver, _):
            box.put(20)
            await eventually("further tries", lambda: len(receiver.asked) > 30)
            state = forwarder.state()
            assert (state["failing"], state["error"], state["waiting"], state["since"]) == (True, "away", 20, NOW)
            assert forwarder.place.after == 0
            away = False
            await eventually("the sink's place", lambda: forwarder.place.after == 20)
            assert sorted(receiver.accepted) == list(range(1, 21))
            assert not forwarder.state()["failing"]
    assert [one["event"] for one in logged] == [Log.SINK_FAILING, Log.SINK_RECOVERED]


async def test_an_alert_that_never_works(tmp_path: Path) -> None:
    """It becomes a dead letter after so many failures while others were taken, and holds none of these up; as long as
    none is taken the receiver counts as away, however long that is."""
    box, away = Box(tmp_path / "store"), True
    async with forwarding(
        tmp_path, box, lambda one: AWAY if away or one.seq == 2 else TAKEN
    ) as (forwarder, receiver, _):  # fmt: skip
        box.put(3)
        await eventually("further tries", lambda: len(receiver.asked) > 3 * MAX_TRIES)
        assert forwarder.place.refused == 0
        away = False
        await eventually("the alerts at the receiver", lambda: receiver.accepted == [1, 3])
        assert forwarder.place.after == 1
        while forwarder.place.refused == 0:
            box.put(1)
            await eventually("the alerts at the receiver", lambda: box.next - 1 in receiver.accepted)
            await asyncio.sleep(0.005)
        assert sum(2 in one for one in receiver.asked) > MAX_TRIES
        (row,) = dead(tmp_path)
        assert (row["seq"], row["alert_id"]) == (2, alert(2).alert_id)
        assert row["refused"] == {"reason": f"failed {MAX_TRIES} times while others were taken: away", "at": NOW}
        await eventually("the sink's place", lambda: forwarder.place.after == box.next - 1)


async def test_as_many_as_a_batch_that_never_work(tmp_path: Path) -> None:
    """They hold nothing up: newer ones are delivered beside them, and each becomes a dead letter; while nothing at all
    is taken no more than PROBES are read beyond a batch."""
    box, away = Box(tmp_path / "store"), True
    bad = 3 * Scripted.batch
    async with forwarding(
        tmp_path, box, lambda one: AWAY if away or one.seq <= bad else TAKEN
    ) as (forwarder, receiver, _):  # fmt: skip
        box.put(bad + PROBES + 100)
        await eventually("further tries", lambda: len(receiver.asked) > 2 * PROBES)
        assert max(map(len, receiver.asked)) <= Scripted.batch + PROBES
        assert forwarder.place.refused == 0
        away = False
        while forwarder.place.refused < bad:
            box.put(1)
            await eventually("the alerts at the receiver", lambda: box.next - 1 in receiver.accepted)
        assert sorted(row["seq"] for row in dead(tmp_path)) == list(range(1, bad + 1))
        await eventually("the sink's place", lambda: forwarder.place.after == box.next - 1)
        assert sorted(receiver.accepted) == list(range(bad + 1, box.next))


async def test_what_is_refused_for_good(tmp_path: Path) -> None:
    """It is kept with the reason, counted, and not sent again."""
    box = Box(tmp_path / "store")
    no = Answer(Verdict.REFUSED, "HTTP 400 no")
    async with forwarding(tmp_path, box, lambda one: no if one.seq % 2 else TAKEN) as (forwarder, receiver, _):
        box.put(10)
        await eventually("the sink's place", lambda: forwarder.place.after == 10)
        assert sorted(receiver.accepted) == [2, 4, 6, 8, 10]
        assert (forwarder.place.refused, forwarder.place.delivered) == (5, 5)
        assert sorted(row["seq"] for row in dead(tmp_path)) == [1, 3, 5, 7, 9]
        assert sum(len(one) for one in receiver.asked) == 10


async def test_a_receiver_that_wants_a_pause(tmp_path: Path) -> None:
    """It is left alone for that long, also when new alerts come; that is no failure of the alert."""
    box, loop = Box(tmp_path / "store"), asyncio.get_running_loop()
    asked: list[float] = []

    def answer(one: Outgoing) -> Answer:
        asked.append(loop.time())
        return Answer(Verdict.LATER, "slow down", 3600) if len(asked) == 1 else TAKEN

    async with forwarding(tmp_path, box, answer) as (forwarder, _, _):
        box.put(1)
        await eventually("the question", lambda: len(asked) == 1)
        box.put(1)
        await eventually("a look at it", lambda: not vars(forwarder)["_wake"].is_set())
        assert len(asked) == 1
        forward(loop, 3600)
        await eventually("the sink's place", lambda: forwarder.place.after == 2)


async def test_a_defect_of_a_receiver(tmp_path: Path) -> None:
    """What it raises is an error of the sink, not the agent's end."""
    box, broken = Box(tmp_path / "store"), True

    def answer(one: Outgoing) -> Answer:
        if broken:
            raise KeyError("oops")
        return TAKEN

    async with forwarding(tmp_path, box, answer) as (forwarder, receiver, task):
        box.put(2)
        await eventually("the failure in the state", lambda: forwarder.state()["failing"])
        assert "KeyError" in forwarder.state()["error"]
        broken = False
        await eventually("the alerts at the receiver", lambda: receiver.accepted == [1, 2])
        assert not task.done()


async def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    """An entry that is no alert is logged and holds nothing up."""
    box = Box(tmp_path / "store")
    with capture_logs() as logged:
        async with forwarding(tmp_path, box, lambda one: TAKEN) as (forwarder, receiver, _):
            box.put_bytes([(1, b"\x80"), (2, encode(alert(2)))])
            await eventually("the sink's place", lambda: forwarder.place.after == 2)
            assert receiver.accepted == [2]
            assert (forwarder.place.delivered, forwarder.place.refused) == (1, 1)
    assert [one["event"] for one in logged] == [Log.PAYLOAD_UNDECODABLE]


async def test_stop_delivers_what_there_is(tmp_path: Path) -> None:
    """All that waits is delivered before ``stop`` returns; a receiver that is away is not waited for."""
    box, away = Box(tmp_path / "store"), False
    async with forwarding(tmp_path, box, lambda one: AWAY if away else TAKEN) as (forwarder, receiver, task):
        box.put(200)
        await forwarder.stop(30.0, task)
        assert receiver.accepted == list(range(1, 201))
        assert forwarder.place.after == 200
        away = True
        again = asyncio.create_task((other := _again(forwarder, receiver, box, tmp_path)).run())
        box.put(1)
        await eventually("the failure in the state", lambda: other.state()["failing"])
        await other.stop(300.0, again)


def _again(forwarder: Forwarder, receiver: Scripted, box: Box, tmp_path: Path) -> Forwarder:
    place = forwarder.place
    return Forwarder(forwarder.settings, receiver, place, box.outbox, tmp_path / "sinks", lambda: NOW, backoff=QUICK)
