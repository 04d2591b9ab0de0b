"""Formats: audit records, CEF, LEEF, event XML, Zeek JSON, web logs, Cisco; total, linear, with true provenance.

Windows events in JSON are in ``test_windows.py``.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.api import Engine, compile_rules
from vedette.decode import syslog
from vedette.decode.aliases import ALIASES, ECS
from vedette.decode.codecs import CODECS
from vedette.decode.decoder import ABSENT, Record, from_mapping, possible_source, record
from vedette.decode.fields import guards, provenance
from vedette.decode.formats.base import Format, Provenance
from vedette.decode.formats.table import FIRST, FORMATS, SHAPES
from vedette.model.event import Chunk, LogSource

NOW = 1_795_600_000_000_000
AUDIT = "type={} msg=audit(1795168800.250:77): {}"
SYSMON = (
    '<14>Nov 20 10:00:00 web1 sysmon: <Event><System><Provider Name="Linux-Sysmon" Guid="{x}"/><EventID>1</EventID>'
    "<Channel>Linux-Sysmon/Operational</Channel><Computer>web1</Computer></System><EventData>"
    '<Data Name="UtcTime">2026-11-20 10:00:00.250</Data><Data Name="Image">/usr/bin/bash</Data>'
    '<Data Name="CommandLine">bash -c &quot;a &lt; b &amp;&amp; c&#10;d&quot;</Data>'
    '<Data Name="User"><![CDATA[a&amp;b]]></Data><Data>x</Data><Data Name="Empty"/></EventData></Event>'
)
CEF = (
    r"CEF:0|Ve\|ndor|P\\x|1.0|100|a = b|7|src=10.0.0.1 spt=1232 suser=bob msg=two\nlines a\=b cs1Label=L cs1=v "
    "rt=1795168800250"
)
LEEF = "LEEF:2.0|V|P|1|E|^|src=192.0.2.1^usrName=joe.black^devTime=Nov 20 2026 10:00:00.250 GMT"
NGINX = (
    '2026/11/20 10:00:00 [error] 7#8: *9 open() "/x" failed (2: No such file), client: 192.0.2.1, server: s, '
    'request: "GET /a.php?b=c HTTP/1.1", host: "h", referrer: "r"'
)
APACHE = (
    "[Fri Nov 20 10:00:00.250000 2026] [core:error] [pid 7:tid 8] [client 192.0.2.1:555] AH00128: File does not exist: "
    "/x, referer: http://r/"
)


def read(raw: bytes | str, codec: str = "auto", **more: Any) -> Record:
    return record(raw.encode() if isinstance(raw, str) else raw, codec, received_at=NOW, **more)


def selected(r: Record, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of ``r`` that ``wanted`` names."""
    return {name: r.get(name) for name in wanted}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (AUDIT.format("EXECVE", 'argc=3 a0="sh" a1="-c" a2=6C73202D6C "'), {"a0": "sh", "a1": "-c", "a2": "ls -l"}),
        (AUDIT.format("EXECVE", 'a0="a" a1_len=8 a1[0]=6C73 a1[1]=202D'), {"a1": "ls -", "a1_len": "8"}),
        (AUDIT.format("PROCTITLE", "proctitle=6C73002D6C"), {"proctitle": "ls -l", "process.title": "ls -l"}),
        (AUDIT.format("SYSCALL", 'arch=c000003e syscall=59 a0=4 exe="/bin/ls" key=(null)'),
         {"SYSCALL": "execve", "syscall": "59", "a0": "4", "exe": "/bin/ls"}),
        (AUDIT.format("SYSCALL", 'arch=c00000b7 syscall=221 a0=7F7F7F\x1dARCH=aarch64 SYSCALL=openat AUID="bob"'),
         {"SYSCALL": "openat", "a0": "7F7F7F", "AUID": "bob"}),
        (AUDIT.format("USER_CMD", "pid=7 msg='cwd=\"/\" cmd=6C73202D6C terminal=pts/0 res=success'"),
         {"cmd": "ls -l", "cwd": "/", "res": "success", "terminal": "pts/0"}),
        (AUDIT.format("USER_AUTH", "msg='op=PAM acct=\"root\" exe=\"/sbin/x y\" hostname=? addr=192.0.2.1 res=failed'"),
         {"user": "root", "src_ip": "192.0.2.1", "exe": "/sbin/x y", "hostname": ABSENT, "rhost": ABSENT}),
        (AUDIT.format("PATH", 'item=0 name="/etc/x" nametype=CREATE'), {"name": "/etc/x", "nametype": "CREATE"}),
        ("node=web1 " + AUDIT.format("CWD", 'cwd="/root"'), {"node": "web1", "hostname": "web1", "cwd": "/root"}),
        ("<5>Nov 20 10:00:00 web1 kernel: [ 12.5] audit: type=1400 audit(1795168800.250:77): apparmor=\"DENIED\"",
         {"type": "AVC", "apparmor": "DENIED", "hostname": "web1"}),
        ("<5>Nov 20 10:00:00 web1 audispd: " + AUDIT.format("EXECVE", 'a0="ls"'), {"type": "EXECVE", "a0": "ls"}),
    ],
)  # fmt: skip
def test_auditd(line: str, wanted: dict[str, Any]) -> None:
    """Records of every kind and way of arriving give their fields, hex-written values as text."""
    r = read(line)
    assert selected(r, wanted) == wanted
    assert r.source.products == {"linux"}
    assert "auditd" in r.source.services
    assert r.event_time in (1_795_168_800_250_000, 1_795_168_800_000_000)


def test_audit_event_of_several_records() -> None:
    """Several lines are one event: what occurs again is a list."""
    r = read(AUDIT.format("SYSCALL", "syscall=59 a0=7f") + "\n" + AUDIT.format("EXECVE", 'a0="ls" a1="-l"'))
    assert (r.get("type"), r.get("a0"), r.get("a1")) == (["SYSCALL", "EXECVE"], ["7f", "ls"], "-l")


def test_audit_keywords() -> None:
    """A keyword finds hex-written text too, but not what was looked up."""
    r = read(AUDIT.format("EXECVE", "a0=736563726574 arch=c000003e syscall=59"))
    assert "secret" in list(r.keywords())
    assert r.get("SYSCALL") == "execve"
    assert "execve" not in list(r.keywords())


def test_sysmon_for_linux() -> None:
    """Sysmon's XML behind a syslog header: data by name, entities undone, category by event id."""
    r = read(SYSMON)
    wanted = {
        "EventID": "1",
        "Image": "/usr/bin/bash",
        "CommandLine": 'bash -c "a < b && c\nd"',
        "process.command_line": 'bash -c "a < b && c\nd"',
        "User": "a&amp;b",
        "Data": ["x"],
        "Empty": "",
        "Provider_Name": "Linux-Sysmon",
    }
    assert selected(r, wanted) == wanted
    assert (r.source.products, r.source.categories) == ({"linux"}, {"process_creation"})
    assert "sysmon" in r.source.services
    assert 'bash -c "a < b && c\nd"' in list(r.keywords())
    other = SYSMON.replace("<EventID>1<", "<EventID>3<")
    assert read(other).source.categories == {"network_connection"}
    assert read(other.partition(": ")[2]).event_time == 1_795_168_800_250_000


def test_cef() -> None:
    """CEF's header and extension, under short, full and generic names, escapes undone."""
    r = read(f"<14>Nov 20 10:00:00 fw1 {CEF}")
    wanted = {
        "deviceVendor": "Ve|ndor",
        "deviceProduct": "P\\x",
        "name": "a = b",
        "cef_severity": "7",
        "severity": "7",
        "log.syslog.severity.name": "info",
        "src": "10.0.0.1",
        "sourceAddress": "10.0.0.1",
        "src_ip": "10.0.0.1",
        "source.ip": "10.0.0.1",
        "user": "bob",
        "msg": "two\nlines a=b",
        "cs1": "v",
        "deviceCustomString1Label": "L",
        "hostname": "fw1",
    }
    assert selected(r, wanted) == wanted
    assert read(CEF).event_time == 1_795_168_800_250_000
    assert read(CEF).get("severity") == "7"


@pytest.mark.parametrize(
    "line",
    [
        LEEF,
        "<13>Nov 20 10:00:00 h LEEF:2.0|V|P|1|E|x5E|src=192.0.2.1^usrName=joe.black",
        "LEEF:1.0|V|P|1|E|src=192.0.2.1\tusrName=joe.black",
        "LEEF:1.0|V|P|1|E|cat=x|src=192.0.2.1|usrName=joe.black",
        "LEEF:2.0|V|P|1|E||src=192.0.2.1\tusrName=joe.black",
    ],
)
def test_leef(line: str) -> None:
    """Both versions, with the delimiter that the header names."""
    wanted = {"src_ip": "192.0.2.1", "user": "joe.black", "deviceVendor": "V", "eventId": "E"}
    assert selected(read(line), wanted) == wanted


def test_leef_time() -> None:
    """The device's own time."""
    assert read(LEEF).event_time == 1_795_168_800_250_000


@pytest.mark.parametrize(
    ("event", "service", "wanted"),
    [
        ({"ts": 1.5, "uid": "C", "id.orig_h": "10.0.0.1", "id.resp_p": 53, "query": "x.example", "trans_id": 1,
          "qtype_name": "A"}, "dns", {"src_ip": "10.0.0.1", "dst_port": 53, "record_type": "A"}),
        ({"ts": 1.5, "uid": "C", "id.orig_h": "10.0.0.1", "trans_depth": 1, "method": "GET", "uri": "/a?b"}, "http",
         {"cs-method": "GET", "cs-uri-stem": "/a", "c-uri-query": "b"}),
        ({"ts": 1.5, "uid": "C", "id.orig_h": "10.0.0.1", "conn_state": "S0"}, "conn", {"source.ip": "10.0.0.1"}),
        ({"ts": 1.5, "_path": "smb_files", "name": "x"}, "smb_files", {"name": "x"}),
        ({"ts": 1.5, "certificate.serial": "0A"}, "x509", {"certificate.serial": "0A"}),
    ],
)  # fmt: skip
def test_zeek(event: dict[str, Any], service: str, wanted: dict[str, Any]) -> None:
    """A line of a Zeek log belongs to the log that its fields tell, and has generic names too."""
    r = from_mapping(event)
    assert selected(r, wanted) == wanted
    assert (r.source.products, r.source.services) == ({"zeek"}, {service})
    if "_path" not in event:  # nothing tells its log: it may be any
        left = {name: event[name] for name in ("ts", "uid", "id.orig_h") if name in event}
        assert service in from_mapping({"uid": "C", "id.orig_h": "x", **left}).source.services


@pytest.mark.parametrize(
    "event",
    [
        {"remote_addr": "192.0.2.1", "request": "GET /a?b=c HTTP/1.1", "status": 404, "http_user_agent": "curl"},
        {"request": {"remote_ip": "192.0.2.1", "method": "GET", "uri": "/a?b=c", "headers": {"User-Agent": ["curl"]}},
         "status": 404},
        {"ClientHost": "192.0.2.1", "RequestMethod": "GET", "RequestPath": "/a?b=c", "DownstreamStatus": 404,
         "request_User-Agent": "curl"},
    ],
)  # fmt: skip
def test_web_json(event: dict[str, Any]) -> None:
    """Access logs as JSON have the names of Sigma's webserver category."""
    r = from_mapping(event)
    wanted = {"c-ip": "192.0.2.1", "cs-method": "GET", "cs-uri-stem": "/a", "cs-uri-query": "b=c", "sc-status": 404}
    assert selected(r, wanted) == wanted
    assert r.get("cs-user-agent") in ("curl", ["curl"])
    assert "webserver" in r.source.categories


def test_fortigate() -> None:
    """FortiGate's pairs, with its log's type as service."""
    r = read('<189>date=2026-11-20 time=10:00:00 devname="fw1" devid="F" type="event" action="Edit" srcip=10.0.0.1')
    assert selected(r, {"action": "Edit", "src_ip": "10.0.0.1"}) == {"action": "Edit", "src_ip": "10.0.0.1"}
    assert (r.host, r.event_time) == ("fw1", 1_795_168_800_000_000)
    assert r.source.products == {"fortigate"}
    assert "event" in r.source.services


def test_error_logs() -> None:
    """Error logs of Apache and nginx, by content, with their own times."""
    apache = read(APACHE)
    wanted = {"level": "error", "module": "core", "src_ip": "192.0.2.1", "src_port": "555", "cs-referer": "http://r/"}
    assert selected(apache, wanted) == wanted
    assert "apache" in apache.source.services
    assert apache.event_time == 1_795_168_800_250_000
    for client, ip, port in (
        ("[2001:db8::1]:51548", "2001:db8::1", "51548"),
        ("2001:db8::1:51548", "2001:db8::1", "51548"),
        ("2001:db8::1", "2001:db8::1", ABSENT),
        ("192.0.2.1", "192.0.2.1", ABSENT),
    ):
        r = read(APACHE.replace("192.0.2.1:555", client))
        assert (r.get("src_ip"), r.get("c-ip"), r.get("src_port")) == (ip, ip, port)
    nginx = read(NGINX)
    wanted = {"c-ip": "192.0.2.1", "cs-uri-query": "b=c", "cs-host": "h", "cs-referer": "r", "level": "error"}
    assert selected(nginx, wanted) == wanted
    assert "nginx" in nginx.source.services
    assert nginx.event_time == 1_795_168_800_000_000


@pytest.mark.parametrize(
    ("line", "service", "wanted"),
    [
        ('%ASA-4-106023: Deny tcp src out:192.0.2.1/4 dst in:10.0.0.1/22 by access-group "acl" [0x0, 0x0]', "asa",
         {"src_ip": "192.0.2.1", "dst_port": "22", "mnemonic": "106023", "action": "Deny", "rule_name": "acl"}),
        ("%ASA-6-302013: Built inbound TCP connection 7 for out:192.0.2.1/4 (192.0.2.1/4) to in:10.0.0.1/22", "asa",
         {"src_ip": "192.0.2.1", "dst_ip": "10.0.0.1", "message_number": "302013", "protocol": "TCP"}),
        ("%SEC_LOGIN-4-LOGIN_FAILED: Login failed [user: bob] [Source: 192.0.2.1] [localport: 22]", "aaa",
         {"user": "bob", "src_ip": "192.0.2.1", "cisco_facility": "SEC_LOGIN", "cisco_severity": "4"}),
        ("%PARSER-5-CFGLOG_LOGGEDCMD: User:bob  logged command:no logging on", "aaa",
         {"user": "bob", "command": "no logging on"}),
        ("%BGP-5-ADJCHANGE: neighbor 192.0.2.1 Down", "bgp", {"dst_ip": "192.0.2.1", "action": "Down"}),
    ],
)  # fmt: skip
def test_cisco(line: str, service: str, wanted: dict[str, Any]) -> None:
    """Cisco's mnemonics give source and fields."""
    r = read(f"<189>45: *Nov 20 10:00:00.123 UTC: {line}")
    assert selected(r, wanted) == wanted
    assert r.source.products == {"cisco"}
    assert service in r.source.services


BADAUTH = (
    "<187>45: *Mar  1 18:46:11.123: %IP-TCP-3-BADAUTH: No MD5 digest from 10.0.0.1:179 to 10.0.0.2:11000 tableid - 0"
)


@pytest.mark.parametrize(
    ("line", "keywords"),
    [
        (BADAUTH, ["IP-TCP-3-BADAUTH", ":179", "BADAUTH: No MD5"]),
        ("<187>45: *Mar  1 18:46:11.123: %LDP-3-SOCKET_TCP_PACKET_MD5_AUTHEN_FAIL: peer 10.0.0.1 bad",
         ["LDP", "SOCKET_TCP_PACKET_MD5_AUTHEN_FAIL"]),
        ("<189>45: *Mar  1 18:46:11.123: %SYS-5-CONFIG_I: Configured", ["%SYS-5-CONFIG_I", "Configured"]),
        ("<166>Nov 20 2026 10:00:00 fw1 : %ASA-4-106023: Deny", ["%ASA-4-106023", "ASA-4-106023", "106023"]),
        ('<189>45: *Mar  1 18:46:11.123: %HA_EM-6-LOG: {"a": "xyz"}', ["HA_EM-6-LOG", "xyz"]),
    ],
)  # fmt: skip
def test_cisco_keywords(line: str, keywords: list[str]) -> None:
    """A keyword searches Cisco's tag and its message, as one text, and never what precedes them."""
    texts = list(read(line).keywords())
    assert all(any(keyword in text for text in texts) for keyword in keywords)
    assert not any("18:46" in text or "<1" in text for text in texts)
    assert all(text in line for text in texts)


@pytest.mark.parametrize(
    ("tag", "service"),
    [
        ("IP-TCP-3-BADAUTH", "bgp"), ("TCP-6-BADAUTH", "bgp"), ("BGP-3-NOTIFICATION", "bgp"), ("LDP-5-NBRCHG", "ldp"),
        ("ROUTING-BGP-5-ADJCHANGE", "bgp"), ("ROUTING-LDP-5-NBR_CHANGE", "ldp"), ("AAA-3-BADSERVERTYPE", "aaa"),
        ("PARSER-5-CFGLOG_LOGGEDCMD", "aaa"), ("MGBL-SYS-5-CONFIG_I", "aaa"), ("HA_EM-6-LOG", "aaa"),
        ("VSHD-5-VSHD_SYSLOG_CONFIG_I", "aaa"), ("ASA-4-106023", "asa"),
    ],
)  # fmt: skip
def test_cisco_services(tag: str, service: str) -> None:
    """The facility of a tag, whole or in parts, tells the service."""
    source = read(f"<189>45: *Nov 20 10:00:00.123 UTC: %{tag}: x").source
    assert source.products == {"cisco"}
    assert source.services & {"asa", "aaa", "bgp", "ldp"} == {service}


def test_cisco_sigma_rules() -> None:
    """SigmaHQ's own rules for Cisco, routed by log source, find the lines they are about."""
    folder = Path(__file__).parents[3] / "shared" / "data" / "sigma" / "rules" / "network" / "cisco"
    if not folder.exists():
        pytest.skip("SigmaHQ's rules are not here")
    lines = {
        BADAUTH: "Cisco BGP Authentication Failures",
        "<187>45: rtr1: *Mar  1 18:46:11.123: %LDP-3-SOCKET_TCP_PACKET_MD5_AUTHEN_FAIL: peer 10.0.0.1 bad":
            "Cisco LDP Authentication Failures",
        "<189>45: *Mar  1 18:46:11.123: %PARSER-5-CFGLOG_LOGGEDCMD: User:bob  logged command:clear logging":
            "Cisco Clear Logs",
        "<189>45: *Mar  1 18:46:11.123: %PARSER-5-CFGLOG_LOGGEDCMD: User:bob  logged command:no aaa new-model":
            "Cisco Disabling Logging",
    }  # fmt: skip
    engine = Engine(compile_rules(folder))
    for line, title in lines.items():
        found = engine.evaluate(Chunk("test", "auto", NOW, f"{line}\n".encode()))
        assert title in [engine.plan.rules[match.rule].title for match in found]


def test_cisco_tag() -> None:
    """The tag is one field, its parts are others; ECS calls the mnemonic ``event.code``."""
    r = read("<189>45: *Nov 20 10:00:00.123 UTC: %SYS-5-CONFIG_I: Configured from console by bob on vty0 (10.0.0.5)")
    names = ("cisco_tag", "cisco_facility", "cisco_severity", "mnemonic", "event.code", "message_number")
    assert [r.get(name) for name in names] == ["SYS-5-CONFIG_I", "SYS", "5", "CONFIG_I", "CONFIG_I", ABSENT]
    r = read("<166>Nov 20 2026 10:00:00 fw1 : %ASA-4-106023: Deny")
    assert [r.get(name) for name in names[3:]] == ["106023"] * 3


def test_folded() -> None:
    """What rsyslog folded has the fields of the message within, how often it came, and both texts for keywords."""
    r = read(
        "<38>Nov 20 10:00:00 h sshd[7]: message repeated 5 times: "
        "[ Failed password for root from 1.1.1.1 port 1 ssh2]\n"
    )
    wanted = {"user": "root", "src_ip": "1.1.1.1", "src_port": "1", "repeated": "5", "program": "sshd"}
    assert selected(r, wanted) == wanted
    assert r.get("message") == r.fields()["message"] == "Failed password for root from 1.1.1.1 port 1 ssh2"
    assert any("Failed password" in text for text in r.keywords())
    assert any("message repeated 5 times: [" in text for text in r.keywords())
    assert "sshd" in r.source.services
    inner = read('<38>Nov 20 10:00:00 h app[7]: message repeated 2 times: [ {"a": "x]"}]')
    assert (inner.get("a"), inner.get("repeated")) == ("x]", "2")


@pytest.mark.parametrize(
    "message",
    ["message repeated 5 times: [ cut", "message repeated 5 times: [", "message repeated 0 times: [ a]",
     "message repeated 5 times: ]", "so: message repeated 5 times: [ a]", "last message repeated 5 times"],
)  # fmt: skip
def test_not_folded(message: str) -> None:
    """Anything else than the whole of rsyslog's form is the message as it is."""
    r = read(f"<38>Nov 20 10:00:00 h app[7]: {message}")
    assert (r.get("message"), r.get("repeated"), list(r.keywords())) == (message, ABSENT, [message])


def test_host() -> None:
    """``host`` is the header's host, unless the event has such a field of its own."""
    line = "<38>Nov 20 10:00:00 web1 sshd[7]: Invalid user x from 203.0.113.9"
    assert [read(line).get(name) for name in ("host", "hostname", "host.name")] == ["web1"] * 3
    assert read("<38>Nov 20 10:00:00 web1 app[7]: a=b host=db1").get("host") == "db1"
    own = from_mapping({"host": {"ip": "10.0.0.1"}, "b": 1})
    assert (own.get("host"), own.get("hostname"), own.get("host.ip")) == ({"ip": "10.0.0.1"}, ABSENT, "10.0.0.1")
    assert from_mapping({"host": None, "hostname": "web1"}).get("host") is None
    assert provenance("host") is Provenance.ESCAPED


def test_topic_levels() -> None:
    """Each level of an MQTT topic is a field."""
    r = read('{"a": 1, "topic_level_1": "forged"}', "mqtt", origin="plant/press/7")
    assert (r.get("topic_level_1"), r.get("topic_level_3"), r.get("topic_level_4")) == ("plant", "7", ABSENT)
    assert provenance("topic_level_2") is Provenance.SYNTHETIC


def test_aliases() -> None:
    """ECS and Sigma names stand for each other; an event's own exact name goes before."""
    assert read("<38>Nov 20 10:00:00 h sshd[7]: Invalid user x from 203.0.113.9").get("source.ip") == "203.0.113.9"
    nested = from_mapping({"source": {"ip": "10.0.0.1"}, "process.command_line": "x"})
    assert (nested.get("src_ip"), nested.get("CommandLine")) == ("10.0.0.1", "x")
    both = from_mapping({"src_ip": None, "source.ip": "10.0.0.1"})
    assert (both.get("src_ip"), both.get("source.ip")) == (None, "10.0.0.1")
    assert from_mapping({"SourceIp": "10.0.0.1"}).get("src_ip") is ABSENT
    assert all(other in ALIASES[name] for name, others in ECS.items() for other in others)
    assert provenance("log.syslog.severity.name") is Provenance.SYNTHETIC
    assert guards("process.title") == guards("proctitle") != ()
    assert guards("CommandLine") == ()


def test_codec_of_one_format() -> None:
    """A codec that names a format reads that alone."""
    assert read(CEF, "cef").get("src_ip") == "10.0.0.1"
    assert read(CEF, "leef").get("src_ip") is ABSENT
    assert read("<38>Nov 20 10:00:00 h sshd[7]: Invalid user x from 203.0.113.9", "auditd").get("src_ip") is ABSENT
    assert read("a=1 b=2", "keyvalue").get("b") == "2"
    assert possible_source("zeek", LogSource()).products == {"zeek"}


def test_the_journal_by_mqtt_is_of_its_programs() -> None:
    """A rule of a program's log source meets the journal's JSON also where that comes by MQTT."""
    source = read('{"SYSLOG_IDENTIFIER": "sudo", "MESSAGE": "x"}', "mqtt").source
    assert "sudo" in source.services
    possible = possible_source("mqtt", LogSource())
    assert all(have <= may for have, may in zip(source, possible, strict=True))


_JSON: list[dict[str, Any]] = [
    {"Event": {"System": {"EventID": 1, "Provider": {"@Name": "x"}}, "EventData": {"Data": [{"@Name": "a"}, 1, None]}}},
    {"winlog": {"event_data": {"x": [1]}, "event_id": 4688, "channel": "Security"}},
    {"ts": 1, "uid": "x", "id.orig_h": "y", "uri": "/?", "trans_depth": 1},
    {"request": {"method": "GET", "uri": "/", "headers": {"User-Agent": ["x"]}}, "status": 1},
    {"remote_addr": "x", "request": "GET / HTTP/1.1", "status": "x"},
    {"auditID": "x", "verb": "get", "apiVersion": "audit.k8s.io/v1"},
    {"eventType": "x", "displayMessage": "y", "actor": {}, "published": "2026-11-20T10:00:00Z"},
    {"event_type": "alert", "flow_id": 1, "timestamp": "x", "dest_ip": "10.0.0.1"},
]
_LINES = [
    AUDIT.format("EXECVE", 'a0="ls" a1=6C73202D6C a2[0]=6C'), AUDIT.format("SYSCALL", "syscall=59 arch=c000003e"),
    AUDIT.format("USER_CMD", "msg='cwd=\"/\" cmd=6C73202D6C res=1'"),
    SYSMON, CEF, f"<14>Nov 20 10:00:00 fw1 {CEF}", LEEF, NGINX, APACHE,
    "<189>45: *Nov 20 10:00:00.123 UTC: %ASA-4-106023: Deny tcp src out:192.0.2.1/4 dst in:10.0.0.1/22 by access-group",
    "<189>45: *Nov 20 10:00:00.123 UTC: %SEC_LOGIN-4-LOGIN_FAILED: Login failed [user: bob] [Source: 192.0.2.1] [",
    "<187>46: rtr1: *Mar  1 18:46:12.123: %SYS-5-CONFIG_I: Configured from console by vty2 (10.34.195.36)",
    "%LINEPROTO-5-UPDOWN: Line protocol on Interface GigabitEthernet0/1, changed state to down",
    "<38>Nov 20 10:00:00 h sshd[7]: message repeated 5 times: [ Failed password for root from 1.1.1.1 port 1 ssh2]",
    '<38>Nov 20 10:00:00 h app[7]: message repeated 5 times: [ {"a": "xyz"}]',
    '<189>date=2026-11-20 time=10:00:00 devname="fw1" type=event eventtime=1795168800 a="b c" a=d',
    "a Syslogdate CEF:0|a|b|c|d|e|f|", "node=web1 type=PATH msg=audit(1.2:3): name=2F78",
    *(orjson.dumps(event).decode() for event in _JSON),
]  # fmt: skip


def changed(draw: st.DrawFn) -> bytes:
    line = draw(st.sampled_from(_LINES)).encode()
    marks = [b'"', b"\\", b"=", b"|", b"<", b"&quot;", b"&#x0;", b"\n"]
    noise = st.one_of(st.binary(max_size=8), st.sampled_from(marks))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(noise) + line[at + draw(st.integers(0, 5)) :]
    return line


@settings(max_examples=300)
@given(st.composite(changed)(), st.sampled_from(sorted(CODECS)))
def test_total(raw: bytes, codec: str) -> None:
    """Any bytes under any codec: every face works, twice the same, and within the input's possible sources."""
    r = read(raw, codec, origin="10.0.0.9")
    fields = dict(r.fields())
    assert all(r.get(name) == value for name, value in fields.items())
    assert all(isinstance(text, str) for text in r.keywords())
    assert r.host is None or isinstance(r.host, str)
    assert r.event_time is None or isinstance(r.event_time, int)
    possible = possible_source(codec, LogSource())
    assert all(have <= may for have, may in zip(r.source, possible, strict=True))
    assert dict(read(raw, codec, origin="10.0.0.9").fields()) == fields
    for line in (raw, b"<38>Nov 20 10:00:00 web1 app[7]: " + raw, b"<38>1 2026-11-20T10:00:00Z web1 app 7 m - " + raw):
        whole = read(line, codec)
        whole.fields()
        for name in (*syslog.FIELDS, *syslog.PARTS):
            assert read(line, codec).get(name) == whole.get(name), name


@settings(max_examples=300)
@given(st.composite(changed)())
def test_provenance(raw: bytes) -> None:
    """What is not synthetic stands in the raw event, under escapes that the prefilter tolerates or behind a guard."""
    r = read(raw)
    text = re.sub(r"&(?:lt|gt|amp|quot|apos|#\w+);", "", r.text)
    if r._structured() is not None or "\\" in r.text or text != r.text:
        return
    for name, value in r.fields().items():
        if provenance(name) is Provenance.SYNTHETIC or any(re.search(guard, raw, re.I) for guard in guards(name)):
            continue
        for item in value if isinstance(value, list) else [value]:
            assert len(str(item)) < 3 or str(item) in r.text, (name, item)


_LONG = {
    "audit": AUDIT.format("EXECVE", "") + 'a0=6C73 a1[0]="x',
    "audit-open": AUDIT.format("EXECVE", "") + 'a0="',
    "audit-types": AUDIT.format("EXECVE", "x") + "\n",
    "audit-hex": AUDIT.format("PROCTITLE", "proctitle=") + "6C",
    "xml-data": '<Event><Data Name="a">',
    "xml-cdata": "<Event><Data><![CDATA[",
    "xml-system": "<Event><System><EventID a='",
    "xml-provider": "<Event><Provider Name",
    "xml-entities": "<Event><Data Name='x'>&#1;&amp",
    "cef-keys": "CEF:0|a|b|c|d|e|f|" + "a=b ",
    "cef-pipes": "CEF:0|a|b" + "\\|",
    "leef": "LEEF:1.0|a|b|c|d|" + "a=b\t",
    "nginx": NGINX + ', request: "',
    "nginx-clients": NGINX.partition("client")[0] + ", client: ",
    "apache": APACHE + ", referer: ",
    "cisco": "<1>Nov 20 10:00:00 h %ASA-4-106023: " + "Deny tcp src a:",
    "cisco-head": "<1>46: rtr1: ",
    "cisco-uptime": "<1>46: 3w2d",
    "cisco-tag": "%A-5-",
    "folded": "<1>Nov 20 10:00:00 h a: message repeated 5 times: [ ]",
    "words": "a b CEF",
}


@pytest.mark.parametrize("name", _LONG)
def test_linear(name: str) -> None:
    """300 KB of a format's own phrases, however they are repeated, are decoded in well under a second."""
    text = _LONG[name]
    for tail in (text, text[-12:], text[-5:]):
        raw = (text + tail * (300_000 // len(tail))).encode()
        began = time.process_time()
        r = read(raw)
        r.fields()
        list(r.keywords())
        assert time.process_time() - began < 1, tail


def test_tables() -> None:
    """Every row has a name of its own, which is a codec's where a codec reads it alone."""
    assert all(codec.only in {None, "", *FORMATS, *SHAPES} for codec in CODECS.values())
    assert not set(FORMATS) & set(SHAPES)


def test_documented() -> None:
    """``docs/fields.md`` names every codec's format, make of JSON and alias."""
    page = (Path(__file__).parents[2] / "docs" / "fields.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in (*FORMATS, *SHAPES, *ECS))


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_formats_begin_with_what_is_looked_for(form: Format) -> None:
    """No format begins with a byte at which none is tried."""
    pattern = re.compile(form.starts)
    possible = {b"%c" % code for code in range(256) if may_begin(pattern, b"%c" % code)}
    assert possible
    assert possible <= FIRST


def may_begin(pattern: re.Pattern[bytes], first: bytes) -> bool:
    """Whether a match of ``pattern`` may begin with ``first``: as the second engine tells by a partial match."""
    return regex.compile(pattern.pattern).match(first, partial=True) is not None
