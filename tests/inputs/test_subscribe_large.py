"""A large message of ``vedette.inputs.subscribe`` is taken in step by step, whatever is in it."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.inputs.test_subscribe import Log, subscription
from vedette.inputs import subscribe
from vedette.inputs.batches import splitting
from vedette.inputs.push import pieces
from vedette.inputs.push.base import Refused
from vedette.model.counters import Counters
from vedette.mqtt.connection import Message

SIZE = 256 << 10
PIECE = 64 << 10
"""Bytes that one step looks at, at most."""


def deep(levels: int) -> bytes:
    return b'{"a":' + b"[" * levels + b"]" * levels + b"}"


def filled(unit: bytes, between: bytes = b",") -> bytes:
    return between.join([unit] * (SIZE // len(unit + between)))


BATCHES = {
    "array": b"[" + filled(b"{}") + b"]",
    "array, nested 7 deep": b"[" + filled(deep(7)) + b"]",
    "array, nested 100 deep": b"[" + filled(deep(100)) + b"]",
    "array, one object": b'[{"a":[' + filled(b"[]") + b"]}]",
    "array, objects of many": b"[" + filled(b'{"a":[' + b",".join([b"[]"] * 9000) + b"]}") + b"]",
    "lines": filled(b"{}", b"\n"),
    "lines that are no JSON": filled(b"{a", b"\n"),
    "container": b'{"Records":[' + filled(deep(100)) + b"]}",
    "lines of containers": filled(b'{"Records":[' + b",".join([deep(50)] * 1000) + b"]}", b"\n"),
}


@pytest.mark.parametrize("name", BATCHES)
async def test_in_steps(name: str) -> None:
    """The event loop may have its turn after each few kilobytes; what is stored is what was there before."""
    payload = BATCHES[name]
    assert sum(1 for _ in splitting(payload)) >= len(payload) // PIECE
    log = Log(Counters())
    made = subscription(log)
    work = made.received(Message("plant/x", payload, 1, False, False, 1))
    assert work is not None
    assert not log.frames
    await work
    made.flush()
    events = log.payloads()
    assert len(events) > 1 or name == "array, one object"
    assert payload.startswith(events[0], payload.index(events[0]))
    assert log.counters.totals["decode_failed"] == (subscribe.MOST_BAD if name == "lines that are no JSON" else 0)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_a_connection_that_ends_meanwhile(protocol: str) -> None:
    """What is being looked at then is stored once when it comes again, retained or by another subscription."""
    log = Log(Counters())
    made = subscription(log)
    made.client.protocol = protocol
    for connection in (1, 2):
        made.session(True)
        by = b"\x0b%c" % connection if protocol == "5" else b""
        work = made.received(Message("plant/1", BATCHES["container"], 0, not by, False, 0, connection, by))
        assert work is not None
        task = asyncio.create_task(work)
        while connection == 1 and not (made._last or made._copies._by_message):
            await asyncio.sleep(0)
        if connection == 1:
            task.cancel()
        await asyncio.wait({task})
    made.flush()
    assert len(log.payloads()) == BATCHES["container"].count(b'"a"')


async def test_few_lines_that_are_no_json_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a message MOST_BAD at most, by which time it is clear what it is; of the next as many."""
    asked = 0
    loaded = pieces._loaded

    def counted(text: bytes) -> object:
        nonlocal asked
        asked += 1
        return loaded(text)

    monkeypatch.setattr(pieces, "_loaded", counted)
    log = Log(Counters())
    made = subscription(log)
    with capture_logs() as logs:
        for number in (1, 2):
            work = made.received(Message("plant/x", BATCHES["lines that are no JSON"], 1, False, False, number))
            assert work is not None
            await work
    assert asked == log.counters.totals["decode_failed"] == 2 * subscribe.MOST_BAD
    assert [row["event"] for row in logs] == ["payload_undecodable"]


LARGE = b'{"a":[' + b",".join([b"[]"] * 40_000) + b'],"b":"' + b"x" * 400_000 + b'"}'


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (LARGE, True),
        (LARGE[:-1], False),
        (LARGE[:-1] + b",}", False),
        (LARGE.replace(b"[],[]]", b"[],]"), False),
        (LARGE.replace(b"[],[]]", b"[],{1:2}]"), False),
        (LARGE.replace(b'"b"', b'"\\x"'), False),
        (LARGE.replace(b'"b":', b'"b"'), False),
        (LARGE.replace(b'x"}', b'\n"}'), False),
        (b"[" + deep(100) + b"," + LARGE + b"]", True),
        (b"[" + deep(100)[:-1] + b"]," + LARGE + b"]", False),
        (b'"' + LARGE.replace(b'"', b"'") + b'"', True),
        (b"[" * 500_000, False),
    ],
)
def test_large_json_is_read_in_steps(text: bytes, valid: bool) -> None:
    """What ``check`` takes and refuses is what is JSON and what is not, as one call would say."""
    steps = 0
    try:
        for _ in pieces.check(text):
            steps += 1
    except Refused:
        assert not valid
    else:
        assert valid
        assert steps >= text.count(b"[]") * 3 // PIECE or text.startswith(b'"')
