"""Events before the native kernel: it decides which rules an event surely does not match, and which it does.

The kernel (``agent/kernel``) knows JSON, and of the headers of syslog those that nearly all senders write.

**JSON objects.** It knows no decoder of them. It recognizes the *structure* of an event: names, their nesting and
order, kinds of values, and the values under a few names that decide. What it then needs to know of all events of one
structure is learned here from one of them, by the very decoders that evaluation uses: the event is decoded with values
that are recognized by identity (``_marked``), so where a field's value comes from is seen, not declared. A value that a
decoder or the choice of a log source looks *into* decides: its name is passed on, and from then on it is part of the
structure. What a decoder computes by ``decode/computed.py`` is a declared part of a value, and perhaps absent; what
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

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any, cast, overload

from vedette.decode import syslog
from vedette.decode.aliases import ALIASES
from vedette.decode.codecs import CODECS, Kind
from vedette.decode.computed import Cut, Part, Traced
from vedette.decode.decoder import ABSENT, NAMED_BY, Record
from vedette.decode.formats.table import FIRST, PREFIXED
from vedette.engine import kernel
from vedette.engine.bounded import Bounded
from vedette.engine.evaluate import Evaluator
from vedette.engine.prefilter import Candidate, ones, unpacked
from vedette.engine.rows import Batch, Common, tables
from vedette.model.event import Chunk, LogSource, Source
from vedette.model.times import HOUR
from vedette.plan.database import MODULE
from vedette.plan.ir import FIELD_OPS, KEYWORDS, Op, Predicate, dump, folding
from vedette.plan.patterns import End, search
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

_START = itemgetter(0)

_MAX_EXACT = 1 << 53
"""Whole numbers up to this are floats exactly."""


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
        groups = [_described(plan, evaluator, i) for i in range(len(evaluator.groups))]
        self._texts = [group["all"] for group in groups]
        self._compared: dict[str, list[int]] = {}
        """By field the predicates that compare it with another."""
        for number, p in enumerate(plan.predicates):
            for name in (p.field, str(p.value)) if p.op in FIELD_OPS else ():
                self._compared.setdefault(name, []).append(number)
        groups += [_EMPTY] * (count - len(groups))
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
            [_guess(p) for p in plan.predicates],
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
        evaluator, places = self._evaluator, _PLACES | {Op.EXACT: 3}
        groups = (i for name in ("message", "program", KEYWORDS) for i in self._fields.get(name, ()))
        scanned = (i for i in groups if i < len(evaluator.groups) and evaluator.groups[i].scans)
        tests = ((number, self._plan.predicates[number]) for i in scanned for number in evaluator.members[i])
        return [(n, places[p.op], p.cased, str(p.value)) for n, p in tests if p.op in places and _encodes(p.value)]

    def _about(self, number: int, p: Predicate) -> tuple[int, int, int]:
        """What a predicate depends on: kind, group, other group."""
        if p.op in FIELD_OPS:
            return _COMPARISONS[p.op], self._fields[p.field][0], self._fields[str(p.value)][0]
        place = self._evaluator.place(number)
        assert place is not None
        return int(p.op in (Op.NULL, Op.EXISTS)), place[0], place[0]

    def view(self, codec: str, logsource: LogSource, rules: frozenset[int], always: frozenset[int]) -> int:
        """A number for the events of an input, which ``rules`` can meet, ``always`` of them without a literal."""
        kinds = CODECS[codec].kinds
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
        for again in range(PASSES if not _OBJECTS.isdisjoint(CODECS[codec].kinds) else 0):
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
            pairs = json.loads(text.rstrip(b" \t\r\n\0"), object_pairs_hook=_Pairs)
            values = _Values()
            event = values.marked(pairs, "")
            if not isinstance(event, dict) or not event:
                return None
            if header is None and "MESSAGE" in event:  # the journal's message is read as text
                return None
            record = Record(raw, CODECS[codec], "", 0, None, logsource, event)
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
                if isinstance(value, _Computed):
                    made = _with_others(record, field, value)
                    unknown += self._all_of(field) if made.anything else self._besides_texts(field)
                    for group in () if made.anything else self._fields[field]:
                        parts += ((group, leaf, [(ord(c.separator), c.after, c.last) for c in cuts])
                                  for leaf, cuts in made.parts)  # fmt: skip
                        guards += ((group, leaf, unless.encode()) for leaf, unless in made.guards)
                    continue
                own, fixed, new = _parts(value)
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
        except _Unseen:
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
    if isinstance(value, _Marked):
        return value.leaf
    if value is None or value is ABSENT:
        return -1
    return -2 if value is True else -3 if value is False else -4


def _depends_on_origin(field: str) -> bool:
    """Whether ``field`` may be where the event came from, which is no part of it."""
    for name in (field, *ALIASES.get(field, ())):
        head = name.partition(".")[0]
        if head in ("peer", "topic", "topic_levels") or head.startswith("topic_level_"):
            return True
    return False


# --- events whose values are recognized


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it is written."""


class _Values:
    """The values of one event, numbered as the kernel numbers them: in the order of the text, arrays without an object
    in them as one."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """By value the name under which it stands."""
        self.inspected: set[int] = set()
        """Values that were looked into."""

    def marked(self, value: Any, name: str) -> Any:
        """``value`` with its parts made recognizable. Raises ValueError for a name that occurs twice."""
        if isinstance(value, _Pairs):
            made = {key: self.marked(inner, key) for key, inner in value}
            if len(made) != len(value):
                raise ValueError("a name occurs twice")
            return made
        if isinstance(value, list) and _holds_object(value):
            return [self.marked(item, name) for item in value]
        self.names.append(name)
        if value is None or value is True or value is False:
            return value
        made = _MARKED[type(value)](value)
        made.leaf, made.inspected = len(self.names) - 1, self.inspected
        return made


def _holds_object(values: list[Any]) -> bool:
    return any(isinstance(one, _Pairs) or (isinstance(one, list) and _holds_object(one)) for one in values)


def _parts(value: Any) -> tuple[list[int], list[Any], bool]:
    """Of a field's value: numbers of the event's values, truth values, and whether anything else is in it."""
    own: list[int] = []
    fixed: list[Any] = []
    new = False
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Marked):
            own.append(item.leaf)
        elif item is True or item is False:
            fixed.append(item)
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, _Computed):
            raise _Unseen
        elif not (item is None or item is ABSENT or isinstance(item, dict)):
            new = True
    return own, fixed, new


class _Marked(Traced):
    """A value that knows its number and notes when it is looked into."""

    leaf: int
    inspected: set[int]

    def give(self, fields: dict[str, Any], parts: Mapping[str, Part]) -> None:
        _give(fields, parts, {(self.leaf, ()): None}, {}, False)


_TELLING = frozenset("__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __str__ __repr__ __format__".split())  # noqa: SIM905
"""What every object has and tells something of a value."""


def _marked(base: type[Any]) -> type[Any]:
    """A subclass of ``base`` whose methods note that the value is looked into."""

    def noting(name: str) -> Callable[..., Any]:
        method = getattr(base, name)

        def call(self: Any, *args: Any, **named: Any) -> Any:
            self.inspected.add(self.leaf)
            return method(self, *args, **named)

        return call

    own = set(dir(base)) - set(dir(object)) | _TELLING
    body: dict[str, Any] = {name: noting(name) for name in own if callable(getattr(base, name))}
    if base is str:  # "x" + value
        body["__radd__"] = lambda self, other: other + str(self)
    if base in (str, list):  # whether there is anything in it is part of the structure
        body["__bool__"] = lambda self: base.__len__(self) > 0
    return type(f"_Marked_{base.__name__}", (_Marked, base), body)


class _Unseen(Exception):
    """A computed value was looked into."""


class _Computed(Traced):
    """A field that a decoder has computed, as it may be in any event; or it is absent."""

    name: str
    parts: dict[tuple[int, tuple[Cut, ...]], None]
    """Values of the event with the cuts that make it."""
    guards: dict[tuple[int, str], None]
    """Values of the event with characters of which one in them makes it anything."""
    anything: bool

    def give(self, fields: dict[str, Any], parts: Mapping[str, Part]) -> None:
        _give(fields, parts, self.parts, self.guards, self.anything)

    def or_(self, value: Any) -> None:
        """It may be ``value`` as well."""
        if isinstance(value, _Computed):
            self.parts |= value.parts
            self.guards |= value.guards
            self.anything |= value.anything
        elif value is not ABSENT:
            own, fixed, new = _parts(value)
            self.parts |= {(leaf, ()): None for leaf in own}
            self.anything |= new or bool(fixed)


def _unseen(*_: Any) -> Any:
    raise _Unseen


_ComputedText: type[Any] = type(
    "_ComputedText",
    (_Computed, str),
    dict.fromkeys(set(dir(str)) - set(dir(object)) | _TELLING | {"__radd__"}, _unseen),
)
"""All that is computed is text; none of it can be read."""


def _computed(name: str) -> Any:
    made: Any = str.__new__(_ComputedText)
    made.name, made.parts, made.guards, made.anything = name, {}, {}, False
    return made


def _give(
    fields: dict[str, Any], parts: Mapping[str, Part], of: Mapping[tuple[int, tuple[Cut, ...]], None],
    guards: Mapping[tuple[int, str], None], anything: bool,
) -> None:  # fmt: skip
    """``Traced.give`` of what is made of values of the event by cuts."""
    for name, part in parts.items():
        made = _computed(name)
        made.parts = {(leaf, (*before, *cuts)): None for leaf, before in of for cuts in part.cuts}
        made.guards = {**guards, **({(leaf, part.unless): None for leaf, _ in of} if part.unless else {})}
        made.anything = anything
        made.or_(fields.get(name, ABSENT))
        fields[name] = made


def _with_others(record: Record, field: str, value: Any) -> Any:
    """``value`` and what ``record`` has for ``field`` where computed fields are absent."""
    fields = cast(dict[str, Any], record.fields())
    made, passed = _computed(field), {}
    while isinstance(value, _Computed):
        made.or_(value)
        passed[value.name] = fields.pop(value.name)
        value = record.get(field)
    made.or_(value)
    fields.update(passed)
    return made


_BESIDES_TEXTS = FIELD_OPS | {Op.NULL, Op.EXISTS}

_MARKED: Mapping[type[Any], type[Any]] = {base: _marked(base) for base in (str, int, float, list)}


# --- the plan, for the kernel


_COMPARISONS = {Op.FIELD_EXACT: 2, Op.FIELD_PREFIX: 3, Op.FIELD_SUFFIX: 4, Op.FIELD_CONTAINS: 5}
_PLACES = {Op.PREFIX: 0, Op.SUFFIX: 1, Op.CONTAINS: 2}
_ORDERS = {Op.LT: 0, Op.LTE: 1, Op.GT: 2, Op.GTE: 3}
_ENDS = {End.WITHIN: 0, End.AT_END: 1, End.AT_LINE_END: 2, End.PERHAPS: 3}
_EMPTY: dict[str, Any] = {
    "folded": None, "raw": None, "exact": [], "exact_cased": [], "numbers": [], "plain": [], "networks": [],
    "orders": [], "lookups": [], "open": [], "all": [], "joined": False,
}  # fmt: skip


def _described(plan: Plan, evaluator: Evaluator, number: int) -> dict[str, Any]:
    """A group's tests."""
    group = evaluator.groups[number]
    made: dict[str, Any] = {name: list(given) if given == [] else given for name, given in _EMPTY.items()}
    scanned: dict[bool, list[int]] = {False: [], True: []}
    joined = True
    for i in evaluator.members[number]:
        p = plan.predicates[i]
        if p.op not in (Op.NULL, Op.EXISTS):
            made["all"].append(i)
        match p.op:
            case Op.NULL | Op.EXISTS:
                pass
            case Op.EXACT if _encodes(p.value):
                made["exact_cased" if p.cased else "exact"].append((p.value, i))
            case Op.NUMBER if isinstance(p.value, int | float):
                made["exact_cased"].append((repr(p.value), i))
                if group.field == KEYWORDS:  # all that keywords search is text
                    pass
                elif not abs(p.value) < _MAX_EXACT:  # nor for what is no number
                    made["open"].append(i)
                elif p.value == int(p.value):
                    made["numbers"].append((int(p.value), i))
            case Op.CIDR if "%" not in str(p.value):
                network = ipaddress.ip_network(str(p.value))
                made["networks"].append((str(network.network_address), network.prefixlen, i))
            case Op.LT | Op.LTE | Op.GT | Op.GTE if isinstance(p.value, int | float) and abs(p.value) <= _MAX_EXACT:
                made["orders"].append((_ORDERS[p.op], float(p.value), i))
            case Op.LOOKUP if (asked := _asked(plan, p)) is not None:
                made["lookups"].append((*asked, i))
                joined = False
            case Op.PREFIX | Op.SUFFIX | Op.CONTAINS | Op.GLOB | Op.REGEX if (
                group.scanned[p.cased] and i not in evaluator.refused
            ):
                scanned[p.cased].append(i)
                joined = joined and _joins(p)
            case Op.PREFIX | Op.SUFFIX | Op.CONTAINS if _encodes(p.value):
                made["plain"].append((_PLACES[p.op], p.cased, p.value, i))
                joined = joined and p.op is Op.CONTAINS
            case _:
                made["open"].append(i)
    for cased, kind in ((False, "folded"), (True, "raw")):
        if scanned[cased]:
            ends = [(i, _end(plan.predicates[i])) for i in scanned[cased]]
            made[kind] = evaluator.database(number, cased), ends
    made["joined"] = joined and not made["networks"] and not made["orders"]
    return made


def _asked(plan: Plan, p: Predicate) -> tuple[Any, int] | None:
    """A lookup as the kernel has it, and the number of its index; None: it has none."""
    lookup = plan.lookups.get(str(p.value))
    return None if lookup is None else lookup.mapped(p.option)


_ANYWHERE = 4


def _end(p: Predicate) -> int:
    if p.op in (Op.CONTAINS, Op.PREFIX):
        return _ENDS[End.WITHIN] if "\n" in str(p.value) else _ANYWHERE
    return _ENDS[End.AT_END if p.op is Op.SUFFIX else search(p).end]


def _encodes(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False


def _joins(p: Predicate) -> bool:
    """Whether a search finds in many texts at once all that it finds in each."""
    if p.op is Op.CONTAINS:
        return True
    found = search(p)
    if p.op is Op.REGEX and _BOUND.search(str(p.value)):
        return False
    return found.end is End.WITHIN and not found.pattern.expression.startswith(b"^")


_BOUND = re.compile(r"(?<!\[)\^|\$|\\[AzZ]")
"""What may bind a regular expression to the begin or end of a text."""


def _guess(p: Predicate) -> float:
    """How rare ``p`` is beside others, until the kernel has counted."""
    if p.op is Op.TIME_PART:
        return 1e6
    if p.op is Op.LOOKUP:
        return 0.5
    size = sum(map(len, p.value)) if isinstance(p.value, tuple) else len(str(p.value))
    return 4 / (1 + size) + (1 if p.op is Op.REGEX else 0)
