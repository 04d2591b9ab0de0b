"""Events of several lines and containers' lines from real files: whole, once, over rotation, truncation and kills."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.inputs.intake import Bin, account, agent
from tests.inputs.test_tail import LINGER, POLL, append
from tests.inputs.test_tail_earlier import kept, write
from tests.settings import PolledFiles
from tests.waits import eventually
from vedette.decode.decoder import record
from vedette.inputs.file_reader import TURN_BYTES
from vedette.inputs.settings import Multiline
from vedette.inputs.tail import FileTail
from vedette.model.counters import Counters

DATED = Multiline(start="^2026-", timeout=60.0)
TRACE = "2026-11-23 ERROR no {0}\n\tat a.B.c(B.java:{0})\n\tat a.D.e(D.java:9)\nCaused by: java.io.IOException\n"


@asynccontextmanager
async def following(bin: Bin, path: Path, turn_bytes: int = TURN_BYTES, **settings: Any) -> AsyncIterator[None]:
    counters, before = Counters(), len(bin.chunks)
    given = PolledFiles("f", paths=(str(path),), poll=POLL, **settings)
    tail = FileTail(given, agent(bin, counters, list(bin.positions.values())), LINGER, turn_bytes=turn_bytes)
    task = asyncio.create_task(tail.run())
    try:
        yield
    finally:
        await tail.stop()
        await task
    later = Bin()
    later.chunks = bin.chunks[before:]
    account(counters, later, "f")


async def test_a_trace(tmp_path: Path) -> None:
    """A trace is one event once the next one begins; one that waits is read again by the next start."""
    path, bin = tmp_path / "a.log", Bin()
    append(path, TRACE.format(1) + "2026-11-23 INFO on\n" + TRACE.format(2)[:60])
    async with following(bin, path, multiline=DATED):
        await eventually("2 events", lambda: len(bin.events) == 2)
    append(path, TRACE.format(2)[60:] + "2026-11-23 INFO last\n")
    async with following(bin, path, multiline=DATED):
        await eventually("3 events", lambda: len(bin.events) == 3)
    wanted = [TRACE.format(1).rstrip(), "2026-11-23 INFO on", TRACE.format(2).rstrip()]
    assert [one.decode() for one in bin.events] == wanted
    assert bin.chunks[-1].file is not None
    assert bin.chunks[-1].file.position == path.read_bytes().rindex(b"2026")


async def test_the_last_event(tmp_path: Path) -> None:
    """It is whole by the timeout; when its file was rotated away and is idle; and when that is truncated."""
    path, bin = tmp_path / "a.log", Bin()
    append(path, "2026-a\n x\n")
    async with following(bin, path, multiline=Multiline(start="^2026-", timeout=0.1)):
        await eventually("the events", lambda: bin.events == [b"2026-a\n x"])
    append(path, "2026-b\n y")
    async with following(bin, path, multiline=DATED):
        path.rename(tmp_path / "a.log.1")
        append(path, "2026-c\n z\n")
        await eventually("the events", lambda: bin.events[1:] == [b"2026-b\n y"])
        path.write_text("2026-d\n")
        await eventually("the events", lambda: bin.events[2:] == [b"2026-c\n z"])


async def test_every_kill(tmp_path: Path) -> None:
    """From every chunk that may have been the last before a kill, events come whole and once, over rotation, and a turn
    a chunk."""
    path, bin = tmp_path / "a.log", Bin()
    traces = [TRACE.format(i) for i in range(6000)]
    write(tmp_path / "a.log.2", [one.rstrip().encode() for one in traces[:3000]], "gzip")
    write(tmp_path / "a.log.1", [one.rstrip().encode() for one in traces[3000:5000]])
    append(path, "".join(traces[5000:]) + "2026-end\n")
    wanted = [one.rstrip().encode() for one in traces]
    async with following(bin, path, 1, multiline=DATED):
        await eventually("the events", lambda: len(bin.events) >= len(wanted))
        assert bin.events == wanted
    for chunks in range(1, len(bin.chunks)):
        again = kept(bin, chunks)
        async with following(again, path, 1, multiline=DATED):
            await eventually("the events", lambda again=again: len(again.events) >= len(wanted))
        assert again.events == wanted, f"killed after {chunks} chunks"


async def test_a_pod(tmp_path: Path) -> None:
    """A pod's log: parts are one, streams are apart, a trace is one event; kubelet's rotation changes nothing."""
    path, bin = tmp_path / "pods" / "shop_cart-1_0b1c" / "app" / "0.log", Bin()
    path.parent.mkdir(parents=True)
    cri = "2026-11-23T10:00:0{}Z {} {} {}\n"
    old = path.with_name("0.log.20261123-095959")
    write(old, [cri.format(0, "stdout", "F", "2026-old").rstrip().encode()], "gzip")
    append(path, cri.format(1, "stderr", "F", "2026-ERROR a"))
    append(path, cri.format(2, "stdout", "P", "2026-half "))
    append(path, cri.format(3, "stderr", "F", "\tat b"))
    append(path, cri.format(4, "stdout", "F", "and half"))
    append(path, cri.format(5, "stderr", "F", "2026-x") + cri.format(5, "stdout", "F", "2026-y"))
    async with following(bin, path, multiline=DATED, containers=True):
        await eventually("3 events", lambda: len(bin.events) == 3)
        path.rename(path.with_name("0.log.20261123-101010"))
        append(path, cri.format(6, "stdout", "F", "2026-z") + cri.format(7, "stdout", "F", "2026-end"))
        await eventually("6 events", lambda: len(bin.events) == 6)
    events = [record(one, "auto") for one in bin.events]
    assert [one.get("message") for one in events] == [
        "2026-old",
        "2026-ERROR a\n\tat b",
        "2026-half and half",
        "2026-x",
        "2026-y",
        "2026-z",
    ]
    assert {one.get("kubernetes.pod.name") for one in events} == {"cart-1"}
    assert {one.get("program") for one in events} == {"app"}
    assert [one.get("severity") for one in events][:3] == ["info", "err", "info"]


async def test_docker(tmp_path: Path) -> None:
    """Docker's json-file, with a line of more than 16 KiB, which it splits; restarts repeat and lose nothing."""
    path, bin = tmp_path / ("ab" * 32) / f"{'ab' * 32}-json.log", Bin()
    path.parent.mkdir()

    def said(text: str) -> str:
        return json.dumps({"log": text, "stream": "stdout", "time": "2026-11-23T10:00:00.5Z"}) + "\n"

    append(path, said("one\n") + said("x" * 16384))
    async with following(bin, path, containers=True):
        await eventually("an event", lambda: len(bin.events) == 1)
    append(path, said("y\n") + said("three\n"))
    async with following(bin, path, containers=True):
        await eventually("3 events", lambda: len(bin.events) == 3)
    events = [record(one, "auto") for one in bin.events]
    assert [one.get("message") for one in events] == ["one", "x" * 16384 + "y", "three"]
    assert {one.get("container.id") for one in events} == {"ab" * 32}
