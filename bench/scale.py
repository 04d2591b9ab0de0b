"""``docs/scale.md``: its tables, made of ``docs/scale/measured.json``; ``python -m bench.scale`` makes them again.

The figures are those of ``bench.spark`` (``runs``, one for each size, skew and machine) and ``bench.region``
(``region``). What a fleet of another size needs is computed from them by ``SIZES``: each line is a formula over the
names in ``ASSUMED``, over measured figures and over the lines before it, and the formula that is shown is the one that
is computed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bench.report import filled, markdown

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "scale.md"
MEASURED = ROOT / "docs" / "scale" / "measured.json"

GROWTH = 1.3
"""Times the CPU-seconds of an alert in the next smaller run on the same machine, at most."""
FLEETS = (1_000, 100_000)
WINDOWS = {"campaigns": 14, "baselines": 35, "risk": 56, "noise": 7, "coverage": 30, "report": 1, "export": 1,
           "maintain": 3}  # fmt: skip
"""Days of alerts that a job looks at, run daily as it is by default."""
LOOKED_AT = {"export": 1 / 14}
"""Share of the alerts that a job of the benchmark looks at, where that is not all of them."""


class Line(NamedTuple):
    """One figure of a fleet: ``name`` in formulas, what it is, its unit, and how it is computed."""

    name: str
    what: str
    unit: str
    formula: str


ASSUMED: Mapping[str, tuple[float, str]] = {
    "alerts_an_agent": (1000, "alerts of an agent a day; put your own here"),
    "peak": (10, "busiest minute over the day's mean"),
    "heartbeat": (60, "seconds between an agent's heartbeats"),
    "busy": (0.5, "share of a core that is planned with; the rest is for the hour after an outage"),
    "sessions": (25_000, "connections that one broker is given, TLS included"),
    "cores": (4, "cores of an executor"),
    "variety": (3, "bytes of a real alert over those of a made-up one, whose texts are much alike once compressed"),
    "kafka_days": (7, "days that Kafka keeps messages"),
    "replicas": (3, "copies that Kafka keeps"),
    "table_days": (90, "days that the tables keep"),
    "window": (3600, "seconds in which the daily jobs are to be done"),
}
"""What no benchmark can know."""

SIZES = (
    Line("a_day", "alerts a day", "", "agents * alerts_an_agent"),
    Line("mean", "alerts a second, mean", "/s", "a_day / 86400"),
    Line("most", "alerts a second, busiest minute", "/s", "mean * peak"),
    Line("messages", "messages at the brokers, busiest minute (alert, receipt, heartbeat)", "/s",
         "2 * most + agents / heartbeat"),
    Line("broker_cores", "cores of brokers for these", "cores", "messages * message_cpu_us / 1e6 / busy"),
    Line("brokers", "brokers (mosquitto uses one core), one to spare", "",
         "ceil(max(broker_cores, agents / sessions)) + 1"),
    Line("broker_memory", "memory of their connections, TLS not counted", "B", "agents * connection_bytes"),
    Line("landings", "landings, one to spare", "", "ceil(most / landing_rate / busy) + 1"),
    Line("landed", "landed a day, Parquet", "B", "a_day * landed_bytes * variety"),
    Line("kafka_in", "into Kafka, busiest minute", "B/s", "most * kafka_bytes * variety"),
    Line("kafka_disk", "disks of Kafka", "B", "a_day * kafka_bytes * variety * kafka_days * replicas"),
    Line("ingest_cores", "cores of ingest, busiest minute", "cores", "(most + agents / heartbeat) * ingest_cpu / busy"),
    Line("partitions", "partitions of the topic of alerts", "", "max(4, 2 * ceil(ingest_cores))"),
    Line("ingest_executors", "executors of ingest", "", "ceil(ingest_cores / cores)"),
    Line("daily_cpu", "CPU-seconds of all daily jobs", "s", "a_day * daily_cpu_an_alert"),
    Line("daily_executors", "executors for these", "", "ceil(daily_cpu / window / cores / busy)"),
    Line("tables", "disks of the tables", "B", "a_day * table_bytes * variety * table_days"),
    Line("state", "state of the streams", "B", "0 * a_day"),
    Line("checkpoint", "checkpoints of the streams, a day", "B", "landed / batch_bytes * checkpoint_bytes"),
)  # fmt: skip


# Measured figures ------------------------------------------------------------------------------------------------


def keep(run: Mapping[str, Any], machine: Mapping[str, Any]) -> None:
    """Put a run of ``bench.spark`` into the file, in place of that of the same size, skew and machine; jobs that it
    left out keep the figures they had."""
    measurements = load()
    before = find(measurements, run["alerts"], run["skew"], machine["cpu"]) or {"jobs": {}}
    whole = {**before, **run, "jobs": {**before["jobs"], **run["jobs"]}, "machine": dict(machine)}
    runs = [*(earlier for earlier in measurements["runs"] if earlier is not before), whole]
    measurements["runs"] = sorted(runs, key=lambda run: (run["skew"], run["alerts"], run["machine"]["cpu"]))
    _store(measurements)


def keep_region(figures: Mapping[str, Any]) -> None:
    """Put the figures of ``bench.region`` into the file."""
    _store({**load(), "region": rounded(figures)})


def load() -> dict[str, Any]:
    """All measured figures."""
    measurements: dict[str, Any] = {"runs": [], "region": {}}
    return measurements | (json.loads(MEASURED.read_text("utf-8")) if MEASURED.exists() else {})


def _store(measurements: Mapping[str, Any]) -> None:
    MEASURED.parent.mkdir(exist_ok=True)
    MEASURED.write_text(json.dumps(measurements, indent=1, ensure_ascii=False) + "\n", "utf-8")


def rounded(value: Any) -> Any:
    """``value`` with every number in it to two places."""
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return round(value, 2) if isinstance(value, float) else value


def find(measurements: Mapping[str, Any], alerts: int, skew: float, cpu: str) -> Any:
    """The run of this size on this machine, or None."""
    runs = (run for run in measurements["runs"] if (run["alerts"], run["skew"]) == (alerts, skew))
    return next((run for run in runs if run["machine"]["cpu"] == cpu), None)


def even(measurements: Mapping[str, Any]) -> list[Any]:
    """The runs without skew, the smallest first."""
    return [run for run in measurements["runs"] if not run["skew"]]


def _largest(measurements: Mapping[str, Any], jobs: Collection[str]) -> Any:
    """Of the runs that have these jobs one of the most alerts, the newest of them; None without any."""
    runs = (run for run in even(measurements) if {*jobs} <= run["jobs"].keys())
    return max(runs, key=lambda run: (run["alerts"], max(run["jobs"][job]["at"] for job in jobs)), default=None)


# The formulas ----------------------------------------------------------------------------------------------------


def computed(formula: str, names: Mapping[str, float]) -> float:
    """The value of ``formula``, one of this file's. Raises NameError for an unknown name."""
    return float(eval(formula, {"max": max, "ceil": math.ceil}, dict(names)))  # noqa: S307 - ours, nobody else's


def measured(measurements: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """The measured figures that the formulas name, each with what it is; of the largest runs that have them."""
    figures: dict[str, tuple[float, str]] = {}
    if run := _largest(measurements, ["ingest"]):
        ingest, size = run["jobs"]["ingest"], f"{run['alerts']:,} alerts"
        tables = {**ingest["tables_mb"], **run["jobs"].get("maintain", {}).get("tables_mb", {})}
        figures |= {
            "ingest_cpu": (ingest["cpu_seconds"] / ingest["rows"], f"CPU-seconds of ingest for a landed row, {size}"),
            "landed_bytes": (run["landing_mb"] * 1e6 / run["landed"], f"bytes of a landed alert, {size}"),
            "table_bytes": (sum(tables.values()) * 1e6 / run["alerts"], f"bytes of all tables for an alert, {size}"),
            "checkpoint_bytes": (run["checkpoint_mb"] * 1e6 / max(run["batches"], 1), "checkpoint bytes for a batch"),
            "batch_bytes": (run["batch_bytes"], "landed bytes in a batch, the default"),
        }
    if run := _largest(measurements, WINDOWS):
        costs = {job: run["jobs"][job]["cpu_seconds"] / run["alerts"] / LOOKED_AT.get(job, 1) for job in WINDOWS}
        days = ", ".join(f"{job} {days}" for job, days in WINDOWS.items())
        what = f"CPU-seconds of the daily jobs for an alert a day: of each those for an alert, times its days ({days})"
        daily = sum(costs[job] * days for job, days in WINDOWS.items())
        figures["daily_cpu_an_alert"] = (daily, f"{what}; {run['alerts']:,} alerts")
    if region := measurements["region"]:
        landing, broker = region["landing"], region["broker"]
        through = f"CPU-microseconds of mosquitto for a message of {broker['message_bytes']:,.0f} bytes, in and out"
        figures |= {
            "kafka_bytes": (landing["kafka_zstd_bytes"], "bytes of an alert in Kafka, JSON by zstd"),
            "landing_rate": (landing["rows_per_cpu_second"], "rows that a landing writes in a CPU-second"),
            "connection_bytes": (broker["connection_bytes"], "bytes of an idle connection in mosquitto, no TLS"),
            "message_cpu_us": (broker["message_cpu_us"], through),
        }
    return figures


def sizes(measurements: Mapping[str, Any], agents: int) -> dict[str, float]:
    """The lines of ``SIZES`` for a fleet of ``agents``, those that hang on a figure not measured yet left out."""
    names = {"agents": float(agents), **{name: value for name, (value, _) in ASSUMED.items()}}
    names |= {name: value for name, (value, _) in measured(measurements).items()}
    figures: dict[str, float] = {}
    for line in SIZES:
        try:
            figures[line.name] = names[line.name] = computed(line.formula, names)
        except NameError:
            continue
    return figures


# The document ----------------------------------------------------------------------------------------------------


def document() -> None:
    """Rewrite the tables of ``docs/scale.md``."""
    DOCUMENT.write_text(written(DOCUMENT.read_text("utf-8"), load()), "utf-8")


def written(text: str, measurements: Mapping[str, Any]) -> str:
    """``text`` with each ``<!-- bench:NAME -->`` block made of ``known``."""
    return filled(text, {name: block(measurements) for name, block in BLOCKS.items()})


def _jobs(measurements: Mapping[str, Any]) -> str:
    rows, notes = [], []
    for run in even(measurements):
        for job, cost in run["jobs"].items():
            rows.append((
                f"{run['alerts']:,}", _short(run), job, f"{cost['rows']:,}", f"{cost['seconds']:,.1f}",
                f"{cost['rows'] / cost['seconds']:,.0f}", f"{cost['cpu_seconds']:,.1f}",
                f"{cost['rows'] / max(cost['cpu_seconds'], 0.01):,.0f}",
                f"{cost['jvm_mb']:,.0f}" if cost["jvm_mb"] else "", f"{cost['python_mb']:,.0f}",
                f"{cost['files']:,}, {cost['file_mb']:,.0f} MB" if cost["files"] else "",
            ))  # fmt: skip
        machine = run["machine"]
        notes.append(
            f"{run['alerts']:,} alerts: {machine['cpu']}, {machine['cores']} cores. {_missing(run)} {_when(run)}  "
        )
    names = "alerts, machine, job, rows read, seconds, rows/s, CPU-s, rows/CPU-s, JVM MB, Python MB, data files"
    return "\n".join([markdown(names.split(", "), rows), *notes, ""])


def _short(run: Mapping[str, Any]) -> str:
    """The machine's name in two words."""
    return " ".join(run["machine"]["cpu"].replace("(R)", "").replace("(TM)", "").split()[:2])


def _when(run: Mapping[str, Any]) -> str:
    """The sessions that the figures are of: since when, which jobs, and what is known of the load before and the start,
    which a session that was cut short did not leave."""
    sessions: dict[tuple[str, str], list[str]] = {}
    for job, cost in run["jobs"].items():
        load = "" if cost["load"] is None else f", load {cost['load']}"
        start = "" if cost["start_cpu_seconds"] is None else f", start {cost['start_cpu_seconds']:,} CPU-s"
        sessions.setdefault((cost["at"], f"{load}{start}"), []).append(job)
    return " ".join(f"{at}{about}: {', '.join(jobs)}." for (at, about), jobs in sorted(sessions.items()))


def _missing(run: Mapping[str, Any]) -> str:
    left = [job for job in ("ingest", *WINDOWS) if job not in run["jobs"]]
    return f"Not run: {', '.join(left)}." if left else "All jobs ran."


def _growth(measurements: Mapping[str, Any]) -> str:
    runs = even(measurements)
    pairs = [pair for cpu in sorted({run["machine"]["cpu"] for run in runs})
             for pair in pairwise(run for run in runs if run["machine"]["cpu"] == cpu)]  # fmt: skip
    if not pairs:
        return "No two sizes have been run on one machine: nothing to compare.\n"
    heads = (f"{_short(small)}, {small['alerts']:,} to {large['alerts']:,}" for small, large in pairs)
    rows = [(job, *(growth(small, large, job) for small, large in pairs)) for job in ("ingest", *WINDOWS)]
    return markdown(("job", *heads), rows)


def growth(small: Mapping[str, Any], large: Mapping[str, Any], job: str) -> str:
    """CPU-seconds of an alert in the large run over those in the small one, and what is to be said of it."""
    before, after = small["jobs"].get(job), large["jobs"].get(job)
    if before is None or after is None:
        return ""
    ratio = after["cpu_seconds"] / large["alerts"] / (before["cpu_seconds"] / small["alerts"])
    above = "" if ratio <= GROWTH else f" (above {GROWTH})"
    return f"{ratio:.2f}{above}{'' if before['code'] and before['code'] == after['code'] else ', other code'}"


def _skew(measurements: Mapping[str, Any]) -> str:
    runs = (run for run in measurements["runs"] if run["skew"])
    pairs = [(find(measurements, run["alerts"], 0.0, run["machine"]["cpu"]), run) for run in runs]
    if (pair := next((pair for pair in reversed(pairs) if pair[0] is not None), None)) is None:
        return "Not run.\n"
    plain, large = pair
    rows = []
    for job in [job for job in large["jobs"] if job in plain["jobs"]]:
        cost, before = large["jobs"][job], plain["jobs"][job]["cpu_seconds"]
        ratio = f"{cost['cpu_seconds'] / before:.2f}"
        tasks = (f"{cost['longest']:.1f}", f"{cost['uneven']:.2f}") if cost["tasks"] else ("", "")
        rows.append((job, f"{before:,.1f}", f"{cost['cpu_seconds']:,.1f}", ratio, *tasks))
    share = f"CPU-s, {large['skew']:.0%} at one site"
    table = markdown(("job", "CPU-s", share, "ratio", "longest task, s", "over its stage's mean"), rows)
    return f"{table}\n{large['alerts']:,} alerts, {_short(large)}. {_when(large)}\n"


def _names(figures: Mapping[str, tuple[float, str]]) -> str:
    rows = [(f"`{name}`", f"{v:,.3g}" if v < 1000 else f"{v:,.0f}", what) for name, (v, what) in figures.items()]
    return markdown(("name", "value", "what"), rows)


def _sizes(measurements: Mapping[str, Any]) -> str:
    columns = [sizes(measurements, agents) for agents in FLEETS]
    rows = []
    for line in SIZES:
        values = [shown(column[line.name], line.unit) if line.name in column else "not measured" for column in columns]
        rows.append((f"`{line.name}`", line.what, f"`{line.formula.replace('*', '×')}`", *values))
    return markdown(("name", "what", "formula", *(f"{agents:,} agents" for agents in FLEETS)), rows)


def shown(value: float, unit: str) -> str:
    """``value`` with its unit, at three digits."""
    if unit in ("B", "B/s"):
        for name in ("B", "kB", "MB", "GB", "TB"):
            if value < 1000 or name == "TB":
                return f"{value:.3g} {name}{unit[1:]}"
            value /= 1000
    text = f"{value:,.0f}" if value >= 100 or not value % 1 else f"{value:.2g}"
    return f"{text} {unit}".strip() if unit not in ("", "/s") else f"{text}{unit}"


BLOCKS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "jobs": _jobs,
    "growth": _growth,
    "skew": _skew,
    "assumed": lambda _: _names(ASSUMED),
    "measured": lambda measurements: _names(measured(measurements)),
    "sizes": _sizes,
}


if __name__ == "__main__":
    document()
