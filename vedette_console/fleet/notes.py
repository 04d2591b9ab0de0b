"""Notes of requests, REQUESTS/ID/console.json: listed by little that stays at hand of each, and removed in time.

A request that is over is removed with its replies ``keep`` seconds after it was asked; of each kind a user's NEWEST
stay, and the only copy of evidence does in any case. The record (``audit.jsonl``), evidence that is stored elsewhere,
and requests of the command line are not touched.
"""

from __future__ import annotations

import math
import os
import shutil
import threading
from collections import Counter
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import structlog

from vedette.fleet.requests import ID, MAX_SKEW
from vedette.region import evidence as stored
from vedette.system import foreign
from vedette.system.durable import write_whole
from vedette_console.security.principal import Principal, user_of

NOTE = "console.json"
ACT = {"hunt": "hunt", "evidence": "evidence", "ask": "fleet.ask", "do": "fleet.ask"}
"""Who may make a request of a kind, and cancel it."""
NEWEST = 2000
"""Requests of a kind and a user that stay."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of a request that is over, for lists."""

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
            texts = {type(note.kind), type(note.fleet), *map(type, note.sites.values())}
            if note.id != folder.name or min(times) < 0 or texts != {str} or type(note.more) is not dict:
                raise ValueError("its id, its times, its sites or its kind are none")
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ValueError(f"{folder / NOTE} is damaged: {error}") from error
        return note

    def left(self, now: int) -> float:
        """Seconds for which agents may act on it. They refuse what comes from the future, as of a clock that was
        ahead."""
        return (self.expires - now) / 1e6 if self.created <= now + MAX_SKEW else -math.inf

    def seen(self, who: Principal) -> set[str]:
        """The agents of it that ``who`` may see."""
        scope = who.sites()
        return {agent for agent, site in self.sites.items() if scope.sees(self.fleet, site)}

    def may_cancel(self, who: Principal) -> bool:
        """Whether all of its agents are at sites where ``who`` may ask the like."""
        scope = who.sites(ACT[self.kind])
        return all(scope.sees(self.fleet, site) for site in {*self.sites.values()})


class Brief(NamedTuple):
    """What stays at hand of a note. ``alert``: that of evidence; ``places``: fleets and sites of its agents, a bit
    each."""

    created: int
    id: str
    kind: str
    alert: str
    places: int
    user: str


class Notes:
    """The notes in ``folder``; None: there are none. ``keep``: seconds; ``evidence``: where evidence is stored besides.
    Its methods block."""

    def __init__(self, folder: Path | None, keep: float, evidence: Path | None = None) -> None:
        self._folder, self._keep, self._evidence = folder, round(keep * 1e6), evidence
        self._briefs: dict[str, Brief | None] = {}
        """By id; None: its note is damaged."""
        self._bits: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def read(self, id: str) -> Note | None:
        """None: there is none, or it is damaged."""
        with suppress(OSError, ValueError):
            return Note.read(self._folder / id) if self._folder is not None else None
        return None

    def look(self) -> list[Note]:
        """Take in notes that are new here, whoever wrote them, and forget those that are gone; gives those of the new
        that are not over."""
        with self._lock:
            return self._look()

    def listed(self, who: Principal, kind: str, alert: str = "") -> list[Brief]:
        """Those of a kind, and for an alert, with agents that ``who`` may see, the newest first."""
        scope = who.sites()
        with self._lock:
            self._look()
            seen = sum(1 << bit for place, bit in self._bits.items() if scope.sees(*place))
            return [
                brief for brief in self._newest()
                if brief.kind == kind and brief.places & seen and alert in ("", brief.alert)
            ]  # fmt: skip

    def tidy(self, at_work: Container[str], now: int | None) -> list[str]:
        """Remove what is over, but what is ``at_work``; gives the ids. ``now``: UTC microseconds; None: nobody knows,
        and nothing goes by its age."""
        if self._folder is None:
            return []
        removed, counts = list[str](), Counter[tuple[str, str]]()
        with self._lock:
            self._look()
            for brief in self._newest():
                counts[brief.kind, brief.user] += 1
                aged = now is not None and now - brief.created > self._keep
                over = aged or counts[brief.kind, brief.user] > NEWEST
                if over and brief.id not in at_work and not self._only_copy(self._folder / brief.id, brief):
                    try:
                        (self._folder / brief.id).rename(self._folder / f".{brief.id}")  # at once gone for all readers
                        del self._briefs[brief.id]
                        removed.append(brief.id)
                    except OSError as error:
                        log.warning("console_request_stays", request=brief.id, reason=str(error))
        for path in self._folder.glob(".*"):
            if ID.fullmatch(path.name[1:]):
                shutil.rmtree(path, ignore_errors=True)
        return removed

    def _only_copy(self, folder: Path, brief: Brief) -> bool:
        """Whether it is evidence that came, and is stored nowhere else."""
        if brief.kind != "evidence":
            return False
        with suppress(OSError, ValueError):
            place = self._evidence
            elsewhere = place is not None and stored.manifest_of(place, brief.alert, brief.id).exists()
            return not elsewhere and any(folder.glob("*/*.part"))
        return True

    def _newest(self) -> list[Brief]:
        briefs = filter(None, self._briefs.values())
        return sorted(briefs, key=lambda brief: (-brief.created, brief.id))

    def _look(self) -> list[Note]:
        ids, fresh = set[str](), list[Note]()
        if self._folder is not None:
            with suppress(OSError), os.scandir(self._folder) as entries:
                ids = {entry.name for entry in entries if ID.fullmatch(entry.name)}
        for id in self._briefs.keys() - ids:
            del self._briefs[id]
        for id in ids - self._briefs.keys():
            assert self._folder is not None
            try:
                note = Note.read(self._folder / id)
            except OSError:  # of the command line, or not written yet
                continue
            except ValueError:
                self._briefs[id] = None
                continue
            bits = {self._bits.setdefault((note.fleet, site), len(self._bits)) for site in note.sites.values()}
            places, alert = sum(1 << bit for bit in bits), foreign.text(note.more.get("alert"))
            self._briefs[id] = Brief(note.created, id, note.kind, alert, places, user_of(foreign.text(note.by)))
            if not note.state:
                fresh.append(note)
        return fresh
