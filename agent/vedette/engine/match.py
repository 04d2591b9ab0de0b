"""Chunk in, matches out: prefilter, decode, evaluate. One engine for the live path, ``scan`` and Spark.

Evaluation is a function of the frame and the plan: it reads no clock, socket or file (but for the time bound of
``engine/fallback.py``). An engine is immutable once built, but for what it counts, the routes it remembers and the
rules in quarantine; a new plan is a new engine.

**The result cache** (``cache.py``) keeps which of its candidate rules an event makes true, under all that this depends
on: the event's bytes, but for the parts of a syslog header that no rule in question asks for, above all its time
(``scope.py``). An event that was seen before is then neither decoded nor evaluated, unless a rule is true for it. Rules
see neither the time an event was received nor the zone of its input, so neither is in the key; where it came from is,
when a rule asks for that. Rules in quarantine are counted event by event, so what they would be asked about is not
kept.

**The native kernel** (``native.py``) leaves out rules that surely do not match. Where it knows that each of the others
does, the event is a match without being evaluated, but for one in ``SURE_SAMPLE``, which proves it. Of all events one
in ``LEFT_OUT_SAMPLE`` proves that no rule was left out wrongly (``proof.py``). Where either comes out differently,
events of that structure go without the kernel (where there is none, all of the input), and every match is evaluated.

**Quarantine.** A rule that could not be decided on ``quarantine_after`` events (its pattern took too long, or it
raised) is evaluated on no further one. The caller keeps each of those events (``UndecidedEvent``); what a rule in
quarantine would have been evaluated on is counted (``Tally.skipped``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from sys import getsizeof
from typing import Any, NamedTuple

from vedette.decode.codecs import Kind
from vedette.decode.decoder import ABSENT, Record, possible_source
from vedette.decode.sources import of_input
from vedette.engine.bounded import Bounded
from vedette.engine.cache import Cache, Part
from vedette.engine.evaluate import Among, Evaluator
from vedette.engine.join import REST, Joined, Joiner, may_hold_records
from vedette.engine.native import Native
from vedette.engine.prefilter import Prefilter, Sure, bits_of
from vedette.engine.proof import Sample, Sampled, sampled
from vedette.engine.rows import Batch, common
from vedette.engine.scope import HOST, ORIGIN, PID, SCOPE_BYTES, Key, Scope, asks
from vedette.engine.tally import Tally
from vedette.model.event import Chunk, Frame, LogSource, Source
from vedette.plan.ir import KEYWORDS, as_shown
from vedette.plan.plan import Plan

NARROW = 4
"""An input that at most one in so many rules can meet is given a scan of its own (``prepare``)."""

MAX_ROUTES = 4096
"""Log sources whose fitting rules are remembered; sources are few, so this only bounds an attack."""


class Context(NamedTuple):
    """Settings of an input about its events; ``host``: whose they are when they do not say."""

    zone: tzinfo | None = None
    logsource: LogSource = LogSource()
    host: str | None = None


class Match(NamedTuple):
    """Rule number ``rule`` of the plan is true for the event ``chunk.data[start:end]``."""

    rule: int
    start: int
    end: int
    record: Record


QUARANTINE_AFTER = 10
"""Undecided events after which a rule is asked no more."""


class UndecidedEvent(NamedTuple):
    """Rule number ``rule`` could not be decided for the event ``chunk.data[start:end]``."""

    rule: int
    start: int
    end: int
    reason: str


EVENTS_FLOOR = 0.15
"""Share of look-ups of whole events that must hit for them to pay."""

SURE_SAMPLE = 1000
"""Of so many events whose rules surely match, as the native kernel says, one is evaluated all the same."""

SCOPES_BYTES, PREPARED_BYTES = 8 << 20, 32 << 20
"""About how much the sets of candidate rules take whose scope is remembered, for each kind of input, and those that are
kept prepared."""

_Scopes = Bounded[frozenset[int], Scope]


def _joined(frame: Frame, start: int, end: int, rules: frozenset[int]) -> Joined:
    return Joined(frame, start, end, rules, frame.chunk.data[start:end], start)


class Engine:
    """A plan, ready to evaluate chunks."""

    def __init__(
        self, plan: Plan, databases: Mapping[str, bytes] | None = None, *, route: bool = True, prefilter: bool = True,
        kernel: bool = True, quarantine_after: int = QUARANTINE_AFTER, cache: Cache | None = None,
    ) -> None:  # fmt: skip
        """``databases``: what ``databases()`` gave under the same plan and library, else they are compiled here.

        ``route``: a rule is asked only about events of its log source. ``prefilter``: off only to prove it right,
        ``kernel`` likewise.
        ``cache``: see ``remember``; None: one of the usual size.
        Raises ValueError when the databases do not load or the plan needs what this version lacks.
        """
        self.plan = plan
        self.route = route
        self.tally = Tally()
        self.quarantine_after = quarantine_after
        self.quarantined: frozenset[int] = frozenset()
        self._undecided_events: list[UndecidedEvent] = []
        self._at = (0, 0)
        self.prefilter = Prefilter(plan, databases, native=kernel)
        self.evaluator = Evaluator(plan, databases)
        everything = frozenset(range(len(plan.rules)))
        self._filtered, self._kernel = prefilter, kernel
        self._native = Native(plan, self.evaluator, self._asked) if prefilter and self.prefilter.native else None
        self._native_views: dict[tuple[str, LogSource], int] = {}
        self._always = self.prefilter.always if prefilter else everything
        self._routes: Bounded[Source, frozenset[int]] = Bounded(MAX_ROUTES)
        self._by_logsource: dict[LogSource, list[int]] = {}
        for i, rule in enumerate(plan.rules):
            self._by_logsource.setdefault(rule.logsource, []).append(i)
        self._inputs: dict[tuple[str, LogSource], tuple[frozenset[int], int, Prefilter]] = {}
        self._narrow: dict[frozenset[int], Prefilter] = {}
        self._distrusted: dict[tuple[str, LogSource], Prefilter] = {}
        """Inputs that go without the kernel, as it left out a rule wrongly there, with their scan."""
        self._prepared: Bounded[frozenset[int], Among] = Bounded(PREPARED_BYTES)
        self._asks: dict[int, tuple[bool, bool, bool]] = {}
        """By rule, whether it asks for an event's host, process number, origin."""
        self._scopes_ever = 0
        self._until_check = self._until_look = SURE_SAMPLE
        self._sample = Sample()
        self.kernel_wrong = ""
        """What the kernel said wrongly the last time; from the first on all that it is sure of is evaluated."""
        self._differences = 0
        self.remember(Cache() if cache is None else cache)

    def remember(self, cache: Cache) -> None:
        """Use ``cache``, a new one that is this engine's alone, for results; ``Cache(0)``: none. Whatever else is kept
        to spare work is forgotten."""
        self.cache = cache
        self._views: dict[tuple[str, LogSource], tuple[Part, _Scopes]] = {}
        self._context, self._codec = Context(), ""
        self._view: tuple[Part, _Scopes] = Part(1), Bounded(0)
        self._prepared.clear()
        for scan in self._scans():
            scan.forget()

    def _scans(self) -> tuple[Prefilter, ...]:
        return self.prefilter, *self._narrow.values(), *self._distrusted.values()

    def databases(self) -> dict[str, bytes]:
        """The compiled Hyperscan databases, by name, for a bundle or a cache."""
        return {**self.prefilter.databases(), **self.evaluator.databases()}

    def evaluate(self, chunk: Chunk, context: Context = Context()) -> Iterator[Match]:
        """The matches of ``chunk`` by itself: by event, and within one event by the rules' order in the plan."""
        joiner, contexts = Joiner(), {chunk.input: context}
        for event in self.candidates(Frame(0, chunk), joiner, context):
            yield from self.matches(event.frame.chunk, event, context)
        while (left := self.due(joiner, contexts, before=REST)) is not None:
            start, end = left.frame.offset + left.start, left.frame.offset + left.end
            yield from (m._replace(start=start, end=end) for m in self.matches(left.frame.chunk, left, context))
            joiner.evaluated()

    def candidates(
        self, frame: Frame, joiner: Joiner, context: Context = Context(), first: int = 0
    ) -> Iterator[Joined]:
        """The events of ``frame`` from byte ``first`` on that a rule may match, as they are complete: the first half of
        ``evaluate``. See ``Joiner.events``."""
        chunk = frame.chunk
        self.tally.events += len(chunk)
        always, within, prefilter = self._at_input(chunk.codec, context.logsource)
        records = may_hold_records(chunk)
        native = self._native_of(chunk.codec, context.logsource)
        if native is None:
            candidates = prefilter.candidates(chunk, always, within, records)
        else:
            view = self._view_number(native, chunk.codec, context.logsource)
            candidates = native.candidates(
                chunk, view, lambda runs: prefilter.named(chunk, within, records, runs), records
            )
            if (span := self._sample.span(chunk)) is not None:
                candidates = sampled(candidates, *span)
        return joiner.events(frame, candidates, lambda open_chunk: self._rules_of(open_chunk, context), first, records)

    def gathered(
        self, frame: Frame, joiner: Joiner, context: Context = Context(), first: int = 0
    ) -> Iterator[Joined | Batch]:
        """``candidates``, of which those that only give rows come as batches: for ``taken``."""
        chunk = frame.chunk
        native = self._native_of(chunk.codec, context.logsource)
        alone = native is None or not native.gathers or first or may_hold_records(chunk)
        if native is None or alone or not self._trusted():
            yield from self.candidates(frame, joiner, context, first)
            return
        self.tally.events += len(chunk)
        _, within, prefilter = self._at_input(chunk.codec, context.logsource)
        view = self._view_number(native, chunk.codec, context.logsource)
        search = partial(prefilter.named, chunk, within, False)
        candidates = native.candidates(
            chunk, view, search, False, common(frame, context.host, self.plan.codecs[chunk.codec].kinds)
        )
        if (span := self._sample.span(chunk)) is not None:
            candidates = sampled(candidates, *span)
        for candidate in candidates:
            if not isinstance(candidate, Batch):
                yield _joined(frame, *candidate)
                continue
            if self._trusted():
                self._until_check -= len(candidate.spans)
                if self._until_check <= 0:
                    self._until_check = self._until_look = 1  # this event proves that the kernel is right
                    yield _joined(frame, *candidate.spans[0], candidate.rules)
                    _, candidate = candidate.split(candidate.spans[0][1])
            if self._trusted() and candidate.spans:
                yield candidate
            else:
                yield from (_joined(frame, *span, candidate.rules) for span in candidate.spans)

    def _trusted(self) -> bool:
        """Whether what the kernel is sure of needs no evaluation."""
        return not self.quarantined and not self.kernel_wrong

    def taken(self, batch: Batch) -> int:
        """A batch is evaluated: its matches."""
        self.tally.candidates += len(batch.spans)
        self.tally.matches += batch.matches
        return batch.matches

    def alone(self, batch: Batch, number: int, frame: Frame, context: Context) -> Match:
        """One event of a batch, as a match of its first rule."""
        start, end = batch.spans[number]
        chunk = frame.chunk
        return Match(min(batch.rules), start, end, self._record(chunk, start, chunk.data[start:end], context))

    def due(self, joiner: Joiner, contexts: Mapping[str, Context], *, before: int = 0) -> Joined | None:
        """An event that waits for further records no longer, if a rule may match it: see ``Joiner.due``.

        ``contexts``: by input.
        """
        return joiner.due(
            lambda open_chunk: self._rules_of(open_chunk, contexts.get(open_chunk.input, Context())), before=before
        )

    def _rules_of(self, chunk: Chunk, context: Context) -> frozenset[int]:
        always, within, prefilter = self._at_input(chunk.codec, context.logsource)
        return always.union(*(hit.rules for hit in prefilter.hits(chunk, within, may_hold_records(chunk))))

    def matches(self, chunk: Chunk, candidate: Joined, context: Context = Context()) -> list[Match]:
        """Return the matches of one candidate, whose first record is in ``chunk``: the second half of ``evaluate``."""
        rules = candidate.rules
        if type(rules) is Sampled:
            return self._proved(chunk, candidate, context)
        self._at = candidate.start, candidate.end
        self.tally.candidates += 1
        if type(rules) is Sure and self._trusted():
            return self._surely(chunk, candidate, context)
        cache = self.cache
        if not cache.on:
            return self._evaluated(chunk, candidate, context, None)
        # Written out, not called: an event that was seen before costs little more than this.
        if context is not self._context or chunk.codec != self._codec:
            self._view = self._view_of(chunk.codec, context)
        part, scopes = self._view
        part.left -= 1
        if part.left < 0:
            part.turn()
        if not part.on:
            part.skipped += 1
            return self._evaluated(chunk, candidate, context, None)
        scope = scopes.get(rules) or self._scope(scopes, rules)
        if scope is None:
            return self._evaluated(chunk, candidate, context, None)
        key = scope.key(chunk, candidate.start, candidate.raw)
        answer = cache.get(key[0])
        if answer is None:
            part.misses += 1
        else:
            part.hits += 1
            if not cache.check():
                if not answer:
                    return []
                event = self._record(chunk, candidate.start, candidate.raw, context)
                return self._matched(answer, candidate, event, (chunk.codec, context.logsource))
        return self._evaluated(chunk, candidate, context, key, answer)

    def _surely(self, chunk: Chunk, candidate: Joined, context: Context) -> list[Match]:
        """The matches of a candidate whose rules all match, as the kernel says; of a line it knows no log source."""
        event = self._record(chunk, candidate.start, candidate.raw, context)
        rules, is_object = candidate.rules, candidate.raw[:1] == b"{"
        rules = rules if is_object else self._routed(event, rules, context.logsource)
        self._until_check -= 1
        if not self._until_check:
            return self._checked(rules, candidate, event, chunk.codec, context)
        return self._matched(sorted(rules), candidate, event, (chunk.codec, context.logsource))

    def _matched(self, true: Sequence[int], candidate: Joined, event: Record, at: tuple[str, LogSource]) -> list[Match]:
        """The matches of an event that needs no evaluation. ``at``: codec and log source of its input."""
        self.tally.matches += len(true)
        if self._native is not None and candidate.raw[:1] == b"{":
            event.sure = *at, true
        return [Match(rule, candidate.start, candidate.end, event) for rule in true]

    def _evaluated(
        self, chunk: Chunk, candidate: Joined, context: Context, key: Key | None, answer: tuple[int, ...] | None = None
    ) -> list[Match]:
        """The matches of an event by evaluation. ``key``: what the cache keeps them under; ``answer``: what it has
        there, which this proves."""
        event = self._record(chunk, candidate.start, candidate.raw, context)
        digest, line = (None, None) if key is None else key
        if line is not None:
            event.usual = line
        undecided = len(self._undecided_events)
        true = self.true(event, candidate.rules, context.logsource)
        if digest is not None and undecided == len(self._undecided_events):
            if answer is None:
                if not self.quarantined:
                    self.cache.put(digest, tuple(true))
            elif answer != tuple(true):
                differing = sorted(set(answer) ^ set(true))[:10]
                self.cache.fail(f"rules {differing} came out differently for the same event")
        self.tally.matches += len(true)
        return [Match(rule, candidate.start, candidate.end, event) for rule in true]

    def _checked(
        self, rules: frozenset[int], candidate: Joined, event: Record, codec: str, context: Context
    ) -> list[Match]:
        """``_surely``, by evaluation: a proof that the kernel is right."""
        self._until_check = SURE_SAMPLE
        undecided = len(self._undecided_events)
        true = self.true(event, rules, context.logsource)
        if true != sorted(rules) and undecided == len(self._undecided_events):
            reason = f"{self._named(rules ^ set(true))} came out differently than the kernel said"
            self._differs(reason, codec, context.logsource, event.raw)
        self.tally.matches += len(true)
        return [Match(rule, candidate.start, candidate.end, event) for rule in true]

    def _proved(self, chunk: Chunk, candidate: Joined, context: Context) -> list[Match]:
        """``matches`` of an event of the sample, with those of rules that the kernel has left out wrongly."""
        _, start, end, left, raw, _ = candidate
        matches = self.matches(chunk, candidate._replace(rules=frozenset(left)), context) if left else []
        event = self._record(chunk, start, raw, context)
        missed = [Match(rule, start, end, event) for rule in self._all_true(event) if rule not in left]
        if not missed:
            return matches
        reason = f"{self._named(match.rule for match in missed)} matched although the kernel said that they do not"
        self._differs(reason, chunk.codec, context.logsource, raw)
        self.tally.matches += len(missed)
        return sorted([*matches, *missed])

    def _all_true(self, event: Record) -> list[int]:
        """The rules of all that are true for ``event``; none where a decoder raises. Nothing is counted, and what
        cannot be decided is left out: nobody would have asked without the sample."""
        try:
            among = self._among(self._asked(event.source) - self.quarantined)
            return self.evaluator.among(event, among, lambda rule, reason: None)
        except Exception:  # an event that nobody else would have evaluated proves nothing, and stops nothing
            return []

    def _differs(self, reason: str, codec: str, logsource: LogSource, raw: bytes) -> None:
        """The kernel was wrong about the event ``raw``: its structure goes without it from now on, else its input."""
        self._differences += 1
        self.kernel_wrong = reason
        native = self._native_of(codec, logsource)
        if native is not None and not native.distrust(raw):
            key = codec, logsource
            self._distrusted[key] = Prefilter(self.plan, self.prefilter.databases(), native=False)
            self._inputs.pop(key, None)

    def _named(self, rules: Iterable[int]) -> str:
        return "rules " + ", ".join(self.plan.rules[rule].id for rule in sorted(rules)[:10])

    def columns(self, match: Match, chunk: Chunk, context: Context = Context()) -> tuple[Any, ...] | None:
        """Return what statements read of an event of ``chunk``, as far as it is known without decoding it: what its
        time is made of, its host, then the values of ``places``; see ``Native.values``."""
        native = self._native
        if native is None or self.kernel_wrong or match.record.raw[:1] != b"{":
            return None
        values = native.values(match.record.raw, self._view_number(native, chunk.codec, context.logsource))
        self._until_look -= 1
        if values is not None and self._until_look <= 0:
            self._until_look = SURE_SAMPLE
            fields = ((name, values[place]) for name, place in native.columns.items())
            if not self._agree(fields, match.record, chunk.codec, context.logsource):
                return None
        return values

    @property
    def places(self) -> Mapping[str, int]:
        """By field its place among ``columns``."""
        return self._native.columns if self._native is not None else {}

    def _record(self, chunk: Chunk, start: int, raw: bytes, context: Context) -> Record:
        origin, zone, logsource = chunk.origin(start), context.zone, context.logsource
        return Record(raw, self.plan.codecs[chunk.codec], origin, chunk.received_at, zone, logsource, None)

    def _view_of(self, codec: str, context: Context) -> tuple[Part, _Scopes]:
        self._context, self._codec = context, codec
        view = self._views.get((codec, context.logsource))
        if view is None:
            scopes: _Scopes = Bounded(SCOPES_BYTES)
            view = self._views[codec, context.logsource] = self.cache.part(EVENTS_FLOOR), scopes
        return view

    def _scope(self, scopes: _Scopes, rules: frozenset[int]) -> Scope | None:
        """Return what an answer about ``rules`` depends on; None while one of them is in quarantine."""
        if rules & self.quarantined:
            return None
        asks = [self._asks.get(rule) or self._asked_by(rule) for rule in rules]
        self._scopes_ever += 1
        scope = Scope(
            self.cache.begin(b"e%d:" % self._scopes_ever),
            Kind.SYSLOG in self.plan.codecs[self._codec].kinds,
            *(any(asked) for asked in (zip(*asks, strict=True) if asks else ((), (), ()))),
        )
        return scopes.keep(rules, scope, SCOPE_BYTES + getsizeof(rules))

    def _asked_by(self, rule: int) -> tuple[bool, bool, bool]:
        fields = self.evaluator.fields((rule,))
        asked = self._asks[rule] = asks(fields, HOST), asks(fields, PID), asks(fields, ORIGIN)
        return asked

    def true(self, event: Record, rules: frozenset[int] | None = None, own: LogSource = LogSource()) -> list[int]:
        """The rules that are true for one decoded event, of ``rules`` (all when None).

        ``own``: the log source of its input, to which it belongs whatever it is."""
        if rules is None:
            rules = frozenset(range(len(self.plan.rules)))
        if self.quarantined:
            if self.route:
                rules &= self._fitting(event.source)
            idle = rules & self.quarantined
            for rule in idle:
                self.tally.skipped[rule] = self.tally.skipped.get(rule, 0) + 1
            rules -= idle
        among = self._among(self._routed(event, rules, own))
        return self.evaluator.among(event, among, self._undecided) if among.nodes else []

    def _routed(self, event: Record, rules: frozenset[int], own: LogSource) -> frozenset[int]:
        """Those of ``rules`` that are asked about an event of an input of the log source ``own``."""
        if self.route and not rules <= self._fitting(of_input(own)):
            rules &= self._fitting(event.source)
        return rules

    def _among(self, rules: frozenset[int]) -> Among:
        """``rules``, prepared."""
        among = self._prepared.get(rules)
        if among is None:
            among = self.evaluator.prepare(sorted(rules))
            self._prepared.keep(rules, among, among.weight + getsizeof(rules))
        return among

    def shown(self, rule: int, event: Record) -> dict[str, str]:
        """The fields of ``event`` that a rule tests or its author wants shown, as texts."""
        fields = self._read(event)
        shown: dict[str, str] = {}
        for name in self.plan.fields_of[rule]:
            value = ABSENT if name == KEYWORDS else fields.get(name, ...)
            if (text := as_shown(event.get(name) if value is ... else value)) is not None:
                shown[name] = text
        return shown

    def _read(self, event: Record) -> Mapping[str, Any]:
        """What the kernel reads of ``event`` for its rules (``Native.shown``); the rest decoders have to say."""
        native, sure = self._native, event.sure
        if native is None or sure is None or event.decoded or self.kernel_wrong:
            return {}
        fields = event.shown
        if fields is None:
            codec, logsource, rules = sure
            event.shown = fields = native.shown(event.raw, self._view_number(native, codec, logsource), rules) or {}
            self._until_look -= 1
            if fields and self._until_look <= 0:
                self._until_look = SURE_SAMPLE
                if not self._agree(fields.items(), event, codec, logsource):
                    return {}
        return fields

    def _agree(self, fields: Iterable[tuple[str, Any]], event: Record, codec: str, logsource: LogSource) -> bool:
        """Whether decoders give ``fields`` of ``event``, too, but those that the kernel leaves to them."""
        for name, value in fields:
            decoded = event.get(name) if value is not ... else ...
            decoded = None if decoded is ABSENT else decoded
            if value != decoded or type(value) is not type(decoded):
                reason = f"the field {name!r:.60} came out differently than the kernel said"
                self._differs(reason, codec, logsource, event.raw)
                return False
        return True

    def prepare(self, inputs: Iterable[tuple[str, LogSource]]) -> None:
        """Compile scans of their own for those of these inputs (codec, log source) that few rules can meet.

        Without it their chunks are searched for the literals of all rules, to the same end.
        """
        for codec, logsource in inputs:
            rules = self.reaching(codec, logsource)
            if self._filtered and rules not in self._narrow and len(rules) * NARROW <= len(self.plan.rules):
                self._narrow[rules] = Prefilter(self.plan, rules=rules, native=self._kernel)
        self._inputs.clear()

    def reaching(self, codec: str, logsource: LogSource) -> frozenset[int]:
        """The rules of whose log source an event of an input with this codec and log source can be."""
        possible = possible_source(self.plan.codecs[codec], logsource)
        return frozenset(i for i, rule in enumerate(self.plan.rules) if not self.route or rule.logsource.fits(possible))

    def _at_input(self, codec: str, logsource: LogSource) -> tuple[frozenset[int], int, Prefilter]:
        """The rules that can meet an event of such an input: those without literals, the bits of all, their scan."""
        reached = self._inputs.get((codec, logsource))
        if reached is None:
            rules = self.reaching(codec, logsource)
            always = rules & self._always
            if self.route and self._filtered:
                always -= self.prefilter.excused(self.plan.codecs[codec], logsource)
            scan = self._distrusted.get((codec, logsource)) or self._narrow.get(rules, self.prefilter)
            reached = always, bits_of(rules), scan
            self._inputs[codec, logsource] = reached
        return reached

    def kernel(self) -> dict[str, int]:
        """Count what the native kernel did with JSON events, its panics with any, and how often it was found wrong;
        empty without one."""
        if self._native is None:
            return {}
        account = self._native.account()
        panics = account["panics"] + sum(scan.panics for scan in self._scans())
        return {**account, "panics": panics, "wrong": self._differences}

    def _native_of(self, codec: str, logsource: LogSource) -> Native | None:
        """The native kernel's part for such an input."""
        return None if (codec, logsource) in self._distrusted else self._native

    def _view_number(self, native: Native, codec: str, logsource: LogSource) -> int:
        """The native kernel's number for such an input."""
        number = self._native_views.get((codec, logsource))
        if number is None:
            always, *_ = self._at_input(codec, logsource)
            number = native.view(codec, logsource, self.reaching(codec, logsource), always)
            self._native_views[codec, logsource] = number
        return number

    def _asked(self, source: Source) -> frozenset[int]:
        """The rules that are asked about events of ``source``."""
        return self._fitting(source) if self.route else frozenset(range(len(self.plan.rules)))

    def _fitting(self, source: Source) -> frozenset[int]:
        rules = self._routes.get(source)
        if rules is None:
            fitting = (of for logsource, of in self._by_logsource.items() if logsource.fits(source))
            rules = self._routes.keep(source, frozenset().union(*fitting), 1)
        return rules

    def _undecided(self, rule: int, reason: str) -> None:
        count = self.tally.undecided[rule] = self.tally.undecided.get(rule, 0) + 1
        self.tally.reasons[rule] = reason
        self._undecided_events.append(UndecidedEvent(rule, *self._at, reason))
        if count >= self.quarantine_after:
            self._set_quarantined(self.quarantined | {rule})

    def _set_quarantined(self, rules: frozenset[int]) -> None:
        """From now on no cached answer about these rules is used."""
        self.quarantined = rules
        for _, scopes in self._views.values():
            scopes.clear()

    @property
    def undecided(self) -> bool:
        """Whether ``undecided_events`` has any."""
        return bool(self._undecided_events)

    def undecided_events(self) -> list[UndecidedEvent]:
        """The events that could not be decided since the last call; at most ``quarantine_after`` of each rule."""
        events, self._undecided_events = self._undecided_events, []
        return events

    def release(self) -> None:
        """Ask the rules in quarantine again, as if nothing had been."""
        self._set_quarantined(frozenset())
        for counts in (self.tally.undecided, self.tally.skipped, self.tally.reasons):
            counts.clear()

    def quarantine(self, digests: Collection[str]) -> None:
        """Ask the rules of these meanings no more: they were in quarantine before."""
        self._set_quarantined(
            self.quarantined | {i for i, rule in enumerate(self.plan.rules) if rule.digest in digests}
        )
