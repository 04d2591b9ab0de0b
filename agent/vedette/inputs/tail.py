"""Tailing of log files: one ``file`` input.

Promise: every line of a file is handed over once, in order, also across restarts, rotation by rename and rotation by
truncation. A chunk carries the position after it, so that events and position are committed together, and a restart
goes on from the last committed position. What is only in a file that was truncated or deleted before it was read is
gone, and no tailer can know it.

* **Which file** it is says ``files.py``: inode and fingerprint, whatever the path.
* **Lines**: an unfinished last line waits, outside the position, for its newline. When its file has been rotated away
  and is idle, it is an event as it is; so it is when its file is truncated.
* **Rotation by rename**: the old file is read to its end before the new one, and stays open until a new file is at its
  path (or it is deleted) and it has been idle for ``linger`` seconds, because its writer may not have noticed yet. Its
  positions go under its new name. At start, saved files that no path leads to any more are looked for in their folders.
  Files that came and went between two looks are found by the names that rotation gives.
* **Truncation** (copytruncate): a file that is smaller than what was read, or does not begin as it did, is read from
  its start.
* **Unreadable** files are logged once and tried again at every poll, as are paths where nothing is yet. Only a file
  that is not there (or another in its place) has left its path: one that cannot be looked at has not, nor have those
  of a folder that cannot be read. At most ``open_files`` are held open; beyond that, and when the process has no
  descriptor left, the one that grew longest ago is closed, and opened again when it grows.

* **What rotation made of a path** before it was seen first is read before it, the oldest first, plain or compressed
  (``archives.py``), with positions of its own. One whose content has a position already, whatever its inode, goes on
  there: so what was compressed while the agent was down, or after it was read, comes once. Where several begin alike,
  none of them is left out.
* **Events of several lines** (``multiline.py``) and of containers (``containers.py``): the position is before the first
  line of the first event that is not whole.

A file found for the first time is read from its start; with ``from_start = false`` one that is there at the first poll
is read from its end. Looking and reading are done by a thread of this input's own, so that a slow disk does not stall
the event loop. While the raw log takes nothing, nothing is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from vedette.decode.bounded import Guard
from vedette.inputs import containers
from vedette.inputs.archives import Damaged
from vedette.inputs.base import Stoppable, Surroundings
from vedette.inputs.condition import OPENING, Condition
from vedette.inputs.files import (
    SPAN,
    Key,
    Seen,
    belongs,
    condition,
    in_folder,
    is_rotated,
    lies,
    look,
    open_same,
    plain,
    read_on,
    resume,
    rotated_since,
    still,
)
from vedette.inputs.framing import Lines, Run
from vedette.inputs.history import Earlier, earlier
from vedette.inputs.multiline import Events
from vedette.inputs.settings import FileInput
from vedette.inputs.tailed import Tailed
from vedette.model.counters import Log
from vedette.model.event import CHUNK_BYTES, Chunk, FilePosition
from vedette.system.descriptors import OPEN_FILES, SPENT

log = structlog.get_logger()

LINGER_SECONDS = 10.0
"""A rotated file that has not grown for so long is finished."""
FORSAKEN_SECONDS = 3600.0
"""So is one that was moved away and that no other file has replaced."""
FIRST_LOOKS = 5
"""Tries to take up a saved file that is rotated away at just that moment."""
TURN_BYTES = 16 << 20
"""Read from one file before the others have their turn."""

PART_SECONDS = 2.0
"""For which a part of a container's line waits for the rest."""

T = TypeVar("T")


class FileTail(Stoppable):
    """One ``file`` input; see the module's text.

    The agent's positions are of all inputs and of all files that were at a path: so a rotated file that a glob
    still finds, and that had nothing left to read when it was rotated, is known after a restart.
    """

    def __init__(
        self,
        settings: FileInput,
        agent: Surroundings,
        linger: float = LINGER_SECONDS,
        open_files: int = OPEN_FILES,
    ) -> None:
        self._settings = settings
        self._name = settings.name
        self._agent = agent
        self._linger = linger
        self._open_files = open_files
        self._unopened: dict[Key, tuple[str, int]] = {}
        """Files that were found when there was no descriptor to open them with: where, and their modification time."""
        self._between: dict[str, int] = {}
        """Paths of which it is not known what came and went there since a file had left, and when that was."""
        self._spent = False
        """There was no descriptor to look through folders or to open a file with."""
        self._positions = list(agent.positions())
        self._saved: dict[int, list[FilePosition]] = {}
        """By inode, of files that are not followed."""
        self._seen_paths: set[str] = set()
        """Paths at which a file was seen, now or before the start: what rotation made of them was not overlooked."""
        self._files: dict[Key, Tailed] = {}
        self._reported: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._looked = False
        self._descriptors: set[int] = set()
        self._guard = Guard()
        """Guards the pattern of ``multiline``, on the lines of all files."""
        self._slow = False
        """Its quarantine is in the log."""
        self._thread: ThreadPoolExecutor

    async def _run(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"tail-{self._name}")
        try:
            await self._begin()
            while True:
                if not await self._turn():
                    await asyncio.sleep(self._settings.poll)
        finally:
            self._thread.shutdown()  # a read under way must not find its descriptor closed
            for descriptor in self._descriptors:
                os.close(descriptor)
            self._descriptors.clear()

    @property
    def condition(self) -> Condition:
        """As of the last look."""
        paths = self._settings.paths
        return condition(self._reported, paths, there=bool(self._files)) if self._looked else OPENING

    def bound(self, descriptors: int) -> None:
        """How many files it may hold open."""
        self._open_files = descriptors

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def _begin(self) -> None:
        """Take up the saved files, also those that were rotated away meanwhile, or are between two looks."""
        paths = [entry.path for entry in (await self._in_thread(look, self._settings.paths)).files]
        lie = await self._in_thread(lambda: [real for path in paths if (real := lies(path)) != path])
        for position in self._positions:
            if belongs(position.path, (*self._settings.paths, *lie)):
                self._saved.setdefault(position.inode, []).append(position)
                self._seen_paths.add(position.path)
        self._positions = []
        looks = 0
        while looks < FIRST_LOOKS and not await self._take_up_saved():
            if self._spent:  # all of them wait: which there are, or what is in them, is not known yet
                self._report_problems()
                await asyncio.sleep(self._settings.poll)
            else:
                looks += 1

    async def _take_up_saved(self) -> bool:
        """One look for saved files; False when a file that it saw was not there any more to be opened."""
        seen = [
            entry for entry in (await self._in_thread(look, self._settings.paths)).files if entry.key not in self._files
        ]
        saved_ones = [entry for entry in seen if entry.key[1] in self._saved]
        inodes = {entry.key[1] for entry in seen}
        saved_paths = {position.path for saved in self._saved.values() for position in saved}
        gone = {
            inode: [position.path for position in saved] for inode, saved in self._saved.items() if inode not in inodes
        }
        folders = {os.path.dirname(lies(path)) for paths in gone.values() for path in paths}
        followed: set[str] = set()
        rotated, _ = await self._in_folders(folders, set(gone))
        if self._spent:
            return False
        for entry in sorted(rotated, key=lambda entry: entry.changed):
            if entry.path != plain(entry.path):
                continue  # what is in it is looked at below
            paths = gone[entry.key[1]]
            former = next((path for path in self._settings.paths if is_rotated(entry.path, path)), paths[-1])
            if await self._follow(entry, rotated_from=former, saved_only=True):
                followed.update(paths)
                if entry.path not in paths:
                    log.info(Log.FILE_ROTATED, input=self._name, path=former, now=entry.path)
        for entry in seen:
            gone_from = entry.path in saved_paths and entry.path not in followed and entry.key[1] not in self._saved
            if gone_from and not await self._read_rest(entry.path):
                reason = "the file read before is gone from its folder; lines after its position, if any, are lost"
                log.warning(Log.FILE_ROTATED, input=self._name, path=entry.path, now=None, reason=reason)
            saved = entry.key[1] in self._saved
            if (
                await self._follow(entry, at_end=not self._settings.from_start and entry.path not in saved_paths)
                and saved
            ):
                for file in self._files.values():  # what lies between a rotated file and a known one is known
                    if file.rotated_from == entry.path:
                        file.left = max(file.left, entry.changed)
        return not self._spent and all(entry.key in self._files for entry in saved_ones)

    async def _follow(
        self, seen: Seen, *, rotated_from: str = "", saved_only: bool = False, at_end: bool = False
    ) -> bool:
        """Take up a file, where it was left when it is a saved one; ``saved_only``: only then.

        False when it is not taken up, or cannot be read yet.
        """
        if not rotated_from and not saved_only and seen.path not in self._seen_paths:
            try:
                if self._settings.from_start:
                    await self._read_earlier(seen.path)
            except OSError as error:
                if error.errno not in SPENT:  # the raw log's
                    raise
                self._problems[seen.path] = error.strerror or str(error)
                self._spent = True
                return False
            self._seen_paths.add(seen.path)
        file = Tailed(seen.path, seen.key, await self._in_thread(self._events, rotated_from or seen.path))
        file.left = seen.changed
        file.rotated_from = rotated_from
        file.grown = asyncio.get_running_loop().time()
        saved = self._saved.get(seen.key[1], [])
        try:
            descriptor = await self._in_thread(self._open, file)
            position = await self._in_thread(resume, descriptor, saved)
            if position is not None:
                file.base = position.position
            elif saved_only:  # the inode has been given to another file
                self._close(file)
                return False
            elif saved:
                log.warning(Log.FILE_TRUNCATED, input=self._name, path=seen.path, position=saved[-1].position)
            elif at_end:
                file.base = seen.size
            file.head = await self._in_thread(os.pread, descriptor, min(SPAN, file.base), 0)
        except OSError as error:
            self._problems[seen.path] = error.strerror or str(error)
            if error.errno in SPENT:
                self._spent = True
                self._unopened.setdefault(seen.key, (rotated_from or seen.path, seen.changed))
            self._close(file)
            return False
        self._files[seen.key] = file
        self._unopened.pop(seen.key, None)
        self._saved.pop(seen.key[1], None)
        log.info(Log.FILE_OPENED, input=self._name, path=seen.path, position=file.base)
        return True

    def _events(self, path: str) -> Events | None:
        """Return what makes events of the lines of a file that is, or was, at ``path``."""
        settings = self._settings
        unwrap = containers.Container(path, containers.about(path)).line if settings.containers else None
        many = settings.multiline
        if many is None:
            return Events(None, unwrap, PART_SECONDS) if unwrap is not None else None
        return Events(many.asked(self._guard), unwrap, many.timeout)

    # --- what rotation made of a path before it was seen first

    async def _read_earlier(self, path: str, *, behind: bool = False) -> bool:
        """Read what rotation has made of ``path``, the oldest first, each to its end; ``behind``: only from the one on
        that was read before. What was rotated away and is read already comes first: it is older. False when there is
        none of these. Raises OSError for want of a descriptor."""
        saved = [position for saved in self._saved.values() for position in saved]
        saved += [file.committed() for file in self._files.values()]
        try:
            former = await self._in_thread(earlier, path, [*self._files], saved, self._agent.private, behind)
        except OSError as error:
            if error.errno in SPENT:
                raise
            self._problems[os.path.dirname(path)] = error.strerror or str(error)
            return False
        for file in [file for file in self._files.values() if file.rotated_from]:
            while await self._read(file, None):
                pass
        for content in former:
            if content.packed:
                await self._read_archive(content, path)
            elif not content.done and await self._follow(content.seen, rotated_from=path):
                while await self._read(self._files[content.seen.key], None):
                    pass
                self._round_off(self._files[content.seen.key])
        return bool(former)

    async def _read_rest(self, path: str) -> bool:
        """Whether what was followed at ``path``, and is gone from its folder, was found packed."""
        try:
            return await self._read_earlier(path, behind=True)
        except OSError as error:
            if error.errno not in SPENT:
                raise
            self._problems[path] = error.strerror or str(error)
            return False

    async def _read_archive(self, content: Earlier, path: str) -> None:
        """Hand over what a compressed file holds. Raises OSError for want of a descriptor."""
        seen = content.seen
        at = 0
        left = content.position
        file = Tailed(seen.path, seen.key, await self._in_thread(self._events, path))
        try:
            archive = await self._in_thread(content.unpacked, self._agent.private)
        except OSError as error:
            if error.errno in SPENT:
                raise
            reason = error.strerror or str(error)
            action = "what it holds is left out"
            log.warning(Log.FILE_UNREADABLE, input=self._name, path=seen.path, reason=reason, action=action)
            return
        log.info(Log.FILE_OPENED, input=self._name, path=seen.path, position=left)
        with contextlib.closing(archive):
            while True:
                await self._agent.intake.ready()
                try:
                    data = await self._in_thread(archive.read)
                except (Damaged, OSError) as error:
                    action = f"what could be read of it, {at} bytes, is taken"
                    log.warning(Log.FILE_UNREADABLE, input=self._name, path=seen.path, reason=str(error), action=action)
                    break
                if not data:
                    break
                at += len(data)
                skipped = min(len(data), left)
                left -= skipped
                file.skip(data[:skipped])
                file.feed(data[skipped:], asyncio.get_running_loop().time())
                self._give(file, file.take())
        file.end()
        self._give(file, file.take())
        self._saved[seen.key[1]] = [file.committed()]

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
            while len(self._descriptors) > self._open_files and self._close_oldest(file):
                pass
        return file.descriptor

    def _close_oldest(self, file: Tailed | None = None) -> bool:
        """Close a file that may be opened again: any but ``file``, the only one that is being read."""
        others = [
            candidate
            for candidate in self._files.values()
            if candidate.descriptor is not None and candidate is not file
        ]
        oldest = min(
            (candidate for candidate in others if not candidate.rotated_from),
            key=lambda candidate: candidate.grown,
            default=None,
        )
        if oldest is not None:
            self._close(oldest)
        return oldest is not None

    def _close(self, file: Tailed) -> None:
        if file.descriptor is not None:
            self._descriptors.remove(file.descriptor)
            os.close(file.descriptor)
            file.descriptor = None

    async def _turn(self) -> bool:
        """Look once, and read what is new. True when there is more to read at once."""
        files, self._problems = await self._in_thread(look, self._settings.paths)
        seen = {entry.key: entry for entry in files}
        more = False
        await self._find_rotated(seen)
        begun = {entry.path for entry in files if entry.size}
        for file in sorted(self._files.values(), key=lambda file: not file.rotated_from):
            while (again := await self._read(file, seen.get(file.key))) and file.rotated_from:
                pass  # what a new file holds comes after what the old one held
            more |= again
            if file.rotated_from in begun:
                self._round_off(file)
        for entry in files:
            if entry.key not in self._files and await self._follow(entry):
                more |= await self._read(self._files[entry.key], entry)
        self._expire()
        self._finish(seen)
        self._report_problems()
        return more

    def _round_off(self, file: Tailed) -> None:
        """The next file of its path has begun, and with it the next event, unless a line is unfinished."""
        if file.events is not None and not file.lines.pending:
            file.events.end()
            self._give(file, file.take())

    def _expire(self) -> None:
        """Events that have waited long enough for a line more are whole."""
        now = asyncio.get_running_loop().time()
        for file in self._files.values() if self._agent.intake.accepting() else ():
            if file.events is not None:
                file.events.expire(now)
                self._give(file, file.take())

    def _report_problems(self) -> None:
        for path, reason in self._problems.items():
            if self._reported.get(path) != reason:
                log.warning(Log.FILE_UNREADABLE, input=self._name, path=path, reason=reason, action="retrying")
        self._reported = self._problems
        self._problems = {}
        self._looked = True

    async def _find_rotated(self, seen: dict[Key, Seen]) -> None:
        """Give files that have left their path their new one; ``seen`` gets those that were overlooked. A file of which
        it is not known whether it has left, or for where, has not."""
        missing = {file.key: file.path for file in self._files.values() if not file.rotated_from}
        missing |= {key: path for key, (path, _) in self._unopened.items()}
        for key, path in list(missing.items()):
            try:
                if key not in seen:
                    if (entry := await self._in_thread(still, path, key)) is None:
                        continue
                    seen[key] = entry
            except OSError as error:
                self._problems[path] = error.strerror or str(error)
            del missing[key]
        moved: dict[Key, Seen] = {}
        if missing:
            folders = {os.path.dirname(lies(path)) for path in missing.values()}
            entries, unread = await self._in_folders(folders, {key[1] for key in missing})
            moved = {entry.key: entry for entry in entries}
            for key, path in list(missing.items()):
                if os.path.dirname(lies(path)) in unread:
                    changed = self._unopened[key][1] if key in self._unopened else self._files[key].left
                    self._between[path] = min(changed, self._between.get(path, changed))
                    del missing[key]
        await self._follow_unopened(missing, moved)
        for key, file in self._files.items():
            entry = seen.get(key) or moved.get(key)
            if entry is None and key in missing:
                path = f"{file.path} (rotated away, inode {key[1]})"  # the path's entry is for the file that comes next
            else:
                path = entry.path if entry else file.path
            if path == file.path:
                continue
            file.rotated_from = "" if path == file.rotated_from else file.rotated_from or file.path
            file.grown = asyncio.get_running_loop().time()
            log.info(Log.FILE_ROTATED, input=self._name, path=file.path, now=path if entry else None)
            file.path = path
            file.left = entry.changed if entry else file.changed
        await self._follow_between(seen)

    async def _follow_unopened(self, missing: Mapping[Key, str], moved: Mapping[Key, Seen]) -> None:
        """Take up files that have left their path before there was a descriptor for them."""
        for key in [key for key in missing if key in self._unopened]:
            path, _ = self._unopened[key]
            if key in moved:
                if await self._follow(moved[key], rotated_from=path):
                    log.info(Log.FILE_ROTATED, input=self._name, path=path, now=moved[key].path)
            else:
                del self._unopened[key]
                reason = "it went before it could be opened; its lines are lost"
                log.warning(Log.FILE_ROTATED, input=self._name, path=path, now=None, reason=reason)

    async def _in_folders(self, folders: Iterable[str], inodes: set[int]) -> tuple[list[Seen], set[str]]:
        """The files with one of ``inodes`` in ``folders``, and the folders that cannot be read."""
        files: list[Seen] = []
        unread: set[str] = set()
        self._spent = False
        for folder in folders:
            try:
                files += await self._in_thread(in_folder, folder, inodes)
            except OSError as error:
                self._problems[folder] = error.strerror or str(error)
                unread.add(folder)
                self._spent |= error.errno in SPENT
        return files, unread

    async def _follow_between(self, seen: Container[Key]) -> None:
        """Take up files that came to a path and left it between two looks, after one that was seen there."""
        lingering = [file for file in self._files.values() if file.rotated_from and not file.finished]
        for path in {file.rotated_from for file in lingering} | set(self._between):
            lefts = [file.left for file in lingering if file.rotated_from == path]
            left = self._between.get(path, max(lefts, default=0))
            try:
                since = await self._in_thread(rotated_since, lies(path), left)
            except OSError as error:
                self._problems[os.path.dirname(path)] = error.strerror or str(error)
                self._between[path] = left
                continue
            self._between.pop(path, None)
            for entry in since:
                done = any(saved.position == entry.size for saved in self._saved.get(entry.key[1], ()))
                if entry.key not in self._files and entry.key not in seen and not done:
                    await self._follow(entry, rotated_from=path)

    async def _read(self, file: Tailed, seen: Seen | None) -> bool:
        """Hand over what is new in a file. True when there is more."""
        if seen is not None and (seen.size, seen.changed) == (file.read, file.changed):
            return False
        left = TURN_BYTES
        while left > 0:
            await self._agent.intake.ready()
            try:
                descriptor = await self._in_thread(self._open, file)
                data = await self._in_thread(read_on, descriptor, file.head, file.read, CHUNK_BYTES)
            except OSError as error:
                self._problems[file.path] = error.strerror or str(error)
                file.waits = error.errno in SPENT
                return False
            file.waits = False
            if data is None:
                log.warning(Log.FILE_TRUNCATED, input=self._name, path=file.path, position=file.position)
                file.end()
                rest = file.take()
                file.base = 0
                file.head = b""
                file.lines = Lines()
                if file.events is not None:
                    file.events = file.events.fresh()
                self._give(file, rest)
                continue
            if not data:
                file.changed = seen.changed if seen else -1
                return False
            left -= len(data)
            file.feed(data, asyncio.get_running_loop().time())
            self._give(file, file.take())
        return True

    def _finish(self, seen: Mapping[Key, Seen]) -> None:
        """Rotated files that will not grow any more: their last line is an event, and those out of sight are done."""
        replaced = {entry.path for entry in seen.values()}
        for key, file in list(self._files.items()):
            if not file.rotated_from or file.finished or file.waits:
                continue
            deleted = key not in seen and (file.descriptor is None or not os.fstat(file.descriptor).st_nlink)
            idle = asyncio.get_running_loop().time() - file.grown
            # Taken up at start under the very path of its saved position, it had been rotated away before that.
            over = deleted or file.rotated_from in replaced or file.rotated_from == file.path
            if idle >= (self._linger if over else FORSAKEN_SECONDS):
                file.end()
                self._give(file, file.take())
                self._close(file)
                file.finished = True
                if key not in seen:
                    del self._files[key]
                    self._saved[key[1]] = [file.committed()]

    def _give(self, file: Tailed, run: Run | None) -> None:
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
