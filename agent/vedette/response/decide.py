"""What an alert asks for: pure functions of the alert and the settings.

``asked`` runs where the alert is made, also in the process of a strict rule set, so that a replay says the same. What
it finds goes into the alert: the flag ``response``, and the fields ``response`` and ``response.address``. Without the
flag the fields mean nothing: an event may have fields of these names, the flag comes from here alone. Whether the
address is then blocked is decided when that is done (``runtime/response.py``), and reported in an alert of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from vedette.model.event import Alert
from vedette.response.settings import ResponseSettings
from vedette.sinks.base import fits

FLAG = "response"
"""Among an alert's flags: its two fields below are from here."""
TEXT, ADDRESS = "response", "response.address"
RULE = "vedette.response"
"""Rule of the alerts that report what came of it."""
TAKEN = (TEXT, ADDRESS)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Asked(NamedTuple):
    """``address`` empty: nothing can be blocked, and ``text`` says why."""

    text: str
    address: str


def address_of(text: str) -> Address:
    """One host's address; that of IPv4 within IPv6 as IPv4. Raises ValueError, also for one that holds on a link only:
    a host's metadata service and its neighbours have such."""
    found = ip_address(text.strip())
    if isinstance(found, IPv6Address):
        if found.scope_id is not None:  # any text at all, which nft would read
            raise ValueError(f"{found!s:.60} holds on one link only")
        found = found.ipv4_mapped or found
    if found.is_link_local:
        raise ValueError(f"{found} holds on one link only")
    if found.is_multicast or found.is_unspecified or found.is_loopback or found == IPv4Address("255.255.255.255"):
        raise ValueError(f"{found} is not the address of another host")
    return found


def asked(settings: ResponseSettings, alert: Alert, get: Callable[[str], str | None]) -> Asked | None:
    """What ``alert`` asks for by the first table that fits; None: nothing. ``get``: a field of its event."""
    if alert.rule_id == RULE or alert.kind == "fold":
        return None
    of = next((one for one in settings.block if fits(one, alert.level, alert.rule_id, alert.tags)), None)
    if of is None:
        return None
    if of.field:
        text = alert.fields.get(of.field) or alert.group_by.get(of.field) or get(of.field)
        if not text:
            return Asked(f"nothing blocked: the alert has no field {of.field}", "")
    else:
        found = list(dict.fromkeys(one.value for one in alert.entities if one.kind == "ip"))
        if len(found) != 1:
            return Asked(f"nothing blocked: the alert has {len(found)} addresses, not one; name the field", "")
        text = found[0]
    try:
        address = address_of(text)
    except ValueError as error:
        return Asked(f"nothing blocked: {error}", "")
    if why := _allowed(settings.allow).why(address):
        return Asked(f"nothing blocked: {address} is allowed ({why})", "")
    verb = "would block" if settings.dry_run else "block"
    return Asked(f"{verb} {address} for {settings.ttl:g} s", str(address))


def configured(allow: Iterable[str]) -> Iterable[tuple[Network, str]]:
    """What ``response.allow`` of the configuration allows."""
    return [(ip_network(text, strict=False), f"response.allow: {text}") for text in allow]


@lru_cache(maxsize=1)
def _allowed(allow: tuple[str, ...]) -> Allowed:
    return Allowed(configured(allow))


class Allowed:
    """Networks that are never blocked, each with the reason."""

    def __init__(self, networks: Iterable[tuple[Network, str]]) -> None:
        found: dict[Network, str] = {}
        for network, why in networks:
            found.setdefault(network, why)
        self.networks: Mapping[Network, str] = found

    def why(self, address: Address) -> str:
        """Why ``address`` is not blocked; empty: nothing allows it."""
        return next(
            (why for net, why in self.networks.items() if net.version == address.version and address in net), ""
        )
