"""Which paths a glob leads to, and whose each of them is. Looks at names and links, opens no file.

As Python's ``glob`` finds them, with two differences. ``**`` goes through links to folders only where root or the
agent's user has put them there, once to each folder: two links that lead back would have more paths than can be listed.
And whatever lies there, it comes to an end: folders may be as deep as the kernel lets a path lead, and of one user's
paths ``MOST`` are taken, those that the folders list first.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import NamedTuple

MOST = 20_000
"""Folders of one user that each part of a glob leads to, and files that its last one does."""


class Match(NamedTuple):
    """A path that a glob leads to."""

    path: str
    user: int
    """Whose it is: who owns the first of what was found on the way that is not root's; 0 where all of it is. Of a link
    that is who has put it there, whatever it leads to."""
    status: os.stat_result
    """Of the link, where it is one."""


def matches(pattern: str, beyond: set[str]) -> list[Match]:
    """What ``pattern`` leads to; ``beyond`` gets the folders that hold more of a user than is taken. Raises nothing."""
    parts = PurePath(pattern).parts
    magic = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    begin = os.path.join("", *parts[:magic])
    *way, last = (*parts[magic:], "*") if parts[-1] == "**" else parts[magic:]
    folders = {begin: 0}
    for part in way:
        if part == "**":
            folders = _below(folders, begin, beyond)
        else:
            folders = {path: user for path, user, _ in _named(folders, part, beyond, way=True)}
    return list(_named(folders, last, beyond))


def _below(folders: dict[str, int], begin: str, beyond: set[str]) -> dict[str, int]:
    """These folders and all below them, behind ``begin`` whatever it is, behind other links if they are trusted."""
    reached: dict[str, int] = {}
    through = set[tuple[int, int]]()
    _trusted(begin or ".", through)
    left = list(folders.items())
    taken = Counter[int]()
    while left:
        folder, user = left.pop()
        if folder in reached:
            continue
        reached[folder] = user
        if folder in folders and folder != begin and os.path.islink(folder) and not _trusted(folder, through):
            continue
        with suppress(OSError, ValueError), os.scandir(folder or ".") as entries:
            for entry in entries:
                if not _fits(entry.name, "**"):
                    continue
                path = os.path.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False) or (entry.is_dir() and _trusted(path, through)):
                    whose = user or entry.stat(follow_symlinks=False).st_uid
                    if taken[whose] >= MOST:
                        beyond.add(folder)
                        continue
                    taken[whose] += 1
                    left.append((path, whose))
    return reached


def _trusted(link: str, through: set[tuple[int, int]]) -> bool:
    """Whether nobody but root or the agent's user can have put it there, and its folder is none of ``through``, where
    it is from now on."""
    try:
        if os.lstat(link).st_uid not in (0, os.geteuid()):
            return False
        status = os.stat(link)
    except (OSError, ValueError):
        return False
    before = len(through)
    through.add((status.st_dev, status.st_ino))
    return len(through) > before


def _named(folders: dict[str, int], part: str, beyond: set[str], *, way: bool = False) -> Iterator[Match]:
    """What is in ``folders`` and fits one part of a glob; ``way``: what may be a folder."""
    magic = glob.has_magic(part)
    taken = Counter[int]()
    for folder, user in folders.items():
        before = os.path.join(folder, "")
        for name in _fitting(folder, part) if magic else [part]:
            if user and taken[user] >= MOST:
                beyond.add(folder)
                break
            path = before + name
            try:
                status = os.lstat(path)
            except (OSError, ValueError):
                continue
            whose = user or status.st_uid
            if way and not (stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                continue
            if taken[whose] >= MOST:
                beyond.add(folder)
                continue
            taken[whose] += 1
            yield Match(path, whose, status)


def _fitting(folder: str, part: str) -> Iterator[str]:
    """Names in ``folder``, as it lists them: there may be more than memory holds."""
    with suppress(OSError, ValueError), os.scandir(folder or ".") as entries:
        names = (entry.name for entry in entries)
        yield from (name for name in names if fnmatch.fnmatchcase(name, part) and _fits(name, part))


def leads(pattern: str, path: str) -> bool:
    """Whether ``matches`` finds ``path`` where it is there."""
    parts = PurePath(pattern).parts
    at = _passing(parts, {0})
    for name in PurePath(path).parts:
        fitting = (i for i in at if i < len(parts) and fnmatch.fnmatchcase(name, parts[i]) and _fits(name, parts[i]))
        at = _passing(parts, {i if parts[i] == "**" else i + 1 for i in fitting})
    return len(parts) in at


def _passing(parts: Sequence[str], at: set[int]) -> set[int]:
    """These places in a glob, and those behind a ``**`` there, which stands for no folder, too."""
    for i, part in enumerate(parts):
        if part == "**" and i in at:
            at.add(i + 1)
    return at


def _fits(name: str, part: str) -> bool:
    """Whether a part of a glob may mean ``name``: a hidden one only where it says so."""
    return not name.startswith(".") or part.startswith(".")
