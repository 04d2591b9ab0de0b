"""What lies before the files that one ``file`` input follows: earlier files of a path, archives, new files.

Promise: what rotation made of a path before it was seen first, plain or compressed (``archives.py``), is read before
it, the oldest first, with positions of its own. A content that has a position already, whatever its inode, goes on
there: so what was compressed while the agent was down, or after it was read, comes once. Where several begin alike,
none of them is left out.

Where a glob leads to such parts, too, they are no files of their own as long as the file of their path is to be taken
up, nor after that those that were there then.

Each file and archive is read for a turn, then the others are; a look takes up NEW_FILES. What is older than a file of
the same path, by rotation, holds back that file alone, until it is read to its end.

Turns go from party to party (``Seen.party``), that with the longest rest first: names and times of files, which their
owner chooses, decide among his own alone. So do archives, of which one of a party is unpacked at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

import structlog

from vedette.inputs import globs
from vedette.inputs.archives import Damaged
from vedette.inputs.base import Surroundings
from vedette.inputs.file_reader import FileReader
from vedette.inputs.files import (
    GONE,
    PACKED,
    REPLACED,
    Key,
    Look,
    Seen,
    altered,
    is_part,
    lies,
    listed,
    look,
    origins,
    predecessors,
)
from vedette.inputs.history import Earlier, earlier
from vedette.inputs.settings import FileInput
from vedette.model.counters import Log
from vedette.model.event import CHUNK_BYTES, FilePosition
from vedette.system.descriptors import SPENT

log = structlog.get_logger()

NEW_FILES = 100
"""Taken up by one look."""
ARCHIVES = 4
"""Unpacked at a time, one of a party: each may have a window of 32 MiB."""
MOVED = frozenset({REPLACED, *map(os.strerror, GONE)})
"""Why a file that was seen cannot be opened, where it has left its path."""


@dataclass(slots=True)
class Wait:
    """Of a path whose file is not begun."""

    since: float
    """When the look began that saw it first, by the loop's clock."""
    tried: int = 0
    """The number of its last turn; 0: it had none."""


class Backlog:
    """What of one input's paths is to be read before, or is not begun."""

    def __init__(self, settings: FileInput, agent: Surroundings, reader: FileReader) -> None:
        self._settings = settings
        self._name = settings.name
        self._agent = agent
        self._reader = reader
        self.seen_paths: set[str] = set()
        """Paths at which a file was seen, now or before the start: what rotation made of them was not overlooked."""
        self.behind: set[str] = set()
        """Paths of which this look has left something older: what a new file holds comes after that."""
        self.unpacked: dict[int | str, str] = {}
        """By party: the archive that is being read."""
        self.earlier: dict[str, AsyncGenerator[bool]] = {}
        """By path: what rotation has made of it, being read, a turn at a time. Nothing at the path is read before."""
        self.unread: set[str] = set()
        """Paths whose file waits for a look to take it up, or for what is older."""
        self._waits: dict[str, Wait] = {}
        """By path of a file that is not followed, in the order of first sight."""
        self._turns: dict[int | str, int] = {}
        """By party of such a file: the number of its last turn."""
        self._last_turn = 0
        self._looks = 0
        self._began = 0.0
        """When this look did."""
        self._passed: dict[Key, int] = {}
        """Rotated parts that were there when the file of their path was taken up, and their modification times."""
        self._folders: dict[str, tuple[int, list[str]]] = {}
        """What one look has listed, and when the folder had changed."""

    async def close(self) -> None:
        for steps in self.earlier.values():
            await steps.aclose()

    def look(self) -> None:
        """A look begins."""
        self._looks += 1
        self._began = asyncio.get_running_loop().time()
        self._folders.clear()
        self.behind = set()

    def seen(self) -> Look:
        """The files of the paths, but for rotated parts of others of them: those are read before these, or were. One
        that comes to a file that is followed is none of what was read before that, and stays. Blocks."""
        files, problems = look(self._settings.paths)
        followed = self._reader.files
        self._passed = {entry.key: entry.changed for entry in files if self._passed.get(entry.key) == entry.changed}
        rest = [entry for entry in files if entry.key not in self._passed]
        parts = [(entry, of) for entry in rest if entry.key not in followed and (of := origins(entry.path))]
        packed = [(path, of) for path, reason in problems.items() if reason == PACKED and (of := origins(path))]
        waiting = set[Key]()
        if parts or packed:
            there = {lies(entry.path): entry for entry in rest}
            for path, of in packed:
                if of & (there.keys() | self.seen_paths):
                    del problems[path]
            for entry, of in parts:
                for whole in [there[path] for path in of & there.keys() if is_part(entry.path, path)]:
                    file = followed.get(whole.key)
                    if file is None and (self._settings.from_start or whole.path in self._reader.gone):
                        waiting.add(entry.key)
                    elif file is not None and not file.settled and entry.changed <= whole.changed:
                        self._passed[entry.key] = entry.changed
        for file in followed.values():
            file.settled = True
        return Look([entry for entry in files if entry.key not in waiting | self._passed.keys()], problems)

    def is_new(self, path: str) -> bool:
        """Whether what rotation has made of ``path`` is to be read before it, since no file was seen there."""
        return self._settings.from_start and path not in self.seen_paths

    async def resume(self, seen: Seen) -> bool:
        """Take up a file at a path where its content is the saved one. False when it is not, or cannot be read yet."""
        if seen.key[1] not in self._reader.saved or not await self._reader.follow(seen, saved_only=True):
            return False
        self._reader.gone.pop(seen.path, None)
        self.seen_paths.add(seen.path)
        return True

    async def comes_after(self, path: str) -> bool:
        """Whether this look has left something older than what is at ``path``."""
        return bool(self.behind) and (path in self.behind or await self._reader.in_thread(lies, path) in self.behind)

    async def names(self, folder: str) -> list[str]:
        """The sorted names in ``folder``, listed once a look and when it has changed since. Raises OSError."""
        changed = await self._reader.in_thread(altered, folder)
        if folder not in self._folders or self._folders[folder][0] != changed:
            self._folders[folder] = changed, await self._reader.in_thread(listed, folder)
        return self._folders[folder][1]

    # --- new files

    def not_begun(self) -> dict[str, float]:
        """By path of a file that waits, for its turn or for what is older: for how many seconds."""
        now = asyncio.get_running_loop().time()
        waits = {path: self._waits.get(path) for path in self.unread | self.earlier.keys()}
        return {path: now - wait.since for path, wait in waits.items() if wait is not None}

    def _by_turns(self, files: list[Seen], caught_up: set[str]) -> list[Seen]:
        """One of each party, that with the longest rest first, then another of each; of a party first those of which
        all is read that lies before, then those that were not tried or are longest ago, of known paths, seen first."""
        paths = {entry.path for entry in files}
        self._waits = {path: wait for path, wait in self._waits.items() if path in paths}
        for entry in files:
            self._waits.setdefault(entry.path, Wait(self._began))
        at = {path: number for number, path in enumerate(self._waits)}

        def of_party(entry: Seen) -> tuple[bool, int, bool, int]:
            path = entry.path
            return path not in caught_up, self._waits[path].tried, path not in self.seen_paths, at[path]

        rounds = Counter[int | str]()
        order: list[tuple[int, int, int, Seen]] = []
        for entry in sorted(files, key=of_party):
            order.append((rounds[entry.party], self._turns.get(entry.party, 0), len(order), entry))
            rounds[entry.party] += 1
        self._turns = {party: turn for party, turn in self._turns.items() if party in rounds}
        return [entry for *_, entry in sorted(order)]

    async def take_up(self, files: list[Seen], caught_up: set[str]) -> bool:
        """Take up so many of ``files``, which are not followed, as a look may; ``caught_up``: paths of which all is
        read that lies before. True when there is more to read at once."""
        reader = self._reader
        turns, more = NEW_FILES, False
        unread = set[str]()
        followed = Counter(file.party for file in reader.files.values())
        for entry in await reader.in_thread(self._by_turns, files, caught_up):
            path, tried = entry.path, self._waits[entry.path].tried
            if entry.key in reader.files:
                continue
            if tried and not turns:
                if path in reader.reported:
                    reader.problems.setdefault(path, reader.reported[path])
                continue
            full = followed[entry.party] >= globs.MOST
            if not turns or full or path in self.earlier or await self.comes_after(path):
                unread.add(path)
                continue
            turns -= 1
            self._last_turn += 1
            self._waits[path].tried = self._turns[entry.party] = self._last_turn
            if path in reader.gone:
                resumed = await self.resume(entry)
                if resumed:
                    more |= await reader.read(reader.files[entry.key], entry)
                if resumed or path in reader.problems:
                    continue
            fresh = path in caught_up or path in reader.gone or self.is_new(path)
            if fresh and path not in caught_up and not await self._catch_up(path, entry):
                unread.add(path)
                continue
            if entry.key in reader.files:
                continue
            self.seen_paths.add(path)
            if await reader.follow(entry, reached=await self._reached(entry)):
                followed[entry.party] += 1
                more |= await reader.read(reader.files[entry.key], entry)
            elif fresh and reader.problems.get(path) in MOVED:
                self.seen_paths.discard(path)  # it was rotated away meanwhile
                if not self._settings.from_start:
                    reader.gone[path] = None
        self.unread = unread
        return more or bool(turns == 0 and unread - reader.problems.keys())

    # --- what rotation made of a path before it was seen first

    async def go_on(self) -> set[str]:
        """Give each path that is being caught up on a turn. Returns the paths that are done."""
        return {path for path in list(self.earlier) if await self._catch_up(path)}

    async def _catch_up(self, path: str, there: Seen | None = None) -> bool:
        """Give what rotation has made of ``path`` a turn. Whether all of it is read. ``there``: the file at the path,
        at its first turn."""
        if there is not None:
            self.earlier[path] = self._read_earlier(path, there)
        try:
            if not await anext(self.earlier[path], True):
                return False
        except OSError as error:
            if error.errno not in SPENT:  # the raw log's
                raise
            self._reader.problems[path] = error.strerror or str(error)
            del self.earlier[path]  # begun again by the next look, from the positions
            return False
        del self.earlier[path]
        self._reader.gone.pop(path, None)
        self.seen_paths.add(path)
        return True

    async def _read_earlier(self, path: str, there: Seen) -> AsyncGenerator[bool]:
        """Read what rotation has made of ``path``, the oldest first, each to its end; yields False after each turn.

        What was rotated away and is read already comes first: it is older. What is rotated away meanwhile comes, too.
        Raises OSError for want of a descriptor."""
        reader, inode = self._reader, there.key[1]
        origin = await reader.in_thread(lies, path)
        for file in [file for file in reader.files.values() if file.rotated_from]:
            if file.rotated_from == path or origin in origins(file.path):
                while await reader.read(file, None):
                    yield False
        rest = reader.gone.get(path)
        if rest and not any(rest.committed() in content.reached for content in await self._listed_earlier(path, inode)):
            await reader.end(rest)
        passed: set[Key] = set()
        reached = False
        while former := [
            content for content in await self._listed_earlier(path, inode) if content.seen.key not in passed
        ]:
            looks = self._looks
            reached |= any(content.reached for content in former)
            for content in former:
                while content.packed and (there.party in self.unpacked or len(self.unpacked) >= ARCHIVES):
                    yield False
                if looks != self._looks:
                    break  # it may have another name by now
                passed.add(content.seen.key)
                if content.packed:
                    async with contextlib.aclosing(self._read_archive(content, path, there.party)) as turns:
                        async for _ in turns:
                            yield False
                    continue
                if content.seen.key in reader.files:
                    continue
                if content.done:
                    if content.reached:  # of a copy it may be that of its original
                        reader.save(content.reached[-1]._replace(path=content.seen.path, inode=content.seen.key[1]))
                    continue
                if await reader.follow(content.seen, rotated_from=path, reached=content.reached):
                    file = reader.files[content.seen.key]
                    while await reader.read(file, None):
                        yield False
                    reader.round_off(file)
            if looks == self._looks:
                break
        if path in reader.gone and not reached and not self._is_truncated(path, inode):
            reason = "what was read of it before is gone from its folder; lines after its position, if any, are lost"
            log.warning(Log.FILE_ROTATED, input=self._name, path=path, now=None, reason=reason)

    async def _listed_earlier(self, path: str, inode: int) -> list[Earlier]:
        """What rotation has made of ``path``, the oldest first. Where a content was read there before, from the newest
        on that was read; where that is not there any more, all are newer, unless the file was truncated. Raises
        OSError for want of a descriptor."""
        reader = self._reader
        origin = await reader.in_thread(lies, path)
        try:
            files = await reader.in_thread(predecessors, origin, await self.names(os.path.dirname(origin)))
        except OSError as error:
            if error.errno in SPENT:
                raise
            reader.problems[os.path.dirname(path)] = error.strerror or str(error)
            return []
        former = await self.positions(path, files)
        reached = [i for i, content in enumerate(former) if content.reached]
        left = [i for i in reached if former[i].seen.key not in reader.files]
        if path not in reader.gone and not left:
            return former
        if not reached:
            return former if self._settings.from_start and not self._is_truncated(path, inode) else []
        changed = max(former[i].seen.changed for i in left or reached)
        newest = (left or reached)[-1]
        return [content for i, content in enumerate(former) if i >= newest or content.seen.changed > changed]

    def _is_truncated(self, path: str, inode: int) -> bool:
        """Whether another content is at ``path`` in the same file, or in one that was given its inode."""
        return path in self._reader.saved.get(inode, {}) or self._reader.gone.get(path) is not None

    async def positions(self, path: str, files: list[Seen]) -> list[Earlier]:
        """Where to begin in each of ``files``, which rotation has made of ``path``."""
        if not files:
            return []
        reader = self._reader
        begin = os.path.splitext(await reader.in_thread(lies, path))[0]  # of every name that rotation gives
        saved = [position for positions in reader.saved.values() for position in positions.values()]
        saved = [position for position in saved if position.path == path or position.path.startswith(begin)]
        of = [file for file in reader.files.values() if file.path == path or file.path.startswith(begin)]
        if rest := reader.gone.get(path):
            of.append(rest)
        saved += [file.committed() for file in of]
        return await reader.in_thread(earlier, path, files, saved, self._agent.private)

    async def _reached(self, seen: Seen) -> list[FilePosition]:
        """Positions in a file that may be a copy of another's content."""
        of = [path for path in origins(seen.path) if path in self.seen_paths]
        return [
            position for path in of for content in await self.positions(path, [seen]) for position in content.reached
        ]

    async def _read_archive(self, content: Earlier, path: str, party: int | str) -> AsyncGenerator[bool]:
        """Hand over what a compressed file holds; yields False after each turn. Raises OSError for want of a
        descriptor."""
        reader = self._reader
        seen = content.seen
        at = 0
        left = content.position
        file = await reader.tailed(seen, path)
        try:
            archive = await reader.in_thread(content.unpacked, self._agent.private)
        except OSError as error:
            if error.errno in SPENT:
                raise
            reason = error.strerror or str(error)
            action = "what it holds is left out"
            log.warning(Log.FILE_UNREADABLE, input=self._name, path=seen.path, reason=reason, action=action)
            return
        log.info(Log.FILE_OPENED, input=self._name, path=seen.path, position=left)
        turn = reader.turn_bytes
        with contextlib.closing(archive), self._unpacking(party, seen.path):
            while True:
                if turn <= 0:
                    turn = reader.turn_bytes
                    yield False
                await self._agent.intake.ready()
                try:
                    data = await reader.in_thread(archive.read)
                except (Damaged, OSError) as error:
                    action = f"what could be read of it, {at} bytes, is taken"
                    log.warning(Log.FILE_UNREADABLE, input=self._name, path=seen.path, reason=str(error), action=action)
                    break
                if not data and archive.ended:
                    break
                turn -= max(len(data), CHUNK_BYTES)
                at += len(data)
                skipped = min(len(data), left)
                left -= skipped
                file.skip(data[:skipped])
                file.feed(data[skipped:], asyncio.get_running_loop().time())
                await reader.hand_over(file)
        await reader.end(file)
        reader.save(file.committed())

    @contextlib.contextmanager
    def _unpacking(self, party: int | str, path: str) -> Iterator[None]:
        self.unpacked[party] = path
        try:
            yield
        finally:
            del self.unpacked[party]
