"""What templates write of values, times and shapes; and the rules that the editor opens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.requests import Request

from vedette_console.data.models import Edge, Graph, Node, Span, Step
from vedette_console.pages import filters, shapes
from vedette_console.pages.filters import Zone
from vedette_console.pages.render import link, search
from vedette_console.views.rules import find

NOON = datetime(2026, 11, 26, 12, 0, 5, tzinfo=UTC)


def test_numbers() -> None:
    """As people read them."""
    assert [filters.number(n) for n in (None, 0, 1234567, 0.25, 12.5)] == ["–", "0", "1,234,567", "0.2", "12"]
    assert [filters.span(n) for n in (None, 0, 0.25, 59, 61, 7200, 90061)] == [
        "–",
        "0 s",
        "0.2 s",
        "59 s",
        "1 min 1 s",
        "2 h",
        "1 d 1 h",
    ]
    assert [filters.size(n) for n in (5, 8_491_987, 10**13)] == ["5 bytes", "8.5 MB", "10 TB"]
    assert [filters.share(n) for n in (None, 0.003, 0.39, 1)] == ["–", "0.3%", "39%", "100%"]


def test_marked_pieces() -> None:
    """Spans that overlap or lie outside are passed over; the pieces are the whole text."""
    spans = [
        Span(start=5, end=9, field="user"),
        Span(start=7, end=12, field="x"),
        Span(start=0, end=2, field="a"),
        Span(start=11, end=99, field="y"),
    ]
    pieces = filters.marked("abcdeROOTfgh", spans)
    assert pieces == [("ab", "a"), ("cde", ""), ("ROOT", "user"), ("fgh", "")]


@pytest.mark.parametrize(
    ("cookie", "name", "shown"),
    [
        ("Europe%2FVienna", "Europe/Vienna", "Thu 26 Nov 13:00:05"),
        ("Asia/Kolkata", "Asia/Kolkata", "Thu 26 Nov 17:30:05"),
        ("../../etc/passwd", "UTC", "Thu 26 Nov 12:00:05"),
        ('"><script>', "UTC", "Thu 26 Nov 12:00:05"),
    ],
)
def test_the_viewers_zone(cookie: str, name: str, shown: str) -> None:
    """Of the cookie, where it names one; a time has its UTC beside it."""
    zone = Zone.of(Request({"type": "http", "headers": [(b"cookie", f"tz={cookie}".encode())]}))
    assert zone.name == name
    text = zone.show(NOON)
    assert shown in text
    assert 'datetime="2026-11-26T12:00:05Z"' in text
    assert zone.show("not a time") == zone.show(None) == '<span class="soft">–</span>'


def test_spans_in_the_viewers_zone() -> None:
    """The end has its day only where that is another there, and is left out within the minute."""
    zone = Zone("Europe/Vienna")

    def shown(**later: int) -> str:
        return str(zone.span(NOON, NOON + timedelta(**later)).striptags())

    assert shown(seconds=20) == "Thu 26 Nov 13:00"
    assert shown(minutes=70) == "Thu 26 Nov 13:00 to 14:10"
    assert shown(hours=11, minutes=30) == "Thu 26 Nov 13:00 to Fri 27 Nov 00:30"
    assert zone.span(NOON, None).striptags() == "Thu 26 Nov 13:00"
    assert zone.span(None, None) == zone.show(None)


def test_limits_of_gates() -> None:
    """As people write them: times, shares, numbers, on and off."""
    limits = ((600.0, "baseline"), (0.2, "share"), (3.0, "alerts"), (False, "lag"))
    assert [filters.limit(*limit) for limit in limits] == ["10 min", "20%", "3", "off"]
    assert [filters.what(text) for text in ("bundles default", "config")] == ["rule set default", "config"]


def test_zone_labels() -> None:
    """UTC+01:00 in winter, UTC+02:00 in summer."""
    zone = Zone("Europe/Vienna")
    assert [zone.label(at) for at in (NOON, datetime(2026, 7, 1, tzinfo=UTC))] == ["UTC+01:00", "UTC+02:00"]
    assert Zone("America/St_Johns").label(NOON) == "UTC-03:30"


def test_addresses_are_escaped() -> None:
    """A value is one part of a path, whatever is in it."""
    assert link("entities", "user", "../a/b?x#<y>") == "/entities/user/..%2Fa%2Fb%3Fx%23%3Cy%3E"
    assert search('user:"a&b"') == "/alerts?q=user%3A%22a%26b%22"


def test_bars_fill_the_height() -> None:
    """The highest column is as high as there is room, each level above those below it."""
    chart = shapes.bars([("a", "", {"low": 2, "critical": 2}), ("b", "/x", {}), ("c", "", {"low": 1})], ["1", "2"])
    first, empty, last = chart.bars
    assert [piece.level for piece in first.pieces] == ["low", "critical"]
    assert first.pieces[1].y + first.pieces[1].height == first.pieces[0].y
    assert (empty.pieces, empty.href) == ((), "/x")
    assert last.pieces[0].height < first.pieces[0].height
    assert shapes.bars([], []).bars == ()


def test_lanes_and_graph() -> None:
    """A lane a site in the order reached; a tie where both its ends are drawn."""
    steps = [
        Step(
            time=NOON + timedelta(hours=n), fleet="f", site="ba"[n % 2], rule_id="r", rule_title="", tactic="", alerts=1
        )
        for n in range(4)
    ]
    lanes = shapes.lanes(steps, Zone())
    assert [lane.label for lane in lanes.lanes] == ["f/b", "f/a"]
    assert lanes.lanes[0].spots[0].x < lanes.lanes[1].spots[0].x < lanes.lanes[0].spots[1].x
    assert shapes.lanes([], Zone()).lanes == ()
    nodes = [
        Node(id="1", kind="ip", label="<b>", alerts=3, x=0, y=0),
        Node(id="2", kind="site", label="f/a", alerts=3, x=1, y=0),
    ]
    edges = [Edge(source="1", target="2", alerts=3, level="high"), Edge(source="1", target="9", alerts=3, level="high")]
    graph = shapes.drawing(Graph(nodes=nodes, edges=edges, more=0))
    assert [box.href for box in graph.boxes] == ["/entities/ip/%3Cb%3E", "/alerts?q=site%3A%22a%22"]
    assert len(graph.ties) == 1


def test_a_rules_file(tmp_path: Path) -> None:
    """Found by its id, with its tests beside it; never outside of the folders."""
    rules, secret = tmp_path / "rules", tmp_path / "secret.yml"
    (rules / "linux").mkdir(parents=True)
    (rules / "linux" / "shell.yml").write_text("title: Shell\nid: 6a5f-1\n")
    (rules / "linux" / "shell.test.yml").write_text("id: 6a5f-1\n")
    (rules / "other.yml").write_text("title: O\nrelated:\n  - id: 6a5f-10\nid: 7\n")
    secret.write_text("id: stolen\n")
    (rules / "way-out.yml").symlink_to(secret)
    rule = find([rules], "6a5f-1")
    assert rule is not None
    assert (rule.path, rule.kind, rule.tests) == ("linux/shell.yml", "sigma", "id: 6a5f-1\n")
    assert find([rules], "stolen") is None
    assert find([rules], "../../etc/passwd") is None
    assert find([tmp_path / "none"], "7") is None
