"""The operators by the node that they run: one row each. ``Scan`` has none: ``network.py`` is what feeds them."""

from __future__ import annotations

from vedette.plan import query
from vedette.stream.operator import Operator
from vedette.stream.operators.calc import Calc
from vedette.stream.operators.expand import Expand
from vedette.stream.operators.join import Join
from vedette.stream.operators.lookup import LookupJoin
from vedette.stream.operators.union import Union

OPERATORS: dict[type[query.Node], type[Operator]] = {
    query.Calc: Calc,
    query.Expand: Expand,
    query.Join: Join,
    query.LookupJoin: LookupJoin,
    query.Union: Union,
}
