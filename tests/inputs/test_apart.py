"""``vedette.inputs.apart``: messages over TCP, RELP and UDP that contain others, in steps, in order, and none lost."""

from __future__ import annotations

import asyncio
import gc
import socket
from contextlib import suppress
from typing import Any

import pytest

from tests.inputs.intake import LOCAL, Bin, agent, listening
from tests.inputs.test_http_steps import MOST, Counted, steps
from tests.inputs.test_relp_frames import frame
from tests.inputs.test_relp_listen import Sender, relp
from tests.waits import eventually
from vedette.inputs import apart
from vedette.inputs.framing import Run
from vedette.inputs.listen import SyslogListener
from vedette.inputs.settings import SyslogInput
from vedette.model.counters import Counters
from vedette.model.event import MAX_EVENT

RECORDS = [b'{"n":%d}' % number for number in range(5000)]
ARRAY = b"[" + b",".join(RECORDS) + b"]"
HOSTILE = {
    "empty objects": b"[" + b",".join([b"{}"] * 340_000) + b"]",
    "carriers": b"[" + b",".join([b'{"log":"x","stream":""}'] * 42_000) + b"]",
    "carriers of CEF": b"[" + b",".join([b'{"log":"CEF:0|a|b|c|1|d|5|","stream":""}'] * 25_000) + b"]",
    "lines": b"\n".join([b'[{"a":1},{"a":2}]'] * 55_000),
}


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
async def test_no_sender_keeps_the_loop(name: str) -> None:
    """Of a message as long as one may be the event loop's steps are short: of three runs in the best."""
    data, worst = HOSTILE[name], list[float]()
    assert len(data) <= MAX_EVENT
    for _ in range(3):
        listener = SyslogListener(SyslogInput("in", tcp=LOCAL), agent(bin := Counted(), Counters()))
        await listener.start()
        _, writer = await asyncio.open_connection(*listener.addresses[0][1:])
        gc.collect()
        gc.freeze()  # as the agent does
        with steps() as found:
            writer.write(data + b"\n")
            writer.close()
            await eventually("it is stored", lambda: bin.stored > len(data) / 4 and not listener._apart.size)  # type: ignore[union-attr]  # noqa: B023
        gc.unfreeze()
        await listener.stop()
        worst.append(max(found))
        if worst[-1] <= MOST:
            break
    assert min(worst) <= MOST


async def test_the_order_of_a_connection() -> None:
    """What comes behind such a message is stored behind what it contains; others do not wait for it."""
    bin = Bin()
    async with listening(bin, Counters()) as (listener, port):
        _, slow = await asyncio.open_connection("127.0.0.1", port)
        _, quick = await asyncio.open_connection("127.0.0.1", port)
        slow.write(b"first\n" + ARRAY + b"\nlast\nunfinished")
        await eventually("it is taken apart", lambda: listener._apart is not None and listener._apart.size)
        quick.write(b"other\n")
        slow.write_eof()
        await eventually("all events", lambda: len(bin.events) == len(RECORDS) + 4)
        quick.close()
        slow.close()
    of_slow = [event for event in bin.events if event != b"other"]
    assert of_slow == [b"first", *RECORDS, b"last", b"unfinished"]


async def test_who_sends_many_waits_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond HELD_BYTES who sends no arrays is read on, and who sent one, when there is less."""
    monkeypatch.setattr(apart, "HELD_BYTES", len(ARRAY) * 3)
    bin = Bin()
    async with listening(bin, Counters()) as (listener, port):
        _, plain = await asyncio.open_connection("127.0.0.1", port)
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(5)]
        writers[0].write(ARRAY + b"\n")
        await eventually("it is taken apart", lambda: listener._apart is not None and listener._apart.size)
        assert listener._apart is not None
        async with listener._apart._turn:
            for number, writer in enumerate(writers):
                writer.write((ARRAY + b"\n") * (1 if number else 3))
            await eventually("much waits", lambda: listener._apart.size > apart.HELD_BYTES)  # type: ignore[union-attr]
            plain.write(b"plain\n")
            await eventually("the line", lambda: b"plain" in bin.events)
        await eventually("all events", lambda: len(bin.events) == 8 * len(RECORDS) + 1)
        for writer in (plain, *writers):
            writer.close()


@pytest.mark.parametrize("held", [None, 100])
async def test_many_senders(monkeypatch: pytest.MonkeyPatch, held: int | None) -> None:
    """All is stored, each sender's in its order; beyond twice HELD_BYTES nobody is read until there is less."""
    if held is not None:
        monkeypatch.setattr(apart, "HELD_BYTES", len(ARRAY))
    bin = Bin()
    async with listening(bin, Counters()) as (listener, port):
        writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(6)]
        for number, writer in enumerate(writers):
            for _ in range(3):
                writer.write(ARRAY.replace(b'"n"', b'"n%d"' % number) + b"\n%d\n" % number)
        await eventually("all events", lambda: len(bin.events) == 18 * (len(RECORDS) + 1))
        await eventually("nothing waits", lambda: listener._apart is not None and not listener._apart.size)
        for writer in writers:
            writer.close()
    for number in range(6):
        own = [event for event in bin.events if event == b"%d" % number or event.startswith(b'{"n%d"' % number)]
        assert own == 3 * [*(record.replace(b'"n"', b'"n%d"' % number) for record in RECORDS), b"%d" % number]


async def test_a_stop() -> None:
    """What has arrived is taken apart and stored before it ends."""
    bin = Bin()
    async with listening(bin, Counters()) as (listener, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(5):
            writer.write(ARRAY + b"\n")
        await writer.drain()
        await eventually("it is taken apart", lambda: listener._apart is not None and listener._apart.size)
    assert bin.events == RECORDS * 5
    writer.close()


async def test_a_stop_with_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not taken apart within STOP_SECONDS is stored as it is, of datagrams, too."""
    bin = Bin()
    async with listening(bin, Counters(), tcp=LOCAL, udp=LOCAL) as (listener, _):
        ports = {kind: port for kind, _, port in listener.addresses}
        writers = [(await asyncio.open_connection("127.0.0.1", ports["tcp"]))[1] for _ in range(3)]
        for writer in writers:
            writer.write(ARRAY + b"\n")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(ARRAY, ("127.0.0.1", ports["udp"]))
        await eventually(
            "they are taken apart", lambda: len(listener._aparts) == 2 and all(a.size for a in listener._aparts)
        )
        monkeypatch.setattr(apart, "STOP_SECONDS", 0)
        for each in listener._aparts:
            await each._turn.acquire()
        stop = asyncio.create_task(listener.stop())
        await eventually("it stops", lambda: listener.stopping)
        for each in listener._aparts:
            each._turn.release()
        await stop
        for writer in writers:
            writer.close()
    whole = bin.events.count(ARRAY)
    assert whole
    assert len(bin.events) == whole + (4 - whole) * len(RECORDS)


@pytest.mark.parametrize("relays", [False, True])
async def test_a_stop_that_is_cut_off(relays: bool) -> None:
    """``run`` ends all the same."""
    async with relp(Bin(), Counters()) if relays else listening(Bin(), Counters()) as (listener, _):
        running = asyncio.create_task(listener.run())
        never = asyncio.Event()
        listener.flushed = never.wait  # type: ignore[method-assign, assignment]
        stop = asyncio.create_task(listener.stop())
        await asyncio.sleep(0)
        stop.cancel()
        await asyncio.wait({stop})
        await running
        del listener.flushed


async def test_relp_answers_when_it_is_stored() -> None:
    """A message is answered when all that it contains is stored, not before."""
    bin = Bin()
    async with relp(bin, Counters()) as (listener, port):
        sender = await Sender.open(port)
        stored: list[int] = []
        owe = listener._acknowledgements.owe
        listener._acknowledgements.owe = lambda *owed: (stored.append(len(bin.events)), owe(*owed))[1]  # type: ignore[method-assign]
        sender.writer.write(frame(2, b"syslog", ARRAY) + frame(3, b"syslog", b"last") + frame(4, b"close"))
        answers = await sender.reader.read()
        assert [line[:1] for line in answers.split(b"\n") if b" rsp " in line] == [b"2", b"3", b"4"]
        assert stored[0] >= len(RECORDS)
        sender.writer.close()
    assert bin.events == [*RECORDS, b"last"]


@pytest.mark.parametrize("count", [1, 1000])
async def test_relp_does_not_answer_after_a_fault(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """What was not stored, as taking it apart failed, is answered by no later message: its connection ends, and it is
    stored when it comes again, whatever came with it."""
    real, faults = apart.spread, [MemoryError()]

    def spread(run: Run, *more: Any) -> Any:
        if b"fault" in run.data and faults:
            raise faults.pop()
        return (yield from real(run, *more))

    monkeypatch.setattr(apart, "spread", spread)
    reported = list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    timed = b"<13>2026-11-30T06:00:00.000001Z h app: x"
    hostile = b"[" + b",".join([b'{"log":"fault","stream":""}'] * count) + b"]"
    bin = Bin()
    async with relp(bin, Counters()) as (_, port):
        for again in (False, True):
            sender = await Sender.open(port)
            numbers = sender.send(timed, hostile)
            if again:
                await sender.answered(numbers)
            else:
                with suppress(ConnectionError):
                    assert not await sender.rest()
            sender.close()
    assert [type(error) for error in reported] == [MemoryError]
    assert timed in bin.events
    assert len(bin.events) == count + 1


async def test_connections_keep_no_datagram_out() -> None:
    """However much they send that is taken apart, and whatever datagrams are."""
    bin = Bin()
    async with listening(bin, Counters(), tcp=LOCAL, udp=LOCAL) as (listener, _):
        ports = {kind: port for kind, _, port in listener.addresses}
        _, writer = await asyncio.open_connection("127.0.0.1", ports["tcp"])
        writer.write(ARRAY + b"\n")
        await eventually("it is taken apart", lambda: listener._apart is not None and listener._apart.size)
        assert listener._apart is not None
        async with listener._apart._turn:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for data in (b"[" + b",".join(RECORDS[:2000] * 2) + b"]", b"plain"):
                    sender.sendto(data, ("127.0.0.1", ports["udp"]))
            await eventually("the datagrams", lambda: b"plain" in bin.events)
        writer.close()


async def test_datagrams() -> None:
    """Each event has the address of its datagram; the socket is read on."""
    bin = Bin()
    async with listening(bin, Counters(), udp=LOCAL) as (_, port):
        senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for number, sender in enumerate(senders, 2):
            sender.bind((f"127.0.0.{number}", 0))
        for turn in range(3):
            for sender in senders:
                sender.sendto(b"[" + b",".join(RECORDS[:2000]) + b"]", ("127.0.0.1", port))
                sender.sendto(b"plain", ("127.0.0.1", port))
            await eventually("all events", lambda: len(bin.events) == (turn + 1) * 4002)  # noqa: B023
        for sender in senders:
            sender.close()
    assert bin.by_origin == {f"127.0.0.{n}": 3 * [*RECORDS[:2000], b"plain"] for n in (2, 3)}
