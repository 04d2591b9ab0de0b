"""The map of sites: where dots, land and names are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.report.chart import WIDTH, Dot, chart
from spark_jobs.report.figures import Line as Site

LONGITUDES, LATITUDES = st.floats(-180, 180), st.floats(-90, 90)


def site(name: str, longitude: float | None, latitude: float | None, alerts: int = 10) -> Site:
    return Site(fleet="north", site=name, alerts=alerts, rank=3, name=name, latitude=latitude, longitude=longitude)


def test_sites_without_coordinates_have_no_map() -> None:
    """None at all gives no map; some give a map that says how many it lacks; absurd ones are as none."""
    assert chart([]) is None
    assert chart([site("a", None, 1.0), site("b", 500.0, 1.0)]) is None
    found = chart([site("a", 10.0, 50.0), site("b", None, None)])
    assert found is not None
    assert (len(found.dots), found.unplaced) == (1, 1)


@given(st.lists(st.tuples(LONGITUDES, LATITUDES, st.integers(0, 10**6)), min_size=1, max_size=40))
@settings(deadline=None, max_examples=60)
def test_every_site_is_on_the_map(places: list[tuple[float, float, int]]) -> None:
    """Wherever sites are, all dots lie in a picture of a bearable shape, the polar caps at its edge."""
    found = chart([site(str(n), *place) for n, place in enumerate(places)])
    assert found is not None
    assert 0.3 * WIDTH < found.height < 1.5 * WIDTH
    for dot in found.dots:
        assert -1 <= dot.x <= WIDTH + 1
        assert -10 <= dot.y <= found.height + 10 or abs(dot.site.latitude or 0) > 80
    alerts = [dot.site.alerts for dot in found.dots]
    assert alerts == sorted(alerts)


def test_north_is_up_and_east_is_right() -> None:
    """Paris lies west and south of Berlin, and Berlin is on land."""
    found = chart([site("Paris", 2.35, 48.86), site("Berlin", 13.4, 52.5, 20)])
    assert found is not None
    at = {dot.site.site: dot for dot in found.dots}
    assert at["Paris"].x < at["Berlin"].x
    assert at["Paris"].y > at["Berlin"].y
    assert on_land(found.land, at["Berlin"])
    assert [line.name for line in found.meridians][:2] != []


def test_a_fleet_across_the_180th_meridian_is_in_one_piece() -> None:
    """Fiji and Samoa are neighbours, not at the two ends of the world, and a meridian has its name."""
    found = chart([site("Fiji", 178.4, -18.1), site("Samoa", -171.8, -13.8)])
    assert found is not None
    at = {dot.site.site: dot.x for dot in found.dots}
    assert 0 < at["Samoa"] - at["Fiji"] < WIDTH
    names = {line.name for line in found.meridians}
    assert any(name.endswith("E") for name in names)
    assert any(name.endswith("W") for name in names)


@pytest.mark.parametrize(("name", "longitude", "latitude", "land"), [
    ("Moscow", 37.6, 55.8, True), ("Chukotka", -175.0, 66.5, True), ("Kansas", -98.0, 38.5, True),
    ("Pacific", -140.0, 5.0, False), ("Atlantic", -35.0, 40.0, False), ("Vostok", 106.8, -78.5, True),
])  # fmt: skip
def test_land_is_where_land_is(name: str, longitude: float, latitude: float, land: bool) -> None:
    """On a map of the whole world, places on land are inside of a ring."""
    found = chart([site("w", -179.0, 60.0), site("e", 170.0, -80.0), site("m", 0.0, 0.0), site("q", 90.0, 10.0),
                   site("p", -90.0, 10.0), site(name, longitude, latitude)])  # fmt: skip
    assert found is not None
    dot = next(dot for dot in found.dots if dot.site.site == name)
    assert on_land(found.land, dot) is land


def on_land(path: str, dot: Dot) -> bool:
    """Whether the dot is inside of an odd number of rings."""
    inside = False
    for ring in path.split("Z"):
        points = [(int(x), int(y)) for x, y in re.findall(r"(-?\d+) (-?\d+)", ring)]
        for (x1, y1), (x2, y2) in zip(points, points[1:] + points[:1], strict=True):
            if (y1 > dot.y) != (y2 > dot.y) and dot.x < (x2 - x1) * (dot.y - y1) / (y2 - y1) + x1:
                inside = not inside
    return inside
