"""A zip that was carried to a host (``carried.py``), unpacked no further than the fleet has signed it.

First its metadata, each file within the bound of its role, and what they say is held against the fleet's root. Then the
blobs, each of which signed metadata name, as long as they say and with their SHA-256; then the lookups, each as long as
its head says, which is such a blob. What has no signature of the metadata's, requests and certificates, is bounded by
the file and together. So a zip makes no more bytes on the disk than operators have signed, and ``MAX_UNSIGNED``.

Whether the metadata are newer than those in force, and who may ask, is the agent's to decide.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from vedette.fleet.carried import opened
from vedette.fleet.enrolment import MAX_MESSAGE
from vedette.fleet.requests import MAX_REQUEST
from vedette.fleet.trust import MAX_METADATA, METADATA, FolderSource, Trust
from vedette.lookup import sign
from vedette.lookup.names import SUFFIX

MAX_UNSIGNED = 256 << 20
"""Bytes of metadata, requests and certificates together."""
_PIECE = 1 << 20
_LOOKUP = re.compile(rf"lookups/([0-9a-f]{{64}}){re.escape(SUFFIX)}")
_BLOB = re.compile(r"blobs/([0-9a-f]{64})")
_METADATA = re.compile(rf"tuf/(?:{METADATA.pattern})")
_UNSIGNED = {
    re.compile(r"requests/[0-9a-f]{32}\.json"): MAX_REQUEST,
    re.compile(r"certificates/[A-Za-z0-9._-]{1,64}\.json"): MAX_MESSAGE,
}
"""Bytes of a file, at most, by its name."""


def unpack(path: Path, folder: Path, fleet: str, root: bytes) -> int:
    """Unpack what is for a host of ``fleet`` in the zip ``path`` into the empty ``folder``, and return the number of
    files. ``root``: the metadata that enrolment or installation gave. Raises ValueError and OSError."""
    with opened(path) as file:
        blobs: dict[str, zipfile.ZipInfo] = {}
        lookups: dict[str, zipfile.ZipInfo] = {}
        unsigned = 0
        files = [info for info in file.infolist() if not info.is_dir()]
        for info in files:
            if match := _BLOB.fullmatch(info.filename):
                blobs[match[1]] = info
            elif match := _LOOKUP.fullmatch(info.filename):
                lookups[match[1]] = info
            else:
                unsigned += _bounded(path, info, _most(path, info.filename))
                if unsigned > MAX_UNSIGNED:
                    raise ValueError(f"{path}: more than {MAX_UNSIGNED} bytes without a signature of the fleet")
                if info.filename.startswith("tuf/"):
                    _write(file, info, folder)
        named = _named(folder, fleet, root) if blobs or lookups else {}
        for digest, info in blobs.items():
            _exact(path, info, _signed(path, info, digest, named))
            if _write(file, info, folder) != digest:
                raise ValueError(f"{path}: {info.filename} is not what was signed")
        for digest, info in lookups.items():
            _signed(path, info, digest, named)
            if digest not in blobs:
                raise ValueError(f"{path}: {info.filename} came without blobs/{digest}, which says how long it is")
            head = sign.opened((folder / blobs[digest].filename).read_bytes(), None)  # bytes that were just verified
            _exact(path, info, len(head.head) + head.size)
            _write(file, info, folder)
        for info in files:
            if not info.filename.startswith(("tuf/", "blobs/", "lookups/")):
                _write(file, info, folder)
        return len(files)


def _named(folder: Path, fleet: str, root: bytes) -> Mapping[str, int]:
    """SHA-256 and bytes of what the metadata in ``folder`` name. Raises TrustRefused and OSError."""
    with TemporaryDirectory() as scratch:
        return Trust(Path(scratch), fleet, root).named(FolderSource(folder))


def _most(path: Path, name: str) -> int:
    """Bytes that a file without a signature of the metadata's may have. Raises ValueError for one of another name."""
    if _METADATA.fullmatch(name):
        return MAX_METADATA[name.removesuffix(".json").rpartition("/")[2].rpartition(".")[2]]
    for pattern, most in _UNSIGNED.items():
        if pattern.fullmatch(name):
            return most
    raise ValueError(f"{path}: {name[:100]!r} does not belong there: `vedette fleet export --site`")


def _signed(path: Path, info: zipfile.ZipInfo, digest: str, named: Mapping[str, int]) -> int:
    """Bytes of what the metadata name by this SHA-256. Raises ValueError."""
    if digest not in named:
        raise ValueError(f"{path}: {info.filename} is not among what the fleet has signed: export it again")
    return named[digest]


def _bounded(path: Path, info: zipfile.ZipInfo, most: int) -> int:
    if info.file_size > most:
        raise ValueError(f"{path}: {info.filename} unpacks to {info.file_size} bytes, at most {most}")
    return info.file_size


def _exact(path: Path, info: zipfile.ZipInfo, size: int) -> None:
    if info.file_size != size:
        raise ValueError(f"{path}: {info.filename} unpacks to {info.file_size} bytes, and {size} were signed")


def _write(file: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path) -> str:
    """Unpack ``info``, which gives no more bytes than it says, and return the SHA-256 of what came."""
    target = folder / info.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with file.open(info) as source, target.open("xb") as out:
        while piece := source.read(_PIECE):
            digest.update(piece)
            out.write(piece)
    return digest.hexdigest()
