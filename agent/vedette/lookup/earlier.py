"""What a build takes over from the lookup's earlier version, so that rows which did not change are the same bytes.

Four things arrange a file without being in the table: the seed of its hashes (the order of rows), the sizes of its
filters, the symbols that compress texts, and the numbers of words in dictionaries. Taken over, a new version differs
from the earlier one where rows differ, and a delta of the two is small (``delta.py``). Another shape (columns, keys,
their kinds) takes nothing over; nor does a file that is damaged or no lookup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vedette.lookup.filter import Shape
from vedette.lookup.layout import Column, LookupRefused
from vedette.lookup.table import Lookup

if TYPE_CHECKING:
    from vedette.lookup.batch import Key


class Earlier(NamedTuple):
    seed: int | None = None
    symbols: Sequence[bytes] = ()
    words: Mapping[str, Sequence[str]] = {}
    """By column the words of its dictionary, in order."""
    filters: Mapping[int, Shape] = {}
    """By index how its filter is made."""


NOTHING = Earlier()


def earlier(path: Path, columns: Sequence[Column], keys: Sequence[Key], library: Any) -> Earlier:
    """Of the lookup in ``path``, if it is one of this shape. ``library``: None where no kernel builds it."""
    try:
        with Lookup.open(path, native=False) as lookup:
            shape = [(index.columns, index.kind) for index in lookup.indexes]
            if tuple(columns) != lookup.columns or [(key.columns, key.kind) for key in keys] != shape:
                return NOTHING
            if lookup.damaged() is not None:
                return NOTHING
            seed = next((layout["seed"] for layout in lookup.header.layouts if "seed" in layout), None)
            symbols = lookup.header.symbols if library is not None else ()
            filter_rows = {
                number: layout["filter"] for number, layout in enumerate(lookup.header.layouts) if "filter" in layout
            }
            filters = {
                number: Shape(filter_row["lines"], filter_row["tests"]) for number, filter_row in filter_rows.items()
            }
            return Earlier(seed, symbols, lookup.words(), filters)
    except (OSError, LookupRefused):
        return NOTHING
