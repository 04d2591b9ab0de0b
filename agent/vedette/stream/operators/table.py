"""The operators by the node that they run: one row each. ``Scan`` has none: ``network/network.py`` feeds them."""

from __future__ import annotations

from vedette.plan import query
from vedette.stream.operators.apply import Apply
from vedette.stream.operators.base import Operator
from vedette.stream.operators.join import Join
from vedette.stream.operators.lookup import LookupJoin
from vedette.stream.operators.over import Over
from vedette.stream.operators.pattern import Match
from vedette.stream.operators.stateless import Assign, Calc, Expand, Union
from vedette.stream.operators.top import Top
from vedette.stream.operators.windowed import Grouped, Windowed

OPERATORS: dict[type[query.Node], type[Operator]] = {
    query.Calc: Calc,
    query.Apply: Apply,
    query.Expand: Expand,
    query.Join: Join,  # type: ignore[type-abstract]  # its __new__ makes the one of its kinds that the node asks for
    query.LookupJoin: LookupJoin,
    query.Match: Match,
    query.Union: Union,
    query.Assign: Assign,
    query.Windowed: Windowed,
    query.Grouped: Grouped,
    query.Over: Over,
    query.Top: Top,
}
