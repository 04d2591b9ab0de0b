"""Looking at the file system for ``tail.py``: which files there are, and which file one is.

A file is known by its inode and its fingerprint, not by its path. The fingerprint of a position is the hex digest
(SHA-256, first 16 bytes) of the file's first ``min(SPAN, position)`` bytes. It covers only bytes before the position,
so it stays true while the file grows, and the position says how long the fingerprinted span is.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import re
import stat
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from vedette.inputs import globs
from vedette.inputs.archives import SUFFIXES
from vedette.inputs.condition import WORKS, Condition, failing, waiting
from vedette.model.event import FilePosition
from vedette.system.within import resolved

SPAN = 1024
"""Bytes of a file that its fingerprint covers at most."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
"""Names that a glob finds but that hold no lines."""

_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_ENDLESS = frozenset({errno.ELOOP, errno.ENAMETOOLONG})
"""Error numbers of links that lead in a circle or too far."""
GONE = _MISSING | _ENDLESS
"""Error numbers by which nothing is there; any other leaves that open."""

ABSENT = "no file matches yet"
REPLACED = "another file has taken its place"
PACKED = "it is compressed, and no file is there of which it is a rotated part"
IRREGULAR = "it is not a regular file"
ALL_IRREGULAR = "what it matches are no regular files"
PRIVATE = "it is the agent's own: its data folder, configuration, keys, passwords and alerts are not read as logs"
HARMLESS = frozenset({ABSENT, REPLACED, PACKED, IRREGULAR, *map(os.strerror, GONE)})
"""Why nothing is read at a path, where nothing is withheld."""
WRONG = frozenset({IRREGULAR, *map(os.strerror, _ENDLESS)})
"""Of these what is a fault at a path of the configuration; where a glob finds it, anybody may have put it there."""
MAX_LISTED = 1_000_000
"""Names of a folder among which rotated files are looked for: some 100 MB."""
REASONS = 3
"""Paths that a condition names."""

_NUMBER = r"[.\-_]\d[\d.\-_T]*"
_MARKED = re.compile(_NUMBER)

Key = tuple[int, int]
"""Device and inode."""

IsPrivate = Callable[[int], bool]
"""Whether an open file, by its descriptor, is the agent's own. Raises OSError."""


class Seen(NamedTuple):
    """A regular file as one look found it."""

    path: str
    key: Key
    size: int
    changed: int
    """Modification time in ns."""
    party: int | str
    """Who has turns with it: the user whose it is (``globs.Match``); a path of the configuration has its own."""


def _seen(path: str, status: os.stat_result, party: int | str | None = None) -> Seen:
    key = status.st_dev, status.st_ino
    return Seen(path, key, status.st_size, status.st_mtime_ns, status.st_uid if party is None else party)


class Look(NamedTuple):
    """The files at the configured paths at one moment."""

    files: list[Seen]
    """Each file once, however many paths lead to it; the one changed longest ago first."""
    problems: dict[str, str]
    """By path: why nothing is read there."""


def fingerprint(head: bytes, position: int) -> str:
    """Return the fingerprint at ``position`` of a file whose first bytes are ``head``."""
    return hashlib.sha256(head[: min(SPAN, position)]).hexdigest()[:32]


def look(patterns: Collection[str]) -> Look:
    """The files that ``patterns`` (paths or globs, ``**`` too) lead to. Raises nothing.

    A folder that cannot be read shows no files: what was there before is then to be looked for by ``still``. So is
    what was there before more files came than ``globs.MOST``.
    """
    files: dict[Key, Seen] = {}
    problems: dict[str, str] = {}
    for pattern in patterns:
        magic = glob.has_magic(pattern)
        paths: Sequence[tuple[str, int | str, os.stat_result | None]] = [(pattern, pattern, None)]
        if magic:
            beyond = set[str]()
            paths = sorted(globs.matches(pattern, beyond))
            reason = f"more than {globs.MOST} files or folders of one user are there: the others are not begun"
            problems.update((_shown(folder), reason) for folder in beyond)
        if not paths:
            problems[pattern] = _unlisted(pattern) or ABSENT
        reasons = set[str]()
        for path, party, status in paths:
            name = _shown(path)
            try:
                if status is None or stat.S_ISLNK(status.st_mode):
                    status = os.stat(path)
            except OSError as error:
                problems[name] = error.strerror or str(error)
            except ValueError:
                problems[name] = "its name has a NUL"
            else:
                if magic and path.endswith(COMPRESSED):
                    problems[name] = PACKED
                elif stat.S_ISREG(status.st_mode) and name != path:  # a position is stored as UTF-8
                    problems[name] = "its name is not UTF-8"
                elif stat.S_ISREG(status.st_mode):
                    seen = _seen(path, status, party)
                    first = files.setdefault(seen.key, seen)
                    own = not magic or seen.party == status.st_uid  # others may have put links to it
                    if own and first is not seen and first.party not in patterns:
                        files[seen.key] = first._replace(party=seen.party)
                elif magic and stat.S_ISDIR(status.st_mode):
                    continue
                else:
                    problems[name] = IRREGULAR
            reasons.add(problems.get(name, ""))
        if magic and reasons == {IRREGULAR}:
            problems[pattern] = ALL_IRREGULAR
    return Look(sorted(files.values(), key=lambda seen: seen.changed), problems)


def _shown(path: str) -> str:
    return path if path.isascii() else path.encode(errors="backslashreplace").decode()


def condition(problems: Mapping[str, str], paths: Collection[str], *, there: bool) -> Condition:
    """Return the condition of an input of ``paths``; ``problems``: why nothing is read at a path; ``there``: some file
    is."""
    denied = {
        path: reason
        for path, reason in problems.items()
        if reason not in HARMLESS or (reason in WRONG and path in paths)
    }
    shown = denied or problems
    reason = "; ".join(f"{path}: {shown[path]}" for path in [*shown][:REASONS])
    if len(shown) > REASONS:
        reason += f"; and {len(shown) - REASONS} more"
    return failing(reason) if denied else WORKS if there else waiting(reason or ABSENT)


def _unlisted(pattern: str) -> str:
    """Why the folder where ``pattern`` begins cannot be read; empty when it can, or is not there."""
    folder = os.path.dirname(pattern[: next(i for i, c in enumerate(pattern) if c in "*?[")])
    try:
        os.close(os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        return "" if error.errno in _MISSING else error.strerror or str(error)
    return ""


def still(path: str, key: Key) -> Seen | None:
    """The file ``key`` when it is at ``path`` still; None when it is not. Takes no descriptor. Raises OSError when
    that is unknown."""
    try:
        seen = _seen(path, os.stat(path))
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    return seen if seen.key == key else None


@contextlib.contextmanager
def _entries(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Yield the entries of a folder; none when it is not there. Raises OSError when it cannot be read."""
    try:
        entries = os.scandir(folder or ".")
    except OSError as error:
        if error.errno not in GONE:
            raise
        yield iter(())
    else:
        with entries:
            yield entries


def in_folder(folder: str, inodes: set[int]) -> list[Seen]:
    """The files with one of ``inodes`` in ``folder``. Raises OSError when it is there and cannot be read."""
    files = []
    with _entries(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError, ValueError):
                if entry.inode() in inodes and entry.is_file(follow_symlinks=False):
                    entry.name.encode()
                    files.append(_seen(os.path.join(folder, entry.name), entry.stat(follow_symlinks=False)))
    return files


def lies(path: str) -> str:
    """Where the file of ``path`` lies: rotation happens there, not at a link to it."""
    return resolved(path) if os.path.islink(path) else path


def is_rotated(path: str, origin: str) -> bool:
    """Whether ``path`` is what rotation makes of ``origin``: ``a.log.1``, ``a.log-20241120``, ``a.2024-11-20.log``."""
    (folder, name), (origin_folder, whole) = os.path.split(path), os.path.split(origin)
    stem, extension = os.path.splitext(whole)
    names = f"{re.escape(whole)}{_NUMBER}|{re.escape(stem)}{_NUMBER}{re.escape(extension)}"
    return folder == origin_folder and re.fullmatch(names, name) is not None


def is_part(path: str, origin: str) -> bool:
    """Whether ``path``, compressed or not, surely is a rotated part of ``origin``: ``app-2.log`` may be a file beside
    ``app.log``, but ``app-2.log.gz`` is none, and ``app-20261123.log`` neither."""
    whole = plain(path)
    sure = whole != path or path.startswith(origin) or len(_number(path, origin)) > 5
    return sure and is_rotated(whole, origin)


def belongs(path: str, patterns: Iterable[str]) -> bool:
    """Whether ``path`` is what one of ``patterns`` leads to, or what rotation makes of that, compressed or not."""
    folder, name = os.path.split(plain(path))
    stem, extension = os.path.splitext(name)
    before = (name, re.sub(f"{_NUMBER}$", "", name), re.sub(f"{_NUMBER}$", "", stem) + extension)
    origins = {os.path.join(folder, former) for former in before}
    return any(
        pattern in origins or (glob.has_magic(pattern) and any(globs.leads(pattern, origin) for origin in origins))
        for pattern in patterns
    )


def plain(path: str) -> str:
    """The name of a rotated file without that of its compression."""
    stem, suffix = os.path.splitext(path)
    return stem if suffix in SUFFIXES else path


def origins(path: str) -> set[str]:
    """Return the paths of which rotation may have made ``path``."""
    folder, name = os.path.split(plain(path))
    stem, extension = os.path.splitext(name)
    return {
        os.path.join(folder, part[: match.start()] + rest)
        for part, rest in ((name, ""), (stem, extension))
        for match in re.finditer(rf"(?={_NUMBER}$)", part)
    }


def altered(folder: str) -> int:
    """Time of the last change of ``folder`` in ns; 0 when it is not there. Raises OSError."""
    try:
        return os.stat(folder or ".").st_ctime_ns
    except OSError as error:
        if error.errno not in GONE:
            raise
        return 0


def listed(folder: str) -> list[str]:
    """Return the names in ``folder`` that rotation may have given, sorted, ``MAX_LISTED`` at most. Raises OSError when
    it is there and cannot be read."""
    with _entries(folder) as entries:
        return sorted(islice((entry.name for entry in entries if _MARKED.search(entry.name)), MAX_LISTED))


def _alike(origin: str, names: Sequence[str]) -> Iterator[str]:
    """Paths in the folder of ``origin``, whose sorted ``names`` these are, that may be what rotation makes of it."""
    folder, whole = os.path.split(origin)
    stem = os.path.splitext(whole)[0]
    for mark in ".-_":
        for at in range(bisect_left(names, stem + mark), bisect_left(names, stem + chr(ord(mark) + 1))):
            if names[at] != whole:
                yield os.path.join(folder, names[at])


def _regular(path: str) -> Seen | None:
    """The regular file at ``path``, which is no link; None when there is none or its name is not UTF-8."""
    with contextlib.suppress(OSError, ValueError):
        path.encode()
        status = os.lstat(path)
        return _seen(path, status) if stat.S_ISREG(status.st_mode) else None
    return None


def predecessors(origin: str, names: Sequence[str]) -> list[Seen]:
    """Return what rotation has made of ``origin``, also compressed, the oldest first: by numbers or dates in the names;
    ``names``: those of its folder, ``listed``.

    The highest number is the oldest, unless each file is younger than those of lower numbers. A file that is there in
    both forms is there once, as it was.
    """
    paths = {path for path in _alike(origin, names) if is_rotated(plain(path), origin)}
    numbers: dict[str, str] = {}
    files: list[Seen] = []
    for path in sorted(paths):
        packed = path != plain(path)
        if not (packed and plain(path) in paths) and is_part(path, origin) and (file := _regular(path)) is not None:
            files.append(file)
            numbers[path] = _number(plain(path), origin)
    if all(len(number) < 6 and number.isdigit() for number in numbers.values()):
        files.sort(key=lambda file: -int(numbers[file.path]))
        rising = len(files) > 1 and all(first.changed > second.changed for first, second in pairwise(files))
        return files[::-1] if rising else files
    if all(len(number) >= 6 for number in numbers.values()):
        return sorted(files, key=lambda file: numbers[file.path])
    return sorted(files, key=lambda file: file.changed)


def _number(path: str, origin: str) -> str:
    """Return the number or date that rotation has put into the name of ``origin``, without what separates it."""
    stem = os.path.splitext(origin)[0]
    begun = len(origin) if path.startswith(origin) else len(stem)
    match = re.match(_NUMBER, path[begun:])
    return re.sub(r"[.\-_T]", "", match[0]) if match else ""


def rotated_since(origin: str, changed: int, names: Sequence[str]) -> list[Seen]:
    """Files that ``is_rotated`` takes for former ones at ``origin``, last changed at ``changed`` ns or later, in the
    order of their last change; ``names``: those of its folder, ``listed``."""
    files = [_regular(path) for path in _alike(origin, names) if is_rotated(path, origin)]
    return sorted((file for file in files if file and file.changed >= changed), key=lambda file: file.changed)


def open_same(path: str, key: Key, private: IsPrivate) -> int:
    """A descriptor of the file ``key`` at ``path``. Raises OSError, also when another file is there by now, or one of
    the agent's own."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if _seen(path, os.fstat(descriptor)).key != key:
            raise OSError(errno.ESTALE, REPLACED, path)
        if private(descriptor):
            raise OSError(errno.EACCES, PRIVATE, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def resume(descriptor: int, saved: Iterable[FilePosition]) -> FilePosition | None:
    """The furthest of ``saved`` that is a position in this file. Raises OSError."""
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, SPAN, 0)
    fitting = (position for position in saved if position.position <= size and fits(head, position))
    return max(fitting, key=lambda position: position.position, default=None)


def fits(head: bytes, saved: FilePosition) -> bool:
    """Whether a content that begins with ``head``, of SPAN bytes where it has them, is the one of this position."""
    enough = len(head) >= min(SPAN, saved.position)
    return enough and saved.fingerprint == fingerprint(head, saved.position)


def read_on(descriptor: int, head: bytes, position: int, size: int) -> bytes | None:
    """Up to ``size`` bytes from ``position``; None when the file does not begin with ``head`` any more, or is shorter.

    That is looked at after reading: what was read is then no mixture of two contents. Raises OSError.
    """
    data = os.pread(descriptor, size, position)
    intact = os.fstat(descriptor).st_size >= position and os.pread(descriptor, len(head), 0) == head
    return data if intact else None
