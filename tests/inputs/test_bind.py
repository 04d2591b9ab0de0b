"""From an address to sockets."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from vedette.inputs.bind import bind


@pytest.mark.parametrize("kind", ["tcp", "tls", "udp"])
def test_bound_sockets_take_what_comes(kind: str) -> None:
    """A socket of the address, which does not block and takes what is sent to it; no address, no socket."""
    assert asyncio.run(bind("edge", kind, "")) == []
    (sock,) = asyncio.run(bind("edge", kind, "127.0.0.1:0"))
    with sock:
        assert not sock.getblocking()
        stream = kind != "udp"
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as sender:
            sender.connect(sock.getsockname())
            if stream:
                sock.accept()[0].close()
            else:
                sender.send(b"hello")
                assert sock.recv(10) == b"hello"


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_all_or_nothing(kind: str) -> None:
    """Where a name stands for two addresses and the port of the second is taken, the error names input, address and
    advice, and the first is free again; with both free each has its socket."""
    type_ = socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM

    async def bound(port: int) -> list[socket.socket]:
        async def resolved(*_: Any, **__: Any) -> list[Any]:
            return [(socket.AF_INET, type_, 0, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]

        asyncio.get_running_loop().getaddrinfo = resolved  # type: ignore[method-assign]
        return await bind("edge", kind, f"two:{port}")

    with socket.socket(socket.AF_INET, type_) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"input 'edge': cannot listen on {kind} two:{port}: .*another program"):
            asyncio.run(bound(port))
        with socket.socket(socket.AF_INET, type_) as free:
            free.bind(("127.0.0.2", port))
    made = asyncio.run(bound(port))
    assert [sock.getsockname() for sock in made] == [("127.0.0.2", port), ("127.0.0.1", port)]
    for sock in made:
        sock.close()


def test_an_address_that_no_interface_has() -> None:
    """It is told so, with the input's name."""
    with pytest.raises(OSError, match=r"input 'edge': cannot listen on udp 192.0.2.1:0: .*no interface of this host"):
        asyncio.run(bind("edge", "udp", "192.0.2.1:0"))
