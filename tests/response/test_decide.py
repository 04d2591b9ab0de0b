"""What an alert asks for: which address, from where in it, and what may not be blocked."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delivery.kit import alert
from vedette.config.settings import BlockSettings, ResponseSettings
from vedette.model.event import Entity
from vedette.response.decide import RULE, Allowed, Asked, address_of, asked, configured

SETTINGS = ResponseSettings(enabled=True, allow=("10.0.0.0/8", "2001:db8::/32"), block=(BlockSettings(("*",)),))
FIELD = replace(SETTINGS, block=(BlockSettings(("*",), field="src"),))


def of(settings: ResponseSettings = SETTINGS, event: dict[str, str] | None = None, **changes: Any) -> Asked | None:
    one = replace(alert(1), **{"fields": {}, "group_by": {}, "entities": (), **changes})
    return asked(settings, one, (event or {}).get)


def ips(*values: str) -> tuple[Entity, ...]:
    return (Entity("user", "root"), *(Entity("ip", value) for value in values))


def test_the_only_address_of_the_alert() -> None:
    """Without a field it is the alert's entity of the kind ip, where all of these are one."""
    assert of(entities=ips("203.0.113.9", "203.0.113.9")) == ("block 203.0.113.9 for 3600 s", "203.0.113.9")
    assert of(entities=ips("203.0.113.9", "203.0.113.8")) == (
        "nothing blocked: the alert has 2 addresses, not one; name the field", "",
    )  # fmt: skip
    assert of(entities=ips()) == ("nothing blocked: the alert has 0 addresses, not one; name the field", "")


def test_a_field_of_alert_group_or_event() -> None:
    """In this order; entities do not count then."""
    event = {"src": "203.0.113.3"}
    for changes, expected in (
        ({"fields": {"src": "203.0.113.1"}, "group_by": {"src": "203.0.113.2"}}, "203.0.113.1"),
        ({"group_by": {"src": "203.0.113.2"}}, "203.0.113.2"),
        ({}, "203.0.113.3"),
    ):
        found = of(FIELD, event, entities=ips("203.0.113.4"), **changes)
        assert found is not None
        assert found.address == expected
    assert of(FIELD, entities=ips("203.0.113.4")) == ("nothing blocked: the alert has no field src", "")


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "203.0.113.9:80", "203.0.113.0/24", "example.com", "0.0.0.0", "255.255.255.255",
        "127.0.0.1", "::", "::1",
        "224.0.0.1", "ff02::1", "fe80::1%eth0", "fe80::1", "169.254.169.254",
        "1", "203.0.113.9 }; flush ruleset", "10.1.2.3", "2001:db8::1",
        "::ffff:10.1.2.3", "::ffff:127.0.0.1", "2001:db9::9%eth0", "2001:db9::9%x }\nflush ruleset\n#",
    ],
)  # fmt: skip
def test_what_is_not_blocked(text: str) -> None:
    """What is no address of one other host, or is allowed, in whatever form it is written."""
    found = of(FIELD, fields={"src": text})
    assert found is not None
    assert found.address == ""
    assert found.text.startswith("nothing blocked: ")


def test_which_alerts() -> None:
    """Rules, tags and level of the first table that fits; folds and reports of local response ask for nothing."""
    settings = replace(
        SETTINGS,
        block=(BlockSettings(("a*",), level="high", field="x"), BlockSettings(tags=("attack.*",), field="y")),
    )
    event = {"x": "203.0.113.1", "y": "203.0.113.2"}

    def address(**changes: Any) -> str | None:
        found = of(settings, event, **{"rule_id": "a1", "level": "high", "tags": (), **changes})
        return found and found.address

    assert address() == "203.0.113.1"
    assert address(level="low") is None
    assert address(level="low", tags=("attack.t1110",)) == "203.0.113.2"
    assert address(rule_id="b") is None
    assert address(kind="fold") is None
    assert of(rule_id=RULE, entities=ips("203.0.113.9")) is None


@given(st.ip_addresses(), st.lists(st.ip_addresses(network="10.0.0.0/8") | st.ip_addresses(v=6), max_size=4))
def test_no_allowed_address_is_asked_for(address: Any, allowed: list[Any]) -> None:
    """For any address and any networks: asked for exactly when none of them holds it."""
    networks = tuple(f"{one}/{one.max_prefixlen // 2}" for one in allowed)
    settings = replace(FIELD, allow=networks)
    held = Allowed(configured(settings.allow))
    found = of(settings, fields={"src": str(address)})
    assert found is not None
    try:
        expected = address_of(str(address))
    except ValueError:
        assert found.address == ""
        return
    inside = any(expected in net for net in held.networks if net.version == expected.version)
    assert bool(held.why(expected)) == inside
    assert found.address == ("" if inside else str(expected))
    assert ip_address(str(expected)) == expected
