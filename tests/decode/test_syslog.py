"""The syslog header parser: literal messages in, headers out; and it is total, linear and agrees with its slow form."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vedette.decode import syslog
from vedette.decode.syslog import Header, parse

DATA = Path(__file__).parents[2].parent / "shared" / "data"
NOW = 1_795_600_000_000_000  # 2026-11-25


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000)


def vectors(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not here")
    loaded: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return loaded


@pytest.mark.parametrize(
    ("raw", "host", "app", "pid", "message"),
    [
        (b"<38>Nov 20 10:00:00 web1 sshd[7]: hello", "web1", "sshd", "7", b"hello"),
        (b"Nov  2 10:00:00 web1 kernel: hello", "web1", "kernel", None, b"hello"),
        (b"<38>Nov 20 10:00:00 sshd[7]: hello", None, "sshd", "7", b"hello"),
        (b"<38>Nov 20 10:00:00 web1 hello there", "web1", None, None, b"hello there"),
        (b"<38>Nov 20 10:00:00 web1 /usr/sbin/cron[7]: hello", "web1", "/usr/sbin/cron", "7", b"hello"),
        (b"<38>Nov 20 10:00:00 web1 sshd(pam_unix)[7]: hello", "web1", "sshd(pam_unix)", "7", b"hello"),
        (b"<38>Nov 20 10:00:00 2001:db8::1 sshd[7]: hello", "2001:db8::1", "sshd", "7", b"hello"),
        (b"<38>Nov 20 10:00:00 web1 notice tmsh[7]: hello", "web1", "tmsh", "7", b"hello"),
        (b"<38>Nov 20 10:00:00 fw1 : %ASA-6-302013: Built", "fw1", "%ASA-6-302013", None, b"Built"),
        (
            b"<189>45: *Nov 20 10:00:00.123 UTC: %SYS-5-CONFIG_I: Configured",
            None,
            "%SYS-5-CONFIG_I",
            None,
            b"Configured",
        ),
        (b"<187>46: rtr1: *Mar  1 18:46:12.123: %SYS-5-CONFIG_I: hello", "rtr1", "%SYS-5-CONFIG_I", None, b"hello"),
        (b"<187>rtr1: 000046: Mar  1 18:46:12 CET: %SYS-5-CONFIG_I: hello", "rtr1", "%SYS-5-CONFIG_I", None, b"hello"),
        (b"<187>46: 10.0.0.1: .Mar  1 18:46:12: %SYS-5-CONFIG_I: hello", "10.0.0.1", "%SYS-5-CONFIG_I", None, b"hello"),
        (b"<187>46: 000046: *Mar  1 18:46:12: %SYS-5-CONFIG_I: hello", None, "%SYS-5-CONFIG_I", None, b"hello"),
        (b"<187>46: rtr1: 3w2d: %SYS-5-CONFIG_I: hello", "rtr1", "%SYS-5-CONFIG_I", None, b"hello"),
        (b"<187>46: 1:02:03: %SYS-5-CONFIG_I: hello", None, "%SYS-5-CONFIG_I", None, b"hello"),
        (b"<189>Nov 20 10:00:00 rtr1 46: *Mar  1 18:46:12: %SYS-5-CONFIG_I: x", "rtr1", "%SYS-5-CONFIG_I", None, b"x"),
        (b"%LINEPROTO-5-UPDOWN: Line protocol", None, "%LINEPROTO-5-UPDOWN", None, b"Line protocol"),
        (b"<187>sw1: %LINEPROTO-5-UPDOWN: hello", None, "sw1", None, b"%LINEPROTO-5-UPDOWN: hello"),
        (b"<38>sshd[7]: %SYS-5-CONFIG_I: hello", None, "sshd", "7", b"%SYS-5-CONFIG_I: hello"),
        (b"<38>Nov 20 2026 10:00:00: web1 app: hello", "web1", "app", None, b"hello"),
        (b"<38>2026-11-20T10:00:00Z web1 app[7]: hello", "web1", "app", "7", b"hello"),
        (b"2026-11-20T10:00:00.123456+00:00 web1 app[7]: hello", "web1", "app", "7", b"hello"),
        (b"2026-11-20 10:00:00,123 ERROR something broke", None, None, None, b"ERROR something broke"),
        (b"<27>xapi: [error] hello", None, "xapi", None, b"[error] hello"),
        (b"<13>just words", None, None, None, b"just words"),
        (b"<134>1 1795168800.774247467 MX84 flows allow", "MX84", None, None, b"flows allow"),
        (b"<34>1 2026-11-20T10:00:00Z web1 su 7 ID47 - hello", "web1", "su", "7", b"hello"),
        (b"<34>1 2026-11-20T10:00:00Z web1 su - - - \xef\xbb\xbfhello", "web1", "su", None, b"hello"),
        (b"<34>1 - - - - - -", None, None, None, b""),
        (b"<34>1 2026-11-20T10:00:00Z web1 su - - no structured data", "web1", "su", None, b"no structured data"),
        (b'<34>1 2026-11-20T10:00:00Z web1 su - - [broken a="b] hi', "web1", "su", None, b'[broken a="b] hi'),
        (b"<111>1 2026-11-20T10:00:00Z web1 LEEF:1.0|V|P", "web1", None, None, b"LEEF:1.0|V|P"),
        (b"<38>Nov 20 10:00:00 web1 CEF:0|V|P", "web1", None, None, b"CEF:0|V|P"),
        (b"<38> CEF:0|V|P", None, None, None, b" CEF:0|V|P"),
        (b"1795168800000 web1 CEF:0|V|P", "web1", None, None, b"CEF:0|V|P"),
        (b"Nov 20 10:00:00.000 UTC web1 CEF:0|V|P", "web1", None, None, b"CEF:0|V|P"),
        (b"<38>Nov 20 10:00:00 user.info web1 authp:  hello", "web1", "authp", None, b" hello"),
        (b"<38>Nov 20 10:00:00 slot1/web1 notice tmsh[7]: hello", "web1", "tmsh", "7", b"hello"),
        (b"<38>2026-11-20T10:00:00Z web1,f5_irule=x,vip=y", "web1", None, None, b"f5_irule=x,vip=y"),
        (b"<12> 11/20/2026:10:00:00 GMT web1 0-PPE-0 : default TCP x", "web1", None, None, b"0-PPE-0 : default TCP x"),
        (b"2026-11-20T10:00:00.123456789012Z web1 app[7]: hello", "web1", "app", "7", b"hello"),
        (b'2026-11-20T10:00:00Z web1 {"a": 1}', "web1", None, None, b'{"a": 1}'),
        (b'2026-11-20T10:00:00+01:00 2001:db8::1 {"a": 1}', "2001:db8::1", None, None, b'{"a": 1}'),
        (b'2026-11-20T10:00:00Z WARN {"a": 1}', None, None, None, b'WARN {"a": 1}'),
        (b'2026-11-20 10:00:00 web1 {"a": 1}', None, None, None, b'web1 {"a": 1}'),
        (b"2026-11-20T10:00:00Z web1 {a b}", None, None, None, b"web1 {a b}"),
        (b"<38>Nov 20 10:00:00 Message forwarded from aix1: sshd[7]: hello", "aix1", "sshd", "7", b"hello"),
        (b"Nov 20 10:00:00 relay Message forwarded from 2001:db8::9: su: hello", "2001:db8::9", "su", None, b"hello"),
        (b"<38>Nov 20 10:00:00 Message forwarded from aix1: hello there", "aix1", None, None, b"hello there"),
        (
            b"<38>Nov 20 10:00:00 h app: Message forwarded from x: y: z",
            "h",
            "app",
            None,
            b"Message forwarded from x: y: z",
        ),
        (b"web1 sshd[7]: hello", "web1", "sshd", "7", b"hello"),
        (b"sshd[7]: hello", None, "sshd", "7", b"hello"),
    ],
)
def test_headers(raw: bytes, host: str | None, app: str | None, pid: str | None, message: bytes | None) -> None:
    """Every form that the module's text names gives host, tag, pid and where the message begins."""
    header = parse(raw, NOW)
    assert header is not None
    assert (header.host, header.app, header.pid) == (host, app, pid)
    if message is not None:
        assert raw[header.message_start :] == message


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"<", b"plain text", b'{"a": 1}', b"\xff\0\xfe", b"<192>app: x",
        b"<192>Nov 20 10:00:00 web1 app: x", b"<192>1 2026-11-20T10:00:00Z web1 app 7 ID47 x",
    ],
)  # fmt: skip
def test_not_syslog(raw: bytes) -> None:
    """What begins with neither a priority nor a time has no header."""
    assert parse(raw, NOW) is None


def test_priority_and_structured_data() -> None:
    """Facility and severity come from the priority; structured data is unescaped and keeps repeated names."""
    raw = rb'<165>1 2026-11-20T10:00:00.5+01:00 h a - - [x@1 p="a\"b\\c\]d" q="1" q="2"][y z="\n"] hi'
    header = parse(raw, NOW)
    assert header is not None
    assert (header.priority, header.field("facility"), header.field("severity"), header.version) == (
        165,
        "local4",
        "notice",
        1,
    )
    assert header.structured_data == {"x@1": {"p": 'a"b\\c]d', "q": ["1", "2"]}, "y": {"z": "\\n"}}
    assert raw[header.message_start :] == b"hi"
    assert header.timestamp == us("2026-11-20T09:00:00.500000")


@pytest.mark.parametrize(
    ("stamp", "received", "expected"),
    [
        ("Nov 20 10:00:00", "2026-11-20T10:00:01", "2026-11-20T10:00:00"),
        ("Dec 31 23:59:59", "2027-01-01T00:00:05", "2026-12-31T23:59:59"),
        ("Jan  1 00:00:03", "2026-12-31T23:59:58", "2027-01-01T00:00:03"),
        ("Nov 25 10:00:00", "2026-11-20T10:00:00", "2025-11-25T10:00:00"),
        ("Feb 29 12:00:00", "2027-03-01T00:00:00", "2024-02-29T12:00:00"),
        ("Jun 30 23:59:60", "2026-11-20T10:00:00", "2026-06-30T23:59:59"),
    ],
)
def test_year_is_inferred(stamp: str, received: str, expected: str) -> None:
    """A yearless time is the last such date at most two days after the arrival, over New Year and leap days."""
    header = parse(f"<13>{stamp} web1 app: x".encode(), us(received))
    assert header is not None
    assert header.timestamp == us(expected)


@pytest.mark.parametrize(
    ("stamp", "received"), [("Feb 31 10:00:00", NOW), ("Nov 20 25:00:00", NOW), ("Nov 20 10:00:00", 0)]
)
def test_no_timestamp(stamp: str, received: int) -> None:
    """An impossible time, or a yearless one that arrived at an unknown time, is none; the rest of the header stands."""
    header = parse(f"<13>{stamp} web1 app: x".encode(), received)
    assert header is not None
    assert (header.timestamp, header.host, header.app) == (None, "web1", "app")


@pytest.mark.parametrize(
    "stamp", ["Nov 20 10:00:00.25", "Nov 20 10:00:00.250000999", "1795168800.25", "2026-11-20T10:00:00.25Z"]
)
def test_fraction(stamp: str) -> None:
    """Of a second, in as many digits as it has."""
    header = parse(f"<13>{stamp} web1 app: x".encode(), NOW)
    assert header is not None
    assert header.timestamp == us("2026-11-20T10:00:00.250000")


def test_zone() -> None:
    """Times without an offset are in the input's zone; of the hour that occurs twice the later one, if it can be."""
    vienna = ZoneInfo("Europe/Vienna")
    summer = parse(b"<13>Jul  1 12:00:00 h a: x", NOW, vienna)
    assert summer is not None
    assert summer.timestamp == us("2026-07-01T10:00:00")
    twice = b"<13>Oct 25 02:30:00 h a: x"
    early, late = parse(twice, us("2026-10-25T00:31:00") - 3_600_000_000, vienna), parse(twice, NOW, vienna)
    assert early is not None
    assert late is not None
    assert (early.timestamp, late.timestamp) == (us("2026-10-25T00:30:00"), us("2026-10-25T01:30:00"))


@pytest.mark.parametrize("names", ["", "app ", "app 7 ", "- - "])
@pytest.mark.parametrize("message", ["CEF:0|A B|C|1|2|n|5|src=192.0.2.1", "LEEF:2.0|A|B|1|2|^|src=192.0.2.1^x=a b c"])
def test_rfc5424_that_lacks_names(names: str, message: str) -> None:
    """A device that leaves names out before CEF or LEEF: these begin the message, and are no names."""
    raw = f"<134>1 2026-02-03T14:15:16Z fw1 {names}{message}".encode()
    header = parse(raw, NOW)
    assert header is not None
    assert (header.host, raw[header.message_start :].decode()) == ("fw1", message)
    assert (header.app, header.pid) == (
        "app" if "app" in names else None,
        "7" if "7" in names else None,
    )


_WORD = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789._-/", min_size=1, max_size=12)
_STAMP = st.sampled_from(["Nov 20 10:00:00", "Jan  1 00:00:00", "Feb 29 12:34:56", "Nov  2 23:59:59"])


@settings(max_examples=100)
@example("", "Nov 20 10:00:00", "-", "app", "", "no host")
@given(
    st.sampled_from(["", "<0>", "<38>", "<191>"]),
    _STAMP,
    _WORD,
    _WORD,
    st.sampled_from(["", "[7]"]),
    st.text(max_size=20),
)
def test_fast_path_equals_slow(pri: str, stamp: str, host: str, app: str, pid: str, message: str) -> None:
    """The one-regex path for plain RFC 3164 gives what the general reader gives."""
    raw = f"{pri}{stamp} {host} {app}{pid}: {message}".encode()
    assert parse(raw, NOW) == syslog._legacy(raw, NOW, None)


@settings(max_examples=100)
@given(st.one_of(st.binary(max_size=80), st.text('<>0123456789 -:[]="\\TZNov1abc\n', max_size=80).map(str.encode)))
def test_total(raw: bytes) -> None:
    """Any bytes give a header within the event, or none; nothing raises."""
    header = parse(raw, NOW)
    assert header is None or (isinstance(header, Header) and 0 <= header.message_start <= len(raw))


@pytest.mark.parametrize(
    "raw",
    [
        b"<1>" + b" " * 1_000_000,
        b"<1>1 - - - - - " + b'[a b="c"]' * 100_000,
        b'<1>1 - - - - - [a b="' + b"\\" * 1_000_000,
        b"<1>1 - - - - - [a" + b' b="c"' * 150_000,
        b"Nov 20 10:00:00 " + b"a" * 1_000_000,
        b"Nov 20 10:00:00 h " + b"a" * 1_000_000,
        b"<1>1 " + b"- " * 500_000,
        b"2026-11-20T10:00:00." + b"1" * 1_000_000,
        b"<1>Nov 20 10:00:00 Message forwarded from " + b"a:" * 500_000,
        b"2026-11-20T10:00:00Z h " + b"{ " * 500_000,
        b"<1>%A-1-B" + b" " * 1_000_000 + b"%A-1-B: x",
        b"<1>7: h: %A-1-B" + b"7: " * 300_000,
        b"<1>" + b"a" * 400 + b": Nov 20 10:00:00." + b"1" * 1_000_000 + b" %A-1-B",
        b"<1>Nov 20 10:00:00 h %A-1-" + b"%A-1-B" * 100_000,
        b"<1>Nov 20 10:00:00 h Nov 20 10:00:00 " * 30_000,
        b"<1>Nov 20 10:00:00 [" + b"a" * 1_000_000,
    ],
    ids=range(16),
)
def test_linear(raw: bytes) -> None:
    """A megabyte that is made to make patterns backtrack takes well under a second."""
    began = time.process_time()
    parse(raw, NOW)
    assert time.process_time() - began < 1


def test_rfc_vectors() -> None:
    """Every valid message of the RFC vectors gives its fields; SD values are unescaped, which theirs are not."""
    for vector in vectors("syslog_vectors_rfc.json"):
        raw = vector["input"].encode()
        header = parse(raw, NOW)
        if not vector["valid"]:
            continue
        assert header is not None, vector
        expect = vector["expect"]
        got = {
            "priority": header.priority,
            "facility": None if header.priority is None else header.priority >> 3,
            "severity": None if header.priority is None else header.priority & 7,
            "hostname": header.host,
            "appname": header.app,
            "procid": header.pid,
            "msgid": header.msgid,
            "version": header.version,
            "message": raw[header.message_start :].decode(),
        }
        for name, value in got.items():
            if name in expect or name in ("hostname", "appname", "procid", "msgid"):
                assert value == expect.get(name), (name, vector)
        triples = [[e, n, v] for e, ps in header.structured_data.items() for n, v in ps.items()]
        unescaped = [[e, n, syslog._SD_ESCAPE.sub(r"\1", v)] for e, n, v in expect.get("structured_data", [])]
        assert triples == unescaped, vector


RSYSLOG_TAKES_A_WORD_AS_TAG = {"tag", '05"', "--", "#001", "is", "A" * 46}
"""Programs that rsyslog finds where no colon follows the word; here such a word belongs to the message."""


def test_legacy_vectors() -> None:
    """The legacy vectors give their host, program and message, but for words without a colon and a year as host."""
    checked = 0
    for vector in vectors("syslog_vectors_legacy.json"):
        expect = vector["expect"]
        if not isinstance(expect, dict) or (
            expect["programname"] in RSYSLOG_TAKES_A_WORD_AS_TAG
            and (expect["tag"] == expect["programname"] or "result_code" in expect["tag"])
        ):
            continue
        if expect.get("hostname") == "2009":
            continue
        raw = vector["input"].encode()
        header = parse(raw, NOW)
        assert header is not None, vector
        host = "" if expect.get("hostname") == "$RS_HOSTNAME" else expect.get("hostname", "")
        assert (header.host or "", header.app or "") == (host, expect["programname"]), vector
        assert raw[header.message_start :].decode().strip() == expect["msg"].strip(), vector
        assert (header.priority if header.priority is not None else 13) == int(expect["PRI"])
        if header.priority is not None:
            assert syslog.FACILITIES[header.priority >> 3] == expect["facility"]
            assert syslog.SEVERITIES[header.priority & 7] == expect["severity"]
        checked += 1
    assert checked >= 24
