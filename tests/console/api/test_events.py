"""News to open pages: who gets what, and that nobody holds up anybody."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.console.kit import WAIT, Console, console
from tests.looptime import forward
from tests.waits import eventually
from vedette_console.hub import BACKLOG, Hub
from vedette_console.security.principal import Grant, Principal, Role
from vedette_console.settings import Limits
from vedette_console.streams import LOOK


@contextmanager
def reading(served: Console, client: httpx2.Client, topics: str = "now,alerts") -> Iterator[list[tuple[str, Any]]]:
    """The events that a page is sent, as they come; at the end it goes away."""
    seen: list[tuple[str, Any]] = []
    here, over = threading.Event(), threading.Event()

    def read() -> None:
        event = ""
        with client.stream("GET", f"/api/v1/events?topics={topics}") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            for line in answer.iter_lines():
                here.set()
                if over.is_set():
                    return
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    seen.append((event, json.loads(line.removeprefix("data: "))))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        assert here.wait(WAIT)
        yield seen
    finally:
        over.set()
        served.publish(topics.partition(",")[0], {})  # wakes it
        thread.join(WAIT)


async def test_who_gets_what(tmp_path: Path) -> None:
    """Each the topics that were asked for, and of what is new as much as they may see."""
    with console(tmp_path) as served:
        vienna, root = served.as_user("ann", "viewer", "*", "vienna"), served.session("root")
        with reading(served, vienna) as ann, reading(served, root, "alerts,jobs") as all:
            served.publish("now", {"n": 1})
            served.publish("alerts", lambda who: {"n": 2} if who.sites().sees("plants", "graz") else None)
            served.publish("alerts", lambda who: {"n": 3 if who.sites().all else 4})
            served.publish("jobs", {"n": 5})
            served.publish("alerts", {"text": "a\nb\r\n\u2028event: now"})
            await eventually("the events", lambda: len(ann) == 3 and len(all) == 4)
            assert [data.get("n") for _, data in ann] == [1, 4, None]
            assert [data.get("n") for _, data in all] == [2, 3, 5, None]
            assert ann[-1] == ("alerts", {"text": "a\nb\r\n\u2028event: now"})


async def test_a_page_that_goes_leaves_its_place(tmp_path: Path) -> None:
    """And one user takes only so many."""
    with console(tmp_path, limits=Limits(streams_each=2)) as served:
        ann, bob = served.as_user("ann", "viewer"), served.as_user("bob", "viewer")
        with reading(served, ann), reading(served, ann):
            refused = ann.get("/api/v1/events")
            assert refused.status_code == 429
            assert "retry-after" in refused.headers
            with reading(served, bob):
                assert len(served.app.state.hub) == 3
        await eventually("their places", lambda: len(served.app.state.hub) == 0)
        with reading(served, ann):
            pass
        assert ann.get("/api/v1/events?topics=x").json()["where"] == "topics"
        assert served.client().get("/api/v1/events").status_code == 401


async def test_the_end_of_the_console_ends_streams(tmp_path: Path) -> None:
    """It does not wait for pages to go."""
    with console(tmp_path) as served, served.as_user("ann", "viewer").stream("GET", "/api/v1/events") as answer:
        lines = answer.iter_lines()
        next(lines)
        served.publish("now", {})
        served.stop()
        with suppress(httpx2.HTTPError):
            assert [line for line in lines if line.startswith("data: ")] in ([], ["data: {}"])


def test_who_may_no_longer(tmp_path: Path) -> None:
    """Is sent no further news, and comes back as who they are now."""
    with console(tmp_path) as served, served.as_user("ann", "viewer").stream("GET", "/api/v1/events") as answer:
        lines = answer.iter_lines()
        next(lines)
        served.store.accounts.disable("ann", True)
        forward(served.app.state.loop, LOOK)
        served.publish("now", {})
        with pytest.raises(httpx2.RemoteProtocolError):
            assert not [line for line in lines if line.startswith("data: ")]


async def test_who_does_not_read_loses_the_oldest() -> None:
    """And learns how many; others lose nothing."""
    hub = Hub(Limits())
    who = Principal("ann", "user", (Grant(Role.VIEWER),))
    with hub.subscribe(who, ["now"]) as slow:
        for number in range(BACKLOG + 10):
            hub.publish("now", number)
        got = [message async for message in _first(slow.messages(1), BACKLOG + 1)]
        assert got[0] == ("missed", '{"messages":10}')
        assert [json.loads(message[1]) for message in got[1:] if message] == [*range(10, BACKLOG + 10)]


async def _first(messages: Any, number: int) -> Any:
    async for message in messages:
        yield message
        number -= 1
        if not number:
            return
