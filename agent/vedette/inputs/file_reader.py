"""Reading of the files that one ``file`` input follows: opens them, reads on, hands over what is whole.

Promise: a chunk carries the position after it, and a file goes on from a saved position only where it begins as it did
there. At most ``open_files`` are held open; beyond that, and when the process has no descriptor left, the one that grew
longest ago is closed, and opened again when it grows. Of a party's files MAX_UNFINISHED is kept of what may go on,
beyond that the longest line is cut. What may block is done by a thread of this input's own, so that a
slow disk does not stall the event loop. While the raw log takes nothing, nothing is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from vedette.decode.bounded import Guard
from vedette.decode.codecs import Kind, builtin
from vedette.inputs import containers
from vedette.inputs.base import Surroundings
from vedette.inputs.files import SPAN, Key, Seen, fits, open_same, read_on, resume
from vedette.inputs.framing import Run
from vedette.inputs.multiline import Events
from vedette.inputs.settings import FileInput
from vedette.inputs.tailed import Tailed
from vedette.inputs.wide import wide
from vedette.model.counters import Log
from vedette.model.event import CHUNK_BYTES, Chunk, FilePosition
from vedette.system.descriptors import SPENT
from vedette.system.turns import in_steps

log = structlog.get_logger()

TURN_BYTES = 16 << 20
"""Read of a party's files, or unpacked from one archive, before the others have their turn."""
MAX_UNFINISHED = 32 << 20
"""Bytes that are kept of a party's lines, and of its events of several lines, that may go on."""
PART_SECONDS = 2.0
"""For which a part of a container's line waits for the rest."""

T = TypeVar("T")


class FileReader:
    """The followed files of one input, and the saved positions of files that are not followed."""

    def __init__(self, settings: FileInput, agent: Surroundings, open_files: int, turn_bytes: int) -> None:
        self._settings = settings
        self._name = settings.name
        self._agent = agent
        self.open_files = open_files
        """How many files it may hold open."""
        self.turn_bytes = turn_bytes
        self.files: dict[Key, Tailed] = {}
        self.saved: dict[int, dict[str, FilePosition]] = {}
        """By inode and path, of contents that are not followed. The inode may be another file's by now."""
        self.gone: dict[str, Tailed | None] = {}
        """Paths whose saved content is not seen there, or not yet: what is left of it, and what came after it, may be
        in what rotation made of the path. With the file that was followed, where it was."""
        self.unopened: dict[Key, tuple[str, int]] = {}
        """Files that were seen when there was no descriptor to open them with: where, and their modification time."""
        self.spent = False
        """There was no descriptor to look through folders or to open a file with."""
        self.problems: dict[str, str] = {}
        """By path: why nothing is read there, as far as this look has come."""
        self.reported: dict[str, str] = {}
        """The problems of the last look."""
        self._shared: Counter[int | str] = Counter()
        """By party: how many of its files had something to read when this look began."""
        self._unfinished: Counter[int | str] = Counter()
        """By party about how much is kept of its unfinished lines and events; never too little."""
        self._descriptors: set[int] = set()
        self._guard = Guard()
        """Guards the pattern of ``multiline``, on the lines of all files."""
        self._slow = False
        """Its quarantine is in the log."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"tail-{self._name}")

    def close(self) -> None:
        self._thread.shutdown()  # a read under way must not find its descriptor closed
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def save(self, position: FilePosition) -> None:
        """Keep the position of a content that is not followed."""
        self.saved.setdefault(position.inode, {})[position.path] = position

    def look(self, seen: Mapping[Key, Seen]) -> None:
        """A look begins, which found ``seen``: each party's files share one turn, however many it has."""
        new = (entry for key, entry in seen.items() if key not in self.files and entry.path not in self.reported)
        self._shared = Counter(entry.party for entry in new)
        for file in self.files.values():
            if file.behind or (file.key in seen and seen[file.key].size > file.read):
                self._shared[file.party] += 1

    def report(self) -> None:
        """Log those problems of the look, which is over, that the one before did not have."""
        for path, reason in self.problems.items():
            if self.reported.get(path) != reason:
                log.warning(Log.FILE_UNREADABLE, input=self._name, path=path, reason=reason, action="retrying")
        self.reported = self.problems
        self.problems = {}

    async def follow(
        self,
        seen: Seen,
        *,
        rotated_from: str = "",
        reached: Iterable[FilePosition] = (),
        saved_only: bool = False,
        at_end: bool = False,
    ) -> bool:
        """Take up a file, where it was left when its content is a saved one; ``saved_only``: only then. ``reached``:
        positions in its content, under whatever inode.

        False when it is not taken up, or cannot be read yet.
        """
        file = await self.tailed(seen, rotated_from or seen.path)
        file.left = seen.changed
        file.rotated_from = rotated_from
        file.grown = asyncio.get_running_loop().time()
        saved = self.saved.get(seen.key[1], {})
        try:
            descriptor = await self.in_thread(self._open, file)
            position = await self.in_thread(resume, descriptor, [*saved.values(), *reached])
            if position is not None:
                file.base = position.position
            elif saved_only:  # the inode has been given to another file
                self.close_file(file)
                return False
            elif seen.path in saved:
                position = saved[seen.path]
                log.warning(Log.FILE_TRUNCATED, input=self._name, path=seen.path, position=position.position)
            elif at_end:
                file.base = seen.size & ~1 if wide(await self.in_thread(os.pread, descriptor, 64, 0)) else seen.size
            file.head = await self.in_thread(os.pread, descriptor, min(SPAN, file.base), 0)
        except OSError as error:
            self.problems[seen.path] = error.strerror or str(error)
            if error.errno in SPENT:
                self.spent = True
                self.unopened.setdefault(seen.key, (rotated_from or seen.path, seen.changed))
            self.close_file(file)
            return False
        self.files[seen.key] = file
        self.unopened.pop(seen.key, None)
        self.saved.pop(seen.key[1], None)
        for position in saved.values():
            if position.path != seen.path and not fits(file.head, position):
                self.save(position)
        log.info(Log.FILE_OPENED, input=self._name, path=seen.path, position=file.base)
        return True

    async def tailed(self, seen: Seen, path: str) -> Tailed:
        """The file, not opened; its lines are those of ``path``, where it is or was."""
        events = await self.in_thread(self._events, path)
        kinds = builtin(self._settings.format).kinds
        return Tailed(seen.path, seen.key, seen.party, events, Kind.JSON in kinds, Kind.SYSLOG in kinds)

    def _events(self, path: str) -> Events | None:
        """Return what makes events of the lines of a file that is, or was, at ``path``."""
        settings = self._settings
        unwrap = containers.Container(path, containers.about(path)).line if settings.containers else None
        many = settings.multiline
        if many is None:
            return Events(None, unwrap, PART_SECONDS) if unwrap is not None else None
        return Events(many.asked(self._guard), unwrap, many.timeout)

    def _open(self, file: Tailed) -> int:
        """The file's descriptor; in the thread. Raises OSError."""
        if file.descriptor is None:
            try:
                file.descriptor = open_same(file.path, file.key, self._agent.private)
            except OSError as error:
                if error.errno not in SPENT or not self._close_oldest():
                    raise
                file.descriptor = open_same(file.path, file.key, self._agent.private)
            self._descriptors.add(file.descriptor)
            while len(self._descriptors) > self.open_files and self._close_oldest(file):
                pass
        return file.descriptor

    def _close_oldest(self, file: Tailed | None = None) -> bool:
        """Close a file that may be opened again: any but ``file``, the only one that is being read."""
        others = [
            candidate for candidate in self.files.values() if candidate.descriptor is not None and candidate is not file
        ]
        oldest = min(
            (candidate for candidate in others if not candidate.rotated_from),
            key=lambda candidate: candidate.grown,
            default=None,
        )
        if oldest is not None:
            self.close_file(oldest)
        return oldest is not None

    def close_file(self, file: Tailed) -> None:
        if file.descriptor is not None:
            self._descriptors.remove(file.descriptor)
            os.close(file.descriptor)
            file.descriptor = None

    async def read(self, file: Tailed, seen: Seen | None) -> bool:
        """Hand over what is new in a file. True when there is more."""
        if seen is not None and (seen.size, seen.changed) == (file.read, file.changed):
            file.behind = 0
            return False
        left = self.turn_bytes / max(1, self._shared[file.party])
        while left > 0:
            await self._agent.intake.ready()
            try:
                descriptor = await self.in_thread(self._open, file)
                data = await self.in_thread(read_on, descriptor, file.head, file.read, CHUNK_BYTES)
            except OSError as error:
                self.problems[file.path] = error.strerror or str(error)
                file.waits = error.errno in SPENT
                file.behind = 0
                return False
            file.waits = False
            if data is None:
                await self._leave(file)
                return False
            if not data:
                file.changed = seen.changed if seen else -1
                file.behind = 0
                return False
            left -= len(data)
            before = file.unfinished
            file.feed(data, asyncio.get_running_loop().time())
            await self.hand_over(file)
            self._unfinished[file.party] += file.unfinished - before
            if self._unfinished[file.party] > MAX_UNFINISHED:
                self._make_room(file.party)
        file.behind = 1
        with contextlib.suppress(OSError):
            file.behind = max(1, (await self.in_thread(os.fstat, descriptor)).st_size - file.read)
        return True

    def _make_room(self, party: int | str) -> None:
        """Where the party's files keep too much, hand over what most is kept of."""
        files = [file for file in self.files.values() if file.party == party]
        self._unfinished[party] = sum(file.unfinished for file in files)
        while self._unfinished[party] > MAX_UNFINISHED:
            fullest = max(files, key=lambda file: file.unfinished)
            self._unfinished[party] -= fullest.unfinished
            fullest.cut()
            self.give(fullest, fullest.take())

    async def _leave(self, file: Tailed) -> None:
        """Follow no more a file whose content is another by now; that is taken up like a new file's."""
        log.warning(Log.FILE_TRUNCATED, input=self._name, path=file.path, position=file.position)
        self.close_file(file)
        del self.files[file.key]
        if file.rotated_from:
            await self.end(file)
        else:
            self.gone[file.path] = file

    async def end(self, file: Tailed) -> None:
        """Hand over what is unfinished: nothing more comes."""
        file.end()
        await self.hand_over(file)

    async def hand_over(self, file: Tailed) -> None:
        """What is whole, of which the records of containers may be many."""
        self.give(file, await in_steps(file.taking()))

    def round_off(self, file: Tailed) -> None:
        """The next file of its path has begun, and with it the next event, unless a line is unfinished."""
        if file.events is not None and not file.lines.pending:
            file.events.end()
            self.give(file, file.take())

    def expire(self) -> None:
        """Events that have waited long enough for a line more are whole."""
        now = asyncio.get_running_loop().time()
        for file in self.files.values() if self._agent.intake.accepting() else ():
            if file.events is not None and not file.behind:
                file.events.expire(now)
                self.give(file, file.take())

    def give(self, file: Tailed, run: Run | None) -> None:
        """Hand over events of a file, if there are any. Raises OSError when the raw log cannot be written."""
        if file.wide is not None and not file.announced:
            file.announced = True
            log.info(Log.FILE_ENCODED, input=self._name, path=file.path, encoding=file.wide.encoding)
        if run is None:
            return
        if self._guard.quarantined and not self._slow:
            self._slow = True
            log.error(
                Log.FORMAT_QUARANTINED,
                input=self._name,
                path=file.path,
                reason="the pattern of multiline takes too long",
                action="each line is an event until the configuration is read again: change the pattern",
            )
        if run.marks:
            log.warning(Log.EVENT_CUT, input=self._name, path=file.path, events=len(run.marks))
        codec, now = self._settings.format, self._agent.clock()
        chunk = Chunk(self._name, codec, now, run.data, run.ends, marks=run.marks, file=file.committed())
        self._agent.deliver(chunk)
