"""The RELP input: syslog over TCP and TLS that is acknowledged.

Promises:

* A message is answered "200 OK" only after the raw log holds it on disk. Killed at any moment, the agent gets from its
  senders again what it had not answered; nothing is lost.
* What comes again after a break and is stored already is answered, counted as a duplicate and not stored, where it is
  surely the same (``repeats.py``); where it only may be, it is stored with ``Flag.DUP``.
* While the raw log accepts nothing, no connection is read; senders wait, at most their window is under way.
* Answers go out in the order of a sender's messages, those to ``open``, ``close`` and bad frames among them. What is no
  frame is answered, counted (``framing``) and logged, and ends the connection (``relp_frames.py``).

Limits are those of TCP syslog (``listen.py``, ``accept.py``): connections, idle time, the length of a message, what all
hold together; an unfinished message is dropped where that cuts it, as its sender sends it again. A sender that does not
read its answers is not read.

Stop: what has arrived is stored and answered, as far as it gets on disk in time; then the agent says ``serverclose``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vedette.inputs.accept import IDLE_SECONDS, Gate
from vedette.inputs.acknowledge import Acknowledgements
from vedette.inputs.framing import Run
from vedette.inputs.listen import Stream, StreamListener
from vedette.inputs.relp import RelpInput
from vedette.inputs.relp_frames import OK, SERVER_CLOSE, RelpFramer
from vedette.inputs.repeats import REPEATED, Known, Repeats
from vedette.model.counters import Counters, Dropped
from vedette.model.event import Chunk, Flag, Intake
from vedette.system.wallclock import utc_now


class RelpStream(Stream):
    """One RELP peer."""

    framer: RelpFramer

    def __init__(self, listener: RelpListener, tls: bool, gate: Gate, peer: str) -> None:
        super().__init__(listener, RelpFramer(), tls, gate, peer)
        self.taken = 0
        """Messages of which ``owed`` has the numbers, and which are handed over or dropped."""
        self.first = REPEATED
        """Messages that may be repeats still."""
        self.repeated: set[int] = set()


class _Answers(NamedTuple):
    """What is to be written to a connection."""

    stream: RelpStream
    frames: list[int | bytes]
    last: bool
    """The session is over then."""


class RelpListener(StreamListener[RelpStream]):
    """One ``relp`` input; see the module's text.

    ``recent`` is what the raw log's tail holds of this input: 0, peer and MD5 (``rawlog.read.recent_messages``).
    """

    def __init__(
        self,
        settings: RelpInput,
        intake: Intake,
        counters: Counters,
        *,
        recent: Iterable[tuple[int, str, bytes]] = (),
        clock: Callable[[], int] = utc_now,
        idle: float = IDLE_SECONDS,
    ) -> None:
        super().__init__(settings, intake, counters, clock, idle)
        self._settings = settings
        self._repeats = Repeats((peer, digest) for _, peer, digest in recent)
        self._acknowledgements = Acknowledgements(intake, self._answer)

    def make(self, tls: bool, gate: Gate, peer: str) -> RelpStream:
        return RelpStream(self, tls, gate, peer)

    async def start(self) -> None:
        """Bind and listen. Raises OSError naming the input, the address and what to do; nothing stays open then."""
        try:
            await self.open()
        except BaseException:
            await self.stop()
            raise
        self._acknowledgements.start()
        self.look()

    async def stop(self) -> None:
        """Stop accepting and reading, store and answer what has arrived, say goodbye. May be called again."""
        self.accept_no_more()
        for stream in self._connections:
            stream.transport.pause_reading()
        self.flush()
        if not self._failure:
            await self._acknowledgements.drain()
        for stream in list(self._connections):
            if not stream.transport.is_closing():
                stream.transport.write(SERVER_CLOSE)
            self.end(stream)
        await self.closed()
        await self._acknowledgements.stop()

    # --- in

    def received(self, connection: RelpStream, size: int) -> None:
        super().received(connection, size)
        framer = connection.framer
        if framer.closing and framer.size:
            self._waiting.pop(connection, None)
            self.give_runs(connection)
        if not framer.size:  # answers that wait for no message
            self._owe(connection)

    def malformed(self, stream: RelpStream, error: ValueError) -> None:
        """Its answer is owed; nothing more is read."""
        self.drop(stream, f"{error}; the connection is closed")

    def cut(self, stream: RelpStream) -> None:
        stream.framer.cut()
        self.count_held(stream)
        self.end(stream)

    def take(self, stream: RelpStream) -> list[Run]:
        """The messages that are not repeats; those that may be are flagged."""
        runs = stream.framer.take()
        if not runs:
            return runs
        stream.taken += len(runs[0].ends or ())
        if stream.first > 0:
            runs = [self._without_repeats(stream, runs[0])]
        if runs[0].ends:
            for message in _messages(runs[0]):
                self._repeats.add(stream.peer, message)
            return runs
        self._owe(stream)
        return []

    def _without_repeats(self, stream: RelpStream, run: Run) -> Run:
        kept, ends, marks, cut = list[bytes](), array("I"), list[tuple[int, int]](), dict(run.marks)
        size = start = repeats = repeated = 0
        for message in _messages(run):
            known = Known.NO
            if stream.first > 0:
                stream.first -= 1
                known = self._repeats.known(stream.peer, message, stream.repeated)
            if known is Known.REPEAT:
                repeats, repeated = repeats + 1, repeated + len(message)
            else:
                flags = cut.get(start, 0) | (Flag.DUP if known is Known.PERHAPS else 0)
                if flags:
                    marks.append((size, int(flags)))
                kept.append(message)
                size += len(message)
                ends.append(size)
            start += len(message)
        if repeats:
            self._counters.drop(self._name, Dropped.DUPLICATE, repeats)
            self._counters.bytes_in[self._name] += repeated
        return Run(b"".join(kept), ends, tuple(marks))

    def chunk(self, run: Run, origins: tuple[str, ...], origin_of: array[int] | None) -> Chunk:
        """With message identifiers, 0 each, by which the raw log's reader knows that they may come again."""
        chunk = super().chunk(run, origins, origin_of)
        return Chunk(
            chunk.input, chunk.codec, chunk.received_at, run.data, run.ends, origins, origin_of, run.marks,
            message_ids=array("H", bytes(2 * len(chunk))),
        )  # fmt: skip

    # --- back

    def stored(self, streams: Sequence[RelpStream], offset: int) -> None:
        for stream in streams:
            self._owe(stream, offset)

    def _owe(self, stream: RelpStream, offset: int | None = None) -> None:
        """Answer what was taken, and what asks for no storing, up to the next message that was not taken."""
        owed, frames = stream.framer.owed, list[int | bytes]()
        while owed and (stream.taken or isinstance(owed[0], bytes)):
            frame = owed.popleft()
            stream.taken -= isinstance(frame, int)
            frames.append(frame)
        last = stream.framer.closing and not owed
        if frames:
            self._acknowledgements.owe([_Answers(stream, frames, last)], offset)

    def _answer(self, answers: _Answers) -> None:
        stream = answers.stream
        if stream.transport.is_closing():
            return
        frames = (frame if isinstance(frame, bytes) else b"%d%b" % (frame, OK) for frame in answers.frames)
        stream.transport.write(b"".join(frames))
        if answers.last:
            self.end(stream)


def _messages(run: Run) -> Iterable[bytes]:
    start = 0
    for end in run.ends or ():
        yield run.data[start:end]
        start = end
