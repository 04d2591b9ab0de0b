"""What earlier lives of this agent died of, and what this one does otherwise: no event kills an agent for ever.

A **death** is the end of a life that nobody asked for, by a signal, by the watchdog or for want of memory, while
something was under way: what it was stands in ``DATA_DIR/under-way`` (``strict/blackbox.py``).

| died at | the next life |
|---|---|
| the events of a frame, together | evaluates that frame event by event and rule by rule (``strict/watched.py``) |
| one part at one event, ``AFTER`` times in a row | has the rule, plugin, correlation or statement in quarantine |
| one event, no part being at work, as often | leaves that event out |

Each event at which a part is then left out is counted, logged and kept as a dead letter; the raw log has it as ever.
The quarantine is that of ``failures.py``: it goes by the digest of a rule's meaning or the version of a plugin, so what
was changed is asked again, and SIGHUP releases all.

**None that is false.** Where a life has come past an event, what was held against it is over; a stop is no death, nor
is an end together with the host (``lives.py``). So kills from outside count only where they meet the same part of the
same event in ``AFTER`` lives that get no further, and that part takes microseconds.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

import structlog

from vedette.model.counters import Log
from vedette.runtime.context import RunContext
from vedette.runtime.failures import QUARANTINED
from vedette.runtime.strict.blackbox import NOWHERE, BlackBox, Note, Stage, cut
from vedette.runtime.strict.messages import ALL, UNSCANNED, Blamed, Suspect
from vedette.system.plugins import Entry

log = structlog.get_logger()

DEATHS = "deaths"
"""The store's name for the cases."""
AFTER = 3
MOST = 64
"""Cases; the newest."""
_OF_STATE = (Stage.ALERTS_ALONE, Stage.TIME, Stage.ROWS)


class Case(NamedTuple):
    stage: Stage
    first: int
    last: int
    part: str
    deaths: int
    """In a row; 0: the events are suspects, no more."""

    @property
    def decided(self) -> bool:
        return self.deaths >= AFTER


class Deaths:
    """See the module's text. Belongs to the event loop."""

    def __init__(self, context: RunContext, crashed: bool) -> None:
        """``crashed``: the life before ended by itself, and not with the host."""
        self._store, self._failures = context.store, context.failures
        self._log_id = context.raw_log.log_id
        try:
            self.box = BlackBox.open(context.config.agent.data_dir / "under-way")
        except OSError:  # a full disk: what this life dies of is not known
            self.box = BlackBox.make()
        note = self.box.read()
        self.box.note(Stage.OTHER, NOWHERE, NOWHERE)
        stored = [Case(Stage(stage), *row) for stage, *row in (self._store.get(DEATHS) or {}).get(self._log_id, ())]
        within = [case for case in stored if case.last >= context.raw_log.start]
        self.cases = after(within, note, crashed)[-MOST:]
        if self.cases != stored:
            self._write(self.cases)
        if crashed and note.stage is not Stage.OTHER:
            _report(self.cases[-1])
        for case in self.cases:
            if case.decided and case.stage in (Stage.DECODING, Stage.LOADING):
                self._failures.plugin(case.part, case.deaths, _reason(case), context.clock())

    def _write(self, cases: list[Case]) -> None:
        with suppress(OSError):  # a full disk does not prevent the start
            self._store.put(DEATHS, {self._log_id: [[*case] for case in cases]} if cases else None)

    @property
    def careful(self) -> bool:
        """Whether parts note that they are at work."""
        return bool(self.cases)

    @property
    def blamed(self) -> Blamed:
        """What evaluation does otherwise."""
        suspects = tuple(Suspect(case.first, case.last) for case in self.cases if case.first != NOWHERE)
        excluded: dict[int, tuple[str, ...]] = {}
        deadly: dict[str, int] = {}
        condemned: dict[str, int] = {}
        without: dict[int, str] = {}
        for stage, at, _, part, deaths in (case for case in self.cases if case.decided):
            match stage:
                case Stage.MATCHING:
                    excluded[at] = (*excluded.get(at, ()), part)
                    deadly[part] = deaths
                case Stage.SCANNING:
                    excluded[at] = (UNSCANNED,)
                case Stage.ALERTS_ALONE if not part:
                    excluded[at] = (*excluded.get(at, ()), ALL)
                case Stage.ALERTS_ALONE | Stage.DECODING:
                    without[at] = part
            if part and stage in _OF_STATE:
                condemned[part] = deaths
        return Blamed(suspects, excluded, deadly, condemned, without)

    def settle(self) -> None:
        """Evaluation goes by ``blamed`` now: the store has what is in quarantine, and nothing is held against it
        again when it is released."""
        if any(case.decided for case in self.cases):
            with suppress(OSError):  # a full disk: the next commit stores it
                self._store.put(QUARANTINED, dict(self._failures.quarantined))
            self._failures.changed = True
            self._write([case for case in self.cases if not (case.decided and case.part)])

    # --- of plugins

    def forbids(self, entry: Entry) -> str:
        """Why a plugin is not loaded; empty: it is."""
        row = self._failures.quarantined.get(_part(entry))
        return "" if row is None else str(row["reason"])

    def loading(self, entry: Entry) -> AbstractContextManager[None]:
        """Around the import of a plugin."""
        return self.box.within(Stage.LOADING, NOWHERE, _part(entry))

    def reading(self, entry: Entry) -> AbstractContextManager[None]:
        """Around a decoder plugin's reading of a message."""
        return self.box.within(Stage.DECODING, None, _part(entry))


def after(cases: list[Case], note: Note, crashed: bool) -> list[Case]:
    """The cases behind a life that has left ``note``; what it died of is the last."""
    died = crashed and note.stage is not Stage.OTHER
    left = [case for case in cases if not _survived(case, note, died)]
    if not died:
        return left
    together = note.stage is Stage.FRAME or note.first != note.last
    what = Stage.FRAME if together else note.stage, note.first, note.last, "" if together else note.part
    before = sum(case.deaths for case in left if case[:4] == what)
    return [*(case for case in left if case[:4] != what), Case(*what, 0 if together else before + 1)]


def _survived(case: Case, note: Note, died: bool) -> bool:
    """Whether the life that has left ``note`` came past what is held against ``case``."""
    if case.decided:
        return False
    if case.first == NOWHERE:
        return not (died and (note.stage, note.part) == (case.stage, case.part))
    if note.first == NOWHERE:
        return False
    return case.last < note.first or (note.stage is Stage.OTHER and case.last <= note.last)


def _part(entry: Entry) -> str:
    return cut(f"{entry.label} {entry.version}")


def _reason(case: Case) -> str:
    where = "while it was loaded" if case.first == NOWHERE else f"at the event at offset {case.first}"
    return f"the agent died {case.deaths} times {where}"


def _report(case: Case) -> None:
    if not case.decided:
        action = "its events are evaluated one by one; what is deadly again is left out"
    elif case.part:
        action = "it is in quarantine: change it, or release it with SIGHUP"
    elif case.stage in (Stage.TIME, Stage.ROWS):
        action = "no part was at work, so nothing is left out; please report this"
    else:
        action = "the event is left out; it is in the raw log and in quarantine/"
    log.error(
        Log.AGENT_DIED, stage=case.stage.name.lower(), part=case.part or None, deaths=case.deaths,
        offset=None if case.first == NOWHERE else case.first, action=action,
    )  # fmt: skip
