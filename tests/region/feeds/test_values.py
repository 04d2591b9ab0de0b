"""Values and patterns of indicators, literal in, literal out."""

from __future__ import annotations

import pytest

from vedette.region.feeds.pattern import compared, kind_of
from vedette.region.feeds.values import Refused, canonical


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("ip", "203.0.113[.]7", ("ip", "203.0.113.7")),
        ("ip", "2001:DB8:0::7", ("ip", "2001:db8::7")),
        ("ip", "198.51.100.0/24", ("net", "198.51.100.0/24")),
        ("net", "198.51.100.9/24", ("net", "198.51.100.0/24")),
        ("net", "198.51.100.9/32", ("ip", "198.51.100.9")),
        ("domain", "*.Evil(.)EXAMPLE.", ("domain", "evil.example")),
        ("domain", "evil[dot]example", ("domain", "evil.example")),
        ("domain", "bücher.example", ("domain", "xn--bcher-kva.example")),
        ("url", "hxxps[://]Evil[.]example/A?b=[c]", ("url", "https://evil.example/A?b=[c]")),
        ("url", "hXXp://[2001:db8::1]/x", ("url", "http://[2001:db8::1]/x")),
        ("email", "Who[at]evil[.]example", ("email", "who@evil.example")),
        ("md5", " 0123456789ABCDEF0123456789abcdef ", ("md5", "0123456789abcdef0123456789abcdef")),
    ],
)
def test_one_form(kind: str, text: str, expected: tuple[str, str]) -> None:
    """What a feed writes, defanged or not, has one form."""
    assert canonical(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("ip", "10.1.2.3", "private or local"),
        ("ip", "::ffff:10.0.0.7", "private or local"),
        ("ip", "fe80::1%eth0", "private or local|not an address"),
        ("ip", "203.0.113.300", "not an address"),
        ("net", "0.0.0.0/0", "wider"),
        ("net", "2000::/3", "wider"),
        ("domain", "com", "one label"),
        ("domain", "203.0.113.7", "an address where"),
        ("domain", "evil..example", "not a domain"),
        ("domain", "evil{.example", "not a domain"),
        ("domain", "a.b\x1b[2J", "control"),
        ("url", "javascript:alert(1)", "not a URL"),
        ("url", "http://x/" + "a" * 3000, "more than 2048"),
        ("email", "nobody", "not an e-mail"),
        ("sha256", "abc", "64 hex digits"),
        ("sha1", "g" * 40, "40 hex digits"),
        ("ip", 7, "no text"),
        ("ip", "  ", "no text"),
        ("domain", "a\ud800.example", "control"),
    ],
)
def test_refused(kind: str, text: object, reason: str) -> None:
    """What is no indicator, or would match everything, is refused with a reason."""
    with pytest.raises(Refused, match=reason):
        canonical(kind, text)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("[ipv4-addr:value = '203.0.113.7']", [("ip", "203.0.113.7")]),
        ("[ ( url:value='http://a.example/\\'x\\\\' ) ]", [("url", "http://a.example/'x\\")]),
        ("[domain-name:value = 'AND'] OR ([ipv6-addr:value = '2001:db8::1'])",
         [("domain", "AND"), ("ip", "2001:db8::1")]),
        ("[domain-name:value IN ('a.example', 'b.example')]", [("domain", "a.example"), ("domain", "b.example")]),
        ("[ipv4-addr:value ISSUBSET '198.51.100.0/24']", [("ip", "198.51.100.0/24")]),
        ("[file:hashes.'SHA-256' = 'ab' OR file:hashes.MD5 = 'cd' OR file:hashes.\"SHA-1\" = 'ef']",
         [("sha256", "ab"), ("md5", "cd"), ("sha1", "ef")]),
        ("[file:name = 'x.exe']", [(None, "x.exe")]),
        ("[network-traffic:dst_ref.value = '203.0.113.7']", [("ip", "203.0.113.7")]),
        ("[x:y[*].z = 'a']", [(None, "a")]),
    ],
)  # fmt: skip
def test_comparisons(pattern: str, expected: list[tuple[str | None, str]]) -> None:
    """Comparisons with constants give these, whatever stands inside of the constants."""
    assert [(kind_of(path), text) for path, text in compared(pattern)] == expected


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("[a:b = 'x' AND c:d = 'y']", "with AND"),
        ("[a:b = 'x'] FOLLOWEDBY [c:d = 'y']", "with FOLLOWEDBY"),
        ("[a:b = 'x'] REPEATS 5 TIMES WITHIN 60 SECONDS", "with REPEATS"),
        ("[a:b = 'x'] START t'2026-01-01T00:00:00Z' STOP t'2026-02-01T00:00:00Z'", "with START"),
        ("[a:b NOT = 'x']", "with NOT"),
        ("[a:b != 'x']", "with !="),
        ("[a:b LIKE 'x%']", "with LIKE"),
        ("[a:b MATCHES '(a+)+$']", "with MATCHES"),
        ("[a:b > 5]", "with >"),
        ("[a:b = 5]", "no text"),
        ("[domain-name:value ISSUBSET 'x']", "not a STIX"),
        ("[a:b = 'x'", "not a STIX"),
        ("[a:b = 'x']]", "not a STIX"),
        ("[[a:b = 'x']]", "not a STIX"),
        ("(" * 30_000, "not a STIX"),
        ("[a:b = 'x' OR]", "not a STIX"),
        ("[a:b IN ('x',)]", "not a STIX"),
        ("[a:b IN ('x'", "not a STIX"),
        ("a:b = 'x'", "not a STIX"),
        ("[a:b = 'x\\']", "not a STIX"),
        ("rule x { condition: true }", "not a STIX"),
        ("", "not a STIX"),
        ("'" * 70_000, "more than 65536"),
    ],
)
def test_patterns_that_say_more(pattern: str, reason: str) -> None:
    """A pattern that is more than comparisons with constants is refused by the operator that makes it so."""
    with pytest.raises(Refused, match=reason):
        compared(pattern)
