"""State that evaluation keeps from one event to the next: the clock, open audit events, the windows of correlations and
suppression, the tables of statements.

Events and frames come in the order of the log; everything here is a function of that, of the plan and the
settings. ``delta`` gives what changed since the last one, as bytes for the transaction that moves the cursor; a
``State`` restored from all deltas goes on as if it had not stopped. After ``rewrite`` the next deltas also hold what
has not changed, a slice each; with the one after which ``rewritten`` is true, the deltas before ``rewrite`` hold
nothing that is not in later ones. So the deltas kept are bounded by what is
remembered, and nothing is ever copied in memory.

Bytes of a delta: msgpack ``[FORMAT, log_id, clock, correlations, suppression, audit]`` (without ``audit``, as versions
before have written it, no audit event is open), and ``statements`` behind where theirs have changed. Offsets are of the
log ``log_id``: what was remembered of another log is dropped.

Correlations and statements (``stream/opening.py``) are imported by the first plan that has some, statements also where
functions are allowed. A plan without any has ``NoCorrelations`` and ``NoStatements``, unless those of an earlier plan,
or what is restored of them, are to be taken over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgpack

from vedette.decode.decoder import Record
from vedette.engine.join import Joiner
from vedette.plan.plan import Plan
from vedette.state.clock import CHECK_EVERY, Clock
from vedette.state.suppress import Fold, Suppressor
from vedette.stream import opening
from vedette.stream.opening import NoStatements

if TYPE_CHECKING:
    from vedette.state.correlate import Correlator
    from vedette.state.firing import Firing
    from vedette.stream.operators.base import AtWork
    from vedette.stream.statements import Statements
    from vedette.stream.userfunctions import Functions

FORMAT = 3

SLICE_BYTES = 64 << 10
"""Of groups that a delta holds besides those that changed, at least as many as of those, until all are rewritten."""


EMPTY = [0, 0, [], []]
"""What ``Groups.delta`` gives where there never was a group."""


class _NoGroups:
    bytes = evicted = cut = 0
    changed = False
    table: Mapping[Any, NoReturn] = {}

    def __len__(self) -> int:
        return 0

    def touch(self, keys: list[Any], most: int) -> int:
        return 0


class _NoGraph:
    def wants(self, rule_id: str) -> bool:
        return False

    def prepare(self, rule_id: str, event: object) -> list[Any]:
        return []

    def grouped(self, rule_id: str) -> tuple[str, ...]:
        return ()


class NoCorrelations:
    """What evaluation asks of a plan's ``Correlator``, answered for none. ``max_bytes``: what windows could take."""

    nodes: Sequence[NoReturn] = ()
    graph = _NoGraph()
    groups = _NoGroups()

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes

    def advance(self) -> list[Any]:
        return []

    def finish(self) -> list[Any]:
        return []

    def failures(self) -> list[Any]:
        return []

    def mute(self, ids: Collection[str]) -> None:
        pass

    def delta(self) -> list[Any]:
        return [0, *EMPTY]

    def resume(self) -> None:
        pass


class State:
    """All that is kept. ``lateness`` is in microseconds; ``max_bytes`` bounds the correlations' windows, and the
    statements' tables. ``functions`` runs user functions, where they are allowed. ``at_work`` is given the id of each
    correlation and statement before it runs, and an empty one afterwards."""

    def __init__(
        self, plan: Plan, *, log_id: str = "", lateness: int = 30_000_000, max_bytes: int = 64 << 20,
        settle: bool = False, functions: Functions | None = None, at_work: AtWork | None = None,
    ) -> None:  # fmt: skip
        self.log_id = log_id
        self._max_bytes, self._settle = max_bytes, settle
        self.clock = Clock(lateness)
        self._at_work = at_work
        self._plan = plan
        self.correlator = self._opened_correlator()
        self.suppressor = Suppressor(self.clock)
        self.joiner = Joiner()
        self._functions = functions
        self.statements = self._opened_statements()
        self._looked = 0
        self.started_empty: list[str] = []
        """Correlations and statements that have changed since the plan before: what was known of them is gone."""
        self._unwritten: list[bytes] | None = None
        """Groups not written since ``rewrite``; None: nothing is being rewritten."""
        self._changes = 0
        """Bytes of the last delta that were about changes."""

    def advance(self, received_at: int) -> list[Firing]:
        """Time has come to ``received_at``, by a frame or by nothing."""
        self.clock.advance(received_at)
        if self.clock.running - self._looked >= CHECK_EVERY:
            self._looked = self.clock.running
            self.suppressor.advance()
        self.statements.advance(self.clock.running)
        fired = self.correlator.advance()
        if self._at_work is not None:
            self._at_work("")
        return fired

    def observe(self, input: str, host: str | None, time: int) -> tuple[int, bool]:
        """An event that correlations or suppression look at: its lane, and whether that jumps (``clock.py``)."""
        return self.clock.observe(input, host or "", time)

    def match(
        self, rule_ids: Iterable[str], event: Record, source: int, time: int, offset: int, length: int
    ) -> list[Firing]:
        """An event of the lane ``source``, with all the rules that it matches."""
        assert not isinstance(self.correlator, NoCorrelations)  # nobody wants a match of it
        items = [item for rule_id in rule_ids for item in self.correlator.graph.prepare(rule_id, event)]
        fired = self.correlator.add(items, source, time, offset, length)
        if self._at_work is not None:
            self._at_work("")
        return fired

    def folds(self) -> list[Fold]:
        """The folds to send since the last call."""
        return self.suppressor.closed()

    def switch(self, plan: Plan) -> None:
        """Go on under another plan: correlations of an unchanged digest keep their windows, statements the tables of
        operators that mean the same."""
        self._plan, correlator, statements = plan, self.correlator, self.statements
        if isinstance(correlator, NoCorrelations):
            self.correlator, self.started_empty = self._opened_correlator(), []
        else:
            self.correlator = following = self._loaded_correlator()
            self.started_empty = following.adopt(correlator)
            if self._unwritten is not None:
                self._unwritten = following.groups.adopted(self._unwritten, correlator.groups)
        if isinstance(statements, NoStatements):
            self.statements = self._opened_statements()
        else:
            self.statements = taking = self._loaded_statements()
            self.started_empty += taking.adopt(statements)
        if self._functions is not None:
            self._functions.keep(plan.modules)

    def _opened_correlator(self) -> Correlator | NoCorrelations:
        return self._loaded_correlator() if self._plan.correlations else NoCorrelations(self._max_bytes)

    def _loaded_correlator(self) -> Correlator:
        from vedette.state.correlate import Correlator

        return Correlator(
            self._plan.correlations, self.clock, max_bytes=self._max_bytes, settle=self._settle, at_work=self._at_work
        )

    def _opened_statements(self) -> Statements | NoStatements:
        return opening.opened(self._plan, max_bytes=self._max_bytes, functions=self._functions, at_work=self._at_work)

    def _loaded_statements(self) -> Statements:
        return opening.loaded(self._plan, max_bytes=self._max_bytes, functions=self._functions, at_work=self._at_work)

    def muted(self) -> set[str]:
        """Ids of the correlations and statements in quarantine."""
        return {node.c.id for node in self.correlator.nodes if node.muted} | self.statements.muted()

    def status(self) -> dict[str, Any]:
        """JSON-able figures; counts are since the state began."""
        correlator, suppressor = self.correlator, self.suppressor
        return {
            "groups": len(correlator.groups),
            "bytes": correlator.groups.bytes,
            "max_bytes": correlator.max_bytes,
            "evicted": correlator.groups.evicted,
            "cut": correlator.groups.cut,
            "jumps": self.clock.jumps,
            "sources": len(self.clock),
            "suppressing": len(suppressor),
            "folded": suppressor.folded,
            "closed_early": suppressor.closed_early,
            "audit": {"open": len(self.joiner), "bytes": self.joiner.bytes, "evicted": self.joiner.evicted},
            "started_empty": self.started_empty,
            "correlations": [
                {
                    "rule_id": node.c.id,
                    "title": node.c.title,
                    "groups": node.groups,
                    "fired": node.fired,
                    "late": node.late,
                    "ungrouped": node.ungrouped,
                }
                for node in correlator.nodes
            ],
        }

    def rewrite(self) -> None:
        """Begin to write all of it again; a ``switch`` meanwhile changes nothing about that."""
        for part in (self.clock, self.suppressor, self.joiner, self.statements):
            part.touch()
        self._unwritten = list(self.correlator.groups.table)

    @property
    def rewriting(self) -> bool:
        return self._unwritten is not None

    @property
    def rewritten(self) -> bool:
        """Whether the deltas since ``rewrite`` hold all of it; once."""
        done = self._unwritten == []
        if done:
            self._unwritten = None
        return done

    def delta(self) -> bytes:
        """Return what changed since the last call, or since the start; empty when nothing did."""
        correlator, suppressor, joiner = self.correlator, self.suppressor, self.joiner
        again = 0
        if self._unwritten:
            again = correlator.groups.touch(self._unwritten, max(SLICE_BYTES, self._changes))
        statements = self.statements.delta()
        changed = self.clock.changed or correlator.groups.changed or suppressor.changed or joiner.changed
        if not (changed or statements):
            return b""
        parts = [FORMAT, self.log_id, self.clock.delta(), correlator.delta(), suppressor.delta(), joiner.delta()]
        if statements:
            parts.append(statements)
        packed = bytes(msgpack.packb(parts))
        self._changes = max(0, len(packed) - again)
        return packed

    def restore(self, parts: Iterable[bytes]) -> None:
        """Take over what ``delta`` gave, in order. Raises ValueError when it cannot be read, or when
        another version has written the last of it."""
        changed: set[str] = set()  # as the newest part knows it
        other: Any = None  # the format of the newest part, when it is not ours
        try:
            for part in parts:
                form, log_id, *rest = msgpack.unpackb(part)
                if log_id != self.log_id:
                    continue
                other = form if form != FORMAT else None
                if other is not None:
                    continue
                clock, groups, folds, *more = rest
                self.clock.load(clock)
                if isinstance(self.correlator, NoCorrelations) and groups[1:] != EMPTY:
                    self.correlator = self._loaded_correlator()
                if not isinstance(self.correlator, NoCorrelations):
                    changed = self.correlator.restore(groups)
                self.suppressor.restore(folds)
                for stored in more[:1]:
                    self.joiner.load(stored)
                for stored in more[1:]:
                    if isinstance(self.statements, NoStatements):
                        self.statements = self._loaded_statements()
                    self.statements.restore(stored)
        except (ValueError, TypeError, LookupError, AttributeError, msgpack.UnpackException) as error:
            raise ValueError(f"the stored state cannot be read: {error}") from error
        if other is not None:
            raise ValueError(f"the stored state is of format {other}; this version reads format {FORMAT} only")
        self.started_empty = sorted(changed)
        self.correlator.resume()
        self.statements.resume()
