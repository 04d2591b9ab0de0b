"""Requests to hosts in the background: asked once, awaited as long as they hold, over outages and restarts.

    REQUESTS/ID/console.json     who asked here and what for, whom at which site (``notes.py``)
    REQUESTS/ID/.rules/          the rule files of a hunt, for its page; the rest is ``region/requests.py``'s

* A request is on disk, signed and noted, before it is sent: a console that is killed in the middle goes on with its
  next start, by asking for what lacks (``region.requests.converse``). Agents take a request once, however often it
  comes. The note is written again when the request is over: lists need nothing else. In time it is removed, with
  its request: every hour, and when another is over; by its age once the clock has been believed for BELIEVED seconds.
* A broker that is away is waited for; the request says so.
* AT_ONCE conversations at the same time: where others wait each has SHARE_SECONDS, so that hosts that are away keep
  nobody waiting who asks hosts that answer. MAX_OPEN requests are under way in all, of one user MAX_OWN.
* A disk that takes nothing for a while keeps a request open until it does. One whose task has failed, or
  that was cancelled, does not count then.
* One console works in a folder of requests; a second one there reads, and asks nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from vedette.bundle.manifest import rfc3339
from vedette.fleet.replies import Part, records
from vedette.fleet.requests import ID, Request
from vedette.region import requests
from vedette.region.hunts import HostFindings, added
from vedette.region.requests import Answer, Collection
from vedette.system import foreign
from vedette.system.folders import locked
from vedette.system.trouble import Backoff
from vedette.system.wallclock import BELIEVED, WallClock, utc_now
from vedette_console.fleet.authoring import write_rules
from vedette_console.fleet.means import as_given, need_authorities, need_broker, need_key, need_requests, revoked_now
from vedette_console.fleet.models_asked import AgentAnswer, Job
from vedette_console.fleet.notes import ACT, Note, Notes, Totals
from vedette_console.security.principal import Principal, user_of
from vedette_console.settings import Settings
from vedette_console.steady import Steady
from vedette_console.web import Problem, written

RULES = ".rules"
"""No agent is called so."""
NO_ANSWER, ANSWERING, NOT_TAKEN = "no answer", "answering", "not taken"


class Asked:
    """A request whose replies are read, or awaited."""

    def __init__(self, note: Note, collection: Collection) -> None:
        self.note, self.collection = note, collection
        self.outage = ""
        """Why it does not come on, in words; empty: it does."""
        self.queued = True
        self.closed = False
        """Its record is written; a note that cannot be written yet is tried again."""
        self.stored = False
        """Evidence of it is stored, and said to be."""
        self.came = 0.0
        """When the last part came, by the loop's clock."""
        self.stop = asyncio.Event()
        """It is to be called off."""
        self.hosts: dict[str, HostFindings] = {}
        """Of a hunt: what each host has found."""
        self._lock = threading.Lock()

    def fold(self, agent: str, part: Part) -> None:
        """Count what a part says, of a hunt."""
        if self.note.kind == "hunt":
            with self._lock:
                self.hosts.setdefault(agent, HostFindings()).take(records(part))

    def read(self) -> None:
        """Count what is on disk. Blocking; raises OSError."""
        for agent, answer in self.collection.answers.items():
            if answer.have:
                for part in self.collection.parts(agent):
                    self.fold(agent, part)

    @property
    def over(self) -> bool:
        return all(answer.over for answer in self.collection.answers.values())

    @property
    def called_off(self) -> bool:
        """Nobody is asked any more, and all that lacks is its note."""
        return self.closed and self.collection.cancelled

    def state(self, now: int) -> tuple[str, str]:
        """State as in ``models_asked.Job``, and why. ``now``: UTC microseconds."""
        if self.note.state:
            return self.note.state, ""
        if self.collection.cancelled:
            return "cancelled", ""
        if self.over:
            return "asking", self.outage  # until all of it is counted and kept
        if self.note.left(now) < 0:
            return "expired", "agents may not act on it any more"
        if self.outage:
            return "broker away", self.outage
        if self.queued:
            return "queued", "other requests are under way"
        answering = any(answer.have and not answer.over for answer in self.collection.answers.values())
        return ("asking", "") if answering or not self.came else ("waiting", "hosts that are away, or at work")

    def totals(self, seen: AbstractSet[str] | None = None) -> Totals:
        """Sums of the agents ``seen``; None: of all."""
        answers = [answer for agent, answer in self.collection.answers.items() if seen is None or agent in seen]
        hosts = [host for agent, host in [*self.hosts.items()] if seen is None or agent in seen]
        last = [host.progress for host in hosts if host.progress is not None]
        counts, _ = added(hosts)
        return Totals(
            sum(answer.whole for answer in answers),
            sum(answer.over and answer.state != "done" for answer in answers),
            min(foreign.COUNT, sum(progress.events for progress in last)),
            min(foreign.COUNT, max(counts.total(), sum(progress.matches for progress in last))),
        )  # fmt: skip

    def settled(self) -> Note:
        """The note of a request that is over, once all that came is counted."""
        state = "cancelled" if self.collection.cancelled else "done" if self.over else "expired"
        return replace(self.note, state=state, totals=self.totals())


def job(note: Note, who: Principal, asked: Asked | None, now: int) -> Job:
    """A request for a list or a page, of the agents that ``who`` may see; of a request that is over without its
    replies, where that is all of them."""
    state, why = asked.state(now) if asked is not None else (note.state or "expired", "")
    seen, totals = note.seen(who), totals_of(note, who, asked)
    every = asked.collection.answers.items() if asked is not None else ()
    answers = [answer for agent, answer in every if agent in seen]
    return Job(
        id=note.id, kind=note.kind, state=state, why=why, title=note.title, by=note.by,  # type: ignore[arg-type]
        operator=note.operator, reason=as_given(note.reason, note.by), created=rfc3339(note.created),
        expires=rfc3339(note.expires), asked=len(seen), whole=totals.whole, failed=totals.failed,
        answering=sum(bool(answer.have) and not answer.over for answer in answers), cancelled=state == "cancelled",
        may_cancel=state in OPEN and note.may_cancel(who),
    )  # fmt: skip


def totals_of(note: Note, who: Principal, asked: Asked | None) -> Totals:
    """Sums of the agents that ``who`` may see."""
    seen = note.seen(who)
    whole = len(seen) == len(note.sites)
    if whole and (asked is None or note.state):
        return note.totals
    return asked.totals(None if whole else seen) if asked is not None else Totals()


OPEN = ("queued", "asking", "waiting", "broker away")


def answer_row(asked: Asked, agent: str) -> AgentAnswer:
    answer, host = asked.collection.answers[agent], asked.hosts.get(agent)
    state, reason = answer_state(answer)
    last = host.progress if host is not None else None
    return AgentAnswer(
        agent=agent, fleet=asked.note.fleet, site=asked.note.sites.get(agent, ""), state=state, reason=reason,
        parts=len(answer.have), bytes=answer.size, whole=answer.whole, events=last and last.events,
        matches=last and last.matches, oldest=last and written(last.oldest), reached=last and written(last.reached),
        share=last and last.share,
        notes=[note[:500] for note in host.notes[:50]] if host is not None else [],
    )  # fmt: skip


def answer_state(answer: Answer) -> tuple[str, str]:
    if answer.stopped:
        return ("cancelled" if answer.stopped.startswith("cancelled") else NOT_TAKEN), answer.stopped
    if not answer.whole:
        return (ANSWERING if answer.have else NO_ANSWER), ""
    return answer.state, answer.reason


log = structlog.get_logger()

AT_ONCE, MAX_OPEN, MAX_OWN = 16, 200, 50
GRACE_SECONDS = 300.0
"""After a request has expired, for replies that are on their way."""
CANCEL_SECONDS = 30.0
"""For agents to send what they had found when it was cancelled."""
TURN_SECONDS = 3600.0
"""Of one conversation; then another connection is made."""
SHARE_SECONDS = 30.0
"""Of one conversation while others wait."""
KEPT = 64
"""Requests whose replies are at hand."""
TIDY_SECONDS = 3600.0
"""Between two looks for requests to remove."""


class Desk:
    """``news`` is called when something of a request is new; ``settled`` when one is over, in a thread."""

    def __init__(self, settings: Settings, news: Callable[[str], None], settled: Callable[[Asked], None]) -> None:
        self._settings, self._news, self._settled = settings, news, settled
        self._open: dict[str, Asked] = {}
        self._beginning = Counter[str]()
        """By user the requests that are being written."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._recent: OrderedDict[str, Asked] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self.notes = Notes(settings.requests, settings.keep_requests, settings.evidence)
        self._ended = asyncio.Event()
        """A request is over, since it was looked for some to remove."""
        self._tidying: asyncio.Task[None] | None = None
        self._lock: int | None = None
        self.fault = ""
        """Why nothing is asked here; empty: it is."""

    async def start(self) -> None:
        folder = self._settings.requests
        if folder is None or self._settings.broker is None:
            return
        try:
            await asyncio.to_thread(self._take, folder)
            for note in await asyncio.to_thread(self.notes.look):
                await self._resume(folder, note)
            self._tidying = asyncio.create_task(self._tidy())
        except (OSError, ValueError) as error:
            self.fault = str(error)
            log.error("console_requests_failed", reason=self.fault, action="requests made before do not go on")

    def _take(self, folder: Path) -> None:
        """Raises OSError when another console works here."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = locked(folder, "another console works in this folder of requests")

    async def stop(self) -> None:
        """Conversations end; their requests go on with the next start."""
        tasks = [*self._tasks.values(), *([self._tidying] if self._tidying is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._lock is not None:
            os.close(self._lock)

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
        asked = Asked(note, Collection(place, need_authorities(self._settings), revoked_now(self._settings)))
        asked.read()
        return asked

    # --- what is asked

    async def ask(
        self, request: Request, key: Ed25519PrivateKey, sites: Mapping[str, str], *, title: str, by: str,
        alert: str = "", more: Mapping[str, Any] | None = None, rules: Mapping[str, str] | None = None,
    ) -> Asked:  # fmt: skip
        """Make a request and begin to ask it; ``sites``: whom, with the site of each; ``rules``: texts by path. Raises
        Problem."""
        need_broker(self._settings)
        folder, authorities = need_requests(self._settings), need_authorities(self._settings)
        if self.fault:
            raise Problem(503, self.fault, what_to_do="end the other console, or give this one a folder of its own")
        user = user_of(by)
        under_way = [asked for id in self._tasks if (asked := self._open.get(id)) is not None and not asked.called_off]
        own = sum(user_of(asked.note.by) == user for asked in under_way)
        if len(under_way) + self._beginning.total() >= MAX_OPEN:
            raise Problem(429, f"{MAX_OPEN} requests are under way", what_to_do="wait for one to end, or cancel one")
        if own + self._beginning[user] >= MAX_OWN:
            raise Problem(
                429, f"{MAX_OWN} of your requests are under way", what_to_do="cancel one, or wait for its end"
            )
        note = Note(
            request.id, request.kind, title, by, request.operator, request.reason, request.created, request.expires,
            request.fleet, dict(sites), more or {},
        )  # fmt: skip

        def beside(place: Path) -> None:
            write_rules(rules or {}, place / RULES)
            note.write(place)

        def begin() -> Collection:
            revoked = revoked_now(self._settings)
            return Collection.begin(
                folder, request, key, [*sites], authorities, revoked, alert=alert, beside=beside
            )  # fmt: skip

        self._beginning[user] += 1
        try:
            collection = await asyncio.to_thread(begin)
        except (OSError, ValueError) as error:
            raise Problem(503, f"the request cannot be kept: {error}", what_to_do=f"look at {folder}") from error
        finally:
            self._beginning[user] -= 1
        asked = Asked(note, collection)
        self._begin(asked, fresh=True)
        return asked

    def _begin(self, asked: Asked, *, fresh: bool) -> None:
        self._open[asked.note.id] = asked
        task = asyncio.create_task(self._conduct(asked, fresh))
        self._tasks[asked.note.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(asked.note.id, None))

    async def cancel(self, who: Principal, id: str) -> Job:
        """Call off a request; what hosts have found until then still comes. It is on disk that it is cancelled before
        this returns. Raises Problem 403, 404, 409, 503."""
        asked = await asyncio.to_thread(self.of, who, id, *ACT)
        if not asked.note.may_cancel(who):
            raise Problem(403, f"{who.name} may not cancel this: {ACT[asked.note.kind]} at all of its sites")
        if id not in self._open:
            raise Problem(409, "this request is over already")
        key = need_key(self._settings)
        if not asked.collection.cancelled:
            try:
                await asyncio.to_thread(asked.collection.cancel, key)
            except OSError as error:
                raise Problem(503, f"it cannot be cancelled: {error}", what_to_do="look at the disk") from error
        asked.stop.set()
        if id in self._open and id not in self._tasks:  # its task has failed
            self._begin(asked, fresh=False)
        self._news(id)
        return job(asked.note, who, asked, utc_now())

    # --- conversations

    async def _conduct(self, asked: Asked, fresh: bool) -> None:
        """Until it is over: done, cancelled, expired."""
        backoff = Backoff()
        try:
            while not asked.over and self._left(asked) > 0:
                try:
                    asked.queued = self._turns.locked()
                    async with self._turns:
                        asked.queued = False
                        self._news(asked.note.id)
                        await self._converse(asked, fresh, min(self._left(asked), TURN_SECONDS))
                    fresh, asked.outage = False, ""
                    backoff.reset()
                except (OSError, Problem) as error:
                    asked.outage = str(error)
                    self._news(asked.note.id)
                    await asyncio.sleep(backoff.failed())
                    fresh = False  # what was sent is asked for again, what was not is sent then
            asked.queued = False
            await self._settle(asked, backoff)
        except Exception as error:  # what nobody foresaw of a host: the next start goes on, or a cancel
            asked.outage = str(error) or repr(error)
            log.exception("console_request_failed", request=asked.note.id, reason=asked.outage)
        finally:
            self._ended.set()
            self._news(asked.note.id)

    def _left(self, asked: Asked) -> float:
        return asked.note.left(utc_now()) + GRACE_SECONDS

    async def _converse(self, asked: Asked, fresh: bool, seconds: float) -> None:
        """Raises OSError, Problem."""
        key, broker, note = need_key(self._settings), need_broker(self._settings), asked.note
        share = time.monotonic() + SHARE_SECONDS
        async with requests.by_broker(broker, note.fleet, note.id[:12]) as wire:
            asked.outage = ""

            def news(agent: str, part: Part) -> None:
                asked.came = time.monotonic()
                asked.fold(agent, part)
                self._news(note.id)

            def gives_way() -> bool:
                late = time.monotonic() > share and not asked.stop.is_set()  # who cancels waits CANCEL_SECONDS
                return late and any(other.queued for other in [*self._open.values()])

            talk = asyncio.create_task(
                requests.converse(
                    wire, asked.collection, key, seconds, fresh=fresh, news=news, gives_way=gives_way,
                )
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

    async def _settle(self, asked: Asked, backoff: Backoff) -> None:
        """Write down how it ended, once the disk takes it; a cancel tries at once."""
        while True:
            try:
                return await asyncio.to_thread(self._write_down, asked)
            except OSError as error:
                asked.outage = str(error)
                log.warning("console_request_unsettled", request=asked.note.id, reason=asked.outage)
                self._news(asked.note.id)
            stopping = asked.stop.is_set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.failed()):
                    await (asyncio.Event() if stopping else asked.stop).wait()

    def _write_down(self, asked: Asked) -> None:
        """Raises OSError."""
        if not asked.closed:
            asked.collection.close()
            asked.closed = True
        if not asked.stored:
            self._settled(asked)
            asked.stored = True
        note = asked.settled()
        note.write(asked.collection.folder)
        asked.note = note
        self._open.pop(note.id, None)
        self._remember(asked)

    async def _tidy(self) -> None:
        """Remove requests that are over, each hour and when one more is."""
        steady, clock = Steady("requests that are over"), WallClock()
        begun = clock()
        while True:
            self._ended.clear()
            now = clock.trusted()
            with steady:
                believed = now if now - begun > BELIEVED * 1e6 else None
                for id in await asyncio.to_thread(self.notes.tidy, self._open, believed):
                    self._recent.pop(id, None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TIDY_SECONDS):
                    await self._ended.wait()

    # --- what is known

    def note(self, id: str) -> Note | None:
        """One that was listed; None: it is gone. Blocking."""
        asked = self._open.get(id)
        return asked.note if asked is not None else self.notes.read(id)

    def sees(self, id: str, who: Principal) -> bool:
        """Whether ``who`` may see one that is at hand."""
        asked = self._open.get(id) or self._recent.get(id)
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

    def at_hand(self, id: str) -> Asked | None:
        """One that was listed, with its replies; None: it is damaged, or gone. Blocking; raises Problem 503."""
        try:
            return self.find(id)
        except Problem as problem:
            if problem.status != 404:
                raise
            return None

    def find(self, id: str) -> Asked:
        """One with its replies. Blocking; raises Problem 404."""
        if (asked := self._open.get(id) or self._recent.get(id)) is not None:
            return asked
        folder = self._settings.requests
        try:
            if folder is None or not ID.fullmatch(id):
                raise FileNotFoundError
            asked = self._load(folder, Note.read(folder / id))
        except (OSError, ValueError) as error:
            raise _none(id) from error
        self._remember(asked)
        return asked

    def _remember(self, asked: Asked) -> None:
        self._recent[asked.note.id] = asked
        while len(self._recent) > KEPT:
            self._recent.popitem(last=False)


def _none(id: str) -> Problem:
    return Problem(404, f"no request {id[:64]}", where="id", what_to_do="see /hunts")
