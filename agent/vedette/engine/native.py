"""Events before the native kernel: it decides which rules an event surely does not match, and which it does.

The kernel (``agent/kernel``) knows JSON, and of the headers of syslog those that nearly all senders write.

**JSON objects.** It knows no decoder of them. It recognizes the *structure* of an event: names and their nesting, in
whatever order, and kinds of values (its *outline*), and the values that decide. What it then needs to know of all
events of one structure is learned from one of them (``lessons.py``), by the very decoders that evaluation uses: the
event is decoded with values that are recognized by identity, so where a field's value comes from is seen, not declared.
A value that a decoder or the choice of a log source looks *into* decides: what is learned holds for the events of the
same outline that have the same there, and says nothing of others. The order of names means nothing to decoders; of a
name that an object has twice they take the last, and so does the kernel. What a decoder computes by
``decode/computed.py`` is a declared part of a value, and perhaps absent; what comes out as a new value otherwise is
left open. Readers of JSON objects must look into values by their own methods or ``str()``, not hand them to C code that
reads them unseen, such as ``re``: property tests hold them to it.

**Lines.** They go through the prefilter (``prefilter.py``) first. Of an event that it names, the kernel knows
``message``, ``program`` and what keyword searches read, where its header is read as ``syslog.usual`` does, or the
input's events are nothing but messages; other fields are open. A message that is a JSON object is one of the above,
with what the header gives as part of the structure.

So for an event the kernel leaves out a rule only if it is false, or of another log source. Where it knows all that the
other rules depend on these are ``Sure``; of a line it does not know the log source. Where it knows nothing an event
keeps the rules that the prefilter names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, overload

from vedette.decode.codecs import Kind
from vedette.decode.decoder import NAMED_BY
from vedette.decode.formats.table import FIRST, PREFIXED
from vedette.engine import kernel
from vedette.engine.bounded import Bounded
from vedette.engine.described import COMPARISONS, EMPTY, PLACES, described, encodes, guess
from vedette.engine.evaluate import Evaluator
from vedette.engine.lessons import Lessons, View
from vedette.engine.prefilter import Candidate, unpacked
from vedette.engine.rows import Batch, Common, columns, tables
from vedette.model.event import Chunk, LogSource, Source
from vedette.model.times import HOUR
from vedette.plan.database import MODULE
from vedette.plan.ir import FIELD_OPS, KEYWORDS, Op, Predicate, dump, folding
from vedette.plan.plan import Plan

_OBJECTS = frozenset({Kind.JSON, Kind.MQTT})
"""Kinds of events that may be JSON objects."""
_TEXT = frozenset({Kind.TEXT, Kind.ACCESS})
"""Kinds of events of which the message is the whole."""

SETS_BYTES = 4 << 20
"""About how much the sets of rules take that are kept to be the same objects again."""

PASSES = 3
"""Times that what is left of a chunk is tried, as long as something was learned from it."""

_START = itemgetter(0)


class Native:
    """The rules of a plan, before events are decoded."""

    def __init__(self, plan: Plan, evaluator: Evaluator, fitting: Callable[[Source], frozenset[int]]) -> None:
        """``fitting``: the rules that are asked about events of a log source."""
        self._plan, self._evaluator = plan, evaluator
        fields: dict[str, list[int]] = {}
        for i, group in enumerate(evaluator.groups):
            fields.setdefault(group.field, []).append(i)
        count = len(evaluator.groups)
        for p in plan.predicates:
            for name in (p.field, str(p.value)) if p.op in FIELD_OPS else ():
                if name not in fields:
                    fields[name] = [count]
                    count += 1
        self._fields = fields
        self.columns = columns(plan, 2)
        """The fields that statements read, by their place in what ``values`` gives."""
        self._views: dict[int, View] = {}
        self._sets: Bounded[bytes | int, frozenset[int]] = Bounded(SETS_BYTES)
        groups = [described(plan, evaluator, i) for i in range(len(evaluator.groups))]
        texts = [group["all"] for group in groups]
        shown = {name: i for i, name in enumerate(sorted({*chain(*plan.fields_of)} - {KEYWORDS}))}
        self._lessons = Lessons(plan, evaluator, fitting, fields, texts, tuple(self.columns), shown)
        groups += [EMPTY] * (count - len(groups))
        searches = [i for i in fields.get(KEYWORDS, ()) if evaluator.refused.isdisjoint(evaluator.members[i])]
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
            (list(shown), [[shown[name] for name in names if name != KEYWORDS] for names in plan.fields_of]),
        )
        evaluator.search_by(self._kernel.hits)  # one copy of the databases

    def _fixed_in(self, field: str) -> list[int]:
        """The predicates that hold wherever the field is there."""
        return [number for number, p in enumerate(self._plan.predicates) if p.field == field and p.op is Op.EXISTS]

    def _direct(self) -> list[tuple[int, int, bool, str]]:
        """Return tests of the scanned groups of lines that need no scan: predicate, place, whether case counts,
        text."""
        evaluator, places = self._evaluator, PLACES | {Op.EXACT: 3}
        groups = (i for name in ("message", "program", KEYWORDS) for i in self._fields.get(name, ()))
        scanned = (i for i in groups if i < len(evaluator.groups) and evaluator.groups[i].scans)
        tests = ((number, self._plan.predicates[number]) for i in scanned for number in evaluator.members[i])
        return [(n, places[p.op], p.cased, str(p.value)) for n, p in tests if p.op in places and encodes(p.value)]

    def _about(self, number: int, p: Predicate) -> tuple[int, int, int]:
        """Return what a predicate depends on: kind, group, other group."""
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
        self._views[number] = View(codec, logsource, rules)
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
            answer, runs, ask, gathered = kernel.decide(data, ends, runs, view, again > 0, common)
            own += unpacked(answer, self._sets, rules, gathered)
            answers += bool(answer)
            self._learn_all(data, ask, view)
            if not ask:
                break
        if runs is None or runs:
            answer, ask = kernel.sift(data, ends, runs, search(runs), view + undated, apart)
            self._learn_all(data, ask, view)
            others = unpacked(answer, self._sets, rules)
            if not own:
                return others
            own += others
            answers += 1
        if answers > 1:
            own.sort(key=_START)
        return iter(own)

    def _learn_all(self, data: bytes, ask: list[tuple[int, int]], view: int) -> None:
        for start, end in ask:
            raw = data[start:end]
            self._kernel.learn(raw, view, *self._lessons.lesson(raw, self._views[view]))

    def values(self, event: bytes, view: int) -> tuple[Any, ...] | None:
        """Return what may say a JSON event's time, its host (None: no field says it), and ``columns``, an Ellipsis for
        what decoders have to say; None: they have to say all."""
        values: tuple[Any, ...] | None = self._kernel.columns(event, view)
        return values

    def shown(self, event: bytes, view: int, rules: Sequence[int]) -> dict[str, Any] | None:
        """Return the fields that ``rules`` show of a JSON event, with None for those that it does not have and an
        Ellipsis for what decoders have to say; None: they have to say all."""
        fields: dict[str, Any] | None = self._kernel.shown(event, view, rules)
        return fields

    def distrust(self, event: bytes) -> bool:
        """Leave events of the structure of ``event`` to the prefilter from now on. False where that does not help: it
        has no structure, its events are left to the prefilter already, or there are too many such structures."""
        return bool(self._kernel.distrust(event))
