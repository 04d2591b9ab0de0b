"""Evaluation inside another program: events in, piece by piece, and what the rules find, without an agent around it.

Promise: fed in order of time, in whatever pieces, and ended by ``finish``, it finds what ``vedette scan`` finds in the
same events; and a ``Detector`` made of what ``save`` gave goes on as if there had been no other. Nothing is suppressed.

Time, for correlations and statements: by default (``live``) as in the agent, by the receipts, which are the calls: the
windows of each host end as its events and the passing of time say (``state/clock.py``). Otherwise by the events' own
time alone, for logs of the past: what lies more than ``lateness`` behind the newest event is late.

Not for several threads at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgpack

from vedette.engine.match import Context, Engine, Match
from vedette.model.event import Chunk, Frame, LogSource
from vedette.model.times import clamp
from vedette.plan.ir import scalar
from vedette.plan.plan import Plan
from vedette.runtime.offline.evaluation import Detection, Evaluation
from vedette.runtime.offline.scan import chunk_of
from vedette.runtime.offline.timeline import Correlated, Stated
from vedette.state.firing import Firing, shown_group
from vedette.state.state import State
from vedette.stream.reader import Event
from vedette.stream.statements import Selected

Detected = Detection | Correlated | Stated
FORMAT = 1
MAX_SHOWN = 65_536
"""Events of which the spelling of their groups is kept, for correlations that are decided after them. Of older ones a
group is shown folded to lower case."""
_LANE = 1
"""That of all events, where receipts count for nothing."""


class Detector:
    """See the module's text. Events are numbered from 1, over all calls; what is found has its event's number as
    ``line``."""

    def __init__(
        self, rules: Plan | Engine, *, format: str = "auto", product: str = "", category: str = "", service: str = "",
        live: bool = True, lateness: float = 30.0, max_bytes: int = 64 << 20, state: bytes = b"",
    ) -> None:  # fmt: skip
        """``format`` and log source: as for ``vedette.evaluate``. ``lateness``: seconds by which events may come out of
        order. ``max_bytes`` bounds what correlations remember, and what statements do. ``state``: what ``save`` of a
        detector gave; of correlations and statements that have changed since it is left out.

        Raises ValueError for a ``state`` that cannot be read."""
        self.engine = engine = rules if isinstance(rules, Engine) else Engine(rules, route=False)
        if format not in engine.plan.codecs:
            raise KeyError(format)
        self._format, self._live = format, live
        self._state = State(engine.plan, lateness=int(lateness * 1e6), max_bytes=max_bytes)
        self._evaluation = Evaluation(engine)
        self._evaluation.default = Context(None, LogSource(product, category, service))
        self._evaluation.joiner = self._state.joiner
        self._events = self._offset = 0
        self._waiting = dict[int, int]()
        """The numbers of the audit events that wait for further records, by their offsets."""
        self._shown = OrderedDict[int, dict[str, Any]]()
        """By number the values that name a group."""
        self._timeless = 0
        self._lock = asyncio.Lock()
        graph = self._state.correlator.graph
        self._grouped = {rule.id: graph.grouped(rule.id) for rule in engine.plan.rules if graph.wants(rule.id)}
        if state:
            self._restore(state)

    @property
    def without_functions(self) -> list[str]:
        """The titles of statements that do not run, because they call functions in Python."""
        return [statement.title for statement in self._state.statements.refused]

    @property
    def timeless(self) -> int:
        """Matches that correlations left out, because their event does not say when it happened; 0 when ``live``."""
        return self._timeless

    # --- events

    def feed(
        self, events: Iterable[bytes | str | Mapping[str, Any]], *, received_at: int | None = None
    ) -> list[Detected]:
        """What ``events`` complete, each in its order: detections and correlations event by event, then rows of
        statements. ``events``: as for ``vedette.evaluate``; ``received_at``: UTC microseconds, default: now."""
        now = time.time_ns() // 1000 if received_at is None else received_at
        detected = self._advance(now) if self._live else []
        for chunk in chunk_of(events, self._format, now):
            detected += self._chunk(chunk)
        return detected + list(self._rows())

    def advance(self, now: int | None = None) -> list[Detected]:
        """What the passing of time completes while no event comes: to be called about once a second. ``now``: UTC
        microseconds, default: the clock's; when not ``live``, the time that no event lies before any more."""
        now = time.time_ns() // 1000 if now is None else now
        return [*self._advance(now), *self._rows()]

    def finish(self) -> list[Detected]:
        """No further event comes: what waits for more is evaluated as it is, and every window ends."""
        detected = list[Detected]()
        for at, matches in groupby(self._evaluation.rest(), attrgetter("offset")):
            detected += self._event([moment.match for moment in matches], self._waiting[at])
        self._waiting.clear()
        detected += self._fired(self._state.correlator.finish())
        return detected + [self._stated(row) for row in self._state.statements.finish()]

    async def feed_async(
        self, events: Iterable[bytes | str | Mapping[str, Any]], *, received_at: int | None = None
    ) -> list[Detected]:
        """``feed`` in a thread of its own, so that the event loop goes on; calls wait for each other."""
        async with self._lock:
            return await asyncio.to_thread(self.feed, events, received_at=received_at)

    async def advance_async(self, now: int | None = None) -> list[Detected]:
        """``advance``, as ``feed_async``."""
        async with self._lock:
            return await asyncio.to_thread(self.advance, now)

    def _chunk(self, chunk: Chunk) -> list[Detected]:
        assert chunk.ends is not None
        detected, start, first = list[Detected](), self._offset, self._events + 1

        def number(at: int) -> int:
            return self._waiting[at] if at < start else first + chunk.index(at - start)

        for at, matches in groupby(self._evaluation.frame(Frame(start, chunk)), attrgetter("offset")):
            detected += self._event([joined.match for joined in matches], number(at))
        self._waiting = {at: number(at) for at in self._evaluation.joiner.offsets()}
        self._events += len(chunk)
        self._offset += len(chunk.data)
        return detected

    def _event(self, matches: list[Match], number: int) -> Iterator[Detected]:
        """What an event matches, and what it completes."""
        plan, statements, record = self.engine.plan, self._state.statements, matches[0].record
        rules = [plan.rules[match.rule] for match in matches]
        for match, rule in zip(matches, rules, strict=True):
            if rule.id not in plan.silent:
                yield Detection(rule, number, record, self.engine.shown(match.rule, record))
        stated = [rule.id for rule in rules if statements.wants(rule.id)]
        wanted = [rule.id for rule in rules if rule.id in self._grouped]
        if not (stated or wanted):
            return
        when = clamp(record.event_time, record.received_at)[0] if self._live else record.event_time
        if not self._live and when is not None:
            yield from self._advance(when)
        for rule_id in stated:
            received_at = None if self._live else when
            event = Event(
                record, number, input="", host=lambda: record.host, time=lambda: when, received_at=received_at
            )
            statements.add(rule_id, event)
        if wanted:
            yield from self._correlate(wanted, matches[0], number, when)

    def _correlate(self, rule_ids: list[str], match: Match, number: int, when: int | None) -> Iterator[Detected]:
        if when is None:
            self._timeless += len(rule_ids)
            return
        record = match.record
        lane = self._state.observe("", record.host, when)[0] if self._live else _LANE
        names = {name for rule_id in rule_ids for name in self._grouped[rule_id]}
        self._shown[number] = {name: scalar(record.get(name)) for name in names}
        if len(self._shown) > MAX_SHOWN:
            self._shown.popitem(last=False)
        yield from self._fired(self._state.match(rule_ids, record, lane, when, number, match.end - match.start))

    def _advance(self, now: int) -> list[Detected]:
        """Time has come to ``now``, unless that lies behind what it has come to."""
        clock = self._state.clock
        if not self._live:
            now = max(now, clock.received_at)
        fired = self._state.advance(now)
        if not self._live:
            clock.move(_LANE, now)
        return list(self._fired(fired))

    # --- what they complete

    def _fired(self, fired: Iterable[Firing]) -> Iterator[Correlated]:
        for firing in fired:
            if firing.correlation.id not in self.engine.plan.silent:
                values = self._shown.get(firing.event.offset, {})
                yield Correlated(firing, "", firing.event.offset, shown_group(firing, values.get))

    def _rows(self) -> Iterator[Stated]:
        if self._state.statements:
            yield from map(self._stated, self._state.statements.take())

    def _stated(self, row: Selected) -> Stated:
        return Stated(row, "", row.offset)

    def failures(self) -> list[str]:
        """Correlations and statements that raised since the last call, and why: a fault of Vedette or of a rule. The
        others go on."""
        failed = [f"{failure.correlation.title}: {failure.reason}" for failure in self._state.correlator.failures()]
        return failed + [f"{statement.title}: {error}" for statement, error in self._state.statements.failures()]

    # --- state

    def save(self) -> bytes:
        """All that is remembered, for ``state`` of another detector, of the same rules or newer ones. What of the
        ``events`` of a ``feed`` has been found is not found again."""
        state, parts = self._state, list[bytes]()
        state.rewrite()
        while True:
            parts.append(state.delta())
            if state.rewritten:
                break
        shown = [[number, values] for number, values in self._shown.items()]
        account = [self._events, self._offset, list(self._waiting.items()), shown, self._timeless, parts]
        return bytes(msgpack.packb([FORMAT, self._live, *account]))

    def _restore(self, data: bytes) -> None:
        try:
            form, live, *values = msgpack.unpackb(data, strict_map_key=False)
            if form != FORMAT or live != self._live:
                was = f"of format {form}" if form != FORMAT else f"of a detector with live={live}"
                raise ValueError(f"it is {was}")
            self._events, self._offset, waiting, shown, self._timeless, parts = values
            self._waiting, self._shown = dict(waiting), OrderedDict(shown)
            self._state.restore(part for part in parts if part)
            if not live and (now := self._state.clock.received_at):
                self._state.clock.move(_LANE, now)  # it is of no source, so no delta has it
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ValueError(f"the saved state cannot be used: {error}") from error
