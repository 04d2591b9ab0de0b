"""What windows and aggregates mean: every row is kept, every window computed anew from its rows, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from tests.stream.walk import evaluate
from vedette.plan.grid import Grid
from vedette.plan.query import ALL_ROWS, MILLISECOND, Aggregate, Over, Row, Windowed

NEVER = -(1 << 62)
FOREVER = 1 << 62


def aggregate(one: Aggregate, rows: Sequence[Row]) -> Any:
    """Of rows in the order that counts; of BIGINT, DOUBLE and STRING."""
    rows = [row for row in rows if one.when is None or evaluate(one.when, row) is True]
    if not one.args:
        return len(rows)
    values = [evaluate(one.args[0], row) for row in rows]
    if one.name == "ARRAY_AGG":
        return tuple(values) if values else None
    values = [value for value in values if value is not None]
    if one.distinct:
        values = list(dict.fromkeys(values))
    if one.name == "COUNT":
        return len(values)
    if not values:
        return {} if one.name == "COLLECT" else None
    whole = one.args[0].type.name == "BIGINT"
    match one.name:
        case "MIN":
            return min(values)
        case "MAX":
            return max(values)
        case "FIRST_VALUE":
            return values[0]
        case "LAST_VALUE":
            return values[-1]
        case "LISTAGG":
            return (one.options[0] if one.options else ",").join(values)
        case "COLLECT":
            return {value: values.count(value) for value in values}
        case "PERCENTILE":
            ranked, place = sorted(map(float, values)), (len(values) - 1) * one.options[0]
            low, high = math.floor(place), math.ceil(place)
            same = ranked[low] == ranked[high]
            return ranked[low] if same else (high - place) * ranked[low] + (place - low) * ranked[high]
    exact = sum(map(Fraction, values), Fraction())
    n = len(values)
    if one.name == "SUM":
        return wrapped(int(exact)) if whole else rounded(exact)
    if one.name == "AVG":
        return math.trunc(Fraction(wrapped(int(exact)), n)) if whole else rounded(exact) / n
    divisor = n if one.name.endswith("POP") else n - 1
    if not divisor:
        return None
    variance = sum((Fraction(value) - exact / n) ** 2 for value in values) / divisor
    if whole:
        cut = math.trunc(variance)
        return min(cut if one.name.startswith("VAR") else int(math.sqrt(cut)), (1 << 63) - 1)
    try:
        result = float(variance)
    except OverflowError:
        return math.inf
    return result if one.name.startswith("VAR") else math.sqrt(result)


def wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def rounded(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def windows(grid: Grid, time: int) -> list[tuple[int, int]]:
    """The windows that a row is in."""
    size, step, offset = grid.size, grid.step, grid.offset
    if grid.kind == "TUMBLE":
        start = time - (time - offset) % size
        return [(start, start + size)]
    if grid.kind == "HOP":
        last = time - (time - offset) % step
        return [(start, start + size) for start in range(last, time - size, -step)]
    start = time - (time - offset) % size
    return [(start, end) for end in range(start + step, start + size + 1, step) if end > time]


def ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def windowed(node: Windowed, stream: Sequence[tuple[Row, int]]) -> tuple[list[list[Row]], int]:
    """Rows by firing of windows, and how many rows were late. ``stream``: rows, each with the watermark behind it."""
    mark, late = NEVER, 0
    open_: dict[tuple[int, int], list[Row]] = {}
    results: list[list[Row]] = []

    def fire() -> None:
        for start, end in sorted((one for one in open_ if one[1] - MILLISECOND <= mark), key=lambda one: one[1]):
            rows = open_.pop((start, end))
            sets = node.sets or (tuple(range(len(node.keys))),)
            output = []
            for grouping in sets:
                groups: dict[Any, list[Row]] = {}
                for row in rows:
                    key = tuple(row[at] if i in grouping else None for i, at in enumerate(node.keys))
                    groups.setdefault(key, []).append(row)
                tail = (sum(1 << len(node.keys) - 1 - i for i in range(len(node.keys)) if i not in grouping),)
                for key, members in groups.items():
                    values = [aggregate(one, members) for one in node.aggregates]
                    origin = max(row[0] for row in members)
                    output.append((origin, *key, *values, start, end, end - MILLISECOND, *(tail if node.sets else ())))
            results.append(ordered(output))

    for row, after in stream:
        every = windows(node.grid, row[1])
        open_now = [one for one in every if one[1] - MILLISECOND > mark]
        late += bool(every) and not open_now
        for one in open_now:
            open_.setdefault(one, []).append(row)
        if after > mark:
            mark = after
            fire()
    mark = FOREVER
    fire()
    return results, late


def over(node: Over, stream: Sequence[tuple[Row, int]]) -> tuple[list[Row], int]:
    """A row is given when the watermark reaches its time; it is late when rows of its key at or after its time have
    been given, without bounds when the watermark is at its time. With a range a key is forgotten after 1.5 of it."""
    mark, late = NEVER, 0
    partitions: dict[Any, list[Row]] = {}
    waiting: list[Row] = []
    results: list[Row] = []
    bounded = node.range is not None or node.rows not in (None, ALL_ROWS)

    def give(row: Row) -> None:
        past = partitions[row[2]]
        if node.rows is not None:
            at = past.index(row)
            past = past[max(0, at - node.rows) : at + 1]
        else:
            past = [one for one in past if one[1] <= row[1]]
            if node.range is not None:
                past = [one for one in past if one[1] >= row[1] - node.range]
        results.append((*row, *(aggregate(one, past) for one in node.aggregates)))

    def due() -> None:
        times = sorted(
            {row[1] for row in waiting if row[1] <= mark}
            | {at for each in alarms.values() for at in each if at <= mark}
        )
        for time in times:
            for key in [key for key, each in alarms.items() if time in each]:
                last[key] = time
                alarms[key].remove(time)
            for key in [key for key, each in alarms.items() if not each]:
                del alarms[key], last[key]
                partitions.pop(key, None)
                waiting[:] = [row for row in waiting if row[2] != key]
            ready = [row for row in waiting if row[1] == time]
            for row in ready:
                waiting.remove(row)
                partitions.setdefault(row[2], []).append(row)
            for row in ready:
                give(row)

    alarms: dict[Any, list[int]] = {}
    last: dict[Any, int] = {}
    for row, after in stream:
        past = max((one[1] for one in partitions.get(row[2], ())), default=NEVER)
        if row[1] > (max(past, last.get(row[2], NEVER)) if bounded else mark):
            waiting.append(row)
            if node.range is not None:
                pending = alarms.setdefault(row[2], [])
                if not pending or pending[-1] < row[1] + node.range + MILLISECOND:
                    pending.append(row[1] + node.range * 3 // 2 + MILLISECOND)
        else:
            late += 1
        if after > mark:
            mark = after
            due()
    mark = FOREVER
    due()
    return results, late


def sessions(gap: int, stream: Sequence[tuple[Row, int]]) -> tuple[list[tuple[int, int, list[Row]]], int]:
    """Sessions of ``row[2]`` in the order of their ends, and how many rows were late."""
    mark, late = NEVER, 0
    open_: list[tuple[int, int, list[Row]]] = []
    results: list[tuple[int, int, list[Row]]] = []

    def fire() -> None:
        for one in sorted((one for one in open_ if one[1] - MILLISECOND <= mark), key=lambda one: one[1]):
            open_.remove(one)
            results.append(one)

    for row, after in stream:
        start, end = row[1], row[1] + gap
        same = [one for one in open_ if one[2][0][2] == row[2] and one[0] <= end and start <= one[1]]
        start, end = min([start, *(one[0] for one in same)]), max([end, *(one[1] for one in same)])
        if end - MILLISECOND <= mark:
            late += 1
        else:
            for one in same:
                open_.remove(one)
            open_.append((start, end, [*(each for one in same for each in one[2]), row]))
        if after > mark:
            mark = after
            fire()
    mark = FOREVER
    fire()
    return results, late
