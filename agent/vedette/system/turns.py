"""Steps that may take long, or wait for another process, without holding the event loop.

A step is plain code in a thread that takes turns with the loop. While it computes, the loop's thread stands still: it
may use whatever the loop's code uses, without locks. Where it waits, it says so (``waiting``), and the loop goes on
until the step has what it waited for; where it may have computed for long, it gives way. Whoever shares state with a
step has to expect that it is in the middle of it.

    value = await turns.run(step)              # on the loop
    with turns.waiting(): poll.poll(1000)      # anywhere below ``step``; elsewhere it changes nothing
    turns.give_way()                           # the same
    value = await turns.in_steps(steps)        # without a thread: of a generator that yields often
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from vedette.system.ending import to_its_end

T = TypeVar("T")
Y = TypeVar("Y")

PATIENCE_SECONDS = 0.001
"""For which a turn waits without giving way, in all: giving way costs as much as many short answers take."""

TURN_SECONDS = 0.003
"""For which a step computes before ``give_way`` lets the loop go on."""

STEP_SECONDS = 0.0005
"""For which ``in_steps`` computes before the loop goes on; one step may take 4 ms."""

_here = threading.local()


class _Turn:
    """One step, from its beginning to its end."""

    def __init__(self, step: Callable[[], Any]) -> None:
        self._step = step
        self._loop = asyncio.get_running_loop()
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._outcome: tuple[Any, BaseException | None] | None = None
        self.done: asyncio.Future[Any] = self._loop.create_future()
        self.since = self.seconds = 0.0
        """When the step was last let in, and how long it has computed before."""

    def let_in(self) -> None:
        """On the loop: until the step waits, or ends."""
        self.since = time.perf_counter()
        self._go.release()
        self._back.acquire()
        self.seconds += time.perf_counter() - self.since
        if self._outcome is not None:
            value, error = self._outcome
            if error is None:
                self.done.set_result(value)
            else:
                self.done.set_exception(error)

    def work(self) -> None:
        """In the thread."""
        self._go.acquire()
        _here.turn = self
        try:
            self._outcome = self._step(), None
        except BaseException as error:  # the caller's, whatever it is
            self._outcome = None, error
        finally:
            _here.turn = None
            self._back.release()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self._back.release()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self.let_in)
            self._go.acquire()


class Turns:
    """One thread for steps, one at a time; it begins with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._turns: queue.SimpleQueue[_Turn] | None = None
        self.seconds = 0.0
        """For which steps have computed."""

    async def run(self, step: Callable[[], T]) -> T:
        """What ``step`` returns or raises. A caller that is cancelled waits for the end of the step all the same."""
        if self._turns is None:
            self._turns = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._turns,), name=self._name, daemon=True).start()
        turn = _Turn(step)
        self._turns.put(turn)
        turn.let_in()
        try:
            result: T = turn.done.result() if turn.done.done() else await to_its_end(turn.done)
        finally:
            self.seconds += turn.seconds
        return result


def _work(turns: queue.SimpleQueue[_Turn]) -> None:
    while True:
        turns.get().work()


def patience() -> float:
    """Seconds for which a step may wait without ``waiting``."""
    turn: _Turn | None = getattr(_here, "turn", None)
    return PATIENCE_SECONDS if turn is None else max(0.0, turn.since + PATIENCE_SECONDS - time.perf_counter())


@contextmanager
def waiting() -> Iterator[None]:
    """The loop goes on meanwhile, where a step runs by turns with one."""
    turn: _Turn | None = getattr(_here, "turn", None)
    if turn is None:
        yield
    else:
        with turn.waiting():
            yield


async def in_steps(steps: Generator[Y, None, T], keep: Callable[[Y], None] | None = None) -> T:
    """Run ``steps`` to its result; ``keep`` takes what it yields. In between the loop goes on."""
    began = time.monotonic()
    try:
        while True:
            some = next(steps)
            if keep is not None:
                keep(some)
            if time.monotonic() - began > STEP_SECONDS:
                await asyncio.sleep(0)
                began = time.monotonic()
    except StopIteration as done:
        result: T = done.value
        return result


def give_way() -> None:
    """The loop goes on once, if a step that runs by turns with it has computed for ``TURN_SECONDS``."""
    turn: _Turn | None = getattr(_here, "turn", None)
    if turn is not None and time.perf_counter() >= turn.since + TURN_SECONDS:
        with turn.waiting():
            pass
