"""A path or a name from outside, as a place below one folder.

``within`` is for whatever a request, a document, a message or an archive calls a path. It takes ``/`` between names,
and refuses what is empty, absolute, ``.`` or ``..``, holds a NUL or another control character, is too long, or leaves
the folder through a link. ``is_path`` says the same without a folder, but for links. Nothing is touched.
``resolved`` is for a path in a folder of others, whose links may be any.

``is_name`` is for what has a name of its own: an agent, a fleet, a group, an operator. Such a name is a file's name
wherever it comes to lie, and never that of a hidden file, under which files are written before they are in place.

The answer holds as long as nobody else can put links into the folder: that is its owner's to see to.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeGuard

MAX_NAME, MAX_PATH = 255, 1024
"""Bytes in UTF-8: NAME_MAX of Linux's file systems, and of a whole path below the folder."""
NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}"
"""Of an agent, a fleet, a group: a regular expression."""
_NAME = re.compile(NAME)
_SHOWN = 80


def within(folder: Path, path: str) -> Path:
    """``path`` below ``folder``, never ``folder`` itself; it need not exist. Raises ValueError."""
    _check(path)
    place = folder / path
    try:
        inside = place.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # links that go round, or a path that is too long from the root on
        raise ValueError(f"{path[:_SHOWN]!r}: {error}") from error
    if not inside:
        raise ValueError(f"{path[:_SHOWN]!r}: a link leads out of the folder")
    return place


def resolved(path: str | Path) -> str:
    """Where the links of ``path`` lead; ``path`` itself where they are far more than the kernel follows."""
    try:
        return os.path.realpath(path)
    except RecursionError:
        return str(path)


def identity(path: str) -> object:
    """What two paths have in common that lead to one file, also by links: its inode, else where the links lead."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return resolved(path)
    return status.st_dev, status.st_ino


def is_name(value: object, longest: int = 128) -> TypeGuard[str]:
    """Whether ``value`` is a text that ``NAME`` matches, of at most ``longest`` characters."""
    return isinstance(value, str) and len(value) <= longest and _NAME.fullmatch(value) is not None


def is_path(value: object) -> TypeGuard[str]:
    """Whether ``value`` is a text that ``within`` takes, as far as can be said without a folder."""
    try:
        _check(value)
    except ValueError:
        return False
    return True


def _check(path: object) -> None:
    """Raises ValueError."""
    if not isinstance(path, str):
        raise ValueError("expects a text")
    if len(path) > MAX_PATH or len(_bytes(path)) > MAX_PATH:
        raise ValueError(f"{path[:_SHOWN]!r}…: longer than the {MAX_PATH} bytes that a path may have")
    if any(letter < " " or "\x7f" <= letter < "\xa0" for letter in path):
        raise ValueError(f"{path[:_SHOWN]!r}: a control character in it")
    for name in path.split("/"):
        if name in ("", ".", ".."):
            raise ValueError(f"{path[:_SHOWN]!r}: expects names below the folder, without '.', '..' or an empty one")
        if len(_bytes(name)) > MAX_NAME:
            raise ValueError(f"{path[:_SHOWN]!r}: a name longer than {MAX_NAME} bytes")


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text[:_SHOWN]!r}: not a text in UTF-8") from error
