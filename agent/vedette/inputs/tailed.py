"""One file that ``tail.py`` follows: where it was found, how far it is read, and what of it is an event."""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import dataclass, field

from vedette.inputs.batches import MAX_CONTAINER, Steps, at_once, spread
from vedette.inputs.files import SPAN, Key, fingerprint
from vedette.inputs.framing import Lines, Run
from vedette.inputs.multiline import Events
from vedette.inputs.wide import Wide, wide
from vedette.model.event import MAX_EVENT, FilePosition


@dataclass(slots=True)
class Tailed:
    """A file being followed."""

    path: str
    key: Key
    party: int | str
    """As in ``Seen``."""
    events: Events | None = None
    """Makes events of its lines; None: each line is one."""
    records: bool = False
    """Its lines may be JSON, and each other events (``batches.py``)."""
    texts: bool = True
    """Its lines may be anything else, too."""
    base: int = 0
    """Where reading began."""
    head: bytes = b""
    """Its first bytes, as far as they were read and at most SPAN."""
    lines: Lines = field(default_factory=Lines)
    wide: Wide | None = None
    """Reads it as UTF-16, as its first bytes say."""
    announced: bool = False
    """That is in the log."""
    descriptor: int | None = None
    changed: int = -1
    """Modification time of what has been read to its end."""
    rotated_from: str = ""
    """The path it left; empty: it is where it was found."""
    lost: bool = False
    """Where it was moved to is not known: ``path`` says so."""
    left: int = -1
    """Modification time when it was found to have left."""
    grown: float = 0.0
    """Loop time at which it last gave bytes, or was rotated."""
    settled: bool = False
    """A look has come since it was taken up."""
    finished: bool = False
    waits: bool = False
    """Not read to its end for want of a descriptor."""
    behind: int = 0
    """Bytes that its last turn has left; 1 at least when it had none."""

    @property
    def position(self) -> int:
        """After the last event that was handed over, and nothing of a later one."""
        return self.base + (self.lines.consumed if self.events is None else self.events.consumed)

    @property
    def read(self) -> int:
        """After the last byte read."""
        return self.base + self.lines.consumed + (self.wide or self.lines).pending

    def committed(self) -> FilePosition:
        path = self.rotated_from if self.lost else self.path
        return FilePosition(path, self.key[1], fingerprint(self.head, self.position), self.position)

    def skip(self, data: bytes) -> None:
        """Pass over what was handed over before, from the file's beginning on."""
        self.head += data[: SPAN - len(self.head)]
        self.base += len(data)

    def feed(self, data: bytes, now: float) -> None:
        self.head += data[: SPAN - len(self.head)]
        self.grown = now
        self.finished = False
        if not (self.wide or self.lines.consumed or self.lines.pending) and (encoding := wide(self.head)):
            self.wide = Wide(encoding)
        if self.wide is not None:
            self._transcode(data, now)
            return
        if not self.lines.within:  # the hole before what is written to a file after it was truncated
            hole = len(data) - len(data.lstrip(b"\0"))
            self.lines.skip(hole)
            data = data[hole:]
        self._feed(data)
        self._pass(now)

    def _transcode(self, data: bytes, now: float, *, final: bool = False) -> None:
        for text, shorter in self.wide.feed(data, final=final) if self.wide is not None else ():
            self._feed(text)
            self.lines.skip(shorter)
            self._pass(now)

    def _feed(self, data: bytes) -> None:
        if self.records and self.events is None:
            begin = (self.lines.begin or data[:8]).removeprefix(BOM_UTF8).lstrip()
            self.lines.most = MAX_CONTAINER if begin.startswith((b"{", b"[")) else MAX_EVENT
        self.lines.feed(data)

    def end(self) -> None:
        """Nothing more comes: what is unfinished is an event."""
        self._transcode(b"", self.grown, final=True)
        self.lines.end()
        self._pass(self.grown)
        if self.events is not None:
            self.events.end()

    def _pass(self, now: float) -> None:
        if self.events is not None and (run := self.lines.take()) is not None:
            self.events.feed(run, self.lines.consumed, now)

    @property
    def unfinished(self) -> int:
        """Bytes that are kept of a line, and of events of several, that may go on."""
        return self.lines.buffered - self.lines.size + (0 if self.events is None else self.events.held)

    def cut(self) -> None:
        """Keep no more of what is unfinished: it is an event, a line flagged CUT, the rest of which is discarded."""
        self.lines.cut()
        self._pass(self.grown)
        if self.events is not None:
            self.events.end()

    def taking(self) -> Steps[Run | None]:
        """The whole events so far, or None."""
        run = self.lines.take() if self.events is None else self.events.take()
        return (yield from spread(run, self.texts)) if run is not None and self.records else run

    def take(self) -> Run | None:
        """``taking`` at once: where there is little."""
        return at_once(self.taking())
