"""OpenTelemetry's logs, JSON and protobuf: the same events."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.proto", reason="an environment from before: make environment")
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from tests.inputs.push.reading import objects, read
from vedette.decode.decoder import record
from vedette.inputs.push.base import PROTOBUF, Refused, Request
from vedette.inputs.push.otlp import OTLP

LOGS = "/v1/logs"


def any_value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=map(any_value, value)))
        case dict():
            return AnyValue(kvlist_value=KeyValueList(values=pairs(value)))
        case None:
            return AnyValue()
        case _:
            return AnyValue(string_value=value)


def pairs(values: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in values.items()]


def request(
    records: list[LogRecord], resource: dict[str, Any] | None = None, scope: str = ""
) -> ExportLogsServiceRequest:
    made = ExportLogsServiceRequest()
    of_resource = made.resource_logs.add()
    of_resource.resource.attributes.extend(pairs(resource or {}))
    of_scope = of_resource.scope_logs.add()
    of_scope.scope.name = scope
    of_scope.log_records.extend(records)
    return made


def as_json(request: ExportLogsServiceRequest) -> bytes:
    """OTLP's JSON: as protobuf's own, but identifiers in hex and enumerations as numbers."""
    found = MessageToDict(request, use_integers_for_enums=True)
    for of_resource, of_message in zip(found.get("resourceLogs", []), request.resource_logs, strict=True):
        for of_scope, scope in zip(of_resource.get("scopeLogs", []), of_message.scope_logs, strict=True):
            for log, message in zip(of_scope.get("logRecords", []), scope.log_records, strict=True):
                log["traceId"], log["spanId"] = message.trace_id.hex(), message.span_id.hex()
    return json.dumps(found).encode()


def both(request: ExportLogsServiceRequest) -> list[Any]:
    """The events, which are the same by JSON and by protobuf."""
    by_json, said = read(LOGS, as_json(request))
    assert (said.status, said.body) == (200, b"{}")
    by_protobuf, said = read(LOGS, request.SerializeToString(), PROTOBUF)
    assert (said.status, said.body, said.content_type) == (200, b"", PROTOBUF)
    assert objects(by_protobuf) == objects(by_json)
    return objects(by_protobuf)


def test_a_record() -> None:
    """Time, body, severity, identifiers, attributes; then scope and resource; names of ECS."""
    log = LogRecord(
        time_unix_nano=1790000000000000001,
        severity_number=17,
        body=any_value("user bob logged in"),
        attributes=pairs({"http.method": "GET", "http.status_code": 200, "ok": True, "ratio": 0.5, "tags": ["a", 1]}),
        trace_id=bytes(range(16)),
        span_id=bytes(8),
        event_name="login",
    )
    resource = {"service.name": "shop", "k8s.pod.name": "shop-1", "process.executable.path": "/usr/bin/shop"}
    assert both(request([log], resource, "lib")) == [
        {
            "@timestamp": 1790000000000000001,
            "message": "user bob logged in",
            "log.level": "error",
            "event.action": "login",
            "trace.id": "000102030405060708090a0b0c0d0e0f",
            "span.id": "0000000000000000",
            "http.request.method": "GET",
            "http.response.status_code": 200,
            "ok": True,
            "ratio": 0.5,
            "tags": ["a", 1],
            "service.name": "shop",
            "kubernetes.pod.name": "shop-1",
            "process.executable": "/usr/bin/shop",
            "otel.scope.name": "lib",
        }
    ]


def test_rules_find_the_fields() -> None:
    """By Sigma's names as by ECS's, and the event has its own time."""
    log = LogRecord(time_unix_nano=1790000000123456789, body=any_value("x"), attributes=pairs({"client.address": "c"}))
    log.attributes.extend(pairs({"source.address": "10.0.0.9", "enduser.id": "bob"}))
    made = request([log], {"process.executable.path": "/bin/sh", "host.name": "web-1"})
    (event,), _ = read(LOGS, made.SerializeToString(), PROTOBUF)
    found = record(event, "auto")
    assert [found.get(name) for name in ("src_ip", "user", "Image", "host.name", "message")] == [
        "10.0.0.9", "bob", "/bin/sh", "web-1", "x",
    ]  # fmt: skip
    assert found.event_time == 1790000000123456
    assert found.host == "web-1"


def test_bodies() -> None:
    """A map's fields are the event's (the journald receiver's), syslog names its program, other values are messages."""
    journal = {"MESSAGE": "Failed password for root", "SYSLOG_IDENTIFIER": "sshd", "_PID": "42"}
    bodies = [journal, "Nov 23 06:16:34 web-1 sshd[42]: Failed password for root from 10.0.0.9 port 22 ssh2", 5, None]
    found = both(request([LogRecord(body=any_value(body)) for body in bodies]))
    assert found[0] == journal
    assert (found[1]["SYSLOG_IDENTIFIER"], found[1]["_HOSTNAME"]) == ("sshd", "web-1")
    assert found[2:] == [{"message": 5}, {}]
    (event, *_), _ = read(LOGS, request([LogRecord(body=any_value(bodies[1]))]).SerializeToString(), PROTOBUF)
    assert record(event, "auto").get("src_ip") == "10.0.0.9"
    assert "sshd" in record(event, "auto").source.services


def test_the_syslog_receiver() -> None:
    """Its attributes name the program and the message."""
    attributes = {"appname": "sshd", "hostname": "web-1", "proc_id": "42", "message": "Failed password for root"}
    (event,) = both(request([LogRecord(attributes=pairs(attributes))]))
    assert (event["SYSLOG_IDENTIFIER"], event["_PID"], event["MESSAGE"]) == ("sshd", "42", "Failed password for root")


def test_what_a_record_says_goes_first() -> None:
    """Of one name the record's value is kept, not its resource's; two that are called alike in ECS both stay."""
    log = LogRecord(attributes=pairs({"host.name": "own", "http.url": "/a", "url.full": "/b"}))
    (event,) = both(request([log], {"host.name": "resource", "a": 1}))
    assert event["host.name"] == "own"
    assert (event["url.original"], event["url.full"]) == ("/a", "/b")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=20) | st.binary(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
ATTRIBUTES = st.dictionaries(st.text(max_size=8) | st.sampled_from(["http.url", "url.full", "appname"]), VALUES)


@settings(max_examples=60)
@given(VALUES, ATTRIBUTES, ATTRIBUTES, st.integers(0, 24), st.integers(0, (1 << 63) - 1))
def test_json_and_protobuf_are_the_same(
    body: Any, attributes: dict[str, Any], resource: dict[str, Any], severity: int, time: int
) -> None:
    """For any values."""
    log = LogRecord(
        time_unix_nano=time,
        severity_number=severity,
        body=any_value(body),
        attributes=pairs(attributes),
    )
    assert len(both(request([log], resource))) == 1


@given(st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    """They are refused, or read."""
    for kind in ("application/json", PROTOBUF):
        try:
            read(LOGS, body, kind)
        except Refused as refused:
            said = OTLP.refuse(refused, Request("POST", LOGS, {}, {"content-type": kind}, body))
            assert said.status == 400
            assert said.content_type == kind


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"resourceLogs": {}},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [1]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "soon"}]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"attributes": [1]}]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": "text"}]}]}]},
    ],
)
def test_refused(body: Any) -> None:
    """What is no OTLP is refused with the place, as a ``google.rpc.Status``."""
    with pytest.raises(Refused) as caught:
        read(LOGS, body)
    said = OTLP.refuse(caught.value, Request("POST", LOGS, {}, {"content-type": "application/json"}, b""))
    assert orjson.loads(said.body)["code"] == 3


def test_another_content_type() -> None:
    """It gets 415."""
    with pytest.raises(Refused) as caught:
        read(LOGS, b"", "text/plain")
    assert caught.value.status == 415
