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
read its answers is not read; the answers count with what all hold, and beyond that the one with most is closed.

Stop: what has arrived is stored and answered, as far as it gets on disk in time; then the agent says ``serverclose``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from vedette.inputs.accept import IDLE_SECONDS, Gate
from vedette.inputs.acknowledge import Acknowledgements
from vedette.inputs.base import Surroundings
from vedette.inputs.framing import Run
from vedette.inputs.listen import Stream, StreamListener
from vedette.inputs.relp_frames import OK, SERVER_CLOSE, RelpFramer
from vedette.inputs.repeats import REPEATED, Repeat, Repeats
from vedette.inputs.settings import RelpInput
from vedette.model.counters import Dropped
from vedette.model.event import Chunk, Flag


class RelpStream(Stream):
    """One RELP peer."""

    framer: RelpFramer

    def __init__(self, listener: RelpListener, tls: bool, gate: Gate, peer: str) -> None:
        super().__init__(listener, RelpFramer(), tls, gate, peer)
        self.done = 0
        """Messages of which ``owed`` has the numbers, and which are handed over or dropped."""
        self.first = REPEATED
        """Messages that may be repeats still."""
        self.repeated: set[int] = set()


class _Answers(NamedTuple):
    """Answers that are to be written to a connection."""

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
        agent: Surroundings,
        *,
        recent: Iterable[tuple[int, str, bytes]] = (),
        idle: float = IDLE_SECONDS,
    ) -> None:
        super().__init__(settings, agent, idle)
        self._settings = settings
        self._repeats = Repeats((peer, digest) for _, peer, digest in recent)
        self._acknowledgements = Acknowledgements(agent.intake, self._answer)

    def make(self, tls: bool, gate: Gate, peer: str) -> RelpStream:
        return RelpStream(self, tls, gate, peer)

    async def open(self) -> None:
        await super().open()
        self._acknowledgements.start()

    async def hand_over(self) -> None:
        """Stop accepting and reading, store and answer what has arrived, say goodbye."""
        self.accept_no_more()
        for stream in self._connections:
            stream.transport.pause_reading()
        await self.flushed()
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
        if not framer.size and connection.work is None:  # answers that wait for no message
            self._owe(connection)

    def malformed(self, stream: RelpStream, error: ValueError) -> None:
        """Its answer is owed; nothing more is read."""
        self.drop(stream, f"{error}; the connection is closed")

    def cut(self, stream: RelpStream) -> None:
        stream.framer.cut()
        if stream.full:
            stream.transport.abort()
        self.end(stream)

    def take(self, stream: RelpStream) -> list[Run]:
        """The messages that are not repeats; those that may be are flagged."""
        runs = stream.framer.take()
        if not runs:
            return runs
        stream.done += len(runs[0].ends or ())
        if stream.first > 0:
            runs = [self._without_repeats(stream, runs[0])]
        else:
            for message in _messages(runs[0]):
                self._repeats.add(stream.peer, message)
        if runs[0].ends:
            return runs
        self._owe(stream)
        return []

    def _without_repeats(self, stream: RelpStream, run: Run) -> Run:
        messages = list[bytes]()
        ends = array("I")
        marks = list[tuple[int, int]]()
        cut = dict(run.marks)
        size = start = repeats = repeated = 0
        for message in _messages(run):
            seen = Repeat.NO
            if stream.first > 0:
                stream.first -= 1
                seen = self._repeats.check(stream.peer, message, stream.repeated)
            if seen is Repeat.YES:
                repeats += 1
                repeated += len(message)
            else:
                self._repeats.add(stream.peer, message)  # at once: what was never answered may come twice in one run
                flags = cut.get(start, 0) | (Flag.DUP if seen is Repeat.PERHAPS else 0)
                if flags:
                    marks.append((size, int(flags)))
                messages.append(message)
                size += len(message)
                ends.append(size)
            start += len(message)
        if repeats:
            self._counters.drop(self._name, Dropped.DUPLICATE, repeats)
            self._counters.bytes_in[self._name] += repeated
        return Run(b"".join(messages), ends, tuple(marks))

    def chunk(self, run: Run, origins: tuple[str, ...], origin_of: array[int] | None) -> Chunk:
        """With message identifiers, 0 each, by which the raw log's reader knows that they may come again."""
        chunk = super().chunk(run, origins, origin_of)
        return Chunk(
            chunk.input, chunk.codec, chunk.received_at, run.data, run.ends, origins, origin_of, run.marks,
            message_ids=array("H", bytes(2 * len(chunk))),
        )  # fmt: skip

    def unstored(self, stream: RelpStream, runs: Sequence[Run]) -> None:
        for message in chain.from_iterable(map(_messages, runs)):
            self._repeats.add(stream.peer, message)  # twice: what comes again is no more than perhaps a repeat

    # --- back

    def stored(self, streams: Sequence[RelpStream], offset: int) -> None:
        for stream in streams:
            self._owe(stream, offset)

    def _owe(self, stream: RelpStream, offset: int | None = None) -> None:
        """Answer what was taken, and what asks for no storing, up to the next message that was not taken."""
        owed = stream.framer.owed
        frames = list[int | bytes]()
        while owed and (stream.done or isinstance(owed[0], bytes)):
            frame = owed.popleft()
            stream.done -= isinstance(frame, int)
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
        self.count(stream)
        self.relieve()
        if answers.last:
            self.end(stream)


def _messages(run: Run) -> Iterable[bytes]:
    start = 0
    for end in run.ends or ():
        yield run.data[start:end]
        start = end
