"""Lowered nodes into one form: fewer, and equal where they mean the same.

``merge.py`` makes one node of several, from below; ``prune.py`` takes away what nobody asks for, from above. The root
keeps its columns and their names.
"""

from __future__ import annotations

from collections.abc import Sequence

from vedette.plan.query import (
    Calc,
    Column,
    Named,
    Node,
)
from vedette.rules.sql.checked import columns
from vedette.rules.sql.merge import merged_nodes, moved, over_calc
from vedette.rules.sql.prune import pruned


def simplified(root: Node, names: Sequence[str]) -> Node:
    """The nodes of a statement whose columns have ``names``: a Calc above all."""
    merged = merged_nodes(root)
    if not isinstance(merged, Calc):
        same = tuple(Column(at, one.type) for at, one in enumerate(merged.columns, 1))
        merged = Calc(merged.columns, merged.time, merged, same)
    wanted = tuple(columns(merged.when)) + tuple(at for one in merged.exprs for at in columns(one))
    below, place = pruned(merged.input, set(wanted), False)
    exprs = tuple(moved(one, place) for one in merged.exprs)
    when = None if merged.when is None else moved(merged.when, place)
    found = Calc(
        tuple(Named(name, one.type) for name, one in zip(names, merged.columns, strict=True)), 0, below, exprs, when
    )
    return _root_merged(found)


def _root_merged(root: Calc) -> Node:
    """After pruning, the root may stand on a Calc that nothing else is asked of."""
    together = over_calc(root) if isinstance(root.input, Calc) else None
    return together or root
