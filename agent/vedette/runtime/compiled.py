"""Rule files compiled once: what a rule set is built from, by digest, and a user's cache of what was built.

The agent keeps what it has built in its own folder under ``Sources.digest`` (``rules.py``); commands that compile rule
files keep it in the user's cache folder (``UserCache``: ``$XDG_CACHE_HOME/vedette``, else ``~/.cache/vedette``). What
is kept holds databases of native code's own format, so nothing is read that anybody else could have written: folder and
file must belong to the user, writable by no other, and are opened without following a link. A cache that cannot be used
is none: what is asked for is compiled, and the command goes on.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from vedette import __version__
from vedette.engine.artifact import Artifact
from vedette.lookup.sets import shape
from vedette.lookup.table import SUFFIX
from vedette.plan.database import LIBRARY
from vedette.system.descriptors import SPENT
from vedette.system.folders import listed, read_regular

KEEP = 8
"""Rule sets in the user's cache; the one that was not used for longest goes first."""
MAX_BYTES = 256 << 20
"""Of a file that is read, and of all that are kept."""


class Sources(NamedTuple):
    """The files and folders that a rule set is built from."""

    paths: tuple[Path, ...]
    pipelines: tuple[Path, ...] = ()
    lookups: tuple[Path, ...] = ()

    def files(self) -> Iterator[Path]:
        """All that a build reads. Raises OSError when no descriptor is left: that is no folder without rules."""
        for path in (*self.paths, *self.pipelines, *self.lookups):
            if path.is_dir():
                yield from listed(path, (".yml", ".yaml", ".sql", ".toml", ".py", ".txt", ".csv", SUFFIX))
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
                content = shape(path).encode() if path.suffix == SUFFIX else read_regular(path)
            except OSError as error:
                if error.errno in SPENT:
                    raise
                content = f"cannot be read: {error.errno}".encode()  # the build refuses this file alone
            digest.update(str(path).encode("utf-8", "surrogateescape") + b"\0" + hashlib.sha256(content).digest())
        return digest.hexdigest()[:32]


def compiler() -> str:
    """What compiles rules, beyond its version: the package's files, which change while it is worked on, and libraries.

    Raises OSError."""
    from importlib.metadata import PackageNotFoundError, version  # 1 MiB, which an agent with a bundle does not need

    package = Path(__file__).parents[1]
    found = [f"{path.name} {(stats := path.stat()).st_size} {stats.st_mtime_ns}" for path in listed(package, (".py",))]
    for library in ("pysigma", "sqlglot"):
        with suppress(PackageNotFoundError):
            found.append(f"{library} {version(library)}")
    return hashlib.sha256("\n".join(found).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def user_folder() -> Path | None:
    """Where the user's programs keep what can be made again, by the XDG Base Directory Specification; None: nowhere."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    return root / "vedette" if root.is_absolute() else None


class UserCache:
    """Compiled rule sets of one user, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, digest: str) -> Artifact | None:
        """What was kept under ``digest``; None when nothing was, or it is damaged or not the user's alone."""
        try:
            with self._opened() as folder:
                descriptor = os.open(_name(digest), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                with os.fdopen(descriptor, "rb") as file:
                    if not _own(os.fstat(descriptor), stat.S_ISREG):
                        return None
                    found = Artifact.from_bytes(file.read(MAX_BYTES))
                    os.utime(descriptor)
        except (OSError, ValueError):
            return None
        return found

    def keep(self, digest: str, artifact: Artifact) -> None:
        """Keep ``artifact``, and let go of what was not used for longest; nothing is kept where that cannot be done."""
        data, name = artifact.to_bytes(), _name(digest)
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened() as folder:
                self._make_room(folder, len(data))
                if len(data) > MAX_BYTES:
                    return
                temporary = f".{name}.{os.getpid()}"
                try:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                    with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
                        file.write(data)
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError:
                    os.unlink(temporary, dir_fd=folder)
                    raise

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the folder. Raises OSError, also when it is not the user's alone."""
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if not _own(os.fstat(descriptor), stat.S_ISDIR):
                raise PermissionError(f"{self._folder} is not this user's alone")
            yield descriptor
        finally:
            os.close(descriptor)

    @staticmethod
    def _make_room(folder: int, size: int) -> None:
        """Delete, the oldest first, what is too much beside ``size`` bytes more; and what a kill left half-written."""
        kept = []
        for name in os.listdir(folder):
            if name.endswith(_SUFFIX):
                stats = os.stat(name, dir_fd=folder, follow_symlinks=False)
                kept.append((stats.st_mtime_ns, stats.st_size, name))
            elif name.startswith(".") and _SUFFIX in name:
                os.unlink(name, dir_fd=folder)
        kept.sort(reverse=True)
        for number, (_, own, name) in enumerate(kept, 2):
            size += own
            if number > KEEP or size > MAX_BYTES:
                os.unlink(name, dir_fd=folder)


_SUFFIX = ".vplan"


def _name(digest: str) -> str:
    return f"rules-{digest}{_SUFFIX}"


def _own(stats: os.stat_result, kind: Callable[[int], bool]) -> bool:
    """Whether it is of this kind, this user's, and writable by no other."""
    return kind(stats.st_mode) and stats.st_uid == os.geteuid() and not stats.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
