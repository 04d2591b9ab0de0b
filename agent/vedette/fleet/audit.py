"""A record that shows when it was changed: JSON lines, each with the SHA-256 of the line before.

    {"prev": "<64 hex digits>", "seq": 1, "time": "2026-11-22T23:10:00Z", "event": "…", …}

Promises: a line is on disk when ``append`` returns; it never changes a line that is there. ``prev`` of the first line
is 64 zeros. A line that was cut by a crash is removed by the next ``append``: it had not been promised. Whoever can
write the file can also write all of it again: to notice that, keep the newest line's digest (``head``) elsewhere; an
agent reports it in its heartbeats, and the centre keeps those.

One process writes at a time, and no reader holds it up; any number read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from vedette.bundle.manifest import rfc3339
from vedette.system import foreign
from vedette.system.durable import sync_path
from vedette.system.folders import locked_within
from vedette.system.wallclock import utc_now

FIRST = "0" * 64
MAX_LINE = 64 << 10
"""Bytes of a line."""
_OWN = ("prev", "seq", "time", "event")
_TAIL = 2 * MAX_LINE


class Head(NamedTuple):
    """The newest line: its number, from 1, and its SHA-256. Nothing written yet: 0 and FIRST."""

    seq: int
    digest: str


class Fault(NamedTuple):
    """Line ``line`` (from 1) breaks the chain."""

    line: int
    reason: str


class Audit:
    """The record in ``path``; ``clock`` in UTC microseconds."""

    def __init__(self, path: Path, clock: Callable[[], int] = utc_now) -> None:
        self.path, self._clock = path, clock

    def append(self, event: str, **facts: Any) -> Head:
        """Write a line. Raises ValueError for facts that are no JSON or too long, or when the newest line is not one of
        a record; OSError."""
        if taken := [name for name in facts if name in _OWN]:
            raise ValueError(f"{taken[0]} is not a name for a fact")
        lock = locked_within(self.path.parent, f".{self.path.name}.lock", "another process writes", wait=True)
        try:
            return self._append(event, facts)
        finally:
            os.close(lock)

    def _append(self, event: str, facts: Mapping[str, Any]) -> Head:
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            head, end = _newest(descriptor)
            if end != os.fstat(descriptor).st_size:
                os.ftruncate(descriptor, end)
            line = orjson.dumps(
                {"prev": head.digest, "seq": head.seq + 1, "time": rfc3339(self._clock()), "event": event, **facts}
            )
            if len(line) >= MAX_LINE:
                raise ValueError(f"{len(line)} bytes of facts are more than a line may have ({MAX_LINE})")
            os.pwrite(descriptor, line + b"\n", end)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            sync_path(self.path.parent)
        return Head(head.seq + 1, hashlib.sha256(line).hexdigest())

    def head(self) -> Head:
        """Raises ValueError and OSError; a record that is not there has no lines."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return Head(0, FIRST)
        try:
            return _newest(descriptor)[0]
        finally:
            os.close(descriptor)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Every whole line. Raises ValueError for one that is no JSON object, OSError."""
        for number, line in enumerate(_whole(self.path), 1):
            row = _read(line)
            if row is None:
                raise ValueError(f"{self.path}:{number}: not a line of an audit record")
            yield row


def verify(path: Path, anchor: Head | None = None) -> tuple[Head, Fault | None]:
    """The last line up to which the chain holds, and the first fault. ``anchor``: a head that was kept elsewhere, which
    must lie in the chain. Raises OSError."""
    head, number = Head(0, FIRST), 0
    passed = anchor is None or anchor.seq == 0
    for number, line in enumerate(_whole(path), 1):
        row = _read(line)
        if row is None:
            return head, Fault(number, "not a line of an audit record")
        if row["prev"] != head.digest:
            return head, Fault(number, "its prev is not the SHA-256 of the line before: a line was changed or removed")
        if row["seq"] != head.seq + 1:
            return head, Fault(number, f"its seq is {row['seq']}, not {head.seq + 1}")
        head = Head(row["seq"], hashlib.sha256(line).hexdigest())
        if anchor is not None and head.seq == anchor.seq:
            if head.digest != anchor.digest:
                return head, Fault(number, "not the line that was known under this number: the record was rewritten")
            passed = True
    if not passed and anchor is not None:
        return head, Fault(number + 1, f"it ends before line {anchor.seq}, which is known: lines were removed")
    return head, None


def _whole(path: Path) -> Iterator[bytes]:
    """Lines that end, without their newline; what a crash cut off at the end is none."""
    with path.open("rb") as file:
        for line in iter(lambda: file.readline(MAX_LINE + 1), b""):
            if line.endswith(b"\n"):
                yield line[:-1]
            elif len(line) > MAX_LINE:
                yield line


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        row = foreign.read(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not isinstance(row.get("prev"), str) or type(row.get("seq")) is not int:
        return None
    return row


def _newest(descriptor: int) -> tuple[Head, int]:
    """The newest whole line, and where it ends."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - _TAIL)
    tail = os.pread(descriptor, size - start, start)
    end = tail.rfind(b"\n")
    if end < 0:
        if size > MAX_LINE:
            raise ValueError("not an audit record: it has no lines")
        return Head(0, FIRST), 0
    line = tail[tail.rfind(b"\n", 0, end) + 1 : end]
    row = _read(line)
    if row is None:
        raise ValueError("its newest line is not one of an audit record: move it away, and look into why")
    return Head(row["seq"], hashlib.sha256(line).hexdigest()), start + end + 1
