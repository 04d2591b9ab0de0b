"""What events of several lines and containers' lines cost: CPU time of making events of a file's bytes.

    python -m bench.multiline [--lines 400000]

In memory, in pieces as the file input reads them, the best of three. Storing and evaluating come on top, as always.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from vedette.decode.bounded import Guard
from vedette.inputs.containers import Container
from vedette.inputs.framing import Lines
from vedette.inputs.multiline import Events
from vedette.inputs.settings import Multiline
from vedette.model.event import CHUNK_BYTES

TEXT = "INFO request %d of the shop took some milliseconds to be answered"
FRAME = "\tat com.example.shop.Cart.checkout(Cart.java:117)\n" * 19
RUNS = 3


def cost(data: bytes, lines: int, events: Callable[[], Events] | None) -> float:
    """Microseconds of CPU a line."""
    best = float("inf")
    for _ in range(RUNS):
        framer, made = Lines(), events() if events is not None else None
        begin = time.process_time()
        for at in range(0, len(data), CHUNK_BYTES):
            framer.feed(data[at : at + CHUNK_BYTES])
            run = framer.take()
            if made is not None and run is not None:
                made.feed(run, framer.consumed, 0.0)
                made.take()
        best = min(best, time.process_time() - begin)
    return best / lines * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lines", type=int, default=400_000)
    lines = parser.parse_args().lines // 20 * 20
    stamp = "2026-11-23T10:00:00.123456789Z"
    plain = "".join(f"2026-11-23 10:00:00 {TEXT % i}\n" for i in range(lines)).encode()
    traces = "".join(f"2026-11-23 10:00:00 ERROR no {i}\n{FRAME}" for i in range(lines // 20)).encode()
    cri = "".join(f"{stamp} stdout F {TEXT % i}\n" for i in range(lines)).encode()
    docker = "".join(f'{{"log":"{TEXT % i}\\n","stream":"stdout","time":"{stamp}"}}\n' for i in range(lines)).encode()
    begins = Multiline(start=r"^\d{4}-\d\d-\d\d").asked(Guard())
    unwrap = Container("/var/log/pods/shop_cart-1_0b1c/app/0.log", {"kubernetes.pod.name": "cart-1"}).line
    for what, data, events in (
        ("lines, as without any of it", plain, None),
        ("multiline, each line an event", plain, lambda: Events(begins, None, 2.0)),
        ("multiline, 20 lines an event", traces, lambda: Events(begins, None, 2.0)),
        ("containers, CRI", cri, lambda: Events(None, unwrap, 2.0)),
        ("containers, Docker", docker, lambda: Events(None, unwrap, 2.0)),
    ):
        print(f"{what:32} {cost(data, lines, events):5.2f} µs a line")


if __name__ == "__main__":
    main()
