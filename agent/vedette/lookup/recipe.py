"""How a table becomes a lookup: its keys, columns and types, as people say them, as rules ask for them, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vedette.lookup.batch import Key
from vedette.lookup.build import Built, build
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

    def build(self, source: Path, target: Path, *, name: str = "", created: int, previous: Path | None = None) -> Built:
        """Build the lookup ``target`` of the table ``source``. Raises BuildRefused and OSError."""
        kinds = {column: key.kind for key in self.keys for column in key.columns}
        types = {**dict.fromkeys(self.valid or (), "time"), **self.types}
        with read(source, types, kinds, self.columns) as table:
            return build(
                target,
                table.columns,
                self.keys,
                table.batches,
                created=created,
                name=name,
                source=str(source),
                valid=self.valid,
                duplicates=self.duplicates or "refuse",
                previous=previous,
            )
