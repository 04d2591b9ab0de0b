"""What windows of SQL rules cost: rows into the network of operators, results out, by CPU time of one process.

``python -m bench.statements [EVENTS]``: 1, 10, 100 and 500 statements over the readings of 1,000 devices, each an
average by device over 10 s with a limit of its own in HAVING; then updates of windows by themselves, and bytes a group.
Reading and decoding events is not in it.
"""

from __future__ import annotations

import sys
import time
import tracemalloc

from vedette.plan.query import (
    SECOND,
    Aggregate,
    Calc,
    Call,
    Column,
    Expression,
    Field,
    Grid,
    Literal,
    Named,
    Row,
    Scan,
    Statement,
    Type,
    Windowed,
)  # fmt: skip
from vedette.stream.keyed import Budget
from vedette.stream.network import Network
from vedette.stream.operator import Operator

DEVICES = 1000
TIME, STRING, DOUBLE, BIGINT = Type("TIMESTAMP", 3), Type("STRING"), Type("DOUBLE"), Type("BIGINT")
COLUMNS = (Named("ts", TIME), Named("device", STRING), Named("temperature", DOUBLE))
DELAY = Literal(2 * SECOND, Type("INTERVAL_SECOND"))
MARK = Call("-", (Column(1, TIME), DELAY), TIME)
SCAN = Scan(COLUMNS, 1, "readings", "r", tuple(Field(one.name) for one in COLUMNS), MARK)
EVERY: tuple[Expression, ...] = tuple(Column(i, one.type) for i, one in enumerate(COLUMNS, 1))
AVERAGE = Aggregate("AVG", (Column(3, DOUBLE),), DOUBLE)
WINDOW = Windowed(
    (Named("device", STRING), Named("a", DOUBLE), Named("c", BIGINT), *(Named(f"w{i}", TIME) for i in range(3))), 6,
    Calc(COLUMNS, 1, SCAN, EVERY), Grid("TUMBLE", 10 * SECOND), (2,), (AVERAGE, Aggregate("COUNT", (), BIGINT)),
)  # fmt: skip


def statement(number: int) -> Statement:
    limit = Call(">", (Column(2, DOUBLE), Literal(42.0 + number / 100, DOUBLE)), Type("BOOLEAN"))
    root = Calc(WINDOW.columns[:2], 0, WINDOW, (Column(1, STRING), Column(2, DOUBLE)), limit)
    return Statement(str(number), "too hot", "high", (), root, str(number), "bench.sql", 1)


def readings(count: int) -> list[Row]:
    """2,000 a second, in order, 20 to 65 degrees."""
    return [
        (i, i * 500 // 1000 * 1000, f"device-{i * 7919 % DEVICES:04}", 20.0 + i * 31 % 450 / 10) for i in range(count)
    ]


def windows_of(network: Network) -> Operator:
    return next(one for one in network.operators.values() if isinstance(one.node, Windowed))


def main(count: int) -> None:
    rows = readings(count)
    for number in (1, 10, 100, 500):
        network = Network([statement(i) for i in range(number)], Budget())
        began = time.process_time()
        for row in rows:
            network.feed("r", row)
        found = len(network.finish())
        took = time.process_time() - began
        print(f"{number:4} statements: {took / count * 1e6:6.2f} us an event, {found} rows given")
    network = Network([statement(0)], Budget())
    operator = windows_of(network)
    began = time.process_time()
    for start in range(0, count, 4096):
        operator.push(0, rows[start : start + 4096])
    took = time.process_time() - began
    print(f"{count / took / 1e3:.0f} k window updates a CPU-second")
    groups = 100_000
    many = [(i, 0, f"device-{i:06}", float(i)) for i in range(groups)]
    network = Network([statement(0)], Budget(1 << 30))
    operator = windows_of(network)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for start in range(0, groups, 4096):
        operator.push(0, many[start : start + 4096])
    network.budget.settle()
    taken = tracemalloc.get_traced_memory()[0] - before
    text = sum(49 + len(row[2]) for row in many)
    print(
        f"{(taken + text) / groups:.0f} bytes a group with its key's text, {network.budget.used / groups:.0f} accounted"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
