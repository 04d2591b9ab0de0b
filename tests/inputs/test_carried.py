"""Events that shippers put into JSON as a text: by every way in what the text says, with what stands beside it."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differences import walk
from tests.inputs.intake import LOCAL, Bin, listening
from tests.inputs.push.reading import read
from tests.inputs.test_acknowledge import Disk
from tests.inputs.test_batches import objects
from tests.inputs.test_relp_listen import Sender, relp
from tests.inputs.test_tail import append
from tests.inputs.test_tail_events import following
from tests.waits import eventually
from vedette.decode.codecs import builtin
from vedette.decode.decoder import ABSENT, Record, record
from vedette.inputs.batches import events_of, split
from vedette.inputs.records import Part
from vedette.inputs.settings import KafkaInput
from vedette.model.counters import Counters
from vedette.runtime.offline.scan import events as scanned

TIME = 1_795_832_973_500_000
STAMP = "2026-11-28T02:29:33.500Z"
SSHD = "<38>Nov 28 02:29:33 web-1 sshd[42]: Failed password for root from 192.0.2.9 port 22 ssh2"
FAILED = {"program": "sshd", "src_ip": "192.0.2.9", "hostname": "web-1"}
TRAIL = {"eventVersion": "1.09", "eventName": "ConsoleLogin", "sourceIPAddress": "192.0.2.7"}
ACCESS = '192.0.2.7 - - [28/Nov/2026:02:29:33 +0000] "GET /a?b=c HTTP/1.1" 404 12 "-" "curl/8"'
XML = (
    "<Event xmlns='http://schemas.microsoft.com/win/2004/08/events/event'><System><Provider Name='P'/><EventID>4625"
    "</EventID><Channel>Security</Channel><Computer>w1</Computer></System><EventData><Data Name='TargetUserName'>kim"
    "</Data></EventData></Event>"
)

CARRIED: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("Cribl, syslog", {"_raw": SSHD, "_time": 1795832973.5, "host": "fwd", "cribl_pipe": "main"},
     {**FAILED, "cribl_pipe": "main"}),
    ("Cribl, a text", {"_raw": "it's down", "_time": "1795832973.5", "host": "w1", "source": "/var/log/a"},
     {"message": "it's down", "source": "/var/log/a", "host": "w1"}),
    ("Cribl Edge, Windows", {"_raw": json.dumps({"Id": 4625, "LogName": "Security", "ProviderName": "P", "Level": 0}),
                             "_time": 1795832973.5, "host": "w1"},
     {"EventID": 4625, "Channel": "Security"}),
    ("Cribl Edge, Windows in XML", {"_time": 1795832973.5, "_raw": XML, "sourcetype": "XmlWinEventLog", "host": "w1"},
     {"EventID": "4625", "TargetUserName": "kim", "carrier.sourcetype": "XmlWinEventLog"}),
    ("Cribl, an access log", {"_raw": ACCESS, "_time": 1795832973.5, "host": "w1", "a": {"b": {"c": 1}}},
     {"cs-uri-query": "b=c", "src_ip": "192.0.2.7", "carrier.a.b.c": "1"}),
    ("Cribl, CEF", {"_raw": "CEF:0|v|p|1|100|n|5|src=192.0.2.9", "_time": 1795832973.5, "host": "w1"},
     {"sourceAddress": "192.0.2.9", "src_ip": "192.0.2.9"}),
    ("Cribl, CEF behind a header", {"_raw": "<14>Nov 28 02:29:33 w1 CEF:0|v|p|1|100|n|5|src=192.0.2.9", "_time": 1},
     {"src_ip": "192.0.2.9", "hostname": "w1"}),
    ("Cribl, 5424", {"_raw": '<165>1 - fw app 7 ID [a@1 b="c\\]"] CEF:0|v|p|1|100|n|5|src=192.0.2.9', "host": "fwd",
                     "_time": 1795832973.5},
     {"hostname": "fw", "program": "app", "pid": "7", "msgid": "ID", "priority": 165, "a@1.b": "c]",
      "carrier.host": "fwd", "src_ip": "192.0.2.9"}),
    ("Cribl, ASA", {"_raw": "<166>Nov 28 02:29:33 fw : %ASA-6-302013: Built", "_time": 1795832973.5, "host": "fwd"},
     {"mnemonic": "302013", "severity": "info", "carrier.host": "fwd"}),
    ("Vector, a container that calls itself another", {
        "message": json.dumps({"a": "b", "hostname": "bastion", "kubernetes": {"pod_name": "trusted"},
                               "container_name": "backup", "@timestamp": "2020-01-01T00:00:00Z"}),
        "source_type": "kubernetes_logs", "host": "node7", "kubernetes": {"pod_name": "evil"}, "container_name": "evil",
        "timestamp": STAMP},
     {"a": "b", "host": "node7", "hostname": ABSENT, "kubernetes.pod_name": "evil", "container_name": "evil"}),
    ("Fluent Bit, a container that prints another host's line", {
        "log": "<38>Nov 28 2020 02:29:33 bastion sshd[42]: Failed password for root from 192.0.2.9 port 22 ssh2",
        "kubernetes": {"host": "node7", "pod_name": "evil"}, "date": 1795832973.5, "host": "node7"},
     {"kubernetes.pod_name": "evil", "host": "node7", "hostname": ABSENT}),
    ("Fluent Bit, a daemon's own log", {"date": 1795832973.5, "stream": "stdout", "log":
        "2026-11-28 02:29:33,500 fail2ban.actions        [7]: NOTICE  [sshd] Ban 192.0.2.9"},
     {"src_ip": "192.0.2.9", "jail": "sshd", "carrier.stream": "stdout"}),
    ("Cribl, pairs", {"_raw": 'devname="w1" devid="x" logid="1" type="event" user="kim"', "_time": 1795832973.5},
     {"user": "kim"}),
    ("Splunk's export", {"preview": False, "result": {"_raw": SSHD, "_time": STAMP, "sourcetype": "linux_secure"}},
     FAILED),
    ("GELF", {"version": "1.1", "host": "w1", "short_message": "An account failed", "timestamp": 1795832973.5,
              "level": 5, "_EventID": 4625, "_Channel": "Security", "_SourceName": "P", "_TargetUserName": "kim"},
     {"message": "An account failed", "EventID": 4625, "Channel": "Security", "TargetUserName": "kim", "level": 5}),
    ("GELF, of Docker", {"version": "1.1", "host": "w1", "short_message": json.dumps({"user": {"name": "kim"}}),
                         "timestamp": 1795832973.5, "_container_name": "web", "_created": "x"},
     {"user.name": "kim", "container_name": "web", "host": "w1"}),
    ("GELF, a long text", {"version": "1.1", "host": "w1", "short_message": "Failed pa", "full_message": SSHD,
                           "timestamp": 1795832973.5}, FAILED),
    ("Fluent Bit", {"date": 1795832973.5, "log": '{"user":"kim"}', "stream": "stdout",
                    "kubernetes": {"pod_name": "cart", "host": "w1"}},
     {"user": "kim", "kubernetes.pod_name": "cart"}),
    ("Fluentd, of Docker", {"container_id": "4f2c", "container_name": "/web", "source": "stdout", "log": ACCESS},
     {"cs-uri-query": "b=c", "carrier.container_name": "/web"}),
    ("Fluent Bit, a text", {"@timestamp": STAMP, "log": "it's down\n", "stream": "stderr"},
     {"message": "it's down", "stream": "stderr"}),
    ("Vector", {"message": SSHD[4:], "source_type": "file", "file": "/var/log/auth.log", "timestamp": STAMP},
     {**FAILED, "file": "/var/log/auth.log"}),
    ("Filebeat", {"@timestamp": STAMP, "@metadata": {"beat": "filebeat"}, "message": SSHD[4:], "input": {"type": "log"},
                  "agent": {"type": "filebeat"}, "log": {"offset": 7, "file": {"path": "/var/log/auth.log"}}},
     {**FAILED, "log.file.path": "/var/log/auth.log"}),
    ("Vector, JSON", {"message": json.dumps(TRAIL), "source_type": "aws_s3", "timestamp": STAMP}, TRAIL),
)  # fmt: skip
"""Writer, what it writes, and fields of the event."""

PLAIN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Vector, words", {"message": "it's down", "source_type": "file", "timestamp": STAMP}),
    ("a field of this name", {"_raw": "x", "sensor": 7}),
    ("a log's name", {"log": "audit", "user": "kim"}),
    ("an object", {"log": {"level": "info"}, "stream": "stdout"}),
    ("GELF's name alone", {"short_message": "x", "host": "w1"}),
    ("none that is empty", {"_raw": "", "_time": 1}),
    ("numbers", {"_raw": 7, "_time": 1}),
    ("a message", {"message": SSHD, "user": "kim"}),
    ("Windows", {"winlog": {"event_id": "1", "channel": "System"}, "message": SSHD, "agent": {"type": "winlogbeat"}}),
)  # fmt: skip
"""What is left as it is."""

WATCH = {
    "messageType": "DATA_MESSAGE", "owner": "111111111111", "logGroup": "CloudTrail/logs", "logStream": "s-1",
    "subscriptionFilters": ["all", "of it"], "policyLevel": "ACCOUNT_LEVEL_POLICY",
    "logEvents": [{"id": "1", "timestamp": 1795832973500, "message": json.dumps(TRAIL)},
                  {"id": "2", "timestamp": 1795832973500, "message": SSHD},
                  {"id": "3", "timestamp": 1795832973500, "message": "REPORT RequestId: a"},
                  {"id": "4", "timestamp": 1795832973500, "message": "CEF:0|v|p|1|100|n|5|src=192.0.2.9"}],
}  # fmt: skip


def known(event: bytes) -> Record:
    return record(event, "auto", received_at=TIME + 60_000_000)


def by_all_ways(payload: bytes) -> list[bytes]:
    """The events of a payload of Kafka; those of HTTP and of a file that is scanned are the same."""
    part = Part(("t", 0))
    message = SimpleNamespace(value=lambda: payload, offset=lambda: 7)
    part.add(message, builtin("auto").kinds, False, frozenset())
    ((chunk, _),) = part.chunks(KafkaInput("k", brokers=("192.0.2.9:9092",), topics=("t",)), 1)
    assert chunk is not None
    events = [chunk.data[start:end] for start, end in chunk.spans()]
    if payload[:1] == b"{" and b"\n" not in payload and len(events) == 1 and len(payload) < 8192:
        assert read("/_bulk", b'{"create":{}}\n' + payload + b"\n")[0] == events
    for kind in ("application/json", "application/x-ndjson", ""):
        assert read("/events", payload, kind)[0] == events
    _, chunks = scanned(io.BytesIO(payload))
    assert [chunk.data[start:end] for chunk in chunks for start, end in chunk.spans()] == events
    return events


@walk(("writer", "event", "wanted"), CARRIED)
def test_a_text_is_the_event(writer: str, event: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Whatever the order of names, alone, as a line of several and in an array."""
    for names in (list(event), list(reversed(event))):
        data = json.dumps({name: event[name] for name in names}).encode()
        (one,) = by_all_ways(data)
        shown = known(one)
        assert {name: shown.get(name) for name in wanted} == wanted
        assert abs((shown.event_time or TIME) - TIME) < 60_000_000
        if event.get("host") == "w1" and "hostname" not in wanted:
            assert shown.host == "w1"
        assert by_all_ways(data + b"\n" + data + b"\n") == [one, one]
        assert by_all_ways(b"[%b,%b]" % (data, data)) == [one, one]


def test_log_sources() -> None:
    """Are those of the text."""
    by_name = {writer: known(by_all_ways(json.dumps(event).encode())[0]) for writer, event, _ in CARRIED}
    assert "sshd" in by_name["Cribl, syslog"].source.services
    assert "sshd" in by_name["Vector"].source.services
    for name in ("Cribl Edge, Windows", "Cribl Edge, Windows in XML", "GELF"):
        source = by_name[name].source
        assert (source.products, source.services - {"syslog"}) == ({"windows"}, {"security"})
    assert "webserver" in by_name["Fluentd, of Docker"].source.categories


async def test_a_followed_file(tmp_path: Path) -> None:
    """Whose first line carries an event has such lines; an input of JSON alone keeps them JSON."""
    lines = [json.dumps(event).encode() for _, event, _ in CARRIED] + [b'{"user":"kim"}', b"no JSON"]
    for form in ("auto", "json"):
        path, bin = tmp_path / form, Bin()
        append(path, b"".join(line + b"\n" for line in lines))
        async with following(bin, path, format=form):
            await eventually("the events", lambda bin=bin: len(bin.events) == len(lines))
        assert bin.events == [*map(only, lines)] if form == "auto" else all(map(json.loads, bin.events[:-1]))


def only(line: bytes) -> bytes:
    """The event of a line, by all other ways."""
    run = split(line)
    return line if run is None else next(events_of(run))


async def test_by_syslog_and_relp() -> None:
    """Messages of TCP, however they are delimited, of UDP and of RELP that are JSON without a header, as in a file;
    each with its own peer, and what is beside them as it was."""
    log = b"<13>Nov 28 02:29:33 w1 app: x {"
    trail = json.dumps({"Records": [TRAIL, TRAIL]}).encode()
    raw = json.dumps({"_raw": SSHD, "_time": 1795832973.5}).encode()
    gelf = json.dumps({"version": "1.1", "host": "w1", "short_message": "x", "_a": 1}).encode()
    array = json.dumps([TRAIL, {"a": "b"}]).encode()
    plain = b'{"user":"kim"}'
    wanted = [event for one in (log, trail, raw, gelf, array, plain) for event in by_all_ways(one)]
    assert len(wanted) == 8
    messages = (log, trail, raw, gelf, array, plain)
    for stream in (b"".join(one + b"\n" for one in messages), plain + b"\0" + b"\0".join(messages) + b"\0"):
        bin = Bin()
        async with listening(bin, Counters()) as (_, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(stream)
            writer.close()
            await eventually("the events", lambda bin=bin, stream=stream: len(bin.events) == 8 + (b"\0" in stream))
        assert bin.events[-8:] == wanted
    bin = Bin()
    async with listening(bin, Counters(), udp=LOCAL) as (_, port):
        address = ("127.0.0.1", port)
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
        ):
            other.bind(("127.0.0.2", 0))
            for message in messages:
                one.sendto(message, address)
                other.sendto(message, address)
            await eventually("the events", lambda: len(bin.events) == 16)
    assert bin.by_origin == {"127.0.0.1": wanted, "127.0.0.2": wanted}
    disk = Disk()
    async with relp(disk, Counters()) as (_, port):
        sender = await Sender.open(port)
        sender.send(*messages)
        await eventually("the events", lambda: len(disk.events) == 8)
        sender.close()
    assert disk.events == wanted


@walk(("what", "event"), PLAIN)
def test_what_is_no_carrier(what: str, event: dict[str, Any]) -> None:
    """Is its own event, byte for byte."""
    data = json.dumps(event).encode()
    assert split(data) is None
    assert by_all_ways(data) == [data]


def test_cloudwatch() -> None:
    """Each event of a subscription, with its group, stream and account; whatever the order of names."""
    for names in (list(WATCH), list(reversed(WATCH))):
        trail, sshd, report, cef = map(known, by_all_ways(json.dumps({name: WATCH[name] for name in names}).encode()))
        assert {name: trail.get(name) for name in TRAIL} == TRAIL
        assert {name: sshd.get(name) for name in FAILED} == FAILED
        assert report.get("message") == "REPORT RequestId: a"
        assert (cef.get("src_ip"), cef.get("carrier.logGroup")) == ("192.0.2.9", "CloudTrail/logs")
        assert {event.event_time for event in (trail, report, cef)} == {TIME}
        assert {event.get("logGroup") for event in (trail, sshd, report)} == {"CloudTrail/logs"}
        assert report.get("owner") == "111111111111"


@pytest.mark.parametrize(
    "odd",
    [
        (b'"owner": "111111111111"', b'"owner": oops'),
        (b'"logEvents"', b'"x"'),
        (b'"logEvents": [', b'"logEvents": [7,'),
        (b'"owner"', b'"logEvents"'),
        (b'"owner"', b'"user"'),
    ],
)
def test_what_only_looks_like_cloudwatch(odd: tuple[bytes, bytes]) -> None:
    """Is one event, and raises nothing."""
    data = json.dumps(WATCH).encode().replace(*odd, 1)
    assert split(data) is None


def test_text_cannot_forge() -> None:
    """What a text says is neither what stands beside it nor the header before it, and the other way round."""
    event = {"_raw": ACCESS + ' [carrier b="2"]', "_time": 1, "host": 'w"]1', "j": {"journal": {"_UID": "0"}}}
    shown = known(by_all_ways(json.dumps(event).encode())[0])
    assert (shown.get("carrier.b"), shown.get("_UID"), shown.get("src_ip")) == (ABSENT, ABSENT, "192.0.2.7")
    assert shown.get("carrier.j.journal._UID") == "0"
    assert "sshd" not in shown.source.services
    inner = {"kubernetes": {"pod_name": "other"}, "stream": "x", "user": "kim"}
    event = {"log": json.dumps(inner), "kubernetes": {"pod_name": "cart"}, "stream": "stdout"}
    shown = known(by_all_ways(json.dumps(event).encode())[0])
    assert (shown.get("kubernetes.pod_name"), shown.get("stream"), shown.get("user")) == ("cart", "stdout", "kim")
    windows = {"event_id": 7, "channel": "System", "computer": "w1", "source_type": "windows_event_log"}
    for text in ('{"EventID":1,"channel":"x"}', "CEF:0|v|p|1|100|n|5|src=192.0.2.9", SSHD):
        shown = known(by_all_ways(json.dumps({**windows, "message": text}).encode())[0])
        assert (shown.get("EventID"), shown.source.services) == (7, {"system"})


def test_for_inputs_of_json_alone() -> None:
    """There no line is an event: a text that is none of JSON is the message."""
    for writer, event, wanted in CARRIED:
        run = split(json.dumps(event).encode(), texts=False)
        assert run is not None, writer
        (one,) = events_of(run)
        shown = record(one, "json")
        assert json.loads(one)
        if "carrier" not in str(wanted) and "src_ip" not in wanted and "user" not in wanted:
            assert {name: shown.get(name) for name in wanted} == wanted


@given(objects, st.sampled_from(["_raw", "log", "short_message", "message"]), st.text(max_size=40))
def test_any_object(event: dict[str, Any], name: str, text: str) -> None:
    """No exception, and no event is lost."""
    whole = {**event, name: text, "_time": 1, "stream": "x", "version": "1.1", "host": "h", "source_type": "x"}
    run = split(json.dumps(whole).encode())
    assert run is None or len(run.ends or ()) == 1


@pytest.mark.parametrize(
    "text", ["[" * 20_000, "{" * 20_000, '{"a":' * 20_000, "<13>" * 9999, " " * 99_999, "\\" * 99_999, "a=" * 99_999]
)
def test_hostile_text(text: str) -> None:
    """No time beyond a look at each byte, no exception; nothing is lost."""
    for event in ({"_raw": text, "_time": 1}, {"_raw": "a=1", "_time": 1, "x": text}):
        (one,) = by_all_ways(json.dumps(event).encode())
        assert one
