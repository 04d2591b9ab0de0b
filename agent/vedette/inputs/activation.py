"""Sockets that systemd opened for the agent: sd_listen_fds(3).

``$LISTEN_FDS`` sockets begin at descriptor 3, for the process whose id is ``$LISTEN_PID``. ``take`` gives the one that
is bound to an address; an input asks here before it opens a socket of its own. So a port below 1024 needs no
capability, and what arrives while the agent restarts waits in the kernel. Descriptors are marked not to be inherited;
they stay systemd's: closing them here does not close the port.
"""

from __future__ import annotations

import os
import socket

FIRST = 3
"""SD_LISTEN_FDS_START."""

Address = tuple[socket.SocketKind, str, int]


def passed() -> dict[Address, int]:
    """Descriptors by (type, host, port); empty when systemd passed none. Sockets that are not IP are left alone."""
    count, pid = os.environ.get("LISTEN_FDS", ""), os.environ.get("LISTEN_PID", "")
    found: dict[Address, int] = {}
    if count.isdecimal() and pid == str(os.getpid()):
        for descriptor in range(FIRST, FIRST + int(count)):
            try:
                sock = socket.socket(fileno=os.dup(descriptor))
            except OSError:  # closed, or no socket
                continue
            with sock:
                os.set_inheritable(descriptor, False)
                if sock.family in (socket.AF_INET, socket.AF_INET6):
                    host, port = sock.getsockname()[:2]
                    found[sock.type, host, port] = descriptor
    return found


def take(kind: socket.SocketKind, host: str, port: int) -> socket.socket | None:
    """The passed socket bound to an address (its own descriptor, non-blocking), if there is one."""
    descriptor = passed().get((kind, host, port))
    if descriptor is None:
        return None
    sock = socket.socket(fileno=os.dup(descriptor))
    sock.setblocking(False)
    return sock
