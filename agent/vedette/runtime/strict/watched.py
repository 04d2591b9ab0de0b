"""The evaluator that takes apart what an evaluation died of before.

A frame within which one died is evaluated **event by event**: each by itself through the prefilter, then rule by rule,
then its alerts, each step noted before it begins. So are events of rules that were deadly elsewhere. What is then left
out, ``Blamed`` says:

* A rule at an event: the event is undecided for it, and kept as a dead letter; after ``DEADLY_EVENTS`` of them the
  rule is in quarantine, as a rule that comes to no answer.
* All rules at an event (the prefilter or its alerts were deadly): the event is poisoned.
* A correlation or statement: it is in quarantine from the start, with the statements that share operators with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from vedette.engine.join import Joined
from vedette.engine.match import Engine, Match, UndecidedEvent
from vedette.engine.rows import Batch
from vedette.model.event import Frame
from vedette.plan.plan import AnyRule
from vedette.runtime.pipeline.blackbox import Stage, cut
from vedette.runtime.pipeline.evaluator import Evaluator

DEADLY_EVENTS = 3
DIED = "the process that evaluated it did not survive"
ALL = "*"
"""In place of a rule's id."""
UNSCANNED = "-"
"""The same: not even the prefilter looks at the event."""


class Suspect(NamedTuple):
    """Events from raw offset ``first`` to ``last`` are evaluated one by one and rule by rule."""

    first: int
    last: int


class Blamed(NamedTuple):
    """What earlier evaluations died of."""

    suspects: tuple[Suspect, ...] = ()
    excluded: Mapping[int, tuple[str, ...]] = {}
    """By offset of an event the ids of rules that nobody survived there; ``ALL``: its alerts are not made."""
    deadly: Mapping[str, int] = {}
    """By id of a rule on how many events."""
    condemned: Mapping[str, int] = {}
    """By id of a correlation or statement how many died while it ran: it goes into quarantine. Ids are cut as the
    black box has them."""
    without: Mapping[int, str] = {}
    """By offset of an event what was at work at it and is in quarantine now, in words."""


class Watched(Evaluator):
    def __init__(self, *arguments: Any, blamed: Blamed) -> None:
        """``arguments``: as for ``Evaluator``."""
        super().__init__(*arguments)
        self._blamed = blamed
        self._alone = False
        """Whether the frame under way is evaluated event by event."""
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
        condemned = {statement.id: times for statement in plan.statements if (times := deaths.get(cut(statement.id)))}
        statements.mute({*condemned, *statements.muted()})
        sharing = statements.muted() if condemned else set()
        every: list[AnyRule] = [*plan.correlations, *plan.statements]
        for rule in every:
            if rule.id in sharing or cut(rule.id) in deaths:
                times = deaths.get(cut(rule.id), max(condemned.values(), default=1))
                self._failures.quarantine(rule, times, DIED, self._clock())
        self._quarantine_again(self.engine)

    async def frame(self, frame: Frame) -> None:
        first, last = self._span_of(frame)
        self._alone = any(suspect.first <= last and first <= suspect.last for suspect in self._blamed.suspects)
        await super().frame(frame)

    async def tick(self) -> None:
        self._alone = bool(self._blamed.suspects)
        await super().tick()

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
        if self._matched:
            with self._box.within(Stage.ALERTS_ALONE, offset):
                for _ in self._make():
                    pass
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
