"""The firewall: one table of nftables that is ours, changed by the program ``nft`` in transactions.

    table inet TABLE
        set allowed4, allowed6     networks that are never blocked
        set blocked4, blocked6     addresses, each with the time after which the kernel forgets it
        chain block                at prerouting, before connection tracking, so that it holds for what is sent to this
                                   host and through it: accepts loopback and allowed, drops blocked

Nobody else's tables are touched, and what ours accepts others may still drop. ``replace`` makes the table as a whole,
whatever was there; ``added`` and ``removed`` change elements. An element is added, deleted and added again in one
transaction: deleting one that is missing is an error, and older kernels keep the old time of one that is there.

No shell: scripts go to standard input, and hold numbers, addresses and names that were parsed. Errors are nft's own
first line.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path

from vedette.response.decide import Address, Network

NFT = Path("/usr/sbin/nft")
SECONDS = 10.0
"""For one transaction."""
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
HINTS = {
    "Operation not permitted": "; needs CAP_NET_ADMIN (docs/install.md)",
    "Address family not supported": "; the unit needs AF_NETLINK and CAP_NET_ADMIN (docs/install.md)",
    "Protocol not supported": "; the kernel has no nftables",
    "Too many open files in system": "; the set is full",
}
"""What to do about an error that has this text."""


class Nft:
    def __init__(self, program: Path, table: str, most: int) -> None:
        """``most``: addresses that are blocked at a time; the sets hold twice as many, as the kernel keeps expired ones
        for a while."""
        self._program, self._table, self._size = program, table, 2 * most

    def replace(self, blocked: Mapping[str, int], allowed: Iterable[Network]) -> str:
        """A script; ``blocked``: milliseconds left by address."""
        allow: dict[int, list[str]] = {4: [], 6: []}
        block: dict[int, list[str]] = {4: [], 6: []}
        for network in allowed:
            allow[network.version].append(str(network))
        for address, left in blocked.items():
            block[ip_address(address).version].append(f"{address} timeout {max(1, left)}ms")
        lines = [f"add table inet {self._table}", f"delete table inet {self._table}", f"table inet {self._table} {{"]
        for version in (4, 6):
            kind = f"type ipv{version}_addr; flags"
            lines += [
                f"set allowed{version} {{ {kind} interval; auto-merge;{_elements(allow[version])} }}",
                f"set blocked{version} {{ {kind} timeout; size {self._size};{_elements(block[version])} }}",
            ]
        lines += [
            "chain block {", "type filter hook prerouting priority -300; policy accept;", 'iifname "lo" accept',
            "ip saddr @allowed4 accept", "ip6 saddr @allowed6 accept", "ip saddr @blocked4 drop",
            "ip6 saddr @blocked6 drop", "}", "}",
        ]  # fmt: skip
        return "\n".join(lines) + "\n"

    def added(self, blocked: Mapping[str, int]) -> str:
        lines = []
        for address, left in blocked.items():
            add = f"add {self._element(ip_address(address))} timeout {max(1, left)}ms }}"
            lines += [add, f"delete {self._element(ip_address(address))} }}", add]
        return "\n".join(lines) + "\n"

    def removed(self, addresses: Iterable[str]) -> str:
        lines = []
        for address in addresses:
            element = self._element(ip_address(address))
            lines += [f"add {element} }}", f"delete {element} }}"]
        return "\n".join(lines) + "\n"

    def gone(self) -> str:
        """A script that leaves nothing of ours."""
        return f"add table inet {self._table}\ndelete table inet {self._table}\n"

    def run(self, script: str, *, check: bool = False) -> None:
        """One transaction: all of it or nothing; ``check``: only look whether it could be. Raises OSError."""
        self._nft(["-c", "-f", "-"] if check else ["-f", "-"], script)

    def shape(self) -> str:
        """The table without its elements of sets with timeouts, as nft prints it; empty: there is none. Raises
        OSError."""
        try:
            return self._nft(["-t", "list", "table", "inet", self._table], "")
        except OSError as error:
            if "No such file or directory" in str(error) and self._program.exists():
                return ""
            raise

    def _element(self, address: Address) -> str:
        return f"element inet {self._table} blocked{address.version} {{ {address}"

    def _nft(self, arguments: list[str], script: str) -> str:
        try:
            done = subprocess.run(
                [self._program, *arguments], input=script, capture_output=True, text=True, errors="replace",
                timeout=SECONDS, check=False, env=_ENVIRONMENT, cwd="/",
            )  # fmt: skip
        except FileNotFoundError as error:
            raise OSError(f"{self._program} is missing: install nftables") from error
        except subprocess.TimeoutExpired as error:
            raise OSError(f"nft did not end within {SECONDS:g} s") from error
        if done.returncode:
            said = next((line.strip() for line in done.stderr.splitlines() if line.strip()), "no message")
            hint = next((hint for text, hint in HINTS.items() if text in done.stderr), "")
            raise OSError(f"nft: {said[:300]}{hint}")
        return done.stdout


def _elements(texts: list[str]) -> str:
    return f" elements = {{ {', '.join(texts)} }};" if texts else ""
