"""What earlier lives of this agent died of, and what this one does otherwise: no event kills an agent for ever.

A **death** is the end of a life that nobody asked for, by a signal, by the watchdog or for want of memory, while
something was under way: what it was stands in ``DATA_DIR/under-way`` (``pipeline/lives.py``).

| died at | the next life |
|---|---|
| the events of a frame, together | evaluates that frame event by event and rule by rule (``strict/watched.py``) |
| one part at one event, ``AFTER`` times in a row | has the rule, plugin, correlation or statement in quarantine |
| one event, no part being at work, as often | leaves that event out |
| the state: as time passed or rows became alerts, no part at work, as often | starts with none |
| the state: as it was restored, ``AFTER_BESIDE`` times in a row | starts with none |
| an input or a sink of a plugin, ``AFTER_BESIDE`` times in a row | has it in quarantine |

Each event at which a part is then left out is counted, logged and kept as a dead letter; the raw log has it as ever.
The quarantine is that of ``pipeline/failures.py``: it goes by the digest of a rule's meaning or the version of a
plugin, so what was changed is asked again, and SIGHUP releases all.

An input is at work from its import on until it ends, a sink in each call: in threads of their own, beside evaluation.
At a death it counts against all that were at work, unless evaluation died of the same as before. A life that lasts for
``LASTING`` seconds, or ends by a stop, says nothing against them, and ends the row. Plugins are watched where
``[plugins]`` allows some.

**None that is false.** Where a life has come past an event, what was held against it is over; a stop is no death, nor
is an end together with the host (``lives.py``). So kills from outside count only where they meet the same part of the
same event in ``AFTER`` lives that get no further, and that part takes microseconds; or, in ``AFTER_BESIDE`` lives, the
restoring of a large state, or an input or a sink at work, none of the lives lasting.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import structlog

from vedette.model.counters import Log
from vedette.runtime.pipeline.blackbox import NOWHERE, Note, Stage
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.pipeline.failures import CASES, DEATHS_BESIDE, QUARANTINED
from vedette.runtime.strict.watched import ALL, UNSCANNED, Blamed, Suspect

log = structlog.get_logger()

AFTER = 3
AFTER_BESIDE = 5
MOST = 64
"""Cases; the newest."""
_OF_STATE = (Stage.ALERTS_ALONE, Stage.TIME, Stage.ROWS)
_OF_ALL_STATE = (Stage.RESTORING, Stage.TIME, Stage.ROWS)


class Case(NamedTuple):
    stage: Stage
    first: int
    last: int
    part: str
    deaths: int
    """In a row; 0: the events are suspects, no more."""

    @property
    def decided(self) -> bool:
        long = self.stage is Stage.RESTORING and not self.part
        return self.deaths >= (AFTER_BESIDE if long else AFTER)

    @property
    def of_state(self) -> bool:
        """Whether the state is at fault, and no part of it."""
        return self.stage in _OF_ALL_STATE and not self.part


class Deaths:
    """See the module's text. Belongs to the event loop."""

    def __init__(self, context: RunContext, note: Note, beside: set[str], crashed: bool) -> None:
        """``note``: what the life before was at; ``beside``: the inputs and sinks that were, none when it lasted;
        ``crashed``: it ended by itself, and not with the host."""
        self._store, self._failures = context.store, context.failures
        self._log_id = context.raw_log.log_id
        stored = [Case(Stage(stage), *row) for stage, *row in (self._store.get(CASES) or {}).get(self._log_id, ())]
        within = [case for case in stored if case.last >= context.raw_log.start]
        self.cases = after(within, note, crashed)[-MOST:]
        if self.cases != stored:
            self._write(self.cases)
        died_of = self.cases[-1] if crashed and note.stage is not Stage.OTHER else None
        if died_of is not None:
            _report(died_of)
        for case in self.cases:
            if case.decided and case.stage in (Stage.DECODING, Stage.LOADING):
                self._failures.plugin(case.part, case.deaths, _reason(case), context.clock())
        if any(case.decided and case.of_state for case in self.cases):
            self._forget_state()
        again = died_of is not None and died_of.deaths > 1
        self._count_beside(beside if crashed and not again else set(), now=context.clock())

    def _forget_state(self) -> None:
        try:
            self._store.forget_state()
        except OSError:  # a full disk: after the next death again
            return
        self.cases = [case for case in self.cases if not case.of_state]
        self._write(self.cases)
        log.error(
            Log.STATE_LOST, reason=f"the agent died {AFTER} times in a row over it, or more",
            action="correlations, statements and suppression start empty; please report this",
        )  # fmt: skip

    def _count_beside(self, at_work: set[str], *, now: int) -> None:
        """``at_work``: what the life before died at, perhaps."""
        stored: dict[str, int] = self._store.get(DEATHS_BESIDE) or {}
        counted = {part: stored.get(part, 0) + 1 for part in at_work}
        for part in sorted(counted):
            action = f"it is run again, and after {AFTER_BESIDE} in a row no more"
            if counted[part] >= AFTER_BESIDE:
                action = "it is in quarantine: change it, or release it with SIGHUP"
                reason = f"the agent died {counted[part]} times in a row while it was at work"
                self._failures.plugin(part, counted[part], reason, now)
            log.error(Log.AGENT_DIED, stage="beside", part=part, deaths=counted[part], action=action)
        left = {part: deaths for part, deaths in counted.items() if deaths < AFTER_BESIDE}
        with suppress(OSError):  # a full disk does not prevent the start
            if left != stored:
                self._store.put(QUARANTINED, dict(self._failures.quarantined))
                self._store.put(DEATHS_BESIDE, left or None)

    def _write(self, cases: list[Case]) -> None:
        with suppress(OSError):  # a full disk does not prevent the start
            self._store.put(CASES, {self._log_id: [[*case] for case in cases]} if cases else None)

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


def _reason(case: Case) -> str:
    where = "while it was loaded" if case.first == NOWHERE else f"at the event at offset {case.first}"
    return f"the agent died {case.deaths} times {where}"


def _report(case: Case) -> None:
    if not case.decided:
        action = "its events are evaluated one by one; what is deadly again is left out"
        if case.first == NOWHERE:
            action = f"it is tried again, and after {AFTER} deaths in a row no more"
    elif case.part:
        action = "it is in quarantine: change it, or release it with SIGHUP"
    elif case.of_state:
        action = "what correlations, statements and suppression remember is given up"
    else:
        action = "the event is left out; it is in the raw log and in quarantine/"
    log.error(
        Log.AGENT_DIED, stage=case.stage.name.lower(), part=case.part or None, deaths=case.deaths,
        offset=None if case.first == NOWHERE else case.first, action=action,
    )  # fmt: skip
