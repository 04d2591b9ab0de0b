"""What one condition says of both sides of a join: equal columns or keys, a bound of time, or how it asks a lookup.

Columns are those of the left side, ``width`` of them, then the right's. Each function gives None for a condition that
is not of its kind; it stays a condition of the join then.
"""

from __future__ import annotations

from collections.abc import Sequence

from vedette.plan.query import MILLISECOND, Call, Column, Expression, Literal, Type
from vedette.rules.sql import checked
from vedette.rules.sql.catalog import LookupTable
from vedette.rules.sql.checked import BOOLEAN
from vedette.rules.sql.scope import Col

_FAMILIES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "integer"),
    **dict.fromkeys(("CHAR", "VARCHAR", "STRING"), "text"),
}


def sides(one: Expression, width: int) -> tuple[int, int] | None:
    """Of ``l = r``, both columns, their indexes: left's, then right's."""
    if isinstance(one, Call) and one.name == "=" and all(isinstance(arg, Column) for arg in one.args):
        first, second = (arg.index for arg in one.args if isinstance(arg, Column))
        if first <= width < second:
            return first, second
        if second <= width < first:
            return second, first
    return None


def equality(one: Expression, width: int) -> tuple[Expression, Expression] | None:
    """Of an equality between both sides, what is left's and what is right's; types that compare as values do."""
    if not isinstance(one, Call) or one.name != "=":
        return None
    first, second = one.args
    a, b = checked.columns(first), checked.columns(second)
    if not a or not b:
        return None
    if max(b) <= width < min(a):
        first, second, a, b = second, first, b, a
    if not max(a) <= width < min(b):
        return None
    kinds = [_FAMILIES.get(part.type.name, str(part.type)) for part in (first, second)]
    return (first, second) if kinds[0] == kinds[1] else None


def shifted_time(value: Expression, cols: Sequence[Col]) -> tuple[int, int] | None:
    """Of a time attribute with an interval added or taken away: its column, and the microseconds."""
    if isinstance(value, Column):
        return (value.index, 0) if 0 < value.index <= len(cols) and cols[value.index - 1].rowtime else None
    if isinstance(value, Call) and value.name in ("+", "-") and len(value.args) == 2:
        first, second = value.args
        if isinstance(second, Literal) and second.type.name == "INTERVAL_SECOND":
            inner = shifted_time(first, cols)
            by = second.value if value.name == "+" else -second.value
        elif isinstance(first, Literal) and first.type.name == "INTERVAL_SECOND" and value.name == "+":
            inner, by = shifted_time(second, cols), first.value
        else:
            return None
        return None if inner is None else (inner[0], inner[1] + by)
    return None


def time_bounds(one: Expression, cols: Sequence[Col], width: int) -> list[tuple[int | None, int | None]] | None:
    """What a condition says of right time - left time: least and most, microseconds."""
    if not isinstance(one, Call):
        return None
    if one.name == "BETWEEN":
        value, low, high = one.args
        found = [
            time_bounds(Call(">=", (value, low), BOOLEAN), cols, width),
            time_bounds(Call("<=", (value, high), BOOLEAN), cols, width),
        ]
        return [*found[0], *found[1]] if found[0] and found[1] else None
    if one.name not in ("=", "<", "<=", ">", ">="):
        return None
    first, second = (shifted_time(arg, cols) for arg in one.args)
    if first is None or second is None or (first[0] <= width) == (second[0] <= width):
        return None
    name = one.name
    if first[0] > width:  # bring left to the left
        first, second = second, first
        name = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(name, name)
    gap = first[1] - second[1]  # left + a  ?  right + b   means   right - left  ¿  a - b
    return [
        {
            "=": (gap, gap),
            "<=": (gap, None),
            "<": (gap + MILLISECOND, None),
            ">=": (None, gap),
            ">": (None, gap - MILLISECOND),
        }[name]
    ]


def asked(one: Expression, width: int, lookup: LookupTable) -> tuple[str, Expression] | None:
    """How a condition asks a lookup: its index, and the key, which is of the left side."""
    if not isinstance(one, Call):
        return None

    def column(value: Expression) -> tuple[str, Type] | None:
        return lookup.columns[value.index - width - 1] if isinstance(value, Column) and value.index > width else None

    def mine(value: Expression) -> bool:
        return max(checked.columns(value), default=0) <= width

    if one.name == "=":
        for theirs, key in (one.args, one.args[::-1]):
            if (found := column(theirs)) is not None and mine(key):
                same = _FAMILIES.get(key.type.name) == _FAMILIES.get(found[1].name)
                return (found[0], key) if same and key.type.name in _FAMILIES else None
    if one.name == "BETWEEN" and mine(one.args[0]):
        low, high = column(one.args[1]), column(one.args[2])
        if low is not None and high is not None:
            return f"{low[0]}..{high[0]}", one.args[0]
    return None
