"""What rules in SQL cost, by CPU time of one process: events as the agent has them in, rows of alerts out.

``python -m bench.statements [EVENTS]``: 1, 10, 100 and 500 statements over NDJSON readings of 1,000 devices, each an
average by device over 10 s with a limit of its own, with decoding and evaluation, without raw log and store; then a
filter, windows, and bytes a group by themselves. "To compile" is from text to plan.

A statement that only filters syslog lines, of which one in 50 passes, is measured beside the Sigma rule that says the
same, by turns: by the engine up to the fields of the alerts, and as a life of the agent's pipeline from the raw log to
the alerts' commits. Two statements that split the readings into rows for a sink are measured up to the commits of its
queue.

With ``FLINK`` in the environment (a Python with ``apache-flink``, which ``make bench`` gives) Apache Flink reads the
same file on one core: its CPU time for the whole run, and "to start" that of a run with 100 of the events.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.life import NOW, Life
from vedette import Engine, compile_rules
from vedette.engine.join import Joiner
from vedette.engine.match import Context, Match
from vedette.engine.rows import Batch
from vedette.model.event import CHUNK_BYTES, Chunk, Flag, Frame
from vedette.model.times import clamp
from vedette.plan.plan import Plan
from vedette.rules import build
from vedette.runtime.alerts.events import Event
from vedette.runtime.alerts.rows import Read
from vedette.sinks.settings import FileSink
from vedette.stream.keyed import Budget
from vedette.stream.network.network import Network
from vedette.stream.statements import Statements
from vedette.system.memory import resident

DEVICES = 1000
PAIRS = 15
START = 1_795_168_800_000
"""Milliseconds."""
TABLE = """
CREATE TABLE readings (
    ts TIMESTAMP_LTZ(3), device STRING, temperature DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'vedette');
"""
QUERY = """SELECT device, AVG(temperature) AS mean, window_end
FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, device HAVING AVG(temperature) > {limit}"""
SIGMA = """
title: Failed login of root
logsource: {category: any}
detection:
    a: {message|startswith|cased: 'Failed password for root'}
    condition: a
"""
FILTER = "INSERT INTO alerts SELECT message FROM events WHERE message LIKE 'Failed password for root%';"
SPLIT = "CREATE TABLE lake (device STRING, t DOUBLE) WITH ('connector' = 'sink', 'name' = 'lake');" + "".join(
    f"INSERT INTO lake SELECT device, temperature FROM readings WHERE temperature {side} 42;" for side in ("<", ">=")
)
GROUPED = "GROUP BY window_start, window_end, device"
OPERATORS = {
    "windows of 10 s": QUERY.format(limit=42),
    "a session of 30 s": f"""SELECT window_start, window_end, device, COUNT(*) AS n FROM TABLE(SESSION(
        TABLE readings PARTITION BY device, DESCRIPTOR(ts), INTERVAL '30' SECOND)) {GROUPED}""",
    "OVER a minute": """SELECT device, AVG(temperature) OVER (PARTITION BY device ORDER BY ts
        RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW) AS mean FROM readings""",
    "OVER ten rows": """SELECT device, AVG(temperature) OVER (PARTITION BY device ORDER BY ts
        ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS mean FROM readings""",
    "the first row of a key": """SELECT device, temperature FROM (SELECT *, ROW_NUMBER() OVER (
        PARTITION BY device ORDER BY ts) AS n FROM readings) WHERE n = 1""",
    "the first two of 10 s": """SELECT device, temperature FROM (SELECT *, ROW_NUMBER() OVER (
        PARTITION BY window_start, window_end, device ORDER BY temperature DESC) AS n
        FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND))) WHERE n <= 2""",
    "a join with the minute before": """SELECT a.device, b.temperature FROM readings AS a LEFT JOIN readings AS b
        ON a.device = b.device AND b.temperature < 21 AND b.ts BETWEEN a.ts - INTERVAL '1' MINUTE AND a.ts""",
    "a pattern of three rows": """SELECT * FROM readings MATCH_RECOGNIZE (PARTITION BY device ORDER BY ts
        MEASURES LAST(low.temperature) AS lowest AFTER MATCH SKIP PAST LAST ROW PATTERN (high{2,} low)
        DEFINE high AS temperature > 30, low AS temperature < 30)""",
}
"""What is measured by rows alone."""
FLINK = """
import glob, os, sys
from pyflink.table import EnvironmentSettings, TableEnvironment
env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
env.get_config().set("parallelism.default", "1")
env.execute_sql("CREATE TABLE readings (millis BIGINT, device STRING, temperature DOUBLE,"
                " ts AS TO_TIMESTAMP_LTZ(millis, 3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)"
                " WITH ('connector' = 'filesystem', 'format' = 'json',"
                f" 'path' = '{sys.argv[1]}')")
env.execute_sql("CREATE TABLE given (device STRING, mean DOUBLE, window_end TIMESTAMP(3))"
                " WITH ('connector' = 'blackhole')")
together = env.create_statement_set()
for query in open(sys.argv[2]).read().split(";"):
    if query.strip():
        together.add_insert_sql("INSERT INTO given " + query)
together.execute().wait()
spent = sum(os.times()[:2])
for stat in glob.glob("/proc/[0-9]*/stat"):
    fields = open(stat).read().rpartition(")")[2].split()
    if int(fields[1]) == os.getpid():
        spent += sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
print(spent)
"""


def readings(count: int) -> Iterator[bytes]:
    """2,000 a second, in order, 20 to 65 degrees."""
    for i in range(count):
        at, device = START + i // 2, f"device-{i * 7919 % DEVICES:04}"
        yield json.dumps({"ts": at, "millis": at, "device": device, "temperature": 20.0 + i * 31 % 450 / 10}).encode()


def queries(number: int) -> list[str]:
    return [QUERY.format(limit=42 + i / 100) for i in range(number)]


def compiled(sql: str) -> Plan:
    rules = build.empty()
    rules.front_ends[".sql"].add(sql, "bench.sql")
    plan = build.from_rules(rules)
    assert not plan.refused, plan.refused
    return plan


def chunks(lines: Sequence[bytes], codec: str) -> list[Chunk]:
    """In the sizes in which inputs hand them on, 2,000 lines a second: no watermark goes beyond the receipts."""
    a_chunk = max(1, CHUNK_BYTES // (len(lines[0]) + 1))
    parts = ((i + a_chunk, lines[i : i + a_chunk]) for i in range(0, len(lines), a_chunk))
    return [
        Chunk("in", codec, (START + end // 2) * 1000, b"".join(line + b"\n" for line in part)) for end, part in parts
    ]


def decoded_event(match: Match, frame: Frame) -> Event:
    chunk, record = frame.chunk, match.record
    time = clamp(record.event_time, chunk.received_at)[0]
    return Event(frame, match.start, match.end, record, record.host, time, Flag(0))


def evaluate(plan: Plan, stream: Sequence[Chunk], *, kernel: bool = True) -> tuple[float, int]:
    """CPU seconds, and matches or rows, with the fields of their alerts; ``kernel``: the native one is used."""
    engine, context, joiner = Engine(plan, route=False, kernel=kernel), Context(), Joiner()
    statements = Statements(plan.statements, plan.lookups)
    offset = rows = 0
    read: dict[str, list[Read]] = {}
    began = time.process_time()
    for chunk in stream:
        frame = Frame(offset, chunk)
        for event in engine.gathered(frame, joiner, context):
            if isinstance(event, Batch):
                gather(engine, statements, frame, event, context)
                continue
            for match in engine.matches(event.frame.chunk, event, context):
                rule = plan.rules[match.rule]
                if not statements.wants(rule.id):
                    rows += bool(engine.shown(match.rule, match.record))
                    continue
                reading = Read(engine, event.frame, match, context, partial(decoded_event, match, event.frame))
                if statements.filters(rule.id):
                    read.setdefault(rule.id, []).append(reading)
                else:
                    statements.add(rule.id, reading)
        for id, events in read.items():
            rows += sum(bool(row.fields) for row in statements.filter(id, events)[0])
        read.clear()
        rows += sum(bool(row.fields) for row in statements.take())
        offset += len(chunk.data)
    rows += sum(bool(row.fields) for row in statements.finish())
    return time.process_time() - began, rows


def gather(engine: Engine, statements: Statements, frame: Frame, batch: Batch, context: Context) -> None:
    def event(number: int) -> Read:
        match = engine.alone(batch, number, frame, context)
        return Read(engine, frame, match, context, partial(decoded_event, match, frame))

    engine.taken(batch)
    rules = [engine.plan.rules[rule].id for rule in sorted(batch.rules)]
    chunk = frame.chunk
    failed = statements.add_all(rules, batch.rows, batch.hosts, chunk.input, chunk.received_at, event)
    assert not failed, failed


def lived(plan: Plan, stream: Sequence[Chunk]) -> tuple[float, int]:
    """CPU seconds of a pipeline for what its raw log holds, with the alerts in the outbox and rows in the sink's queue,
    and their number."""
    with tempfile.TemporaryDirectory() as folder:
        lake = FileSink("lake", path=Path(folder) / "lake.ndjson", takes="rows")
        life = Life(Path(folder), Engine(plan, route=False), sinks=(lake,))
        life.give(*(replace(chunk, received_at=NOW) for chunk in stream))
        began = time.process_time()
        life.live()
        spent = time.process_time() - began
        alerts, rows = life.counters.totals["alerts_made"], life.context.rows
        alerts += 0 if rows is None else rows.of("lake").newest_seq
        life.end()
    return spent, alerts


def compared(what: str, ways: Sequence[Callable[[], tuple[float, int]]], count: int) -> None:
    """A statement and its Sigma rule, PAIRS times by turns."""
    pairs = [[way() for way in (ways if turn % 2 else ways[::-1])][:: 1 if turn % 2 else -1] for turn in range(PAIRS)]
    assert len({rows for pair in pairs for _, rows in pair}) == 1
    ratio = statistics.median(sql / sigma for (sql, _), (sigma, _) in pairs)
    sql, sigma = (statistics.median(pair[way][0] for pair in pairs) / count * 1e6 for way in range(2))
    print(f"a filter, {what}: {sql:.3f} us an event, its Sigma rule {sigma:.3f}: {ratio:.2f} x")


def flink(python: str, lines: Sequence[bytes], number: int) -> float:
    """CPU seconds of Apache Flink and its JVM, their start included."""
    with tempfile.TemporaryDirectory() as folder:
        data, script, text = Path(folder) / "readings.json", Path(folder) / "run.py", Path(folder) / "queries.sql"
        data.write_bytes(b"\n".join(lines) + b"\n")
        script.write_text(FLINK)
        text.write_text(";\n".join(queries(number)))
        command = ["taskset", "-c", "0", python, str(script), data.as_uri(), str(text)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def feeding(query: str, count: int, devices: int = DEVICES) -> Callable[[], Network]:
    """What feeds so many rows to the network of a statement alone, and returns it."""
    network = Network(compiled(f"{TABLE}INSERT INTO alerts {query};").statements, Budget(1 << 30))
    ((rule, scans),) = network.scans.items()
    rows = []
    for i in range(count):
        device, temperature = f"device-{i * 7919 % devices:06}", i * 31 % 450 / 10
        values = {"ts": (START + i // 2) * 1000, "device": device, "temperature": temperature}
        rows.append((i, *(values[source.path] for source in scans[0].sources)))

    def feed() -> Network:
        for start in range(0, count, 2000):
            for row in rows[start : start + 2000]:
                network.feed(rule, row)
            network.flush()
        return network

    return feed


def main(count: int) -> None:
    lines = list(readings(count))
    stream = chunks(lines, "json")
    for number in (1, 10, 100, 500):
        before, began = resident(), time.process_time()
        plan = compiled(TABLE + "".join(f"INSERT INTO alerts {query};\n" for query in queries(number)))
        compiling = (time.process_time() - began) / number
        seconds, alerted = evaluate(plan, stream)
        grown = (resident() - before) / 1e6
        beside = ""
        if (python := os.environ.get("FLINK")) and number <= 100:
            start, whole = flink(python, lines[:100], number), flink(python, lines, number)
            beside = f"; Flink {whole:.1f} s of CPU, {start:.1f} of them to start"
        print(
            f"{number:4} statements: {seconds / count * 1e6:6.2f} us an event, {alerted} rows, {grown:+.0f} MB,"
            f" {compiling * 1e3:.1f} ms a statement to compile{beside}"
        )
    if "FLINK" not in os.environ:
        print("no Apache Flink beside: set FLINK to a Python with apache-flink 2.3")
    head = b"<38>Nov 20 10:00:00 web1 sshd[7]: "
    texts = [b"Failed password for root from 203.0.113.9 port 22 ssh2", b"Accepted publickey for deploy from 10.0.0.1"]
    syslog = chunks([head + texts[i % 50 != 0] for i in range(count)], "syslog")
    plans = compiled(FILTER), compile_rules(text=SIGMA)
    for what, measure in (("engine and fields", evaluate), ("from the log to the outbox", lived)):
        compared(what, [partial(measure, plan, syslog) for plan in plans], count)
    seconds, rows = lived(compiled(TABLE + SPLIT), stream)
    print(f"{seconds / rows * 1e6:.1f} us a row for a sink, two statements that split: {rows / seconds:,.0f} a second")
    for name, query in OPERATORS.items():
        feed, began = feeding(query, count // 2), time.process_time()
        feed()
        print(f"{(time.process_time() - began) / (count // 2) * 1e6:.1f} us a row for {name}")
    groups = 100_000
    feed = feeding(OPERATORS["windows of 10 s"].replace("'10' SECOND", "'1' HOUR"), groups, groups)
    tracemalloc.start()
    network = feed()
    size = tracemalloc.get_traced_memory()[0] / groups + sys.getsizeof("device-000000")
    print(f"{size:.0f} bytes a group with its key's text, {network.budget.used / groups:.0f} accounted")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
