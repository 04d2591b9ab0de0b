"""Results in, documentation out: the table of targets, a table per scenario, and where they are put.

``docs/performance.md`` holds pairs of markers, ``<!-- bench:NAME -->`` and ``<!-- /bench:NAME -->``; what lies between
is replaced, all else is a person's and stays.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"
Results = Mapping[str, Any]


class Target(NamedTuple):
    """One figure that was promised. ``find`` takes the scenarios' results; KeyError and the like: not measured."""

    measure: str
    target: float
    least: bool
    unit: str
    find: Callable[[Results], float]


def _cell(rules: int, share: float, key: str) -> Callable[[Results], float]:
    return lambda scenarios: next(
        float(row[key]) for row in scenarios["throughput"]["cells"] if (row["rules"], row["share"]) == (rules, share)
    )


def _row(scenario: str, key: str, **wanted: Any) -> Callable[[Results], float]:
    """``key`` (dotted) of the scenario's row with these values."""

    def find(scenarios: Results) -> float:
        row = next(
            row for row in scenarios[scenario]["rows"] if all(row.get(name) == value for name, value in wanted.items())
        )
        for part in key.split("."):
            row = row[part]
        return float(row)

    return find


def _at(path: str) -> Callable[[Results], float]:
    def find(scenarios: Results) -> float:
        here: Any = scenarios
        for part in path.split("."):
            here = here[part]
        return float(here)

    return find


PER = "events per CPU-second"
RATE = "events_per_cpu_second"
TARGETS = (
    Target("TCP to outbox, 3,000 rules, 1 % candidates", 1_000_000, True, PER, _cell(3000, 0.01, RATE)),
    Target("… its peak memory", 200, False, "MB", _cell(3000, 0.01, "peak_rss_mb")),
    Target("every event a candidate", 50_000, True, PER, _cell(3000, 1.0, RATE)),
    Target(
        "every event a candidate, 90 % repeated", 150_000, True, PER,
        _at("throughput.extra.repeated.events_per_cpu_second"),
    ),
    Target("3,000 rules against 10, 1 % candidates", 1.3, False, "×", _at("throughput.rules_ratio")),
    Target("SigmaHQ, real Windows events, live", 16, False, "µs an event", _at("sigmahq.real.live.on")),
    Target("… `scan --route`", 8, False, "µs an event", _at("sigmahq.real.scan_routed.on")),
    Target("… `scan`, every rule asked", 12, False, "µs an event", _at("sigmahq.real.scan_unrouted.on")),
    Target("SigmaHQ, made events, `scan --route`", 16, False, "µs an event", _at("sigmahq.made.scan_routed.on")),
    Target("cache, an entry of ten million", 20, False, "bytes", lambda results: _cache(results, "bytes_per_entry")),
    Target("cache, one look-up", 1000, False, "ns", lambda results: _cache(results, "hit_ns")),
    Target("ten rule sets against one", 1.2, False, "×", _at("merge.ratio")),
    Target("ten rule sets merged on the agent against one", 1.18, False, "×", _at("rulesets.ratio")),
    Target(
        "p99 socket to outbox, 100,000/s", 20, False, "ms",
        _row("latency", "outbox.p99", rate=100_000, fsync_ms_added=0),
    ),
    Target("UDP without loss", 300_000, True, "datagrams/s", _at("inputs.udp.events_per_second")),
    Target("MQTT, one event a message", 12_000, True, PER, _at("inputs.mqtt.one_event.events_per_cpu_second")),
    Target("MQTT, NDJSON", 500_000, True, PER, _at("inputs.mqtt.ndjson.events_per_cpu_second")),
    Target(
        "correlation, commits on", 300_000, True, "updates per CPU-second",
        _row("correlation", "updates_per_cpu_second", kind="event_count", commits=True),
    ),
    Target(
        "a live group of event_count", 200, False, "bytes",
        _row("correlation", "bytes_per_group", kind="event_count", groups=1_000_000),
    ),
    Target(
        "stored raw log evaluated, 1 % candidates", 2_000_000, True, PER,
        _at("throughput.extra.stored.events_per_cpu_second"),
    ),
    Target("idle memory, 3,000 rules", 80, False, "MB", _row("footprint", "idle_rss_mb", rules=3000)),
    Target("warm start, 3,000 rules", 1, False, "s", _row("footprint", "warm_start_seconds", rules=3000)),
)  # fmt: skip


def _cache(scenarios: Results, key: str) -> float:
    """Of the agent's own store at its largest."""
    row = max(
        (row for row in scenarios["cache"]["store"] if row["table"] == "cache"), key=lambda row: int(row["entries"])
    )
    return float(row[key]) if row["entries"] >= 5_000_000 else float("nan")


def targets(scenarios: Results) -> list[dict[str, Any]]:
    """A row per target; ``measured`` is None where the scenario did not run."""
    rows = []
    for target in TARGETS:
        try:
            measured = target.find(scenarios)
        except (KeyError, StopIteration, IndexError, TypeError):
            measured = None
        if measured is not None and measured != measured:  # too small a trial to say
            measured = None
        met = None if measured is None else (operator.ge if target.least else operator.le)(measured, target.target)
        named = {"measure": target.measure, "target": target.target, "least": target.least, "unit": target.unit}
        rows.append({**named, "measured": measured, "met": met})
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


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The targets, in Markdown."""
    words = {True: "yes", False: "**no**", None: ""}
    return markdown(
        ("measure", "target", "measured", "met"),
        (
            (
                row["measure"],
                f"{'≥' if row['least'] else '≤'} {number(row['target'])} {row['unit']}",
                number(row["measured"]),
                words[row["met"]],
            )
            for row in rows
        ),
    )


def _throughput(result: Results) -> str:
    counts = sorted({row["rules"] for row in result["cells"]})
    shares = sorted({row["share"] for row in result["cells"]})
    cell = {(row["rules"], row["share"]): row for row in result["cells"]}
    matrix = markdown(
        ("rules", *(f"{share:.1%} candidates".replace(".0%", "%") for share in shares), "peak MB"),
        (
            (
                f"{count:,}",
                *(f"{cell[count, share]['events_per_cpu_second']:,}" for share in shares),
                number(max(cell[count, share]["peak_rss_mb"] for share in shares)),
            )
            for count in counts
        ),
    )
    extra = result["extra"]
    always = extra["always"]
    return (
        f"{matrix}\nIn events per CPU-second. With every event a candidate and 90 % of the messages repeated:"
        f" {extra['repeated'][RATE]:,}. With {always['rules_without_literal']} of the rules (1 %) without any literal,"
        f" so that every event is a candidate: {always[RATE]:,}, {always['us_per_event_more']} µs an event more."
        f" The stored log of a run evaluated again: {extra['stored']['events_per_cpu_second']:,}.\n"
    )


_WAYS = {
    "live": "live, TCP, routed",
    "scan_routed": "scan, routed",
    "scan_unrouted": "scan, all rules asked",
    "few": "scan, routed, ten rules",
}


def _sigmahq(result: Results) -> str:
    peer = result.get("rsigma")
    columns = {"on": "", "off": "… without the kernel", **({"rsigma": "rsigma"} if peer else {})}
    kinds = [name for name, of in result.items() if isinstance(of, dict) and "bytes_per_event" in of]
    rows = [
        (text, *(number(result[kind][way].get(of)) for kind in kinds for of in columns)) for way, text in _WAYS.items()
    ]
    header = ["CPU µs an event", *(text or f"{kind} events" for kind in kinds for text in columns.values())]
    sizes = ", ".join(f"{kind} {result[kind]['bytes_per_event']:,}" for kind in kinds)
    beside = (
        f"{peer}, by turns" if peer else "rsigma is not installed here (`cargo install rsigma`), and so not measured"
    )
    return (
        f"{markdown(header, rows)}\n{result['rules']:,} rules; bytes an event: {sizes}. Native kernel:"
        f" {result['kernel']}. {beside}.\n"
    )


def _services(result: Results) -> str:
    header = ("events", "bytes", "decided by the kernel", "CPU µs an event", "… without the kernel")
    rows = (
        (row["events"], f"{row['bytes']:,}", f"{row['decided_share']:.1%}", number(row["on"]), number(row["off"]))
        for row in result["rows"]
    )
    return f"{markdown(header, rows)}\n{result['rules']:,} rules.\n"


def _cache_text(result: Results) -> str:
    return _flat(result.get("events", [])) + "\n" + _flat(result.get("store", []))


def _flat(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of rows whose values are plain."""
    if not rows:
        return ""
    names = [name for name in rows[0] if not isinstance(rows[0][name], list | dict)]
    return markdown(
        [name.replace("_", " ") for name in names],
        ([_plain(row.get(name)) for name in names] for row in rows),
    )


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else "" if value is None else str(value)


def _merge(result: Results) -> str:
    rows = ((str(row["sets"]), f"{row['rules']:,}", number(row["us_per_event"])) for row in result["rows"])
    return (
        markdown(("rule sets", "rules", "µs an event"), rows)
        + f"\nA further 1,000 rules cost {result['us_per_event_and_1000_rules']} µs an event.\n"
    )


def _rulesets(result: Results) -> str:
    names = {"one": "one of them", "merged": "ten, merged", "apart": "ten, a plan each"}
    return (
        markdown(
            ("rule sets", "rules", "µs an event", "against one", "memory of the process"),
            (
                (
                    names[row["way"]],
                    f"{row['rules']:,}",
                    number(row["us_per_event"]),
                    f"{row['us_per_event'] / result['rows'][0]['us_per_event']:.2f}",
                    f"{row['memory_mb']:g} MB",
                )
                for row in result["rows"]
            ),
        )
        + (
            f"\nWhole agents: {number(result['agent_one'])} µs an event and {result['agent_one_mb']:g} MB with one set,"
            f" {number(result['agent_merged'])} µs and {result['agent_merged_mb']:g} MB with ten merged:"
            f" {result['ratio']} × the time"
            + (f"; the same rules as one set {number(result['agent_same'])} µs" if "agent_same" in result else "")
            + ".\n"
        )
        + _strict(result.get("strict"))
    )


def _strict(result: Results | None) -> str:
    if result is None:
        return ""
    merged, agent, process = (number(result[f"{name}_us_per_event"]) for name in ("merged", "agent", "process"))
    return (
        f"\nTwo sets on a whole agent: {merged} µs an event merged; with the second in strict isolation {agent} µs in"
        f" the agent and {process} µs in the set's process, which has {result['private_mb']:g} MB of private memory,"
        f" {result['resident_mb']:g} MB with mapped files.\n"
    )


def _latency(result: Results) -> str:
    return markdown(
        ("events/s", "fsync", "outbox p50", "p99", "p99.9", "broker p50", "p99", "p99.9"),
        (
            (
                f"{row['rate']:,}",
                f"+{row['fsync_ms_added']} ms",
                *(f"{row[where][name]:g} ms" for where in ("outbox", "broker") for name in ("p50", "p99", "p99.9")),
            )
            for row in result["rows"]
        ),
    )


def _inputs(result: Results) -> str:
    mqtt = result["mqtt"]
    rows = [
        ("UDP, highest rate without loss", result["udp"]),
        ("MQTT, one event a message", mqtt["one_event"]),
        (f"MQTT, NDJSON of {mqtt['batch']}", mqtt["ndjson"]),
        (f"MQTT, JSON array of {mqtt['batch']}", mqtt["array"]),
        ("file", result["file"]),
    ]
    return markdown(
        ("input", "events/s on the wall", PER, "µs an event"),
        (
            (name, *(number(row.get(key)) for key in ("events_per_second", "events_per_cpu_second", "us_per_event")))
            for name, row in rows
        ),
    )


def _burst(result: Results) -> str:
    return (
        f"Evaluation could take {result['judging_can_take_per_second']:,} events/s; {result['burst_events']:,} came in"
        f" {result['burst_seconds']} s ({result['burst_rate']:,}/s). None was lost;"
        f" {result['backlog_at_its_end']:,} were waiting in the raw log at the end of the burst and were evaluated"
        f" {result['caught_up_seconds']} s later."
        f" Peak memory {result['peak_rss_mb']} MB.\n"
    )


def _peers(result: Results) -> str:
    counts = sorted({row["patterns"] for row in result["rows"]})
    cell = {(row["peer"], row["patterns"]): row for row in result["rows"]}
    text = markdown(
        ("µs of CPU an event", *(f"{count:,} patterns" for count in counts)),
        (
            (peer, *(number(cell[peer, count]["us_per_event"]) if (peer, count) in cell else "" for count in counts))
            for peer in dict.fromkeys(row["peer"] for row in result["rows"])
        ),
    )
    missing = ", ".join(f"{row['peer']} (`apt-get install {row['package']}`)" for row in result["missing"])
    return text + (f"\nNot installed here, and so not measured: {missing}.\n" if missing else "")


TEXTS: Mapping[str, Callable[[Results], str]] = {
    "throughput": _throughput,
    "sigmahq": _sigmahq,
    "services": _services,
    "cache": _cache_text,
    "merge": _merge,
    "rulesets": _rulesets,
    "latency": _latency,
    "inputs": _inputs,
    "correlation": lambda result: _flat(result["rows"]),
    "burst": _burst,
    "peers": _peers,
    "footprint": lambda result: _flat(result["rows"]),
}


def _environment(results: Results) -> str:
    machine, versions = results["machine"], results["versions"]
    return (
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_mb'] // 1024} GB, Linux {machine['kernel']};"
        f" {', '.join(f'{name} {version}' for name, version in versions.items())}. The agent on"
        f" {'one core' if results['pinned_to_core'] is not None else 'all cores'}, memory limit:"
        f" {results['memory_limit']}.\n"
    )


def filled(document: str, parts: Mapping[str, str]) -> str:
    """``document`` with ``parts`` between its markers; markers without a part keep what they hold."""

    def put(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- bench:{name} -->\n{parts[name]}<!-- /bench:{name} -->" if name in parts else match[0]

    return re.sub(r"<!-- bench:(\w+) -->\n.*?<!-- /bench:\1 -->", put, document, flags=re.DOTALL)


def _kept(targets: str, document: str) -> str:
    """``targets`` with the rows of ``document`` for what was not measured now and was before."""
    match = re.search(r"<!-- bench:targets -->\n(.*?)<!-- /bench:targets -->", document, re.DOTALL)
    rows = match[1].splitlines() if match else ()
    before = {tuple(row.split(" | ")[:2]): row for row in rows}
    unknown = number(None)
    return "".join(
        f"{before.get(tuple(cells[:2]), row) if unknown in (cells := row.split(' | ')) else row}\n"
        for row in targets.splitlines()
    )


def document(results: Results, path: Path = DOCUMENT) -> None:
    """Write the tables into ``path``; what these results lack stays as it is there."""
    scenarios, before = results["scenarios"], path.read_text("utf-8")
    parts = {"environment": _environment(results), "targets": _kept(table(results["targets"]), before)}
    for name, result in scenarios.items():
        sampled = ", with the sampler on, which costs a little" if result.get("profiled") else ""
        alone = "; what asks how soon ran before the machine's other work" if result.get("undisturbed") else ""
        text = f"{TEXTS[name](result)}\n{result['at']}, machine load {result['load']}{sampled}{alone}.\n"
        parts[name] = text
    path.write_text(filled(before, parts), "utf-8")
