"""A retro-hunt at work: a process that reads the raw log beside its writer, ``python -m vedette.runtime.offline.hunt
FOLDER``.

Started and supervised by ``fleet/hunt.py``; what lies in the folder: ``fleet/huntfolder.py``. It evaluates the stored
frames with what ``vedette scan`` uses (``evaluation.py``, ``timeline.py``), under the log sources and time zones of the
agent's inputs. The same log gives the same report, however often the process was killed: now and then it saves where it
is, and a start goes on from there. What retention deletes in the meantime, and what is damaged, is counted.

**It gives way.** Scheduled as ``SCHED_IDLE`` where that is allowed, which makes its reads idle, too (ioprio_set(2)),
and in any case it sleeps so that it has its share of a core. Address space is bounded by its parent, resident memory by
itself, the journal by its length, a rule's time on an event by the engine. It ends when its parent has.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vedette.config.settings import AgentSettings, ArchiveSettings
from vedette.decode import declared
from vedette.decode.decoder import Record
from vedette.decode.redact import Redaction
from vedette.engine.artifact import Artifact
from vedette.engine.cache import Cache
from vedette.engine.match import Context, Engine
from vedette.fleet.hunt import ENDED, MAX_HOSTS, shown, unpacked
from vedette.fleet.huntfolder import Checkpoint, Order, begun
from vedette.lookup.sets import chosen, delivered, made
from vedette.model.event import Frame
from vedette.model.times import clamp
from vedette.plan.plan import Plan
from vedette.rawlog import read
from vedette.rawlog.read import Gap, Place
from vedette.rawlog.segment import Tiers
from vedette.runtime.offline.evaluation import Detection, Evaluation, Found
from vedette.runtime.offline.huntjournal import Journal
from vedette.runtime.offline.timeline import Correlated, Timeline
from vedette.runtime.options.inputs import context_of
from vedette.system.folders import locked
from vedette.system.memory import resident

if TYPE_CHECKING:
    from vedette.runtime.alerts.redact import RowRedaction

RESIDENT_BYTES = 512 << 20
CACHE_BYTES = 4 << 20
WORK_SECONDS, SLEEP_SECONDS = 0.005, 1.0
"""Of the processor, after which it sleeps; for so long at most."""
ORPHANED = 3
"""Exit code: the agent is gone."""


class Stopped(Exception):
    """The hunt cannot go on; why is in its report."""


class Worker:
    """The hunt of a folder, from its checkpoint on."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError when order or plan cannot be used, OSError."""
        self._folder, self._order = folder, Order.load(folder)
        self._contexts = {settings.name: context_of(settings) for settings in self._order.inputs}
        if self._order.plugins:
            from vedette.runtime.options import decoders

            decoders.plug(self._order.plugins)
        self._engine = _engine(folder, Path(self._order.lookups), self._order.formats)
        self._timeline = Timeline(self._engine.plan, received=True)
        self._redacted = _redaction(self._order, self._engine.plan)
        self._before = before = Checkpoint.load(folder) or Checkpoint(begun(self._order.hunt))
        self._report, self._counts, self._read = before.report, dict(before.counts), before.read
        self._place = None if before.place is None else Place(*before.place)
        self._next = before.next_event
        self._journal = Journal(folder, *before.journal)
        self._engine.quarantine(before.quarantined)
        self._evaluation = Evaluation(self._engine, self._contexts, self._failed)
        if before.joiner is not None:
            self._evaluation.joiner.load(before.joiner)
        self._parent, self._began, self._saved, self._spent = os.getppid(), time.monotonic(), 0.0, 0.0

    def run(self) -> None:
        """To the end. Raises OSError."""
        report, plan = self._report, self._engine.plan
        if report["state"] in ENDED:
            return
        calling = (f"{title}: it calls functions in Python" for title in self._timeline.without_functions)
        report.update(state="running", not_run=[*calling, *map(str, plan.refused)])
        try:
            if not self._read:
                self._look()
            self._over_time()
            report["state"] = "done"
        except (Stopped, MemoryError) as error:
            memory = f"it needs more than {RESIDENT_BYTES >> 20} MB of memory"
            report.update(state="failed", reason=str(error) or memory)
        self._save()

    def _look(self) -> None:
        """Evaluate what is stored."""
        hunt, report = self._order.hunt, self._report
        for file, at in read.between(self._raw(), hunt.since, hunt.until, self._place, on_gap=self._hole):
            self._give_way()
            if time.monotonic() - self._saved >= self._order.every:
                self._save()
            header, segment = at.header, file.segment
            if self._place is not None and self._place.log_id != segment.log_id:
                self._rest()
                self._next = -1
            if 0 <= self._next < header.first_event:
                report["gone"] += header.first_event - self._next
            if (chunk := read.chunk(file, at, self._damaged)) is not None:
                self._frame(Frame(header.offset, chunk))
            self._next = header.first_event + header.events
            self._place = Place(segment.generation, segment.log_id, header.end)
            report["oldest"] = report["oldest"] or header.received_at
            report["reached"] = max(report["reached"], header.received_at)
            report["events"] += header.events
            report["bytes"] += header.raw_size
        self._rest()
        self._read = True
        self._save()

    def _raw(self) -> Path | Tiers:
        """The raw log, with its archive. Raises OSError."""
        raw = Path(self._order.raw)
        if self._order.archive is None:
            return raw
        from vedette.archive.reach import whole

        id, values = self._order.archive
        options = values["options_file"]
        settings = ArchiveSettings(**{**values, "options_file": options and Path(options)})
        return whole(AgentSettings(id=id, data_dir=raw.parent), settings)

    def _frame(self, frame: Frame) -> None:
        try:
            for match in self._evaluation.frame(frame):
                self._match(match)
        except MemoryError:
            raise
        except Exception:  # whatever an event does to a decoder, the other frames are evaluated
            self._report["failed"] += len(frame.chunk)
            self._evaluation = Evaluation(self._engine, self._contexts, self._failed)

    def _failed(self, at: int, error: Exception) -> None:
        if isinstance(error, MemoryError):
            raise error
        self._report["failed"] += 1

    def _rest(self) -> None:
        """No further records come to events that wait for some."""
        for match in self._evaluation.rest():
            self._match(match)
        self._evaluation = Evaluation(self._engine, self._contexts, self._failed)

    def _match(self, hit: Found) -> None:
        engine, record, report = self._engine, hit.match.record, self._report
        rule = engine.plan.rules[hit.match.rule]
        if self._timeline.wants(rule.id):
            self._journal.add(hit)
        if rule.id in engine.plan.silent:
            return
        self._count(rule.id)
        host = record.host or self._contexts.get(hit.chunk.input, Context()).host or "unknown"
        if self._redacted is not None:
            host = self._redacted.host(host)
        name = host if host in report["hosts"] or len(report["hosts"]) < MAX_HOSTS else "other"
        report["hosts"][name] = report["hosts"].get(name, 0) + 1
        if len(report["first"]) < self._order.hunt.first:
            detection = Detection(rule, hit.offset, record, engine.shown(hit.match.rule, record))
            at = clamp(record.event_time, hit.chunk.received_at)[0]
            row = {**detection.to_row(hit.chunk.input), "event_time": at}
            report["first"].append(self._shown(row, record))

    def _shown(self, row: dict[str, Any], record: Record | None = None) -> dict[str, Any]:
        """``record``: the event that it is about."""
        return shown(row if self._redacted is None else self._redacted.row(row, record))

    def _said(self, error: Exception) -> str:
        """What was raised may quote an event."""
        return str(error) if self._redacted is None else self._reason(f"{type(error).__name__}: {error}")

    def _reason(self, text: str) -> str:
        if self._redacted is None:
            return text
        from vedette.runtime.agent.outward import withheld

        return withheld(text)

    def _count(self, rule_id: str) -> None:
        self._counts[rule_id] = self._counts.get(rule_id, 0) + 1
        self._report["matches"] += 1

    def _over_time(self) -> None:
        """What fires over time, of the matches in the journal."""
        timeline, report, rules, fired = self._timeline, self._report, self._engine.plan.rules, 0
        for rule, offset, input, event in self._journal.matches(self._contexts, self._engine.plan.codecs):
            self._give_way()
            timeline.add(Detection(rules[rule], offset, event, {}), input)
        for correlated in timeline.correlate():
            self._give_way()
            row = correlated.to_row()
            if isinstance(correlated, Correlated):
                row["event_time"] = correlated.firing.last_time
            self._count(row["rule_id"])
            if (fired := fired + 1) <= self._order.hunt.first:
                report["first"].append(self._shown(row))
        _, written, dropped = self._journal.state
        full = [f"{dropped} matches, because there was room for {written}"] if dropped else []
        report["not_correlated"] = [*timeline.unused(), *timeline.failures(self._said), *full]

    # --- bounds

    def _give_way(self) -> None:
        """Between two pieces of work. Raises Stopped."""
        if (used := time.process_time() - self._spent) >= WORK_SECONDS:
            time.sleep(min(SLEEP_SECONDS, used * (1 / self._order.cpu - 1)))
            self._spent = time.process_time()
            if os.getppid() != self._parent:
                sys.exit(ORPHANED)
            if resident() > RESIDENT_BYTES:
                raise MemoryError
            if self._seconds() > self._order.seconds:
                raise Stopped(f"it took longer than {self._order.seconds:g} s")

    def _seconds(self) -> float:
        return float(self._before.report["seconds"]) + time.monotonic() - self._began

    # --- what survives a kill

    def _save(self) -> None:
        """Raises OSError."""
        self._saved = time.monotonic()
        self._journal.sync()
        engine, joiner = self._engine, self._evaluation.joiner
        undecided = dict(self._before.undecided)
        for rule, count in engine.tally.undecided.items():
            before = self._before.undecided.get(rule, (0, ""))[0]
            count += engine.tally.skipped.get(rule, 0)
            undecided[rule] = before + count, engine.tally.reasons[rule]
        rules = engine.plan.rules
        report: dict[str, Any] = {
            **self._report,
            "rules": _counted(engine, self._counts),
            "undecided": [
                {
                    "title": rules[rule].title,
                    "events": count,
                    "reason": self._reason(reason),
                }
                for rule, (count, reason) in undecided.items()
            ],
            "seconds": round(self._seconds(), 3),
            "cpu": round(self._before.report["cpu"] + time.process_time(), 3),
        }
        joiner.touch()
        Checkpoint(
            report, self._place, self._next, joiner.delta(), self._journal.state, self._counts, undecided,
            tuple(rules[i].digest for i in engine.quarantined), self._read,
        ).save(self._folder)  # fmt: skip

    def _hole(self, gap: Gap) -> None:
        self._damaged(gap)
        if self._next >= 0:
            self._next += gap.events

    def _damaged(self, gap: Gap) -> None:
        key = "unreachable" if gap.unreachable else "damaged"
        self._report[key] = self._report.get(key, 0) + gap.events


def _redaction(order: Order, plan: Plan) -> RowRedaction | None:
    """Loaded where the owner redacts."""
    if not order.redact:
        return None
    from vedette.runtime.alerts.redact import RowRedaction

    return RowRedaction(Redaction(order.redact, bytes.fromhex(order.redact_key) or None), plan)


def _engine(folder: Path, lookups: Path, formats: Iterable[tuple[str, str]]) -> Engine:
    """Of the hunt's plan, with the lookups and formats that it brings or else those of the host. Raises ValueError,
    OSError."""
    artifact = Artifact.from_bytes(unpacked((folder / "plan").read_bytes()))
    own = made(artifact.lookups)
    declared_formats = [declared.from_text(text, path) for text, path in formats]
    engine = artifact.engine({**chosen(artifact.read_plan(), *delivered(lookups)), **own}, formats=declared_formats)
    engine.remember(Cache(CACHE_BYTES))
    return engine


def _counted(engine: Engine, counts: dict[str, int]) -> list[dict[str, Any]]:
    plan = engine.plan
    named: list[tuple[Any, str]] = [(rule, "correlation") for rule in plan.correlations]
    named += [(rule, "detection") for rule in plan.rules]
    named += [(rule, "correlation" if rule.stateful else "detection") for rule in plan.statements]
    return [
        {"id": rule.id, "title": rule.title, "level": rule.level, "kind": kind, "count": counts[rule.id]}
        for rule, kind in named
        if rule.id in counts
    ]


def main() -> int:
    with suppress(OSError):  # a unit's system call filter may forbid it
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    folder = Path(sys.argv[1])
    locked(folder, "another process works at this hunt")
    try:
        Worker(folder).run()
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n".replace("\n", " ").strip() + "\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
