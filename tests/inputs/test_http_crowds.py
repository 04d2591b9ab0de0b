"""The HTTP input when one network's senders are too many together."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("httptools", reason="an environment from before: make environment")
from tests.inputs.intake import Bin
from tests.inputs.test_http_listen import http_input, send
from tests.waits import eventually
from vedette.inputs import http_listen
from vedette.model.counters import Counters


async def test_of_a_crowd_the_last_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Senders of one network whose events are too many together: the one that began last is refused, and what it held
    keeps no other out."""
    monkeypatch.setattr(http_listen, "HELD_BYTES", 2_000_000)
    body = b"x\n" * 100_000  # with its events it counts 1,100,000 bytes
    async with http_input(Bin(), Counters()) as (listener, port):
        for _ in range(4):
            async with asyncio.TaskGroup() as group:
                senders = []
                for _ in range(5):
                    senders.append(group.create_task(send(port, "/events", body)))
                    await eventually("one at work", lambda: any(peer.handled for peer in listener._connections))
            statuses = [sender.result().status for sender in senders]
            assert statuses[0] == 200, statuses
            assert listener.buffered == 0
