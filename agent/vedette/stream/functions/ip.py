"""IP addresses in texts. These are our own, not Flink's; a text that is no address gives NULL (or FALSE in a test)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any

from vedette.model import event
from vedette.plan.query import Expression, Type
from vedette.stream.functions.table import Function, WrongTypes, constant, gives, takes
from vedette.stream.values.types import BOOLEAN, INT, STRING, TEXT, WHOLE, Failed

Address = IPv4Address | IPv6Address


MAX_KEPT = 64
"""Characters of a text whose address is remembered; a sender may write a longer one."""
_remembered = lru_cache(4096)(event.address)


def address(text: str) -> Address | None:
    """As ``model.event.address``."""
    return _remembered(text) if len(text) <= MAX_KEPT else event.address(text)


def network(text: str) -> IPv4Network | IPv6Network | None:
    """As ``model.event.network``; None for a text that is none."""
    return _remembered_network(text) if len(text) <= MAX_KEPT else _network_of(text)


def _network_of(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return event.network(text)
    except ValueError:
        return None


_remembered_network = lru_cache(4096)(_network_of)


def _in_cidr_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(TEXT, TEXT, least=2, more=True)(args)
    for argument in args[1:]:
        text = constant(argument)
        if text is not None and network(text) is None:
            raise WrongTypes(f"{text!r:.60} is no network such as 10.0.0.0/8 or fd00::/8")
    return BOOLEAN


def _in_cidr(text: str, *networks: str) -> bool:
    ip = address(text)
    if ip is None:
        return False
    for cidr in networks:
        within = network(cidr)
        if within is None:
            raise Failed(f"{cidr!r:.60} is no network")
        if ip.version == within.version and ip in within:
            return True
    return False


def _of(test: Callable[[Address], Any]) -> Callable[[str], Any]:
    def tested(text: str) -> Any:
        ip = address(text)
        return None if ip is None else test(ip)

    return tested


def _network(text: str, bits: int) -> str | None:
    ip = address(text)
    if ip is None or not 0 <= bits <= ip.max_prefixlen:
        return None
    return str(ip_network((ip, bits), strict=False))


_ONE_TEXT = takes(TEXT)
FUNCTIONS: dict[str, Function] = {
    "IP_IN_CIDR": Function(_in_cidr_types, _in_cidr, example="IP_IN_CIDR('10.1.2.3', '10.0.0.0/8', 'fd00::/8')",
                           gives="TRUE", says="whether an address is in one of the networks; ours"),
    "IP_VERSION": Function(gives(INT, _ONE_TEXT), _of(lambda ip: ip.version), example="IP_VERSION('::1')", gives="6",
                           says="4, 6, NULL for no address; ours"),
    "IP_IS_PRIVATE": Function(gives(BOOLEAN, _ONE_TEXT), _of(lambda ip: ip.is_private),
                              example="IP_IS_PRIVATE('192.168.0.1')", gives="TRUE",
                              says="of a network that IANA does not route globally; ours"),
    "IP_IS_LOOPBACK": Function(gives(BOOLEAN, _ONE_TEXT), _of(lambda ip: ip.is_loopback),
                               example="IP_IS_LOOPBACK('127.0.0.1')", gives="TRUE", says="ours"),
    "IP_IS_MULTICAST": Function(gives(BOOLEAN, _ONE_TEXT), _of(lambda ip: ip.is_multicast),
                                example="IP_IS_MULTICAST('224.0.0.1')", gives="TRUE", says="ours"),
    "IP_NETWORK": Function(gives(STRING, takes(TEXT, WHOLE)), _network, example="IP_NETWORK('10.1.2.3', 24)",
                           gives="10.1.2.0/24", says="the network of so many bits around an address; ours"),
    "IP_CANONICAL": Function(gives(STRING, _ONE_TEXT), _of(str), example="IP_CANONICAL('2001:DB8:0::1')",
                             gives="2001:db8::1", says="one text for one address; ours"),
}  # fmt: skip
