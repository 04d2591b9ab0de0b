"""The evaluator that notes what it is at, and takes apart what an evaluation died of before.

While all goes well it notes each frame, and time's passing, no more. A frame within which one died is evaluated
**event by event**: each by itself through the prefilter, then rule by rule, then its alerts, each step noted before it
begins. So are events of rules that were deadly elsewhere. What is then left out, ``Blamed`` says:

* A rule at an event: the event is undecided for it, and kept as a dead letter; after ``DEADLY_EVENTS`` of them the
  rule is in quarantine, as a rule that comes to no answer.
* All rules at an event (the prefilter or its alerts were deadly): the event is poisoned.
* A correlation or statement: it is in quarantine from the start, with the statements that share operators with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vedette.engine.join import Joined
from vedette.engine.match import Engine, Match, UndecidedEvent
from vedette.engine.rows import Batch
from vedette.model.event import Frame
from vedette.plan.plan import AnyRule
from vedette.runtime.evaluator import Evaluator
from vedette.runtime.strict.blackbox import BlackBox, Stage, cut
from vedette.runtime.strict.messages import ALL, UNSCANNED, Blamed

DEADLY_EVENTS = 3
DIED = "the process that evaluated it did not survive"


class Watched(Evaluator):
    def __init__(self, *arguments: Any, blackbox: BlackBox, blamed: Blamed) -> None:
        """``arguments``: as for ``Evaluator``."""
        super().__init__(*arguments)
        self._box, self._blamed = blackbox, blamed
        self._alone = False
        """Whether the frame under way is evaluated event by event."""
        self._span = (0, 0)
        """First and last raw offset of the frame under way."""
        for number, rule in enumerate(self.engine.plan.rules):
            events = blamed.deadly.get(cut(rule.id), 0)
            if events >= DEADLY_EVENTS and number not in self.engine.quarantined:
                self._failures.quarantine(rule, events, DIED, self._clock())
                self.engine.quarantine({rule.digest})
        self._deadly = frozenset(
            number
            for number, rule in enumerate(self.engine.plan.rules)
            if cut(rule.id) in blamed.deadly and number not in self.engine.quarantined
        )
        self._condemn(blamed.condemned)

    def _condemn(self, deaths: Mapping[str, int]) -> None:
        if not deaths:
            return
        plan, statements = self.engine.plan, self._state.statements
        found = {one.id: times for one in plan.statements if (times := deaths.get(cut(one.id)))}
        statements.mute({*found, *statements.muted()})
        sharing = statements.muted() if found else set()
        every: list[AnyRule] = [*plan.correlations, *plan.statements]
        for one in every:
            if one.id in sharing or cut(one.id) in deaths:
                times = deaths.get(cut(one.id), max(found.values(), default=1))
                self._failures.quarantine(one, times, DIED, self._clock())
        self._quarantine_again(self.engine)

    async def frame(self, frame: Frame) -> None:
        first, last = self._span = max(frame.offset, self._progress.evaluated), frame.end - 1
        self._alone = any(one.first <= last and first <= one.last for one in self._blamed.suspects)
        self._box.note(Stage.FRAME, first, last)
        await super().frame(frame)
        self._box.rest()

    async def tick(self) -> None:
        at = self._progress.evaluated
        self._span = at, at
        self._alone = bool(self._blamed.suspects)
        self._box.note(Stage.FRAME, at, at)
        await super().tick()
        self._box.rest()

    def _candidates(self, engine: Engine, frame: Frame, first: int) -> Iterator[Joined | Batch]:
        if not self._alone:
            yield from super()._candidates(engine, frame, first)
            return
        for start, end in frame.chunk.spans():
            if start < first or start == end:
                continue
            offset = frame.offset + start
            if UNSCANNED in self._blamed.excluded.get(offset, ()):
                self._failures.event(frame, start, end, RuntimeError(DIED))
                continue
            try:
                with self._box.within(Stage.SCANNING, offset):
                    events = self._prefiltered(engine, frame, start, end)
            except Exception as error:  # this event is a dead letter, the others are evaluated
                self._failures.event(frame, start, end, error)
                continue
            yield from events

    def event(self, engine: Engine, event: Joined) -> None:
        if not self._alone:
            super().event(engine, event)
            return
        offset = event.frame.offset + event.start
        if ALL in self._blamed.excluded.get(offset, ()):
            self._failures.event(event.frame, event.start, event.end, RuntimeError(DIED))
            return
        super().event(engine, event)
        if self._found:
            with self._box.within(Stage.ALERTS_ALONE, offset):
                self._make()
        if (part := self._blamed.without.get(offset)) is not None:
            error = RuntimeError(f"{DIED}; it was evaluated without {part}")
            self._failures.event(event.frame, event.start, event.end, error)

    def _matches(self, engine: Engine, event: Joined) -> list[Match]:
        if not (self._alone or (self._deadly and not self._deadly.isdisjoint(event.rules))):
            return super()._matches(engine, event)
        offset = event.frame.offset + event.start
        matches, left_out = list[Match](), list[UndecidedEvent]()
        excluded = self._blamed.excluded.get(offset, ())
        for number in sorted(event.rules):
            rule_id = cut(engine.plan.rules[number].id)
            if rule_id in excluded:
                left_out.append(UndecidedEvent(number, event.start, event.end, DIED))
                engine.tally.undecided[number] = engine.tally.undecided.get(number, 0) + 1
                engine.tally.reasons[number] = DIED
                continue
            if number in engine.quarantined:
                engine.tally.skipped[number] = engine.tally.skipped.get(number, 0) + 1
                continue
            with self._box.within(Stage.MATCHING, offset, rule_id):
                matches += super()._matches(engine, event._replace(rules=frozenset((number,))))
        if left_out:
            self._failures.undecided(engine, event.frame, left_out, self._clock())
        return matches

    def _pass_time(self, received_at: int) -> None:
        at = self._progress.evaluated
        self._box.note(Stage.TIME, at, at)  # for each frame: ``within`` takes three times as long
        super()._pass_time(received_at)
        self._box.note(Stage.FRAME, *self._span)

    async def _make_rows(self) -> None:
        if self._rows_wait:
            with self._box.within(Stage.ROWS, self._progress.evaluated):
                await super()._make_rows()

    async def _rows_by_turns(self) -> None:
        with self._box.within(Stage.ROWS, self._progress.evaluated):
            await super()._rows_by_turns()
