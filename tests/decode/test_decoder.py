"""Records: raw events in, fields, host, time, source and keywords out; nothing raises, and provenance is told truly."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.decode import syslog
from vedette.decode.decoder import ABSENT, CODECS, Record, from_mapping, record
from vedette.decode.fields import declared, is_made, provenance
from vedette.decode.formats.base import Provenance
from vedette.decode.programs import PROGRAMS
from vedette.model.event import LogSource, Source

NOW = 1_795_600_000_000_000
SSHD = b"<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for root from 203.0.113.9 port 22 ssh2"
ACCESS = (
    b'203.0.113.9 - alice [20/Nov/2026:10:00:00 +0100] "GET /a/b.php?x=1&y=%2e HTTP/1.1" 404 512 '
    b'"https://example.org/" "Mozilla/5.0 \\"x\\""'
)


def read(raw: bytes | str, codec: str = "auto", **more: Any) -> Record:
    return record(raw.encode() if isinstance(raw, str) else raw, codec, received_at=NOW, **more)


def test_syslog_record() -> None:
    """A syslog line gives header fields, the program's fields, host, time, source and its message as keyword."""
    r = read(SSHD, logsource=LogSource(product="linux"))
    assert r.fields() == {
        "hostname": "web1",
        "program": "sshd",
        "pid": "7",
        "priority": 38,
        "facility": "auth",
        "severity": "info",
        "message": "Failed password for root from 203.0.113.9 port 22 ssh2",
        "auth_method": "password",
        "user": "root",
        "src_ip": "203.0.113.9",
        "src_port": "22",
    }
    assert r.host == "web1"
    assert r.event_time == round(datetime(2026, 11, 20, 10, tzinfo=UTC).timestamp() * 1_000_000)
    assert r.source == Source(frozenset({"linux"}), frozenset(), frozenset({"sshd", "auth", "syslog"}))
    assert r.source is read(SSHD, logsource=LogSource(product="linux")).source
    assert list(r.keywords()) == ["Failed password for root from 203.0.113.9 port 22 ssh2"]
    assert r.text == SSHD.decode()


def test_lazy() -> None:
    """A header field is read without decoding the message."""
    r = read(SSHD)
    assert r.get("program") == "sshd"
    assert r._fields is None
    assert r.get("user") == "root"
    assert r._fields is not None


def test_absent_is_not_null() -> None:
    """A missing field is ABSENT; a null one is None."""
    r = read('{"a": null}')
    assert r.get("a") is None
    assert r.get("b") is ABSENT
    assert r.get("a.b") is ABSENT


def test_json_paths() -> None:
    """The exact name goes first, then the dotted path; lists of objects map over; numbers stay numbers."""
    event = {"a": {"b": 1, "c.d": 2}, "a.b": 3, "list": [{"x": 1}, {"x": [2, 3]}, {"y": 4}, 5], "f": 1.5, "t": True}
    r = read(orjson.dumps(event))
    assert (r.get("a.b"), r.get("a.c.d"), r.get("list.x"), r.get("list.z")) == (3, 2, [1, 2, 3], ABSENT)
    assert (r.get("f"), r.get("t")) == (1.5, True)
    assert sorted(r.keywords()) == sorted(["1", "2", "3", "1", "2", "3", "4", "5", "1.5", "true"])


def test_from_mapping() -> None:
    """A mapping is an event as if it had arrived as JSON, dates and all."""
    r = from_mapping({"user": "root", "n": 4720, "when": datetime(2026, 11, 20, tzinfo=UTC).date()})
    assert (r.get("user"), r.get("n"), r.get("when")) == ("root", 4720, "2026-11-20")
    assert orjson.loads(r.raw)["user"] == "root"


@pytest.mark.parametrize(
    ("raw", "field", "value"),
    [
        (b'{"a": "x", "b": "\xff\xfe"}', "b", "\ufffd\ufffd"),
        (b'{"a": "x", "b": "\\ud800\\u0041"}', "b", "\ufffdA"),
        (b'{"a": "x", "b": "\\ud83d\\ude00 \\\\ud800 \\ude00"}', "b", "\U0001f600 \\ud800 \ufffd"),
        (b'{"a": "x", "b": "one\ttwo"}', "b", "one\ttwo"),
        (b'{"a": "x", "b": NaN}', "b", "NaN"),
        (b'{"a": "x", "b": [-Infinity, 1]}', "b", ["-Infinity", 1]),
        (b'{"a": "x", "b": 1e400}', "b", "1e400"),
        (b'{"a": "x", "b": NaN, "c": 18446744073709551615}', "c", 2**64 - 1),
        (b'{"a": "x", "b": NaN, "c": 18446744073709551616}', "c", "18446744073709551616"),
    ],
)
def test_json_that_is_not_quite(raw: bytes, field: str, value: object) -> None:
    """What careless writers put into JSON does not hide an event's other fields: bytes that are no UTF-8, halves of
    surrogate pairs, raw controls, numbers beyond a float."""
    r = read(raw)
    assert (r.get("a"), r.get(field)) == ("x", value)
    assert read(b"<13>Nov 20 10:00:00 web1 app: " + raw).get(field) == value


@pytest.mark.parametrize("raw", [b'{"a": "x"} \xff', b'{"a": "x"', b'{"a": "\\x41"}', b'{"a": ' + b"[" * 100_000])
def test_what_is_no_json_is_text(raw: bytes) -> None:
    """An object that is cut, followed by something or nested beyond reason stays a text with a message."""
    r = read(raw)
    assert r.get("a") is ABSENT
    assert r.get("message") == raw.decode("utf-8", "replace")


def test_given_event() -> None:
    """An object that the caller has parsed already is not parsed again."""
    assert read(b"not json", "json", event={"a": 1}).get("a") == 1


@pytest.mark.parametrize("prefix", ["", "@cee: ", "@cee:", " "])
def test_json_after_a_header(prefix: str) -> None:
    """A JSON message gives its fields, and the message is the text unless JSON names one."""
    r = read(f'<13>Nov 20 10:00:00 web1 app[7]: {prefix}{{"user": "bob", "hostname": "other", "program": "sshd"}}')
    assert (r.get("user"), r.get("hostname"), r.get("program")) == ("bob", "other", "sshd")
    assert "other" in str(r.get("message"))
    assert read('<13>Nov 20 10:00:00 web1 app: {"message": "m"}').get("message") == "m"


DOCUMENTS = [
    ('{"severity": "Critical", "priority": 2, "hostname": "pc7", "program": "edge", "pid": "9", "version": "TLSv10"}',
     {"severity": "Critical", "priority": 2, "hostname": "pc7", "program": "edge", "pid": "9", "version": "TLSv10"}),
    ("CEF:0|V|P|1|2|n|9|hostname=pc7 program=edge pid=9", {"severity": "9", "hostname": "pc7", "program": "edge"}),
    ("LEEF:1.0|V|P|1|2|severity=high\tprogram=edge", {"severity": "high", "program": "edge", "hostname": "web1"}),
    ("severity=high program=edge pid=9 hostname=pc7 x", {"severity": "high", "program": "edge", "hostname": "pc7"}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "wanted"), DOCUMENTS)
@pytest.mark.parametrize(
    ("head", "time"),
    [("<38>{} web1 eset[7]: ", "Nov 20 10:00:00"), ("<38>1 {} web1 eset 7 - - ", "2026-11-20T10:00:00Z")],
)
def test_a_document_keeps_its_own_fields(head: str, time: str, message: str, wanted: dict[str, Any]) -> None:
    """Under their plain names; the header's are asked for by ECS's names; and whose event it is, when it happened and
    which log source it belongs to is never the document's to say."""
    line = head.format(time) + message
    for asked in wanted:
        assert read(line).get(asked) == wanted[asked], asked
    r = read(line)
    header = {"severity.name": "info", "facility.name": "auth", "priority": 38, "hostname": "web1"}
    header |= {"appname": "eset", "procid": "7"}
    for name, value in header.items():
        assert r.get(f"log.syslog.{name}") == read(line).get(f"log.syslog.{name}") == value
    assert r.fields().items() >= wanted.items()
    assert (r.get("log.syslog.hostname"), r.get("log.syslog.appname")) == ("web1", "eset")
    assert r.host == "web1"
    assert r.event_time == round(datetime(2026, 11, 20, 10, tzinfo=UTC).timestamp() * 1_000_000)
    assert r.source.services >= {"syslog", "auth"}
    assert r.get("facility") == "auth"


def test_words_do_not_forge_the_header() -> None:
    """Pairs in a text are no document: a user's name may hold them. Nor can a document set the header's ECS names."""
    r = read(program_line("sshd", "Invalid user program=cron hostname=x severity=debug from 192.0.2.1 port 5"))
    assert (r.get("program"), r.get("hostname"), r.get("severity")) == ("sshd", "web1", "info")
    r = read(program_line("app", "login of program=cron hostname=x severity=debug failed"))
    assert (r.get("program"), r.get("hostname"), r.get("severity")) == ("app", "web1", "info")
    forged = '{"log": {"syslog": {"hostname": "x", "msgid": "y"}}, "log.syslog.appname": "z"}'
    r = read(f"<38>Nov 20 10:00:00 web1 app: {forged}")
    assert (r.get("log.syslog.hostname"), r.get("log.syslog.appname")) == ("web1", "app")
    assert r.get("log.syslog.msgid") is ABSENT
    assert read(forged).get("log.syslog.hostname") == "x"


def test_journal() -> None:
    """systemd's journal as JSON has the program's log source and its fields."""
    r = read('{"MESSAGE": "Invalid user x from 203.0.113.9 port 1", "SYSLOG_IDENTIFIER": "sshd", "_HOSTNAME": "web1"}')
    assert (r.get("program"), r.get("user"), r.get("src_ip"), r.host) == ("sshd", "x", "203.0.113.9", "web1")
    assert "sshd" in r.source.services


def test_mqtt() -> None:
    """The topic is a field that the payload cannot forge; payloads are JSON of any kind or text."""
    r = read('{"temp": 99, "topic": "forged", "device_id": "press-1"}', "mqtt", origin="plant/press/1")
    assert (r.get("temp"), r.get("topic"), r.get("topic_levels")) == (99, "plant/press/1", ["plant", "press", "1"])
    assert r.host == "press-1"
    assert r.source == Source(frozenset(), frozenset({"iot"}), frozenset({"mqtt"}))
    assert list(r.keywords()) == ["press-1", "forged", "99"]
    assert read("23.5", "mqtt", origin="t").get("value") == 23.5
    assert read('[{"v": 1}, {"v": 2}]', "mqtt", origin="t").get("v") == [1, 2]
    text = read(b"on \xff", "mqtt", origin="t")
    assert (text.get("message"), text.host) == ("on �", None)


def test_access() -> None:
    """A combined access log line has Sigma's webserver fields, its own time and log source."""
    r = read(ACCESS)
    assert r.source.categories == {"webserver"}
    assert r.event_time == round(datetime(2026, 11, 20, 9, tzinfo=UTC).timestamp() * 1_000_000)
    wanted = {
        "c-ip": "203.0.113.9",
        "cs-username": "alice",
        "cs-method": "GET",
        "cs-uri": "/a/b.php?x=1&y=%2e",
        "cs-uri-stem": "/a/b.php",
        "cs-uri-query": "x=1&y=%2e",
        "cs-version": "HTTP/1.1",
        "sc-status": "404",
        "sc-bytes": "512",
        "cs-referer": "https://example.org/",
        "cs-user-agent": 'Mozilla/5.0 \\"x\\"',
        "src_ip": "203.0.113.9",
        "user": "alice",
    }
    assert {name: r.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        (
            'www.example.org:443 192.0.2.2 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 -',
            "cs-host",
            "www.example.org:443",
        ),
        ('2001:db8::1 - John Doe [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1', "cs-username", "John Doe"),
        ('192.0.2.2 - - [20/Nov/2026:10:00:00 +0000] "\\x16\\x03\\x01" 400 0 "-" "-"', "cs-request", "\\x16\\x03\\x01"),
        ('192.0.2.2 - - [20/Nov/2026:10:00:00 +0000] "GET /a b HTTP/1.1" 200 1', "cs-uri-stem", "/a b"),
        (
            '<190>Nov 20 10:00:00 w nginx: 192.0.2.2 - - [20/Nov/2026:10:00:00 +0000] "GET /x HTTP/1.1" 200 1',
            "c-ip",
            "192.0.2.2",
        ),
    ],
)
def test_access_variants(line: str, field: str, value: str) -> None:
    """Virtual hosts, names with blanks, broken requests, and access logs sent by syslog."""
    r = read(line)
    assert r.get(field) == value
    assert "webserver" in r.source.categories


def program_line(program: str, message: str) -> str:
    return f"<38>Nov 20 10:00:00 web1 {program}[7]: {message}"


@pytest.mark.parametrize(
    ("program", "message", "wanted"),
    [
        ("sshd", "Accepted publickey for git from 10.0.0.1 port 5 ssh2: ED25519 SHA256:abc",
         {"user": "git", "auth_method": "publickey", "key_type": "ED25519", "key_fingerprint": "SHA256:abc"}),
        ("sshd", "Failed password for invalid user root from 1.2.3.4 port 1 from 203.0.113.9 port 22 ssh2",
         {"user": "root from 1.2.3.4 port 1", "src_ip": "203.0.113.9", "src_port": "22"}),
        ("sshd", "Disconnecting invalid user admin 192.0.2.1 port 44: Change of username: (a,b) -> (c,d) [preauth]",
         {"user": "admin", "src_ip": "192.0.2.1", "src_port": "44"}),
        ("sshd", "Connection closed by 192.0.2.1 [preauth]", {"src_ip": "192.0.2.1"}),
        ("sshd-session", "Received disconnect from 2001:db8::9 port 44:11: Bye",
         {"src_ip": "2001:db8::9", "src_port": "44"}),
        ("sshd", "pam_unix(sshd:auth): authentication failure; uid=0 tty=ssh ruser= rhost=203.0.113.9  user=root",
         {"user": "root", "src_ip": "203.0.113.9", "pam_service": "sshd", "uid": "0"}),
        ("sudo", "  bob : 3 incorrect password attempts ; TTY=pts/0 ; PWD=/a b ; USER=root ; COMMAND=/bin/ls -l",
         {"user": "bob", "reason": "3 incorrect password attempts", "pwd": "/a b", "command": "/bin/ls -l"}),
        ("sudo", "bob : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/x ; TTY=x ; PWD=/ ; USER=fake ; COMMAND=/bin/true",
         {"target_user": ["root", "fake"],
          "command": ["/x ; TTY=x ; PWD=/ ; USER=fake ; COMMAND=/bin/true", "/bin/true"]}),
        ("sudo", "kim : TTY=pts/0 ; PWD=/tmp/x ; USER=nobody ; COMMAND=/bin/true ; USER=root ; COMMAND=/bin/sh -i",
         {"user": "kim", "target_user": ["nobody", "root"],
          "command": ["/bin/true ; USER=root ; COMMAND=/bin/sh -i", "/bin/sh -i"]}),
        ("pkexec", "kim: Executing command [USER=root] [TTY=x] [CWD=/tmp/] [COMMAND=/bin/true] [COMMAND=/bin/sh]",
         {"target_user": "root", "command": ["/bin/true] [COMMAND=/bin/sh", "/bin/sh"]}),
        ("doas", "kim ran command /bin/sh as root from /tmp/x as nobody",
         {"target_user": ["root", "nobody"], "command": ["/bin/sh", "/bin/sh as root from /tmp/x"]}),
        ("sudo", "bob : TTY=pts/0 ; PWD=/ ; USER=root ; ENV=A=b ; COMMAND=/bin/id", {"command": "/bin/id"}),
        ("sudo", "pam_unix(sudo:auth): authentication failure; logname=alice uid=1000 euid=0 tty=/dev/pts/0 "
                 "ruser=alice rhost=  user=alice",
         {"user": "alice", "uid": "1000", "euid": "0", "tty": "/dev/pts/0", "ruser": "alice", "logname": "alice",
          "rhost": "", "pam_service": "sudo", "pam_type": "auth"}),
        ("sudo", "pam_unix(sudo:auth): auth could not identify password for [bob]", {"user": "bob"}),
        ("CRON", "pam_sss(cron:auth): authentication failure; logname= uid=0 tty=cron ruser= rhost=192.0.2.1 user=b",
         {"user": "b", "rhost": "192.0.2.1", "src_ip": "192.0.2.1"}),
        ("sshd", "PAM 2 more authentication failures; logname= uid=0 euid=0 tty=ssh ruser= rhost=192.0.2.1  user=root",
         {"user": "root", "src_ip": "192.0.2.1"}),
        ("sshd", "pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= rhost=192.0.2.1  "
                 "user=x rhost=203.0.113.9", {"user": "x rhost=203.0.113.9", "src_ip": "192.0.2.1"}),
        ("sudo", "pam_faillock(sudo:auth): Consecutive login failures for user eve account temporarily locked",
         {"user": "eve"}),
        ("su", "(to root) alice on pts/1", {"user": "alice", "target_user": "root", "tty": "pts/1"}),
        ("su", "pam_unix(su:session): session opened for user root(uid=0) by alice(uid=1000)",
         {"user": "root", "uid": "0", "by_user": "alice", "by_uid": "1000"}),
        ("CRON", "(root) CMD (a (b) c)", {"user": "root", "action": "CMD", "command": "a (b) c"}),
        ("crontab", "(bob) BEGIN EDIT (bob)", {"user": "bob", "action": "BEGIN EDIT", "detail": "bob"}),
        ("useradd", "new user: name=bob, UID=0, GID=0, home=/home/bob, shell=/bin/bash, from=none",
         {"user": "bob", "uid": "0", "shell": "/bin/bash", "home": "/home/bob"}),
        ("usermod", "add 'bob' to shadow group 'sudo'", {"user": "bob", "group": "sudo", "action": "add"}),
        ("kernel", "[ 1.5] IN=eth0 OUT= MAC= SRC=203.0.113.9 DST=10.0.0.1 LEN=40 PROTO=TCP SPT=4 DPT=22 SYN",
         {"src_ip": "203.0.113.9", "dst_ip": "10.0.0.1", "dst_port": "22", "protocol": "TCP", "IN": "eth0", "OUT": ""}),
        ("kernel", "nginx[81]: segfault at 0 ip 00", {"process": "nginx", "process_id": "81", "fault": "segfault"}),
        ("login", "FAILED LOGIN (1) on '/dev/tty1' FOR 'root', Authentication failure",
         {"tty": "/dev/tty1", "user": "root", "reason": "Authentication failure"}),
        ("mosquitto", "New client connected from 10.0.0.5:50432 as a (p1) b (p2, c1, k60, u'alice').",
         {"src_ip": "10.0.0.5", "src_port": "50432", "client_id": "a (p1) b", "user": "alice"}),
        ("audit", 'type=SYSCALL exe="/usr/bin/x y" acct="root" addr=203.0.113.9',
         {"exe": "/usr/bin/x y", "user": "root", "src_ip": "203.0.113.9"}),
        ("sshd", "Failed password for bob from 192.0.2.1 port 20000 ssh1: ruser x from 203.0.113.9",
         {"user": "bob", "src_ip": "192.0.2.1", "src_port": "20000"}),
        ("sshd", "refused connect from x@192.0.2.1 (192.0.2.1)", {"src_ip": "192.0.2.1"}),
        ("proftpd", "h (x.example[192.0.2.1]): USER bob (Login failed): no", {"src_ip": "192.0.2.1", "user": "bob"}),
        ("smtpd", "warning: unknown[192.0.2.1]: SASL LOGIN authentication failed: x",
         {"src_ip": "192.0.2.1", "src_host": "unknown", "auth_method": "LOGIN"}),
        ("sm-mta", "s1: ruleset=check_rcpt, relay=x.example [192.0.2.1], reject=550", {"src_ip": "192.0.2.1"}),
        ("imapd", "LOGIN FAILED, user=a, ip=[x], ip=[::ffff:192.0.2.1]", {"src_ip": "192.0.2.1"}),
        ("roundcube", "IMAP Error: Login failed for bob from 192.0.2.1. AUTHENTICATE PLAIN: x",
         {"user": "bob", "src_ip": "192.0.2.1"}),
        ("fail2ban.actions", "NOTICE [sshd] Ban 192.0.2.1", {"jail": "sshd", "action": "Ban", "src_ip": "192.0.2.1"}),
        ("asterisk", "NOTICE[7]: chan_sip.c:9 in x: Registration from '<sip:1@h>' failed for '192.0.2.1:5060' - Wrong",
         {"src_ip": "192.0.2.1", "src_port": "5060"}),
        ("openvpn", "192.0.2.1:1194 TLS Auth Error", {"src_ip": "192.0.2.1", "src_port": "1194"}),
        ("haproxy", '192.0.2.1:5 [20/Nov/2026:10:00:00.1] a b/c "GET / HTTP/1.1"', {"src_ip": "192.0.2.1"}),
        ("suhosin", "ALERT - dropped 'a' (attacker '192.0.2.1', file 'x')", {"src_ip": "192.0.2.1"}),
        ("danted", "info: block(1): tcp/accept ]: 192.0.2.1.50550 10.0.0.1.1080: error", {"src_ip": "192.0.2.1"}),
        ("webmin", "Invalid login as root from 192.0.2.1", {"user": "root", "src_ip": "192.0.2.1"}),
        ("sogod", "SOGoRootPage Login from '192.0.2.1' for user 'bob' might", {"user": "bob", "src_ip": "192.0.2.1"}),
        ("slapd", "conn=1 fd=2 ACCEPT from IP=192.0.2.1:5 (IP=0.0.0.0:389)", {"src_ip": "192.0.2.1", "src_port": "5"}),
        ("timsieved", "badlogin: h[192.0.2.1] PLAIN authentication failure", {"src_ip": "192.0.2.1"}),
        ("dropbear", "Bad password attempt for 'root' from 192.0.2.1:5", {"user": "root", "src_ip": "192.0.2.1"}),
        ("dropbear", "bad password attempt for 'x' from 192.0.2.7:1' from 192.0.2.1:5",
         {"user": "x' from 192.0.2.7:1", "src_ip": "192.0.2.1", "src_port": "5"}),
        ("dropbear", "Login attempt for nonexistent user from 2001:db8::1:50000", {"src_ip": "2001:db8::1"}),
        ("dropbear", "login attempt for nonexistent user 'eve' from 192.0.2.1:5", {"user": "eve", "src_port": "5"}),
        ("dropbear", "Exit before auth from <192.0.2.1:5>: (user 'root', 10 fails): Max auth tries reached",
         {"user": "root", "src_ip": "192.0.2.1", "reason": "Max auth tries reached"}),
        ("dropbear", "Pubkey auth succeeded for 'root' with ssh-ed25519 key SHA256:ab from 192.0.2.1:5",
         {"user": "root", "src_ip": "192.0.2.1", "key_fingerprint": "SHA256:ab"}),
        ("apache2", "[auth_basic:error] [pid 7] [client [2001:db8::1]:51548] AH01618: user eve not found: /x",
         {"src_ip": "2001:db8::1", "src_port": "51548"}),
        ("unknown", 'a=1, b="two words" c=\'x\' d= e=5;f=6 a=7',
         {"a": ["1", "7"], "b": "two words", "c": "x", "d": "", "e": "5", "f": "6"}),
    ],
)  # fmt: skip
def test_programs(program: str, message: str, wanted: dict[str, Any]) -> None:
    """What well-known programs say becomes fields, also where a sender chose part of the text."""
    r = read(program_line(program, message))
    assert {name: r.get(name) for name in wanted} == wanted
    assert r.get("message") == message


def test_sources() -> None:
    """Programs, facilities and the input's own log source add up; text belongs to the input's alone."""
    assert "cron" in read(program_line("/usr/sbin/CRON", "x")).source.services
    assert read("<78>Nov 20 10:00:00 web1 other: x").source.services == {"syslog", "cron"}
    own = LogSource("fw", "firewall", "asa")
    assert read("plain words", logsource=own).source == Source(
        frozenset({"fw"}), frozenset({"firewall"}), frozenset({"asa"})
    )


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1_795_168_800, 1_795_168_800),
        (1_795_168_800.5, 1_795_168_800.5),
        (1_795_168_800_250, 1_795_168_800.25),
        ("1795168800250000", 1_795_168_800.25),
        (1_795_168_800_000_000_000, 1_795_168_800),
        ("2026-11-20T10:00:00Z", 1_795_168_800),
        ("2026-11-20 10:00:00.5", 1_795_168_800.5),
        (42, None),
        ("soon", None),
        (True, None),
        ([1], None),
    ],
)
def test_json_time(value: Any, seconds: float | None) -> None:
    """Times in JSON: RFC 3339, or epoch in any of four units when plausible."""
    assert from_mapping({"timestamp": value}).event_time == (None if seconds is None else round(seconds * 1_000_000))


def test_a_field_does_not_hang_on_what_was_asked_before() -> None:
    raw = b'{"MESSAGE": "app[1]: Failed password for root from 192.0.2.4 port 22 ssh2", "cs-username": "eve"}'
    fresh, late = record(raw, "auto"), record(raw, "auto")
    late.fields()
    assert (fresh.get("user.name"), fresh.get("src_ip")) == (late.get("user.name"), late.get("src_ip"))


def test_host_falls_back_to_the_peer() -> None:
    """An event that names no host is of the peer it came from, which is a field of its own."""
    r = read("plain words", origin="10.0.0.9")
    assert (r.host, r.get("peer"), r.get("hostname")) == ("10.0.0.9", "10.0.0.9", ABSENT)


def test_provenance() -> None:
    """What the agent makes up is synthetic; JSON may give any other field, so it may be escaped."""
    assert {provenance(f) for f in ("topic", "peer", "facility", "severity", "topic_levels")} == {Provenance.SYNTHETIC}
    assert provenance("user") is Provenance.ESCAPED


def test_values_that_are_made() -> None:
    """Every value that a header gives is among those that the agent is said to make, under each of its names."""
    for priority in range(192):
        r = read(f"<{priority}>{1 + priority * 5} - h app - - - x")
        for name in ("priority", "facility", "severity", "version"):
            for known in (name, syslog.OWN_NAMES[name]):
                value = str(r.get(known))
                assert all(value in (row.values or ()) for row in declared(known) if row.how is Provenance.SYNTHETIC)
                assert is_made(known, value[1:].upper())
    assert is_made("log.syslog.severity.name", "Warn")
    assert is_made("topic", "Critical")
    assert not is_made("severity", "Critical")
    assert not is_made("log.syslog.facility.name", "kernel")


_LINES = [
    *(f"<38>Nov 20 10:00:00 web1 app[7]: {message}".encode() for message, _ in DOCUMENTS),
    b"<38>Nov 20 10:00:00 web1 app[7]: Failed login for user 'eve' from 192.0.2.1:5",
    SSHD, ACCESS, b'{"a": {"b": [1, "x"]}}', b"plain a=1 b=\"c d\"", b"<13>1 - h app 7 m [x y=\"z\"] hi",
    *(program_line(name, "(root) CMD (ls) user=x from 10.0.0.1 port 5").encode() for name in PROGRAMS),
]  # fmt: skip


@settings(max_examples=100)
@given(st.sampled_from(_LINES), st.binary(max_size=12), st.integers(0, 120), st.sampled_from(sorted(CODECS)))
def test_total(line: bytes, noise: bytes, at: int, codec: str) -> None:
    """Any bytes under any codec give a record whose every face works, and is the same the second time."""
    raw = line[:at] + noise + line[at:]
    r = read(raw, codec, origin="a/b")
    fields = dict(r.fields())
    assert all(r.get(name) == value for name, value in fields.items())
    assert all(isinstance(text, str) for text in r.keywords())
    assert isinstance(r.source, Source)
    assert r.host is None or isinstance(r.host, str)
    assert r.event_time is None or isinstance(r.event_time, int)
    assert dict(read(raw, codec, origin="a/b").fields()) == fields
    for name in (*fields, "program", "severity", "src_ip", "log.syslog.hostname"):
        assert read(raw, codec, origin="a/b").get(name) == r.get(name), name


@settings(max_examples=100)
@given(st.sampled_from(_LINES), st.binary(max_size=12), st.integers(0, 120))
def test_verbatim(line: bytes, noise: bytes, at: int) -> None:
    """Outside JSON and structured data, the text of every field that is not synthetic stands in the raw event."""
    raw = line[:at] + noise + line[at:]
    r = read(raw, "auto")
    if raw.lstrip(b" \t\xef\xbb\xbf").startswith(b"{") or r._structured() is not None or b"\\" in raw:
        return
    for name, value in r.fields().items():
        if provenance(name) is not Provenance.SYNTHETIC:
            for text in value if isinstance(value, list) else [value]:
                assert str(text) in r.text, name


_SAMPLES = {
    "dovecot": [
        "imap-login: Login: user=<",
        "imap-login: Disconnected: x user=<a>, rip=1.1.1.1, lip=",
        "imap-login: x: user=<a>, rip=1",
        "pam(a,1.1.1.1): ",
        *("pam(a,1.1,<) ", "auth: ", "conn (a): <b>", "sql(a,1", "auth(a): " * 5 + "pam(e,1.1.1.1,"),
    ],
    "postfix/cleanup": [
        "89AF0548B54: reject: header x from a[1.1.1.1]; from=<",
        "89AF0548B54: to=<a, relay=b[1.1.1.1]:25, ",
        "89AF0548B54: reject: a from ",
    ],
    "exim": [
        "1xXr50-00000s-1F <= a H=",
        "1xXr50-00000s-1F => a H=b ",
        " => ",
        "1xXr50-00000s-1F <= a H=(b) [1.1.1.1] X=a ",
    ],
    "smbd": [" Auth: [a] user [b]\\[c] at ", "a|1.1.1.1|b|c|ok|"],
    "ovpn-server": ["a/1.1.1.1:1 ", "1.1.1.1:1 TLS: Username/Password authentication x for username 'a' "],
    "postgres": [
        "[1] a@b LOG:  ",
        "[1] a@",
        '[1] a@b FATAL:  x authentication failed for user "a',
        "[1] LOG:  execute a: ",
        '[1] FATAL:  a authentication failed for user "',
    ],
    "mysqld": [
        "Access denied for user 'a'@'1.1.1.1' ",
        "Aborted connection 1 to db: 'a' user: 'b' host: '1.1.1.1' (",
        "a,b,1.1.1.1,1,1,CONNECT,,,0",
        "a,b,1.1.1.1,1,1,QUERY,'a',0",
        "a,b:,",
        "a,,,,0",
    ],
    "redis": ["id=1 addr=1.1.1.1:1 ", "a addr= ", "x id=1 "],
    "(squid-1)": ["1.1.1.1 ", "1 1.1.1.1 A_B/200 1 GET x a B_C/- "],
    "vsftpd": ['[a] OK LOGIN: Client "', '[a] FTP command: Client "1", "', "[a", 'a, "'],
    "suricata": ["[1:1:1] a ", "[1:1:1] a [**] [Priority: 1] {TCP} 1.1.1.1 -> "],
    "smtpd": [
        "89AF0548B54: client=a[1.1.1.1], sasl_username=",
        "warning: a[1.1.1.1]: SASL x authentication failed: , sasl_username=",
        "NOQUEUE: reject: a from b[1.1.1.1]: ; from=",
        *("lost connection from a[", "warning: hostname a ", "ABCDEF: client=a[1.1.1.1], sasl_user", "A from "),
    ],
    "dropbear": [
        "Exit before auth from <1.1.1.1:1>: (user '",
        "Login attempt for nonexistent user from 1.1.1.1:1 ",
        "Pubkey auth succeeded for 'a' with a b from ",
    ],
    "sshd": [
        "Failed password for a from 1.2.3.4 port 1 ",
        "PAM: x for a from b ",
        "Failed password for a from b ssh2: c d ID ",
        "Disconnecting user a from 1.1.1.1 ",
    ],
    "sudo": [
        "pam_unix(sudo:auth): authentication failure; logname= uid=1 tty= ruser= rhost= user=a ",
        "b : TTY=x ; PWD=/ ; USER=r ; COMMAND=c ",
        "b : r ; TTY= ; PWD=/ ; USER= ;",
        "b : PWD=/ ; USER=r ; ENV=a ; COMMAND=c ; EXIT=1 ",
        "b : (command continued) ; EXIT=1",
    ],
    "su": ["(to root) a on b ", "'su root' failed for "],
    "pkexec": ["a: x [USER=r] [TTY=t] [CWD=/] [COMMAND=c"],
    "doas": ["a ran command b as c from "],
    "polkitd": [
        "Operator of a successfully authenticated to gain x for action ",
        "Operator of a FAILED to authenticate (",
        "Operator of a FAILED to authenticate to gain x for action b (owned by unix-user:a",
    ],
    "pdns": ["Remote 1.1.1.1 wants 'a|", "[1/1] question for 'a|A' from "],
    "unbound": ["info: 1.1.1.1 a. A "],
    "named": ["client 1.1.1.1#1 (a\\): query: a "],
    "haproxy": ['1.1.1.1:1 [a] b c d 200 1 {"'],
    "audit": ["USER_CMD a=1 ", "a=b#035", 'key="a" '],
    "systemd": ["Started Session 1 of user a. "],
    "cron": ["(root) CMD (x) ", "(root) RELOAD ("],
    "useradd": ["new user: name=a, UID=0, ", "add 'a' to group "],
    "kernel": ["[ 1.0] a[1]: segfault ", "SRC=1 ", "device a entered "],
    "mosquitto": [
        "New client connected from a:1 as b (p1, c1, k1, u'x",
        "Client a disconnected, ",
        "Denied PUBLISH from a (d0, q0, r0, m0, 'b', ",
        "Client a [1.1.1.1:1] disconnected ",
    ],
    "systemd-logind": ["New session 1 of user x "],
    "nginx": [
        '1.1.1.1 - - [20/Nov/2026:10:00:00 +0000] "GET /?? HTTP/1.1" ',
        "[a] 1#1: , client: ",
        f"[a] 1#1: x, client: {'a' * 90_000}, client: {'a' * 90_000}",
    ],
    "apache2": ["[client ", "x [client ", "a b c [20/Nov/2026:10:00:00 +0000] "],
    "sm-mta": ["x relay=[ [", "relay=a [1", "uAKabc01: to= relay=[1.1.1.1] "],
    "roundcube": ["Login failed for a from 1.1 ", "Login failed for a from 1.1. A"],
    "asterisk": ["x failed for '1", "NOTICE[7] "],
    "proftpd": ["a (b[1.1.1.1]): USER a "],
    "suhosin": ["ALERT - a (attacker '"],
    "imapd": ["LOGIN FAILED, user=a, ip=[1 "],
    "%ASA-4-106023": [
        "Deny tcp src a:",
        "User 'a' executed the 'b",
        "Group a User b IP 1.1.1.1 ",
        "Group <a> User <b> IP <",
    ],
    "%SYS-5-CONFIG_I": ["Configured from a by b ", "User:a logged command:"],
    "unknown": ['a="b ', "a='", 'a="\\" ', ",a", "a=b,"],
}


def test_servers_say_what_their_groups_give() -> None:
    """The fields that a server's row names, without its phrases at hand, are those of their groups."""
    for name, row in PROGRAMS.items():
        if isinstance(row.patterns, str):
            _, *says = row.patterns.split()
            assert set(says) == {group for pattern in row.compiled for group in pattern.groupindex}, name


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("sshd", "a=1 " * 260 + "as 'a' " * 140_000),
        ("dovecot", "a: a: a: a: a: a: pam(" + f"x,{'1' * 44}" * 22_000 + ",1.1.1.1)"),
        ("sudo", "a : PWD=/" + " ; USER=a ; COMMAND=b" * 45_000),
        ("doas", "a ran command b" + " as root from /" * 60_000),
        ("pkexec", "a: x [USER=r] [TTY=t] [CWD=/" + "] [COMMAND=/" * 80_000 + "]"),
    ],
)
def test_long_lines(program: str, line: str) -> None:
    """A line of 1 MiB that gives every part of a pattern many places is decided in a second."""
    raw = program_line(program, line).encode()
    began = time.process_time()
    read(raw).fields()
    assert time.process_time() - began < 1


@pytest.mark.parametrize(("program", "sample"), [(p, s) for p, samples in _SAMPLES.items() for s in samples])
def test_linear(program: str, sample: str) -> None:
    """200 KB made of one program's own phrases is decoded in well under a second."""
    raw = program_line(program, sample * (200_000 // len(sample))).encode()
    began = time.process_time()
    read(raw).fields()
    assert time.process_time() - began < 1
