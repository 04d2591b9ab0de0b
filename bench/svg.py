"""Small SVG plots, by hand: lines over categories, on a logarithmic scale. Values in, text out.

Readable on a light and on a dark page: the ink is a middle grey, the ground is left clear.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 150, 34, 40
COLOURS = ("#2f7ed8", "#d9822b", "#3a9d5d", "#b0489a", "#8a6d3b", "#5b6b7b")
_INK = "#808890"


def _short(value: float) -> str:
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def lines(
    title: str, unit: str, categories: Sequence[str], series: Mapping[str, Sequence[float | None]], *, below: str = ""
) -> str:
    """One line per row of ``series``, a value per category (None: no point); ``below`` names the categories.

    Raises ValueError when there is no value above 0.
    """
    values = [value for row in series.values() for value in row if value]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    across, down = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def x(index: int) -> float:
        return round(_LEFT + across * (index + 0.5) / len(categories), 1)

    def y(value: float) -> float:
        return round(_TOP + down * (1 - (math.log10(value) - low) / (high - low)), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        f' font-size="12" fill="{_INK}"><title>{escape(title)}</title>',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}, {escape(unit)}</text>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<path d="M{_LEFT} {at}H{WIDTH - _RIGHT}" stroke="{_INK}" stroke-opacity=".35"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4}" text-anchor="end">{_short(10.0**power)}</text>')
    for i, name in enumerate(categories):
        parts.append(f'<text x="{x(i)}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(name)}</text>')
    if below:
        middle = _LEFT + across / 2
        parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(below)}</text>')
    for number, (name, row) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [(x(i), y(value)) for i, value in enumerate(row) if value]
        path = "L".join(f"{px} {py}" for px, py in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{px}" cy="{py}" r="3" fill="{colour}"/>' for px, py in points]
        at = _TOP + 8 + 18 * number
        parts.append(f'<text x="{WIDTH - _RIGHT + 12}" y="{at}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])
