"""What an alert asks for: pure functions of the alert and the settings.

``asked`` runs where the alert is made, also in the process of a strict rule set, so that a replay says the same. What
it finds goes into the alert: the flag ``response``, and the fields ``response`` and ``response.address``. Without the
flag the fields mean nothing: an event may have fields of these names, the flag comes from here alone. Whether the
address is then blocked is decided when that is done (``runtime/options/response.py``), and reported in an alert of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from vedette.config.settings import ResponseSettings
from vedette.model.event import Alert
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
    address = ip_address(text.strip())
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:  # any text at all, which nft would read
            raise ValueError(f"{address!s:.60} holds on one link only")
        address = address.ipv4_mapped or address
    if address.is_link_local:
        raise ValueError(f"{address} holds on one link only")
    if (
        address.is_multicast
        or address.is_unspecified
        or address.is_loopback
        or address == IPv4Address("255.255.255.255")
    ):
        raise ValueError(f"{address} is not the address of another host")
    return address


def asked(settings: ResponseSettings, alert: Alert, get: Callable[[str], str | None]) -> Asked | None:
    """What ``alert`` asks for by the first table that fits; None: nothing. ``get``: a field of its event."""
    if alert.rule_id == RULE or alert.kind == "fold":
        return None
    of = next((table for table in settings.block if fits(table, alert.level, alert.rule_id, alert.tags)), None)
    if of is None:
        return None
    if of.field:
        text = alert.fields.get(of.field) or alert.group_by.get(of.field) or get(of.field)
        if not text:
            return Asked(f"nothing blocked: the alert has no field {of.field}", "")
    else:
        addresses = list(dict.fromkeys(entity.value for entity in alert.entities if entity.kind == "ip"))
        if len(addresses) != 1:
            return Asked(f"nothing blocked: the alert has {len(addresses)} addresses, not one; name the field", "")
        text = addresses[0]
    try:
        address = address_of(text)
    except ValueError as error:
        return Asked(f"nothing blocked: {error}", "")
    if why := _allowed(settings.allow).why(address):
        return Asked(f"nothing blocked: {address} is allowed ({why})", "")
    verb = "would block" if settings.dry_run else "block"
    return Asked(f"{verb} {address} for {settings.ttl:g} s", str(address))


def marked(settings: ResponseSettings, alert: Alert, get: Callable[[str], str | None]) -> Alert:
    """Return ``alert`` with what it asks for, in its fields and flags; as it is when it asks for nothing."""
    asking = asked(settings, alert, get)
    if asking is None:
        return alert
    others = {name: value for name, value in alert.fields.items() if name not in TAKEN}
    own = {TEXT: asking.text, **({ADDRESS: asking.address} if asking.address else {})}
    return replace(alert, fields={**own, **others}, flags=(*alert.flags, FLAG))


def configured(allow: Iterable[str]) -> Iterable[tuple[Network, str]]:
    """What ``response.allow`` of the configuration allows."""
    return [(ip_network(text, strict=False), f"response.allow: {text}") for text in allow]


@lru_cache(maxsize=1)
def _allowed(allow: tuple[str, ...]) -> Allowed:
    return Allowed(configured(allow))


class Allowed:
    """Networks that are never blocked, each with the reason."""

    def __init__(self, networks: Iterable[tuple[Network, str]]) -> None:
        reasons: dict[Network, str] = {}
        for network, why in networks:
            reasons.setdefault(network, why)
        self.networks: Mapping[Network, str] = reasons

    def why(self, address: Address) -> str:
        """Why ``address`` is not blocked; empty: nothing allows it."""
        return next(
            (why for net, why in self.networks.items() if net.version == address.version and address in net), ""
        )
