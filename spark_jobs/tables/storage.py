"""The few questions Spark's readers do not answer, asked of the file system behind a path.

Any path that Spark can read will do: a local one, ``hdfs://``, ``s3a://``. Each function makes a few calls whatever
the number of files, except ``names``, which makes one per name.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?(?=/)")
_GLOB = re.compile(r"([\\{}\[\]*?])")


def literal(path: str) -> str:
    """``path`` such that Spark takes no character of it for a wildcard."""
    return _GLOB.sub(r"\\\1", path)


def bare(path: str, *, encoded: bool = False) -> str:
    """``path`` without scheme and authority; ``encoded`` when it is a URL, as in a row's ``origin``."""
    return _SCHEME.sub("", unquote(path) if encoded else path, count=1)


def local(spark: SparkSession, path: str) -> Path | None:
    """``path`` on this host's own file system, absolute; None when it lies elsewhere."""
    system, target = _resolve(spark, path)
    whole = system.makeQualified(target).toUri()
    return Path(str(whole.getPath())) if whole.getScheme() == "file" else None


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or a folder at ``path``."""
    system, target = _resolve(spark, path)
    return bool(system.exists(target))


def stamp(spark: SparkSession, path: str) -> tuple[int, int] | None:
    """Bytes of the file at ``path`` and milliseconds of its last change, since 1970; None when it is none."""
    system, target = _resolve(spark, path)
    if not system.exists(target):
        return None
    found = system.getFileStatus(target)
    return None if found.isDirectory() else (int(found.getLen()), int(found.getModificationTime()))


def names(spark: SparkSession, path: str, *, folders: bool = False) -> list[str]:
    """Names of the files, or ``folders``, right under ``path``, sorted; empty when it does not exist."""
    system, target = _resolve(spark, path)
    found = system.listStatus(target) if system.exists(target) else ()
    return sorted(str(entry.getPath().getName()) for entry in found if bool(entry.isDirectory()) == folders)


def count(spark: SparkSession, path: str, pattern: str) -> int:
    """How many entries match the wildcard ``pattern`` under ``path``."""
    system, target = _resolve(spark, f"{literal(path)}/{pattern}")
    return len(system.globStatus(target) or ())


def settle(spark: SparkSession, path: str) -> None:
    """Have what was written under ``path`` on the disk. Spark syncs nothing; file systems elsewhere see to it."""
    if local(spark, path) is not None:
        os.sync()


def delete(spark: SparkSession, path: str) -> None:
    """Delete the folder or file at ``path`` with all below it; nothing when there is none."""
    system, target = _resolve(spark, path)
    system.delete(target, True)


def prune(spark: SparkSession, path: str) -> bool:
    """Delete ``path`` when no file lies in it or below; whether it did."""
    system, target = _resolve(spark, path)
    left = [one for one in system.listStatus(target) if not (one.isDirectory() and prune(spark, str(one.getPath())))]
    if left:
        return False
    try:
        return bool(system.delete(target, False))
    except Py4JJavaError:  # something has come into it
        return False


@contextmanager
def replacing(file: Path) -> Iterator[TextIO]:
    """What is written to it becomes the content of the local ``file``, whole or not at all."""
    temporary = file.with_name(f".{file.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)


def replace(file: Path, text: str) -> None:
    """Make ``text`` the content of the local ``file``."""
    with replacing(file) as out:
        out.write(text)


@contextmanager
def one_writer(spark: SparkSession, path: str, job: str) -> Iterator[None]:
    """Hold ``path`` (made when missing) against a second ``job`` on this host.

    The lock ends with the process, however it ends. Nothing is locked on other file systems. Raises BlockingIOError.
    """
    folder = local(spark, path)
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f".{job}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"{folder}: another {job} is writing these tables; wait for its end or name other --tables"
            ) from None
        yield


def _resolve(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The Hadoop file system of ``path``, and the path for it."""
    context = spark.sparkContext
    jvm: Any = context._jvm
    target = jvm.org.apache.hadoop.fs.Path(path)
    return target.getFileSystem(context._jsc.hadoopConfiguration()), target
