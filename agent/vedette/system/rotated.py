"""A file of lines that is appended to and rotated: ``NAME``, then ``NAME.1`` to ``NAME.KEEP``, the oldest last.

``append`` is durable when it returns. A line that a crash has torn is cut off before the next one is written: whoever
wrote it does not count on it. Another program may rename the file away (logrotate): the next line makes a new
one. One writer. Who owns the folder may put anything there, and a path may name another's file by mistake: only a
regular file of one name that begins as ours do is cut and written, and only what begins so is replaced by a rotation.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vedette.system.durable import sync_path

BLOCK = 64 << 10
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOREIGN = "it is a link, has a second name or is no regular file, and what it leads to is not to be changed: remove it"
_OTHERS = "it does not begin as a file of alerts does, and is not to be changed: move it, or name another path"


class Rotated:
    def __init__(self, path: Path, max_bytes: int, keep: int, begins: Sequence[bytes]) -> None:
        """Of the newest file and each of ``keep`` older ones ``max_bytes``, but for a single line that is longer. A
        line begins with one of ``begins``."""
        self.path, self.max_bytes, self.keep, self._begins = path, max_bytes, keep, begins
        self._identity: tuple[int, int] | None = None
        """Device and inode of the file whose end is whole."""

    def append(self, lines: bytes) -> None:
        """Whole lines. Raises OSError; what was written of them then goes with the next ``append``."""
        descriptor = self._opened()
        try:
            size = os.fstat(descriptor).st_size
            if size and size + len(lines) > self.max_bytes:
                os.close(descriptor)
                descriptor = -1
                self._rotate()
                descriptor = self._opened()
            self._identity = None
            written = 0
            while written < len(lines):
                written += os.write(descriptor, lines[written:])
            os.fsync(descriptor)
            about = os.fstat(descriptor)
            self._identity = about.st_dev, about.st_ino
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _opened(self) -> int:
        new = not self.path.exists()
        try:
            descriptor = os.open(self.path, _FLAGS, 0o640)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise
            raise OSError(error.errno, _FOREIGN, str(self.path)) from error
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
                raise OSError(errno.EINVAL, _FOREIGN, str(self.path))
            if (about.st_dev, about.st_ino) != self._identity:
                self._check(descriptor, self.path)
                _cut(descriptor, about.st_size)
            if new:
                sync_path(self.path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check(self, descriptor: int, path: Path) -> None:
        """Raise OSError when it begins as no file of ours, nor as what a crash has left of one."""
        head = os.pread(descriptor, max(map(len, self._begins)), 0)
        if not any(head[: len(ours)] == ours[: len(head)] for ours in self._begins):
            raise OSError(errno.EEXIST, _OTHERS, str(path))

    def _rotate(self) -> None:
        for number in range(1, self.keep + 1):
            with suppress(FileNotFoundError), open(self._older(number), "rb", opener=_read_only) as file:
                self._check(file.fileno(), self._older(number))
        if not self.keep:
            self.path.unlink(missing_ok=True)
        for number in range(self.keep, 0, -1):
            older = self.path if number == 1 else self._older(number - 1)
            with suppress(FileNotFoundError):
                older.replace(self._older(number))
        sync_path(self.path.parent)

    def _older(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def _read_only(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _cut(descriptor: int, size: int) -> None:
    """Cut what is behind the last newline."""
    end = size
    while end > 0:
        begin = max(0, end - BLOCK)
        at = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if at >= 0:
            if begin + at + 1 < size:
                os.ftruncate(descriptor, begin + at + 1)
            return
        end = begin
    if size:
        os.ftruncate(descriptor, 0)
