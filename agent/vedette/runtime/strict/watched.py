"""The evaluator of a strict rule set's process: it notes what it is at, and takes apart what processes died of before.

An event on which a process died is evaluated rule by rule by the next one, and so are events of rules that are known to
be deadly. A rule that died alone on an event is left out there: the event is undecided for it, kept as a dead letter,
and after ``DEADLY_EVENTS`` of them the rule is in quarantine, as a rule of the agent's own plan that comes to no
answer. Where the making of an event's alerts was deadly, the event is poisoned.

A correlation or statement that was at work in so many deaths that the supervisor condemns it is in quarantine from the
start, with the statements that share operators with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vedette.engine.join import Joined
from vedette.engine.match import Engine, Match, UndecidedEvent
from vedette.engine.rows import Batch
from vedette.model.event import Frame
from vedette.plan.plan import AnyRule
from vedette.runtime.evaluator import Evaluator
from vedette.runtime.strict.blackbox import BlackBox, Stage, cut
from vedette.runtime.strict.messages import ALL, Begin

DEADLY_EVENTS = 3
DIED = "the process that evaluated it did not survive"


class Watched(Evaluator):
    def __init__(self, *given: Any, blackbox: BlackBox, begin: Begin) -> None:
        """``given``: as for ``Evaluator``."""
        super().__init__(*given)
        self._box, self._suspects = blackbox, begin.suspects
        self._excluded: Mapping[int, tuple[str, ...]] = begin.excluded
        rules = self.engine.plan.rules
        self._deadly = frozenset(number for number, rule in enumerate(rules) if rule.id in begin.deadly)
        for number in self._deadly:
            rule = rules[number]
            if (events := begin.deadly[rule.id]) >= DEADLY_EVENTS and number not in self.engine.quarantined:
                self._failures.quarantine(rule, events, DIED, self._clock())
                self.engine.quarantine({rule.digest})
        self._condemn(begin.condemned)

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

    def event(self, engine: Engine, event: Joined) -> None:
        offset = event.frame.offset + event.start
        if not self._suspect(offset):
            super().event(engine, event)
            return
        self._make()
        super().event(engine, event)
        if ALL in self._excluded.get(offset, ()) and self._found:
            self._found, self._waiting = [], 0
            self._failures.event(event.frame, event.start, event.end, RuntimeError(DIED))
            return
        if self._found:
            self._box.note(Stage.ALERTS_ALONE, offset, offset)
            super()._make()

    def _batch(self, engine: Engine, frame: Frame, batch: Batch) -> None:
        spans = batch.spans
        first, last = frame.offset + spans[0][0], frame.offset + spans[-1][0]
        if not any(one.first <= last and first <= one.last for one in self._suspects):
            self._box.note(Stage.ALERTS, first, last)
            super()._batch(engine, frame, batch)
            self._box.note(Stage.OTHER)
            return
        for (start, end), row, host in zip(spans, batch.rows, batch.hosts, strict=True):
            offset = frame.offset + start
            if ALL in self._excluded.get(offset, ()):
                self._failures.event(frame, start, end, RuntimeError(DIED))
                continue
            self._box.note(Stage.ALERTS_ALONE, offset, offset)
            super()._batch(engine, frame, Batch(start, end, batch.rules, [(start, end)], [row], [host]))

    def _suspect(self, offset: int) -> bool:
        return any(one.first <= offset <= one.last for one in self._suspects)

    def _matches(self, engine: Engine, event: Joined) -> list[Match]:
        offset = event.frame.offset + event.start
        if not (self._suspect(offset) or (self._deadly and not self._deadly.isdisjoint(event.rules))):
            self._box.note(Stage.MATCHING, offset, offset)
            return super()._matches(engine, event)
        found, left_out = list[Match](), list[UndecidedEvent]()
        excluded = self._excluded.get(offset, ())
        for number in sorted(event.rules):
            if number in engine.quarantined:
                engine.tally.skipped[number] = engine.tally.skipped.get(number, 0) + 1
                continue
            if engine.plan.rules[number].id in excluded:
                left_out.append(UndecidedEvent(number, event.start, event.end, DIED))
                engine.tally.undecided[number] = engine.tally.undecided.get(number, 0) + 1
                engine.tally.reasons[number] = DIED
                continue
            self._box.note(Stage.MATCHING, offset, offset, number + 1)
            found += super()._matches(engine, event._replace(rules=frozenset((number,))))
        self._box.note(Stage.OTHER)  # whatever comes before the next step, the rule asked last is not to blame
        if left_out:
            self._failures.undecided(engine, event.frame, left_out, self._clock())
        return found

    def _pass_time(self, received_at: int) -> None:
        self._box.note(Stage.TIME)
        super()._pass_time(received_at)
        self._box.note(Stage.OTHER)

    async def _make_rows(self) -> None:
        if self._rows_wait:
            self._box.note(Stage.ROWS)
            await super()._make_rows()
            self._box.note(Stage.OTHER)

    async def _rows_by_turns(self) -> None:
        self._box.note(Stage.ROWS)
        await super()._rows_by_turns()
        self._box.note(Stage.OTHER)

    def _make(self) -> None:
        if self._found:
            first, last = self._found[0][0], self._found[-1][0]
            self._box.note(Stage.ALERTS, first.frame.offset + first.start, last.frame.offset + last.start)
        super()._make()
        self._box.note(Stage.OTHER)
