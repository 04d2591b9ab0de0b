"""All that judging remembers from one event to the next: the clock, open audit events, the windows of correlations and
suppression.

Events and frames are told in the order of the log; everything here is a function of that, of the plan and the
settings. ``delta`` gives what changed since the last one, as bytes for the transaction that moves the cursor; a
``Memory`` restored from all deltas goes on as if it had not stopped. ``merged`` makes fewer of many.

Bytes of a delta: msgpack ``[FORMAT, log_id, clock, correlations, suppression, audit]`` (without ``audit``, as versions
before have written it, no audit event is open). Offsets are of the log ``log_id``: what was remembered of another log
is dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import msgpack

from vedette.compiler.plan import Plan
from vedette.engine.join import Joiner
from vedette.inputs.decode import Record
from vedette.state.clock import Clock
from vedette.state.correlate import CHECK_EVERY, Correlator
from vedette.state.firing import Firing
from vedette.state.packed import unpacked
from vedette.state.suppress import Fold, Suppressor
from vedette.state.windows import Window

FORMAT = 3

PART_BYTES = 1 << 20
"""Of groups in one part of what ``merged`` gives."""
_ROWS = 64
"""Groups put into a part at once."""


class Memory:
    """See the module's text. ``lateness`` is in microseconds, ``max_bytes`` bounds the correlations' windows."""

    def __init__(
        self, plan: Plan, *, log_id: str = "", lateness: int = 30_000_000, max_bytes: int = 64 << 20,
        settle: bool = False,
    ) -> None:  # fmt: skip
        self.log_id = log_id
        self._max_bytes, self._settle = max_bytes, settle
        self.clock = Clock(lateness)
        self.correlator = Correlator(plan.correlations, self.clock, max_bytes=max_bytes, settle=settle)
        self.suppressor = Suppressor(self.clock)
        self.joiner = Joiner()
        self._looked = 0
        self.started_empty: list[str] = []
        """Correlations that have changed since the plan before, so that what was known of them is gone."""

    def advance(self, received_at: int) -> list[Firing]:
        """Time has come to ``received_at``, by a frame or by nothing."""
        self.clock.advance(received_at)
        if self.clock.running - self._looked >= CHECK_EVERY:
            self._looked = self.clock.running
            self.suppressor.advance()
        return self.correlator.advance()

    def observe(self, input: str, host: str | None, time: int) -> tuple[int, bool]:
        """An event that correlations or suppression look at: its lane, and whether that jumps (``clock.py``)."""
        return self.clock.observe(input, host or "", time)

    def match(
        self, rule_ids: Iterable[str], event: Record, source: int, time: int, offset: int, length: int
    ) -> list[Firing]:
        """An event of the lane ``source``, with all the rules that it matches."""
        items = [item for rule_id in rule_ids for item in self.correlator.graph.prepare(rule_id, event)]
        return self.correlator.add(items, source, time, offset, length)

    def folds(self) -> list[Fold]:
        """What suppression has to tell since the last call."""
        return self.suppressor.closed()

    def switch(self, plan: Plan) -> None:
        """Go on under another plan: correlations of an unchanged digest keep their windows."""
        old = self.correlator
        self.correlator = Correlator(plan.correlations, self.clock, max_bytes=self._max_bytes, settle=self._settle)
        self.started_empty = self.correlator.adopt(old)

    def status(self) -> dict[str, Any]:
        """JSON-able figures; counts are since the state began."""
        one, suppressor = self.correlator, self.suppressor
        return {
            "groups": len(one.groups),
            "bytes": one.groups.bytes,
            "max_bytes": one.max_bytes,
            "evicted": one.groups.evicted,
            "cut": one.groups.cut,
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
                for node in one.nodes
            ],
        }

    def delta(self) -> bytes:
        """What changed since the last call, or since the start; empty when nothing did."""
        correlator, suppressor, joiner = self.correlator, self.suppressor, self.joiner
        if not (self.clock.changed or correlator.groups.changed or suppressor.changed or joiner.changed):
            return b""
        parts = [FORMAT, self.log_id, self.clock.delta(), correlator.delta(), suppressor.delta(), joiner.delta()]
        return bytes(msgpack.packb(parts))

    def restore(self, parts: Iterable[bytes]) -> None:
        """Take over what ``delta`` or ``merged`` gave, in order. Raises ValueError when it cannot be read, or when
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
                clock, groups, folds, *audit = rest
                self.clock.load(clock)
                changed = self.correlator.restore(groups)
                self.suppressor.restore(folds)
                for one in audit:
                    self.joiner.load(one)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ValueError(f"what judging remembered cannot be read: {error}") from error
        if other is not None:
            raise ValueError(f"what judging remembered is of format {other}; this version reads format {FORMAT} only")
        self.started_empty = sorted(changed)
        self.correlator.resume()


def merged(parts: Sequence[bytes]) -> list[bytes]:
    """Fewer bytes of the same meaning, in parts of about ``PART_BYTES``; parts of another log than the last's go."""
    sources: OrderedDict[tuple[str, str], list[Any]] = OrderedDict()
    groups: dict[bytes, dict[bytes, Any]] = {}
    folds: OrderedDict[bytes, Any] = OrderedDict()
    joined: dict[int, Any] = {}
    waited: Any = [0, 0, 0]
    retired: OrderedDict[int, list[Any]] = OrderedDict()
    head: list[Any] = [0, 0, 1, 0, 0]
    counts: list[Any] = [0, 0, 0, []]
    folded: list[Any] = [0, 0]
    last = msgpack.unpackb(parts[-1])[1] if parts else ""
    for part in parts:
        form, log_id, *rest = msgpack.unpackb(part)
        if form != FORMAT or log_id != last:
            continue
        (head, lanes, begun), correlations, suppression, *audit = rest
        counts, folded = correlations[:4], suppression[:2]
        for row in lanes:
            sources.pop((row[0], row[1]), None)
            if row[2]:
                sources[row[0], row[1]] = row
        retired.update((row[0], row) for row in begun)
        while len(retired) > head[-1]:
            retired.popitem(last=False)
        for prefix, tag_size, keys, rows in correlations[4]:
            known = groups.setdefault(prefix, {})
            texts = [key[tag_size:] for key in keys] if tag_size else keys
            if set(map(type, rows)) == {bytes}:  # as it is most
                known.update(zip(texts, rows, strict=True))
                continue
            for text, row in zip(texts, rows, strict=True):
                if row is None:
                    known.pop(text, None)
                elif isinstance(row, bytes) or not row[1]:
                    known[text] = row
                elif (before := known.pop(text, None)) is not None:
                    window = unpacked(before, 0) if isinstance(before, bytes) else before
                    known[text] = window = window if isinstance(window, Window) else Window.unpack(window)
                    window.apply(row)
        for key, fold in suppression[2]:
            folds.pop(key, None)
            if fold is not None:
                folds[key] = fold
        for one in audit:
            waited = one[0]
            for offset, event in one[1]:
                joined.pop(offset, None)
                if event is not None:
                    joined[offset] = event

    made: list[bytes] = []

    def write(pieces: list[list[Any]]) -> None:
        clock = [head, [], []] if made else [head, list(sources.values()), list(retired.values())]
        suppression = [*folded, [] if made else [[key, row] for key, row in folds.items()]]
        audit = [waited, [] if made else [list(event) for event in sorted(joined.items())]]
        made.append(bytes(msgpack.packb([FORMAT, last, clock, [*counts, pieces], suppression, audit])))

    pieces: list[list[Any]] = []
    size = 0
    for prefix, found in groups.items():
        texts = list(found)
        rows = [one.pack() if isinstance(one, Window) else one for one in found.values()]
        for begin in range(0, len(rows), _ROWS):
            pieces.append([prefix, 0, texts[begin : begin + _ROWS], rows[begin : begin + _ROWS]])
            size += sum(len(row if isinstance(row, bytes) else row[2]) for row in pieces[-1][3])
            if size >= PART_BYTES:
                write(pieces)
                pieces, size = [], 0
    write(pieces)
    return made
