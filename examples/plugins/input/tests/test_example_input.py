"""What the example takes, and what it makes of a sender that breaks off."""

from __future__ import annotations

import socket

import pytest
from vedette_example_input import netstrings


def test_netstrings() -> None:
    """Events as they are, also with line ends, until the sender closes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"3:a\nb,0:,")
        theirs.shutdown(socket.SHUT_WR)
        assert [*netstrings(ours)] == [b"a\nb", b""]


@pytest.mark.parametrize("sent", [b"x", b"9999999:", b"99999:", b"3:ab", b"3:abc;", b"-1:,"])
def test_what_is_none(sent: bytes) -> None:
    """It is refused before anything of it is an event."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ValueError, match=r"."):
            next(netstrings(ours))
