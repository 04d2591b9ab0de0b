"""Binds every address that a host name resolves to, and listens where it is of a stream.

Each address gets a socket of its own; one of a family that the host lacks is skipped as long as another is there. All
or nothing: when one fails, those bound before it are closed.

A socket that systemd opened for the address is taken in place of a new one (sd_listen_fds(3): ``$LISTEN_FDS`` of them
from descriptor 3 on, for the process ``$LISTEN_PID``). So a port below 1024 needs no capability, and what arrives while
the agent restarts waits in the kernel. They stay systemd's: closing them here does not close the port.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Any

from vedette.model.settings import split_address

_ADVICE = {
    errno.EADDRINUSE: "another program is on this port: stop it, or choose another port",
    errno.EACCES: "ports below 1024 are opened by systemd: give vedette-udp.socket and vedette-tcp.socket this address"
    " (install.sh --listen does), or choose a higher port",
    errno.EADDRNOTAVAIL: "no interface of this host has this address",
}
_FAMILY_MISSING = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


async def bind(input: str, kind: str, address: str) -> list[socket.socket]:
    """Non-blocking sockets of ``address`` (``host:port``; empty: none). ``kind``: "udp", else one of a stream.

    Raises OSError naming the input, the address and what to do; nothing stays open then.
    """
    if not address:
        return []
    name, port = split_address(address)
    socktype = socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        resolved = await asyncio.get_running_loop().getaddrinfo(name, port, type=socktype)
        for family, where in dict.fromkeys((family, where) for family, _, _, _, where in resolved):
            try:
                bound.append(_passed(socktype, where[:2]) or _opened(family, socktype, where, v6only=name != "::"))
            except OSError as error:
                if error.errno not in _FAMILY_MISSING:
                    raise
                missing = error
        if missing and not bound:
            raise missing
    except (OSError, UnicodeError) as refused:  # UnicodeError: a name that IDNA does not take
        cause = refused if isinstance(refused, OSError) else OSError(f"no name of a host: {refused}")
        for sock in bound:
            sock.close()
        advice = f" ({_ADVICE[cause.errno]})" if cause.errno in _ADVICE else ""
        reason = cause.strerror or str(cause)
        raise OSError(cause.errno, f"input {input!r}: cannot listen on {kind} {address}: {reason}{advice}") from cause
    return bound


def _opened(
    family: socket.AddressFamily, kind: socket.SocketKind, address: tuple[Any, ...], *, v6only: bool
) -> socket.socket:
    """Raises OSError, and nothing stays open then."""
    # asyncio sends at once, without Nagle's delay, only on sockets that say that they are TCP's.
    sock = socket.socket(family, kind, socket.IPPROTO_TCP if kind == socket.SOCK_STREAM else 0)
    try:
        sock.setblocking(False)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6only)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        if kind == socket.SOCK_STREAM:
            sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock


def _passed(kind: socket.SocketKind, address: tuple[object, ...]) -> socket.socket | None:
    """The socket of ``address`` that systemd passed, if there is one; descriptors that are no sockets are left."""
    count = os.environ.get("LISTEN_FDS", "")
    if not count.isdecimal() or os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    passed = None
    for descriptor in range(3, 3 + int(count)):
        try:
            sock = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # closed, or no socket
            continue
        os.set_inheritable(descriptor, False)
        inet = sock.family in (socket.AF_INET, socket.AF_INET6)
        if passed is None and inet and sock.type == kind and sock.getsockname()[:2] == address:
            sock.setblocking(False)
            passed = sock
        else:
            sock.close()
    return passed
