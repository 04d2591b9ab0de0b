"""What a host must not lose, from its files and from a real kernel."""

from __future__ import annotations

import errno
import json
import os
import platform
import socket
import struct
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.response.hosts import HOST, HOST6, hosts
from vedette.response import routes
from vedette.response.allowed import of_host, of_names

ASK = """import json
from vedette.response.allowed import of_host
print(json.dumps([(str(net), why) for net, why in of_host(sessions=False)]))"""
FILES = "name server", "logged in from there"

ROUTES = """route add default nexthop via 203.0.113.9 dev v0 nexthop via 203.0.113.10 dev v0
route add default via 203.0.113.11 table 100
route add 192.0.2.0/24 via inet6 2001:db8::9 dev v0
nexthop add id 7 via 203.0.113.12 dev v0
nexthop add id 8 via 2001:db8::a dev v0
nexthop add id 9 group 7
route add 198.51.100.0/24 nhid 9
-6 route add 2001:db8:1::/64 nhid 8
-6 route add default nexthop via 2001:db8::b dev v0 nexthop via 2001:db8::c dev v0
-6 route add default via 2001:db8::d table 1000
-6 route add 2001:db8:2::/64 via 2001:db8::e
route add blackhole 203.0.113.128/25
route add 198.51.100.128/25 encap ip id 3 dst 192.0.2.99 via 203.0.113.13 dev v0
route add local 192.0.2.128/25 dev lo"""


@pytest.mark.peer
def test_of_a_real_host() -> None:
    """Its addresses and gateways of both families, as the kernel has them: of routes with several next hops all, of
    every table, of the other family, and of next hops that are objects of their own."""
    with hosts() as network:
        for command in ROUTES.splitlines():
            network.run("ip", *command.split())
        network.run("sysctl", "-qw", "net.ipv4.nexthop_compat_mode=0")
        done = subprocess.run(network.inside(sys.executable, "-c", ASK), capture_output=True, check=True)
        allowed = dict(json.loads(done.stdout))
    assert allowed["127.0.0.0/8"] == "loopback"
    own = {network for network, why in allowed.items() if why == "own address"}
    assert own >= {f"{HOST}/32", f"{HOST6}/128", "127.0.0.1/32", "::1/128"}
    assert {network for network in own if network.startswith(("203.", "2001:"))} == {f"{HOST}/32", f"{HOST6}/128"}
    gateways = {network for network, why in allowed.items() if why == "gateway"}
    assert gateways == {f"203.0.113.{n}/32" for n in range(9, 14)} | {f"2001:db8::{n:x}/128" for n in range(9, 15)}


def test_routes_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """They allow nothing in silence: the service is told what its unit lacks, and a table without end is an error."""
    monkeypatch.setattr("vedette.response.routes.MOST", 10)
    with pytest.raises(OSError, match=r"the routes of this host cannot be read: they are more than 10 bytes"):
        list(of_host(sessions=False))

    def refused(*_: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    monkeypatch.setattr(socket, "socket", refused)
    with pytest.raises(OSError, match=r"routes of this host cannot be read: .* the unit needs AF_NETLINK"):
        list(of_host(sessions=False))


def test_name_servers_and_sessions(tmp_path: Path) -> None:
    """resolv.conf, the servers behind a resolver of this host, utmp and logind's sessions; dead entries, names and
    rubbish allow nothing."""
    for folder in ("etc", "run/systemd/sessions", "run/systemd/resolve", "run/NetworkManager"):
        (tmp_path / folder).mkdir(parents=True)
    servers = ("# nameserver 192.0.2.1", "nameserver 192.0.2.2", "nameserver fe80::1%eth0", "nameserver x")
    (tmp_path / "etc/resolv.conf").write_text("\n".join(servers))
    (tmp_path / "run/systemd/resolve/resolv.conf").write_text("nameserver 192.0.2.6\n")
    (tmp_path / "run/NetworkManager/no-stub-resolv.conf").write_text("nameserver 192.0.2.7\n")
    session = tmp_path / "run/systemd/sessions"
    (session / "1").write_text("UID=0\nREMOTE=1\nREMOTE_HOST=192.0.2.3\n")
    (session / "2").write_text("REMOTE_HOST=desk.example\n")
    (session / "3").write_text("REMOTE_HOST=fe80::3%eth0\n")
    entries = ((7, "192.0.2.4"), (8, "192.0.2.5"), (7, "2001:db8::4"))
    (tmp_path / "run/utmp").write_bytes(b"".join(_utmp(*one) for one in entries) + b"torn")
    found = {str(net): why for net, why in of_host(sessions=True, root=tmp_path) if why in FILES}
    assert found == {
        "192.0.2.2/32": "name server", "fe80::1/128": "name server", "192.0.2.6/32": "name server",
        "192.0.2.7/32": "name server", "192.0.2.3/32": "logged in from there",
        "192.0.2.4/32": "logged in from there", "2001:db8::4/128": "logged in from there",
        "fe80::3/128": "logged in from there",
    }  # fmt: skip
    assert "192.0.2.3/32" not in {str(net) for net, _ in of_host(sessions=False, root=tmp_path)}


def test_a_dump_that_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a change has interrupted is asked for again, and at last an error, as is one of the kernel; only a kernel
    without objects for next hops has none."""
    interrupted, done = (24, 0x12, b"x" * 12), (3, 2, bytes(4))

    def answers(request: int, *messages: tuple[int, int, bytes]) -> list[bytes]:
        ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        packed = (struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body for kind, flags, body in messages)
        with kernels, monkeypatch.context() as patch:
            kernels.send(b"".join(packed))
            patch.setattr("vedette.response.routes.TRIES", 1)
            patch.setattr(socket, "socket", lambda *_: ours)
            return routes._dump(request, 8)

    assert answers(26, (24, 2, b"x" * 12), done) == [b"x" * 12]
    with pytest.raises(OSError, match="they change all the time"):
        answers(26, interrupted, done)
    unsupported = (2, 0, struct.pack("=i", -errno.EOPNOTSUPP) + bytes(16))
    assert answers(106, unsupported) == []
    with pytest.raises(OSError, match="not supported"):
        answers(26, unsupported)
    with pytest.raises(OSError, match="not permitted"):
        answers(106, (2, 0, struct.pack("=i", -errno.EPERM) + bytes(16)))


@pytest.mark.parametrize("path", ["etc/resolv.conf", "run/utmp", "run/systemd/sessions"])
def test_a_file_that_cannot_be_read(tmp_path: Path, path: str) -> None:
    """What is there and cannot be read is an error; what is not there allows nothing."""
    assert not [why for _, why in of_host(sessions=True, root=tmp_path) if why in FILES]
    (tmp_path / path).parent.mkdir(parents=True)
    if path.endswith("sessions"):
        (tmp_path / path).touch()
    else:
        (tmp_path / path).mkdir()
    with pytest.raises(OSError, match=path):
        list(of_host(sessions=True, root=tmp_path))


def _utmp(kind: int, address: str) -> bytes:
    """An entry of utmp(5): glibc has 32 bits for session and times on x86-64, 64 on aarch64."""
    wide = platform.machine() == "aarch64"
    layout = "@hi32s4s32s256shh3q16s20s4x" if wide else "@hi32s4s32s256shh3i16s20s"
    packed = ip_address(address).packed.ljust(16, b"\0")
    return struct.pack(layout, kind, 1, b"pts/0", b"0", b"root", b"desk", 0, 0, 0, 0, 0, packed, b"")


def test_names() -> None:
    """A name's addresses; one that is none, or unknown, allows nothing."""
    found = of_names(["192.0.2.9", "a" * 70, "no.such.invalid", "2001:db8::9"])
    assert [str(net) for net, _ in found] == ["192.0.2.9/32", "2001:db8::9/128"]
