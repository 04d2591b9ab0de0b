"""One request to hosts as the console keeps it: its note on disk, its replies, and how it stands.

    REQUESTS/ID/console.json     who asked here and what for, whom at which site; the rest is ``region/requests.py``'s

The note is written before anything is sent, and again when the request is over: lists need nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from vedette.bundle.manifest import rfc3339
from vedette.fleet.replies import Part, records
from vedette.region.hunts import HostFindings, added
from vedette.region.requests import Answer, Collection
from vedette.system import foreign
from vedette.system.durable import write_whole
from vedette_console.fleet.models import AgentAnswer, Job
from vedette_console.fleet.operators import as_given
from vedette_console.security.principal import Principal

NOTE = "console.json"
NO_ANSWER, ANSWERING, NOT_TAKEN = "no answer", "answering", "not taken"
ACT = {"hunt": "hunt", "evidence": "evidence", "ask": "fleet.ask", "do": "fleet.ask"}
"""Who may make a request of a kind, and cancel it."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Of a request that is over, for lists."""

    whole: int = 0
    failed: int = 0
    events: int = 0
    matches: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """Times are UTC microseconds. ``sites``: site by agent, when it was asked. ``more``: what its kind shows besides.
    ``state``: how it ended; empty: it has not."""

    id: str
    kind: str
    title: str
    by: str
    operator: str
    reason: str
    created: int
    expires: int
    fleet: str
    sites: Mapping[str, str]
    more: Mapping[str, Any] = field(default_factory=dict)
    state: str = ""
    totals: Totals = field(default_factory=Totals)

    def write(self, folder: Path) -> None:
        """``folder``: REQUESTS/ID. Raises OSError."""
        write_whole(folder / NOTE, orjson.dumps(asdict(self)), 0o600)

    @classmethod
    def read(cls, folder: Path) -> Note:
        """Raises OSError, ValueError."""
        row = foreign.read((folder / NOTE).read_bytes())
        try:
            note = cls(**{**row, "totals": Totals(**row["totals"])})
            times = foreign.count(note.created, -1), foreign.count(note.expires, -1)
            if note.id != folder.name or min(times) < 0 or not {*map(type, note.sites.values())} <= {str}:
                raise ValueError("its id, its times or its sites are none")
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ValueError(f"{folder / NOTE} is damaged: {error}") from error
        return note

    def seen(self, who: Principal) -> set[str]:
        """The agents of it that ``who`` may see."""
        scope = who.sites()
        return {agent for agent, site in self.sites.items() if scope.sees(self.fleet, site)}

    def may_cancel(self, who: Principal) -> bool:
        """Whether all of its agents are at sites where ``who`` may ask the like."""
        scope = who.sites(ACT[self.kind])
        return all(scope.sees(self.fleet, site) for site in {*self.sites.values()})


class Asked:
    """A request whose replies are read, or awaited."""

    def __init__(self, note: Note, collection: Collection) -> None:
        self.note, self.collection = note, collection
        self.outage = ""
        """Why it does not come on, in words; empty: it does."""
        self.queued = True
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

    def state(self, now: int) -> tuple[str, str]:
        """Of ``models.Job``, and why. ``now``: UTC microseconds."""
        if self.note.state:
            return self.note.state, ""
        if self.collection.cancelled:
            return "cancelled", ""
        if self.over:
            return "asking", ""  # until all of it is counted and kept
        if now > self.note.expires:
            return "expired", "agents may not act on it any more"
        if self.outage:
            return "broker away", self.outage
        if self.queued:
            return "queued", "other requests are under way"
        answering = any(answer.have and not answer.over for answer in self.collection.answers.values())
        return ("asking", "") if answering or not self.came else ("waiting", "hosts that are away, or at work")

    def totals(self, seen: AbstractSet[str] | None = None) -> Totals:
        """Of the agents ``seen``; None: of all."""
        answers = [one for agent, one in self.collection.answers.items() if seen is None or agent in seen]
        hosts = [one for agent, one in [*self.hosts.items()] if seen is None or agent in seen]
        last = [one for host in hosts if (one := host.progress) is not None]
        counts, _ = added(hosts)
        return Totals(
            sum(answer.whole for answer in answers),
            sum(answer.over and answer.state != "done" for answer in answers),
            min(foreign.COUNT, sum(one.events for one in last)),
            min(foreign.COUNT, max(counts.total(), sum(one.matches for one in last))),
        )  # fmt: skip

    def settled(self) -> Note:
        """It is over, and all that came is counted."""
        state = "cancelled" if self.collection.cancelled else "done" if self.over else "expired"
        return replace(self.note, state=state, totals=self.totals())


def job(note: Note, who: Principal, asked: Asked | None, now: int) -> Job:
    """For a list or a page, of the agents that ``who`` may see; of a request that is over without its replies, where
    that is all of them."""
    state, why = asked.state(now) if asked is not None else (note.state, "")
    seen, totals = note.seen(who), totals_of(note, who, asked)
    every = asked.collection.answers.items() if asked is not None else ()
    answers = [one for agent, one in every if agent in seen]
    return Job(
        id=note.id, kind=note.kind, state=state, why=why, title=note.title, by=note.by,  # type: ignore[arg-type]
        operator=note.operator, reason=as_given(note.reason, note.by), created=rfc3339(note.created),
        expires=rfc3339(note.expires), asked=len(seen), whole=totals.whole, failed=totals.failed,
        answering=sum(bool(answer.have) and not answer.over for answer in answers), cancelled=state == "cancelled",
        may_cancel=state in OPEN and note.may_cancel(who),
    )  # fmt: skip


def totals_of(note: Note, who: Principal, asked: Asked | None) -> Totals:
    """Of the agents that ``who`` may see."""
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
        matches=last and last.matches, oldest=rfc3339(last.oldest) if last and last.oldest else None,
        reached=rfc3339(last.reached) if last and last.reached else None, share=last and last.share,
        notes=[note[:500] for note in host.notes[:50]] if host is not None else [],
    )  # fmt: skip


def answer_state(answer: Answer) -> tuple[str, str]:
    if answer.stopped:
        return ("cancelled" if answer.stopped.startswith("cancelled") else NOT_TAKEN), answer.stopped
    if not answer.whole:
        return (ANSWERING if answer.have else NO_ANSWER), ""
    return answer.state, answer.reason


News = Callable[[], None]
