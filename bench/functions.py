"""What functions in Python cost: calls in runs, as operators make them, in CPU time of the agent and of the child.

python -m bench.functions [--calls 200000]
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

from vedette.plan.query import Module, Modules, Type
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
RUN = 4096
BIGINT, STRING, DOUBLE = Type("BIGINT"), Type("STRING"), Type("DOUBLE")


def used(pid: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


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
        mine, its, wall = own(), used(pid), time.perf_counter()
        for _ in range(runs):
            host.call(spec, rows)
        done = runs * len(rows) * each / 1e6
        mine, its, wall = own() - mine, used(pid) - its, time.perf_counter() - wall
        print(f"{name:<34}{mine / done:>10.2f}{its / done:>10.2f}{wall / done:>17.2f}")
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    print(f"memory of the process: {resident / (1 << 20):.0f} MiB resident")
    host.close()


if __name__ == "__main__":
    main()
