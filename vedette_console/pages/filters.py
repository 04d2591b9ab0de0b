"""What templates write of values: numbers, spans, bytes, levels, ATT&CK's names. Jinja escapes texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from spark_jobs.common.attack import caption
from spark_jobs.common.plain import cut, plain, short
from spark_jobs.report.page import attack_link, attack_name
from spark_jobs.tables.ask import LEVELS
from vedette.region.steer.gates import DURATIONS, SHARES
from vedette_console.pages.zone import moment

SIZES = ("bytes", "kB", "MB", "GB", "TB")
UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
STATES = {
    "good": "running as_wanted connected reports done applied ok taken resumed closed made live",
    "warn": "degraded behind paused waiting staged commands old expired interrupted connecting silent limited",
    "fail": "lost problem refused aborted failed away broker_away not_taken error",
    "busy": "rolling asking answering running_now queued building making open investigating new",
}
"""Words of states by how they look; anything else is plain."""
_CLASS = {word: kind for kind, words in STATES.items() for word in words.split()}


def number(value: float | int | None) -> str:
    """``1,234``; small fractions with one digit; an en dash for what is not known."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if value % 1 and abs(value) < 10 else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A share of 1 as per cent."""
    if value is None:
        return "–"
    return f"{value:.1%}" if 0 < value < 0.095 else f"{value:.0%}"


def size(value: float | None) -> str:
    """Bytes, in thousands."""
    if value is None:
        return "–"
    step = 0
    while abs(value) >= 1000 and step < len(SIZES) - 1:
        value, step = value / 1000, step + 1
    return f"{number(value)} {SIZES[step]}"


def span(seconds: float | None) -> str:
    """``3 d 4 h``: the two largest units."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return "0 s" if not seconds else f"{seconds:.1f} s"
    left = int(seconds)
    parts: list[str] = []
    for length, name in UNITS:
        if left >= length or (parts and name == "s"):
            parts.append(f"{left // length} {name}")
            left %= length
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 "))


def ago(time: datetime | str | None) -> str:
    """``5 min ago``; empty for no time."""
    found = moment(time)
    if found is None:
        return ""
    seconds = (datetime.now(UTC) - found).total_seconds()
    if seconds < 5:
        return "just now" if seconds > -60 else "in " + span(-seconds)
    length, name = next(unit for unit in UNITS if seconds >= unit[0])
    return f"{int(seconds // length)} {name} ago"


def level_class(name: str | None) -> str:
    return name if name in LEVELS else "other"


def state_class(name: str) -> str:
    return _CLASS.get(name.replace(" ", "_"), "")


def exact(text: str) -> Markup:
    """``text`` as it is, for a field in which it is changed and sent back."""
    return escape(text.replace("\0", "\N{REPLACEMENT CHARACTER}"))


def words(value: Any) -> str:
    """A fact of a record: a list as its parts."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def lines(text: str) -> Markup:
    """``text`` with its line ends kept and everything else that is not plain replaced."""
    return Markup("\n").join(plain(line) for line in text.split("\n"))


def marked(text: str, spans: list[Any]) -> list[tuple[str, str]]:
    """``text`` cut into pieces, each with the field that it is the value of, or ""; spans that overlap are left out."""
    pieces, at = [], 0
    for one in sorted(spans, key=lambda one: (one.start, -one.end)):
        if one.start < at or one.end > len(text) or one.end <= one.start:
            continue
        if one.start > at:
            pieces.append((text[at : one.start], ""))
        pieces.append((text[one.start : one.end], one.field))
        at = one.end
    if at < len(text):
        pieces.append((text[at:], ""))
    return pieces


def limit(value: float | bool, name: str) -> str:
    """A limit of the roll-out's gates, as people write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return span(value) if name in DURATIONS else share(value) if name in SHARES else number(value)


def what(text: str) -> str:
    """What a change moves: ``bundles default`` is the rule set of that name."""
    return "rule set " + text.removeprefix("bundles ") if text.startswith("bundles ") else text


def plural(n: int | float | None, one: str, more: str = "") -> str:
    """``3 sites``."""
    return f"{number(n)} {one if n == 1 else more or one + 's'}"


FILTERS: Mapping[str, Callable[..., Any]] = {
    "n": number,
    "share": share,
    "size": size,
    "span": span,
    "ago": ago,
    "limit": limit,
    "what": what,
    "level_class": level_class,
    "state_class": state_class,
    "exact": exact,
    "words": words,
    "lines": lines,
    "marked": marked,
    "plural": plural,
    "caption": caption,
    "cut": cut,
    "short": short,
    "technique": attack_name,
    "attack_link": attack_link,
}
