"""Lessons: facts that the native kernel needs of all events of one structure, learned from one of them (``native.py``).

The event is decoded by the very decoders that evaluation uses, with values that are recognized by identity
(``recognized.py``). So it is seen of which of the event's values a field is made, which of them decide (what looks into
a value decides by it), and which predicates hold in every such event, or are left open. Of the hundreds of fields that
rules ask for an event has a few: only those are looked at that its names can give (``decoder.heads``).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vedette.decode import syslog
from vedette.decode.decoder import ABSENT, Record, heads
from vedette.decode.values import from_json
from vedette.engine.bounded import Bounded
from vedette.engine.evaluate import Evaluator
from vedette.engine.prefilter import ones
from vedette.engine.recognized import Computed, Marked, Unseen, Values, parts_of, with_others
from vedette.engine.scope import ORIGIN, asks
from vedette.model.event import LogSource, Source
from vedette.plan.ir import FIELD_OPS, KEYWORDS, Op
from vedette.plan.plan import Plan

RULES_BYTES = 4 << 20
"""About how much the rules take that are remembered of log sources."""

_BESIDES_TEXTS = FIELD_OPS | {Op.NULL, Op.EXISTS}


class View(NamedTuple):
    """Events of an input: its codec and log source, and the rules that can meet them."""

    codec: str
    logsource: LogSource
    rules: frozenset[int]


class Lesson(NamedTuple):
    """Facts that the kernel takes over, by place (``LessonParts`` of ``kernel/src/api.rs``). Values are numbered as by
    ``Values``, groups and predicates as in the evaluator and the plan."""

    present: list[tuple[int, list[int]]]
    """The groups whose fields are there, ascending, with the values that their predicates test."""
    parts: list[tuple[int, int, list[tuple[int, bool, bool]]]]
    """Of computed fields group, value, and the cuts that make the field of it: separator, behind it, the last one."""
    guards: list[tuple[int, int, bytes]]
    """Of computed fields group, value, and characters of which one in the value makes the field anything."""
    holds: list[int]
    """Predicates that hold in every such event."""
    undecided: list[int]
    """Predicates that the kernel leaves to evaluation."""
    rules: bytes
    """The numbers of rules that may match."""
    values: int
    """How many there are."""
    columns: list[int]
    """By column that statements read the value that it is, or a code of ``_place``."""
    shown: list[tuple[int, int]]
    """The fields to show that are there, by number, ascending, with the same."""


@dataclass(slots=True)
class _Draft:
    """The lists of a lesson that grow field by field."""

    undecided: list[int]
    present: dict[int, list[int]] = field(default_factory=dict)
    parts: list[tuple[int, int, list[tuple[int, bool, bool]]]] = field(default_factory=list)
    guards: list[tuple[int, int, bytes]] = field(default_factory=list)
    holds: list[int] = field(default_factory=list)
    shown: list[tuple[int, int]] = field(default_factory=list)


class Lessons:
    """Learns of events for the rules of a plan."""

    def __init__(
        self,
        plan: Plan,
        evaluator: Evaluator,
        fitting: Callable[[Source], frozenset[int]],
        groups: dict[str, list[int]],
        texts: Sequence[list[int]],
        columns: Sequence[str],
        shown: Mapping[str, int],
    ) -> None:
        """``fitting``: the rules that are asked about events of a log source. ``groups``: by field, those behind the
        evaluator's are of fields that are only compared. ``texts``: by group of the evaluator the predicates that test
        texts. ``columns``: the fields that statements read. ``shown``: the number of each field to show."""
        self._plan, self._evaluator, self._fitting = plan, evaluator, fitting
        self._groups, self._texts, self._columns, self._shown = groups, texts, columns, shown
        self._rules: Bounded[tuple[View, Source], bytes] = Bounded(RULES_BYTES)
        self._compared: dict[str, list[int]] = {}
        """By field the predicates that compare it with another."""
        for number, p in enumerate(plan.predicates):
            for name in (p.field, str(p.value)) if p.op in FIELD_OPS else ():
                self._compared.setdefault(name, []).append(number)
        searches = (i for i in groups.get(KEYWORDS, ()) if not evaluator.refused.isdisjoint(evaluator.members[i]))
        self._always_undecided = [number for i in searches for number in evaluator.members[i]]
        """Keyword searches that the kernel does not do, and what depends on where an event came from."""
        names = groups.keys() | shown.keys()
        origins = {name for name in names if asks((name,), ORIGIN)}
        self._always_undecided += [number for name in origins & groups.keys() for number in self._all_of(name)]
        self._always_shown = [(shown[name], _place(_UNKNOWN)) for name in sorted(origins & shown.keys())]
        names -= {KEYWORDS} | origins
        self._parts = names & groups.keys() & (syslog.FIELDS | syslog.PARTS.keys())
        """Fields that a syslog header gives."""
        self._fields: dict[str, list[str]] = {}
        """By name in an event the fields that it can give."""
        for name in names:
            for head in heads(name):
                self._fields.setdefault(head, []).append(name)

    def lesson(self, raw: bytes, view: View) -> tuple[list[int], Lesson | None]:
        """Learn of the event ``raw``: the numbers of the values that decided, ascending, and what holds for all events
        of its outline that have the same there; None when nothing can be said of these."""
        values = Values()
        lesson = self._lesson(raw, view, values)
        return sorted(values.inspected), lesson

    def _lesson(self, raw: bytes, view: View, values: Values) -> Lesson | None:
        try:
            header = None if raw[:1] == b"{" else syslog.parse(raw)
            text = raw if header is None else raw[raw.index(b"{", header.message_start) :]
            event = values.marked(from_json(text))
        except (ValueError, RecursionError):  # no JSON, or it nests too deep
            return None
        if not isinstance(event, dict) or not event:
            return None
        if header is None and "MESSAGE" in event:  # the journal's message is read as text
            return None
        try:
            record = Record(raw, self._plan.codecs[view.codec], "", 0, None, view.logsource, event)
            return self._learned(record, values.count, self._rules_of(view, record.source))
        except Exception:  # decoders, also those of plugins, may raise anything: evaluation tells of it
            return None

    def _learned(self, record: Record, count: int, rules: bytes) -> Lesson:
        draft = _Draft(self._always_undecided.copy(), shown=self._always_shown.copy())
        program = None if record.header is None else record.header.app
        names = {name for head in record.fields().keys() & self._fields.keys() for name in self._fields[head]}
        for name in sorted(names if record.header is None else names & self._groups.keys() | self._parts):
            value: Any = record.get(name)
            if value is ABSENT:
                continue
            if name in self._shown and value is not None:
                draft.shown.append((self._shown[name], _place(value)))
            if name not in self._groups:
                continue
            if isinstance(value, Computed):
                self._computed(draft, name, with_others(record, name, value))
            elif program is not None and value is program:  # of a syslog header: part of the structure
                self._plain(draft, name, value, [], [program], False)
            else:
                self._plain(draft, name, value, *parts_of(value))
        columns = self._places(record) if self._columns else []
        return Lesson(
            sorted(draft.present.items()), draft.parts, draft.guards, draft.holds, draft.undecided, rules, count,
            columns, sorted(draft.shown),
        )  # fmt: skip

    def _computed(self, draft: _Draft, name: str, computed: Computed) -> None:
        """A field that a decoder makes of parts of values."""
        draft.present.update((group, []) for group in self._groups[name])
        if computed.anything:
            draft.undecided += self._all_of(name)
            return
        draft.undecided += [i for i in self._all_of(name) if self._plan.predicates[i].op in _BESIDES_TEXTS]
        for group in self._groups[name]:
            for leaf, cuts in computed.parts:
                draft.parts.append((group, leaf, [(ord(cut.separator), cut.after, cut.last) for cut in cuts]))
            for leaf, unless in computed.guards:
                draft.guards.append((group, leaf, unless.encode()))

    def _plain(self, draft: _Draft, name: str, value: Any, own: list[int], fixed: list[Any], new: bool) -> None:
        """A field that is made of whole values ``own``, of ``fixed`` ones that are in every event, or is ``new``."""
        if new or fixed:
            draft.undecided += self._compared.get(name, ())
        for group in self._groups[name]:
            draft.present[group] = [] if new else own
            if group < len(self._texts):
                if new:
                    draft.undecided += self._texts[group]
                true, unsure = self._fixed(group, None if value is None else fixed)
                draft.holds += true
                draft.undecided += unsure

    def _places(self, record: Record) -> list[int]:
        """Where the values are that say the event's time, its host, and those of ``columns``."""
        time: Any = None
        for name in record.time_fields:
            time = record.get(name)
            if isinstance(time, str | int | float) and not isinstance(time, bool):
                break
            time = None
        host: Any
        try:
            host = record.host
        except Unseen:
            host = _UNKNOWN
        read = [_UNKNOWN if asks((name,), ORIGIN) else record.get(name) for name in self._columns]
        return [_place(value) for value in (time, host, *read)]

    def _all_of(self, name: str) -> list[int]:
        """Return every predicate that depends on the field ``name``."""
        members = self._evaluator.members
        tested = (i for group in self._groups[name] if group < len(members) for i in members[group])
        return [*tested, *self._compared.get(name, ())]

    def _rules_of(self, view: View, source: Source) -> bytes:
        """Return the rules of ``view`` that are asked about events of ``source``, as the kernel takes them."""
        packed = self._rules.get((view, source))
        if packed is None:
            packed = array("I", sorted(view.rules & self._fitting(source))).tobytes()
            self._rules.keep((view, source), packed, 500 + len(packed))
        return packed

    def _fixed(self, group: int, value: Any) -> tuple[list[int], list[int]]:
        """Return the predicates that hold, and the undecided ones, for a value that is the same in every event."""
        tests, members = self._evaluator.groups[group], self._evaluator.members[group]
        bits = tests.bits(value)
        true = [members[bit] for bit in ones(bits & (1 << tests.size) - 1)]
        return true, [members[bit] for bit in ones(bits >> tests.size)]


_UNKNOWN = object()


def _place(value: Any) -> int:
    """Where a field's value is in every event of the same structure: its number, or a code of ``layout.rs``."""
    if isinstance(value, Marked):
        return value.leaf
    if value is None or value is ABSENT:
        return -1
    return -2 if value is True else -3 if value is False else -4
