"""What functions in Python cost: calls in runs, as operators make them, in CPU time of the agent and of the child; and
what one that does harm costs all others, in a live pipeline with 500 events a second.

python -m bench.functions [--calls 200000]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from bench.usage import cpu_seconds
from tests.life import RULE, Life, lines
from vedette.engine.match import Engine
from vedette.plan.query import Module, Modules, Type
from vedette.rules import build
from vedette.stream.userfunctions import Spec
from vedette.udf.host import Host

MODULE = """
from pyflink.table import DataTypes
from pyflink.table.udf import AggregateFunction, udaf, udf, udtf

number = udf(lambda n: n + 1, result_type=DataTypes.BIGINT())
text = udf(lambda host, n: f"{host}:{n}", result_type=DataTypes.STRING())
rows = udtf(lambda host: host.split("."), result_types=[DataTypes.STRING()])

class Mean(AggregateFunction):
    def create_accumulator(self): return [0, 0]
    def accumulate(self, accumulator, n):
        accumulator[0] += n
        accumulator[1] += 1
    def merge(self, accumulator, others):
        for one in others:
            accumulator[0] += one[0]
            accumulator[1] += one[1]
    def get_value(self, accumulator): return accumulator[0] / accumulator[1]

mean = udaf(Mean(), result_type=DataTypes.DOUBLE(), accumulator_type=DataTypes.ARRAY(DataTypes.BIGINT()))
"""
HARM = {
    "none": "pass",
    "loops": "while True: pass",
    "loops in C": "sum(range(10 ** 12))",
    "sleeps": "time.sleep(60)",
    "exits": "os._exit(1)",
    "takes 50 ms of each value": "until = time.process_time() + 0.05\n    while time.process_time() < until: pass",
}
HOSTILE = """
import os, time
from pyflink.table import DataTypes
from pyflink.table.udf import udf

@udf(result_type=DataTypes.STRING())
def own(raw):
    {harm}
    return raw[-1]
"""
SQL = """
CREATE TEMPORARY FUNCTION own AS 'own.own' LANGUAGE PYTHON;
-- title: Own
INSERT INTO alerts SELECT raw, own(raw) AS last FROM events WHERE raw LIKE '%marker%';
"""
LIVE_SECONDS = 12
RATE = 500
RUN = 4096
BIGINT, STRING, DOUBLE = Type("BIGINT"), Type("STRING"), Type("DOUBLE")


def own() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def turned() -> float:
    """CPU seconds of the loop's thread and of those that take turns with it; other threads do not hold it."""
    threads = [one for one in threading.enumerate() if one is threading.main_thread() or one.name == "functions"]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(one.ident)) for one in threads if one.ident)


async def live(life: Life) -> tuple[float, list[tuple[float, float]], list[float]]:
    """Seconds until the function's statement is in quarantine (0: it is not), seconds between two turns of the loop, by
    the clock and of CPU, and seconds from each event to its alert of the other rule, in the outbox."""
    gc.collect()
    gc.freeze()  # as the agent does
    task = asyncio.create_task(life.pipeline.run())
    began = time.perf_counter()
    held: list[tuple[float, float]] = []
    given: list[float] = []
    waits: list[float] = []
    quarantined = 0.0

    async def hold() -> None:
        while True:
            clock, used = time.perf_counter(), turned()
            await asyncio.sleep(0)
            held.append((time.perf_counter() - clock, turned() - used))

    holding = asyncio.create_task(hold())
    while (now := time.perf_counter()) < began + LIVE_SECONDS or len(waits) < len(given):
        if now < began + LIVE_SECONDS and len(given) < (now - began) * RATE:
            life.give(lines(b"<13>Nov 21 02:40:00 web1 app: marker %d" % len(given)))
            given.append(time.perf_counter())
        made = life.pipeline.checkpointer.made[MARKER] - len(life.pipeline.checkpointer.alerts)
        while len(waits) < min(made, len(given)):
            waits.append(now - given[len(waits)])
        if not quarantined and life.context.failures.quarantined:
            quarantined = now - began
        await asyncio.sleep(0.001)
    holding.cancel()
    await life.pipeline.drain(5.0)
    task.cancel()
    await asyncio.wait([task, holding])
    return quarantined, held, waits


MARKER = "6a1f0000-0000-4000-8000-000000000001"


def hostile() -> None:
    heads = ("quarantine s", "a turn ms p99.9", "CPU, most", "others ms p50", "p99", "most")
    print(f"{'a function that':<28}" + "".join(f"{head:>16}" for head in heads))
    for name, harm in HARM.items():
        with tempfile.TemporaryDirectory() as folder:
            rules = Path(folder) / "rules"
            (rules / "functions").mkdir(parents=True)
            (rules / "functions" / "own.py").write_text(HOSTILE.format(harm=harm))
            (rules / "own.sql").write_text(SQL)
            (rules / "marker.yml").write_text(RULE.format(word="marker", number=1))
            with closing(Host()) as host:
                engine = Engine(build.build([rules], functions=host))
            life = Life(Path(folder), engine, functions=True)
            quarantined, held, waits = asyncio.run(live(life))
            life.pipeline.close()
            life.end()
        turns, used = (sorted(column) for column in zip(*held, strict=True))
        waits.sort()
        found = (
            turns[len(turns) * 999 // 1000],
            used[-1],
            *(waits[len(waits) * of // 100] for of in (50, 99)),
            waits[-1],
        )
        print(f"{name:<28}{quarantined:>16.1f}" + "".join(f"{one * 1000:>16.1f}" for one in found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200_000)
    calls = parser.parse_args().calls
    modules = Modules((Module("m", False, MODULE),))
    host = Host()
    host.know((modules,))
    began = time.perf_counter()
    host.call(Spec(modules.digest, "m.number", "eval", (BIGINT,), (BIGINT,)), [(1,)])
    print(f"start of a process, to the first value: {(time.perf_counter() - began) * 1000:.0f} ms")
    (pid,) = host.pids()
    print(f"{'a call of':<34}{'agent µs':>10}{'child µs':>10}{'µs by the clock':>17}")
    shapes: dict[str, tuple[Spec, Callable[[int], object]]] = {
        "a number of a number": (Spec(modules.digest, "m.number", "eval", (BIGINT,), (BIGINT,)), lambda n: (n,)),
        "a text of a text and a number": (
            Spec(modules.digest, "m.text", "eval", (STRING, BIGINT), (STRING,)),
            lambda n: (f"web{n % 100}.example.org", n),
        ),
        "three rows of a text": (
            Spec(modules.digest, "m.rows", "eval", (STRING,), (STRING,)),
            lambda n: (f"web{n % 100}.example.org",),
        ),
        "an aggregate, 16 rows a group": (
            Spec(modules.digest, "m.mean", "fold", (BIGINT,), (DOUBLE,)),
            lambda n: (None, *((n + at,) for at in range(16))),
        ),
        "an aggregate, 1 row a group": (
            Spec(modules.digest, "m.mean", "fold", (BIGINT,), (DOUBLE,)),
            lambda n: (b"\x92\x01\x01", (n,)),
        ),
    }
    for name, (spec, row) in shapes.items():
        each = 16 if "16" in name else 1
        rows = [row(n) for n in range(RUN // each)]
        runs = max(1, calls // RUN)
        mine, its, wall = own(), cpu_seconds(pid), time.perf_counter()
        for _ in range(runs):
            host.call(spec, rows)
        done = runs * len(rows) * each / 1e6
        mine, its, wall = own() - mine, cpu_seconds(pid) - its, time.perf_counter() - wall
        print(f"{name:<34}{mine / done:>10.2f}{its / done:>10.2f}{wall / done:>17.2f}")
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    print(f"memory of the process: {resident / (1 << 20):.0f} MiB resident")
    host.close()
    hostile()


if __name__ == "__main__":
    main()
