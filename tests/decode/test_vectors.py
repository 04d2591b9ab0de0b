"""Real lines of other projects' tests, where they are at hand: how many give the host or the fields expected of them.

What differs is listed with its reason in ``docs/fields.md``; the counts here only may rise.
"""

from __future__ import annotations

import ipaddress
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from vedette.decode.decoder import ABSENT, record

DATA = Path(__file__).parents[2].parent / "shared" / "data"
NOW = 1_770_128_116_000_000


def text_of(name: str) -> str:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    return path.read_text("utf-8")


STAMPS = {
    "arubadate": "Feb 03 14:15:16 2026",
    "aruba_time": "2026-02-03 14:15:16,123",
    "iso_header": "2026-02-03T14:15:16.123",
    "timestamp": "2026-02-03T14:15:16.123Z",
    "delldt": "2026-02-03 14:15:16",
    "bsd_airwatch": "Feb 03 14:15:16",
}
"""Dates in place of the names that the vendors' lines have for them."""


def test_vendor_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Network and security devices' headers: the host."""
    counts: Counter[bool] = Counter()
    for vector in json.loads(text_of("vendor_syslog_lines.json")):
        wanted = vector["expect"].get("host")
        if wanted is None or "{{" in wanted:
            continue
        line = vector["line"]
        for name in vector["unresolved"]:
            line = line.replace("{{" + name + "}}", STAMPS.get(name, "2026-02-03 14:15:16"))
        host = record(line.encode(), "auto", received_at=NOW).host
        counts[(host or "").lower() == wanted.lower()] += 1
    with capsys.disabled():
        sys.stdout.write(f" vendor lines: {counts[True]} agree, {counts[False]} differ")
    assert counts[True] >= 181


def test_cef(capsys: pytest.CaptureFixture[str]) -> None:
    """CEF: header, extensions, host and time of those with expectations; the others give all seven parts or nothing."""
    vectors = json.loads(text_of("cef_vectors.json"))
    counts: Counter[bool] = Counter()
    for vector in vectors["jcustenborder"]:
        event = record(vector["input"].encode(), "auto", received_at=1_493_824_863_000_000)
        counts[not list(_differences(event, vector["expected"]))] += 1
    for vector in vectors["logstash_cef_messages"]:
        event = record(vector["line"].encode(), "auto", received_at=NOW)
        is_cef = "CEF:" in vector["line"]
        counts[isinstance(event.get("deviceEventClassId"), str) is is_cef] += 1
    with capsys.disabled():
        sys.stdout.write(f" CEF: {counts[True]} agree, {counts[False]} differ")
    assert counts == {True: 120}


def _differences(event: Any, expected: dict[str, Any]) -> Any:
    for name, wanted in expected.items():
        match name:
            case "extensions":
                yield from ((key, value) for key, value in wanted.items() if event.get(key) != value)
            case "timestamp":
                yield from [name] * (event.event_time != wanted * 1000)
            case "host":
                yield from [name] * (event.host != wanted)
            case "severity":
                yield from [name] * (event.get("cef_severity") != wanted)
            case _:
                yield from [name] * (event.get(name) != str(wanted))


AT_LEAST = {"sshd": 93, "sshd-journal": 76, "pam-generic": 3, "selinux-ssh": 5, "nginx-http-auth": 15}
"""Of services whose decoders are here."""


def test_failed_logins(capsys: pytest.CaptureFixture[str]) -> None:
    """Failed logins of many services: the peer's address as ``src_ip`` (an IPv4-mapped one counts as its IPv4)."""
    counts: dict[str, Counter[str]] = {}
    for line in text_of("failed_login_lines.jsonl").splitlines():
        vector = json.loads(line)
        wanted = vector["expect"].get("host")
        if not vector["expect"].get("match") or not wanted:
            continue
        found = record(vector["line"].encode(), "auto", received_at=NOW).get("src_ip")
        verdict = "none" if found is ABSENT else "right" if _plain(found) == _plain(wanted) else "wrong"
        counts.setdefault(vector["service"], Counter())[verdict] += 1
    right, wrong, none = (sum(count[verdict] for count in counts.values()) for verdict in ("right", "wrong", "none"))
    with capsys.disabled():
        precision, recall = right / (right + wrong), right / (right + wrong + none)
        sys.stdout.write(f" failed logins: {right} right, {wrong} wrong, {none} none:")
        sys.stdout.write(f" precision {precision:.3f}, recall {recall:.3f}")
    for service, least in AT_LEAST.items():
        assert counts[service]["right"] >= least, (service, counts[service])
    assert right >= 543
    assert wrong <= 3


def test_forged_addresses() -> None:
    """``src_ip=`` and the like in the user name of a failed login never become the peer."""
    forged, tried, services = "127.0.0.77", 0, set()
    for line in text_of("failed_login_lines.jsonl").splitlines():
        vector = json.loads(line)
        text: str = vector["line"]
        user = record(text.encode(), "auto", received_at=NOW).get("user")
        if not vector["expect"].get("match") or not isinstance(user, str) or len(user) < 2:
            continue
        services.add(vector["service"])
        for name in (f"{user} src_ip={forged}", f"src_ip={forged} {user}", f"{user},src_ip={forged} x"):
            for crafted in {text.replace(user, name, 1), name.join(text.rsplit(user, 1))}:
                tried += 1
                assert record(crafted.encode(), "auto", received_at=NOW).get("src_ip") != forged, crafted
    assert len(services) >= 20
    assert tried >= 500


def _plain(value: Any) -> str:
    try:
        address = ipaddress.ip_address(str(value))
    except ValueError:
        return str(value)
    return str(getattr(address, "ipv4_mapped", None) or address)


@pytest.mark.parametrize(("name", "service", "least"), [("Linux_2k.log", "", 1990), ("Apache_2k.log", "apache", 2000)])
def test_loghub(name: str, service: str, least: int) -> None:
    """Nearly every line of a real Linux and of a real Apache error log has a time, and its program or service."""
    good = 0
    for line in text_of(f"loghub/{name}").splitlines():
        event = record(line.encode(), "auto", received_at=NOW)
        told = service in event.source.services if service else event.get("program") is not None
        good += event.event_time is not None and told
    assert good >= least
