"""Events before the native kernel: it decides which rules an event surely does not match, and which it does.

The kernel (``agent/kernel``) knows JSON, and of the headers of syslog those that nearly all senders write.

**JSON objects.** It knows no decoder of them. It recognizes the *structure* of an event: names, their nesting and
order, kinds of values, and the values under a few names that decide. What it then needs to know of all events of one
structure is learned here from one of them, by the very decoders that evaluation uses: the event is decoded with values
that are recognized by identity (``recognized.py``), so where a field's value comes from is seen, not declared. A value
that a decoder or the choice of a log source looks *into* decides: its name is passed on, and from then on it is part of
the structure. What a decoder computes by ``decode/computed.py`` is a declared part of a value, and perhaps absent; what
comes out as a new value otherwise is left open. Readers of JSON objects must look into values by their own
methods or ``str()``, not hand them to C code that reads them unseen, such as ``re``: property tests hold them to it.

**Lines.** They go through the prefilter (``prefilter.py``) first. Of an event that it names, the kernel knows
``message``, ``program`` and what keyword searches read, where its header is read as ``syslog.usual`` does, or the
input's events are nothing but messages; other fields are open. A message that is a JSON object is one of the above,
with what the header gives as part of the structure.

So for an event the kernel leaves out a rule only if it is false, or of another log source. Where it knows all that the
other rules of an object depend on these are ``Sure``. Where it knows nothing an event keeps the rules that the
prefilter names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, overload

from vedette.decode import syslog
from vedette.decode.aliases import ALIASES
from vedette.decode.codecs import Kind
from vedette.decode.decoder import ABSENT, NAMED_BY, Record
from vedette.decode.formats.table import FIRST, PREFIXED
from vedette.engine import kernel
from vedette.engine.bounded import Bounded
from vedette.engine.described import COMPARISONS, EMPTY, PLACES, described, encodes, guess
from vedette.engine.evaluate import Evaluator
from vedette.engine.prefilter import Candidate, ones, unpacked
from vedette.engine.recognized import Computed, Marked, Pairs, Unseen, Values, parts_of, with_others
from vedette.engine.rows import Batch, Common, tables
from vedette.model.event import Chunk, LogSource, Source
from vedette.model.times import HOUR
from vedette.plan.database import MODULE
from vedette.plan.ir import FIELD_OPS, KEYWORDS, Op, Predicate, dump, folding
from vedette.plan.plan import Plan
from vedette.plan.query import fields_read

_OBJECTS = frozenset({Kind.JSON, Kind.MQTT})
"""Kinds of events that may be JSON objects."""
_TEXT = frozenset({Kind.TEXT, Kind.ACCESS})
"""Kinds of events of which the message is the whole."""

SETS_BYTES = 4 << 20
"""About how much the sets of rules take that are kept to be the same objects again."""

PASSES = 3
"""Times that what is left of a chunk is tried, as long as something was learned from it."""

_NONE: frozenset[int] = frozenset()

_BESIDES_TEXTS = FIELD_OPS | {Op.NULL, Op.EXISTS}

_START = itemgetter(0)


class Native:
    """The rules of a plan, before events are decoded."""

    def __init__(self, plan: Plan, evaluator: Evaluator, fitting: Callable[[Source], frozenset[int]]) -> None:
        """``fitting``: the rules that are asked about events of a log source."""
        self._plan, self._evaluator, self._fitting = plan, evaluator, fitting
        fields: dict[str, list[int]] = {}
        for i, group in enumerate(evaluator.groups):
            fields.setdefault(group.field, []).append(i)
        count = len(evaluator.groups)
        for p in plan.predicates:
            for name in (p.field, str(p.value)) if p.op in FIELD_OPS else ():
                if name not in fields:
                    fields[name] = [count]
                    count += 1
        self._fields, self._groups = fields, count
        self.columns = {name: place for place, name in enumerate(fields_read(plan.statements), 2)}
        """The fields that statements read, by their place in what ``values`` gives."""
        self._views: dict[int, tuple[str, LogSource, frozenset[int]]] = {}
        self._sets: Bounded[bytes | int, frozenset[int]] = Bounded(SETS_BYTES)
        self._fields_of: Bounded[frozenset[int], list[str]] = Bounded(SETS_BYTES)
        groups = [described(plan, evaluator, i) for i in range(len(evaluator.groups))]
        self._texts = [group["all"] for group in groups]
        self._compared: dict[str, list[int]] = {}
        """By field the predicates that compare it with another."""
        for number, p in enumerate(plan.predicates):
            for name in (p.field, str(p.value)) if p.op in FIELD_OPS else ():
                self._compared.setdefault(name, []).append(number)
        groups += [EMPTY] * (count - len(groups))
        searches = [i for i in fields.get(KEYWORDS, ()) if evaluator.refused.isdisjoint(evaluator.members[i])]
        self._left = [n for i in fields.get(KEYWORDS, ()) if i not in searches for n in evaluator.members[i]]
        """Keyword searches that the kernel does not do."""
        selected = tables(plan, self.columns)
        self.gathers = any(selected)
        """Whether there are rules that do nothing but select events for statements, which may come as batches."""
        assert kernel.LOADED is not None
        self._kernel: Any = kernel.LOADED.Events(
            MODULE,
            [(chr(code), char) for code, char in folding().items()],
            [self._about(number, p) for number, p in enumerate(plan.predicates)],
            [guess(p) for p in plan.predicates],
            groups,
            {
                "keywords": searches[0] if searches else None,
                "message": fields.get("message", ()),
                "program": fields.get("program", ()),
                "searched": fields.get(KEYWORDS, ()),
                "with_message": self._fixed_in("message"),
                "with_program": self._fixed_in("program"),
                "direct": self._direct(),
                "named_by": NAMED_BY["program"],
                "formats": b"".join(FIRST),
                "prefixed": PREFIXED,
            },
            list(zip([dump(rule.expr) for rule in plan.rules], selected, strict=True)),
        )
        evaluator.search_by(self._kernel.hits)  # one copy of the databases

    def _fixed_in(self, field: str) -> list[int]:
        """The predicates that hold wherever the field is there."""
        return [number for number, p in enumerate(self._plan.predicates) if p.field == field and p.op is Op.EXISTS]

    def _direct(self) -> list[tuple[int, int, bool, str]]:
        """Of the groups of lines that are scanned the tests that need no scan: predicate, place, whether case counts,
        text."""
        evaluator, places = self._evaluator, PLACES | {Op.EXACT: 3}
        groups = (i for name in ("message", "program", KEYWORDS) for i in self._fields.get(name, ()))
        scanned = (i for i in groups if i < len(evaluator.groups) and evaluator.groups[i].scans)
        tests = ((number, self._plan.predicates[number]) for i in scanned for number in evaluator.members[i])
        return [(n, places[p.op], p.cased, str(p.value)) for n, p in tests if p.op in places and encodes(p.value)]

    def _about(self, number: int, p: Predicate) -> tuple[int, int, int]:
        """What a predicate depends on: kind, group, other group."""
        if p.op in FIELD_OPS:
            return COMPARISONS[p.op], self._fields[p.field][0], self._fields[str(p.value)][0]
        place = self._evaluator.place(number)
        assert place is not None
        return int(p.op in (Op.NULL, Op.EXISTS)), place[0], place[0]

    def view(self, codec: str, logsource: LogSource, rules: frozenset[int], always: frozenset[int]) -> int:
        """A number for the events of an input, which ``rules`` can meet, ``always`` of them without a literal."""
        kinds = self._plan.codecs[codec].kinds
        reads = 1 if Kind.SYSLOG in kinds else 2 if kinds <= _TEXT else 0
        number: int = self._kernel.view(reads, sorted(rules), sorted(always))
        self._kernel.view(0, sorted(rules), sorted(always))  # see ``candidates``
        self._views[number] = codec, logsource, rules
        return number

    def account(self) -> dict[str, int]:
        """For the status."""
        names = ("events", "undecided", "learned", "refused", "panics")
        return dict(zip(names, self._kernel.counts(), strict=True))

    @overload
    def candidates(
        self, chunk: Chunk, view: int, search: Callable[[bytes | None], bytes], apart: bool
    ) -> Iterator[Candidate]: ...
    @overload
    def candidates(
        self, chunk: Chunk, view: int, search: Callable[[bytes | None], bytes], apart: bool, common: Common
    ) -> Iterator[Candidate | Batch]: ...
    def candidates(
        self, chunk: Chunk, view: int, search: Callable[[bytes | None], bytes], apart: bool,
        common: Common | None = None,
    ) -> Iterator[Candidate | Batch]:  # fmt: skip
        """The events that rules may match, in order; with ``common`` as batches where they only give rows.

        ``search`` gives those of some runs that hold literals, as ``Prefilter.named``; ``apart``: as there.
        """
        codec, _, rules = self._views[view]
        data, ends, kernel, runs = chunk.data, chunk.ends, self._kernel, None
        undated = 0 < chunk.received_at < HOUR  # decoders read headers in another way
        own: list[Candidate | Batch] = []
        answers = 0
        for again in range(PASSES if not _OBJECTS.isdisjoint(self._plan.codecs[codec].kinds) else 0):
            found, runs, ask, taken = kernel.decide(data, ends, runs, view, again > 0, common)
            own += unpacked(found, self._sets, rules, taken)
            answers += bool(found)
            self._learn_all(data, ask, view)
            if not ask:
                break
        if runs is None or runs:
            found, ask = kernel.sift(data, ends, runs, search(runs), view + undated, apart)
            self._learn_all(data, ask, view)
            others = unpacked(found, self._sets, rules)
            if not own:
                return others
            own += others
            answers += 1
        if answers > 1:
            own.sort(key=_START)
        return iter(own)

    def _learn_all(self, data: bytes, ask: list[tuple[int, int]], view: int) -> None:
        for start, end in ask:
            self._learn(data[start:end], view)

    def values(self, event: bytes, view: int) -> tuple[Any, ...] | None:
        """Of a JSON event of ``view`` what may say its time, its host (None: no field says it), and ``columns``, an
        Ellipsis for what decoders have to say; None: they have to say all."""
        found: tuple[Any, ...] | None = self._kernel.columns(event, view)
        return found

    def distrust(self, event: bytes) -> bool:
        """Leave events of the structure of ``event`` to the prefilter from now on. False where that does not help: it
        has no structure, its events are left to the prefilter already, or there are too many such structures."""
        return bool(self._kernel.distrust(event))

    # --- learning

    def _learn(self, raw: bytes, view: int) -> None:
        for _ in range(8):  # names that decide are found one after the other
            if self._kernel.learn(raw, view, self._lesson(raw, view)) is not None:
                return

    def _lesson(self, raw: bytes, view: int) -> Any:
        """What the kernel learns of ``raw``; None when nothing can be said of such events."""
        codec, logsource, rules = self._views[view]
        try:
            header = None if raw[:1] == b"{" else syslog.parse(raw)
            text = raw if header is None else raw[raw.index(b"{", header.message_start) :]
            pairs = json.loads(text.rstrip(b" \t\r\n\0"), object_pairs_hook=Pairs)
            values = Values()
            event = values.marked(pairs, "")
            if not isinstance(event, dict) or not event:
                return None
            if header is None and "MESSAGE" in event:  # the journal's message is read as text
                return None
            record = Record(raw, self._plan.codecs[codec], "", 0, None, logsource, event)
            program = None if record.header is None else record.header.app
            rules = rules & self._fitting(record.source)
            sources: list[list[int]] = [[] for _ in range(self._groups)]
            parts: list[tuple[int, int, list[tuple[int, bool, bool]]]] = []
            guards: list[tuple[int, int, bytes]] = []
            holds: list[int] = []
            unknown = self._left.copy()
            for field in self._asked(rules):
                if _depends_on_origin(field):
                    unknown += self._all_of(field)
                    continue
                value: Any = record.get(field)
                if isinstance(value, Computed):
                    made = with_others(record, field, value)
                    unknown += self._all_of(field) if made.anything else self._besides_texts(field)
                    for group in () if made.anything else self._fields[field]:
                        parts += ((group, leaf, [(ord(c.separator), c.after, c.last) for c in cuts])
                                  for leaf, cuts in made.parts)  # fmt: skip
                        guards += ((group, leaf, unless.encode()) for leaf, unless in made.guards)
                    continue
                own, fixed, new = parts_of(value)
                if program is not None and value is program:  # of a syslog header: part of the structure
                    fixed, new = [program], False
                if new or fixed:
                    unknown += self._compared.get(field, ())
                for group in self._fields[field]:
                    sources[group] = [] if new else own
                    if group < len(self._texts):
                        if new:
                            unknown += self._texts[group]
                        true, open_ = self._fixed(group, value if value is ABSENT or value is None else fixed)
                        holds += true
                        unknown += open_
            columns = self._places(record) if self.columns else []
        except Exception:  # no text that can be learned; a decoder that raises, of which evaluation tells
            return None
        inspected = [(leaf, values.names[leaf].encode()) for leaf in sorted(values.inspected)]
        return sources, parts, guards, holds, unknown, sorted(rules), inspected, len(values.names), columns

    def _places(self, record: Record) -> list[int]:
        """Where the values are that ``values`` gives."""
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
        fields = [_UNKNOWN if _depends_on_origin(name) else record.get(name) for name in self.columns]
        return [_place(one) for one in (time, host, *fields)]

    def _besides_texts(self, field: str) -> list[int]:
        """The predicates that depend on ``field`` by more than each of its texts."""
        return [i for i in self._all_of(field) if self._plan.predicates[i].op in _BESIDES_TEXTS]

    def _all_of(self, field: str) -> list[int]:
        """Every predicate that depends on ``field``."""
        members = self._evaluator.members
        tested = (i for group in self._fields[field] if group < len(members) for i in members[group])
        return [*tested, *self._compared.get(field, ())]

    def _asked(self, rules: frozenset[int]) -> list[str]:
        """The fields of ``rules``, but for keyword searches."""
        fields = self._fields_of.get(rules)
        if fields is None:
            asked = sorted(self._evaluator.fields(rules) - {KEYWORDS})
            fields = self._fields_of.keep(rules, asked, 200 + 60 * len(asked))
        return fields

    def _fixed(self, group: int, value: Any) -> tuple[list[int], list[int]]:
        """The predicates that hold, and those that are open, for a value that is the same in every event."""
        tests, members = self._evaluator.groups[group], self._evaluator.members[group]
        bits = tests.bits(value)
        return [members[bit] for bit in ones(bits & (1 << tests.size) - 1)], [
            members[bit] for bit in ones(bits >> tests.size)
        ]


_UNKNOWN = object()


def _place(value: Any) -> int:
    """Where a field's value is in every event of the same structure: its number, or a code of ``layout.rs``."""
    if isinstance(value, Marked):
        return value.leaf
    if value is None or value is ABSENT:
        return -1
    return -2 if value is True else -3 if value is False else -4


def _depends_on_origin(field: str) -> bool:
    """Whether ``field`` may be where the event came from, which is no part of it."""
    for name in (field, *ALIASES.get(field, ())):
        head = name.partition(".")[0]
        if head in ("peer", "topic", "topic_levels", "kafka") or head.startswith("topic_level_"):
            return True
    return False
