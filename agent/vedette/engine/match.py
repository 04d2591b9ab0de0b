"""Chunk in, matches out: prefilter, decode, evaluate. One engine for the live path, ``scan`` and Spark.

Judging is a function of the frame and the plan: it reads no clock, socket or file (but for the time bound of
``engine/fallback.py``). An engine is immutable once built, but for what it counts, the routes it remembers and the
rules in quarantine; a new plan is a new engine.

**Quarantine.** A rule that could not be decided on ``quarantine_after`` events (its pattern took too long, or it
raised) is asked about no further one. Each of those events is ``Aside``, for the caller to keep; what a rule in
quarantine would have been asked about is counted (``Tally.skipped``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import NamedTuple

from vedette.compiler.ir import KEYWORDS, as_shown
from vedette.compiler.plan import Plan
from vedette.engine.evaluate import Evaluator
from vedette.engine.join import Joined, joined
from vedette.engine.prefilter import Prefilter, bits_of
from vedette.event import Chunk, LogSource, Source
from vedette.inputs.decode import Record, possible_source, record

NARROW = 4
"""An input that at most one in so many rules can meet is given a scan of its own (``prepare``)."""

MAX_ROUTES = 4096
"""Log sources whose fitting rules are remembered; sources are few, so this only bounds an attack."""


class Context(NamedTuple):
    """What an input's settings say about its events; ``host``: whose they are when they do not say."""

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
"""Undecided events after which a rule is asked no more; the default of ``[rules] quarantine_after``."""


class Aside(NamedTuple):
    """Rule number ``rule`` could not be decided for the event ``chunk.data[start:end]``."""

    rule: int
    start: int
    end: int
    reason: str


@dataclass(slots=True)
class Tally:
    """What judging cost, in all, since the engine was built."""

    events: int = 0
    candidates: int = 0
    matches: int = 0
    undecided: dict[int, int] = field(default_factory=dict)
    """Per rule the events on which its pattern took too long; such an event is not "no match"."""
    reasons: dict[int, str] = field(default_factory=dict)
    skipped: dict[int, int] = field(default_factory=dict)
    """Per rule in quarantine the events it was not asked about."""


class Engine:
    """A plan, ready to judge chunks."""

    def __init__(
        self, plan: Plan, databases: Mapping[str, bytes] | None = None, *, route: bool = True, prefilter: bool = True,
        quarantine_after: int = QUARANTINE_AFTER,
    ) -> None:  # fmt: skip
        """``databases``: what ``databases()`` gave under the same plan and library, else they are compiled here.

        ``route``: a rule is asked only about events of its log source. ``prefilter``: off only to prove it right.
        Raises ValueError when the databases do not load or the plan needs what this version lacks.
        """
        self.plan = plan
        self.route = route
        self.tally = Tally()
        self.quarantine_after = quarantine_after
        self.quarantined: frozenset[int] = frozenset()
        self._aside: list[Aside] = []
        self._at = (0, 0)
        self.prefilter = Prefilter(plan, databases)
        self.evaluator = Evaluator(plan, databases)
        everything = frozenset(range(len(plan.rules)))
        self._filtered = prefilter
        self._always = self.prefilter.always if prefilter else everything
        self._routes: dict[Source, frozenset[int]] = {}
        self._inputs: dict[tuple[str, LogSource], tuple[frozenset[int], int, Prefilter]] = {}
        self._narrow: dict[frozenset[int], Prefilter] = {}

    def databases(self) -> dict[str, bytes]:
        """The compiled Hyperscan databases, by name, for a bundle or a cache."""
        return {**self.prefilter.databases(), **self.evaluator.databases()}

    def judge(self, chunk: Chunk, context: Context = Context()) -> Iterator[Match]:
        """The matches of ``chunk``: by event, and within one event by the rules' order in the plan."""
        for candidate in self.candidates(chunk, context):
            yield from self.matches(chunk, candidate, context)

    def candidates(self, chunk: Chunk, context: Context = Context()) -> Iterator[Joined]:
        """The events of ``chunk`` that a rule may match, in order: the first half of ``judge``."""
        self.tally.events += len(chunk)
        always, within, prefilter = self._at_input(chunk.codec, context.logsource)
        return joined(chunk, prefilter.candidates(chunk, always, within))

    def matches(self, chunk: Chunk, candidate: Joined, context: Context = Context()) -> list[Match]:
        """The matches of one candidate: the second half."""
        start, end, rules, raw = candidate
        self._at = (start, end)
        self.tally.candidates += 1
        event = record(
            raw,
            chunk.codec,
            origin=chunk.origin(start),
            received_at=chunk.received_at,
            zone=context.zone,
            logsource=context.logsource,
        )
        found = [Match(rule, start, end, event) for rule in self.true(event, rules)]
        self.tally.matches += len(found)
        return found

    def true(self, event: Record, rules: frozenset[int] | None = None) -> list[int]:
        """The rules that are true for one decoded event, of ``rules`` (all when None)."""
        fitting = self._fitting(event.source) if self.route else None
        if rules is None:
            rules = frozenset(range(len(self.plan.rules))) if fitting is None else fitting
        elif fitting is not None:
            rules &= fitting
        if self.quarantined and (idle := rules & self.quarantined):
            rules -= idle
            for rule in idle:
                self.tally.skipped[rule] = self.tally.skipped.get(rule, 0) + 1
        return self.evaluator.true(event, sorted(rules), self._undecided) if rules else []

    def shown(self, rule: int, event: Record) -> dict[str, str]:
        """The fields of ``event`` that a rule tests or its author wants shown, as texts."""
        fields = {name: as_shown(event.get(name)) for name in self.plan.fields_of[rule] if name != KEYWORDS}
        return {name: value for name, value in fields.items() if value is not None}

    def reaches(self, rule: int, codec: str, logsource: LogSource) -> bool:
        """False when no event of an input with this codec and log source can be of the rule's log source."""
        return not self.route or self.plan.rules[rule].logsource.fits(possible_source(codec, logsource))

    def prepare(self, inputs: Iterable[tuple[str, LogSource]]) -> None:
        """Compile scans of their own for those of these inputs (codec, log source) that few rules can meet.

        Without it their chunks are searched for the literals of all rules, to the same end.
        """
        for codec, logsource in inputs:
            rules = self._reaching(codec, logsource)
            if self._filtered and rules not in self._narrow and len(rules) * NARROW <= len(self.plan.rules):
                self._narrow[rules] = Prefilter(self.plan, rules=rules)
        self._inputs.clear()

    def _reaching(self, codec: str, logsource: LogSource) -> frozenset[int]:
        return frozenset(i for i in range(len(self.plan.rules)) if self.reaches(i, codec, logsource))

    def _at_input(self, codec: str, logsource: LogSource) -> tuple[frozenset[int], int, Prefilter]:
        """The rules that can meet an event of such an input: those without literals, the bits of all, their scan."""
        known = self._inputs.get((codec, logsource))
        if known is None:
            rules = self._reaching(codec, logsource)
            always = rules & self._always
            if self.route and self._filtered:
                always -= self.prefilter.excused(codec, logsource)
            known = always, bits_of(rules), self._narrow.get(rules, self.prefilter)
            self._inputs[codec, logsource] = known
        return known

    def _fitting(self, source: Source) -> frozenset[int]:
        known = self._routes.get(source)
        if known is None:
            if len(self._routes) >= MAX_ROUTES:
                self._routes.clear()
            known = frozenset(i for i, rule in enumerate(self.plan.rules) if rule.logsource.fits(source))
            self._routes[source] = known
        return known

    def _undecided(self, rule: int, reason: str) -> None:
        count = self.tally.undecided[rule] = self.tally.undecided.get(rule, 0) + 1
        self.tally.reasons[rule] = reason
        self._aside.append(Aside(rule, *self._at, reason))
        if count >= self.quarantine_after:
            self.quarantined |= {rule}

    def aside(self) -> list[Aside]:
        """The events that could not be decided since the last call; at most ``quarantine_after`` of each rule."""
        aside, self._aside = self._aside, []
        return aside

    def quarantine(self, digests: Collection[str]) -> None:
        """Ask the rules of these meanings no more: they were in quarantine under the plan before."""
        self.quarantined |= {i for i, rule in enumerate(self.plan.rules) if rule.digest in digests}
