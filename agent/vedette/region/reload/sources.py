"""One source into a file that ``lookup/source.py`` reads, within its bounds, and only when it is another than before.

Of a file on the web nobody believes the server alone: its SHA-256 has to be in ``sha256``, or one of ``signed_by`` has
signed its bytes (Ed25519, as ``openssl pkeyutl -sign -rawin`` writes it, raw or in Base64); both where both are there.
"""

from __future__ import annotations

import base64
import hashlib
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from cryptography.exceptions import InvalidSignature

from vedette.bundle.seal import public_key
from vedette.region.feeds.web import Failed, Web, shown
from vedette.region.reload import databases
from vedette.region.reload.settings import Table
from vedette.system.folders import at_once, read_regular

_CHUNK = 1 << 20


_LEAST = 512 << 20
"""Bytes of addresses that the libraries take, whatever the content."""
_PER_BYTE, _PER_ROW = 8, 1024
"""The same that content takes at most where it is what it seems to be."""


@contextmanager
def bounded(table: Table) -> Iterator[None]:
    """Bound the memory that this process takes meanwhile by ``max_bytes`` and ``max_rows``: a row without an end, or a
    Parquet file that unpacks to a thousand times its size, takes no more. Raises Failed where it would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    rows = min(table.max_rows, table.max_bytes // _PER_BYTE)
    more = _LEAST + _PER_BYTE * table.max_bytes + _PER_ROW * rows
    least = min(limit for limit in (now + more, soft, hard) if limit != resource.RLIM_INFINITY)
    with suppress(OSError, ValueError):  # a unit's system call filter may forbid it: its MemoryMax holds
        resource.setrlimit(resource.RLIMIT_AS, (least, hard))
    try:
        yield
    except MemoryError:
        raise Failed(f"it takes more than {more >> 20:,} MiB of memory (max_bytes, max_rows)") from None
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Content(NamedTuple):
    """``digest``: of all of it; ``types``: of columns, where the source says them; ``etag`` and ``changed``: by what a
    server knows it."""

    path: Path
    digest: str
    types: Mapping[str, str] = {}
    etag: str = ""
    changed: str = ""


def fetch(table: Table, folder: Path, etag: str, changed: str) -> Content | None:
    """The source's content in a file in ``folder``; None when the server says that it is the one with ``etag`` and
    ``changed``. Raises OSError and ValueError."""
    target = folder / f"{table.name}{table.suffix}"
    if table.database:
        return Content(target, *databases.fetch(table, target))
    if table.path is not None:
        read_regular(table.path, 0)  # a pipe would not end
        with open(table.path, "rb", opener=at_once) as file:
            return Content(target, _copied(file, target, table))
    with Web(table) as web:
        answer = web.get(table.url, "*/*", {"etag": etag, "last-modified": changed} if etag or changed else None)
        if answer.body is None:
            return None
        with answer.body as body:
            digest = _copied(body, target, table)
        if table.sha256 and digest not in table.sha256:
            raise Failed(f"{shown(table.url)}: its SHA-256 is {digest}: not in sha256")
        if table.signed_by:
            _verify(web, table, target)
    return Content(target, digest, {}, answer.headers.get("etag", ""), answer.headers.get("last-modified", ""))


def _copied(source: IO[bytes], target: Path, table: Table) -> str:
    """The SHA-256 of what was copied. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with target.open("wb") as file:
        while piece := source.read(_CHUNK):
            size += len(piece)
            if size > table.max_bytes:
                raise Failed(f"{table.path}: more than {table.max_bytes:,} bytes (max_bytes)")
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _verify(web: Web, table: Table, path: Path) -> None:
    url = table.signature or f"{table.url}.sig"
    body = web.get(url, "*/*").body
    assert body is not None  # nothing was said to be known
    with body:
        signature = body.read(4096)
    if len(signature) != 64:
        with suppress(ValueError):
            signature = base64.b64decode(signature.strip(), validate=True)
    data = path.read_bytes()
    for key in table.signed_by:
        with suppress(InvalidSignature):
            return public_key(key).verify(signature, data)
    raise Failed(f"{shown(url)}: no signature by one of signed_by over {shown(table.url)}")
