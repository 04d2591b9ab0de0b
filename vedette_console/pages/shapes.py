"""Numbers as shapes: bars over time, lanes of a campaign's sites, its graph. Templates draw what is reckoned here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from spark_jobs.common.plain import cut
from spark_jobs.tables.ask import LEVELS
from vedette_console.data.models import Graph, Histogram, Step
from vedette_console.data.models_fleet import Count
from vedette_console.pages.filters import Zone
from vedette_console.pages.render import link, search

WIDTH, BASE, FOOT = 900.0, 84.0, 26.0
GAP = 1.0
WIDEST = 60.0
TICKS = 6
LANE, LANE_TOP, LEFT = 26.0, 22.0, 190.0
MAX_LANES, MAX_LABEL = 30, 26
GRAPH_WIDTH, NODE_WIDTH, NODE_HEIGHT, NODE_GAP = 900.0, 210.0, 30.0, 12.0


class Piece(NamedTuple):
    level: str
    y: float
    height: float


class Bar(NamedTuple):
    x: float
    width: float
    title: str
    href: str
    pieces: tuple[Piece, ...]


class Tick(NamedTuple):
    x: float
    text: str
    anchor: str


class Bars(NamedTuple):
    """Bars on a ground at ``base``; ``most`` is the value of the highest."""

    width: float
    height: float
    base: float
    most: int
    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]


def bars(columns: Sequence[tuple[str, str, Mapping[str, int]]], marks: Sequence[str]) -> Bars:
    """Bars of columns, each with a title, where it leads and its sums by level; ``marks`` are texts below, evenly apart
    from the first column to the last."""
    most = max((sum(levels.values()) for _, _, levels in columns), default=0)
    step = WIDTH / max(len(columns), 1)
    shapes = []
    for number, (title, href, levels) in enumerate(columns):
        y, pieces = BASE, []
        for level in ("other", *reversed(LEVELS)):
            count = levels.get(level, 0)
            if count and most:
                height = max(count / most * (BASE - 14), 1.0)
                y -= height
                pieces.append(Piece(level, round(y, 1), round(height, 1)))
        width = min(max(step - GAP, 0.5), WIDEST)
        left = number * step + max(step - GAP - width, 0.0) / 2
        shapes.append(Bar(round(left, 2), round(width, 2), title, href, tuple(pieces)))
    last = max(len(marks) - 1, 1)
    ticks = (
        Tick(
            round(number / last * WIDTH, 1),
            text,
            "start" if not number else "end" if number == len(marks) - 1 else "middle",
        )
        for number, text in enumerate(marks)
    )
    return Bars(WIDTH, BASE + FOOT, BASE, most, tuple(shapes), tuple(ticks))


def of_histogram(histogram: Histogram, zone: Zone, narrow: Callable[[datetime, datetime], str]) -> Bars:
    """Bars of a search; ``narrow`` gives the address of the same search within two times."""
    step = timedelta(seconds=histogram.step)
    columns = []
    for bucket in histogram.buckets:
        levels = {level if level in LEVELS else "other": 0 for level in bucket.levels}
        for level, alerts in bucket.levels.items():
            levels[level if level in LEVELS else "other"] += alerts
        here = zone.at(bucket.start)
        title = f"{here:%a} {here.day} {here:%b %H:%M}: {bucket.alerts:,}"
        columns.append((title, narrow(bucket.start, bucket.start + step), levels))
    return bars(columns, _marks([bucket.start for bucket in histogram.buckets], step, zone))


def _marks(starts: Sequence[datetime], step: timedelta, zone: Zone) -> list[str]:
    if not starts:
        return []
    first, last = starts[0], starts[-1] + step
    days = last - first > timedelta(days=3)
    times = [zone.at(starts[round((len(starts) - 1) * n / (TICKS - 1))]) for n in range(TICKS)]
    return [f"{time.day} {time:%b}" if days else f"{time:%H:%M}" for time in times]


def of_days(days: Sequence[Count], to: Callable[[str], str]) -> Bars:
    """Bars of days (``YYYY-MM-DD`` by name), oldest first; ``to`` gives where a day leads."""
    ordered = sorted(days, key=lambda day: day.name)
    columns = [
        (
            f"{day.label or day.name}: {day.alerts:,}",
            to(day.name),
            {day.level if day.level in LEVELS else "low": day.alerts},
        )
        for day in ordered
    ]
    marks = [ordered[0].name, ordered[-1].name] if len(ordered) > 1 else [day.name for day in ordered]
    return bars(columns, marks)


class Spot(NamedTuple):
    x: float
    y: float
    radius: float
    level: str
    title: str


class Lane(NamedTuple):
    y: float
    label: str
    href: str
    spots: tuple[Spot, ...]


class Lanes(NamedTuple):
    width: float
    height: float
    left: float
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    more: int


def lanes(steps: Sequence[Step], zone: Zone) -> Lanes:
    """Lanes of when a campaign was where: a lane a site in the order reached, a spot a step."""
    timed = [(step.time, step) for step in steps if step.time is not None]
    sites: dict[tuple[str, str], list[tuple[datetime, Step]]] = defaultdict(list)
    for time, step in sorted(timed, key=lambda pair: pair[0]):
        sites[step.fleet, step.site].append((time, step))
    shown = list(sites.items())[:MAX_LANES]
    times = [time for time, _ in timed]
    first, last = (min(times), max(times)) if times else (datetime.min, datetime.min)
    whole = max((last - first).total_seconds(), 1.0)
    room = WIDTH - LEFT - 16
    rows = []
    for number, ((fleet, site), here) in enumerate(shown):
        y = LANE_TOP + number * LANE + LANE / 2
        spots = []
        for time, step in here:
            at = zone.at(time)
            title = f"{at:%a} {at.day} {at:%b %H:%M:%S}: {step.rule_title or step.rule_id}, {step.alerts:,} alerts"
            x = LEFT + 8 + (time - first).total_seconds() / whole * room
            spots.append(Spot(round(x, 1), y, 4.0 + min(len(str(step.alerts)), 4), "high", title))
        label = cut(f"{fleet}/{site}", MAX_LABEL)
        rows.append(Lane(y, label, search(f'site:"{site}"'), tuple(spots)))
    ticks = (
        [Tick(LEFT, "", "start")]
        if not times
        else [
            Tick(
                round(LEFT + 8 + room * n / 3, 1),
                _clock(zone, first + (last - first) * n / 3, whole),
                "end" if n == 3 else "start" if not n else "middle",
            )
            for n in range(4)
        ]
    )
    return Lanes(WIDTH, LANE_TOP + len(shown) * LANE + 6, LEFT, tuple(rows), tuple(ticks), len(sites) - len(shown))


def _clock(zone: Zone, time: datetime, whole: float) -> str:
    here = zone.at(time)
    return f"{here.day} {here:%b %H:%M}" if whole > 20 * 3600 else f"{here:%H:%M}"


class Box(NamedTuple):
    x: float
    y: float
    kind: str
    label: str
    note: str
    href: str


class Tie(NamedTuple):
    path: str
    level: str
    width: float
    title: str


class Drawing(NamedTuple):
    width: float
    height: float
    box_width: float
    box_height: float
    boxes: tuple[Box, ...]
    ties: tuple[Tie, ...]


def drawing(graph: Graph) -> Drawing:
    """A campaign's graph: entities on the left, sites on the right, each side in its order (``Node.y``)."""
    left = sorted((node for node in graph.nodes if node.kind != "site"), key=lambda node: (node.y, node.x))
    right = sorted((node for node in graph.nodes if node.kind == "site"), key=lambda node: (node.y, node.x))
    height = max(len(left), len(right), 1) * (NODE_HEIGHT + NODE_GAP) + NODE_GAP
    boxes, places = [], {}
    for column, side in ((0.0, left), (GRAPH_WIDTH - NODE_WIDTH, right)):
        step = height / max(len(side), 1)
        for number, node in enumerate(side):
            y = round(step * (number + 0.5), 1)
            places[node.id] = (column, y)
            site = node.label.rpartition("/")[2]
            to_site = search(f'site:"{site}"')
            href = to_site if node.kind == "site" else link("entities", node.kind, node.label)
            boxes.append(Box(column, y, node.kind, cut(node.label, MAX_LABEL), f"{node.kind} · {node.alerts:,}", href))
    most = max((edge.alerts for edge in graph.edges), default=1) or 1
    ties = []
    for edge in graph.edges:
        if edge.source not in places or edge.target not in places:
            continue
        (x1, y1), (x2, y2) = sorted((places[edge.source], places[edge.target]))
        start, end = x1 + NODE_WIDTH, x2
        middle = (start + end) / 2
        path = f"M{start} {y1}C{middle} {y1} {middle} {y2} {end} {y2}"
        ties.append(Tie(path, edge.level, round(1 + 4 * edge.alerts / most, 1), f"{edge.alerts:,} alerts"))
    return Drawing(GRAPH_WIDTH, height, NODE_WIDTH, NODE_HEIGHT, tuple(boxes), tuple(ties))
