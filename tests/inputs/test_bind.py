"""From an address to sockets, bound here or passed by a supervisor to a process of its own."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.waits import DEADLINE
from vedette.inputs.accept import bind


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


@pytest.mark.parametrize("first", [socket.AF_INET, socket.AF_INET6])
def test_a_host_without_ipv6(first: socket.AddressFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a name that stands for addresses of both families that of IPv4 is bound, whichever comes first; one that has
    none but IPv6 is refused."""
    made = socket.socket

    def without_ipv6(family: int = -1, *arguments: Any, **named: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return made(family, *arguments, **named)

    async def bound(*families: int) -> list[socket.socket]:
        async def resolved(*_: Any, **__: Any) -> list[Any]:
            where = {socket.AF_INET: ("127.0.0.1", 0), socket.AF_INET6: ("::1", 0, 0, 0)}
            return [(family, socket.SOCK_DGRAM, 0, "", where[family]) for family in families]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolved)
        return await bind("edge", "udp", "localhost:0")

    monkeypatch.setattr(socket, "socket", without_ipv6)
    (sock,) = asyncio.run(bound(first, *{socket.AF_INET, socket.AF_INET6} - {first}))
    assert sock.getsockname()[0] == "127.0.0.1"
    sock.close()
    with pytest.raises(OSError, match="input 'edge': cannot listen on udp localhost:0: Address family not supported"):
        asyncio.run(bound(socket.AF_INET6))


def test_an_address_that_no_interface_has() -> None:
    """It is told so, with the input's name."""
    with pytest.raises(OSError, match=r"input 'edge': cannot listen on udp 192.0.2.1:0: .*no interface of this host"):
        asyncio.run(bind("edge", "udp", "192.0.2.1:0"))


def test_a_name_that_is_none() -> None:
    """As a host that cannot be resolved."""
    for name in ("a..example", "a" * 70 + ".example"):
        with pytest.raises(OSError, match=r"input 'edge': cannot listen on udp .*: no name of a host"):
            asyncio.run(bind("edge", "udp", f"{name}:0"))


LISTENER = """
import asyncio, os, sys
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()) if sys.argv[1] == "ours" else "1", "4"
from vedette.inputs.settings import SyslogInput
from vedette.inputs.listen import SyslogListener
from vedette.model.counters import Counters
from tests.inputs.intake import Bin, agent
from tests.waits import eventually

async def main():
    bin, counters = Bin(), Counters()
    settings = SyslogInput("in", udp=sys.argv[2], tcp=sys.argv[2], receive_buffer=4096)
    listener = SyslogListener(settings, agent(bin, counters))
    await listener.start()
    await eventually("2 events", lambda: len(bin.events) == 2)
    await listener.stop()
    print(*sorted(event.decode().strip() for event in bin.events), os.get_inheritable(3), sep="|")

asyncio.run(main())
"""


def opened() -> tuple[socket.socket, socket.socket, str]:
    """A listening TCP and a UDP socket on one address, and the address."""
    while True:
        tcp = socket.create_server(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.bind(tcp.getsockname())
        except OSError:
            tcp.close()
            udp.close()
            continue
        return tcp, udp, f"127.0.0.1:{tcp.getsockname()[1]}"


def listener(tcp: socket.socket, udp: socket.socket, address: str, whose: str = "ours") -> subprocess.Popen[str]:
    """A process that has them at descriptors 3 and 4, as systemd passes them, besides a socket that is not IP and a
    closed one, and listens on ``address``."""

    def place() -> None:
        high = [os.dup(sock.fileno()) for sock in (tcp, udp, socket.socketpair()[0])]
        for number, descriptor in enumerate(high, 3):
            os.dup2(descriptor, number)

    return subprocess.Popen(
        [sys.executable, "-c", LISTENER, whose, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=place, pass_fds=(3, 4, 5),
    )  # fmt: skip


@pytest.mark.peer
def test_sockets_are_taken_over() -> None:
    """What waits in sockets that the supervisor opened is read, before the listener was there and after, and the ports
    stay open when it ends; its children do not inherit them."""
    tcp, udp, address = opened()
    with tcp, udp:
        for number in range(2):  # the second listener finds the same open sockets
            with socket.create_connection(tcp.getsockname()) as sender:
                sender.sendall(b"by tcp %d\n" % number)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"by udp %d" % number, udp.getsockname())
            output, errors = listener(tcp, udp, address).communicate(timeout=DEADLINE)
            assert output.strip().splitlines()[-1] == f"by tcp {number}|by udp {number}|False", errors


@pytest.mark.peer
def test_sockets_for_another_process_are_left_alone() -> None:
    """Without its own process id in LISTEN_PID the listener opens the port itself, and here finds it in use."""
    tcp, udp, address = opened()
    with tcp, udp:
        output, errors = listener(tcp, udp, address, "another's").communicate(timeout=DEADLINE)
        assert "cannot listen on tcp" in errors
        assert "listening" not in output


def test_a_count_of_sockets_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It means that none were passed."""
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "many")
    (sock,) = asyncio.run(bind("edge", "tcp", "127.0.0.1:0"))
    sock.close()
