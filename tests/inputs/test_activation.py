"""Sockets that a supervisor opened: the real listener takes them over, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from vedette.inputs import activation

pytestmark = pytest.mark.peer

LISTENER = """
import asyncio, os, sys
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()) if sys.argv[1] == "ours" else "1", "2"
from vedette.inputs.syslog import SyslogInput
from vedette.inputs.listen import SyslogListener
from vedette.model.counters import Counters
from tests.inputs.intake import Bin, until

async def main():
    bin, counters = Bin(), Counters()
    listener = SyslogListener(SyslogInput("in", udp=sys.argv[2], tcp=sys.argv[2], receive_buffer=4096), bin, counters)
    await listener.start()
    await until(lambda: len(bin.events) == 2)
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
    """A process that has them at descriptors 3 and 4, as systemd passes them, and listens on ``address``."""

    def place() -> None:
        high = [os.dup(tcp.fileno()), os.dup(udp.fileno())]
        for number, descriptor in enumerate(high, activation.FIRST):
            os.dup2(descriptor, number)

    return subprocess.Popen(
        [sys.executable, "-c", LISTENER, whose, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=place, pass_fds=(3, 4),
    )  # fmt: skip


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
            output, errors = listener(tcp, udp, address).communicate(timeout=60)
            assert output.strip().splitlines()[-1] == f"by tcp {number}|by udp {number}|False", errors


def test_sockets_for_another_process_are_left_alone() -> None:
    """Without its own process id in LISTEN_PID the listener opens the port itself, and here finds it in use."""
    tcp, udp, address = opened()
    with tcp, udp:
        output, errors = listener(tcp, udp, address, "another's").communicate(timeout=60)
        assert "cannot listen on tcp" in errors
        assert "listening" not in output


def test_what_is_no_socket_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors that are closed or no IP sockets are not taken, and a count that is none means none."""
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setattr(activation, "FIRST", 1 << 20)  # beyond what can be open
    monkeypatch.setenv("LISTEN_FDS", "2")
    assert activation.passed() == {}
    monkeypatch.setenv("LISTEN_FDS", "many")
    assert activation.passed() == {}
    left, right = socket.socketpair()
    with left, right:
        monkeypatch.setattr(activation, "FIRST", left.fileno())
        monkeypatch.setenv("LISTEN_FDS", "1")
        assert activation.passed() == {}


def test_a_larger_buffer_is_kept() -> None:
    """A socket that came with more room than the configuration asks for keeps it."""
    from vedette.inputs.datagrams import set_receive_buffer

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
        granted = set_receive_buffer(sock, 50_000)
        assert granted == 100_000
        assert set_receive_buffer(sock, 150_000) > granted
