"""Offline evaluation: the engine of the live path over frames, without an outbox, a state or a clock.

Audit records of one event are joined over chunks; an event that nothing has completed is evaluated after
``GATHER_BYTES``, as far as the agent looks for its records, or at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import tzinfo
from typing import Any, NamedTuple

from vedette.decode.decoder import Record
from vedette.engine.join import GATHER_BYTES, REST, Joined, Joiner
from vedette.engine.match import Context, Engine, Match
from vedette.model.event import Chunk, Frame, LogSource
from vedette.plan.ir import Rule


class Detection(NamedTuple):
    """A rule that matched an event; ``line`` counts from 1 (in a JSON array: the index from 0)."""

    rule: Rule
    line: int
    record: Record
    fields: dict[str, str]
    """The fields that the rule tests or wants shown, as texts."""

    def to_row(self, file: str) -> dict[str, Any]:
        """What ``vedette scan`` prints."""
        return {
            "rule_id": self.rule.id,
            "rule_title": self.rule.title,
            "level": self.rule.level,
            "kind": "detection",
            "file": file,
            "line": self.line,
            "fields": self.fields,
        }


class Found(NamedTuple):
    """A match; its event begins at ``offset`` of the log, and at ``match.start`` of ``chunk``."""

    offset: int
    chunk: Chunk
    match: Match


Failed = Callable[[int, Exception], None]
"""Takes an event, and what was raised at it."""


class Evaluation:
    """The matches in the frames of one log, whose offsets ascend.

    Between two frames all that evaluation remembers is in ``joiner``."""

    def __init__(
        self, engine: Engine, contexts: Mapping[str, Context] | None = None, failed: Failed | None = None
    ) -> None:
        """``contexts``: by input, else ``default``. ``failed`` takes an event at which a decoder raises, by its
        offset, and the others are evaluated. None: what it raises ends the evaluation."""
        self.joiner = Joiner()
        self.default = Context()
        self._engine, self._contexts, self._failed = engine, dict(contexts or {}), failed

    def frame(self, frame: Frame) -> Iterator[Found]:
        """What is complete with ``frame``, in the order in which events are."""
        engine, chunk = self._engine, frame.chunk
        yield from self.rest(frame.offset - GATHER_BYTES)
        context = self._contexts.setdefault(chunk.input, self.default)
        for event in engine.candidates(frame, self.joiner, context):
            for match in self._matches(event, context):
                yield Found(event.frame.offset + event.start, event.frame.chunk, match)

    def rest(self, before: int = REST) -> Iterator[Found]:
        """Of events that begin before this offset, which wait for no further records."""
        while (left := self._engine.due(self.joiner, self._contexts, before=before)) is not None:
            chunk = left.frame.chunk
            for match in self._matches(left, self._contexts.get(chunk.input, self.default)):
                yield Found(left.frame.offset, chunk, match)
            self.joiner.evaluated()

    def _matches(self, event: Joined, context: Context) -> list[Match]:
        try:
            return self._engine.matches(event.frame.chunk, event, context)
        except Exception as error:  # whatever an event does to a decoder, the others are evaluated
            if self._failed is None:
                raise
            self._failed(event.frame.offset + event.start, error)
            return []


def evaluate(
    engine: Engine,
    chunks: Iterable[Chunk],
    *,
    first: int = 1,
    logsource: LogSource = LogSource(),
    zone: tzinfo | None = None,
    silent: bool = False,
    failed: Failed | None = None,
) -> Iterator[Detection]:
    """The detections in ``chunks``, in the order in which events are complete; the first event has number ``first``.

    Rules that only correlations look at are left out unless ``silent``. ``failed``: as for ``Evaluation``, by number.
    """

    def lost(at: int, error: Exception) -> None:
        assert failed is not None
        failed(waiting[at] if at < offset else _number(chunk, at - offset, 0, first), error)

    rules, evaluation = engine.plan.rules, Evaluation(engine, failed=failed and lost)
    evaluation.default = Context(zone, logsource)
    hidden = frozenset[str]() if silent else engine.plan.silent
    waiting, offset = dict[int, int](), 0

    def found(match: Match, number: int) -> Iterator[Detection]:
        if (rule := rules[match.rule]).id in hidden:
            return
        try:
            fields = engine.shown(match.rule, match.record)
        except Exception as error:  # the match holds, without fields
            if failed is None:
                raise
            failed(number, error)
            fields = {}
        yield Detection(rule, number, match.record, fields)

    for chunk in chunks:
        seen, number = 0, first
        for at, _, match in evaluation.frame(Frame(offset, chunk)):
            if at < offset:
                yield from found(match, waiting[at])
                continue
            number, seen = _number(chunk, at - offset, seen, number), at - offset
            yield from found(match, number)
        before, waiting = waiting, {}
        for at in evaluation.joiner.offsets():
            if at >= offset:
                number, seen = _number(chunk, at - offset, seen, number), at - offset
            waiting[at] = number if at >= offset else before[at]
        first, offset = first + len(chunk), offset + len(chunk.data)
    for at, _, match in evaluation.rest():
        yield from found(match, waiting[at])


def _number(chunk: Chunk, start: int, seen: int, number: int) -> int:
    """The number of the event at ``start``, counted on or back from the one at ``seen``, which has ``number``."""
    if chunk.ends is not None:
        return number + chunk.index(start) - chunk.index(seen)
    return number + chunk.data.count(b"\n", seen, start) - chunk.data.count(b"\n", start, seen)
