"""Tailing of log files: one ``file`` input.

Promise: every line of a file is handed over once, in order, also across restarts, rotation by rename and rotation by
truncation. A chunk carries the position after it, so that events and position are committed together, and a restart
goes on from the last committed position. What is only in a file that was truncated or deleted before it was read is
gone, and no tailer can know it.

* **Which file** it is says ``files.py``: inode and fingerprint, whatever the path. An inode alone says nothing after a
  restart, since it may have been given to another file: there a content is known by its fingerprint. Where the content
  at a path is another by now, what is left of the saved one is looked for in what rotation made of the path.
* **Lines**: an unfinished last line waits, outside the position, for its newline. When its file has been rotated away
  and is idle, it is an event as it is; so it is when its file is truncated.
* **Rotation by rename**: the old file is read to its end before the new one, and stays open until a new file is at its
  path (or it is deleted) and it has been idle for ``linger`` seconds, because its writer may not have noticed yet. Its
  positions go under its new name. At start, saved files that no path leads to any more are looked for in their folders.
  Files that came and went between two looks are found by the names that rotation gives.
* **Truncation** (copytruncate): a file that is smaller than what was read, or does not begin as it did, is read from
  its start, after what was not read of a copy that rotation made of it.
* **Unreadable** files are logged once and tried again at every poll, as are paths where nothing is yet. Only a file
  that is not there (or another in its place) has left its path: one that cannot be looked at has not, nor have those
  of a folder that cannot be read.
* **Globs** that lead to rotated files: those are parts of the file that they were (``backlog.py``).
* **Reading**, open files and descriptors: ``file_reader.py``. Rotated files from before, archives, new files, and whose
  turn it is: ``backlog.py``.
* **Events of several lines** (``multiline.py``) and of containers (``containers.py``): the position is before the first
  line of the first event that is not whole.

A file found for the first time is read from its start; with ``from_start = false`` one that is there at the first poll
is read from its end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping

import structlog

from vedette.inputs.backlog import Backlog
from vedette.inputs.base import Surroundings
from vedette.inputs.condition import BEHIND_SECONDS, OPENING, WORKS, Condition, State
from vedette.inputs.file_reader import TURN_BYTES, FileReader
from vedette.inputs.files import (
    Key,
    Seen,
    belongs,
    condition,
    in_folder,
    is_rotated,
    lies,
    look,
    origins,
    plain,
    rotated_since,
    still,
)
from vedette.inputs.settings import FileInput
from vedette.inputs.stoppable import Stoppable
from vedette.model.counters import Log
from vedette.system.descriptors import OPEN_FILES, SPENT

log = structlog.get_logger()

LINGER_SECONDS = 10.0
"""A rotated file that has not grown for so long is finished."""
FORSAKEN_SECONDS = 3600.0
"""So is one that was moved away and that no other file has replaced."""
FIRST_LOOKS = 5
"""Tries to take up a saved file that is rotated away at just that moment."""


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
        turn_bytes: int = TURN_BYTES,
    ) -> None:
        self._settings = settings
        self._name = settings.name
        self._linger = linger
        self._reader = FileReader(settings, agent, open_files, turn_bytes)
        self._backlog = Backlog(settings, agent, self._reader)
        self._positions = list(agent.positions())
        self._between: dict[str, int] = {}
        """Paths of which it is not known what came and went there since a file had left, and when that was."""
        self._looked = False

    async def _run(self) -> None:
        try:
            await self._begin()
            while True:
                if not await self._turn():
                    await asyncio.sleep(self._settings.poll)
        finally:
            await self._backlog.close()
            self._reader.close()

    @property
    def condition(self) -> Condition:
        """As of the last look."""
        if not self._looked:
            return OPENING
        there = bool(self._reader.files or self._backlog.unread or self._backlog.earlier)
        state = condition(self._reader.reported, self._settings.paths, there=there)
        if state != WORKS:
            return state
        late = max(self._backlog.not_begun().values(), default=0.0) > BEHIND_SECONDS
        return Condition(State.FAILING if late else State.WORKS, self._behind())

    def _behind(self) -> str:
        """How far what was read lies behind what is there; empty: it does not, as of the last look."""
        behind = [file for file in self._reader.files.values() if file.behind]
        parts = []
        if behind:
            most = max(behind, key=lambda file: file.behind)
            parts.append(f"{sum(file.behind for file in behind)} bytes of {len(behind)} files, most of {most.path}")
        if self._backlog.unpacked:
            parts.append(f"the rest of {', '.join(self._backlog.unpacked.values())}")
        if waiting := self._backlog.not_begun():
            longest = max(waiting, key=lambda path: waiting[path])
            parts.append(f"{len(waiting)} files not begun, {longest} for {waiting[longest]:.0f} s")
        return f"behind: {'; '.join(parts)}" if parts else ""

    def bound(self, descriptors: int) -> None:
        """How many files it may hold open."""
        self._reader.open_files = descriptors

    async def _begin(self) -> None:
        """Take up the saved files, also those that were rotated away meanwhile, or are between two looks."""
        paths = [entry.path for entry in (await self._reader.in_thread(look, self._settings.paths)).files]
        lie = await self._reader.in_thread(lambda: [real for path in paths if (real := lies(path)) != path])
        for position in self._positions:
            if belongs(position.path, (*self._settings.paths, *lie)):
                self._reader.save(position)
                self._backlog.seen_paths.add(position.path)
                self._reader.gone[position.path] = None
        self._positions = []
        looks = 0
        while looks < FIRST_LOOKS and not await self._take_up_saved():
            if self._reader.spent:  # all of them wait: which there are, or what is in them, is not known yet
                self._reader.report()
                self._looked = True
                await asyncio.sleep(self._settings.poll)
            else:
                looks += 1

    async def _take_up_saved(self) -> bool:
        """One look for saved files; False when one that it saw could not be opened, as it may have left its path."""
        reader, backlog = self._reader, self._backlog
        files, _ = await reader.in_thread(backlog.seen)
        seen = [entry for entry in files if entry.key not in reader.files]
        inodes = {entry.key[1] for entry in files}
        away = {inode: [*saved] for inode, saved in reader.saved.items() if inode not in inodes}
        reader.problems = {}
        rotated, _ = await self._in_folders(
            {os.path.dirname(lies(path)) for paths in away.values() for path in paths}, set(away)
        )
        if reader.spent:
            return False
        for entry in sorted(rotated, key=lambda entry: entry.changed):
            if entry.path != plain(entry.path) or entry.key in reader.files:
                continue  # what is packed is looked at when a file is at its path again
            paths = away[entry.key[1]]
            former = next((path for path in self._settings.paths if is_rotated(entry.path, path)), paths[-1])
            if await reader.follow(entry, rotated_from=former, saved_only=True) and entry.path not in paths:
                log.info(Log.FILE_ROTATED, input=self._name, path=former, now=entry.path)
        opened = True
        for entry in seen:
            if backlog.is_new(entry.path):
                continue  # a look takes up so many of these as it may
            if await backlog.resume(entry):
                for file in reader.files.values():  # what lies between a rotated file and a saved one was seen
                    if file.rotated_from == entry.path:
                        file.left = max(file.left, entry.changed)
            elif entry.path in reader.problems:
                opened = False
            elif entry.path not in backlog.seen_paths and await reader.follow(entry, at_end=True):
                backlog.seen_paths.add(entry.path)
        return opened and not reader.spent

    async def _turn(self) -> bool:
        """Look once, and read what is new. True when there is more to read at once."""
        reader, backlog = self._reader, self._backlog
        files, reader.problems = await reader.in_thread(backlog.seen)
        backlog.look()
        seen = {entry.key: entry for entry in files}
        await self._find_rotated(seen)
        reader.look(seen)
        begun = {entry.path for entry in files if entry.size}
        caught_up = await backlog.go_on()
        more = False
        for file in sorted(reader.files.values(), key=lambda file: not file.rotated_from):
            if await backlog.comes_after(file.rotated_from or file.path):
                file.behind = file.behind or 1
            elif await reader.read(file, seen.get(file.key)):
                more = True
                if file.rotated_from:
                    backlog.behind |= {file.rotated_from, *origins(file.path)}
            elif file.rotated_from in begun:
                reader.round_off(file)
        more |= await backlog.take_up([entry for entry in files if entry.key not in reader.files], caught_up)
        more |= bool(backlog.earlier)
        reader.expire()
        await self._finish(seen)
        reader.report()
        self._looked = True
        return more

    async def _find_rotated(self, seen: dict[Key, Seen]) -> None:
        """Give files that have left their path their new one; ``seen`` gets those that were overlooked. A file of which
        it is not known whether it has left, or for where, has not."""
        missing = {file.key: file.path for file in self._reader.files.values() if not file.rotated_from}
        missing |= {key: path for key, (path, _) in self._reader.unopened.items()}
        for key, path in list(missing.items()):
            try:
                if key not in seen:
                    if (entry := await self._reader.in_thread(still, path, key)) is None:
                        continue
                    seen[key] = entry
            except OSError as error:
                self._reader.problems[path] = error.strerror or str(error)
            del missing[key]
        moved: dict[Key, Seen] = {}
        if missing:
            folders = {os.path.dirname(lies(path)) for path in missing.values()}
            entries, unread = await self._in_folders(folders, {key[1] for key in missing})
            moved = {entry.key: entry for entry in entries}
            for key, path in list(missing.items()):
                if os.path.dirname(lies(path)) in unread:
                    changed = (
                        self._reader.unopened[key][1] if key in self._reader.unopened else self._reader.files[key].left
                    )
                    self._between[path] = min(changed, self._between.get(path, changed))
                    del missing[key]
        await self._follow_unopened(missing, moved)
        for key, file in self._reader.files.items():
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
            file.lost = entry is None
            if file.lost:  # packed, perhaps, and others after it
                self._reader.gone.setdefault(file.rotated_from, None)
            file.left = entry.changed if entry else file.changed
        await self._follow_between(seen)

    async def _follow_unopened(self, missing: Mapping[Key, str], moved: Mapping[Key, Seen]) -> None:
        """Take up files that have left their path before there was a descriptor for them."""
        for key in [key for key in missing if key in self._reader.unopened]:
            path, _ = self._reader.unopened[key]
            if key in moved:
                if await self._reader.follow(moved[key], rotated_from=path):
                    log.info(Log.FILE_ROTATED, input=self._name, path=path, now=moved[key].path)
            else:
                del self._reader.unopened[key]
                reason = "it went before it could be opened; its lines are lost"
                log.warning(Log.FILE_ROTATED, input=self._name, path=path, now=None, reason=reason)

    async def _in_folders(self, folders: Iterable[str], inodes: set[int]) -> tuple[list[Seen], set[str]]:
        """The files with one of ``inodes`` in ``folders``, and the folders that cannot be read."""
        files: list[Seen] = []
        unread: set[str] = set()
        self._reader.spent = False
        for folder in folders:
            try:
                files += await self._reader.in_thread(in_folder, folder, inodes)
            except OSError as error:
                self._reader.problems[folder] = error.strerror or str(error)
                unread.add(folder)
                self._reader.spent |= error.errno in SPENT
        return files, unread

    async def _follow_between(self, seen: Mapping[Key, Seen]) -> None:
        """Take up files that came to a path and left it between two looks, after one that was seen there."""
        lingering = [file for file in self._reader.files.values() if file.rotated_from and not file.finished]
        fresh = {
            entry.path for entry in seen.values() if entry.path in self._reader.gone or self._backlog.is_new(entry.path)
        }
        for path in (
            ({file.rotated_from for file in lingering} | set(self._between)) - self._backlog.earlier.keys() - fresh
        ):
            lefts = [file.left for file in lingering if file.rotated_from == path]
            left = self._between.get(path, max(lefts, default=0))
            try:
                origin = await self._reader.in_thread(lies, path)
                since = await self._reader.in_thread(
                    rotated_since, origin, left, await self._backlog.names(os.path.dirname(origin))
                )
            except OSError as error:
                self._reader.problems[os.path.dirname(path)] = error.strerror or str(error)
                self._between[path] = left
                continue
            self._between.pop(path, None)
            files = [entry for entry in since if entry.key not in self._reader.files and entry.key not in seen]
            for content in await self._backlog.positions(path, files):
                if not content.done:
                    await self._reader.follow(content.seen, rotated_from=path, reached=content.reached)

    async def _finish(self, seen: Mapping[Key, Seen]) -> None:
        """Rotated files that will not grow any more: their last line is an event, and those out of sight are done."""
        replaced = {entry.path for entry in seen.values()}
        for key, file in list(self._reader.files.items()):
            if (
                not file.rotated_from
                or file.finished
                or file.waits
                or file.behind
                or file.rotated_from in self._backlog.unread
            ):
                continue
            deleted = key not in seen and (file.descriptor is None or not os.fstat(file.descriptor).st_nlink)
            idle = asyncio.get_running_loop().time() - file.grown
            # Taken up at start under the very path of its saved position, it had been rotated away before that.
            over = deleted or file.rotated_from in replaced or file.rotated_from == file.path
            if idle >= (self._linger if over else FORSAKEN_SECONDS):
                await self._reader.end(file)
                self._reader.close_file(file)
                file.finished = True
                if key not in seen:
                    del self._reader.files[key]
                    self._reader.save(file.committed())
