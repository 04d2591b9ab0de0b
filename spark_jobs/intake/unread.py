"""Landed files that could not be read, by what they were then: one that has changed since is tried again.

A file that is copied in place (``scp``) is met half, or empty, and Spark takes each name once. So every query notes in
``unread.json``, beside Spark's own record, the size and time of each file that it could not read, and how often it was
tried, before the rest of the batch is written. It is lost with that record only, and then all files are read again; a
damaged one is refused by name, as the files in it would stay unread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from spark_jobs.intake.landing import File
from spark_jobs.tables import storage

NAME = "unread.json"

MAX_FILES = 10_000
"""That are looked at again; of more, the last ones noted."""


def note(checkpoint: str, files: Iterable[File]) -> None:
    """Note that ``files`` could not be read as they were, or were gone."""
    if bad := list(files):
        notes = _read(checkpoint)
        for file in bad:
            stamp = file.stamp if storage.exists(file.path) else (0, 0)
            _, _, tries = notes.pop(file.path, (0, 0, 0))
            notes[file.path] = (*stamp, tries + 1)
        _store(checkpoint, notes)


def changed(checkpoint: str) -> list[tuple[File, int]]:
    """The files noted that are of another size or time now, as they are, and how often they have been tried; not those
    that are empty or gone."""
    files = []
    for path, (*stamp, tries) in _read(checkpoint).items():
        now = storage.stamp(path)
        if now is not None and now[0] and list(now) != stamp:
            files.append((File(path, datetime.fromtimestamp(now[1] / 1000, UTC), now[0]), tries))
    return files


def tries(checkpoint: str) -> dict[str, int]:
    """How often the files noted have been tried, by path."""
    return {path: tries for path, (_, _, tries) in _read(checkpoint).items()}


def forget(checkpoint: str, file: File) -> None:
    """Note that ``file`` has been read. A note that is full stays so, as others may have given way to it."""
    notes = _read(checkpoint)
    _, _, tries = notes.pop(file.path, (0, 0, 0))
    if len(notes) + 1 >= MAX_FILES:
        notes[file.path] = (*file.stamp, tries)
    _store(checkpoint, notes)


def _read(checkpoint: str) -> dict[str, tuple[int, int, int]]:
    path = f"{checkpoint}/{NAME}"
    try:
        notes = json.loads(storage.text(path) or "{}")
        return {file: (size, time, tries) for file, (size, time, tries) in notes.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: cannot be read ({error}); restore it, or delete {checkpoint} to read again all that has landed"
        ) from error


def _store(checkpoint: str, notes: dict[str, tuple[int, int, int]]) -> None:
    storage.store(f"{checkpoint}/{NAME}", json.dumps(dict(list(notes.items())[-MAX_FILES:])))
