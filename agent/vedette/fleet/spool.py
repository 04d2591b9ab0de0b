"""Requests that an agent works on, and the parts of their replies, until the operator has them or they expire.

    FOLDER/nonces                  a line for each request that was taken: nonce, expiry (UTC microseconds); and for
                                   each that was cancelled before it came: its id
    FOLDER/ID/request.json         the envelope as it came
    FOLDER/ID/NNNNNN.part          a part of the reply: msgpack, with the cursor to go on from

Promises: a request that was taken is on disk when ``take`` returns, and its nonce; a nonce is known, over restarts and
kills, until the request has expired by the clock *and* by what was signed (``signedtime.py``): so no clock, ahead or
put back, lets a request be taken twice. A part never changes. Parts of a request follow each other; the newest one says
whether the reply is whole. The number of requests, of nonces and of bytes is bounded: ``take`` refuses more. One
process at a time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
from msgspec.structs import replace

from vedette.fleet.replies import Part
from vedette.fleet.requests import ID, MAX_LIFE, MAX_SKEW, Refused, Request, read
from vedette.fleet.signedtime import SignedTime
from vedette.system.durable import sync_path, write_whole

MAX_REQUESTS = 64
"""Under way or not fetched yet."""
MAX_NONCES = 10_000
MAX_BYTES = 512 << 20
"""Of all replies that wait to be fetched."""


class Kept(NamedTuple):
    """A part, and where its request goes on: ``cursor``, bytes of records (``size``), seconds ``elapsed``."""

    part: Part
    cursor: Any
    size: int
    elapsed: float


class Held:
    """A request in its folder; ``parts`` of its reply are there."""

    def __init__(self, folder: Path, request: Request, signature: bytes) -> None:
        """``signature``: of the request, by its operator. Raises OSError, ValueError."""
        self._folder, self.request, self.signature = folder, request, signature
        self.parts = sum(1 for _ in folder.glob("*.part"))
        newest = self.newest()
        self.whole = newest is not None and newest.part.last
        self.size = sum(path.stat().st_size for path in folder.glob("*.part"))

    def newest(self) -> Kept | None:
        """Raises OSError, ValueError."""
        return self.kept(self.parts - 1) if self.parts else None

    def kept(self, number: int) -> Kept:
        """Raises OSError; ValueError when the file was damaged."""
        data = self._path(number).read_bytes()
        try:
            row = msgpack.unpackb(data)
            return Kept(Part(number, *row[0]), *row[1:])
        except (TypeError, LookupError, msgpack.UnpackException) as error:
            raise ValueError(f"{self._path(number)}: not a part of a reply: {error}") from error

    def add(self, checkpoint: Kept) -> None:
        """Raises OSError."""
        data = msgpack.packb([checkpoint.part[1:], checkpoint.cursor, checkpoint.size, checkpoint.elapsed])
        write_whole(self._path(checkpoint.part.number), data, 0o600)
        self.parts, self.whole, self.size = checkpoint.part.number + 1, checkpoint.part.last, self.size + len(data)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}.part"


class Spool:
    """Requests that were taken raise ``time``."""

    def __init__(self, folder: Path, time: SignedTime) -> None:
        """Raises OSError. A request whose files are damaged is dropped, and its nonce stays."""
        self._folder, self._time = folder, time
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.held: dict[str, Held] = {}
        self._nonces = dict(self._read_nonces())
        for path in sorted(folder.iterdir()):
            if not path.is_dir():
                continue
            try:
                self.held[path.name] = held = Held(path, *read((path / "request.json").read_bytes()))
                self._nonces.setdefault(held.request.nonce, held.request.expires)
            except (OSError, ValueError, TypeError, msgpack.UnpackException):
                self.held.pop(path.name, None)
                shutil.rmtree(path, ignore_errors=True)
        self._write_nonces()

    def seen(self, nonce: str) -> bool:
        return nonce in self._nonces

    def take(self, request: Request, envelope: bytes) -> Held:
        """Keep an admitted request. Raises Refused when there is no room, OSError."""
        if len(self.held) >= MAX_REQUESTS or sum(asked.size for asked in self.held.values()) >= MAX_BYTES:
            raise Refused("busy", f"{len(self.held)} requests are under way or not fetched yet", request)
        if request.id in self._nonces:
            raise Refused("cancelled", "it was cancelled before it came here", request)
        if request.id in self.held:
            raise Refused("replayed", "its id was seen before", request)
        self._room(request)
        folder = self._folder / request.id
        folder.mkdir(mode=0o700)
        write_whole(folder / "request.json", envelope, 0o600)
        sync_path(self._folder)
        held = self.held[request.id] = Held(folder, request, read(envelope)[1])
        self._remember(request)
        return held

    def note(self, request: Request, never: str = "") -> None:
        """Remember the nonce of a request that leaves nothing else here; ``never``: id of one that is not to be taken
        if it still comes. Raises Refused, OSError."""
        self._room(request)
        self._remember(request)
        if never:  # it was made before, and may live for MAX_LIFE
            self._remember(replace(request, nonce=never, expires=request.created + MAX_SKEW + MAX_LIFE))

    def _room(self, request: Request) -> None:
        if len(self._nonces) >= MAX_NONCES:
            self._write_nonces()
        if len(self._nonces) >= MAX_NONCES:
            raise Refused("busy", f"{MAX_NONCES} requests in 7 days: no further nonce can be remembered", request)

    def _remember(self, request: Request) -> None:
        self._nonces[request.nonce] = request.expires
        descriptor = os.open(self._folder / "nonces", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, f"{request.nonce} {request.expires}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._time.rise(request.created)

    def drop(self, id: str) -> None:
        """Forget a request and its reply; its nonce stays."""
        if self.held.pop(id, None) is not None:
            shutil.rmtree(self._folder / id, ignore_errors=True)

    def expired(self) -> list[str]:
        """Ids of requests whose time is over."""
        now = self._time.now()
        return [id for id, asked in self.held.items() if now > asked.request.expires]

    def _read_nonces(self) -> Iterator[tuple[str, int]]:
        with suppress(FileNotFoundError):
            for line in (self._folder / "nonces").read_text("ascii", "replace").splitlines():
                nonce, _, expires = line.partition(" ")
                if ID.fullmatch(nonce) and expires.isdigit():
                    yield nonce, int(expires)

    def _write_nonces(self) -> None:
        """Without those that have expired for sure: a request of theirs is refused for its age, by any clock."""
        sure = self._time.sure()
        self._nonces = {nonce: expires for nonce, expires in self._nonces.items() if expires > sure}
        text = "".join(f"{nonce} {expires}\n" for nonce, expires in self._nonces.items())
        write_whole(self._folder / "nonces", text.encode(), 0o600)
