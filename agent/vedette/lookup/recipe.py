"""How a table becomes a lookup: its keys, columns and types, as people say them, as rules ask for them, or both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vedette.lookup.batch import Batch, BuildRefused, Key
from vedette.lookup.build import Built, build
from vedette.lookup.gather import MAX_ROWS
from vedette.lookup.source import read


@dataclass(frozen=True, slots=True)
class Recipe:
    """``columns``: those to take, all if empty; ``types``: of columns; ``valid``: the columns of the times from which
    and until which a row holds; ``duplicates``: as ``build`` has it, empty for what rules allow."""

    keys: tuple[Key, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    valid: tuple[str, str] | None = None
    duplicates: str = ""

    def build(
        self, source: Path, target: Path, *, name: str = "", created: int, previous: Path | None = None,
        max_rows: int = MAX_ROWS,
    ) -> Built:  # fmt: skip
        """Build the lookup ``target`` of the table ``source``. Raises BuildRefused and OSError."""
        kinds = {column: key.kind for key in self.keys for column in key.columns}
        types = {**dict.fromkeys(self.valid or (), "time"), **self.types}
        with read(source, types, kinds, self.columns) as table:
            return build(
                target,
                table.columns,
                self.keys,
                _at_most(max_rows, table.batches),
                created=created,
                name=name,
                source=str(source),
                valid=self.valid,
                duplicates=self.duplicates or "refuse",
                previous=previous,
            )


def _at_most(rows: int, batches: Iterable[Batch]) -> Iterator[Batch]:
    left = rows
    for batch in batches:
        left -= len(batch.lines)
        if left < 0:
            raise BuildRefused(f"more than {rows:,} rows (max_rows)")
        yield batch
