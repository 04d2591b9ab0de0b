"""Who connects to the console and says nothing, or half of a request, stops nobody."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.console.kit import WAIT, Console, console
from tests.waits import until
from vedette_console import accept
from vedette_console.accept import EACH, Listening


@contextmanager
def strangers(it: Console, number: int, says: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that say this and then nothing."""
    with ExitStack() as opened:
        connections = []
        for _ in range(number):
            connection = socket.create_connection(("127.0.0.1", it.settings.port), WAIT)
            connections.append(opened.enter_context(connection))
            with suppress(OSError):  # it is refused
                connection.sendall(says)
        yield connections


def over(connection: socket.socket) -> bool:
    """Whether the console ends it, whatever it says before. Waits for that."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def refused(connection: socket.socket, text: bytes) -> bool:
    """Whether the console ends it before it has taken ``text`` 10,000 times; False when it takes no more."""
    try:
        for _ in range(10_000):
            connection.sendall(text)
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


@pytest.mark.parametrize("says", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_half_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bytes) -> None:
    """Is ended after a while, whatever there is of it."""
    monkeypatch.setattr(accept, "HEAD_SECONDS", 0.2)
    with console(tmp_path) as it, strangers(it, 1, says) as (connection,):
        assert over(connection)


def test_half_a_second_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a connection that had one answered."""
    monkeypatch.setattr(accept, "HEAD_SECONDS", 0.2)
    with (
        console(tmp_path) as it,
        strangers(it, 1, b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n") as (connection,),
    ):
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 ")
        connection.sendall(b"\r\n")
        assert over(connection)


def test_half_a_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one who is not logged in, too."""
    monkeypatch.setattr(accept, "BODY_SECONDS", 0.2)
    says = b"POST /api/v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    with console(tmp_path) as it, strangers(it, 1, says) as (connection,):
        assert over(connection)


def test_half_a_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is ended, too; who shakes hands is answered."""
    monkeypatch.setattr(accept, "HEAD_SECONDS", 1.0)
    authority = Authority(tmp_path / "tls")
    certificate, key = authority.issue("console")
    with console(tmp_path, cert_file=certificate, key_file=key) as it, strangers(it, 1, b"\x16\x03\x01") as (half,):
        assert over(half)
        context = ssl.create_default_context(cafile=authority.ca)
        raw = socket.create_connection(("127.0.0.1", it.settings.port), WAIT)
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
            connection.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_an_endless_head(tmp_path: Path) -> None:
    """Is not collected."""
    with console(tmp_path) as it, strangers(it, 1, b"GET / HTTP/1.1\r\n") as (connection,):
        assert refused(connection, b"X: " + b"x" * 10_000 + b"\r\n")


def test_many_of_one_address(tmp_path: Path) -> None:
    """Each further one is reset at once; when some are gone there is room again."""
    with console(tmp_path) as it:
        with strangers(it, EACH + 20, b"GET / HT") as connections:
            assert over(connections[-1])
        until("an answer", lambda: _answers(it))


def test_half_requests_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From more addresses than can be counted one by one: who comes and asks is answered, in the place of who has
    waited longest."""
    monkeypatch.setattr(accept, "AT_ONCE", 20)
    proxied = {"trusted_proxies": ("127.0.0.0/8",), "public_url": "https://console.example"}
    with console(tmp_path, **proxied) as it, strangers(it, 60, b"GET / HT") as connections:
        assert _answers(it)
        assert over(connections[0])


@pytest.mark.long
def test_who_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not keep the console's answers for ever."""
    monkeypatch.setattr(accept, "UNREAD_SECONDS", 0.5)
    with console(tmp_path) as it, strangers(it, 1) as (connection,):
        ask = 50 * b"GET /static/parts.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.settimeout(1.0)
        until("the end", lambda: refused(connection, ask))


def test_networks() -> None:
    """An IPv6 network counts as one, an IPv4 address in IPv6's form as itself; a proxy is not counted by network."""
    with Listening(socket.AF_INET6, socket.SOCK_STREAM, 0, ("::ffff:0:0/96", "127.0.0.2")) as listening:
        listening.bind(("::1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname()[:2], WAIT):
            accepted, _ = listening.accept()
            assert vars(listening)["_open"] == {"::/64": 1}
            accepted.close()
            assert not vars(listening)["_open"]


def _answers(it: Console) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", it.settings.port), WAIT) as connection:
            connection.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
