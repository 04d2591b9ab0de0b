"""IP addresses in texts. These are our own, not Flink's; a text that is no address gives NULL (or FALSE in a test)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from vedette.plan.query import Expression, Type
from vedette.stream.functions.table import Failed, Function, WrongTypes
from vedette.stream.functions.types import BOOLEAN, INT, STRING, TEXT, WHOLE, constant, gives, takes

Address = IPv4Address | IPv6Address


MAX_KEPT = 64
"""Characters of a text whose address is remembered; a sender may write a longer one."""


def address(text: str) -> Address | None:
    """An IPv4 address in IPv6 form is the IPv4 one; a zone (``%eth0``) is left out."""
    return _remembered(text) if len(text) <= MAX_KEPT else _address(text)


def _address(text: str) -> Address | None:
    try:
        found = ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


_remembered = lru_cache(4096)(_address)


def network(text: str) -> IPv4Network | IPv6Network | None:
    return _remembered_network(text) if len(text) <= MAX_KEPT else _network_of(text)


def _network_of(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        return None


_remembered_network = lru_cache(4096)(_network_of)


def _in_cidr_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(TEXT, TEXT, least=2, more=True)(args)
    for one in args[1:]:
        text = constant(one)
        if text is not None and network(text) is None:
            raise WrongTypes(f"{text!r:.60} is no network such as 10.0.0.0/8 or fd00::/8")
    return BOOLEAN


def _in_cidr(text: str, *networks: str) -> bool:
    found = address(text)
    if found is None:
        return False
    for one in networks:
        within = network(one)
        if within is None:
            raise Failed(f"{one!r:.60} is no network")
        if found.version == within.version and found in within:
            return True
    return False


def _of(test: Callable[[Address], Any]) -> Callable[[str], Any]:
    def tested(text: str) -> Any:
        found = address(text)
        return None if found is None else test(found)

    return tested


def _network(text: str, bits: int) -> str | None:
    found = address(text)
    if found is None or not 0 <= bits <= found.max_prefixlen:
        return None
    return str(ip_network((found, bits), strict=False))


_ONE = takes(TEXT)
FUNCTIONS: dict[str, Function] = {
    "IP_IN_CIDR": Function(_in_cidr_types, _in_cidr, example="IP_IN_CIDR('10.1.2.3', '10.0.0.0/8', 'fd00::/8')",
                           gives="TRUE", says="whether an address is in one of the networks; ours"),
    "IP_VERSION": Function(gives(INT, _ONE), _of(lambda found: found.version), example="IP_VERSION('::1')", gives="6",
                           says="4, 6, NULL for no address; ours"),
    "IP_IS_PRIVATE": Function(gives(BOOLEAN, _ONE), _of(lambda found: found.is_private),
                              example="IP_IS_PRIVATE('192.168.0.1')", gives="TRUE",
                              says="of a network that IANA does not route globally; ours"),
    "IP_IS_LOOPBACK": Function(gives(BOOLEAN, _ONE), _of(lambda found: found.is_loopback),
                               example="IP_IS_LOOPBACK('127.0.0.1')", gives="TRUE", says="ours"),
    "IP_IS_MULTICAST": Function(gives(BOOLEAN, _ONE), _of(lambda found: found.is_multicast),
                                example="IP_IS_MULTICAST('224.0.0.1')", gives="TRUE", says="ours"),
    "IP_NETWORK": Function(gives(STRING, takes(TEXT, WHOLE)), _network, example="IP_NETWORK('10.1.2.3', 24)",
                           gives="10.1.2.0/24", says="the network of so many bits around an address; ours"),
    "IP_CANONICAL": Function(gives(STRING, _ONE), _of(str), example="IP_CANONICAL('2001:DB8:0::1')",
                             gives="2001:db8::1", says="one text for one address; ours"),
}  # fmt: skip
