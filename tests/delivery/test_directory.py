"""The uplink that needs no broker: alerts into a local folder, in the landing's layout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgpack
from structlog.testing import capture_logs

from tests.delivery.kit import NOW, Box, alert, block, read, unblock
from tests.waits import eventually
from vedette.delivery.directory import DirectoryUplink
from vedette.delivery.envelope import encode, to_row
from vedette.delivery.landing import partition


@asynccontextmanager
async def directory(box: Box, folder: Path) -> AsyncIterator[list[int]]:
    """A running uplink; gives the times at which it looked at its clock, as it does before each file."""
    async with uplink_into(box, folder) as (_, attempts):
        yield attempts


@asynccontextmanager
async def uplink_into(box: Box, folder: Path) -> AsyncIterator[tuple[DirectoryUplink, list[int]]]:
    attempts: list[int] = []

    def clock() -> int:
        attempts.append(NOW)
        return NOW

    uplink = DirectoryUplink(box.source(path=folder)._replace(clock=clock), gather=0.02, backoff=(0.02, 0.05))
    task = asyncio.create_task(uplink.run())
    try:
        yield uplink, attempts
    finally:
        await uplink.stop(5)
        await task


async def test_directory_lands_alerts_and_status(box: Box, tmp_path: Path) -> None:
    """Alerts and heartbeats appear as Parquet in the landing's layout, each alert once, and leave the outbox."""
    folder = tmp_path / "landing"
    box.put(2500)
    async with directory(box, folder):
        await eventually("an empty outbox", lambda: box.outbox.depth == 0)
        box.put(3)
    assert box.outbox.depth == 0  # stop lands what was there
    rows = read(folder, "alerts")
    assert sorted(row["seq"] for row in rows) == list(range(1, 2504))
    assert rows[0]["ingest"] == {"collector_id": "local:a1", "topic": ""}
    assert {path.parent.relative_to(folder) for path in folder.rglob("*.parquet")} == {
        Path("alerts") / partition(NOW),
        Path("status") / partition(NOW),
    }
    statuses = read(folder, "status")
    assert [s["state"] for s in statuses] == ["running"] * 2
    assert statuses[0]["seq_high"] == 7
    assert not list((folder / ".tmp").iterdir())
    assert box.counters.totals["alerts_receipted"] == 2503


async def test_directory_keeps_what_it_cannot_read(box: Box, tmp_path: Path) -> None:
    """An alert of a newer schema, and one of a wrong type, go to ``bad`` with their bytes; their neighbours land, also
    one without a column that a former version did not have."""
    folder = tmp_path / "landing"
    newer, wrong = msgpack.packb({"schema_version": 99}), msgpack.packb(to_row(alert(4)) | {"host": 5})
    former = to_row(alert(5))
    del former["bundle"]
    box.put_bytes([(1, encode(alert(1))), (2, newer), (3, encode(alert(3))), (4, wrong), (5, msgpack.packb(former))])
    async with directory(box, folder):
        await eventually("an empty outbox", lambda: box.outbox.depth == 0)
    assert sorted(row["seq"] for row in read(folder, "alerts")) == [1, 3, 5]
    bad = {row["payload"]: row["reason"] for row in read(folder, "bad")}
    assert bad.keys() == {newer, wrong}
    assert "99" in bad[newer]
    assert "host" in bad[wrong]


async def test_directory_that_cannot_be_written(box: Box, tmp_path: Path) -> None:
    """A read-only landing directory is logged once with its path, and is the uplink's state; alerts stay in the outbox
    and land later."""
    folder = tmp_path / "landing"
    block(folder)

    with capture_logs() as logs:
        box.put(10)
        async with uplink_into(box, folder) as (uplink, attempts):
            await eventually("further attempts to connect", lambda: len(attempts) > 5)
            assert box.outbox.depth == 10
            state = uplink.state()
            assert state["connected"] is False
            assert state["reason"]
            unblock(folder)
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
            await eventually("a connection", lambda: uplink.state()["connected"])
    assert [(e["event"], e["folder"]) for e in logs] == [("uplink_failed", str(folder))]
    assert len(read(folder, "alerts")) == 10


async def test_a_table_that_cannot_be_written_doubles_no_other(box: Box, tmp_path: Path) -> None:
    """While ``alerts`` cannot be written, ``bad`` is written and told once, not at each attempt; what comes meanwhile
    lands once as well."""
    folder = tmp_path / "landing"
    block(folder / "alerts")

    def newer(version: int) -> bytes:
        data: bytes = msgpack.packb({"schema_version": version})
        return data

    with capture_logs() as logs:
        box.put_bytes([(1, encode(alert(1))), (2, newer(98))])
        async with directory(box, folder) as attempts:
            await eventually("further attempts to connect", lambda: len(attempts) > 5)
            box.put_bytes([(3, newer(99)), (4, encode(alert(4)))])
            await eventually("further attempts to connect", lambda: len(attempts) > 12)
            unblock(folder / "alerts")
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
            box.put_bytes([(5, newer(97))])
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
    assert sorted(row["seq"] for row in read(folder, "alerts")) == [1, 4]
    assert sorted(row["payload"] for row in read(folder, "bad")) == sorted(map(newer, (97, 98, 99)))
    assert [entry["seq"] for entry in logs if entry["event"] == "payload_undecodable"] == [2, 3, 5]
