"""Copies of the lookups that people keep beside their rules: what the agent maps is a file that nobody else writes.

A page that is mapped and no longer in its file ends who reads it (SIGBUS), and who copies a lookup over another one
cuts that off first. So nothing here maps what is copied, and a copy stays until the file at its place is whole.

One caller at a time; every function blocks on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from vedette.lookup.installed import DiskShort, check_room
from vedette.lookup.layout import Header, LookupRefused, parse
from vedette.lookup.table import Lookup
from vedette.system.durable import sync_path
from vedette.system.folders import at_once

_PIECE = 1 << 20


class _Unmapped:
    """The bytes of an open file, as ``parse`` asks for them."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __len__(self) -> int:
        return os.fstat(self._file).st_size

    def __getitem__(self, span: slice) -> bytes:
        start, stop, _ = span.indices(len(self))
        return os.pread(self._file, max(0, stop - start), start)


def read_header(path: Path) -> tuple[Header, str]:
    """Header and version of a lookup that others may change meanwhile. Raises OSError, and LookupRefused."""
    with open(path, "rb", opener=at_once) as file:
        header, _, version = parse(_Unmapped(file.fileno()))
        return header, version


def shape(path: Path) -> str:
    """What a rule that asks the lookup in a file depends on when it is compiled: columns and keys, not rows; or why it
    is none. Raises OSError."""
    try:
        header, _ = read_header(path)
        return repr((header.columns, header.indexes, header.valid))
    except LookupRefused as error:
        return str(error)


def take(files: Iterable[Path], folder: Path) -> dict[Path, str]:
    """Copy into ``folder`` what is new of these lookups, each under its name; copies of others are deleted.

    A file that cannot be used is not copied. Returns by file why: an earlier copy stays in use, else an empty one,
    which is none to ask, stands before the file. Raises OSError when ``folder`` cannot take a copy: after all others
    are made where that is DiskShort.
    """
    named: dict[str, list[Path]] = {}
    for file in files:
        named.setdefault(file.name, []).append(file)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if len(named.get(old.name, ())) != 1:  # of two of a name the rule compiler takes none
            old.unlink()
    refused: dict[Path, str] = {}
    short: DiskShort | None = None
    for name, (file, *others) in named.items():
        if others:
            continue
        try:
            reason = _make(file, folder / name)
        except DiskShort as error:
            short, reason = error, str(error)
        if reason:
            refused[file] = reason
            (folder / name).touch()
    if short is not None:
        raise short
    return refused


def _make(file: Path, copy: Path) -> str:
    """Make ``copy`` one of ``file``, unless it is; return why it cannot be. Raises OSError when it cannot be
    written."""
    try:
        source = open(file, "rb", opener=at_once)  # noqa: SIM115  # its OSError is the file's, others are the copy's
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    with source:
        try:
            _, _, version = parse(_Unmapped(source.fileno()))
            if version != _version(copy):
                _copy(source.fileno(), version, copy)
        except LookupRefused as error:
            return str(error)
    return ""


def _version(copy: Path) -> str:
    """Of an earlier copy; empty when there is none, or none that can be used."""
    try:
        return read_header(copy)[1]
    except (OSError, LookupRefused):
        return ""


def _copy(source: int, version: str, copy: Path) -> None:
    """Raises OSError, and LookupRefused for what does not have all the bytes of this version."""
    size = os.fstat(source).st_size
    check_room(copy.parent, copy.stem, size)
    new = copy.with_name(f".{copy.name}.new")
    try:
        with new.open("wb") as target:
            for at in range(0, size, _PIECE):
                target.write(os.pread(source, min(_PIECE, size - at), at))
        with Lookup.open(new, native=False) as lookup:
            if lookup.version != version:
                raise LookupRefused("it was changed while it was read: copy it again")
            if part := lookup.damaged():
                raise LookupRefused(f"its part {part} is damaged: copy it again")
        sync_path(new)
        new.rename(copy)
    finally:
        new.unlink(missing_ok=True)
