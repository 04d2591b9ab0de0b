"""Following systemd's journal: one ``journal`` input, by ``journalctl --follow`` as a child process.

Promise: every entry is handed over once, in the journal's order, also across restarts, kills, reboots, rotation and
restarts of journald. A chunk carries the cursor of its last entry, so that events and cursor are committed together,
and a restart goes on behind the last committed one. What was deleted from the journal before it was read is gone; that
is noticed, logged and counted:

* **Gaps**: journalctl says nothing when the entry of a cursor is gone, nor when files are deleted ahead of it: it goes
  on at the oldest entry left. But journald numbers its entries, and the number is in the cursor. So entries are read
  unfiltered, and a number that is left out is an entry that was deleted. A journal that began again with other numbers
  is a gap of unknown size, unless it still holds the last entry that was read, as when entries moved from /run to /var.
* **Boots**: since systemd 250 ``--follow`` shows the entries of this boot only. So what is there is read without it
  first, of whatever boot, and only then followed; and both merged (``--merge``), which takes that limit away where
  journalctl can do it: in a container the boot that a service sees need not be that of the journal. What is merged from
  other machines is left out, unless a folder was asked for.
* **The child** is started again, after a pause, when it ends. What it writes to its standard error is logged. It ends
  when its pipe is closed: with the agent, however that ends. While the raw log takes nothing, nothing is read of it.
* **Permission**: who may not read the journal is shown his own entries, without a word. So the files are looked at
  first, and the group that may read them is named.

The agent's own messages, as a service, are left out: what it logs of an event must not become the next one.
"""

from __future__ import annotations

import asyncio
import os
import re
from array import array
from collections.abc import Iterable
from contextlib import suppress
from subprocess import DEVNULL, PIPE

import structlog

from vedette.inputs.base import Surroundings
from vedette.inputs.condition import OPENING, WORKS, failing
from vedette.inputs.entries import Lines
from vedette.inputs.entryfilter import Filter
from vedette.inputs.export import Entry, Export, Malformed
from vedette.inputs.journalaccess import own_machine, own_unit, unreadable
from vedette.inputs.settings import JournalInput
from vedette.inputs.stoppable import Stoppable
from vedette.model.counters import Dropped, Log
from vedette.model.event import Chunk, FilePosition, Flag
from vedette.system.trouble import BACKOFF, Backoff, Trouble

log = structlog.get_logger()

READ_BYTES = 128 << 10
"""At a time: some 300 entries, a millisecond's work."""
MAX_COMPLAINTS = 10
"""Lines of a child's standard error that are logged."""
NUMBERINGS = 64
"""Numberings that are remembered: a folder may hold journals of several hosts."""
ASK_SECONDS = 60.0
"""For journalctl to find an entry in a large journal on a slow disk."""
_CURSOR = re.compile(rb"s=([0-9a-f]{1,32});i=([0-9a-f]{1,16});(.*)")


class Unavailable(Exception):
    """The journal cannot be read now, and why."""


class JournalFollower(Stoppable):
    """One ``journal`` input; see the module's text."""

    def __init__(self, settings: JournalInput, agent: Surroundings, backoff: tuple[float, float] = BACKOFF) -> None:
        self._settings = settings
        self._agent = agent
        self._backoff = Backoff(backoff)
        self._trouble = Trouble()
        self.condition = OPENING
        self._lines = Lines(settings.fields)
        elsewhere = settings.directory or settings.namespace
        self._filter = Filter(settings) if elsewhere else Filter(settings, own_unit(), own_machine())
        self._path = f"journal:{settings.name}:{elsewhere}"
        self._cursor = next((position.fingerprint for position in agent.positions() if position.path == self._path), "")
        """The cursor of the last entry that was taken; empty: none."""
        self._gone = ""
        """The cursor behind which a gap of unknown size was counted."""
        self._numbers: dict[bytes, int] = {}
        """The last sequence number, by numbering."""
        self._narrow = True
        """This journalctl knows --output-fields."""
        self._merged = not elsewhere
        """This journalctl follows what it merges."""
        self._complaints: list[str] = []

    async def _run(self) -> None:
        while True:
            try:
                reason = await self._follow(await self._begin())
            except Unavailable as error:
                reason = str(error)
            if self._trouble.begins(reason):
                log.warning(Log.JOURNAL_UNAVAILABLE, input=self._settings.name, reason=reason, action="retrying")
            self.condition = failing(reason)
            await asyncio.sleep(self._backoff.failed())

    def bound(self, descriptors: int) -> None:
        """The pipes of its child are all it has."""

    # --- where to begin

    async def _begin(self) -> list[str]:
        """Whether the journal can be read, and goes on where it was left; options that say where to begin. Raises
        Unavailable."""
        if reason := await asyncio.to_thread(unreadable, self._settings.directory):
            raise Unavailable(reason)
        if not self._cursor:
            # The newest entry is taken, too: with it a cursor is committed at once, and a kill leaves no hole.
            newest = None if self._settings.from_start else await self._ask("--lines=1")
            return [f"--cursor={_text(newest)}"] if newest else []
        cursor = await self._ask(f"--cursor={self._cursor}", "--lines=1")
        if cursor is None:  # it is no cursor to this journalctl
            self._gap_behind_cursor()
            return []
        before = _CURSOR.match(self._cursor.encode())
        now = _CURSOR.match(cursor)
        if before is None or now is None:  # nothing is left of it, nor behind it
            self._gap_behind_cursor()
            return [f"--after-cursor={self._cursor}"]
        if before[3] == now[3]:  # the very entry, perhaps in another file under another number
            self._numbers[now[1]] = int(now[2], 16)
            return [f"--after-cursor={self._cursor}"]
        if before[1] == now[1] and int(now[2], 16) > int(before[2], 16):
            self._numbers[now[1]] = int(before[2], 16)  # the first entry that comes shows how many are gone
        else:
            self._gap_behind_cursor()
        return [f"--cursor={_text(cursor)}"]  # behind a cursor that is gone one more would be left out

    async def _ask(self, *options: str) -> bytes | None:
        """The cursor of the one entry that journalctl prints; empty: there is none; None: it does not know the cursor
        that was given. Raises Unavailable."""
        process = await self._start(*options)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                out, complaint = await process.communicate()
        except TimeoutError:
            raise Unavailable(f"journalctl did not answer within {ASK_SECONDS:.0f} s") from None
        finally:
            await _end(process)
        if process.returncode:
            self._complained(complaint)
            if b"seek to cursor" in complaint:
                return None
            raise Unavailable(self._why(process.returncode))
        first = out.partition(b"\n")[0]
        return first.removeprefix(b"__CURSOR=") if first.startswith(b"__CURSOR=") else b""

    async def _start(self, *options: str) -> asyncio.subprocess.Process:
        settings = self._settings
        command = ["journalctl", "--output=export", "--all", "--quiet", "--no-pager", *options]
        if settings.directory:
            command += ["--merge", f"--directory={settings.directory}"]
        elif self._merged:
            command.append("--merge")
        if settings.namespace and not settings.directory:
            command.append(f"--namespace={settings.namespace}")
        if self._narrow:
            wanted = sorted({*self._lines.wanted, *self._filter.wanted})
            command.append("--output-fields=" + b",".join(wanted).decode())
        self._complaints = []
        try:
            return await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, limit=READ_BYTES, env={**os.environ, "LC_ALL": "C"}
            )
        except OSError as error:
            raise Unavailable(f"journalctl: {error.strerror or error}") from error

    # --- following

    async def _follow(self, begin: list[str]) -> str:
        """Hand over what is there, then what comes, until the child ends; returns why it did."""
        if reason := await self._read(begin):
            return reason
        self.condition = WORKS
        behind = [f"--after-cursor={self._cursor}"] if self._cursor else []
        return await self._read(["--follow", "--no-tail", *behind]) or "journalctl ended"

    async def _read(self, options: list[str]) -> str:
        """Hand over entries until the child ends; returns why it did, empty for a clean end."""
        process = await self._start(*options)
        assert process.stdout is not None
        assert process.stderr is not None
        complaints = asyncio.create_task(self._listen(process.stderr))
        entries = Export()
        try:
            while True:
                await self._agent.intake.ready()
                data = await process.stdout.read(READ_BYTES)
                if not data:
                    break
                self._give(entries.feed(data))
            await process.wait()
            await complaints
        except Malformed as error:
            return f"journalctl: {error}"
        finally:
            complaints.cancel()
            await asyncio.wait([complaints])
            await _end(process)
        return self._why(process.returncode) if process.returncode else ""

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(4096):
            self._complained(data)

    def _complained(self, data: bytes) -> None:
        for line in data.decode("utf-8", "replace").splitlines():
            if line.strip() and len(self._complaints) < MAX_COMPLAINTS:
                self._complaints.append(line.strip()[:500])
                log.warning(Log.JOURNAL_COMPLAINT, input=self._settings.name, reason=self._complaints[-1])

    def _why(self, code: int | None) -> str:
        said = self._complaints[-1] if self._complaints else ""
        if self._narrow and "unrecognized option" in said and "output-fields" in said:
            self._narrow = False  # systemd before 236: all fields come, those that are not wanted are left out here
        if "with --merge is not supported" in said:
            self._merged = False  # systemd 250 to 252.10
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
        return f"journalctl {how}" + (f": {said}" if said else "")

    def _give(self, entries: Iterable[Entry]) -> None:
        """Store those that are wanted, as one chunk; raises OSError and Malformed."""
        events: list[bytes] = []
        ends = array("I")
        marks = []
        size = 0
        last = b""
        for entry in entries:
            if (cursor := entry.get(b"__CURSOR")) is None:
                raise Malformed("an entry has no cursor")
            last = cursor[0]
            self._follows(last)
            if not self._filter.wants(entry):
                continue
            line, cut = self._lines.line(entry)
            if cut:
                marks.append((size, int(Flag.CUT)))
            events.append(line)
            size += len(line)
            ends.append(size)
        if not last:
            return
        self._backoff.reset()
        self._trouble.ends()
        self.condition = WORKS
        self._cursor = _text(last)
        if not events:
            return
        if marks:
            log.warning(Log.EVENT_CUT, input=self._settings.name, events=len(marks))
        match = _CURSOR.match(last)
        position = FilePosition(self._path, 0, self._cursor, 0 if match is None else int(match[2], 16))
        codec = self._settings.format
        now = self._agent.clock()
        chunk = Chunk(self._settings.name, codec, now, b"".join(events), ends, marks=tuple(marks), file=position)
        self._agent.deliver(chunk)

    def _follows(self, cursor: bytes) -> None:
        """Notice entries that were deleted before this one."""
        match = _CURSOR.match(cursor)
        if match is None:
            return
        numbering = match[1]
        number = int(match[2], 16)
        before = self._numbers.get(numbering)
        if before is None and len(self._numbers) >= NUMBERINGS:
            del self._numbers[next(iter(self._numbers))]
        self._numbers[numbering] = number
        if before is not None and number > before + 1:
            self._gap(number - before - 1)

    def _gap_behind_cursor(self) -> None:
        """Nobody knows how many entries are gone behind the cursor; counted once, however often that is tried."""
        if self._gone != self._cursor:
            self._gone = self._cursor
            self._gap(None)

    def _gap(self, entries: int | None) -> None:
        """``entries`` were deleted before they were read; None: nobody knows how many."""
        name = self._settings.name
        self._agent.counters.totals["journal_gaps"] += 1
        if entries is not None:
            self._agent.counters.drop(name, Dropped.VACUUMED, entries)
        reason = "entries were deleted from the journal before they were read"
        log.warning(Log.JOURNAL_GAP, input=name, reason=reason, entries="unknown" if entries is None else entries)


def _text(cursor: bytes) -> str:
    return cursor.decode("ascii", "replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.communicate()  # what is still in its pipes, without which they are not closed
