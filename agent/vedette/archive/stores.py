"""Where archived segments lie: a mounted folder, or an object store by ``obstore``.

A store has four verbs. ``put`` replaces an object as a whole or not at all; ``stat`` and ``read`` tell what is there;
``keys`` lists. Nothing is ever deleted, so the agent needs no right to. Every failure is an OSError that names the
object; FileNotFoundError: it is not there.

Requests are bounded in time (``CONNECT_SECONDS``, ``REQUEST_SECONDS``) and not repeated here: who calls knows when to
try again. Objects are sent in parts of ``PART_BYTES``, taken from an iterator one after the other, so that who gives
them sets the pace.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from vedette.archive.age import NO_AGE
from vedette.config.settings import ArchiveSettings
from vedette.system.durable import make_folders, sync_path, write_whole
from vedette.system.installation import bring, running

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PART_BYTES = 5 << 20
"""Of a multipart upload: the least that S3 allows."""
PIECE_BYTES = 256 << 10
"""Given to ``put`` at once, of which PART_BYTES is a multiple."""
READ_BYTES = 4 << 20
"""Asked for at once."""
CONNECT_SECONDS, REQUEST_SECONDS = 5, 60
MARKER = ".vedette-archive"
"""In an agent's folder of a mounted one: the random id by which the agent knows it again."""
_ID = re.compile(r"[0-9a-f]{32}")
_NO_STORES = "archive.url: object stores need obstore, which is not installed: {}"


class Stat(NamedTuple):
    """``tag``: the store's ETag, without quotes; empty when it has none."""

    size: int
    tag: str


class Digests(NamedTuple):
    """Of bytes: how many, their SHA-256 (hexadecimal), and the ETags that S3 gives to them, sent as a whole or in
    parts of ``PART_BYTES``."""

    size: int
    sha256: str
    tags: tuple[str, ...]


class Store(Protocol):
    """See the module's text. A ``key`` is below the archive's prefix."""

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        """Raises OSError, and what ``pieces`` raises; the object is then as it was."""

    def stat(self, key: str) -> Stat | None:
        """None: there is no such object. Raises OSError."""

    def read(self, key: str, start: int, size: int) -> bytes:
        """Raises OSError; FileNotFoundError when there is no such object."""

    def keys(self, prefix: str) -> Iterator[str]:
        """Of the objects whose key begins with ``prefix``, a folder's name and a slash. Raises OSError."""


def open_store(settings: ArchiveSettings) -> Store:
    """The store of ``settings``; the options file is read each time. Raises OSError, also without obstore."""
    if settings.url.startswith("/"):
        return FolderStore(Path(settings.url))
    return ObjectsStore(settings)


def open_own(settings: ArchiveSettings, agent: str, local: Path, used: bool = False) -> Store:
    """As ``open_store``, for the agent that writes there; a folder must be the one that it used first. ``local``: where
    it has noted that; ``used``: see ``own``. Raises OSError."""
    store = open_store(settings)
    if isinstance(store, FolderStore):
        store.own(agent, local / "folder", used)
    return store


def lacking(settings: ArchiveSettings) -> str:
    """What must be installed before ``settings`` can work; empty: nothing."""
    if settings.url and not settings.url.startswith("/") and find_spec("obstore") is None:
        return _NO_STORES.format(bring("archive", running()))
    if settings.recipient and find_spec("pyrage") is None:
        return NO_AGE.format(bring("archive", running()))
    return ""


def warnings(settings: ArchiveSettings, data: Path) -> Iterator[str]:
    """A folder that lies where the agent's ``data`` does: before its first use nothing else tells a mount point whose
    mount is away from the folder that is meant."""
    folder = Path(settings.url)
    if settings.url.startswith("/") and folder.is_dir():
        there = next(path for path in (data, *data.parents) if path.exists())
        if folder.stat().st_dev == there.stat().st_dev:
            yield (
                f"archive.url: {folder} is on the same file system as {data}, where archived segments free no room: is"
                " it mounted? Mount it before the agent's first start"
            )


class FolderStore:
    """A folder that is mounted from elsewhere. It must exist: one that is not mounted takes nothing."""

    def __init__(self, root: Path, mode: int = 0o640) -> None:
        """``mode``: of files that are written."""
        self._root, self._mode = root, mode
        self._marker, self._note, self._id = root / MARKER, root, ""

    def own(self, agent: str, note: Path, used: bool = False) -> None:
        """From now on it must have the marker of its first use, which ``note`` names. ``used``: it has been used before
        there were markers. Raises OSError."""
        self._mounted()
        self._marker, self._note, root = self._root / agent / MARKER, note, str(self._root / agent)
        noted = note.read_text(errors="replace") if note.exists() else ""
        if used and not noted and not self._marker.parent.is_dir():
            what = "what was archived is not there: is the archive's folder mounted?"
            raise FileNotFoundError(2, what, str(self._marker.parent))
        if not noted.endswith(f" {root}\n"):
            if not (id := _marked(self._marker)):
                id = secrets.token_hex(16)
                make_folders(self._marker.parent, 0o750)
                write_whole(self._marker, f"{id}\n".encode(), self._mode)
            noted = f"{id} {root}\n"
            make_folders(note.parent, 0o750)
            write_whole(note, noted.encode(), 0o640)
        self._id = noted.partition(" ")[0]
        self._mounted()

    def _mounted(self) -> None:
        """Raises FileNotFoundError when it is not, or another is in its place."""
        if not self._root.is_dir():
            raise FileNotFoundError(2, "the archive's folder is not there: is it mounted?", str(self._root))
        if self._id and (id := _marked(self._marker)) != self._id:
            lack = "has another id than the archive's folder had" if id else "is missing"
            action = (
                f"if it was moved, copy this file, too; for a new archive delete {self._note} and the index beside it"
            )
            raise FileNotFoundError(
                2, f"the marker {lack}: is the archive's folder mounted? {action}", str(self._marker)
            )

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        self._mounted()
        path = self._root / key
        make_folders(path.parent, 0o750)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.unlink(missing_ok=True)
        try:
            with temporary.open("xb") as file:  # through no link that another one of the folder has put there
                os.fchmod(file.fileno(), self._mode)
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_path(path.parent)

    def stat(self, key: str) -> Stat | None:
        self._mounted()
        try:
            return Stat((self._root / key).stat().st_size, "")
        except FileNotFoundError:
            return None

    def read(self, key: str, start: int, size: int) -> bytes:
        path = self._root / key
        if (path.exists() or path.is_symlink()) and not path.is_file():  # a pipe would wait for ever
            raise IsADirectoryError(21, "not a file", str(path))
        with path.open("rb") as file:
            file.seek(start)
            return file.read(size)

    def keys(self, prefix: str) -> Iterator[str]:
        self._mounted()
        with suppress(FileNotFoundError), os.scandir(self._root / prefix) as entries:
            yield from (f"{prefix}{entry.name}" for entry in entries if not entry.name.startswith("."))


class ObjectsStore:
    """A bucket or container, by obstore."""

    def __init__(self, settings: ArchiveSettings) -> None:
        try:
            from obstore.store import from_url
        except ImportError as error:
            raise OSError(_NO_STORES.format(bring("archive", running()))) from error
        options: dict[str, Any] = {}
        if settings.options_file is not None:
            try:
                options = tomllib.loads(settings.options_file.read_text())
            except ValueError as error:
                raise OSError(f"{settings.options_file}: not valid TOML: {error}") from error
        client = {"connect_timeout": f"{CONNECT_SECONDS}s", "timeout": f"{REQUEST_SECONDS}s"}
        if str(options.get("endpoint", "")).startswith("http://"):
            client["allow_http"] = "true"
        with _failing(f"archive.url {settings.url}"):
            self._store: ObjectStore = from_url(
                settings.url, config=options, client_options=client, retry_config={"max_retries": 0}
            )  # type: ignore[call-overload]  # overloads are by scheme; the scheme comes from the file

    def put(self, key: str, pieces: Iterable[bytes]) -> None:
        from obstore import put

        failed: list[BaseException] = []

        def kept() -> Iterator[bytes]:
            try:
                yield from pieces
            except BaseException as error:
                failed.append(error)
                raise

        try:
            with _failing(key):
                put(self._store, key, kept(), chunk_size=PART_BYTES, max_concurrency=1)
        except OSError:
            if failed:
                raise failed[0] from None
            raise

    def stat(self, key: str) -> Stat | None:
        from obstore import head

        try:
            with _failing(key, absent=True):
                facts = head(self._store, key)
        except FileNotFoundError:
            return None
        return Stat(facts["size"], (facts["e_tag"] or "").strip('"'))

    def read(self, key: str, start: int, size: int) -> bytes:
        from obstore import get_range

        with _failing(key, absent=True):
            return bytes(get_range(self._store, key, start=start, length=size))

    def keys(self, prefix: str) -> Iterator[str]:
        from obstore import list as listed

        with _failing(prefix):
            for batch in listed(self._store, prefix):
                yield from (entry["path"] for entry in batch)


def digest(pieces: Iterable[bytes]) -> Digests:
    """Of ``pieces`` of ``PIECE_BYTES``, the last one maybe shorter."""
    whole, md5, part, parts, size, filled = hashlib.sha256(), _md5(), _md5(), list[bytes](), 0, 0
    for piece in pieces:
        for hasher in (whole, md5, part):
            hasher.update(piece)
        size, filled = size + len(piece), filled + len(piece)
        if filled >= PART_BYTES:
            parts.append(part.digest())
            part, filled = _md5(), 0
    if filled or not parts:
        parts.append(part.digest())
    return Digests(size, whole.hexdigest(), (md5.hexdigest(), f"{_md5(b''.join(parts)).hexdigest()}-{len(parts)}"))


def holds(store: Store, key: str, of: Digests, stat: Stat, take: Callable[[int], None] = lambda size: None) -> bool:
    """Whether the object that ``stat`` is about has these bytes: by its ETag, or by reading all of it. ``take`` is
    called before each read. Raises OSError."""
    if stat.size != of.size:
        return False
    if stat.tag in of.tags:
        return True
    whole = hashlib.sha256()
    for start in range(0, of.size, READ_BYTES):
        size = min(READ_BYTES, of.size - start)
        take(size)
        whole.update(store.read(key, start, size))
    return whole.hexdigest() == of.sha256


def _marked(marker: Path) -> str:
    """The id in it; empty: it has none. Raises OSError."""
    if not marker.is_file():
        return ""
    with marker.open("rb") as file:
        id = file.read(64).decode(errors="replace").strip()
    return id if _ID.fullmatch(id) else ""


def _md5(data: bytes = b"") -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)


@contextmanager
def _failing(what: str, *, absent: bool = False) -> Iterator[None]:
    """What obstore raises in the block, as OSError about ``what``, with its text but for its debug output. ``absent``:
    as FileNotFoundError where it is not there."""
    try:
        yield
    except Exception as error:  # its own errors have no base in common with those of options and of I/O
        if absent and isinstance(error, FileNotFoundError):
            raise FileNotFoundError(2, "not in the store", what) from error
        text, _, _ = str(error).partition("\n\nDebug source")
        raise OSError(f"{what}: {' '.join(text.split())[:500]}") from error
