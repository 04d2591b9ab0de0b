"""One connection's HTTP/1.1: bytes to requests, within bounds. No sockets and no clock.

The parser is llhttp, by httptools. Bounded are the bytes of a request's line and headers (HEADER_BYTES) and of its body
as it is sent. ``admit`` is asked when the headers are whole: with an answer of its own the body is discarded as it
arrives, and the request is **refused**. A body that is unpacked (gzip, deflate) may not be larger than ``max_body``
either. What is no HTTP is a request that is refused, and the last one.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qsl

import httptools

from vedette.inputs.push.base import LOKI_PATH, Refused, Request

HEADER_BYTES = 32 << 10
"""Of a request's line and headers."""
MAX_HEADERS = 100


class Received(NamedTuple):
    """A request, or why it was refused before its body was read."""

    request: Request
    refused: Refused | None
    keep: bool
    """The connection stays."""


NOTHING = Request("", "", {}, {}, b"")
Admit = Callable[[Request], "Refused | None"]


class HttpReader:
    """``feed`` bytes, take from ``requests``."""

    def __init__(self, max_body: int, admit: Admit) -> None:
        self._max, self._admit = max_body, admit
        self._parser = httptools.HttpRequestParser(self)
        self.requests: deque[Received] = deque()
        self.within = False
        """A request has begun and not ended."""
        self.continues = False
        """The sender waits for a word before it sends the body (``Expect: 100-continue``)."""
        self._over = False
        self._clear()

    def _clear(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._size = self._count = 0
        self._body = bytearray()
        self._request: Request | None = None
        self.refused: Refused | None = None

    @property
    def held(self) -> int:
        """Bytes of bodies: of one that is unfinished, and of those in ``requests``."""
        return len(self._body) + sum(len(one.request.body) for one in self.requests)

    def feed(self, data: bytes | memoryview) -> None:
        """Take in ``data``; the buffer may be reused afterwards."""
        if self._over:
            return
        before = self._request
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.refuse(Refused(400, "no upgrade is taken"))
            self.give_up()
        except httptools.HttpParserError as error:
            self.refuse(Refused(400, f"no HTTP/1.1: {error}"))
            self.give_up()
        if self.within and self._request is None and before is None:
            self._size += len(data)
            if self._size > 2 * HEADER_BYTES:
                self.refuse(Refused(431, f"headers of more than {HEADER_BYTES} bytes"))
                self.give_up()

    def give_up(self) -> None:
        """The request under way is refused, and nothing is read behind it."""
        self.within = self.continues = False
        self._over = True
        self.requests.append(Received(self._request or NOTHING, self.refused, keep=False))

    def refuse(self, refused: Refused) -> None:
        """Discard the body under way, else the one that came last."""
        if not self.within and self.requests:
            last = self.requests.pop()
            self.requests.append(
                last._replace(request=last.request._replace(body=b""), refused=last.refused or refused)
            )
        self.refused = self.refused or refused
        self._body = bytearray()

    # --- httptools calls these

    def on_message_begin(self) -> None:
        self._clear()
        self.within = True

    def on_url(self, url: bytes) -> None:
        if len(self._url) < HEADER_BYTES:
            self._url += url
        self._count += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count += len(name) + len(value)
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
        elif (length := self._headers.get("content-length", "")).isdigit() and int(length) > self._max:
            self.refused = self._too_large()
        else:
            self.refused = self._admit(self._request)
        self.continues = self._headers.get("expect", "").lower() == "100-continue"

    def on_body(self, body: bytes) -> None:
        if self.refused is None:
            self._body += body
            if len(self._body) > self._max:
                self.refuse(self._too_large())

    def on_message_complete(self) -> None:
        self.within = self.continues = False
        request = self._request
        assert request is not None
        keep = self._parser.should_keep_alive()
        self.requests.append(Received(request._replace(body=bytes(self._body)), self.refused, keep))
        self._body = bytearray()
        self._request = None

    def _too_large(self) -> Refused:
        return Refused(413, f"a body of more than max_body = {self._max} bytes")


def unpacked(request: Request) -> Request:
    """The request with its body as it was before ``Content-Encoding``; raises Refused."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("", "identity") or (coding == "snappy" and request.path == LOKI_PATH):
        return request
    most = request.max_body
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise Refused(415, f"content-encoding {coding}: send gzip, deflate or none")
    body = request.body
    try:
        found = b""
        while body and len(found) <= most:  # several members follow each other in one body, mostly one
            machine = zlib.decompressobj(47)
            found += machine.decompress(body, most + 1 - len(found))
            if len(found) <= most and not machine.eof:
                raise Refused(400, f"the body's {coding} is cut off")
            body = machine.unused_data
    except zlib.error as error:
        raise Refused(400, f"the body is no {coding}: {error}") from error
    if len(found) > most:
        raise Refused(413, f"a body of more than max_body = {most} bytes, unpacked")
    return request._replace(body=found)
