"""Headers as devices and relays really write them: the makers' forms, zones and names where no RFC has them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from tests.differences import walk
from vedette.decode.decoder import ABSENT, record
from vedette.decode.syslog import parse
from vedette.model.times import ZONES, stamped_zone

NOW = 1_795_860_000_000_000  # 2026-11-28T10:00Z
AT = "2026-11-28T03:29:33+00:00"

CISCO = [
    # Cisco's "System Message Logging" of IOS, NX-OS, IOS-XR; ASA's and FTD's syslog guides
    ("IOS", "<189>7: Nov 28 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", None, AT),
    ("IOS, year", "<189>7: *Nov 28 2026 03:29:33.000 UTC: %SYS-5-CONFIG_I: Hi", None, AT),
    ("IOS, zone", "<189>7: sw1: Nov 28 04:29:33.000 CET: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("IOS, own zone", "<189>7: sw1: Nov 28 03:29:33.000 VIENN: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("IOS, zone in small", "<190>7: 8: Nov 27 2026 20:29:33.000 mst: %SYS-5-CONFIG_I: Hi", None, AT),
    ("IOS, offset", "<189>7: sw1: Nov 28 04:29:33.000 UTC+1: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("IOS, half hours", "<189>7: sw1: Nov 28 08:59:33.000 UTC+05:30: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("IOS, no number", "<189>: sw1: Nov 28 2026 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("IOS, nothing before", "<189>: Nov 28 2026 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", None, AT),
    ("IOS, two numbers", "<189>7: sw1: 000008: Nov 28 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("IOS, no colon", "<189>7: 192.0.2.1 8: Nov 28 2026 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", "192.0.2.1", AT),
    ("IOS, IPv6", "<189>7: 2001:db8::: 8: Nov 28 2026 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", "2001:db8::", AT),
    ("IOS, uptime", "<189>7: sw1: 000008: 2y10w: %SYS-5-CONFIG_I: Hi", "sw1", None),
    ("IOS, a relay", "<189>Nov 28 03:29:34 192.0.2.1 sw1: 8: Nov 28 2026 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("IOS, numbered", "<189>7: Nov 28 03:29:34 h s1: 8: Nov 28 2026 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", "s1", AT),
    ("IOS, a file", "Nov 28 03:29:34 192.0.2.1 <189>7: 8: Nov 28 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", "192.0.2.1", AT),
    ("IOS, its zone left", "<189>Nov 28 03:29:33 sw1 AEST: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("NX-OS", "<189>: 2026 Nov 28 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", None, AT),
    ("NX-OS, zone", "<189>: 2026 Nov 27 19:29:33 PST: %SYS-5-CONFIG_I: Hi", None, AT),
    ("ACI", "<189>: 2026 Nov 28 03:29:33 UTC : %SYS-5-CONFIG_I: Hi", None, AT),
    ("NX-OS, origin", "<189>sw1: 2026 Nov 28 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("NX-OS, a relay", "<189>Nov 28 03:29:34 sw1 : 2026 Nov 28 03:29:33.000 UTC: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("NX-OS, two times", "<189>Nov 28 03:29:34 sw1 2026 Nov 28 03:29:33.000 UTC: %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("NX-OS, its file", "2026 Nov 28 03:29:33 sw1 %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("IOS-XR", "<189>7: RP/0/RSP0/CPU0:Nov 28 03:29:33.000 UTC: config[65]: %SYS-5-CONFIG_I : Hi", None, AT),
    ("IOS-XR, year", "<189>7: r1 RP/0/RSP0/CPU0:2026 Nov 28 03:29:33.000 : config[65]: %SYS-5-CONFIG_I : Hi", "r1", AT),
    ("IOS-XR, relay", "<189>Nov 28 03:29:34 r1 LC/0/0/CPU0:Nov 28 03:29:33 UTC: nf[2]: %SYS-5-CONFIG_I : Hi", "r1", AT),
    ("IOS-XR, own zone", "<189>7: RP/0/RP0/CPU0:Nov 28 03:29:33.000 ALA: config[65]: %SYS-5-CONFIG_I : Hi", None, AT),
    ("RFC 5424", "<189>1 2026-11-28T03:29:33.000Z sw1 - - - - %SYS-5-CONFIG_I: Hi", "sw1", AT),
    ("ASA", "<166>Nov 28 2026 03:29:33: %SYS-5-CONFIG_I: Hi", None, AT),
    ("ASA, device-id", "<166>Nov 28 2026 03:29:33 fw1 : %SYS-5-CONFIG_I: Hi", "fw1", AT),
    ("ASA, host", "Nov 28 03:29:33 fw1: %SYS-5-CONFIG_I: Hi", "fw1", AT),
    ("ASA, EMBLEM", "<166>:Nov 28 03:29:33 UTC: %SYS-5-CONFIG_I: Hi", None, AT),
    ("ASA, zone", "<166>Nov 27 2026 22:29:33 EST: %SYS-5-CONFIG_I: Hi", None, AT),
    ("ASA, RFC 5424's time", "<166>2026-11-28T03:29:33Z fw1 : %SYS-5-CONFIG_I: Hi", "fw1", AT),
    ("FTD", "<166>2026-11-28T03:29:33Z %SYS-5-CONFIG_I: Hi", None, AT),
    ("ASA, no colon", "<166>Nov 28 2026 03:29:33 : %SYS-5-CONFIG_I Hi", None, AT),
    ("CallManager", "<189>7: cm1: Nov 28 2026 03:29:33 AM.000 UTC: %SYS-5-CONFIG_I: Hi", "cm1", AT),
    ("WLC", "<132>wlc1: *spamApTask1: Nov 28 03:29:33.000: %SYS-5-CONFIG_I: Hi", "wlc1", AT),
    ("small business", "<188>%SYS-W-CONFIG_I: Hi", None, None),
]  # fmt: skip

NAMES = [
    # (whose, line, host, program, message, time)
    ("zone", "<38>Nov 28 03:29:33 UTC web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("zone, no host", "<38>Nov 28 04:29:33 CET sshd[7]: Hi", None, "sshd", "Hi", AT),
    ("zone after ISO", "<38>2026-11-28 03:29:33 UTC web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("summer", "<38>Nov 28 05:29:33 CEST web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("offset", "<38>Nov 28 04:29:33 +0100 web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("offset after ISO", "<38>2026-11-28 04:29:33 +01:00 web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("offset at the time", "Nov 27 2026 23:29:33-04:00 web1 sudo: Hi", "web1", "sudo", "Hi", AT),
    ("zone and year", "<38>Nov 27 21:29:33 CST 2026 web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("zone of none", "<38>Nov 28 03:29:33 IST web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("Zulu", "<38>Nov 28 03:29:33Z web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("RFC 3164", "<0>2026 Nov 27 21:29:33 TZ-6 h.example.org sched[0]: Hi", "h.example.org", "sched", "Hi", AT),
    ("year first", "2026 Nov 28 03:29:33 web1 named: Hi", "web1", "named", "Hi", AT),
    ("brackets", "<38>Nov 28 03:29:33 [web1] sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("brackets, no number", "Nov 28 03:29:33 [localhost] systemd: Hi", "localhost", "systemd", "Hi", AT),
    ("brackets, IPv6", "<38>Nov 28 03:29:33 [2001:db8::7] sshd[7]: Hi", "2001:db8::7", "sshd", "Hi", AT),
    ("brackets, RFC 5424", "<38>1 2026-11-28T03:29:33Z [web1] sshd 7 - - Hi", "web1", "sshd", "Hi", AT),
    ("a level", "<27>Nov 28 03:29:33 [warn] disk: Hi", None, None, "[warn] disk: Hi", AT),
    ("a thread", "2026-11-28 03:29:33 [main] disk: Hi", None, None, "[main] disk: Hi", AT),
    ("PostgreSQL", "2026-11-28 04:29:33.000 CET [7] LOG:  Hi", None, None, "[7] LOG:  Hi", AT),
    ("twice", "<38>Nov 28 03:29:33 web1 web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("twice, whole", "<38>Nov 28 03:29:33 web1.example.com web1 sshd: Hi", "web1", "sshd", "Hi", AT),
    ("relay's address", "<38>Nov 28 03:29:33 192.0.2.7 web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("relay's header", "<38>Nov 28 03:29:33 relay Nov 28 03:29:30 web1 sshd[7]: Hi", "web1", "sshd", "Hi", AT),
    ("words", "<38>Nov 28 03:29:33 192.0.2.7 Connection lost: Hi", "192.0.2.7", None, "Connection lost: Hi", AT),
    ("no tag", "<86>Nov 28 03:29:33 web1 sshd Hi from", "web1", "sshd", "Hi from", AT),
    ("no tag, ISO", "<86>2026-11-28T03:29:33Z web1 sshd Hi from", "web1", "sshd", "Hi from", AT),
    ("no tag, a file", "2026-11-28T03:29:33.000+00:00 web1 sshd Hi from", "web1", "sshd", "Hi from", AT),
    ("no tag, kernel", "<4>Nov 28 03:29:33 web1 kernel [ 7.0] IN=eth0 OUT= SRC=192.0.2.1 ", "web1", "kernel", None, AT),
    ("no tag, path", "<38>Nov 28 03:29:33 web1 /usr/sbin/sshd Hi from", "web1", "/usr/sbin/sshd", "Hi from", AT),
    ("no tag, no host", "<38>Nov 28 03:29:33 sshd[7] Hi from", None, "sshd", "Hi from", AT),
    ("no tag, no time", "<38>sshd Hi from", None, "sshd", "Hi from", None),
    ("no tag, cron", "<78>Nov 28 03:29:33 web1 CRON (root) CMD (true)", "web1", "CRON", "(root) CMD (true)", AT),
    ("no tag, su", "<37>Nov 28 03:29:33 web1 su FAILED SU (to root) kim on pts/0", "web1", "su", None, AT),
    ("a word", "<38>Nov 28 03:29:33 web1 login failed for kim", "web1", None, "login failed for kim", AT),
    ("a word, kernel", "<38>Nov 28 03:29:33 web1 kernel is fine", "web1", None, "kernel is fine", AT),
    ("another word", "<38>Nov 28 03:29:33 web1 something failed", "web1", None, "something failed", AT),
    ("a level, a word", "2026-11-28T03:29:33Z INFO nginx started", None, None, "INFO nginx started", AT),
]  # fmt: skip


def seen(line: str) -> tuple[object, ...]:
    event = record(line.encode(), "syslog", received_at=NOW)
    parts = (event.get(name) for name in ("hostname", "program", "message"))
    at = None if event.event_time is None else datetime.fromtimestamp(event.event_time / 1e6, UTC).isoformat()
    return *(None if part is ABSENT else part for part in parts), at


@walk(("product", "line", "host", "at"), CISCO)
def test_cisco(product: str, line: str, host: str | None, at: str | None) -> None:
    """Each product's header gives whose message it is, its tag, its text and, with the zone that it names, its time."""
    assert seen(line) == (host, re.search(r"%\w+-\w-\w+", line)[0], "Hi", at)  # type: ignore[index]
    assert record(line.encode(), "syslog").source.products == {"cisco"}


@walk(("what", "line", "host", "program", "message", "at"), NAMES)
def test_names(
    what: str, line: str, host: str | None, program: str | None, message: str | None, at: str | None
) -> None:
    """What stands where the host does is a zone, the host in brackets, or the host again; a program needs no colon."""
    got = seen(line)
    assert (*got[:2], got[2] if message else None, got[3]) == (host, program, message, at)


def test_zones() -> None:
    """Each name is one that the tz database has for so many hours; an input's own zone goes first."""
    there = set()
    for zone in map(ZoneInfo, available_timezones()):
        for month in (1, 7):
            moment = datetime(2026, month, 1, tzinfo=zone)
            there.add((moment.tzname(), moment.utcoffset()))
    assert {(name, timedelta(hours=hours)) for name, hours in ZONES.items() if name != "Z"} <= there
    line = b"<38>Nov 28 11:29:33 CST web1 sshd[7]: Hi"
    times = [parse(line, NOW, zone).timestamp for zone in (None, UTC, ZoneInfo("Asia/Shanghai"))]  # type: ignore[union-attr]
    assert [time and datetime.fromtimestamp(time / 1e6, UTC).hour for time in times] == [17, 17, 3]
    assert stamped_zone("+99:00", UTC) is UTC
    assert stamped_zone("VIENN", UTC) is UTC
