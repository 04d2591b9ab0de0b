"""Splunk's HTTP Event Collector."""

from __future__ import annotations

import orjson
import pytest

from tests.inputs.push.reading import objects, read
from vedette.decode.decoder import record
from vedette.inputs.push.base import Refused, Request
from vedette.inputs.push.hec import HEC

EVENT = "/services/collector/event"


def test_events() -> None:
    """Objects one after the other, however they are separated: each one event, its metadata under ECS's names."""
    first = {"time": 1790000000.25, "host": "web-1", "source": "/var/log/app", "sourcetype": "app", "index": "main",
           "event": {"user": "bob", "n": 1}, "fields": {"k8s.pod.name": "p"}}  # fmt: skip
    second = {"event": "plain text"}
    for between in (b"", b"\n", b"\r\n \n"):
        events, said = read(EVENT, orjson.dumps(first) + between + orjson.dumps(second))
        assert objects(events) == [
            {"@timestamp": 1790000000.25, "host.name": "web-1", "source": "/var/log/app", "sourcetype": "app",
             "index": "main", "user": "bob", "n": 1, "kubernetes.pod.name": "p", "container": {}},
            {"message": "plain text"},
        ]  # fmt: skip
        assert orjson.loads(said.body) == {"text": "Success", "code": 0}


def test_a_text_that_is_syslog_or_json() -> None:
    """Its program and message are fields, and those of JSON are its own."""
    line = "<38>Nov 23 06:16:34 web-1 sshd[42]: Failed password for root from 10.0.0.9 port 22 ssh2"
    events, _ = read(EVENT, b"".join(orjson.dumps({"event": text}) for text in (line, '{"a": 1}')))
    first, second = objects(events)
    assert first == {
        "SYSLOG_IDENTIFIER": "sshd", "_HOSTNAME": "web-1", "_PID": "42",
        "MESSAGE": "Failed password for root from 10.0.0.9 port 22 ssh2",
    }  # fmt: skip
    assert second == {"a": 1}
    (event,), _ = read(EVENT, b'{"event":{"n":18446744073709551616}}')
    assert orjson.loads(event) == {"n": "18446744073709551616"}


def test_a_text_of_another_format() -> None:
    """Is a line, so that it is read as anywhere else; with what stands beside it. An input of JSON alone takes none."""
    xml = "<Event><System><EventID>7</EventID><Channel>System</Channel></System></Event>"
    events, _ = read(EVENT, {"time": 1790000000.25, "host": "w1", "sourcetype": "XmlWinEventLog", "event": xml})
    shown = record(events[0], "auto")
    assert (shown.get("EventID"), shown.get("Channel"), shown.host) == ("7", "System", "w1")
    assert (shown.event_time, shown.get("carrier.sourcetype")) == (1_790_000_000_250_000, "XmlWinEventLog")
    (event,) = [event for some in HEC.read(Request("POST", EVENT, {}, {}, orjson.dumps({"event": xml}), texts=False))
                for event in some]  # fmt: skip
    assert orjson.loads(event) == {"message": xml}


def test_raw_and_query() -> None:
    """Raw is a line an event; of events the query's metadata hold where they say none."""
    assert read("/services/collector/raw", b"one\ntwo\n", "text/plain")[0] == [b"one", b"two"]
    events, _ = read(EVENT + "?host=h&sourcetype=t", b'{"event":"x"}{"event":"y","host":"own"}')
    assert [one["host.name"] for one in objects(events)] == ["h", "own"]


def test_acknowledgements() -> None:
    """With a channel each request gets a number, which is acknowledged: it was answered when it was stored."""
    numbers = []
    for _ in range(2):
        _, said = read(EVENT, {"event": "x"}, **{"x-splunk-request-channel": "c1"})
        numbers.append(orjson.loads(said.body)["ackId"])
    assert numbers[1] == numbers[0] + 1
    events, said = read("/services/collector/ack?channel=c1", {"acks": numbers})
    assert events == []
    assert orjson.loads(said.body) == {"acks": {str(number): True for number in numbers}}


@pytest.mark.parametrize(
    ("body", "code", "number"),
    [
        (b"", 5, 0),
        (b'{"event":"a"} nonsense', 6, 1),
        (b'{"event":"a"}{"host":"h"}', 12, 1),
        (b'{"event":""}', 13, 0),
        (b"[1]", 6, 0),
    ],
)
def test_refused(body: bytes, code: int, number: int) -> None:
    """In Splunk's words: the code, and the number of the event at fault; nothing of the request is taken."""
    with pytest.raises(Refused) as caught:
        read(EVENT, body)
    said = HEC.refuse(caught.value, Request("POST", EVENT, {}, {}, body))
    assert said.status == 400
    found = orjson.loads(said.body)
    assert (found["code"], found["invalid-event-number"]) == (code, number)
