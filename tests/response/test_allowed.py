"""What a host must not lose, from its files and from a real kernel."""

from __future__ import annotations

import json
import platform
import struct
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.response.hosts import HOST, HOST6, hosts
from vedette.response.allowed import of_host, of_names

ASK = """import json
from vedette.response.allowed import of_host
print(json.dumps([(str(net), why) for net, why in of_host(sessions=False)]))"""


@pytest.mark.peer
def test_of_a_real_host() -> None:
    """Its addresses and gateways of both families, as the kernel has them."""
    with hosts() as network:
        network.run("ip", "route", "add", "default", "via", "203.0.113.14")
        network.run("ip", "-6", "route", "add", "default", "via", "2001:db8::e")
        done = subprocess.run(network.inside(sys.executable, "-c", ASK), capture_output=True, check=True)
        found = dict(json.loads(done.stdout))
    assert found["127.0.0.0/8"] == "loopback"
    assert found[f"{HOST}/32"] == found[f"{HOST6}/128"] == "own address"
    assert found["203.0.113.14/32"] == found["2001:db8::e/128"] == "gateway"
    assert "203.0.113.9/32" not in found


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
    found = {str(net): why for net, why in of_host(sessions=True, root=tmp_path) if why != "loopback"}
    assert found == {
        "192.0.2.2/32": "name server", "fe80::1/128": "name server", "192.0.2.6/32": "name server",
        "192.0.2.7/32": "name server", "192.0.2.3/32": "logged in from there",
        "192.0.2.4/32": "logged in from there", "2001:db8::4/128": "logged in from there",
        "fe80::3/128": "logged in from there",
    }  # fmt: skip
    assert "192.0.2.3/32" not in {str(net) for net, _ in of_host(sessions=False, root=tmp_path)}


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
