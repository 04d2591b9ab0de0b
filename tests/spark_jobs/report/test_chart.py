"""The map of sites: where dots, land and names are."""

from __future__ import annotations

import math
import re
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.report.chart import FONT, OVERLAP, SMALL_FONT, WIDTH, Dot, chart
from spark_jobs.report.figures import Line as Site

LONGITUDES, LATITUDES = st.floats(-180, 180), st.floats(-90, 90)


def site(name: str, longitude: float | None, latitude: float | None, alerts: int = 10, critical: int = 0) -> Site:
    return Site(
        fleet="north", site=name, alerts=alerts, critical=critical, name=name, latitude=latitude, longitude=longitude
    )


def test_sites_without_coordinates_have_no_map() -> None:
    """None at all gives no map; some give a map that says how many it lacks; absurd ones are as none."""
    assert chart([]) is None
    assert chart([site("a", None, 1.0), site("b", 500.0, 1.0)]) is None
    picture = chart([site("a", 10.0, 50.0), site("b", None, None)])
    assert picture is not None
    assert (len(picture.dots), picture.unplaced) == (1, 1)


@given(st.lists(st.tuples(LONGITUDES, LATITUDES, st.integers(0, 10**6)), min_size=1, max_size=40))
@settings(max_examples=60)
def test_every_site_is_on_the_map(places: list[tuple[float, float, int]]) -> None:
    """Wherever sites are, all dots lie in a picture of a bearable shape, the polar caps at its edge."""
    picture = chart([site(str(n), *place) for n, place in enumerate(places)])
    assert picture is not None
    assert 0.3 * WIDTH < picture.height < 1.5 * WIDTH
    for dot in picture.dots:
        assert -1 <= dot.x <= WIDTH + 1
        assert -10 <= dot.y <= picture.height + 10 or abs(dot.sites[0].latitude or 0) > 80
    alerts = [dot.alerts for dot in picture.dots]
    assert alerts == sorted(alerts)
    shown = sorted(member.site for dot in picture.dots for member in dot.sites)
    assert shown == sorted(str(n) for n in range(len(places)))
    for dot, other in combinations(picture.dots, 2):
        assert math.hypot(dot.x - other.x, dot.y - other.y) >= OVERLAP * (dot.radius + other.radius)


def test_sites_that_lie_together_are_one_dot() -> None:
    """A city's sites are one dot, named after the busiest; a site far away is its own."""
    picture = chart([site("Bonn", 7.1, 50.7, 5), site("Cologne", 6.96, 50.94, 9), site("Oslo", 10.7, 59.9, 3)])
    assert picture is not None
    assert [(dot.name, dot.alerts) for dot in picture.dots] == [("Oslo", 3), ("Cologne +1", 14)]


def test_red_says_where_it_is_worst() -> None:
    """A site without critical alerts has shade 0; the others are told apart by how many of them have fewer."""
    picture = chart([site(str(n), 30.0 * n, 10.0, 10, critical) for n, critical in enumerate((0, 1, 2, 3, 400))])
    assert picture is not None
    assert {dot.name: dot.shade for dot in picture.dots} == {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4}
    alike = chart([site(str(n), 30.0 * n, 10.0, 10, 7) for n in range(5)])
    assert alike is not None
    assert {dot.shade for dot in alike.dots} == {1}


@given(st.lists(st.tuples(LONGITUDES, LATITUDES, st.integers(1, 10**6)), min_size=1, max_size=40))
@settings(max_examples=60)
def test_names_cover_nothing(places: list[tuple[float, float, int]]) -> None:
    """In either size no name covers another one, or a dot, and none leaves the map."""
    picture = chart([site(f"Site {n:03}", *place) for n, place in enumerate(places)])
    assert picture is not None
    for font, names in ((FONT, picture.names), (SMALL_FONT, picture.small_names)):
        boxes = [
            (name.x - len(name.text) * 0.6 * font * {"start": 0, "middle": 0.5, "end": 1}[name.anchor], name)
            for name in names
        ]
        whole = [
            (left, name.y - 0.9 * font, left + len(name.text) * 0.6 * font, name.y + 0.3 * font) for left, name in boxes
        ]
        whole += [
            (dot.x - dot.radius, dot.y - dot.radius, dot.x + dot.radius, dot.y + dot.radius) for dot in picture.dots
        ]
        named = whole[: len(names)]
        assert all(box[0] >= 0 and box[2] <= WIDTH and box[1] >= 0 and box[3] <= picture.height for box in named)
        for place, name in enumerate(named):
            for other in whole[place + 1 :]:
                assert not (name[0] < other[2] and other[0] < name[2] and name[1] < other[3] and other[1] < name[3])


def test_north_is_up_and_east_is_right() -> None:
    """Paris lies west and south of Berlin, and Berlin is on land."""
    picture = chart([site("Paris", 2.35, 48.86), site("Berlin", 13.4, 52.5, 20)])
    assert picture is not None
    at = {dot.name: dot for dot in picture.dots}
    assert at["Paris"].x < at["Berlin"].x
    assert at["Paris"].y > at["Berlin"].y
    assert on_land(picture.land, at["Berlin"])
    assert [line.name for line in picture.meridians][:2] != []


def test_a_fleet_across_the_180th_meridian_is_in_one_piece() -> None:
    """Fiji and Samoa are neighbours, not at the two ends of the world, and a meridian has its name."""
    picture = chart([site("Fiji", 178.4, -18.1), site("Samoa", -171.8, -13.8)])
    assert picture is not None
    at = {dot.name: dot.x for dot in picture.dots}
    assert 0 < at["Samoa"] - at["Fiji"] < WIDTH
    names = {line.name for line in picture.meridians}
    assert any(name.endswith("E") for name in names)
    assert any(name.endswith("W") for name in names)


@pytest.mark.parametrize(("name", "longitude", "latitude", "land"), [
    ("Moscow", 37.6, 55.8, True), ("Chukotka", -175.0, 66.5, True), ("Kansas", -98.0, 38.5, True),
    ("Pacific", -140.0, 5.0, False), ("Atlantic", -35.0, 40.0, False), ("Vostok", 106.8, -78.5, True),
])  # fmt: skip
def test_land_is_where_land_is(name: str, longitude: float, latitude: float, land: bool) -> None:
    """On a map of the whole world, places on land are inside of a ring."""
    picture = chart([site("w", -179.0, 60.0), site("e", 170.0, -80.0), site("m", 0.0, 0.0), site("q", 90.0, 10.0),
                   site("p", -90.0, 10.0), site(name, longitude, latitude, 10**6)])  # fmt: skip
    assert picture is not None
    dot = next(dot for dot in picture.dots if name in {member.site for member in dot.sites})
    assert on_land(picture.land, dot) is land


def on_land(path: str, dot: Dot) -> bool:
    """Whether the dot is inside of an odd number of rings."""
    inside = False
    for ring in path.split("Z"):
        points = [(int(x), int(y)) for x, y in re.findall(r"(-?\d+) (-?\d+)", ring)]
        for (x1, y1), (x2, y2) in zip(points, points[1:] + points[:1], strict=True):
            if (y1 > dot.y) != (y2 > dot.y) and dot.x < (x2 - x1) * (dot.y - y1) / (y2 - y1) + x1:
                inside = not inside
    return inside
