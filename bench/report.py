"""Results in, documentation out: the table of targets, the tables of each scenario, and where they are put.

A scenario's result has ``tables``, each a list of rows by column, and may have a sentence below them (``said``).
``docs/performance.md`` holds pairs of markers, ``<!-- bench:NAME -->`` and ``<!-- /bench:NAME -->``; what lies between
is replaced, all else is a person's and stays.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
Results = Mapping[str, Any]


class Target(NamedTuple):
    """One figure that was promised: at least (≥) or at most (≤) so much, and its place among the scenarios' results.

    A place is a path of keys. Of a list it has an index, or the values that a row has: the last such row.
    """

    measure: str
    bound: str
    target: float
    unit: str
    place: str


PER = "events per CPU-second"
TARGETS = (
    Target("TCP to outbox, 3,000 rules, 1 % candidates", "≥", 1_000_000, PER,
           "throughput/cells/rules=3000,share=0.01/events_per_cpu_second"),
    Target("… its peak memory", "≤", 200, "MB", "throughput/cells/rules=3000,share=0.01/peak_rss_mb"),
    Target("every event a candidate", "≥", 50_000, PER, "throughput/cells/rules=3000,share=1.0/events_per_cpu_second"),
    Target("every event a candidate, 90 % repeated", "≥", 150_000, PER, "throughput/repeated/events_per_cpu_second"),
    Target("3,000 rules against 10, 1 % candidates", "≤", 1.3, "×", "throughput/rules_ratio"),
    Target("SigmaHQ, real Windows events, live", "≤", 16, "µs an event", "sigmahq/real/live/on"),
    Target("… `scan --route`", "≤", 8, "µs an event", "sigmahq/real/scan_routed/on"),
    Target("… `scan`, every rule asked", "≤", 12, "µs an event", "sigmahq/real/scan_unrouted/on"),
    Target("SigmaHQ, made events, `scan --route`", "≤", 16, "µs an event", "sigmahq/made/scan_routed/on"),
    Target("cache, an entry of ten million", "≤", 20, "bytes", "cache/tables/1/table=cache/bytes_per_entry"),
    Target("cache, one look-up", "≤", 1000, "ns", "cache/tables/1/table=cache/hit_ns"),
    Target("ten rule sets against one", "≤", 1.2, "×", "rulesets/ratio_same"),
    Target("ten rule sets merged on the agent against one", "≤", 1.18, "×", "rulesets/ratio"),
    Target("p99 socket to outbox, 100,000/s", "≤", 20, "ms",
           "latency/tables/0/rate=100000,fsync_ms_added=0/outbox_p99"),
    Target("UDP without loss", "≥", 300_000, "datagrams/s", "inputs/tables/0/0/events_per_second"),
    Target("MQTT, one event a message", "≥", 12_000, PER, "inputs/tables/0/1/events_per_cpu_second"),
    Target("MQTT, NDJSON", "≥", 500_000, PER, "inputs/tables/0/2/events_per_cpu_second"),
    Target("correlation, commits on", "≥", 300_000, "updates per CPU-second",
           "correlations/tables/0/kind=event_count,groups=1000,commits=True/updates_per_cpu_second"),
    Target("a live group of event_count", "≤", 200, "bytes",
           "correlations/tables/0/kind=event_count,groups=1000000/bytes_per_group"),
    Target("stored raw log evaluated, 1 % candidates", "≥", 2_000_000, PER, "throughput/stored/events_per_cpu_second"),
    Target("idle memory, 3,000 rules", "≤", 80, "MB", "footprint/tables/0/rules=3000/idle_rss_mb"),
    Target("warm start, 3,000 rules", "≤", 1, "s", "footprint/tables/0/rules=3000/warm_start_seconds"),
)  # fmt: skip


def at(results: Any, place: str) -> Any:
    """What stands at a ``Target``'s place; None: nothing."""
    for part in place.split("/"):
        if isinstance(results, list) and "=" in part:
            wanted = dict(pair.split("=") for pair in part.split(","))
            rows = [row for row in results if all(str(row.get(key)) == value for key, value in wanted.items())]
            results = rows[-1] if rows else None
        elif isinstance(results, list):
            results = results[int(part)] if int(part) < len(results) else None
        elif results is not None:
            results = results.get(part)
    return results


def targets(scenarios: Results) -> list[tuple[str, str, str, str]]:
    """A row per target: measure, target, what was measured, whether that is met."""
    rows = []
    for target in TARGETS:
        measured, met = at(scenarios, target.place), ""
        if measured is not None:
            enough = (operator.ge if target.bound == "≥" else operator.le)(measured, target.target)
            met = "yes" if enough else "**no**"
        wanted = f"{target.bound} {number(target.target)} {target.unit}"
        rows.append((target.measure, wanted, number(measured), met))
    return rows


def number(value: float | None) -> str:
    """For people: three digits behind the point for what is small, none for what is large."""
    if value is None:
        return "not measured"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.3g}" if abs(value) < 10 else f"{value:,.1f}".removesuffix(".0")


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def table(rows: Iterable[Sequence[str]]) -> str:
    """The targets, in Markdown."""
    return markdown(("measure", "target", "measured", "met"), rows)


def flat(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of rows whose values are plain; lists and mappings among them are left out."""
    names = list(dict.fromkeys(k for row in rows for k, value in row.items() if not isinstance(value, list | dict)))
    return markdown(
        [name.replace("_", " ") for name in names], ([plain(row.get(name)) for name in names] for row in rows)
    )


def plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else value or ""


def filled(document: str, parts: Mapping[str, str]) -> str:
    """``document`` with ``parts`` between its markers; markers without a part keep what they hold."""

    def put(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- bench:{name} -->\n{parts[name]}<!-- /bench:{name} -->" if name in parts else match[0]

    return re.sub(r"<!-- bench:(\w+) -->\n.*?<!-- /bench:\1 -->", put, document, flags=re.DOTALL)


def document(results: Results, path: Path = DOCUMENT) -> None:
    """Write the tables into ``path``; what these results lack stays as it is there."""
    before, machine = path.read_text("utf-8"), results["machine"]
    rows = (tuple(line.strip("| ").split(" | ")) for line in before.splitlines() if line.startswith("| "))
    old = {row[:2]: row for row in rows if len(row) == 4}
    measured = [old.get(row[:2], row) if not row[3] else row for row in targets(results["scenarios"])]
    parts = {
        "environment": f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_mb'] // 1024} GB, Linux"
        f" {machine['kernel']}; {', '.join(f'{name} {version}' for name, version in results['versions'].items())}."
        f" The agent on {'one core' if results['pinned_to_core'] is not None else 'all cores'}, memory limit:"
        f" {results['memory_limit']}.\n",
        "targets": table(measured),
    }
    for name, result in results["scenarios"].items():
        said = f"{result['said']}\n\n" if result.get("said") else ""
        sampled = ", with the sampler on, which costs a little" if result["profiled"] else ""
        alone = "; what asks how soon ran before the machine's other work" if result.get("undisturbed") else ""
        when = f"{result['at']}, machine load {result['load']}{sampled}{alone}.\n"
        parts[name] = "\n".join([*map(flat, result["tables"]), said + when])
    path.write_text(filled(before, parts), "utf-8")
