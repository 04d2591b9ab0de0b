"""Whom a block would cut this agent off from: every host that its configuration names."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waits import eventually
from vedette.config.read import load
from vedette.config.settings import ResponseSettings
from vedette.runtime.options.response import Response, ResponseSink, sink_of
from vedette.sinks.base import Verdict

CONFIG = """
[agent]
id = "a"
[[input]]
type = "mqtt"
topics = ["t"]
broker = "plant"
[[input]]
type = "kafka"
name = "stream"
brokers = ["192.0.2.2:9092", "[2001:db8::2]:9092"]
topics = ["t"]
tls = false
[uplink]
type = "mqtt"
[broker]
url = "mqtt://broker.example:1884"
[broker.plant]
url = "mqtt://192.0.2.1"
[archive]
url = "s3://bucket/logs"
options_file = "{folder}/options.toml"
[[sink]]
type = "syslog"
name = "siem"
address = "192.0.2.3:6514"
[[sink]]
type = "webhook"
name = "hook"
url_file = "{folder}/url"
proxy = "http://192.0.2.4:3128"
[[sink]]
type = "webhook"
name = "pager"
template = "pagerduty"
token_file = "{folder}/url"
[[sink]]
type = "otlp"
name = "collector"
url = "http://192.0.2.5:4318/v1/logs"
[[sink]]
type = "kafka"
name = "queue"
brokers = ["192.0.2.6:9092"]
topic = "alerts"
tls = false
[response]
enabled = true
"""


def test_who_is_never_blocked(tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text('endpoint = "https://store.example:9000"\n')
    (tmp_path / "url").write_text("https://192.0.2.7/services/secret\n")
    path = tmp_path / "vedette.toml"
    path.write_text(CONFIG.replace("{folder}", str(tmp_path)))

    def opened(_: Any) -> Any:
        raise NotImplementedError  # nothing is opened here

    assert sink_of(load(path), opened).peers == (
        *(f"192.0.2.{number}" for number in range(1, 8)),
        "2001:db8::2",
        "broker.example",
        "events.pagerduty.com",
        "store.example",
    )


def response(folder: Path, *peers: str) -> Response:
    """A dry run's."""
    config: Any = SimpleNamespace(agent=SimpleNamespace(data_dir=folder, fleet_dir=folder))
    counters = SimpleNamespace(totals=Counter())
    context: Any = SimpleNamespace(config=config, clock=lambda: 1, counters=counters)
    return Response(ResponseSink("r", settings=ResponseSettings(dry_run=True), peers=peers), context, config)


async def test_a_resolver_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes nothing back: what a name last meant stays, beside what others mean now."""
    known = {"broker.example": "203.0.113.9", "siem.example": "203.0.113.10", "198.51.100.7": "198.51.100.7"}
    asked = 0

    def resolver(name: str, *_: object, **__: object) -> list[Any]:
        nonlocal asked
        asked += 1
        if name not in known:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    monkeypatch.setattr("vedette.runtime.options.response.RESOLVE_SECONDS", 0.01)
    part = response(tmp_path, *known)

    async def allowed() -> set[str]:
        before = asked
        await eventually("all names asked again", lambda: asked > before + 6)
        rows = (await part.command("list"))["allowed"]
        return {row["network"].partition("/")[0] for row in rows if row["reason"].endswith("of the configuration")}

    assert await allowed() == {"203.0.113.9", "203.0.113.10", "198.51.100.7"}
    del known["broker.example"]
    known["siem.example"] = "203.0.113.11"
    for _ in range(2):
        assert await allowed() == {"203.0.113.9", "203.0.113.11", "198.51.100.7"}
    known.clear()
    assert await allowed() == {"203.0.113.9", "203.0.113.11", "198.51.100.7"}
    await part.close()


async def test_a_resolver_that_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is asked again, an address is blocked, and what names meant before is allowed."""
    silent, over, asked = threading.Event(), threading.Event(), threading.Event()

    def resolver(*_: object, **__: object) -> list[Any]:
        if silent.is_set():
            asked.set()
            over.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("203.0.113.9", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    monkeypatch.setattr("vedette.runtime.options.response.RESOLVE_SECONDS", 0.01)
    part = response(tmp_path, "broker.example")
    try:
        await part.command("list")
        silent.set()
        await eventually("another look at the names", asked.is_set)
        async with asyncio.timeout(60):
            done = await part.command("block", "203.0.113.50")
            with pytest.raises(ValueError, match=r"broker\.example of the configuration"):
                await part.command("block", "203.0.113.9")
        assert "would have blocked 203.0.113.50" in done["text"]
    finally:
        over.set()
        await part.close()


async def test_routes_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is blocked, alerts wait, the status says why; what is blocked can be listed and undone. It is over once
    they can be."""
    monkeypatch.setattr("vedette.runtime.options.response.POLL_SECONDS", 0.01)
    part = response(tmp_path)
    await part.command("block", "203.0.113.50")
    with monkeypatch.context() as patch:
        patch.setattr("vedette.response.routes.MOST", 10)
        with pytest.raises(OSError, match="the routes of this host cannot be read"):
            await part.command("block", "203.0.113.51")
        alert: Any = SimpleNamespace(row={})
        (answer,) = await part.deliver([alert])
        assert answer.verdict is Verdict.LATER
        assert "the routes of this host cannot be read" in answer.text
        listed = await part.command("list")
        assert [row["address"] for row in listed["addresses"]] == ["203.0.113.50"]
        assert listed["problem"] == answer.text == part.state()["problem"]
        assert "is not blocked any more" in (await part.command("undo", "203.0.113.50"))["text"]
    await eventually("nothing to report", lambda: not part.problem)
    await part.close()
