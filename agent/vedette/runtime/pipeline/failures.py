"""What fails during evaluation is limited to one event, one rule or one correlation, and never stops the agent.

* An event on which a decoder, the prefilter or the joining of audit records raises is **poisoned**: not evaluated,
  counted (``totals.poisoned``), logged (``event_poisoned``) and kept as a dead letter. Others are evaluated.
* An alert that cannot be built in full is built **bare**: the event as text, without fields and entities, flag
  ``partial`` (``alerts/alerts.py``); the event is poisoned as well. One that cannot even be encoded is not sent.
* A plugin at which the agent itself died again and again (``agent/deaths.py``) goes there by its name and version.
* A rule that comes to no answer (its pattern takes too long, it raises) on ``QUARANTINE_AFTER`` events, or a
  correlation that raises as often, goes into **quarantine**: it is not evaluated any more, the others are. So does a
  statement of which an operator raises, with those that share operators with it.

The list of the quarantined outlives a restart and a switch of plans. It goes by the rule's id and the digest of its
meaning, not by the digest of the plan: a rule that was changed is asked again, one that only has new neighbours is not.
``release`` (on SIGHUP) gives all of them another chance.

Of one kind of failure ``KEPT`` events per start become dead letters; the raw log has the others, too.

**Dead letters** are in ``DATA_DIR/quarantine/events.ndjson``: one JSON object a line with ``rule_id rule_title
rule_digest reason input codec origin received_at`` (UTC microseconds), ``log_id offset length`` (where the raw log has
the event) and the event itself as ``raw``, or ``raw_base64`` when it is not UTF-8. Its rule's keys are null when none
failed. The file is appended to; at half of ``max_bytes`` it becomes ``events.1.ndjson``, so that the folder never holds
more than ``max_bytes`` and always the newest. Not synced; after a crash a few may stand there twice.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import structlog

from vedette.engine.match import Engine, UndecidedEvent
from vedette.model.counters import Counters, Log
from vedette.model.event import Frame
from vedette.plan.ir import Rule
from vedette.plan.plan import AnyRule

if TYPE_CHECKING:
    from vedette.plan.query import Statement
    from vedette.state.correlate import Failure

log = structlog.get_logger()

QUARANTINED = "quarantined"
"""The store's name for ``Failures.quarantined``."""
CASES = "deaths"
"""The store's name for what is held against parts of evaluation."""
DEATHS_BESIDE = "deaths_beside"
"""The same for the deaths in a row of inputs and sinks, by part."""
MAX_BYTES = 16 << 20
"""Of dead letters on disk."""
KEPT = 100
KINDS = 1000
"""Kinds of failure that are distinguished."""
MAX_QUARANTINED = 10_000
"""Rules listed; those beyond are in quarantine until the next start only."""

Row = dict[str, Any]


def key(rule: AnyRule) -> str:
    """What tells a rule from others, and from itself before it was changed."""
    return f"{rule.id} {rule.digest}"


class DeadLetters:
    """One writer; called in the event loop, for few events: a rule that goes on failing is quarantined."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.events = 0
        """Kept since the start."""
        self.lost = 0
        """That could not be written, or were larger than the bound."""

    @property
    def file(self) -> Path:
        return self.folder / "events.ndjson"

    def bytes(self) -> int:
        """On disk."""
        total = 0
        for path in (self.file, self.folder / "events.1.ndjson"):  # looking through the folder takes a descriptor
            with suppress(OSError):
                total += path.stat().st_size
        return total

    def put(self, rule: Rule | None, reason: str, frame: Frame, log_id: str, start: int, end: int) -> None:
        """Keep the event ``frame.chunk.data[start:end]``; a failure to write is logged and counted."""
        self.events += 1
        chunk, raw = frame.chunk, frame.chunk.data[start:end]
        row: dict[str, Any] = {
            "rule_id": rule and rule.id,
            "rule_title": rule and rule.title,
            "rule_digest": rule and rule.digest,
            "reason": reason,
            "input": chunk.input,
            "codec": chunk.codec,
            "origin": chunk.origin(start),
            "received_at": chunk.received_at,
            "log_id": log_id,
            "offset": frame.offset + start,
            "length": end - start,
        }
        try:
            row["raw"] = raw.decode("utf-8")
        except UnicodeDecodeError:
            row["raw_base64"] = base64.b64encode(raw).decode()
        line = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
        half = self.max_bytes // 2
        if len(line) > half:
            self.lost += 1
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.file.exists() and self.file.stat().st_size + len(line) > half:
                self.file.replace(self.folder / "events.1.ndjson")
            with self.file.open("ab") as file:
                file.write(line)
        except OSError as error:
            self.lost += 1
            log.error(
                Log.DEAD_LETTER_LOST, rule=row["rule_id"], file=str(self.file), reason=f"cannot be written: {error}"
            )


class Failures:
    """See the module's text. ``quarantined``: by ``key``, ``rule_id title digest kind events reason since``."""

    def __init__(self, counters: Counters, dead_letters: DeadLetters, log_id: str, stored: Any = None) -> None:
        """``stored``: the list as it was last stored."""
        self._counters, self._dead_letters, self._log_id = counters, dead_letters, log_id
        self._by_kind: dict[str, int] = {}
        self.quarantined: dict[str, Row] = dict(stored) if isinstance(stored, dict) else {}
        self.changed = False
        """Whether the list is to be stored."""

    def event(self, frame: Frame, start: int, end: int, error: Exception, about: str = "") -> None:
        """The event ``frame.chunk.data[start:end]`` cannot be evaluated, or, with ``about``, an alert of that rule
        cannot be built in full."""
        reason = f"{type(error).__name__}: {error}"[:500]
        self._counters.totals["poisoned"] += 1
        log.error(
            Log.EVENT_POISONED,
            input=frame.chunk.input,
            log_id=self._log_id,
            offset=frame.offset + start,
            length=end - start,
            rule=about or None,
            reason=reason,
            action="the event is in the raw log and in quarantine/; please report it",
        )
        self._keep(None, reason, frame, start, end, f"{type(error).__name__} {about}")

    def step(self, what: str, error: Exception) -> None:
        """A step that belongs to no single event went wrong; ``what`` was left out."""
        reason = f"{type(error).__name__}: {error}"[:500]
        self._counters.totals["poisoned"] += 1
        log.error(Log.EVALUATION_FAILED, what=what, reason=reason, action="the agent goes on; please report it")

    def undecided(self, engine: Engine, frame: Frame, aside: list[UndecidedEvent], now: int) -> None:
        """Rules of ``engine`` came to no answer; those that did so too often are in its quarantine already."""
        self._counters.totals["undecided"] += len(aside)
        rules = engine.plan.rules
        for number, start, end, reason in aside:
            self._keep(rules[number], reason, frame, start, end, rules[number].id)
        for number in sorted({event.rule for event in aside} & engine.quarantined):
            tally = engine.tally
            self._put(rules[number], "rule", tally.undecided[number], tally.reasons[number], now)

    def quarantine(self, rule: AnyRule, times: int, reason: str, now: int) -> None:
        """``rule`` must not be evaluated any more, having failed so many times."""
        self._put(rule, rule.noun, times, reason, now)

    def plugin(self, part: str, times: int, reason: str, now: int) -> None:
        """The plugin ``LABEL VERSION`` must not be called any more; another version of it may."""
        label, _, version = part.rpartition(" ")
        row = {"rule_id": label, "title": label, "digest": version, "kind": "plugin", "events": times,
               "reason": reason, "since": now}  # fmt: skip
        self.quarantined[part] = row
        self.changed = True

    def correlations(self, failed: Iterable[Failure], now: int) -> None:
        """Correlations raised; those that did so too often are muted already."""
        for failure in failed:
            self._counters.totals["poisoned"] += 1
            about = failure.correlation
            log.error(Log.EVALUATION_FAILED, what=f"correlation {about.title}", rule=about.id, reason=failure.reason)
            if failure.muted:
                self._put(about, "correlation", failure.times, failure.reason, now)

    def statements(self, failed: Iterable[tuple[Statement, Exception]], now: int) -> None:
        """Operators of these statements raised; they take no rows any more."""
        for about, error in failed:
            reason = f"{type(error).__name__}: {error}"[:500]
            self._counters.totals["poisoned"] += 1
            log.error(Log.EVALUATION_FAILED, what=f"statement {about.title}", rule=about.id, reason=reason)
            self._put(about, "statement", 1, reason, now)

    def forbidden(self) -> dict[str, str]:
        """Of the plugins in quarantine, ``LABEL VERSION``, why."""
        return {part: str(row["reason"]) for part, row in self.quarantined.items() if row["kind"] == "plugin"}

    def digests(self) -> set[str]:
        return {row["digest"] for row in self.quarantined.values() if row["kind"] == "rule"}

    def muted(self, rules: Iterable[AnyRule]) -> set[str]:
        """Of ``rules`` the ids of those in quarantine."""
        return {rule.id for rule in rules if key(rule) in self.quarantined}

    def release(self) -> int:
        """Nothing is in quarantine any more; returns how many were."""
        released = len(self.quarantined)
        self.changed = self.changed or bool(released)
        self.quarantined.clear()
        return released

    def _put(self, rule: AnyRule, kind: str, events: int, reason: str, now: int) -> None:
        if key(rule) in self.quarantined:
            return
        if len(self.quarantined) < MAX_QUARANTINED:
            row = {
                "rule_id": rule.id,
                "title": rule.title,
                "digest": rule.digest,
                "kind": kind,
                "events": events,
                "reason": reason,
                "since": now,
            }
            self.quarantined[key(rule)] = row
            self.changed = True
        log.error(
            Log.RULE_QUARANTINED, rule=rule.id, title=rule.title, events=events, reason=reason,
            action="the rule is not evaluated any more; change it, or release it with SIGHUP",
        )  # fmt: skip

    def _keep(self, rule: Rule | None, reason: str, frame: Frame, start: int, end: int, kind: str) -> None:
        count = self._by_kind.get(kind, 0)
        if count < KEPT and (count or len(self._by_kind) < KINDS):
            self._by_kind[kind] = count + 1
            self._dead_letters.put(rule, reason, frame, self._log_id, start, end)
