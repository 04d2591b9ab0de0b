"""Requests to hosts in the background: asked once, awaited as long as they hold, over outages and restarts.

* A request is on disk, signed and noted, before it is sent: a console that is killed in the middle goes on with its
  next start, by asking for what lacks (``region.requests.converse``). Agents take a request once, however often it
  comes.
* A broker that is away is waited for; the request says so.
* AT_ONCE conversations at the same time, MAX_OPEN under way in all: others wait, or are refused.
* One console works in a folder of requests; a second one there reads, and asks nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.fleet.replies import Part
from vedette.fleet.requests import ID, Request
from vedette.region import requests
from vedette.region.requests import Collection
from vedette.system.backoff import Backoff
from vedette.system.wallclock import utc_now
from vedette_console.fleet.asked import Asked, Note
from vedette_console.fleet.given import Given
from vedette_console.security.principal import Principal
from vedette_console.web import Problem

log = structlog.get_logger()

AT_ONCE, MAX_OPEN = 16, 200
GRACE_SECONDS = 300.0
"""After a request has expired, for replies that are on their way."""
CANCEL_SECONDS = 30.0
"""For agents to send what they had found when it was cancelled."""
TURN_SECONDS = 3600.0
"""Of one conversation; then another connection is made."""
KEPT = 64
"""Requests whose replies are at hand."""
LISTED = 2000
"""Newest requests that are listed."""


class Desk:
    """``news`` is called when something of a request is new; ``settled`` when one is over, in a thread."""

    def __init__(self, given: Given, news: Callable[[str], None], settled: Callable[[Asked], None]) -> None:
        self._given, self._news, self._settled = given, news, settled
        self._open: dict[str, Asked] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._kept: OrderedDict[str, Asked] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._lock: int | None = None
        self.fault = ""
        """Why nothing is asked here; empty: it is."""

    async def start(self) -> None:
        folder = self._given.requests
        if folder is None or self._given.broker is None:
            return
        try:
            await asyncio.to_thread(self._take, folder)
            for note in await asyncio.to_thread(self._unfinished, folder):
                await self._resume(folder, note)
        except (OSError, ValueError) as error:
            self.fault = f"{folder}: {error}"
            log.error("console_requests_failed", reason=self.fault, action="requests made before do not go on")

    def _take(self, folder: Path) -> None:
        """Raises OSError when another console works here."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(folder / "console.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError("another console works in this folder of requests") from error

    async def stop(self) -> None:
        """Conversations end; their requests go on with the next start."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._lock is not None:
            os.close(self._lock)

    def _unfinished(self, folder: Path) -> list[Note]:
        return [note for note in self.notes() if not note.state]

    async def _resume(self, folder: Path, note: Note) -> None:
        try:
            asked = await asyncio.to_thread(self._load, folder, note)
        except Exception as error:  # of one request, whose hosts may say anything
            log.warning("console_request_failed", request=note.id, reason=str(error) or repr(error))
            return
        self._begin(asked, fresh=False)

    def _load(self, folder: Path, note: Note) -> Asked:
        """Blocking. Raises OSError, ValueError, Problem."""
        place = folder / note.id
        asked = Asked(note, Collection(place, self._given.need_authorities(), self._given.revoked_now()))
        asked.read()
        return asked

    # --- what is asked

    async def ask(
        self, request: Request, key: Ed25519PrivateKey, sites: Mapping[str, str], *, title: str, by: str,
        alert: str = "", more: Mapping[str, Any] | None = None,
    ) -> Asked:  # fmt: skip
        """Make a request and begin to ask it; ``sites``: whom, with the site of each. Raises Problem."""
        self._given.need_broker()
        folder, authorities = self._given.need_requests(), self._given.need_authorities()
        if self.fault:
            raise Problem(503, self.fault, what_to_do="end the other console, or give this one a folder of its own")
        if len(self._open) >= MAX_OPEN:
            raise Problem(429, f"{MAX_OPEN} requests are under way", what_to_do="wait for one to end, or cancel one")
        note = Note(
            request.id, request.kind, title, by, request.operator, request.reason, request.created, request.expires,
            request.fleet, dict(sites), more or {},
        )  # fmt: skip

        def begin() -> Collection:
            revoked = self._given.revoked_now()
            made = Collection.begin(folder, request, key, [*sites], authorities, revoked, alert=alert)
            note.write(folder / request.id)
            return made

        try:
            collection = await asyncio.to_thread(begin)
        except (OSError, ValueError) as error:
            raise Problem(503, f"the request cannot be kept: {error}", what_to_do=f"look at {folder}") from error
        asked = Asked(note, collection)
        self._begin(asked, fresh=True)
        return asked

    def _begin(self, asked: Asked, *, fresh: bool) -> None:
        self._open[asked.note.id] = asked
        task = asyncio.create_task(self._conduct(asked, fresh))
        self._tasks[asked.note.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(asked.note.id, None))

    async def cancel(self, id: str) -> None:
        """It is on disk that it is cancelled before this returns. Raises Problem 409, 503."""
        asked = self._open.get(id)
        if asked is None:
            raise Problem(409, "this request is over already")
        key = self._given.need_key()
        if not asked.collection.cancelled:
            try:
                await asyncio.to_thread(asked.collection.cancel, key)
            except OSError as error:
                raise Problem(503, f"it cannot be cancelled: {error}", what_to_do="look at the disk") from error
        asked.stop.set()
        self._news(id)

    # --- conversations

    async def _conduct(self, asked: Asked, fresh: bool) -> None:
        """Until it is over: done, cancelled, expired."""
        backoff = Backoff()
        try:
            async with self._turns:
                asked.queued = False
                self._news(asked.note.id)
                while not asked.over and (left := self._left(asked)) > 0:
                    try:
                        await self._converse(asked, fresh, min(left, TURN_SECONDS))
                        fresh, asked.outage = False, ""
                        backoff.reset()
                    except (OSError, Problem) as error:
                        asked.outage = str(error)
                        self._news(asked.note.id)
                        await asyncio.sleep(backoff.failed())
                        fresh = False  # what was sent is asked for again, what was not is sent then
            await asyncio.to_thread(self._settle, asked)
        except Exception as error:  # a full disk, or what nobody foresaw of a host: the next start goes on
            asked.outage = str(error) or repr(error)
            log.exception("console_request_failed", request=asked.note.id, reason=asked.outage)
        finally:
            self._news(asked.note.id)

    def _left(self, asked: Asked) -> float:
        return (asked.note.expires - utc_now()) / 1e6 + GRACE_SECONDS

    async def _converse(self, asked: Asked, fresh: bool, seconds: float) -> None:
        """Raises OSError, Problem."""
        key, broker, note = self._given.need_key(), self._given.need_broker(), asked.note
        async with requests.by_broker(broker, note.fleet, note.id[:12]) as wire:
            asked.outage = ""

            def news(agent: str, part: Part) -> None:
                asked.came = time.monotonic()
                asked.fold(agent, part)
                self._news(note.id)

            talk = asyncio.create_task(
                requests.converse(wire, asked.collection, key, seconds, fresh=fresh, news=news)
            )  # fmt: skip
            stop = asyncio.create_task(asked.stop.wait())
            try:
                if asked.collection.cancelled:
                    asked.stop.set()
                await asyncio.wait({talk, stop}, return_when=asyncio.FIRST_COMPLETED)
                if not talk.done():
                    await requests.call_off(wire, asked.collection, key)
                    await asyncio.wait({talk}, timeout=CANCEL_SECONDS)
                if talk.done():
                    talk.result()
                else:
                    for answer in asked.collection.answers.values():
                        if not answer.over:
                            answer.stopped = "cancelled; it does not answer"
            finally:
                for task in (talk, stop):
                    task.cancel()
                await asyncio.gather(talk, stop, return_exceptions=True)

    def _settle(self, asked: Asked) -> None:
        """Write down how it ended. Raises OSError."""
        asked.collection.close()
        self._settled(asked)
        note = asked.settled()
        note.write(asked.collection.folder)
        asked.note = note
        self._open.pop(note.id, None)
        self._keep(asked)

    # --- what is known

    def notes(self) -> list[Note]:
        """The newest first. Blocking."""
        folder = self._given.requests
        if folder is None:
            return []
        found = []
        for path in folder.glob("*/console.json"):
            with contextlib.suppress(OSError, ValueError):
                asked = self._open.get(path.parent.name)
                found.append(asked.note if asked is not None else Note.read(path.parent))
        return sorted(found, key=lambda note: (-note.created, note.id))[:LISTED]

    def sees(self, id: str, who: Principal) -> bool:
        """Whether ``who`` may see one that is at hand."""
        asked = self._open.get(id) or self._kept.get(id)
        return asked is not None and bool(asked.note.seen(who))

    def of(self, who: Principal, id: str, *kinds: str) -> Asked:
        """One of these kinds, with its replies, that ``who`` may see. Blocking; raises Problem 404, the same when there
        is none."""
        asked = self.find(id)
        if asked.note.kind not in kinds or not asked.note.seen(who):
            raise _none(id)
        return asked

    def at_work(self, id: str) -> Asked | None:
        return self._open.get(id)

    def find(self, id: str) -> Asked:
        """One with its replies. Blocking; raises Problem 404."""
        if (asked := self._open.get(id) or self._kept.get(id)) is not None:
            return asked
        folder = self._given.requests
        try:
            if folder is None or not ID.fullmatch(id):
                raise FileNotFoundError
            asked = self._load(folder, Note.read(folder / id))
        except (OSError, ValueError) as error:
            raise _none(id) from error
        self._keep(asked)
        return asked

    def _keep(self, asked: Asked) -> None:
        self._kept[asked.note.id] = asked
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)


def _none(id: str) -> Problem:
    return Problem(404, f"no request {id[:64]}", where="id", what_to_do="see /hunts")
