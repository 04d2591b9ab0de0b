"""A report's first screen for a terminal: what to look at first, and short lists of what is busiest.

Every cell goes through ``plain`` and keeps to its line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from spark_jobs.common.plain import plain
from spark_jobs.report import headline
from spark_jobs.report.headline import Report
from spark_jobs.tables.ask import LEVELS

TOP = 10
MAX_CELL = 60
"""Characters of a cell."""

_BARS = "▁▂▃▄▅▆▇█"

Cell: TypeAlias = str | int | None


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table; ``note`` says what its columns mean or what was left out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


def text(report: Report) -> str:
    """The report for a terminal."""
    parts = [f"Vedette report, {headline.span(report.period)} (UTC)", headline.sentence(report.counts), ""]
    by_hour = [0] * 24
    for one in report.counts.hours:
        by_hour[one.hour.hour] += one.alerts
    if peak := max(by_hour):
        bars = "".join(_BARS[-(-n * (len(_BARS) - 1) // peak)] if n else " " for n in by_hour)
        parts += [f"by hour  00 |{bars}| 24   most in an hour of the day: {peak:,}", ""]
    if first := headline.look_first(report):
        parts += ["Look at first", *(_pointer(number, one) for number, one in enumerate(first, 1)), ""]
    for section in sections(report):
        title, note = plain(section.title), plain(section.note)
        parts += [f"{title}  ({note})" if section.note else title, *lines(section), ""]
    return "\n".join(parts)


def _pointer(number: int, one: headline.Pointer) -> str:
    note = f"  ({plain(one.note)})" if one.note else ""
    return f"  {number:2}. {one.kind:10}  {plain(one.text)}{note}"


def sections(report: Report) -> list[Section]:
    """The lists of the text."""
    counts, agents = report.counts, report.accounts.agents
    levels = sorted(counts.levels, key=lambda one: LEVELS.index(one.level) if one.level in LEVELS else len(LEVELS))
    sums = tuple((one.level, one.alerts, one.matches) for one in levels)
    found = [
        Section("Levels", ("level", "alerts", "matches"), sums),
        Section(
            "Rules",
            ("rule", "level", "alerts", "matches", "sites", "hosts", "rule_id"),
            tuple(
                (one.rule_title, one.level, one.alerts, one.matches, one.sites, one.hosts, one.rule_id)
                for one in counts.rules.items[:TOP]
            ),
            _beyond(counts.rules.of),
        ),
        Section(
            "Hosts",
            ("host", "site", "fleet", "alerts", "matches", "rules"),
            tuple(
                (one.host, one.site, one.fleet, one.alerts, one.matches, one.rules) for one in counts.hosts.items[:TOP]
            ),
            _beyond(counts.hosts.of),
        ),
        Section(
            "Entities",
            ("kind", "value", "alerts", "rules", "sites"),
            tuple((one.kind, one.value, one.alerts, one.rules, one.sites) for one in counts.entities.items[:TOP]),
            _beyond(counts.entities.of),
        ),
        Section(
            "Most severe alerts",
            ("time", "level", "rule", "site", "host", "event"),
            tuple(
                (f"{one.counted_at:%H:%M:%S}", one.level, one.rule_title, one.site, one.host, one.raw)
                for one in counts.severest[:TOP]
            ),
            "the newest of each rule first; event cut",
        ),
        Section(
            "Agents",
            ("agent", "state", "heard", "version", "received", "evaluated", "dropped", "lost", "landed", "missing"),
            tuple(
                (one.agent_id, one.state, f"{one.last_seen:%Y-%m-%d %H:%M:%S}" if one.last_seen else None, one.version,
                 one.received, one.judged, one.dropped, one.lost, one.landed, one.missing)
                for one in agents.items[:TOP]
            ),
            "those in trouble first; missing: gaps among the numbers of what landed",
        ),
    ]  # fmt: skip
    if report.accounts.letters.items:
        rows = tuple((one.kind, one.reason, one.letters, one.rows) for one in report.accounts.letters.items[:TOP])
        found.append(Section("Could not be read", ("what", "reason", "letters", "rows"), rows))
    if counts.other_days:
        found.append(Section("Days with alerts", ("day", "alerts"), counts.other_days))
    return found


def lines(section: Section) -> list[str]:
    """A section's table, a row a line, numbers to the right."""
    if not section.rows:
        return ["  none"]
    cells = [[_cut(_shown(cell)) for cell in row] for row in section.rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(section.columns)]
    right = [all(row[i] is None or isinstance(row[i], int) for row in section.rows) for i in range(len(widths))]
    return [
        "  " + "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in [list(section.columns), *cells]
    ]


def _shown(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else plain(cell)


def _cut(value: str) -> str:
    return value if len(value) <= MAX_CELL else value[: MAX_CELL - 1] + "…"


def _beyond(number: int) -> str:
    return f"the first {TOP} of {number:,}" if number > TOP else ""
