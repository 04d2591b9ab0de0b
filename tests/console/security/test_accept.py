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
from tests.looptime import forward
from tests.waits import until
from vedette_console import accept
from vedette_console.accept import BODY_SECONDS, EACH, HEAD_SECONDS, Listening


@contextmanager
def strangers(served: Console, number: int, says: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that say this and then nothing."""
    with ExitStack() as opened:
        connections = []
        for _ in range(number):
            connection = opened.enter_context(socket.socket())
            connection.settimeout(WAIT)
            connections.append(connection)
            with suppress(OSError):  # refused, at times before connect has returned
                connection.connect(("127.0.0.1", served.settings.port))
                connection.sendall(says)
        yield connections


def over(connection: socket.socket) -> bool:
    """Whether the console ends it, whatever it says before. Waits for that."""
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
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


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A console of this host alone."""
    with console(tmp_path_factory.mktemp("console")) as served:
        yield served


@pytest.mark.parametrize("says", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_half_a_request(served: Console, says: bytes) -> None:
    """Is ended after a while, whatever there is of it."""
    with strangers(served, 1, says) as (connection,):
        later(served, HEAD_SECONDS)
        assert over(connection)


def test_half_a_second_request(served: Console) -> None:
    """Of a connection that had one answered."""
    with strangers(served, 1, b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n") as (connection,):
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 ")
        connection.sendall(b"\r\n")
        later(served, HEAD_SECONDS)
        assert over(connection)


def test_half_a_body(served: Console) -> None:
    """Of one who is not logged in, too."""
    says = b"POST /api/v1/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    with strangers(served, 1, says) as (connection,):
        later(served, BODY_SECONDS)
        assert over(connection)


def test_half_a_handshake(tmp_path: Path) -> None:
    """Is ended, too; who shakes hands is answered."""
    authority = Authority(tmp_path / "tls")
    certificate, key = authority.issue("console")
    context = ssl.create_default_context(cafile=authority.ca)
    with (
        console(tmp_path, cert_file=certificate, key_file=key) as served,
        strangers(served, 1, b"\x16\x03\x01") as (half,),
    ):
        later(served, HEAD_SECONDS, context)
        assert over(half)
        assert _answers(served, context)


def test_an_endless_head(served: Console) -> None:
    """Is not collected."""
    with strangers(served, 1, b"GET / HTTP/1.1\r\n") as (connection,):
        assert refused(connection, b"X: " + b"x" * 10_000 + b"\r\n")


def test_many_of_one_address(served: Console) -> None:
    """Each further one is reset at once; when some are gone there is room again."""
    with strangers(served, EACH + 20, b"GET / HT") as connections:
        assert over(connections[-1])
    until("an answer", lambda: _answers(served))


def test_half_requests_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From more addresses than can be counted one by one: who comes and asks is answered, in the place of who has
    waited longest."""
    monkeypatch.setattr(accept, "AT_ONCE", 20)
    proxied = {"trusted_proxies": ("127.0.0.0/8",), "public_url": "https://console.example"}
    with console(tmp_path, **proxied) as served, strangers(served, 60, b"GET / HT") as connections:
        assert _answers(served)
        assert over(connections[0])


@pytest.mark.long
def test_who_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not keep the console's answers for ever."""
    monkeypatch.setattr(accept, "UNREAD_SECONDS", 0.5)
    with console(tmp_path) as served, strangers(served, 1) as (connection,):
        ask = 50 * b"GET /static/x/parts.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
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


def later(served: Console, seconds: float, context: ssl.SSLContext | None = None) -> None:
    """So much later for the console, once who came before is let in: somebody who came after is answered."""
    assert _answers(served, context)
    forward(served.app.state.loop, seconds)


def _answers(served: Console, context: ssl.SSLContext | None = None) -> bool:
    try:
        with ExitStack() as opened:
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", served.settings.port), WAIT))
            if context is not None:
                connection = opened.enter_context(context.wrap_socket(connection, server_hostname="127.0.0.1"))
            connection.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
