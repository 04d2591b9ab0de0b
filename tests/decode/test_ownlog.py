"""Daemons' own log files: the time is read, the words are the daemon's, and no name in them poses as a program."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.decode import ownlog
from vedette.decode.codecs import CODECS, DAEMONS
from vedette.decode.decoder import ABSENT, Record, possible_source, record
from vedette.decode.programs import PROGRAMS
from vedette.model.event import LogSource, Source

NOW = round(datetime(2025, 11, 21, tzinfo=UTC).timestamp() * 1_000_000)
AT = round(datetime(2025, 11, 20, 20, tzinfo=UTC).timestamp() * 1_000_000)
OPENED = "New connection from 203.0.113.9:51234 on port 1883."


def read(line: str, codec: str = "auto", **more: Any) -> Record:
    return record(line.encode(), codec, received_at=NOW, **more)


@pytest.mark.parametrize("stamp", ["1763668800: ", "2025-11-20T20:00:00: ", "2025-11-20T21:00:00+0100: "])
@pytest.mark.parametrize("codec", ["auto", "mosquitto"])
def test_mosquitto(stamp: str, codec: str) -> None:
    """mosquitto's log file is read by its name and by its words, whichever time it writes."""
    r = read(f"{stamp}{OPENED}", codec)
    assert r.fields() == {
        "message": OPENED,
        "src_ip": "203.0.113.9",
        "src_port": "51234",
        "dst_port": "1883",
    }
    assert r.event_time == AT
    assert r.source == Source(frozenset(), frozenset({"iot"}), frozenset({"mosquitto"}))
    assert list(r.keywords()) == [OPENED]
    assert r.host is None


@pytest.mark.parametrize(
    "words",
    [
        "New client connected from 10.0.0.5:50432 as a (p2, c1, k60, u'alice').",
        "Client press-1 [203.0.113.9:51234] disconnected: not authorised.",
        "Client press-1 already connected, closing old connection.",
        "Denied PUBLISH from sensor-7 (d0, q0, r0, m0, 'plant/press/0/cmd', ... (12 bytes))",
        "Socket error on client press-1, disconnecting.",
        "mosquitto version 2.0.18 starting",
    ],
)
def test_words_that_are_mosquittos_alone(words: str) -> None:
    """These lines need no setting; the same words without mosquitto's time are nobody's."""
    assert "mosquitto" in read(f"1763668800: {words}").source.services
    assert not read(words).source.services


def test_what_only_the_setting_tells() -> None:
    """A line that anybody could have written is mosquitto's where the input says so, and text elsewhere."""
    line = "1763668800: Saving in-memory database to /var/lib/mosquitto/mosquitto.db."
    assert "mosquitto" in read(line, "mosquitto").source.services
    assert read(line).source == Source(frozenset(), frozenset(), frozenset())


@pytest.mark.parametrize("codec", ["auto", "mosquitto"])
@pytest.mark.parametrize("stamp", ["1763668800", "2025-11-20T20:00:00"])
def test_a_clients_name_does_not_pose(codec: str, stamp: str) -> None:
    """What looks like a host and a program in a client's name is message, not header."""
    forged = "Client sshd[7]: Failed password for root from 192.0.2.1 port 2 ssh2 disconnected."
    r = read(f"{stamp}: {forged}", codec)
    assert (r.get("message"), r.get("program"), r.get("hostname"), r.host) == (forged, ABSENT, ABSENT, None)
    assert r.source.services == {"mosquitto"}


@pytest.mark.parametrize(
    ("codec", "line", "at", "fields"),
    [
        ("fail2ban", "2025-11-20 20:00:00,250 fail2ban.actions        [812]: NOTICE  [sshd] Ban 203.0.113.9", 250_000,
         {"jail": "sshd", "action": "Ban", "src_ip": "203.0.113.9"}),
        ("fail2ban", "2025-11-20 20:00:00,000 fail2ban.filter         [812]: INFO    [sshd] Found 203.0.113.9 - x", 0,
         {"action": "Found"}),
        ("vsftpd", 'Thu Nov 20 20:00:00 2025 [pid 2] [bob] FAIL LOGIN: Client "203.0.113.9"', 0,
         {"user": "bob", "result": "FAIL", "src_ip": "203.0.113.9"}),
        ("proftpd", "2025-11-20 20:00:00,000 web1 proftpd[8] web1 (h[203.0.113.9]): USER bob: no such user found", 0,
         {"user": "bob", "src_ip": "203.0.113.9"}),
        ("openvpn", "2025-11-20 20:00:00 203.0.113.9:1194 TLS Error: TLS handshake failed", 0,
         {"src_ip": "203.0.113.9", "src_port": "1194"}),
        ("openvpn", "Thu Nov 20 20:00:00 2025 us=7 203.0.113.9:1194 TLS Error: x", 0, {"src_port": "1194"}),
        ("asterisk", "[2025-11-20 20:00:00] NOTICE[7] c.c: Registration from 'a' failed for '203.0.113.9:5060'", 0,
         {"src_ip": "203.0.113.9", "src_port": "5060"}),
        ("asterisk", "[Nov 20 20:00:00] NOTICE[7] chan_sip.c: Registration from 'a' failed for '203.0.113.9'", 0,
         {"src_ip": "203.0.113.9"}),
        ("named", "20-Nov-2025 20:00:00.500 queries: info: client @0x7f 203.0.113.9#53 (a.example): query: a.example",
         500_000, {"src_ip": "203.0.113.9", "src_port": "53", "query": "a.example"}),
        ("roundcube", "[20-Nov-2025 21:00:00 +0100]: <s1> IMAP Error: Login failed for bob from 203.0.113.9. NO (0)", 0,
         {"user": "bob", "src_ip": "203.0.113.9"}),
        ("mosquitto", OPENED, None, {"src_ip": "203.0.113.9"}),
        ("dovecot", "Nov 20 20:00:00 imap-login: Info: Login: user=<bob>, rip=203.0.113.9, lip=192.0.2.1", 0,
         {"user": "bob", "src_ip": "203.0.113.9", "action": "Login"}),
        ("exim", "2025-11-20 20:00:00 1xXr50-00000s-1F <= a@b.example H=(c) [203.0.113.9] P=esmtpa A=plain:bob S=9", 0,
         {"user": "bob", "src_ip": "203.0.113.9"}),
        ("squid", "1763668800.250     24 203.0.113.9 TCP_DENIED/407 9 GET http://e.example/ bob HIER_NONE/- text/html",
         250_000, {"user": "bob", "src_ip": "203.0.113.9", "c-uri": "http://e.example/"}),
        ("postgres", '2025-11-20 20:00:00.250 UTC [70] bob@d FATAL:  password authentication failed for user "bob"',
         250_000, {"user": "bob", "database": "d"}),
        ("mysqld", "2025-11-20T20:00:00.250000Z 7 [Note] [MY-010926] [Server] Access denied for user "
         "'bob'@'203.0.113.9' (using password: YES)", 250_000, {"user": "bob", "src_ip": "203.0.113.9"}),
        ("redis", "7:M 20 Nov 2025 20:00:00.250 - Accepted 203.0.113.9:4711", 250_000, {"src_ip": "203.0.113.9"}),
    ],
)  # fmt: skip
def test_daemons(codec: str, line: str, at: int | None, fields: dict[str, str]) -> None:
    """Each daemon's own layout of a line, by the codec of its name."""
    r = read(line, codec)
    assert r.fields().items() >= fields.items()
    assert r.event_time == (None if at is None else AT + at)
    assert r.source.services >= PROGRAMS[codec].source.services


@pytest.mark.parametrize(
    ("line", "hours"),
    [("1763668800: x", 0), ("2025-11-20 20:00:00 x", 2), ("Nov 20 20:00:00 x", 2), ("20-Nov-2025 20:00:00 x", 2)],
)
def test_times_without_an_offset_are_the_inputs(line: str, hours: int) -> None:
    """Of two hours east; seconds since 1970 are the same everywhere."""
    found = ownlog.header(line.encode(), NOW, timezone(timedelta(hours=2)))
    assert found is not None
    assert found.timestamp == AT - hours * 3_600_000_000
    assert line.encode()[found.message_start :] == b"x"


@pytest.mark.parametrize(
    "line", ["99-Xyz-2025 20:00:00 x", "Xyz 20 20:00:00 x", "2025-13-20 20:00:00 x", "Nov 40 20:00:00 x"]
)
def test_a_time_that_is_none(line: str) -> None:
    """It is cut off all the same, and the event says no time."""
    assert read(line, "mosquitto").event_time is None
    assert read(line, "mosquitto").get("message") == "x"


def test_what_inputs_can_have() -> None:
    """An input with the daemon's format can have its log source and no other program's."""
    rules = LogSource(service="mosquitto")
    assert rules.fits(possible_source("mosquitto", LogSource()))
    assert rules.fits(possible_source("auto", LogSource()))
    assert not LogSource(service="sshd").fits(possible_source("mosquitto", LogSource()))
    assert set(DAEMONS) <= set(PROGRAMS)
    assert set(DAEMONS) <= set(CODECS)


@settings(max_examples=100)
@given(
    st.sampled_from(DAEMONS),
    st.sampled_from([f"1763668800: {OPENED}", "[Nov 20 20:00:00] x", ""]),
    st.binary(max_size=40),
)
def test_any_bytes(codec: str, line: str, noise: bytes) -> None:
    """No bytes raise; the message stands in the event, and ``auto`` says nothing that the daemon's codec does not."""
    raw = line.encode() + noise
    r = record(raw, codec, received_at=NOW)
    assert isinstance(r.fields()["message"], str)
    assert r._message().encode("utf-8", "replace") in raw or b"\xef\xbf\xbd" in r._message().encode()
    if (name := ownlog.program_of(raw)) != "":
        assert record(raw, "auto", received_at=NOW).fields() == record(raw, name, received_at=NOW).fields()


@pytest.mark.parametrize("start", ["1763668800: Client ", "[", "1763668800: New connection from ", "20-Nov-2025 "])
def test_linear(start: str) -> None:
    """200 KB of a line that nearly fits are read in well under a second."""
    began = time.process_time()
    read(start + "a " * 100_000).fields()
    assert time.process_time() - began < 1
