"""The table of uplinks: every row keeps the contract, and is documented."""

from __future__ import annotations

import ast
import asyncio
import typing
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker import running
from tests.delivery.kit import Box, read
from tests.region.test_land import Land
from tests.waits import eventually
from vedette.config.settings import UplinkSettings
from vedette.delivery.uplinks import UPLINKS, opened
from vedette.mqtt.settings import MqttSettings

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def folder(tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    yield {"path": tmp_path / "landing"}


@asynccontextmanager
async def region(tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    """A broker with a landing."""
    with running(tmp_path / "broker") as broker:
        landing = await Land(broker, tmp_path / "landing").connected()
        yield {"broker": MqttSettings(url=broker.url)}
        await landing.stop()


@asynccontextmanager
async def nobody(tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    yield {}


OTHER_SIDE: dict[str, Callable[[Path], AbstractAsyncContextManager[dict[str, Any]]]] = {
    "directory": folder,
    "mqtt": region,
    "none": nobody,
}
"""By type: what takes the alerts, as ``tmp_path/landing``, and the settings to reach it. A row for each of UPLINKS."""


@pytest.mark.peer
@pytest.mark.parametrize("kind", UPLINKS)
async def test_an_uplink_gives_up_what_is_durable_elsewhere(kind: str, tmp_path: Path) -> None:
    """Alerts that wait at the start and alerts that come later leave the outbox once they are on the other side's disk;
    what comes while no uplink runs waits for the next; ``stop`` ends ``run``."""
    box = Box(tmp_path / "store")
    async with OTHER_SIDE[kind](tmp_path) as settings:
        for round in range(2):
            box.put(700)
            uplink = opened(box.source(type=kind, **settings))
            assert box.outbox.depth == 700
            task = asyncio.create_task(uplink.run())
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
            box.put(20)
            await eventually("an empty outbox", lambda: box.outbox.depth == 0)
            seqs = set(range(1, 720 * round + 721))
            if kind == "none":
                assert {one.seq for one in box.outbox.tail(2000) if one.receipted} == seqs
            else:
                assert {row["seq"] for row in read(tmp_path / "landing", "alerts")} >= seqs
            assert uplink.state()["type"] == kind
            await uplink.stop(5.0)
            await task
    box.close()


def test_the_configuration_knows_each_uplink() -> None:
    """``[uplink] type`` takes the table's keys, and no other."""
    assert set(typing.get_args(typing.get_type_hints(UplinkSettings)["type"])) == set(UPLINKS)


@pytest.mark.parametrize("kind", UPLINKS)
def test_an_uplink_is_documented(kind: str) -> None:
    """Its module opens with what it promises of delivery; the shipped configuration and the guide name its type."""
    source = ROOT / "agent" / "vedette" / "delivery" / f"{UPLINKS[kind].partition(':')[0]}.py"
    assert "Delivery:" in (ast.get_docstring(ast.parse(source.read_text())) or "")
    table = (ROOT / "packaging" / "vedette.toml").read_text().split("\n[uplink]\n")[1].split("\n[")[0]
    assert f'# "{kind}": ' in table or f' "{kind}": ' in table
    rows = (ROOT / "docs" / "guide.md").read_text().split("| `[uplink] type` |")[1].split("\n\n")[0]
    assert f"\n| `{kind}`" in rows
