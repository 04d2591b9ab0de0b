"""``python -m bench.joins``: what joins and patterns cost, operators alone: events a CPU-second, state, bytes written.

Rows go into a network of one statement as the evaluator feeds them, the watermark 5 s behind each row, and the state's
delta is taken every ``BATCH`` rows, as a commit does:

    interval   logins joined with logouts of the same session within 10 minutes, LEFT: half of them have none
    window     the same events by host, joined within windows of a minute
    pattern    three failed logins or more and then one that works, within a minute, by host
    lookup     each event's address looked up in ``--rows`` rows (10 million), INNER, a hundredth of them found

Prints one JSON object a scenario. ``lookup`` builds its table first (a minute and a half with the kernel, in
``--work``, where it stays for the next run).
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vedette.lookup.batch import Batch, Key
from vedette.lookup.build import build
from vedette.lookup.layout import Column as LookupColumn
from vedette.lookup.table import Lookup
from vedette.plan.grid import Grid
from vedette.plan.pattern import AGGREGATE, LAST
from vedette.plan.query import (
    MILLISECOND,
    SECOND,
    Assign,
    Calc,
    Call,
    Column,
    Field,
    Join,
    Literal,
    LookupJoin,
    Match,
    Named,
    Node,
    Row,
    Scan,
    Statement,
    Type,
    Variable,
)  # fmt: skip
from vedette.stream.keyed import Budget, pack
from vedette.stream.network.network import Network

TIME, STRING, INT, BOOLEAN = Type("TIMESTAMP", 3), Type("STRING"), Type("INT"), Type("BOOLEAN")
COLUMNS = (Named("ts", TIME), Named("host", STRING), Named("kind", STRING), Named("session", INT), Named("ip", STRING))
BATCH = 2_000
ARENA = 500_000
"""Keys of the lookup that are made at once."""


def scan() -> Scan:
    mark = Call("-", (Column(1, TIME), Literal(5 * SECOND, Type("INTERVAL_SECOND"))), TIME)
    return Scan(COLUMNS, 1, "events", "r", tuple(Field(column.name) for column in COLUMNS), mark)


def where(*kinds: str) -> Calc:
    """The events of some kinds."""
    every = tuple(Column(i, column.type) for i, column in enumerate(COLUMNS, 1))
    tests = tuple(Call("=", (Column(3, STRING), Literal(kind, STRING)), BOOLEAN) for kind in kinds)
    when = None if not tests else tests[0] if len(tests) == 1 else Call("OR", tests, BOOLEAN)
    return Calc(COLUMNS, 1, scan(), every, when)


def interval() -> Node:
    left, right = where("login"), where("logout")
    return Join((*COLUMNS, *COLUMNS), 1, left, right, "LEFT", (4,), (4,), None, 0, 600 * SECOND)


def window() -> Node:
    names = tuple(Named(name, TIME) for name in ("window_start", "window_end", "window_time"))
    sides = [Assign((*COLUMNS, *names), 8, where(kind), Grid("TUMBLE", 60 * SECOND)) for kind in ("fail", "ok")]
    columns = (*sides[0].columns, *sides[1].columns)
    return Join(columns, 8, sides[0], sides[1], "INNER", (4,), (4,), windows=((6, 7), (6, 7)))


def pattern() -> Node:
    kind = {name: Call("=", (Column(3, STRING), Literal(text, STRING)), BOOLEAN) for name, text in FAILS.items()}
    count = Call(AGGREGATE, (Column(3, STRING),), Type("BIGINT"), ("F", "COUNT"))
    measures = (count, Call(LAST, (Column(1, TIME),), TIME, ("S", 0)))
    columns = (Named("host", STRING), Named("failed", Type("BIGINT")), Named("at", TIME))
    steps = (Variable("F", 3, None), Variable("S", 1, 1))
    return Match(
        columns, 0, where("fail", "ok"), (2,), steps, tuple(kind.items()), measures, "PAST", within=60 * SECOND
    )


FAILS = {"F": "fail", "S": "ok"}


def lookup() -> Node:
    columns = (*COLUMNS, Named("owner", STRING))
    return LookupJoin(columns, 1, where(), "assets", "ip", Column(5, STRING), ("owner",), "INNER")


def events(count: int, rows: int, seed: int = 1) -> Iterator[Row]:
    """1,000 hosts, 200 events a second, a tenth of them up to 4 s out of order."""
    draw = random.Random(seed)
    kinds = ("login", "logout", "fail", "fail", "fail", "ok")
    for number in range(count):
        late = draw.randrange(4_000) if draw.random() < 0.1 else 0
        at = (1_700_000_000_000 + number * 5 - late) * MILLISECOND
        session = number // 12 if draw.random() < 0.5 else number // 12 + 10_000_000
        user = draw.randrange(rows) if draw.random() < 0.01 else rows + draw.randrange(rows)
        yield number * 200, at, f"host{draw.randrange(1_000)}", kinds[draw.randrange(6)], session, word(user)


def word(number: int) -> str:
    """A user's name of 20 characters or so."""
    return f"user{number * 2_654_435_761 % (1 << 40):012x}@corp"


def assets(path: Path, rows: int) -> Lookup:
    """A table of ``rows`` users with a column."""
    if not path.exists():
        batches = (
            Batch([[word(n) for n in part], [f"team{n % 977}" for n in part]], range(part.start, part.stop))
            for part in (range(start, min(start + ARENA, rows)) for start in range(0, rows, ARENA))
        )
        columns = [LookupColumn("ip", "text"), LookupColumn("owner", "text")]
        build(path, columns, [Key.parse("ip")], batches, created=1_700_000_000_000_000)
    return Lookup.open(path)


def measure(root: Node, rows: list[Row], lookups: dict[str, Any]) -> dict[str, Any]:
    statement = Statement("s", "s", "medium", (), root, root.fingerprint.hex(), "bench.sql", 1)
    network = Network([statement], Budget())
    network.use(lookups)
    results = written = used = 0
    began = time.process_time()
    for start in range(0, len(rows), BATCH):
        for row in rows[start : start + BATCH]:
            network.feed("r", row)
        results += len(network.flush())
        written += len(pack(network.delta()))
        used = max(used, network.budget.used)
    seconds = time.process_time() - began
    return {
        "events": len(rows),
        "rows": results,
        "events_per_cpu_second": round(len(rows) / seconds),
        "us_an_event": round(seconds / len(rows) * 1e6, 2),
        "state_bytes_at_most": used,
        "delta_bytes_an_event": round(written / len(rows), 1),
    }


SCENARIOS: dict[str, Callable[[], Node]] = {
    "interval": interval, "window": window, "pattern": pattern, "lookup": lookup,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--work", type=Path, help="keeps the lookup's file")
    parser.add_argument("scenarios", nargs="*", choices=[[], *SCENARIOS], help="all, if none is named")
    options = parser.parse_args()
    rows = list(events(options.events, options.rows))
    with tempfile.TemporaryDirectory() as folder:
        for name in options.scenarios or SCENARIOS:
            lookups = {}
            if name == "lookup":
                lookups["assets"] = assets(
                    (options.work or Path(folder)) / f"users-{options.rows}.vlookup", options.rows
                )
            print(json.dumps({"scenario": name, **measure(SCENARIOS[name](), rows, lookups)}), flush=True)


if __name__ == "__main__":
    main()
