"""A report's first screen for a terminal: what to look at first, and short lists of what is busiest.

Every cell goes through ``plain`` and keeps to its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from spark_jobs.common.plain import cut, plain
from spark_jobs.report import freshness, headline
from spark_jobs.report.figures import Line
from spark_jobs.report.headline import Report

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
    """The report for a terminal; its first line says how far it can be believed."""
    fresh = freshness.sentence(report.fresh, report.period.now)
    title = f"Vedette report, {headline.span(report.period)} (UTC): {fresh}"
    parts = [title, headline.sentence(report.counts), ""]
    by_hour = [0] * 24
    for hour in report.counts.hours:
        by_hour[hour.hour.hour] += hour.alerts
    if peak := max(by_hour):
        bars = "".join(_BARS[-(-n * (len(_BARS) - 1) // peak)] if n else " " for n in by_hour)
        parts += [f"by hour  00 |{bars}| 24   most in an hour of the day: {peak:,}", ""]
    if first := headline.look_first(report):
        parts += ["Look at first", *(_pointer(number, pointer) for number, pointer in enumerate(first, 1)), ""]
    if unrun := headline.unrun(report.findings):
        rules = ", coverage where rules have landed" if "coverage" in report.findings.unrun else ""
        parts += [f"Not shown: {unrun}; `vedette-spark all` runs every job{rules}.", ""]
    if ran := freshness.ran_with(report.fresh, report.period.now):
        parts += [f"Jobs: {plain(ran)}", ""]
    for section in sections(report):
        title, note = plain(section.title), plain(section.note)
        parts += [f"{title}  ({note})" if section.note else title, *lines(section), ""]
    return "\n".join(parts)


def _pointer(number: int, pointer: headline.Pointer) -> str:
    note = f"  ({plain(pointer.said)})" if pointer.said else ""
    return f"  {number:2}. {pointer.kind:10}  {plain(pointer.text)}{note}"


def sections(report: Report) -> list[Section]:
    """The lists of the text."""
    counts, accounts = report.counts, report.accounts
    tables = [
        Section("Levels", ("level", "alerts", "matches"), _rows(counts.levels, "level alerts matches")),
        Section(
            "Rules",
            ("rule", "level", "alerts", "matches", "sites", "hosts", "rule_id"),
            _rows(counts.rules.items, "rule_title level alerts matches sites hosts rule_id"),
            _beyond(counts.rules.of),
        ),
        Section(
            "Hosts",
            ("host", "site", "fleet", "alerts", "matches", "rules"),
            _rows(counts.hosts.items, "host site fleet alerts matches rules"),
            _beyond(counts.hosts.of),
        ),
        Section(
            "Entities",
            ("kind", "value", "alerts", "rules", "sites"),
            _rows(counts.entities.items, "kind value alerts rules sites"),
            _beyond(counts.entities.of),
        ),
        Section(
            "Most severe alerts",
            ("time", "level", "rule", "site", "host", "event"),
            _rows(counts.severest, "counted_at level rule_title site host raw", "%H:%M:%S"),
            "the newest of each rule first; event cut",
        ),
        Section(
            "Agents",
            ("agent", "state", "heard", "version", "received", "evaluated", "dropped", "lost", "landed", "missing"),
            _rows(
                accounts.agents.items,
                "agent_id state last_seen version received judged dropped lost landed missing",
                "%Y-%m-%d %H:%M:%S",
            ),
            "those in trouble first; missing: gaps among the numbers of what landed",
        ),
    ]
    if accounts.letters.items:
        rows = _rows(accounts.letters.items, "kind reason letters rows")
        tables.append(Section("Could not be read", ("what", "reason", "letters", "rows"), rows))
    if counts.other_days:
        tables.append(Section("Days with alerts", ("day", "alerts"), counts.other_days))
    return tables


def _rows(items: Sequence[Line], names: str, clock: str = "") -> tuple[tuple[Cell, ...], ...]:
    """The values of ``names`` of the first items, times as ``clock`` has them."""
    values = (tuple(getattr(item, name) for name in names.split()) for item in items[:TOP])
    return tuple(tuple(f"{v:{clock}}" if isinstance(v, datetime) else v for v in row) for row in values)


def lines(section: Section) -> list[str]:
    """A section's table, a row a line, numbers to the right."""
    if not section.rows:
        return ["  none"]
    cells = [[cut(_shown(cell), MAX_CELL) for cell in row] for row in section.rows]
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


def _beyond(number: int) -> str:
    return f"the first {TOP} of {number:,}" if number > TOP else ""
