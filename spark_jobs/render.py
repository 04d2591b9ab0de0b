"""A summary as text for a terminal, and as one HTML page that fetches nothing.

Everything shown may have been chosen by an attacker: a log line, a host name, a rule's title. So each cell goes through
``plain``, which leaves no character that a terminal obeys or that turns the direction of text, and in HTML also through
``html.escape``. The page's content security policy allows its own style and nothing else.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from html import escape

LEVELS = ("critical", "high", "medium", "low", "informational")
"""Most severe first; other texts come after them."""

Cell = str | int | None


@dataclass(frozen=True, slots=True)
class Section:
    """A titled table; ``note`` says what its columns mean or what was left out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """What ``render`` shows. ``hours`` are the alerts of the day's 24 hours (UTC)."""

    day: str
    alerts: int
    matches: int
    rules: int
    sites: int
    hosts: int
    hours: tuple[int, ...]
    sections: tuple[Section, ...]


MAX_CELL = 60
"""Characters of a cell on a terminal."""

_BARS = "▁▂▃▄▅▆▇█"

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff; margin: 2rem auto; max-width: 75rem;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
p { margin: .3rem 0; } .note { color: #5c6773; font-size: .85rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; } th, td { padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #cfd6de; font-weight: 600; }
td { border-bottom: 1px solid #e6eaef; overflow-wrap: anywhere; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.critical { color: #a3121f; font-weight: 600; } .high { color: #b8480b; font-weight: 600; } .medium { color: #8a6a00; }
.hours { display: flex; align-items: flex-end; gap: 3px; height: 6rem; margin-top: 1rem; }
.hours div { flex: 1; background: #3f6fb5; min-height: 1px; }
.scale { display: flex; justify-content: space-between; color: #5c6773; font-size: .8rem; }
@media (prefers-color-scheme: dark) {
  body { background: #12171d; color: #dde3ea; } th { border-color: #3a4552; } td { border-color: #252e38; }
  .critical { color: #ff7b86; } .high { color: #ffa15c; } .medium { color: #e3c04f; }
}
"""


def as_text(summary: Summary) -> str:
    """The summary for a terminal."""
    parts = [f"Vedette summary of {summary.day} (UTC)", headline(summary), ""]
    if peak := max(summary.hours):
        bars = "".join(_BARS[-(-n * (len(_BARS) - 1) // peak)] if n else " " for n in summary.hours)
        parts += [f"by hour  00 |{bars}| 24   most in an hour: {peak:,}", ""]
    for section in summary.sections:
        title, note = plain(section.title), plain(section.note)
        parts += [f"{title}  ({note})" if section.note else title, *_lines(section), ""]
    return "\n".join(parts)


def as_html(summary: Summary) -> str:
    """The summary as one page."""
    title = f"Vedette summary of {summary.day}"
    peak = max(summary.hours)
    chart = ""
    if peak:
        bars = "".join(
            f'<div style="height:{100 * n / peak:.1f}%" title="{hour:02}:00 UTC: {n:,}"></div>'
            for hour, n in enumerate(summary.hours)
        )
        scale = "<span>00:00</span><span>06:00</span><span>12:00</span><span>18:00</span><span>24:00</span>"
        chart = f'<div class="hours">{bars}</div><div class="scale">{scale}</div>'
    sections = "\n".join(map(_section, summary.sections))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)} <small>(UTC)</small></h1>
<p>{escape(headline(summary))}</p>
{chart}
{sections}
</body>
</html>
"""


def headline(summary: Summary) -> str:
    """The day in a sentence."""
    if not summary.alerts and not summary.matches:
        return "No alerts."
    return (
        f"{_many(summary.alerts, 'alert')} standing for {_many(summary.matches, 'match', 'matches')}, by "
        f"{_many(summary.rules, 'rule')}, on {_many(summary.hosts, 'host')} at {_many(summary.sites, 'site')}."
    )


def plain(cell: Cell) -> str:
    """``cell`` as text without control, format, surrogate, private or unassigned characters, nor line ends."""
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, int):
        return f"{cell:,}"
    if cell.isascii() and cell.isprintable():
        return cell
    return "".join(c if c == " " or unicodedata.category(c)[0] not in "CZ" else _visible(c) for c in cell)


def _visible(character: str) -> str:
    """Tabs, line ends and odd spaces as a space; anything else as U+FFFD."""
    return " " if character.isspace() else "�"


def _lines(section: Section) -> list[str]:
    if not section.rows:
        return ["  none"]
    cells = [[_cut(plain(cell)) for cell in row] for row in section.rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(section.columns)]
    right = [_numeric(section, i) for i in range(len(section.columns))]
    return [
        "  " + "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in [list(section.columns), *cells]
    ]


def _section(section: Section) -> str:
    title, note = escape(plain(section.title)), ""
    if not section.rows:
        return f"<h2>{title}</h2>\n<p>None.</p>"
    if section.note:
        note = f'\n<p class="note">{escape(plain(section.note))}</p>'
    marks = [' class="n"' if _numeric(section, i) else "" for i in range(len(section.columns))]
    head = "".join(f"<th{m}>{escape(name)}</th>" for m, name in zip(marks, section.columns, strict=True))
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{_level(c) or m}>{escape(plain(c))}</td>" for m, c in zip(marks, row, strict=True))
        + "</tr>"
        for row in section.rows
    )
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<h2>{title}</h2>{note}\n<div class="scroll">{table}</div>'


def _level(cell: Cell) -> str:
    return f' class="{cell}"' if cell in LEVELS else ""


def _numeric(section: Section, column: int) -> bool:
    return all(row[column] is None or isinstance(row[column], int) for row in section.rows)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def _many(n: int, one: str, more: str = "") -> str:
    return f"{n:,} {one if n == 1 else more or one + 's'}"
