"""Parts of replies: what an agent wrote is believed, and nothing that somebody bent; a job goes on where it was."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zstandard

from tests.fleet.asking import FLEET, Authority, asked, signed, spooled
from vedette.config.settings import Config
from vedette.fleet.job import Job, Kind, Limited, Limits, Services, Stopped
from vedette.fleet.replies import MAX_MESSAGE, PART_RAW, Part, ReplyRefused, pack, packed, records, unpack

AUTHORITY = Authority()
REQUEST = "ab" * 16
LINES = b'{"n":1}\n{"n":2}\n'
LIMITS = Limits(1 << 20, 60.0, 0.5, 1)


def whole(message: bytes, *, revoked: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    return records(unpack(message, FLEET, AUTHORITY.pem, revoked).part)


def refused(message: bytes, *, revoked: tuple[int, ...] = ()) -> str:
    with pytest.raises(ReplyRefused) as caught:
        whole(message, revoked=revoked)
    return caught.value.kind


def part(data: bytes = packed(LINES), size: int = len(LINES)) -> Part:
    return Part(0, data, size, True, "done")


def test_a_part() -> None:
    """Its agent, request and records come back; the last one says how it ended."""
    message = pack(REQUEST, part(), AUTHORITY.agent())
    reply = unpack(message, FLEET, AUTHORITY.pem)
    assert (reply.request, reply.agent, reply.part.last, reply.part.state) == (REQUEST, "vienna-1", True, "done")
    assert whole(message) == [{"n": 1}, {"n": 2}]


def test_forged() -> None:
    """Signed by another authority's agent, in another agent's name, by a certificate that ended or was revoked, for
    another fleet; changed in any of its fields."""
    assert refused(pack(REQUEST, part(), Authority().agent())) == "signature"
    assert refused(pack(REQUEST, part(), AUTHORITY.agent("linz-1")._replace(agent="vienna-1"))) == "signature"
    assert refused(pack(REQUEST, part(), AUTHORITY.agent(ended=True))) == "signature"
    assert refused(pack(REQUEST, part(), AUTHORITY.agent(serial=9)), revoked=(9,)) == "signature"
    assert refused(pack(REQUEST, part(), AUTHORITY.agent(fleet="ships"))) == "fleet"
    message = msgpack.unpackb(pack(REQUEST, part(), AUTHORITY.agent()))
    assert refused(msgpack.packb({**message, "data": packed(b'{"n":3}\n{"n":2}\n')})) == "digest"
    assert refused(msgpack.packb({**message, "signed": message["signed"].replace(b"ab", b"cd", 1)})) == "signature"
    assert refused(msgpack.packb({**message, "certificate": AUTHORITY.agent().certificate})) == "signature"
    assert refused(msgpack.packb({**message, "signature": b""})) == "signature"


def test_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an agent with a valid key signed is still bounded: size, a frame that unpacks to more, one without a size,
    further frames behind it, nesting; nothing is unpacked for it."""
    agent = AUTHORITY.agent()
    big = zstandard.ZstdCompressor().compress(bytes(1 << 30))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(LINES)
    for data, size in ((big, len(LINES)), (big, PART_RAW), (unsized, len(LINES)), (packed(LINES), 3)):
        assert refused(pack(REQUEST, part(data, size), agent)) == "bomb"
    assert refused(pack(REQUEST, part(big, 1 << 30), agent)) == "malformed"
    assert refused(pack(REQUEST, part(packed(LINES) * 2), agent)) == "malformed"
    assert refused(pack(REQUEST, part(packed(b"[" * 999), 999), agent)) == "malformed"
    assert refused(b"\x81" * 100_000) == "malformed"
    assert refused(bytes(MAX_MESSAGE + 1)) == "malformed"
    assert refused(msgpack.packb({"signed": 1})) == "malformed"


class Life:
    """A job on an agent, in a folder that the next life gets."""

    def __init__(self, folder: Path, run: Callable[[Job], Awaitable[None]], limits: Limits = LIMITS) -> None:
        self.folder, self._kind = folder, Kind("ask", "viewer", lambda body: None, run, limits)
        self.request = asked()

    def live(self) -> tuple[str, str]:
        async def command(name: str, **words: object) -> object:
            return {}

        spool = spooled(self.folder)
        held = spool.held.get(self.request.id) or spool.take(self.request, signed(self.request))
        job = Job(held, self._kind.limits, Services(Config, command), lambda: None)
        return asyncio.run(job.run(self._kind))

    def spooled_rows(self) -> list[Mapping[str, Any]]:
        held = spooled(self.folder).held[self.request.id]
        return [row for number in range(held.parts) for row in records(held.kept(number).part)]


def test_goes_on_after_a_kill(tmp_path: Path) -> None:
    """Ended anywhere, also between records and their checkpoint, the next life continues: each record once."""
    lives = [0]

    async def count(job: Job) -> None:
        lives[0] += 1
        for n in range(job.cursor or 0, 40):
            job.emit({"n": n})
            if lives[0] < 5 and n == 9 * lives[0]:
                raise Stopped
            job.checkpoint(n + 1, now=n % 4 == 3)

    life = Life(tmp_path, count)
    for _ in range(4):
        with pytest.raises(Stopped):
            life.live()
    assert life.live() == ("done", "")
    assert life.spooled_rows() == [{"n": n} for n in range(40)]


@pytest.mark.parametrize(
    ("run", "state"),
    [
        (lambda job: [job.emit({"n": "x" * 1000}) or job.checkpoint(0) for _ in range(2000)], "limited"),
        (lambda job: job.emit({"n": "x" * (1 << 18)}), "failed"),
        (lambda job: {}["absent"], "failed"),
        (lambda job: 1 / 0, "failed"),
    ],
)
def test_ends(tmp_path: Path, run: Callable[[Job], object], state: str) -> None:
    """Whatever happens in it, a reply has an end that says so, and never more bytes than its kind may have."""

    async def body(job: Job) -> None:
        run(job)

    life = Life(tmp_path, body)
    assert life.live()[0] == state
    assert sum(len(str(row)) for row in life.spooled_rows()) <= LIMITS.bytes
    assert spooled(tmp_path).held[life.request.id].whole


def test_share_of_the_processor(tmp_path: Path) -> None:
    """Work aside takes the share of a core that it has, and ends when its time is over; not at a lower
    priority, which those would inherit who wait for the interpreter's lock."""
    used: list[float] = []
    normal = os.getpriority(os.PRIO_PROCESS, 0)

    async def burn(job: Job) -> None:
        def work() -> None:
            assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == normal
            began, at = time.monotonic(), time.thread_time()
            try:
                while True:
                    sum(range(20_000))
                    job.pace()
            finally:
                used.append((time.thread_time() - at) / (time.monotonic() - began))

        await job.aside(work)

    life = Life(tmp_path, burn, Limits(1 << 20, 2.0, 0.2, 1))
    state, reason = life.live()
    assert (state, reason) == ("limited", "its 2 s are used up")
    assert used[0] < 0.3


def test_limited_is_no_error() -> None:
    assert not issubclass(Limited, ValueError | OSError | LookupError)
