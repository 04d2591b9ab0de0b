"""What statements cost the real agent: readings over MQTT as NDJSON.

``python -m bench.telemetry [EVENTS [LEAST [NUMBER]]]``: for 1, 10, 100 and 500 statements, or NUMBER (an average by
device over 10 s, each with a limit of its own, which few reach), an agent on one core and with 1 GB takes EVENTS
readings of 1,000 devices in payloads of 200 from a real mosquitto. Printed are CPU time an event, from the
subscription to the alerts' files, and memory: before the first reading, at the end, and the most. LEAST is the lowest
limit in degrees: with 0 every statement gives a row for each device whenever a window ends, which is the most alerts at
once that there can be. Of memory ``own`` is the most that was not of a file: pages of the store's file, which the
kernel takes back when it needs them, are resident, too. Every reading must be stored and evaluated, the agent's account
must add up, and no statement may give more rows than the same plan by itself, nor fail on one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import fast
from bench.agent import directory
from bench.drive import Bench, account, running
from bench.host import MemoryLimit, cores
from bench.statements import QUERY, TABLE, chunks, compiled, evaluate, readings
from bench.usage import memory_mb
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


def queries(number: int, least: float) -> list[str]:
    return [QUERY.format(limit=least + i / 100) for i in range(number)]


def measured(bench: Bench, written: Sequence[str], lines: Sequence[bytes]) -> dict[str, Any]:
    """One agent with the statements ``written``, from its start to its end."""
    folder, own, number = bench.fresh("rules"), 0.0, len(written)
    sql = TABLE + "".join(f"\n-- title: Limit {i}\nINSERT INTO alerts {query};\n" for i, query in enumerate(written))
    (folder / "limits.sql").write_text(sql)
    groups = [b"\n".join(lines[at : at + BATCH]) for at in range(0, len(lines), BATCH)]
    with (
        broker.running(bench.fresh("broker"), verbose=False) as server,
        running(bench, f"telemetry-{number}", INPUT.format(url=server.url), directory(folder)) as run,
    ):

        def finished(status: dict[str, Any]) -> bool:
            """Whether all readings are evaluated and every alert is in a file."""
            nonlocal own
            own = max(own, memory_mb(run.agent.pid)["RssAnon"])
            left = status["alerts"]["in_outbox"] + status["statement_state"]["waiting"]
            return status["inputs"].get("plant", {"judged": 0})["judged"] >= len(lines) and not left

        run.agent.wait(lambda status: status["rules"]["statements"] == number, 120)
        run.agent.settle(20)  # the rest of a start
        run.mark()
        fast.publish(("127.0.0.1", server.port), [(b"plant/batch", group) for group in groups])
        status = run.agent.wait(finished, 600, pause=0.25)
        used = run.agent.usage()
        account(status, run.base, len(lines))
        run.ended()
    counted = status["statement_state"]["statements"]
    return {
        "statements": number,
        "us_an_event": round((used.seconds - run.before.seconds) / len(lines) * 1e6, 2),
        "rows": sum(statement["rows"] for statement in counted),
        "failed": sum(statement["failed"] for statement in counted),
        "rss_mb": {"idle": run.before.rss_mb, "end": used.rss_mb, "peak": used.peak_rss_mb, "own": round(own, 1)},
    }


def main(count: int, least: float, numbers: Sequence[int]) -> None:
    lines = list(readings(count))
    chunked = chunks(lines, "json")
    with tempfile.TemporaryDirectory() as folder, MemoryLimit() as limit:
        print(f"{count} readings in payloads of {BATCH}; memory limit: {limit.kind}")
        bench = Bench(Path(folder), cores()[0], limit=limit)
        for number in numbers:
            written = queries(number, least)
            figures = measured(bench, written, lines)
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
