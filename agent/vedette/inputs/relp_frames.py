"""RELP, the Reliable Event Logging Protocol of rsyslog: one connection's frames. No sockets and no clock.

A frame is ``TXNR SP COMMAND SP DATALEN [SP DATA] LF``; its answer ``TXNR rsp LEN SP 200 OK`` or ``500 reason``. A
session begins with ``open``, whose data are *offers*, a line each (``relp_version=0``, ``commands=syslog``), which are
answered by ours; then come ``syslog`` frames, a message each, as many as the sender's window holds unanswered; it ends
with ``close``. Frame number 0 is a hint of the server: ``0 serverclose 0``.

Promise: what the sender is to be answered is in ``owed``, in the order of its frames: the number of each message that
``take`` gives, to be answered when it is stored, and other answers as bytes. What is held back is bounded by
``max_event`` and one piece. A longer message is cut and flagged, as everywhere.

A command that is not known is answered with 500, and UNKNOWN times the session goes on; its data are not kept. What is
no frame, or not in its place, raises ValueError: an answer (500, and ``serverclose``) is owed, and nothing that follows
is read. An unfinished message is no event: it is not answered, and its sender sends it again.
"""

from __future__ import annotations

import re
from array import array
from collections import deque

from vedette.inputs.framing import Run
from vedette.model.event import MAX_EVENT, Flag
from vedette.version import __version__

OPEN_BYTES = 8192
"""Bytes of offers, at most."""
UNKNOWN = 16
"""Commands that are not known, at most, in a session."""
OFFERS = f"relp_version=0\nrelp_software=vedette,{__version__}\ncommands=syslog".encode()
SERVER_CLOSE = b"0 serverclose 0\n"
OK = b" rsp 6 200 OK\n"
"""Behind the number of a message that is stored."""

_HEADER = re.compile(rb"([0-9]{1,9}) ([A-Za-z]{1,32}) ([0-9]{1,9})([ \n])")
_BEGUN = re.compile(rb"[0-9]{1,9}(?: (?:[A-Za-z]{1,32}(?: (?:[0-9]{1,9})?)?)?)?")
"""The beginning of a header."""
_HEADER_BYTES = 54
"""More than ``_HEADER`` can match."""
_LF = ord("\n")


def answer(number: int, text: bytes) -> bytes:
    """The answer to a frame."""
    return b"%d rsp %d %b\n" % (number, len(text), text) if text else b"%d rsp 0\n" % number


class RelpFramer:
    """The frames of one connection; see the module's text and ``framing.StreamFramer``."""

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max = max_event
        self._held = bytearray()
        self._need = 0
        self._skip = 0
        self._trailer = False
        """The next byte ends a frame whose data are read."""
        self._opened = False
        self.steps = 0
        self._unknown = 0
        self._messages: list[bytes] = []
        self._ends = array("I")
        self._marks: list[tuple[int, int]] = []
        self.owed: deque[int | bytes] = deque()
        """Numbers of messages, and answers as they are sent."""
        self.closing = False
        """When all that is owed is sent the session is over."""

    @property
    def size(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def unfinished(self) -> int:
        return len(self._held)

    @property
    def buffered(self) -> int:
        return self.size + self.unfinished

    @property
    def within(self) -> bool:
        return bool(self._held or self._skip or self._trailer)

    def feed(self, data: bytes | bytearray, size: int | None = None) -> None:
        """Take in ``data`` (``StreamFramer.feed``). Raises ValueError, saying what is wrong, where no frame follows."""
        if self.closing:
            return
        end = len(data) if size is None else size
        skipped = min(self._skip, end)
        self._skip -= skipped
        self._held += memoryview(data)[skipped:end]
        if len(self._held) < self._need:
            return
        pending = bytes(self._held)
        self._held.clear()
        self._need = 0
        pos = 0
        while pos < len(pending):
            self.steps += 2  # a message costs four times as much as a counted one: it is answered, and may be a repeat
            if self._trailer:
                if pending[pos] != _LF:
                    raise self._refuse(0, f"a frame does not end after its data: {pending[pos : pos + 32]!r}")
                self._trailer = False
                pos += 1
                continue
            match = _HEADER.match(pending, pos)
            if match is None:
                if len(pending) - pos >= _HEADER_BYTES or not _BEGUN.fullmatch(pending, pos):
                    raise self._refuse(0, f"no RELP frame: {pending[pos : pos + 32]!r}")
                self._hold(pending, pos, len(pending) - pos + 1)
                return
            number = int(match[1])
            command = match[2]
            length = int(match[3])
            begin = match.end()
            if match[4] == b"\n" and length:
                raise self._refuse(number, f"a frame without its {length} bytes of data")
            if match[4] == b"\n":
                begin -= 1
                self._trailer = True
            keeps = min(length, self._max) if command == b"syslog" else length if command == b"open" else 0
            if command == b"open" and length > OPEN_BYTES:
                raise self._refuse(number, f"offers of {length} bytes")
            if begin + keeps > len(pending):
                self._trailer = False
                self._hold(pending, pos, begin + keeps - pos)
                return
            if not self._frame(number, command, pending[begin : begin + keeps], length):
                return
            self._trailer = True
            pos = begin + length
            self._skip = max(0, pos - len(pending))

    def _hold(self, pending: bytes, pos: int, need: int) -> None:
        self._held += memoryview(pending)[pos:]
        self._need = need

    def _frame(self, number: int, command: bytes, data: bytes, length: int) -> bool:
        """Whether more frames follow."""
        if command == b"open":
            self._open(number, data)
        elif not self._opened:
            raise self._refuse(number, f"{command.decode()} before open")
        elif command == b"syslog":
            start = self.size
            if length > len(data):
                self._marks.append((start, Flag.CUT))
            elif data.endswith(b"\n"):
                data = data[:-1]
            self._messages.append(data or b"\n")
            self._ends.append(start + len(data or b"\n"))
            self.owed.append(number)
        elif command == b"close":
            self.owed.append(answer(number, b"") + SERVER_CLOSE)
            self.closing = True
        elif self._unknown == UNKNOWN:
            raise self._refuse(number, f"more than {UNKNOWN} commands that are not known")
        else:
            self._unknown += 1
            self.owed.append(answer(number, b"500 command not supported"))
        return not self.closing

    def _open(self, number: int, data: bytes) -> None:
        offers = dict(line.partition(b"=")[::2] for line in data.splitlines())
        if self._opened:
            raise self._refuse(number, "a second open")
        if offers.get(b"relp_version") not in (b"0", b"1"):
            raise self._refuse(number, "offers without relp_version=0")
        commands = offers.get(b"commands")
        if commands is not None and b"syslog" not in commands.split(b","):
            raise self._refuse(number, "offers without the command syslog")
        self._opened = True
        self.owed.append(answer(number, b"200 OK\n" + OFFERS))

    def _refuse(self, number: int, reason: str) -> ValueError:
        """``number``: of the frame, 0 when it is not known."""
        if number:
            self.owed.append(answer(number, f"500 {reason}"[:200].encode()))
        self.owed.append(SERVER_CLOSE)
        self.closing = True
        self.end()
        return ValueError(reason)

    def cut(self) -> None:
        """An unfinished message is no event: nothing more is read."""
        self.closing = True
        self.end()

    def end(self) -> None:
        self._held.clear()
        self._skip = self._need = 0
        self._trailer = False

    def take(self) -> list[Run]:
        """The messages so far; their numbers are in ``owed``."""
        if not self._messages:
            return []
        run = Run(b"".join(self._messages), self._ends, tuple(self._marks))
        self._messages = []
        self._ends = array("I")
        self._marks = []
        return [run]
