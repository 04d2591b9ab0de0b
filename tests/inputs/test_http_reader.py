"""HTTP/1.1 to requests: bounds, pieces, encodings."""

from __future__ import annotations

import gzip
import zlib

import pytest

pytest.importorskip("httptools", reason="an environment from before: make environment")
from vedette.inputs.batches import at_once
from vedette.inputs.http_reader import HEADER_BYTES, REQUEST_BYTES, Body, HttpReader, unpacked
from vedette.inputs.push.base import Refused, Request


def reader(most: int = 1000, refused: Refused | None = None) -> HttpReader:
    return HttpReader(most, lambda request: refused)


def opened(request: Request) -> Request:
    body = Body()
    body.add(request.body)
    return request._replace(body=at_once(unpacked(request, body)).whole())


def post(body: bytes, *headers: str, path: str = "/events") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: h", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_requests_in_pieces(size: int) -> None:
    """Two behind each other, one of them in chunks: the same however the bytes come."""
    chunked = b"PUT /a?x=1&y=b%20c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    stream = post(b"one", "X-Thing: Value") + chunked
    found = reader()
    for at in range(0, len(stream), size):
        found.feed(stream[at : at + size])
    first, second = found.requests
    assert first.body.whole() == b"one"
    assert first.request.headers["x-thing"] == "Value"
    assert (second.request.method, second.request.path, second.request.query) == ("PUT", "/a", {"x": "1", "y": "b c"})
    assert second.body.whole() == b"abcde"
    assert first.keep
    assert not found.within
    assert found.buffered == len(b"oneabcde") + 2 * REQUEST_BYTES


@pytest.mark.parametrize(
    ("version", "hosts", "accepted"),
    [
        ("1.1", ["h"], True), ("1.1", [""], True), ("1.1", ["[::1]:8088"], True), ("1.1", ["192.0.2.1:8088"], True),
        ("1.1", ["h \t"], True),
        ("1.1", [], False), ("1.1", ["h", "h"], False), ("1.1", ["a b"], False), ("1.1", ["user@h"], False),
        ("1.1", ["h/x"], False), ("1.1", ["h:port"], False),
        ("1.0", [], True), ("1.0", ["h"], True), ("1.0", ["h", "i"], False), ("1.0", ["a b"], False),
    ],
)  # fmt: skip
def test_one_host(version: str, hosts: list[str], accepted: bool) -> None:
    """RFC 9112, 3.2: else the request is answered by 400, and its body is left out."""
    fields = "".join(f"{name}: {host}\r\n" for name, host in zip(("Host", "hOST"), hosts, strict=False))
    found = reader()
    found.feed(f"POST /events HTTP/{version}\r\n{fields}Content-Length: 1\r\n\r\nx".encode())
    first = found.requests[0]
    assert (first.refused is None, first.body.whole()) == ((True, b"x") if accepted else (False, b""))
    assert first.refused is None or first.refused.status == 400
    if version == "1.1":
        found.feed(post(b"next"))
        assert found.requests[1].body.whole() == b"next"


def test_a_body_that_is_too_large() -> None:
    """By its length at once, in chunks as it comes: nothing of it is kept, and the next request is read."""
    found = reader(10)
    found.feed(post(b"x" * 11) + b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(5):
        found.feed(b"4\r\nabcd\r\n")
        assert found.buffered <= 14 + REQUEST_BYTES
    found.feed(b"0\r\n\r\n" + post(b"ok"))
    assert [one.refused.status if one.refused else one.body.whole() for one in found.requests] == [413, 413, b"ok"]


def test_headers_that_are_too_large() -> None:
    """Whole or without an end, and too many of them."""
    long = reader()
    long.feed(post(b"", "X: " + "a" * HEADER_BYTES))
    many = reader()
    many.feed(post(b"", *(f"X-{i}: a" for i in range(200))))
    endless = reader()
    endless.feed(b"POST / HTTP/1.1\r\nX: ")
    for _ in range(20):
        endless.feed(b"a" * 10_000)
    for found in (long, many, endless):
        (only,) = found.requests
        assert only.refused is not None
        assert only.refused.status == 431


@pytest.mark.parametrize("begun", [b"0\r\nX: ", b"0\r\nX: a\r\n", b"5;"], ids=["a-field", "fields", "an-extension"])
def test_chunks_without_an_end(begun: bytes) -> None:
    """What is no body is bounded behind the headers as well: trailers, and what stands beside a chunk's length."""
    found = reader()
    found.feed(b"POST /events HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n" + begun)
    more = b"X: a\r\n" if begun.endswith(b"\n") else b"aaaaaa"
    for _ in range(20):
        found.feed(more * 1000)
    (only,) = found.requests
    assert (only.refused.status if only.refused else 0, only.keep, found.within) == (431, False, False)


def test_trailers_are_no_headers() -> None:
    """They come when the request is admitted, and nothing is asked of them."""
    found = reader()
    found.feed(
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\nHost: i\r\n\r\n" + post(b"ok")
    )
    assert [set(one.request.headers) for one in found.requests] == [
        {"host", "transfer-encoding"},
        {"host", "content-length"},
    ]


def test_what_is_no_http() -> None:
    """It is one refused request, and nothing is read behind it."""
    found = reader()
    found.feed(b"\x16\x03\x01\x02\x00\x01")
    found.feed(post(b"more"))
    (only,) = found.requests
    assert (only.refused.status if only.refused else 0, only.keep) == (400, False)


def test_refused_by_its_headers() -> None:
    """The body is discarded as it comes; a sender that waits for 100-continue is not kept waiting."""
    found = reader(refused=Refused(401, "no"))
    found.feed(post(b"x" * 100))
    assert found.requests[0].body.whole() == b""
    found = reader(refused=Refused(401, "no"))
    found.feed(post(b"x" * 100, "Expect: 100-continue")[:-100])
    assert found.continues
    found.give_up()
    assert not found.requests[0].keep


@pytest.mark.parametrize("coding", ["gzip", "deflate", "identity", ""])
def test_encodings(coding: str) -> None:
    """A body is unpacked; a bomb is not; what is cut off or something else is refused."""

    def request(body: bytes, most: int = 40) -> Request:
        return Request("POST", "/", {}, {"content-encoding": coding}, body, most)

    pack = {"gzip": gzip.compress, "deflate": zlib.compress}.get(coding, bytes)
    assert opened(request(pack(b"text" * 10))).body == b"text" * 10
    if coding in ("gzip", "deflate"):
        assert opened(request(pack(b"a") + pack(b"b"))).body == b"ab"
        for body, status in ((pack(bytes(50_000_000)), 413), (pack(b"text")[:-5], 400), (b"no", 400)):
            with pytest.raises(Refused) as caught:
                opened(request(body, 1000))
            assert caught.value.status == status


def test_an_unknown_encoding() -> None:
    """It gets 415."""
    with pytest.raises(Refused) as caught:
        opened(Request("POST", "/", {}, {"content-encoding": "br"}, b""))
    assert caught.value.status == 415


def test_snappy_is_lokis() -> None:
    """Senders that name Loki's own packing as an encoding, as Vector does, are left to its protocol; others get 415."""
    sent = Request("POST", "/loki/api/v1/push", {}, {"content-encoding": "snappy"}, b"x")
    assert opened(sent) == sent
    with pytest.raises(Refused):
        opened(sent._replace(path="/v1/logs"))


def test_members() -> None:
    """Several follow each other in one body, many of them empty; one that is cut off is seen."""
    members = [gzip.compress(b"one, "), *[gzip.compress(b"")] * 3000, gzip.compress(b"two" * 100_000)]
    headers = {"content-encoding": "gzip"}
    request = Request("POST", "/", {}, headers, b"".join(members), 1 << 20)
    assert opened(request).body == b"one, " + b"two" * 100_000
    for cut in (1, 9, len(members[-1]) - 1):
        with pytest.raises(Refused, match="cut off"):
            opened(request._replace(body=request.body[:-cut]))
