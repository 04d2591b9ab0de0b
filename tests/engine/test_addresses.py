"""One address is one, however it is written: in entities, networks, lookups, statements, indicators and searches."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from json import dumps
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.deep import examples
from tests.differences import walk
from tests.engine.by_kernel import HEAD, agree, needs_kernel
from tests.lookup.tables import lookup_of
from vedette.decode.decoder import record
from vedette.decode.entities import entities
from vedette.decode.redact import _canonical
from vedette.lookup.keys import canonical
from vedette.model.event import address, network
from vedette.plan.ir import Leaf, Op, Predicate
from vedette.region.feeds import values
from vedette.stream.functions.ip import FUNCTIONS
from vedette_console.data.query import Pattern, Term, parse

WRITTEN = [
    # (as it is written, the address)
    ("203.0.113.9", "203.0.113.9"),
    ("::ffff:203.0.113.9", "203.0.113.9"),
    ("::FFFF:203.0.113.9", "203.0.113.9"),
    ("::ffff:cb00:7109", "203.0.113.9"),
    ("0:0:0:0:0:ffff:203.0.113.9", "203.0.113.9"),
    ("[::ffff:203.0.113.9]", "203.0.113.9"),
    (" ::ffff:203.0.113.9%eth0 ", "203.0.113.9"),
    ("fe80::1%eth0", "fe80::1"),
    ("[FE80:0::1%25]", "fe80::1"),
    ("2001:DB8:0::1", "2001:db8::1"),
    ("::203.0.113.9", "::cb00:7109"),
    ("203.0.113.9.1", None),
    ("203.0.113.09", None),
    ("::ffff:203.0.113.256", None),
    ("fe80::1::%eth0", None),
    ("%eth0", None),
    ("web1", None),
]


@walk(("text", "expected"), WRITTEN)
def test_everywhere(text: str, expected: str | None, tmp_path: Path) -> None:
    """Entities, keys of lookups, statements, redaction, indicators and the console's search agree on it; a field's
    value stays as the event has it."""
    bare = text.strip()
    assert str(address(text)) == str(expected)
    found = [entity.value for entity in entities({"src_ip": text}, None) if entity.kind == "ip"]
    assert found == ([] if expected is None else [expected])
    assert record(b'{"src_ip": "%b"}' % text.encode(), "json").get("src_ip") == text
    assert canonical("ip", text) == (None if expected is None else ip_address(expected).packed)
    assert FUNCTIONS["IP_CANONICAL"].implementation(text) == expected
    if expected is None:
        return
    assert parse(f"ip:{bare}", datetime.now(UTC)).tree == Term("ip", Pattern((expected,)))
    assert _canonical(bare) == expected
    wide = "203.0.113.0/24" if "." in expected else str(ip_network(f"{expected}/64", strict=False))
    assert FUNCTIONS["IP_IN_CIDR"].implementation(text, str(network(wide))) is True
    for native in (False, True):
        lookup = lookup_of(tmp_path / f"{native}", "ip net", "ip:ip net:cidr", [(expected, wide)], native=native)
        assert lookup.contains("ip", text)
        assert lookup.contains("net", text)
        written = lookup_of(tmp_path / f"w{native}", "ip", "ip:ip", [(bare,)], native=native)
        assert written.contains("ip", expected)
    if "/" not in bare and "%" not in bare and "[" not in bare and expected.startswith("203."):
        assert values.canonical("ip", bare) == ("ip", expected)
    for mapped in ("::ffff:203.0.113.0/120",):
        assert (address(text) in network(mapped)) == expected.startswith("203.")


TEXTS = st.sampled_from([text for text, _ in WRITTEN]) | st.text(" []%:.0f1", max_size=12)


@needs_kernel
@examples(60)
@given(
    st.lists(TEXTS, min_size=1, max_size=12),
    st.sampled_from(["203.0.113.0/24", "::ffff:203.0.113.0/120", "fe80::/10", "::/0"]),
)
def test_networks_natively(texts: list[str], cidr: str) -> None:
    """The kernel and Python say the same of every text."""
    texts = ["203.0.113.9" if "." in cidr else "fe80::1", *texts]
    agree([f'{{"a":{dumps(text)}}}' for text in texts], Leaf(0), Predicate("a", Op.CIDR, cidr), codec="json")
    agree([f"{HEAD}{text}" for text in texts], Leaf(0), Predicate("message", Op.CIDR, cidr), codec="syslog")
