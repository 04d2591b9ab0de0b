"""The map of sites as shapes: a plate carrée, cut to where the sites are, with land, a grid, dots and a few names.

Longitudes are scaled by the cosine of the middle latitude, so that shapes there look right. A fleet on both sides of
the 180th meridian is shown in one piece: longitudes are turned to begin after the widest gap between sites.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import NamedTuple

from spark_jobs.common.plain import cut
from spark_jobs.report.figures import Line

WIDTH = 640.0
MIN_SPAN = 8.0
"""Degrees; fewer show no shape that anyone knows."""

MARGIN = 0.12
MIN_SHAPE, MAX_SHAPE = 0.45, 0.75
"""Height by width."""

MAX_LATITUDE = 84.0
MIN_DOT, MAX_DOT = 3.0, 15.0
CROWD = 12
"""Sites from which on dots are smaller: their area together stays the same."""

OVERLAP = 0.8
"""Dots that are nearer than this share of their radii become one."""

SHADES = 4
"""Of red, by how many of the sites with critical alerts have fewer."""

MAX_NAMES = 14
MAX_NAME = 24
FONT, SMALL_FONT = 12.0, 20.0
"""Of names, in the map's own units: on a wide screen, and where the map is shown at some 360 pixels."""

STEPS = (1, 2, 5, 10, 15, 30, 45)
MAX_LINES = 8


class Dot(NamedTuple):
    """A site, or several that lie together."""

    sites: tuple[Line, ...]
    """The busiest first."""
    x: float
    y: float
    radius: float
    shade: int
    """0 without critical alerts, up to ``SHADES``."""

    @property
    def alerts(self) -> int:
        return sum(site.alerts for site in self.sites)

    @property
    def name(self) -> str:
        first = cut(self.sites[0].name or self.sites[0].site, MAX_NAME)
        return first if len(self.sites) == 1 else f"{first} +{len(self.sites) - 1}"


class Name(NamedTuple):
    """A dot's name, and where it begins or ends (``anchor``, as SVG has it)."""

    text: str
    x: float
    y: float
    anchor: str


class Chart(NamedTuple):
    """Shapes in a picture of ``width`` by ``height``. A meridian is ``at`` its x, a parallel at its y, with degrees."""

    width: float
    height: float
    land: str
    """Path data."""
    meridians: tuple[Line, ...]
    parallels: tuple[Line, ...]
    dots: tuple[Dot, ...]
    """The busiest last, so that it is on top."""
    names: tuple[Name, ...]
    small_names: tuple[Name, ...]
    """The same for a phone, in ``SMALL_FONT``."""
    unplaced: int
    """Sites without coordinates."""


class _View(NamedTuple):
    west: float
    east: float
    south: float
    north: float
    height: float

    def x(self, longitude: float) -> float:
        return (longitude - self.west) / (self.east - self.west) * WIDTH

    def y(self, latitude: float) -> float:
        return (self.north - latitude) / (self.north - self.south) * self.height


def chart(sites: Sequence[Line]) -> Chart | None:
    """The map of ``sites``; None when none of them has coordinates."""
    placed = [
        (site.longitude, site.latitude, site)
        for site in sites
        if site.longitude is not None
        and site.latitude is not None
        and abs(site.longitude) <= 180
        and abs(site.latitude) <= 90
    ]
    if not placed:
        return None
    start = _after_widest_gap([longitude for longitude, _, _ in placed])
    turned = [(longitude + 360 * (longitude < start), latitude, site) for longitude, latitude, site in placed]
    view = _view([place[0] for place in turned], [place[1] for place in turned])
    dots = sorted(_dots([(view.x(lon), view.y(lat), site) for lon, lat, site in turned]), key=lambda dot: dot.alerts)
    return Chart(
        WIDTH,
        round(view.height, 1),
        _land(view),
        tuple(_lines(view.west, view.east, view.x, "E", "W")),
        tuple(_lines(view.south, view.north, view.y, "N", "S")),
        tuple(dots),
        tuple(_names(dots, view.height, FONT)),
        tuple(_names(dots, view.height, SMALL_FONT)),
        len(sites) - len(placed),
    )


def _after_widest_gap(longitudes: Sequence[float]) -> float:
    ordered = sorted(set(longitudes))
    gaps = [(after - before, after) for before, after in pairwise(ordered)]
    around = (ordered[0] + 360 - ordered[-1], ordered[0])
    return max([around, *gaps], key=lambda gap: gap[0])[1]


def _view(longitudes: Sequence[float], latitudes: Sequence[float]) -> _View:
    middle = (min(latitudes) + max(latitudes)) / 2
    scale = max(math.cos(math.radians(middle)), 0.2)
    wide = max(max(longitudes) - min(longitudes), MIN_SPAN / scale) * (1 + 2 * MARGIN)
    high = max(max(latitudes) - min(latitudes), MIN_SPAN * MIN_SHAPE) * (1 + 2 * MARGIN)
    shape = high / (wide * scale)
    if shape < MIN_SHAPE:
        high = wide * scale * MIN_SHAPE
    elif shape > MAX_SHAPE:
        wide = high / scale / MAX_SHAPE
    wide, high = min(wide, 360.0), min(high, 2 * MAX_LATITUDE)
    centre = (min(longitudes) + max(longitudes)) / 2
    south = min(max(middle - high / 2, -MAX_LATITUDE), MAX_LATITUDE - high)
    return _View(centre - wide / 2, centre + wide / 2, south, south + high, WIDTH * high / (wide * scale))


def _lines(low: float, high: float, place: Callable[[float], float], plus: str, minus: str) -> list[Line]:
    step = next((step for step in STEPS if (high - low) / step <= MAX_LINES), STEPS[-1])
    lines = []
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        degrees = number * step
        shown = (degrees + 180) % 360 - 180 if plus == "E" else degrees
        side = plus if shown > 0 else minus if shown < 0 else ""
        lines.append(Line(at=round(place(degrees), 1), name=f"{abs(shown)}°{side}"))
    return lines


@cache
def _rings() -> list[list[tuple[float, float]]]:
    text = (resources.files("spark_jobs.report") / "assets" / "land.json").read_text("utf-8")
    return [
        list(zip((x / 10 for x in ring[::2]), (y / 10 for y in ring[1::2]), strict=True))
        for ring in json.loads(text)["rings"]
    ]


def _land(view: _View) -> str:
    parts = []
    for ring in _rings():
        if max(y for _, y in ring) < view.south or min(y for _, y in ring) > view.north:
            continue
        for shift in (-360, 0, 360):
            if max(x for x, _ in ring) + shift < view.west or min(x for x, _ in ring) + shift > view.east:
                continue
            points: list[tuple[int, int]] = []
            for x, y in ring:
                point = (round(view.x(x + shift)), round(view.y(y)))
                if not points or point != points[-1]:
                    points.append(point)
            if len(points) > 2:
                parts.append("M" + "L".join(f"{x} {y}" for x, y in points) + "Z")
    return "".join(parts)


def _dots(placed: Sequence[tuple[float, float, Line]]) -> list[Dot]:
    """A dot for each site, those that would cover each other as one at the place of the busiest."""
    groups: list[tuple[float, float, tuple[Line, ...]]] = [(x, y, (site,)) for x, y, site in placed]
    while True:
        dots = _sized(groups)
        merged: list[Dot] = []
        for dot in sorted(dots, key=lambda dot: -dot.alerts):
            for number, other in enumerate(merged):
                if math.hypot(other.x - dot.x, other.y - dot.y) < OVERLAP * (other.radius + dot.radius):
                    merged[number] = other._replace(sites=(*other.sites, *dot.sites))
                    break
            else:
                merged.append(dot)
        if len(merged) == len(dots):
            return dots
        groups = [(dot.x, dot.y, dot.sites) for dot in merged]


def _sized(groups: Sequence[tuple[float, float, tuple[Line, ...]]]) -> list[Dot]:
    alerts = [sum(site.alerts for site in sites) for _, _, sites in groups]
    critical = [sum(site.critical for site in sites) for _, _, sites in groups]
    severe = sorted(number for number in critical if number)
    most, largest = max(alerts), MIN_DOT + (MAX_DOT - MIN_DOT) * min(1.0, math.sqrt(CROWD / len(groups)))
    return [
        Dot(
            sites,
            round(x, 1),
            round(y, 1),
            round(MIN_DOT + (largest - MIN_DOT) * math.sqrt(number / most) if most else MIN_DOT, 1),
            1 + bisect_left(severe, reds) * SHADES // len(severe) if reds else 0,
        )
        for (x, y, sites), number, reds in zip(groups, alerts, critical, strict=True)
    ]


def _names(dots: Sequence[Dot], height: float, font: float) -> list[Name]:
    """Names beside the busiest dots, in ``font``, where nothing else is."""
    boxes = [(dot.x - dot.radius, dot.y - dot.radius, dot.x + dot.radius, dot.y + dot.radius) for dot in dots]
    named: list[Name] = []
    for dot in reversed(dots):
        if len(named) == MAX_NAMES or not dot.alerts:
            break
        length, gap, middle = len(dot.name) * 0.6 * font, dot.radius + 3, dot.y + font / 3
        for anchor, x, y in (
            ("start", dot.x + gap, middle),
            ("end", dot.x - gap, middle),
            ("middle", dot.x, dot.y - gap),
            ("middle", dot.x, dot.y + gap + 0.8 * font),
        ):
            left = x - length * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
            box = (left, y - 0.9 * font, left + length, y + 0.3 * font)
            inside = box[0] >= 0 and box[2] <= WIDTH and box[1] >= 0 and box[3] <= height
            if inside and not any(_meet(box, other) for other in boxes):
                boxes.append(box)
                named.append(Name(dot.name, round(x, 1), round(y, 1), anchor))
                break
    return named


def _meet(box: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
