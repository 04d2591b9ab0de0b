"""Rule files compiled once: what a rule set is built from, by digest. The agent keeps what it has built in its own
folder under ``Sources.digest`` (``rules.py``), commands in the user's cache (``usercache.py``)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vedette.lookup.names import SUFFIX, by_itself
from vedette.plan.database import LIBRARY
from vedette.system.descriptors import SPENT
from vedette.system.durable import stamp
from vedette.system.folders import listed, read_regular
from vedette.version import __version__


class Sources(NamedTuple):
    """The files and folders that a rule set is built from."""

    paths: tuple[Path, ...]
    pipelines: tuple[Path, ...] = ()
    lookups: tuple[Path, ...] = ()

    def files(self) -> Iterator[Path]:
        """All that a build reads. Raises OSError when no descriptor is left: that is no folder without rules."""
        separate = by_itself(self.lookups)
        for path in (*self.paths, *self.pipelines, *self.lookups):
            if path.is_dir():
                files = listed(path, (".yml", ".yaml", ".sql", ".toml", ".py", ".txt", ".csv", SUFFIX))
                yield from (file for file in files if file.name not in separate)
            else:
                yield path
                if path.suffix == ".sql":  # functions beside it
                    yield from sorted(path.parent.glob("*.py"))
                    if (path.parent / "functions").is_dir():
                        yield from listed(path.parent / "functions", (".py",))

    def digest(self, *more: str) -> str:
        """Of all that a build depends on but the sample, and ``more``. Raises OSError."""
        roles = [list(map(str, paths)) for paths in self]
        digest = hashlib.sha256(f"{__version__} {LIBRARY} {roles}{more or ''}\0".encode("utf-8", "surrogateescape"))
        for path in self.files():
            try:
                content = _shape(path) if path.suffix == SUFFIX else read_regular(path)
            except OSError as error:
                if error.errno in SPENT:
                    raise
                content = f"cannot be read: {error.errno}".encode()  # the build refuses this file alone
            digest.update(str(path).encode("utf-8", "surrogateescape") + b"\0" + hashlib.sha256(content).digest())
        return digest.hexdigest()[:32]


def _shape(path: Path) -> bytes:
    from vedette.lookup.copies import shape

    return shape(path).encode()


def compiler() -> str:
    """What compiles rules, beyond its version: the package's files, which change while it is worked on, and libraries.

    Raises OSError."""
    from importlib.metadata import PackageNotFoundError, version  # 1 MiB, which an agent with a bundle does not need

    package = Path(__file__).parents[1]
    parts = [f"{path.name} {stamp(path)}" for path in listed(package, (".py",))]
    for library in ("pysigma", "sqlglot"):
        with suppress(PackageNotFoundError):
            parts.append(f"{library} {version(library)}")
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]
