"""What an entry of systemd's journal costs: ``python -m bench.journal [--entries N]``, as root.

A real journald of its own is given the messages of ``traffic``. Then, by turns: an input alone reads them; and the real
agent with the starter rules, whose resident memory is taken when it has come to rest. Prints CPU microseconds an entry
of input and journalctl apart, and what is resident.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

from bench import traffic
from tests import waits
from tests.e2e.agent import Agent
from tests.inputs.intake import agent as surroundings
from tests.inputs.journald import Journald, journald
from tests.waits import until
from vedette.decode.decoder import record
from vedette.inputs.follow import JournalFollower
from vedette.inputs.settings import JournalInput
from vedette.model.counters import Counters
from vedette.model.event import Chunk
from vedette.system.processes import used

waits.DEADLINE = 600.0  # a million entries take longer than a test may


class _Sink:
    """An intake that keeps nothing."""

    def __init__(self) -> None:
        self.events = self.bytes = 0

    def store(self, chunk: Chunk) -> int:
        self.events += len(chunk)
        self.bytes += len(chunk.data)
        return self.bytes

    async def durable(self, offset: int) -> None:
        return None

    def accepting(self) -> bool:
        return True

    async def ready(self) -> None:
        return None


def fill(real: Journald, entries: int) -> None:
    for line in traffic.lines(3, entries, attack_rate=0.001):
        event = record(line, "syslog")
        fields = {"MESSAGE": event.get("message"), "SYSLOG_IDENTIFIER": event.get("program"), "PRIORITY": "6"}
        real.send(**{name: str(value) for name, value in fields.items()})


async def alone(folder: Path, entries: int) -> str:
    sink, counters = _Sink(), Counters()
    follower = JournalFollower(JournalInput("j", directory=str(folder)), surroundings(sink, counters))
    before = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    task = asyncio.create_task(follower.run())
    while sink.events < entries:
        await asyncio.sleep(0.01)
    await follower.stop()
    await task
    after = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    own, child = (
        1e6 * (b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime) / sink.events
        for a, b in zip(before, after, strict=True)
    )
    size = sink.bytes / sink.events
    return f"input {own:.1f} µs, journalctl {child:.1f} µs an entry; {size:.0f} bytes in the raw log"


def agent(real: Journald, entries: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        running = Agent(Path(folder) / "agent")
        running.configure(f'[[input]]\nname = "in"\ntype = "journal"\ndirectory = "{real.folder}"\n')
        try:
            running.up()
            assert running.process is not None
            pid = running.process.pid
            before = used(pid)
            running.settled(entries)
            after = used(pid)
            time.sleep(3)
            rest = used(pid)
            until("journalctl", lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            child = used(int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]))
        finally:
            running.kill()
    assert before is not None
    assert after is not None
    assert rest is not None
    assert child is not None
    cost = 1e6 * (after.cpu_seconds - before.cpu_seconds) / entries
    return (
        f"agent {cost:.1f} µs an entry to alerts; {rest.resident >> 20} MB resident, journalctl {child.resident >> 20}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with journald("64M") as real:
        fill(real, options.entries)
        for _ in range(options.runs):
            sys.stdout.write(asyncio.run(alone(real.folder, options.entries)) + "\n")
            sys.stdout.write(agent(real, options.entries) + "\n")


if __name__ == "__main__":
    main()
