"""Two hosts on one link: network namespaces of the kernel, with real addresses and a real nftables each.

The host that is defended has 203.0.113.1 and 2001:db8::1; its peer those of both networks from .9 to .14 and from
::9 to ::e. Skips with the reason where this cannot be done.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waits import until

HOST, PEER = "203.0.113.1", "203.0.113.9"
HOST6, PEER6 = "2001:db8::1", "2001:db8::9"
NFT = Path("/usr/sbin/nft")
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 7), 0.5, (sys.argv[2], 0))"
LISTEN = "import socket\ns = socket.create_server(('', 7))\nprint(flush=True)\nwhile True: s.accept()[0].close()"


class Hosts:
    def __init__(self, host: int, peer: int) -> None:
        """Process ids, one in each namespace."""
        self.host, self.peer = host, peer

    def inside(self, *command: object, peer: bool = False) -> list[str]:
        return ["nsenter", "-n", "-t", str(self.peer if peer else self.host), *map(str, command)]

    def run(self, *command: object, peer: bool = False, code: int | None = 0) -> str:
        done = subprocess.run(self.inside(*command, peer=peer), capture_output=True, text=True, check=False)
        assert code is None or done.returncode == code, done.stderr
        return done.stdout

    def nft(self, *words: str, code: int | None = 0) -> str:
        return self.run(NFT, *words, code=code)

    def reached(self, source: str = PEER) -> bool:
        """Whether a packet from this address of the peer's gets through, and an answer back."""
        to = HOST6 if ":" in source else HOST
        command = self.inside("ping", "-n", "-c", "1", "-W", "0.3", "-I", source, to, peer=True)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def connected(self, source: str = PEER) -> bool:
        """Whether a TCP connection can be made."""
        command = self.inside("python3", "-c", CONNECT, HOST, source, peer=True)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def hosts() -> Iterator[Hosts]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if not NFT.exists():
        pytest.skip("no nft here: sh tools/packages.sh tests")
    processes = [subprocess.Popen(["unshare", "-n", "sleep", "3600"]) for _ in range(2)]
    try:
        both = Hosts(*(process.pid for process in processes))
        own = os.readlink("/proc/self/ns/net")

        def ended() -> bool:
            return any(process.poll() is not None for process in processes)

        def apart() -> bool:
            return all(os.readlink(f"/proc/{process.pid}/ns/net") != own for process in processes)

        until("two network namespaces", lambda: ended() or apart())
        if ended():
            pytest.skip("no network namespaces here")
        link = both.inside("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", both.peer)
        if (done := subprocess.run(link, capture_output=True, text=True, check=False)).returncode:
            pytest.skip(f"no link between two network namespaces here: {done.stderr.strip()}")
        peers = [f"{net}{n:{form}}" for net, form in (("203.0.113.", "d"), ("2001:db8::", "x")) for n in range(9, 15)]
        for peer, name, addresses in ((False, "v0", [HOST, HOST6]), (True, "v1", peers)):
            for address in addresses:
                size = ["/64", "nodad"] if ":" in address else ["/24"]
                both.run("ip", "address", "add", address + size[0], "dev", name, *size[1:], peer=peer)
            for one in ("lo", name):
                both.run("ip", "link", "set", one, "up", peer=peer)
        yield both
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def listening(network: Hosts) -> Iterator[None]:
    """A program on the host takes TCP connections."""
    program = subprocess.Popen(network.inside("python3", "-c", LISTEN), stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None
        program.stdout.readline()
        yield
    finally:
        program.kill()
        program.communicate()
