"""What this host must not lose, as the kernel and its files say: its own addresses, its gateways, its name servers,
who is logged in, and where it sends its alerts.

Read again every few seconds, by a thread. Sources: the kernel's routes (``response/routes.py``), without which nothing
may be blocked; resolv.conf(5), and what systemd-resolved and NetworkManager have beside it when its server is one on
this host; utmp(5), and logind's ``/run/systemd/sessions`` where newer sshd writes no utmp. A file that is not there
allows nothing; that one cannot be read is an error, too.
"""

from __future__ import annotations

import platform
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

from vedette.model.event import address
from vedette.response.decide import Address, Network
from vedette.response.routes import routes

_UTMP = struct.Struct(
    "=h2xi32s4s32s256s4xqqq16s20s4x" if platform.machine() == "aarch64" else "=h2xi32s4s32s256s4xiii16s20s"
)
_USER_PROCESS = 7
RESOLV_CONF = ("etc/resolv.conf", "run/systemd/resolve/resolv.conf", "run/NetworkManager/no-stub-resolv.conf")
MAX_FILE = 1 << 20
"""Bytes that are read of each."""


def of_host(*, sessions: bool, root: Path = Path("/")) -> Iterator[tuple[Network, str]]:
    """Networks that this host needs, each with the reason. ``sessions``: also where users are logged in from. Raises
    OSError for what is there and cannot be read."""
    own, gateways = routes()
    for text in ("127.0.0.0/8", "::1/128"):
        yield ip_network(text), "loopback"
    for why, addresses in (
        ("own address", own), ("gateway", gateways), ("name server", _name_servers(root)),
        ("logged in from there", _sessions(root) if sessions else ()),
    ):  # fmt: skip
        yield from ((ip_network(address), why) for address in addresses)


def of_names(names: Iterable[str], before: Iterable[tuple[Network, str]] = ()) -> Iterator[tuple[Network, str]]:
    """Addresses of hosts; blocks on the resolver. One that cannot be resolved has those that it had ``before``."""
    for name in names:
        why = f"{name} of the configuration"
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError):
            yield from ((network, reason) for network, reason in before if reason == why)
        else:
            yield from ((ip_network(str(address).partition("%")[0]), why) for *_, (address, *_) in answers)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _name_servers(root: Path) -> Iterator[Address]:
    for path in RESOLV_CONF:
        for text in re.findall(r"(?m)^nameserver\s+([^\s%]+)", _text(root / path)):
            yield from _address(text)


def _sessions(root: Path) -> Iterator[Address]:
    data = b""
    with suppress(FileNotFoundError), (root / "run/utmp").open("rb") as file:
        data = file.read(MAX_FILE)
    for entry in _UTMP.iter_unpack(data[: len(data) // _UTMP.size * _UTMP.size]):
        if entry[0] == _USER_PROCESS and any(entry[-2]):
            yield IPv6Address(entry[-2]) if any(entry[-2][4:]) else IPv4Address(entry[-2][:4])
    with suppress(FileNotFoundError):
        for path in (root / "run/systemd/sessions").iterdir():
            for text in re.findall(r"(?m)^REMOTE_HOST=(\S+)$", _text(path)):
                yield from _address(text)


def _address(text: str) -> Iterator[Address]:
    if own := address(text):
        yield own
