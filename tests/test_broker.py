"""A port of a test's own: nobody else gets it, and a server of the test listens on it, again and again."""

from __future__ import annotations

import errno
import socket

import pytest

from tests.broker import own_port


def test_a_port_is_ones_own() -> None:
    """Who asks for it alone is refused, also while no server is there; a server that shares addresses listens."""
    port = own_port()
    for _ in range(2):
        with socket.socket() as other, pytest.raises(OSError, match="in use") as refusal:
            other.bind(("127.0.0.1", port))
        assert refusal.value.errno == errno.EADDRINUSE
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            pass


def test_ports_differ() -> None:
    assert len({own_port() for _ in range(50)}) == 50
