"""Run ``vedette`` and say at its end where its main thread spent CPU time: ``python -m bench.sampler FILE run -c …``.

A CPU timer interrupts the process every 2 ms of CPU time; the Python stack of the main thread is noted. Time in a C
call is charged to the line that made the call; time of other threads shows as the event loop's own ``select``.
FILE gets two tables as text: lines by own time, functions by time including what they call.
"""

from __future__ import annotations

import re
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType

INTERVAL = 0.002


class Sampler:
    """Counts of lines and of functions."""

    def __init__(self) -> None:
        self.samples = 0
        self.lines: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()

    def note(self, _signal: int, frame: FrameType | None) -> None:
        """The signal's handler."""
        self.samples += 1
        stack = [*traceback.walk_stack(frame)] if frame else []
        places = [f"{'/'.join(Path(f.f_code.co_filename).parts[-2:])}:{at} {f.f_code.co_qualname}" for f, at in stack]
        self.lines.update(places[:1])
        self.functions.update({re.sub(r":\d+", "", place) for place in places})

    def report(self, rows: int = 60) -> str:
        parts = [f"{self.samples} samples of {INTERVAL * 1000:g} ms CPU"]
        for title, table in (("own time by line", self.lines), ("functions with callees", self.functions)):
            parts.append(f"\n{title}\n")
            parts += [f"{n / max(1, self.samples):6.1%}  {name}" for name, n in table.most_common(rows)]
        return "\n".join(parts) + "\n"

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self.note)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    """SIGUSR1 begins the sampling, so that the start of the agent is left out; the report is written at the end."""
    from vedette.cli.main import main as vedette

    out, sampler = Path(sys.argv[1]), Sampler()
    signal.signal(signal.SIGUSR1, lambda _signal, _frame: sampler.start())
    sys.argv = ["vedette", *sys.argv[2:]]
    try:
        vedette()
    finally:
        sampler.stop()
        out.write_text(sampler.report(), "utf-8")


if __name__ == "__main__":
    main()
