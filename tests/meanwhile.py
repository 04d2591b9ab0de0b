"""Something that goes on beside a test or a demo, such as a host that logs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count


@contextmanager
def meanwhile(act: Callable[[int], None], pause: float = 0.1) -> Iterator[None]:
    """``act`` is called with 1, 2, … in a thread, ``pause`` seconds apart."""
    stop = threading.Event()

    def run() -> None:
        for number in count(1):
            if stop.wait(pause):
                return
            act(number)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
