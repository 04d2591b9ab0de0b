"""What statements cost the real agent: readings over MQTT as NDJSON.

``python -m bench.telemetry [EVENTS [LEAST [NUMBER]]]``: for 1, 10, 100 and 500 statements, or NUMBER (an average by
device over 10 s, each with a limit of its own, which few reach), an agent on one core and with 1 GB takes EVENTS
readings of 1,000 devices in payloads of 200 from a real mosquitto. Printed are CPU time an event, from the
subscription to the alerts' files, and memory: before the first reading, after a tenth, at the end, and what it grew by
in the second half. LEAST is the lowest limit in degrees: with 0 every statement gives a row for each device whenever a
window ends, which is the most alerts at once that there can be. Of memory ``own`` is the most that was not of a file:
pages of the store's file, which the kernel takes back when it needs them, are resident, too. Every reading must be
stored and evaluated, the agent's account must add up, and no statement may give more rows than the same plan by
itself, nor fail on one.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import fast
from bench.agent import Agent, directory
from bench.drive import account, totals
from bench.host import MemoryLimit, cores
from bench.statements import QUERY, TABLE, chunks, compiled, evaluate, readings
from tests import broker

BATCH = 200
LEAST = 46
"""Degrees of the lowest limit: of a device's averages over 10 s one in 40 is above."""
INPUT = """[broker]
url = "{url}"
[[input]]
type = "mqtt"
name = "plant"
topics = ["plant/#"]
"""


class Memory(threading.Thread):
    """Samples the agent's resident memory four times a second until ``done``; in MB. ``own``: the most of no file."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(daemon=True)
        self._agent, self.done, self.samples, self.own = agent, threading.Event(), list[float](), 0.0

    def run(self) -> None:
        while not self.done.wait(0.25):
            self.samples.append(self._agent.usage().rss_mb)
            status = Path(f"/proc/{self._agent.process.pid}/status").read_text()
            self.own = max(self.own, int(status.partition("RssAnon:")[2].split()[0]) / 1024)


def finished(status: dict[str, Any], events: int) -> bool:
    """Whether all of them are evaluated and every alert is in a file."""
    left = status["alerts"]["in_outbox"] + status["statement_state"]["waiting"]
    return status["inputs"].get("plant", {"judged": 0})["judged"] >= events and not left


def queries(number: int, least: float) -> list[str]:
    return [QUERY.format(limit=least + i / 100) for i in range(number)]


def measured(folder: Path, written: Sequence[str], lines: Sequence[bytes], limit: MemoryLimit) -> dict[str, Any]:
    """One agent with the statements ``written``, from its start to its end."""
    sql = TABLE + "".join(f"\n-- title: Limit {i}\nINSERT INTO alerts {query};\n" for i, query in enumerate(written))
    (folder / "rules").mkdir(parents=True)
    (folder / "rules" / "limits.sql").write_text(sql)
    groups = [b"\n".join(lines[at : at + BATCH]) for at in range(0, len(lines), BATCH)]
    core, _ = cores(pin=True)
    with broker.running(folder / "broker", verbose=False) as server:
        agent = Agent(
            folder / "a", INPUT.format(url=server.url), directory(folder / "rules"), core=core, before=limit.command()
        )
        try:
            status = agent.wait(
                lambda state: state["rules"]["statements"] == len(written) and "broker_connected" in agent.tail(),
                120,
            )
            base, begun = totals(status), agent.settle(20)  # the rest of a start
            memory = Memory(agent)
            memory.start()
            fast.publish(("127.0.0.1", server.port), [(b"plant/batch", group) for group in groups])
            status = agent.wait(lambda state: finished(state, len(lines)), 600)
            memory.done.set()
            used = agent.usage()
            account(status, base, len(lines))
            counted = status["statement_state"]["statements"]
        finally:
            code = agent.stop()
    if code:
        raise RuntimeError(f"the agent ended with {code}: {agent.tail()}")
    samples = memory.samples or [used.rss_mb]
    return {
        "statements": len(written),
        "us_an_event": round((used.seconds - begun.seconds) / len(lines) * 1e6, 2),
        "rows": sum(statement["rows"] for statement in counted),
        "failed": sum(statement["failed"] for statement in counted),
        "rss_mb": {
            "idle": begun.rss_mb,
            "first tenth": samples[len(samples) // 10],
            "end": used.rss_mb,
            "peak": used.peak_rss_mb,
            "own": round(memory.own, 1),
            "second half": round(samples[-1] - samples[len(samples) // 2], 1),
        },
    }


def main(count: int, least: float, numbers: Sequence[int]) -> None:
    lines = list(readings(count))
    chunked = chunks(lines, "json")
    with tempfile.TemporaryDirectory() as folder, MemoryLimit() as limit:
        print(f"{count} readings in payloads of {BATCH}; memory limit: {limit.kind}")
        for number in numbers:
            written = queries(number, least)
            figures = measured(Path(folder) / str(number), written, lines, limit)
            plan = compiled(TABLE + "".join(f"INSERT INTO alerts {query};\n" for query in written))
            rows = evaluate(plan, chunked)[1]
            # The last windows are open in the agent: nothing has come behind them.
            assert figures["rows"] <= rows
            assert figures["failed"] == 0
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        int(arguments[0]) if arguments else 200_000,
        float(arguments[1]) if len(arguments) > 1 else LEAST,
        [int(arguments[2])] if len(arguments) > 2 else (1, 10, 100, 500),
    )
