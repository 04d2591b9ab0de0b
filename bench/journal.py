"""What an entry of systemd's journal costs: ``python -m bench.journal [--entries N]``, as root.

A real journald of its own is given the messages of ``traffic``; then the real agent with the starter rules reads them,
``--runs`` times. Prints CPU microseconds an entry, and what of agent and journalctl is resident when it is at rest.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench import traffic
from bench.usage import cpu_seconds, family
from tests import waits
from tests.e2e.agent import Agent
from tests.inputs.journald import Journald, journald
from vedette.decode.decoder import record

waits.DEADLINE = 600.0  # a million entries take longer than a test may
REST = 3.0


def fill(real: Journald, entries: int) -> None:
    for line in traffic.lines(3, entries, attack_rate=0.001):
        event = record(line, "syslog")
        fields = {"MESSAGE": event.get("message"), "SYSLOG_IDENTIFIER": event.get("program"), "PRIORITY": "6"}
        real.send(**{name: str(value) for name, value in fields.items()})


def measure(real: Journald, entries: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(Path(folder) / "agent")
        agent.configure(f'[[input]]\nname = "in"\ntype = "journal"\ndirectory = "{real.folder}"\n')
        try:
            agent.up()
            before = cpu_seconds(agent.pid)
            agent.settled(entries)
            spent = cpu_seconds(agent.pid) - before
            time.sleep(REST)
            resident = ", ".join(f"{name} {used.resident >> 20} MB" for name, _, used in family(agent.pid).values())
        finally:
            agent.kill()
    return f"{1e6 * spent / entries:.1f} µs an entry to alerts; resident: {resident}\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with journald("64M") as real:
        fill(real, options.entries)
        for _ in range(options.runs):
            sys.stdout.write(measure(real, options.entries))


if __name__ == "__main__":
    main()
