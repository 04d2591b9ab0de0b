"""A region's folder with ``fleet.toml``, its key, and the lookups that ``vedette lookup refresh`` makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from vedette.cli.main import main
from vedette.lookup.sign import verify
from vedette.lookup.table import Lookup
from vedette.region.sign import keygen


class Region:
    def __init__(self, folder: Path) -> None:
        self.folder, self.lookups = folder, folder / "lookups"
        self.public = keygen(folder / "region.pem")
        self.more: list[str] = []
        """Further options of each command."""

    def tables(self, *tables: str, before: str = "") -> None:
        """Write ``fleet.toml``, which has other things, too."""
        rows = "".join(f"[[lookup]]\n{table}\n" for table in tables)
        (self.folder / "fleet.toml").write_text(f'{before}\n{rows}[[group]]\nname = "all"\nmatch = "all"\n')

    def command(self, *options: str) -> Result:
        path, key = str(self.folder / "fleet.toml"), str(self.folder / "region.pem")
        words = [path, "-o", str(self.lookups), "--key", key, "--fleet", "plants", *self.more, *options]
        return CliRunner().invoke(main, ["lookup", "refresh", *words])

    def refresh(self, *options: str, code: int = 0) -> dict[str, dict[str, Any]]:
        """What was done, by lookup."""
        done = self.command("--json", *options)
        assert done.exit_code == code, f"{done.output} {done.exception!r}"
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return {row["name"]: row for row in rows}

    def rows(self, name: str = "staff") -> dict[str, tuple[Any, ...]]:
        """The rows of a lookup that is signed for the fleet, by the first column."""
        path = self.lookups / f"{name}.vlookup"
        signed = verify(path, [self.public])
        assert (signed.fleet, signed.channel) == ("plants", "stable")
        with Lookup.open(path) as lookup:
            keys = (f"u{number}" for number in range(20))
            found = {key: lookup.get(lookup.indexes[0].name, key) for key in keys}
        return {key: row for key, row in found.items() if row is not None}


def staff(*numbers: int) -> bytes:
    """A table of users."""
    return b"user,risk\n" + b"".join(b"u%d,%d\n" % (number, 10 * number) for number in numbers)


def table(source: str, *more: str) -> str:
    return "\n".join(['name = "staff"', 'every = "1h"', 'key = ["user"]', source, *more])
