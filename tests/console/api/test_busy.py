"""One user's questions keep nobody else waiting, and nothing that fails once ends what runs beside the routes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from spark_jobs.tables.delta import DeltaTables
from tests.broker import own_port
from tests.console.api.test_events import reading
from tests.console.kit import Console, console
from tests.console.made import row, write_alerts
from tests.looptime import forward
from tests.waits import eventually, until
from vedette.mqtt.settings import MqttSettings
from vedette.region.whereabouts import Whereabouts
from vedette_console import services
from vedette_console.data import alerts, reader
from vedette_console.data.catalog import Catalog
from vedette_console.data.reader import READERS, Pool
from vedette_console.fleet.live import LOOK_SECONDS

HEAVY = {"q": "host:heavy"}


class Heavy:
    """Searches for HEAVY, which take until ``over``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.over, self.under_way = threading.Event(), 0
        self._lock, self._search = threading.Lock(), alerts.search
        patch.setattr(alerts, "search", self)

    def __call__(self, reader: Any, q: str, *args: Any) -> Any:
        if q == HEAVY["q"]:
            with self._lock:
                self.under_way += 1
            while not reader.stopped and not self.over.wait(0.05):
                pass
        return self._search(reader, q, *args)


@contextmanager
def asking(served: Console, name: str, number: int) -> Iterator[list[Future[httpx2.Response]]]:
    """So many requests at once of that user; their answers, once they are there."""
    clients = [served.session(name) for _ in range(number)]
    with ThreadPoolExecutor(number) as threads:
        yield [threads.submit(client.get, "/api/v1/alerts", params=HEAVY) for client in clients]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Console]:
    with console(tmp_path) as served:
        served.as_user("ann", "viewer")
        served.as_user("ben", "viewer")
        yield served


def test_one_users_heavy_questions(served: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for each other; another user's are answered."""
    heavy, ben = Heavy(monkeypatch), served.session("ben")
    with asking(served, "ann", 30) as asked:
        try:
            until("questions under way", lambda: heavy.under_way >= READERS - 1)
            assert [ben.get("/api/v1/alerts").status_code for _ in range(5)] == [200] * 5
            assert (heavy.under_way, any(answer.done() for answer in asked)) == (READERS - 1, False)
        finally:
            heavy.over.set()
        assert {answer.result().status_code for answer in asked} == {200}


def test_too_many_of_one_user(served: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are refused, and come again; another user's wait as ever."""
    monkeypatch.setattr(reader, "WAITING_EACH", 4)
    heavy, ben = Heavy(monkeypatch), served.session("ben")
    with asking(served, "ann", 10) as asked:
        try:
            until("refusals", lambda: sum(answer.done() for answer in asked) == 10 - 4 - (READERS - 1))
            refused = [answer.result() for answer in asked if answer.done()]
            assert {answer.status_code for answer in refused} == {429}
            assert all("retry-after" in answer.headers for answer in refused)
            assert ben.get("/api/v1/alerts").status_code == 200
        finally:
            heavy.over.set()
    assert ben.get("/api/v1/alerts").status_code == 200


class Faults:
    """In the place of a method: fails as nobody foresaw until ``over``, of what is made from here on: other tests'
    consoles may run in this process."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.number, self.over = 0, False
        method, begin, own = getattr(owner, name), owner.__init__, set[int]()

        def begun(self: Any, *args: Any, **named: Any) -> None:
            own.add(id(self))
            begin(self, *args, **named)

        def faulty(*args: Any) -> Any:
            if self.over or id(args[0]) not in own:
                return method(*args)
            self.number += 1
            raise RuntimeError("as nobody foresaw")

        patch.setattr(owner, "__init__", begun)
        patch.setattr(owner, name, faulty)


@pytest.mark.parametrize("fault", [(Catalog, "versions"), (Pool, "work")])
async def test_news_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: tuple[type, str]) -> None:
    """After whatever fault of the tables, and of the page that is made of them."""
    faults = Faults(monkeypatch, *fault)
    with console(tmp_path) as served, reading(served, served.session("root"), "alerts") as events:
        tables, rounds = DeltaTables(served.settings.tables), 0

        def news() -> bool:
            nonlocal rounds
            rounds += 1
            write_alerts(tables, [row(rounds)])
            forward(served.app.state.loop, services.LOOK)
            return bool(events)

        await eventually("a fault", lambda: faults.number)
        faults.over = True
        await eventually("news", news)


@pytest.mark.parametrize(
    ("owner", "name", "step", "seconds"),
    [
        (Catalog, "versions", "news of alerts", services.LOOK),
        (Whereabouts, "look", "the fleet's link and members", LOOK_SECONDS),
    ],
)
def test_steps_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, step: str, seconds: float
) -> None:
    """Whatever goes wrong, logged once."""
    faults = Faults(monkeypatch, owner, name)
    with capture_logs() as logs, console(tmp_path, broker=MqttSettings(f"mqtt://127.0.0.1:{own_port()}")) as served:
        until("further steps", lambda: faults.number > 9 or forward(served.app.state.loop, seconds))
    assert [entry.get("step") for entry in logs].count(step) == 1
