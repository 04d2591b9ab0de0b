"""A real console on loopback, in a thread of the test, and clients that are logged in."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI

from tests.waits import DEADLINE
from vedette_console.app import create
from vedette_console.security import csrf
from vedette_console.security.identity import cookie_name
from vedette_console.security.principal import Grant, Role
from vedette_console.server import listen
from vedette_console.settings import Settings
from vedette_console.store.database import Conflict
from vedette_console.store.store import Store, open_store

WAIT = DEADLINE
"""Of clients and threads."""


class Console:
    """A running console. Clients are closed with it."""

    def __init__(self, app: FastAPI, store: Store, settings: Settings, open: ExitStack) -> None:
        self.app, self.store, self.settings, self._open = app, store, settings, open
        self.url = settings.url
        self.stop: Callable[[], None] = lambda: None

    def client(
        self, headers: Mapping[str, str] | None = None, cookies: Mapping[str, str] | None = None
    ) -> httpx2.Client:
        """One that is nobody yet."""
        return self._open.enter_context(
            httpx2.Client(
                base_url=self.url,
                headers=headers,
                cookies=dict(cookies or {}),
                timeout=WAIT,
                trust_env=False,
                verify=False,  # on loopback, by HTTP: no authorities to load
            )
        )

    def user(self, name: str, *grants: Grant) -> None:
        """A user with these grants, whatever they had."""
        try:
            self.store.accounts.add(name, grants)
        except Conflict:
            self.store.accounts.grant(name, grants)

    def publish(self, topic: str, data: object) -> None:
        """``Hub.publish`` in the console's own thread."""
        self.app.state.loop.call_soon_threadsafe(self.app.state.hub.publish, topic, data)

    def session(self, name: str) -> httpx2.Client:
        """A user's client, logged in, which sends the CSRF token."""
        cookie = self.store.sessions.start(name)
        return self.client({csrf.HEADER: csrf.token(cookie)}, {cookie_name(self.settings): cookie})

    def as_user(self, name: str, role: str, fleet: str = "*", site: str = "*") -> httpx2.Client:
        """The client of a user with one grant."""
        self.user(name, Grant(Role(role), fleet, site))
        return self.session(name)

    def token(self, name: str, *grants: Grant, acts: list[str] | None = None) -> httpx2.Client:
        """A script's client, with a token of that user; without ``grants`` for all that they may."""
        _, text = self.store.tokens.add(name, "test", grants or (Grant(Role.ADMIN),), acts=acts)
        return self.client({"Authorization": f"Bearer {text}"})


@contextmanager
def console(folder: Path, **settings: Any) -> Iterator[Console]:
    """A console whose database is in ``folder``; an admin ``root`` is there, so that others can be changed at will."""
    chosen = Settings(**{"database": f"sqlite:{folder / 'console.db'}", "tables": str(folder / "tables"), **settings})
    with ExitStack() as open:
        store = open_store(chosen)
        open.callback(store.close)
        if not store.accounts.administered():
            store.accounts.add("root", [Grant(Role.ADMIN)])
        # A port may be given where others must know it beforehand; else any free one.
        app = create(chosen if "port" in settings else replace(chosen, port=0), store)
        port, stop = open.enter_context(running(app))
        served = Console(app, store, replace(chosen, port=port), open)
        served.stop = stop
        yield served


@contextmanager
def running(app: FastAPI) -> Iterator[tuple[int, Callable[[], None]]]:
    """The application served in a thread: its port, and what ends it. Raises what serving raises."""
    started = threading.Event()
    ports: list[int] = []
    failed: list[BaseException] = []
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    app.state.loop = loop

    def begun(port: int) -> None:
        ports.append(port)
        started.set()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(listen(app, stop, begun))
        except BaseException as error:
            failed.append(error)
        finally:
            started.set()

    def end() -> None:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join(WAIT)

    thread = threading.Thread(target=run, name="console")
    thread.start()
    try:
        assert started.wait(WAIT)
        if failed:
            raise failed[0]
        yield ports[0], end
    finally:
        end()
    if failed:
        raise failed[0]
