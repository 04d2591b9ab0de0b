"""What is carried by hand: a zip of the fleet's signed files for a host, and one of what a host answers.

To a host: ``tuf/NAME``, ``blobs/SHA256``, ``lookups/SHA256.vlookup``, the layout of a ``FolderSource``
(``trust.py``), ``requests/ID.json``, what operators ask, as signed (``requests.py``), and ``certificates/AGENT.json``,
renewed certificates (``enrolment.py``). A host unpacks no more of it than was signed (``carriedin.py``); then it lies
in a folder, and goes through the same checks as what a broker brings.
Back: ``answer.json`` (fleet, agent, time, the status), its ``signature`` by the key of the agent's ``certificate``
where it has one, ``audit.jsonl``, ``renewal.json``, its request for the next certificate when that is due, and
``replies/ID/NNNNNN``, parts of replies, each of which is signed itself (``replies.py``).
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Struct

from vedette.fleet import enrolment
from vedette.fleet.certificates import sign, signed_by, vouched
from vedette.fleet.documents import canonical
from vedette.fleet.replies import MAX_MESSAGE
from vedette.system import documents
from vedette.system.documents import Count, Name

FORMAT = 1
DOMAIN = b"vedette answer 1\n"
MAX_FILES = 100_000
MAX_ANSWER = 64 << 20
"""Bytes of what a host answers, unpacked."""
REQUESTS = "carried/requests"
CERTIFICATES = "carried/certificates"
"""In the agent's folder of its fleet."""
RENEWAL = "renewal.json"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Whose memory is bounded whatever they unpack; that of LZMA is not."""
_ENCRYPTED = 1
_REPLY = re.compile(r"replies/([0-9a-f]{32})/[0-9]{6,10}")


def pack(target: Path, files: Iterable[tuple[str, Path | bytes]]) -> None:
    """A zip of ``files`` by name, in its place when it is whole. Raises OSError."""
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as out:
            for name, source in files:
                if isinstance(source, bytes):
                    out.writestr(name, source)
                else:
                    out.write(source, name)
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


class _Statement(Struct, frozen=True):
    """``answer.json``."""

    fleet: str
    agent: Name
    time: Count
    status: dict[str, Any]


class Answer(NamedTuple):
    fleet: str
    agent: str
    time: int
    """UTC microseconds."""
    status: dict[str, Any]
    """The whole status; a heartbeat has it in brief."""
    audit: bytes
    proved: bool
    """Its agent's certificate has signed it."""


def answer(
    fleet: str, agent: str, now: int, status: Mapping[str, Any], audit: bytes,
    key: tuple[ec.EllipticCurvePrivateKey, bytes] | None,
) -> Iterator[tuple[str, bytes]]:  # fmt: skip
    """The files of an answer, for ``pack``. ``key``: the agent's, and its certificate (PEM)."""
    said = canonical({"format": FORMAT, "fleet": fleet, "agent": agent, "time": now, "status": dict(status)})
    yield "answer.json", said
    yield "audit.jsonl", audit
    if key is not None:
        yield "certificate", key[1]
        yield "signature", sign(DOMAIN + said, key[0])


def replies_in(path: Path) -> Iterator[tuple[str, bytes]]:
    """Request and part of each reply in the zip ``path``, believed by nobody. Raises ValueError and OSError."""
    with opened(path) as file:
        for info in file.infolist():
            if (match := _REPLY.fullmatch(info.filename)) is None:
                continue
            if info.file_size > MAX_MESSAGE:
                raise ValueError(f"{path}: {info.filename} is longer than a part of a reply may be")
            yield match[1], file.read(info)


def renewal_in(path: Path) -> bytes | None:
    """The request for a certificate in the zip ``path``, believed by nobody. Raises ValueError and OSError."""
    with opened(path) as file:
        info = next((info for info in file.infolist() if info.filename == RENEWAL), None)
        if info is None:
            return None
        if info.file_size > enrolment.MAX_MESSAGE:
            raise ValueError(f"{path}: {RENEWAL} is longer than a request may be")
        return file.read(info)


def read_answer(path: Path, fleet: str, authorities: bytes | None, revoked: Collection[int] = ()) -> Answer:
    """What a host answers in the zip ``path``, but for replies. ``authorities`` (PEM): of agents; None: who signed it
    is not looked at; ``revoked``: serial numbers of certificates. Raises ValueError and OSError."""
    with opened(path) as file:
        names = {info.filename: info for info in file.infolist() if not _REPLY.fullmatch(info.filename)}
        if sum(info.file_size for info in names.values()) > MAX_ANSWER:
            raise ValueError(f"{path}: unpacks to more than an answer may have")
        if {"answer.json", "audit.jsonl"} - names.keys():
            raise ValueError(f"{path}: no answer of a host: `vedette fleet export --answers`")
        parts = {name: file.read(info) for name, info in names.items()}
    try:
        statement = documents.read(_Statement, documents.opened(parts["answer.json"], MAX_ANSWER, FORMAT))
    except ValueError as error:
        raise ValueError(f"{path}: no answer of a host: {error}") from error
    if statement.fleet != fleet:
        raise ValueError(f"{path}: it is of fleet {statement.fleet!r}, this is fleet {fleet!r}")
    unproved = Answer(fleet, statement.agent, statement.time, statement.status, parts["audit.jsonl"], False)
    if authorities is None:
        return unproved
    certificate, signature = parts.get("certificate", b""), parts.get("signature", b"")
    try:
        vouched(certificate, statement.agent, authorities, revoked)
        if not signed_by(DOMAIN + parts["answer.json"], signature, certificate):
            raise ValueError("another key has signed it")
    except ValueError as error:
        raise ValueError(f"{path}: not signed by agent {statement.agent}: {error}") from error
    return unproved._replace(proved=True)


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip ``path``, whose files are only as long as they say, and are checked as they are read. Raises ValueError,
    also for what the caller finds damaged, and OSError."""
    try:
        with zipfile.ZipFile(path) as file:
            if len(file.infolist()) > MAX_FILES:
                raise ValueError(f"{path}: more than {MAX_FILES} files")
            if len(set(file.namelist())) < len(file.namelist()):
                raise ValueError(f"{path}: a file is there twice")
            for info in file.infolist():
                if info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED:
                    raise ValueError(f"{path}: {info.filename[:100]!r} is packed as no file of this zip is")
            yield file
    except (zipfile.BadZipFile, EOFError, NotImplementedError, zlib.error) as error:
        raise ValueError(f"{path}: not a whole zip: {error}: copy it again") from error
