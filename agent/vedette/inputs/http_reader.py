"""One connection's HTTP/1.1: bytes to requests, within bounds. No sockets and no clock.

The parser is llhttp, by httptools. Bounded are the bytes of a request's line and headers (HEADER_BYTES), of its body as
it is sent, and of what stands beside it (trailers, which are left out, and extensions of chunks). ``admit`` is asked
when the headers are whole: with an answer of its own the body is discarded as it arrives, and the request is
**refused**. A body that is unpacked (gzip, deflate) may not be larger than ``max_body`` either. So is a request without
one Host, but for HTTP/1.0 without any (RFC 9112, 3.2). What is no HTTP is a request that is refused, and the last one.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Callable, Generator
from io import BytesIO
from typing import NamedTuple
from urllib.parse import parse_qsl

import httptools

from vedette.inputs.push.base import LOKI_PATH, Refused, Request

HEADER_BYTES = 32 << 10
"""Bytes of a request's line and headers."""
MAX_HEADERS = 100
PART_BYTES = 1 << 20
REQUEST_BYTES = 1 << 10
"""What a request counts besides its body: about what it takes until it is answered."""
REQUEST_STEPS = 20
"""What a request takes, in headers or parts of a body."""
_HOST = re.compile(r"(?:\[[0-9A-Fa-fv:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(?::[0-9]*)?")
"""``uri-host [":" port]`` of RFC 9110, 7.2; it may be empty."""


class Body:
    """Bytes in parts: to make 8 MiB one piece takes 5 ms, and Python does it without its lock (in a thread)."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []
        self._last = BytesIO()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._last.write(data)
        if self._last.tell() >= PART_BYTES:
            self._parts.append(self._last.getvalue())
            self._last = BytesIO()

    def parts(self) -> list[bytes]:
        return [*self._parts, self._last.getvalue()]

    def whole(self) -> bytes:
        return b"".join(self.parts())


class Received(NamedTuple):
    """A request, or why it was refused before its body was read."""

    request: Request
    """Without its body."""
    refused: Refused | None
    keep: bool
    """The connection stays."""
    body: Body


NOTHING = Request("", "", {}, {}, b"")
Admit = Callable[[Request], "Refused | None"]


class HttpReader:
    """``feed`` bytes, take from ``requests``."""

    def __init__(self, max_body: int, admit: Admit) -> None:
        self._max = max_body
        self._admit = admit
        self._parser = httptools.HttpRequestParser(self)
        self.requests: deque[Received] = deque()
        self.steps = 0
        """How often Python has looked at a header or at a part of a body."""
        self.within = False
        """A request has begun and not ended."""
        self.continues = False
        """The sender waits for a word before it sends the body (``Expect: 100-continue``)."""
        self._over = False
        self._clear()

    def _clear(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._size = 0
        """Bytes that were fed since the request began, or since a part of its body came."""
        self._count = self._hosts = 0
        self.awaited = 0
        """Bytes that are surely of the body, of those that come next."""
        self._body = Body()
        self._request: Request | None = None
        self.refused: Refused | None = None

    @property
    def buffered(self) -> int:
        """Bytes of what is unfinished, and of ``requests``."""
        return self._body.size + sum(received.body.size + REQUEST_BYTES for received in self.requests)

    def end(self) -> None:
        """Nothing more is read, and nothing kept."""
        self._over = True
        self.requests.clear()
        self._clear()

    def feed(self, data: bytes | memoryview) -> None:
        """Take in ``data``; the buffer may be reused afterwards."""
        if self._over:
            return
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.refuse(Refused(400, "no upgrade is taken"))
            self.give_up()
        except httptools.HttpParserError as error:
            self.refuse(Refused(400, f"no HTTP/1.1: {error}"))
            self.give_up()
        if self.within and self._size > 2 * HEADER_BYTES:
            self.refuse(Refused(431, f"headers or trailers of more than {HEADER_BYTES} bytes"))
            self.give_up()

    def give_up(self) -> None:
        """The request under way is refused, and nothing is read behind it."""
        self.within = self.continues = False
        self._over = True
        self.requests.append(Received(self._request or NOTHING, self.refused, keep=False, body=Body()))

    def refuse(self, refused: Refused) -> None:
        """Discard the body under way, else the one that came last."""
        if not self.within and self.requests:
            last = self.requests.pop()
            self.requests.append(last._replace(body=Body(), refused=last.refused or refused))
        self.refused = self.refused or refused
        self._body = Body()

    # --- httptools calls these

    def on_message_begin(self) -> None:
        self._clear()
        self.within = True

    def on_url(self, url: bytes) -> None:
        if len(self._url) < HEADER_BYTES:
            self._url += url
        self._count += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._request is not None:  # a trailer
            return
        self.steps += 1
        self._count += len(name) + len(value)
        self._hosts += name.lower() == b"host"
        if self._count <= HEADER_BYTES and len(self._headers) < MAX_HEADERS:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        else:
            self._count = HEADER_BYTES + 1

    def on_headers_complete(self) -> None:
        path, _, query = self._url.decode("latin-1").partition("?")
        method = self._parser.get_method().decode("latin-1")
        asked = dict(parse_qsl(query)) if query and query.count("&") < MAX_HEADERS else {}
        self._request = Request(method, path, asked, self._headers, b"", self._max)
        if self._count > HEADER_BYTES:
            self.refused = Refused(431, f"headers of more than {HEADER_BYTES} bytes, or than {MAX_HEADERS}")
        elif self._hosts > 1 or not (self._hosts or self._parser.get_http_version() == "1.0"):
            self.refused = Refused(400, f"expects one Host, not {self._hosts or 'none'}")
        elif not _HOST.fullmatch(self._headers.get("host", "").strip(" \t")):
            self.refused = Refused(400, "Host: expects a name or an address, and a port")
        elif (length := self._headers.get("content-length", "")).isdigit() and int(length) > self._max:
            self.refused = self._too_large()
        else:
            self.refused = self._admit(self._request)
        self.awaited = int(length) if (length := self._headers.get("content-length", "")).isdigit() else 0
        self.continues = self._headers.get("expect", "").lower() == "100-continue"

    def on_body(self, body: bytes) -> None:
        self._size = 0
        self.steps += 1
        self.awaited -= len(body)
        if self.refused is None:
            self._body.add(body)
            if self._body.size > self._max:
                self.refuse(self._too_large())

    def on_message_complete(self) -> None:
        self.within = self.continues = False
        self.steps += REQUEST_STEPS
        request = self._request
        assert request is not None
        keep = self._parser.should_keep_alive()
        self.requests.append(Received(request, self.refused, keep, self._body))
        self._body = Body()
        self._request = None

    def _too_large(self) -> Refused:
        return Refused(413, f"a body of more than max_body = {self._max} bytes")


PACKED_STEP = 8 << 10
UNPACKED_STEP = 256 << 10
"""Bytes that are unpacked at once, about 1 ms."""


def unpacked(request: Request, body: Body) -> Generator[None, None, Body]:
    """``body`` as it was before ``Content-Encoding``, in steps; raises Refused."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("", "identity") or (coding == "snappy" and request.path == LOKI_PATH):
        return body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise Refused(415, f"content-encoding {coding}: send gzip, deflate or none")
    most = request.max_body
    whole = Body()
    machine = zlib.decompressobj(47)
    try:
        for data in body.parts():
            part = memoryview(data)
            at = 0
            while at < len(part):
                if machine.eof:  # several members follow each other in one body, mostly one
                    machine = zlib.decompressobj(47)
                step = part[at : at + PACKED_STEP]
                whole.add(machine.decompress(step, min(UNPACKED_STEP, most + 1 - whole.size)))
                if whole.size > most:
                    raise Refused(413, f"a body of more than max_body = {most} bytes, unpacked")
                at += len(step) - len(machine.unused_data) - len(machine.unconsumed_tail)
                yield
        while body.size and not machine.eof:
            size = whole.size
            whole.add(machine.decompress(b"", min(UNPACKED_STEP, most + 1 - size)))
            if whole.size > most:
                raise Refused(413, f"a body of more than max_body = {most} bytes, unpacked")
            if whole.size == size and not machine.eof:
                raise Refused(400, f"the body's {coding} is cut off")
            yield
    except zlib.error as error:
        raise Refused(400, f"the body is no {coding}: {error}") from error
    return whole
