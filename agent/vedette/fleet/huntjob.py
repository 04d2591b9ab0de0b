"""The kind of request ``hunt``: rules over this host's raw log, by a process that is supervised here.

Body: ``{"since", "until", "first", "plan": BASE64}`` (``hunt.py``). The reply's records::

    {"type": "progress", "reached", "oldest", "until", "events", "matches", "rules": {title: count}}    now and then
    {"type": "match", …}        each of the first matches, as soon as it is found
    {"type": "rule", "id", "title", "level", "kind", "count"}      at the end, each rule that matched
    {"type": "end", …}          at the end, the rest of the report

The process (``runtime/offline/hunt.py``) has a folder in ``DATA/fleet/hunts``, by the request's id, and goes on there
after any kill. One that dies is started again; one that dies ``TRIES`` times at the same place has failed. Of a request
that is cancelled what was found so far is the reply.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from vedette.config.redact import redaction
from vedette.fleet.hunt import ENDED, MAX_FIRST, Hunt, unpacked
from vedette.fleet.huntfolder import Checkpoint, Input, Order, begun
from vedette.fleet.job import Cancelled, Job
from vedette.fleet.requests import MAX_LIFE
from vedette.lookup.installed import mapped
from vedette.system import child, documents
from vedette.system.durable import sync_path, write_whole

MODULE = "vedette.runtime.offline.hunt"
ADDRESS_BYTES = 1 << 30
"""Address space of the process, without lookups."""
CHECKPOINT_SECONDS = 5.0
POLL_SECONDS, PROGRESS_SECONDS, MAX_PROGRESS = 0.5, 1.0, 60.0
"""Between two looks at the process, and between two reports of its progress: at first, and at most."""
SHOWN = 20
"""Rules named in a report of progress, those with most matches."""
TRIES = 3
SPENT = 2
"""Exit code of a process that cannot use what it was given."""


_Time = Annotated[int, Meta(ge=0, le=1 << 62, description="UTC microseconds")]


def validate(body: Mapping[str, Any]) -> None:
    """Raises ValueError."""
    _read("0", body)


class _Body(Struct, frozen=True, forbid_unknown_fields=True):
    """``first``: matches wanted in the report; ``plan``: the rules, packed."""

    since: _Time
    until: _Time
    first: Annotated[int, Meta(ge=0, le=MAX_FIRST, description=f"a whole number from 0 to {MAX_FIRST}")]
    plan: bytes

    def __post_init__(self) -> None:
        if self.until <= self.since:
            raise documents.Misfit("until", "expects a time after since")
        unpacked(self.plan)


def _read(id: str, body: Mapping[str, Any]) -> tuple[Hunt, bytes]:
    """Raises ValueError."""
    asked = documents.read(_Body, body)
    return Hunt(id, asked.since, asked.until, asked.first), asked.plan


async def run(job: Job) -> None:
    """Raises ValueError when the hunt has failed, OSError, and what ``Job.pace`` raises."""
    folder = job.services.config().agent.fleet_dir / "hunts" / job.request.id
    await asyncio.to_thread(_accept, folder, job)
    reply, tries = _Reply(job), 0
    while tries < TRIES:
        place = await asyncio.to_thread(_place, folder)
        if (ended := await _work(job, folder, reply)) is None or ended.code == SPENT:
            break
        tries = tries + 1 if place == await asyncio.to_thread(_place, folder) else 1
    cancelled = None
    try:
        if job.ending:
            job.pace()
    except Cancelled as error:
        cancelled = error
    report = await asyncio.to_thread(_report, folder)
    await asyncio.to_thread(reply.end, report)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    if cancelled is not None:
        raise cancelled
    if ended is not None:
        raise ValueError(_why(ended))
    if report["state"] == "failed":
        raise ValueError(report["reason"])


async def _work(job: Job, folder: Path, reply: _Reply) -> child.Ended | None:
    """Let the process run; None: the hunt has ended, or is to end."""
    memory = ADDRESS_BYTES + 2 * await asyncio.to_thread(mapped, job.services.config().agent.lookup_dir)
    running = asyncio.create_task(child.run_async(MODULE, str(folder), seconds=job.limits.seconds, memory=memory))
    try:
        while not running.done():
            await asyncio.wait([running], timeout=POLL_SECONDS)
            await asyncio.to_thread(lambda: reply.progress(_report(folder)))
            if job.ending:
                return None
        ended = running.result()
    finally:
        running.cancel()
        await asyncio.wait([running])
    return None if (await asyncio.to_thread(_report, folder))["state"] in ENDED else ended


class _Reply:
    """What of a hunt's report the reply has already, over restarts: its matches, rules and end are one list, and the
    job's cursor counts them."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sent = int(job.cursor or 0)
        self._due, self._pause = time.monotonic(), PROGRESS_SECONDS

    def progress(self, report: Mapping[str, Any]) -> None:
        """Raises as ``Job.emit``."""
        self._send([{"type": "match", **row} for row in report["first"][self._sent :]])
        if report["events"] and time.monotonic() >= self._due:
            self._due = time.monotonic() + self._pause
            self._pause = min(self._pause * 1.5, MAX_PROGRESS)
            most = sorted(report["rules"], key=lambda rule: -rule["count"])[:SHOWN]
            shown = {name: report[name] for name in ("oldest", "reached", "until", "events", "matches")}
            self._job.emit({"type": "progress", **shown, "rules": {rule["title"]: rule["count"] for rule in most}})
            self._job.checkpoint(self._sent, now=True)

    def end(self, report: Mapping[str, Any]) -> None:
        """Raises as ``Job.emit``."""
        rest = {name: value for name, value in report.items() if name not in ("id", "first", "rules")}
        whole = [{"type": "match", **row} for row in report["first"]]
        whole += [{"type": "rule", **rule} for rule in report["rules"]]
        self._send([*whole, {"type": "end", **rest}][self._sent :])

    def _send(self, records: Sequence[Mapping[str, Any]]) -> None:
        for record in records:
            self._job.emit(record)
            self._sent += 1
            self._job.checkpoint(self._sent)


def _accept(folder: Path, job: Job) -> None:
    """The folder of the hunt, as it was, or a new one; the order last. Folders that no request can be about any more
    go. Raises OSError, ValueError."""
    for path in folder.parent.glob("*/order.json"):
        if path.stat().st_mtime < time.time() - MAX_LIFE / 1e6 - 86_400:
            shutil.rmtree(path.parent, ignore_errors=True)
    if (folder / "order.json").exists():
        return
    hunt, plan = _read(job.request.id, job.request.body)
    config, limits = job.services.config(), job.limits
    inputs = tuple(Input(row.name, row.timezone, row.logsource, row.local) for row in config.input)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder / "plan", plan, 0o600)
    raw, lookups = str(config.agent.raw_dir), str(config.agent.lookup_dir)
    redact, _ = redaction(config)
    archive = None
    if config.archive.url:
        options = config.archive.options_file
        archive = config.agent.id, {**asdict(config.archive), "options_file": options and str(options)}
    more = inputs, redact.rules, redact.key, archive, config.plugins.allow, job.services.formats()
    Order(hunt, raw, lookups, limits.cpu, limits.seconds, CHECKPOINT_SECONDS, *more).save(folder)
    sync_path(folder.parent)


def _report(folder: Path) -> dict[str, Any]:
    """Raises OSError, ValueError."""
    checkpoint = Checkpoint.load(folder)
    return begun(Order.load(folder).hunt) if checkpoint is None else checkpoint.report


def _place(folder: Path) -> tuple[Any, ...]:
    checkpoint = Checkpoint.load(folder)
    return () if checkpoint is None else (checkpoint.place, checkpoint.read)


def _why(ended: child.Ended) -> str:
    if ended.code is not None and ended.code < 0:
        return f"its process was killed by {signal.Signals(-ended.code).name}, {TRIES} times at the same place"
    return ended.complaint or f"its process ended with code {ended.code}"
