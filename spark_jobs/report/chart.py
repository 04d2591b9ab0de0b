"""The map of sites as shapes: a plate carrée, cut to where the sites are, with land, a grid, dots and a few names.

Longitudes are scaled by the cosine of the middle latitude, so that shapes there look right. A fleet on both sides of
the 180th meridian is shown in one piece: longitudes are turned to begin after the widest gap between sites.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import NamedTuple

from spark_jobs.report.figures import Line

WIDTH = 640.0
MIN_SPAN = 8.0
"""Degrees; fewer show no shape that anyone knows."""

MARGIN = 0.12
MIN_SHAPE, MAX_SHAPE = 0.45, 0.75
"""Height by width."""

MAX_LATITUDE = 84.0
MIN_DOT, MAX_DOT = 3.0, 15.0
MAX_NAMES = 14
NAME_HEIGHT = 15.0
NAME_WIDTH = 7.2
"""Pixels of a character, about."""

STEPS = (1, 2, 5, 10, 15, 30, 45)
MAX_LINES = 8


class Dot(NamedTuple):
    """A site; ``name_x`` None: no room for its name."""

    site: Line
    x: float
    y: float
    radius: float
    name_x: float | None = None
    name_y: float = 0.0
    anchor: str = "start"


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
    view = _view([one[0] for one in turned], [one[1] for one in turned])
    most = max(site.alerts for site in sites)
    dots = [
        Dot(
            site,
            round(view.x(longitude), 1),
            round(view.y(latitude), 1),
            round(MIN_DOT + (MAX_DOT - MIN_DOT) * math.sqrt(site.alerts / most) if most else MIN_DOT, 1),
        )
        for longitude, latitude, site in turned
    ]
    return Chart(
        WIDTH,
        round(view.height, 1),
        _land(view),
        tuple(_lines(view.west, view.east, view.x, "E", "W")),
        tuple(_lines(view.south, view.north, view.y, "N", "S")),
        tuple(_named(sorted(dots, key=lambda dot: dot.site.alerts), view.height)),
        len(sites) - len(placed),
    )


def _after_widest_gap(longitudes: Sequence[float]) -> float:
    ordered = sorted(set(longitudes))
    gaps = [(after - one, after) for one, after in pairwise(ordered)]
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
    found = []
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        degrees = number * step
        shown = (degrees + 180) % 360 - 180 if plus == "E" else degrees
        side = plus if shown > 0 else minus if shown < 0 else ""
        found.append(Line(at=round(place(degrees), 1), name=f"{abs(shown)}°{side}"))
    return found


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


def _named(dots: Sequence[Dot], height: float) -> list[Dot]:
    """``dots`` with names beside the busiest, where nothing else is."""
    taken: list[tuple[float, float, float, float]] = []
    named: dict[int, Dot] = {}
    for number in range(len(dots) - 1, -1, -1):
        dot = dots[number]
        if len(named) == MAX_NAMES or not dot.site.alerts:
            break
        length = min(len(dot.site.name or dot.site.site), 24) * NAME_WIDTH
        for anchor, left in (("start", dot.x + dot.radius + 3), ("end", dot.x - dot.radius - 3 - length)):
            box = (left, dot.y - NAME_HEIGHT / 2, left + length, dot.y + NAME_HEIGHT / 2)
            if box[0] < 0 or box[2] > WIDTH or box[1] < 0 or box[3] > height or any(_meet(box, one) for one in taken):
                continue
            taken.append(box)
            x = left if anchor == "start" else left + length
            named[number] = dot._replace(name_x=round(x, 1), name_y=round(dot.y + 4, 1), anchor=anchor)
            break
    return [named.get(number, dot) for number, dot in enumerate(dots)]


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
