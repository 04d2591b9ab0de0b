"""Events that only give rows of statements' tables, many together: the native kernel makes the rows.

Where all rules of an event surely match and do nothing but select events for statements, nothing is left to evaluate:
the kernel gives the event's rows (``kernel/src/rows.rs``), to the value what ``stream/reader.py`` makes of what the
decoders say, and neighbours become one ``Batch``. An event of which it is not sure has None in place of its rows.
``plan/query.py`` is imported by a plan that has statements.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.decode import kafka
from vedette.decode.codecs import Kind
from vedette.model.event import Chunk, Frame
from vedette.plan.numbers import BITS
from vedette.plan.plan import Plan

if TYPE_CHECKING:
    from vedette.plan.query import Field, Scan, Type

Part = tuple[int, int, int]
"""How the kernel reads a column: kind, place among what is read of an event, and a number."""


class Batch(NamedTuple):
    """Events of a frame, from ``start`` to ``end``, between which no other has a rule that may match."""

    start: int
    end: int
    rules: frozenset[int]
    spans: list[tuple[int, int]]
    rows: list[Any]
    """By event its row in the table of its rule; of several tables a tuple of its rows, by rule and table; None:
    decoders have to say."""
    hosts: list[str | None]
    """Whose the events are."""

    @property
    def at(self) -> int:
        """The cursor's place until the events are evaluated, as of ``Joined``."""
        return self.start

    @property
    def matches(self) -> int:
        return len(self.spans) * len(self.rules)

    def parts(self, most: int) -> Iterator[Batch]:
        """The same events in batches of ``most``, the last of what is left."""
        spans, start = self.spans, self.start
        for at in range(0, len(spans), most):
            behind = at + most
            end = spans[behind][0] if behind < len(spans) else self.end
            yield Batch(start, end, self.rules, spans[at:behind], self.rows[at:behind], self.hosts[at:behind])
            start = end

    def split(self, at: int) -> tuple[Batch, Batch]:
        """The events that begin before ``at``, and those from there on; there may be none."""
        spans = self.spans
        number = bisect_left(spans, at, key=itemgetter(0))
        start = spans[number][0] if number < len(spans) else self.end
        return (
            Batch(self.start, start, self.rules, spans[:number], self.rows[:number], self.hosts[:number]),
            Batch(start, self.end, self.rules, spans[number:], self.rows[number:], self.hosts[number:]),
        )


class Common(NamedTuple):
    """Facts that the events of a chunk have in common; the kernel reads it by these names."""

    offset: int
    received_at: int
    input: str
    host: Any
    """Whose events are that do not say it; an Ellipsis: it depends on the event."""


def common(frame: Frame, host: str | None, kinds: frozenset[Kind]) -> Common:
    """``host``: see ``Context``; ``kinds``: of the chunk's codec."""
    chunk = frame.chunk
    return Common(frame.offset, chunk.received_at, chunk.input, _host(chunk, host, kinds))


def _host(chunk: Chunk, host: str | None, kinds: frozenset[Kind]) -> Any:
    if Kind.MQTT not in kinds:
        if chunk.origin_of is not None:
            return ...
        peer = chunk.origins[0]
        return host if peer.startswith(kafka.PREFIX) else peer or host
    return host if len(kinds) == 1 else ...


def columns(plan: Plan, first: int) -> dict[str, int]:
    """Return the fields that statements read, each with its place, from ``first`` on."""
    if not plan.statements:
        return {}
    from vedette.plan.query import fields_read

    return {name: place for place, name in enumerate(fields_read(plan.statements), first)}


def tables(plan: Plan, places: dict[str, int]) -> list[list[tuple[list[Part], int]]]:
    """By rule the tables that it selects events for, as the kernel takes them: their columns, and which is the time.
    Empty where the kernel can make no rows, or the rule does anything else."""
    if not plan.statements:
        return [[] for _ in plan.rules]
    from vedette.plan.query import scans_of

    calling = {scan.rule for statement in plan.statements if statement.modules for scan in statement.scans}
    scans = scans_of(plan.statements)
    by_rule: list[list[tuple[list[Part], int]]] = []
    for rule in plan.rules:
        rule_tables = [_table(scan, places) for scan in scans.get(rule.id, ())] if rule.id not in calling else []
        by_rule.append([] if None in rule_tables else [table for table in rule_tables if table is not None])
    return by_rule


def _table(scan: Scan, places: dict[str, int]) -> tuple[list[Part], int] | None:
    if scan.inputs_named:
        return None
    parts = [_part(source, column.type, places) for source, column in zip(scan.sources, scan.columns, strict=True)]
    return None if None in parts else ([part for part in parts if part is not None], scan.time)


_METADATA = {"event_time": 6, "received_at": 7, "host": 8, "input": 9, "offset": 10}
_KINDS = {"STRING": 0, "CHAR": 0, "VARCHAR": 0, "DOUBLE": 2, "FLOAT": 3, "BOOLEAN": 4}


def _part(source: Field, of: Type, places: dict[str, int]) -> Part | None:
    if source.metadata:
        return (_METADATA[source.path], 0, 0) if source.path in _METADATA else None
    place = places[source.path]
    if of.name in BITS:
        return 1, place, BITS[of.name]
    if of.name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return 5, place, 10 ** max(0, 6 - of.precision)
    return (_KINDS[of.name], place, 0) if of.name in _KINDS else None
