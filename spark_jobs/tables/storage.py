"""The few questions that neither Spark nor the tables answer, asked of the file system behind a path.

By pyarrow, so without the JVM: ``/a/path`` and ``file:///a/path`` are this host's own files, ``s3://`` and ``s3a://``
an object store, ``hdfs://``, ``gs://`` and ``abfs://`` what pyarrow knows by these names (``hdfs://`` needs Hadoop's
``libhdfs``). Each function makes a few calls whatever the number of files, except ``names`` and ``count``, which list.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock
from typing import TextIO
from urllib.parse import unquote

import pyarrow.fs
from pyarrow.fs import FileSelector, FileSystem, FileType

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?(?=/)")
_GLOB = re.compile(r"([\\{}\[\]*?])")
_S3 = re.compile("s3[an]?://")

MODE = 0o750
"""Of a folder for tables that is made here: they hold lines of every host."""
_LOCKS: dict[tuple[str, str], Lock] = {}
"""Of this process, by folder and name."""


def literal(path: str) -> str:
    """``path`` such that Spark takes no character of it for a wildcard."""
    return _GLOB.sub(r"\\\1", path)


def bare(path: str, *, encoded: bool = False) -> str:
    """``path`` without scheme and authority; ``encoded`` when it is a URL, as in a row's ``origin``."""
    return _SCHEME.sub("", unquote(path) if encoded else path, count=1)


def local(path: str) -> Path | None:
    """``path`` on this host's own file system, absolute; None when it lies elsewhere."""
    if path.startswith("file:"):
        return Path(os.path.abspath(bare(path)))
    return None if "://" in path else Path(os.path.abspath(path))


def file_system(url: str) -> FileSystem:
    """pyarrow's file system of ``url``.

    Spark and deltalake know S3 as ``s3a://`` too, pyarrow does not. Address and region of the store are deltalake's own
    environment variables, so that both read the same one; who may is in the usual ones of AWS.
    """
    if not _S3.match(url):
        return FileSystem.from_uri(url)[0]
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
    return pyarrow.fs.S3FileSystem(endpoint_override=endpoint, region=region)


def inside(url: str) -> str:
    """The path of ``url`` in its ``file_system``."""
    inner: str = url.partition("://")[2] if _S3.match(url) else FileSystem.from_uri(url)[1]
    return inner


def exists(path: str) -> bool:
    """Whether there is a file or a folder at ``path``."""
    system, target = _resolve(path)
    return bool(system.get_file_info(target).type != FileType.NotFound)


def stamp(path: str) -> tuple[int, int] | None:
    """Bytes of the file at ``path`` and milliseconds of its last change, since 1970; None when it is none."""
    system, target = _resolve(path)
    info = system.get_file_info(target)
    return (int(info.size), int((info.mtime_ns or 0) // 1_000_000)) if info.type == FileType.File else None


def stamps(path: str) -> list[tuple[int, int]]:
    """As ``stamp`` of each file under ``path``, at any depth; none where it does not exist."""
    system, target = _resolve(path)
    infos = system.get_file_info(FileSelector(target, allow_not_found=True, recursive=True))
    return [(int(info.size), int(info.mtime_ns // 1_000_000)) for info in infos if info.type == FileType.File]


def names(path: str, *, folders: bool = False) -> list[str]:
    """Names of the files, or ``folders``, right under ``path``, sorted; empty when it does not exist."""
    system, target = _resolve(path)
    wanted = FileType.Directory if folders else FileType.File
    infos = system.get_file_info(FileSelector(target, allow_not_found=True))
    return sorted(info.base_name for info in infos if info.type == wanted)


def count(path: str, pattern: str) -> int:
    """How many files under ``path`` match the wildcards of ``pattern``, one for each folder on the way."""
    system, target = _resolve(path)
    parts = pattern.split("/")
    if system.get_file_info(target).type != FileType.Directory:
        return 0
    infos = system.get_file_info(FileSelector(target, recursive=len(parts) > 1))
    below = (info.path[len(target.rstrip("/")) + 1 :].split("/") for info in infos if info.type == FileType.File)
    return sum(len(steps) == len(parts) and all(map(fnmatchcase, steps, parts)) for steps in below)


def settle(path: str) -> None:
    """Have what was written under ``path`` on the disk. Spark syncs nothing; file systems elsewhere see to it."""
    if local(path) is not None:
        os.sync()


def delete(path: str) -> None:
    """Delete the folder or file at ``path`` with all below it; nothing when there is none."""
    system, target = _resolve(path)
    kind = system.get_file_info(target).type
    if kind == FileType.Directory:
        system.delete_dir(target)
    elif kind != FileType.NotFound:
        system.delete_file(target)


def prune(path: str) -> bool:
    """Delete ``path`` when no file lies in it or below; whether it did."""
    here = local(path)
    if here is not None:
        left = [
            entry for entry in here.iterdir() if not (entry.is_dir() and not entry.is_symlink() and prune(str(entry)))
        ]
        if not left:
            try:
                here.rmdir()
            except OSError:  # something has come into it
                return False
        return not left
    # Of an object store a folder is what its objects are called: it is gone with them.
    system, target = _resolve(path)
    infos = system.get_file_info(FileSelector(target, allow_not_found=True, recursive=True))
    if any(info.type == FileType.File for info in infos):
        return False
    delete(path)
    return True


@contextmanager
def replacing(file: Path) -> Iterator[TextIO]:
    """What is written to it becomes the content of the local ``file``, whole or not at all; its folder is made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the name as well, before anything that is written after it
    finally:
        os.close(folder)


def replace(file: Path, text: str) -> None:
    """Make ``text`` the content of the local ``file``."""
    with replacing(file) as out:
        out.write(text)


def text(path: str) -> str | None:
    """What the small file at ``path`` holds; None when there is none."""
    system, target = _resolve(path)
    try:
        with system.open_input_stream(target) as source:
            return str(source.read().decode())
    except FileNotFoundError:
        return None


def lines(path: str) -> Iterator[bytes]:
    """The lines of the file at ``path``, however many."""
    system, target = _resolve(path)
    with system.open_input_file(target) as source:
        yield from io.BufferedReader(source)


def store(path: str, content: str) -> None:
    """Make ``content`` that of the file at ``path``: whole or not at all on this host and in object stores."""
    here = local(path)
    if here is not None:
        replace(here, content)
        return
    system, target = _resolve(path)
    with system.open_output_stream(target) as out:
        out.write(content.encode())


def create(path: str, content: str) -> bool:
    """Make an object of an object store; False when there is one. Raises OSError, and ImportError without obstore."""
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError
    from obstore.store import from_url

    folder, _, name = _S3.sub("s3://", path).rpartition("/")
    try:
        obstore.put(from_url(folder), name, content.encode(), mode="create")
    except AlreadyExistsError:
        return False
    except BaseError as error:
        raise OSError(f"{path}: {str(error).splitlines()[0]}") from error
    return True


@contextmanager
def locked(path: str, name: str) -> Iterator[None]:
    """Hold ``path`` against who locks it by the same ``name``; wait for it. A local one is made when missing, and held
    against other processes of this host too; one elsewhere against this process only."""
    folder = local(path)
    with _LOCKS.setdefault((str(folder or path), name), Lock()):
        if folder is None:
            yield
            return
        with _held(folder, name, fcntl.LOCK_EX):
            yield


@contextmanager
def one_writer(path: str, job: str) -> Iterator[None]:
    """Hold ``path`` (made when missing) against a second ``job``: on this host, or in an object store from anywhere.

    The lock ends with the process, however it ends. Nothing is locked on other file systems. Raises BlockingIOError.
    """
    from spark_jobs.tables.lease import STORES, leased  # which asks this module

    folder = local(path)
    if folder is None:
        with leased(path, job) if STORES.match(path) else nullcontext():
            yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(_held(folder, job, fcntl.LOCK_EX | fcntl.LOCK_NB))
        except BlockingIOError:
            raise BlockingIOError(
                f"{folder}: another {job} is writing these tables; wait for its end or name other --tables"
            ) from None
        yield


@contextmanager
def _held(folder: Path, name: str, how: int) -> Iterator[None]:
    """Hold ``folder`` (made when missing) by ``name`` against other processes of this host. Raises as ``flock``.

    What is locked is a folder in it: its owner's alone, since whoever can open it, if only to read, could hold the
    lock; and no file, which somebody could delete as a leftover and so let a second process in."""
    place = folder / f".{name}.held"
    folder.mkdir(mode=MODE, parents=True, exist_ok=True)
    while True:
        place.mkdir(0o700, exist_ok=True)
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, how)
            if place.exists() and os.path.samestat(os.fstat(descriptor), place.stat()):
                yield
                return
        finally:
            os.close(descriptor)  # where another one stands in its place, that is tried


def _resolve(path: str) -> tuple[FileSystem, str]:
    """The file system of ``path``, and the path in it."""
    here = local(path)
    return (pyarrow.fs.LocalFileSystem(), str(here)) if here is not None else (file_system(path), inside(path))
