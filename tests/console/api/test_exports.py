"""Exports: whoever goes away, does not read, loses the right to, or asks too much keeps nobody else waiting."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.types import Message

from spark_jobs.tables.delta import DeltaTables
from spark_jobs.tables.schema import ALERTS
from tests.console.kit import WAIT, Console, console
from tests.console.made import row, rows_of
from tests.looptime import forward
from tests.waits import until
from vedette_console.accept import UNREAD_SECONDS
from vedette_console.data import export, reader
from vedette_console.data.reader import EXPORTS, Reader
from vedette_console.security.identity import cookie_name
from vedette_console.security.principal import Grant, Principal, Role
from vedette_console.store.store import Store
from vedette_console.streams import LOOK, Streamed

EXPORT = "/api/v1/alerts/export"
ROWS = 6_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Alerts whose export, 30 MB, is more than sockets hold."""
    folder = tmp_path_factory.mktemp("tables")
    DeltaTables(str(folder)).append(ALERTS, rows_of(ALERTS, [row(number, raw="x" * 4_000) for number in range(ROWS)]))
    return str(folder)


@pytest.fixture
def served(tmp_path: Path, tables: str) -> Iterator[Console]:
    with console(tmp_path, tables=tables, reports=tmp_path / "reports") as served:
        yield served


def exported(client: httpx2.Client) -> bool:
    """Whether the client gets all; else it is asked to come again."""
    answer = client.get(EXPORT, headers={"Connection": "close"})
    if answer.status_code != 200:
        assert answer.status_code in (429, 503), answer.text
        assert "retry-after" in answer.headers
        return False
    assert answer.text.count("\n") == ROWS
    return True


def test_a_browser_that_goes_leaves_its_reader(served: Console) -> None:
    """At once, and fit for the next."""
    ann = served.as_user("ann", "viewer")
    for _ in range(EXPORTS):
        until("a reader", lambda: begun_and_left(ann))
    until("an export", lambda: exported(ann))


def test_a_browser_that_goes_before_the_first_piece(served: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves its reader, too: the search of an export may take long and find nothing."""
    under_way, over = threading.Event(), threading.Event()

    def searching(reader: Reader, *args: Any) -> Iterator[bytes]:
        under_way.set()
        until("its end", lambda: reader.stopped)
        over.set()
        yield b""

    monkeypatch.setattr(export, "lines", searching)
    connection = asked(served, "ann")
    assert under_way.wait(WAIT)
    connection.close()
    assert over.wait(WAIT)


def begun_and_left(client: httpx2.Client) -> bool:
    with client.stream("GET", EXPORT) as answer:
        assert answer.status_code in (200, 429), answer.read()
        return answer.status_code == 200 and bool(next(answer.iter_raw()))


def test_who_does_not_read(served: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports whose peer takes nothing end after a minute; reports are made meanwhile."""
    monkeypatch.setattr(reader, "EXPORT_SECONDS", 1e9)  # which is not to end them, however often the time moves on
    with ExitStack() as opened:
        for name in ("ann", "ben"):
            connection = opened.enter_context(asked(served, name))
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        cyd = served.as_user("cyd", "analyst")
        until("all readers of exports at work", lambda: not exported(cyd))
        name = cyd.post("/api/v1/reports", json={"days": 1}).json()["name"]
        until("the report", lambda: cyd.get(f"/api/v1/reports/{name}").status_code == 200)

        def ended() -> bool:
            forward(served.app.state.loop, UNREAD_SECONDS)
            return exported(served.session("cyd"))  # by a connection of its own: the console ends old ones, too

        until("an export", ended)


def asked(served: Console, name: str) -> socket.socket:
    """A connection by which a user asks for an export, and that takes little at a time."""
    served.as_user(name, "viewer")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(WAIT)
    connection.connect(("127.0.0.1", served.settings.port))
    cookie = f"{cookie_name(served.settings)}={served.store.sessions.start(name)}"
    connection.sendall(f"GET {EXPORT} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
    return connection


def test_who_reads_slowly_reads_all(served: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece that takes many minutes, in each of which its peer takes some of it, is no reason to end."""
    monkeypatch.setattr(export, "PIECE", 1 << 26)
    taken = 0
    with served.as_user("ann", "viewer").stream("GET", EXPORT) as answer:
        for number, piece in enumerate(answer.iter_raw(1 << 20)):
            taken += piece.count(b"\n")
            if number % 6 == 5:
                forward(served.app.state.loop, UNREAD_SECONDS * 0.9)
    assert taken == ROWS


def test_one_export_a_user(served: Console) -> None:
    """By whichever of their tokens; others have theirs beside it."""
    ann, ben = served.as_user("ann", "viewer"), served.as_user("ben", "viewer")
    with ann.stream("GET", EXPORT) as answer:
        pieces = answer.iter_raw()
        assert next(pieces)
        assert served.token("ann").get(EXPORT).status_code == 429
        assert exported(ben)
    until("an export", lambda: exported(ann))


ENDS: dict[str, Callable[[Store], object]] = {
    "disabled": lambda store: store.accounts.disable("ann", True),
    "narrowed": lambda store: store.accounts.grant("ann", [Grant(Role.VIEWER, "north", "office")]),
    "logged out": lambda store: store.sessions.end_all("ann"),
    "revoked": lambda store: store.tokens.revoke_all("ann"),
}


@pytest.mark.parametrize("end", ENDS)
def test_who_may_no_longer(served: Console, end: str) -> None:
    """Reads no further, and cannot take for whole what there is."""
    client = served.as_user("ann", "viewer")
    if end == "revoked":
        client = served.token("ann")
    with client.stream("GET", EXPORT) as answer:
        pieces = answer.iter_raw()
        assert next(pieces)
        ENDS[end](served.store)
        forward(served.app.state.loop, LOOK)
        with pytest.raises(httpx2.RemoteProtocolError, match="incomplete chunked read"):
            for _ in pieces:
                pass


def test_the_audit_log_of_who_may_no_longer(served: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of the other export."""
    go_on = threading.Event()
    entry = served.store.audit.add("root", "users")

    def all() -> Iterator[Any]:
        yield entry
        assert go_on.wait(WAIT)
        yield entry

    monkeypatch.setattr(served.store.audit, "all", all)
    with served.as_user("ann", "admin").stream("GET", "/api/v1/audit/export") as answer:
        pieces = answer.iter_raw()
        assert b"users" in next(pieces)
        served.store.accounts.disable("ann", True)
        forward(served.app.state.loop, LOOK)
        go_on.set()
        with pytest.raises(httpx2.RemoteProtocolError, match="incomplete chunked read"):
            next(pieces)


async def test_an_answer_that_does_not_begin_closes_its_pieces() -> None:
    """As when the browser goes while the audit log is written."""
    closed = list[bool]()

    async def pieces() -> AsyncGenerator[bytes]:
        try:
            yield b"begun"
            yield b"never sent"
        finally:
            closed.append(True)

    async def send(message: Message) -> None:
        raise OSError("gone")

    source = pieces()
    await anext(source)
    answer = Streamed(Request({"type": "http"}), Principal("ann", "user", ()), source, "text/plain", {})
    with pytest.raises(OSError, match="gone"):
        await answer.stream_response(send)
    assert closed == [True]
