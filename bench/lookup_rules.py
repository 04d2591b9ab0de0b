"""Rules that ask lookups: against ten million rows, and from which size on a list is better a lookup.

``python -m bench.lookup_rules [--rows N] [--lists]``, a JSON object a line. The *rules* ask a table of addresses with
four further columns (``bench/lookups.py``) about JSON events of 150 bytes, of whose addresses a hundredth is in it:
a Sigma rule with ``expand``, and the JOIN of a statement in SQL with the rows that it gives; each with the kernel and
without. *Lists* compares values spelled out with a lookup of the same values, in µs an event that holds none of them.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.lookups import _BUILD, KINDS, _table
from vedette.api import compile_rules
from vedette.engine.cache import Cache
from vedette.engine.match import Engine, Match
from vedette.model.event import Chunk
from vedette.plan.plan import Plan
from vedette.rules import build
from vedette.rules.ruleset import RuleSet
from vedette.rules.sigma.frontend import Sigma
from vedette.rules.sigma.lists import SPELLED
from vedette.rules.sigma.pipelines import Pipelines
from vedette.stream.reader import Event
from vedette.stream.statements import Statements

EVENTS = 50_000
HEAD = "title: t\nid: 00000000-0000-4000-8000-000000000001\nlogsource: {category: test}\nlevel: high\n"
SQL = """
CREATE TABLE assets (k STRING, owner STRING, site STRING) WITH ('connector' = 'vedette', 'lookup' = 'assets');
INSERT INTO alerts SELECT e.src_ip, a.owner, a.site
FROM events AS e JOIN assets FOR SYSTEM_TIME AS OF e.event_time AS a ON a.k = e.src_ip;
"""


def chunk(lines: Iterator[str], codec: str = "json") -> Chunk:
    return Chunk("bench", codec, 1_763_632_800_000_000, "".join(f"{line}\n" for line in lines).encode())


def a_second(plan: Plan, events: Chunk, *, kernel: bool) -> tuple[float, int]:
    """Events a CPU-second, and how many matched or gave a row, once the kernel knows their structure."""
    engine = Engine(plan, kernel=kernel, route=False, cache=Cache(0))
    for _ in range(2):
        statements = Statements(plan.statements, plan.lookups)
        before = time.process_time()
        if statements:
            for match in engine.evaluate(events):
                statements.feed(statements.read(plan.rules[match.rule].id, _event(match)))
            matches = sum(1 for _ in statements.finish())
        else:
            matches = sum(1 for _ in engine.evaluate(events))
        spent = time.process_time() - before
    return len(events) / spent, matches


def _event(match: Match) -> Event:
    record = match.record
    return Event(record, match.start, input="bench", host=lambda: record.host, time=lambda: record.event_time)


def rules(folder: Path, rows: int) -> Iterator[dict[str, Any]]:
    source, target = folder / "table.csv", folder / "assets.vlookup"
    _table(source, "ip+4", rows)
    subprocess.run(
        [sys.executable, "-c", _BUILD, str(source), str(target), KINDS["ip+4"][1]], check=True, capture_output=True
    )
    source.unlink()
    make, draw = KINDS["ip+4"][2], random.Random(1)
    addresses = [make(draw.randrange(rows) + (2 * rows if n % 100 else 0)) for n in range(EVENTS)]
    events = chunk(
        f'{{"time":"2026-11-22T10:{n // 60 % 60:02}:{n % 60:02}Z","host":"web{n % 50}","src_ip":"{address}",'
        f'"user":"user{n % 997}","url":"/shop/item/{n}","status":200,"bytes":{n % 9000}}}'
        for n, address in enumerate(addresses)
    )
    sigma = HEAD + "detection: {s: {src_ip|expand: '%assets%'}, condition: s}\n"
    for name, suffix, text in (("sigma", "yml", sigma), ("sql", "sql", SQL)):
        path = folder / f"rule.{suffix}"
        path.write_text(text)
        plan = compile_rules(path, lookups=[target])
        if plan.refused:
            raise ValueError(plan.refused)
        for kernel in (True, False):
            rate, matches = a_second(plan, events, kernel=kernel)
            yield {"rule": name, "kernel": kernel, "rows": rows, "events_a_cpu_second": round(rate), "found": matches,
                   "us_an_event": round(1e6 / rate, 2)}  # fmt: skip


LISTS: dict[str, tuple[tuple[int, ...], Callable[[int], str], str]] = {
    "expand": ((100, 300, 1000, 3000, 10_000), KINDS["domain"][2], "query"),
    "cidr|expand": ((4, 16, 64, 1000), lambda n: f"172.{n % 16 + 16}.{n // 16}.0/24", "src"),
}


def lists() -> Iterator[dict[str, Any]]:
    events = [
        {"query": KINDS["domain"][2](10**8 + n), "src": f"10.{n % 250}.{n // 250 % 250}.7", "user": f"u{n}", "n": n}
        for n in range(EVENTS // 2)
    ]
    lines = {
        "json": chunk(map(json.dumps, events)),
        "keyvalue": chunk((" ".join(f"{k}={v}" for k, v in event.items()) for event in events), "keyvalue"),
    }
    for modifiers, (sizes, value, field) in LISTS.items():
        for size in sizes:
            for spelled in (True, False):
                ruleset = RuleSet()
                limit = dict.fromkeys(SPELLED, size if spelled else 0)
                pipelines = Pipelines(lookups={"x": tuple(dict.fromkeys(map(value, range(size))))}, spelled=limit)
                ruleset.front_ends[build.SIGMA] = Sigma(ruleset, pipelines)
                build.add(ruleset, HEAD + f"detection: {{s: {{{field}|{modifiers}: '%x%'}}, condition: s}}\n")
                plan = build.from_rules(ruleset)
                us = {
                    f"{codec}, {'kernel' if kernel else 'python'}": round(1e6 / a_second(plan, c, kernel=kernel)[0], 2)
                    for codec, c in lines.items()
                    for kernel in (True, False)
                }
                yield {"modifiers": modifiers, "values": size, "spelled_out": spelled, "us_an_event": us}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lookup_rules", description="Measure rules that ask lookups.")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the table")
    parser.add_argument("--lists", action="store_true", help="only lists of values")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="vedette-lookups-") as folder:
        for row in () if options.lists else rules(Path(folder), options.rows):
            print(json.dumps(row), flush=True)
        for row in lists():
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
