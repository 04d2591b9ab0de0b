"""OTLP by the native kernel: the bytes that the readers in Python make of what is sent."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.proto", reason="an environment from before: make environment")
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from tests.inputs.push.both import events_of, natively, same, usual
from tests.inputs.push.test_otlp import any_value, as_json, pairs, request
from vedette.engine import kernel
from vedette.inputs.push import texts
from vedette.model.event import CHUNK_BYTES

pytestmark = pytest.mark.skipif(kernel.LOADED is None, reason=f"the native kernel: {kernel.why_not}")

NAMES = ["message", "MESSAGE", "@timestamp", "log.level", "trace.id", "host.name", "a", 'b\n"é', "", *texts.ECS]
name = st.sampled_from(NAMES) | st.text(max_size=12)
LINES = [
    '{"message":"m","a":{"b":[1,2.50,-0.0,1e3,"\\u00e9\\ud83d\\ude00\\/",null,true]}}',
    ' {"a":1}',
    '{"a":1,"a":2}',
    "{",
    '{"a":-0}',
    '{"a":[18446744073709551616,-9223372036854775809]}',
    '{"a":\n1 ,"b":[ ],"c":{ }}\n',
    '{"a":1} x',
    '{"@timestamp":"2026","log.level":"x"}',
    "{}",
    '{"a":"\\ud800"}',
    "<13>Nov 23 06:16:34 web-1 app[7]: said",
    "Nov 23 06:16:34 web-1 app: said",
    "Now 12 of 3",
    "<b>",
    "<1 of 2>",
    "2026-11-23T06:16:34Z web-1 app[7]: said",
    "2026-11-23 06:16:34 said",
    "\u0661\u0661\u0661\u0661-11-23T06:16:34Z h a: x",
    "<38>1 2026-11-23T06:16:34Z web-1 app 7 id - said",
    "<34>sshd[4]: no time",
    '{"a":' * 30 + "1" + "}" * 30,
    "\u00c9t\u00e9",
    "7 a",
]
text = st.sampled_from(LINES) | st.text(max_size=40) | st.from_regex(texts._SYSLOG) | st.binary(max_size=20).map(repr)
floats = st.floats() | st.floats(1e-9, 1e-3) | st.floats(1e14, 1e18) | st.sampled_from([1e-5, 1e-4, 1e15, 1e16, 0.1])
scalar = text | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-9, 99) | st.booleans() | floats | st.none()
value = st.recursive(
    scalar | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(name, inner, max_size=3),
    max_leaves=8,
)
attributes = st.dictionaries(name, value, max_size=5).map(pairs)
record = st.builds(
    LogRecord,
    time_unix_nano=st.sampled_from([0, 1, 1790000000000000001, (1 << 64) - 1]),
    observed_time_unix_nano=st.sampled_from([0, 1790000000000000002]),
    severity_number=st.sampled_from([0, 0, 1, 9, 24]),
    severity_text=st.sampled_from(["", "INFO", 'a"b', "é"]),
    body=value.map(any_value),
    attributes=attributes,
    dropped_attributes_count=st.sampled_from([0, 3]),
    flags=st.sampled_from([0, 1]),
    trace_id=st.binary(max_size=16),
    span_id=st.sampled_from([b"", bytes(8)]),
    event_name=st.sampled_from(["", "login"]),
)


@st.composite
def requests(draw: st.DrawFn) -> ExportLogsServiceRequest:
    made = ExportLogsServiceRequest()
    for _ in range(draw(st.integers(0, 2))):
        of_resource = made.resource_logs.add(schema_url=draw(st.sampled_from(["", "https://a/1"])))
        of_resource.resource.attributes.extend(draw(attributes))
        for _ in range(draw(st.integers(0, 2))):
            of_scope = of_resource.scope_logs.add(schema_url=draw(st.sampled_from(["", "https://a/1"])))
            of_scope.scope.attributes.extend(draw(attributes))
            of_scope.scope.name, of_scope.scope.version = draw(st.sampled_from([("", ""), ("lib", "1")]))
            of_scope.log_records.extend(draw(st.lists(record, max_size=4)))
    return made


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(requests())
def test_any_request(request: ExportLogsServiceRequest) -> None:
    """Protobuf and JSON, with whatever values, names and texts."""
    same(request.SerializeToString(), True)
    same(as_json(request), False)
    same(json.dumps(orjson.loads(as_json(request)), ensure_ascii=False, indent=1).encode("utf-8", "replace"), False)


@pytest.mark.parametrize("text", LINES)
def test_any_text(text: str) -> None:
    """A record's text, also one of JSON with numbers in every form."""
    made = usual(1)
    made.resource_logs[0].scope_logs[0].log_records.add(body=any_value(text))
    same(made.SerializeToString(), True)
    same(as_json(made), False)


def test_what_exporters_send_is_read_natively() -> None:
    """To its end, in protobuf and JSON; a text with a syslog header, too, whose fields Python finds."""
    made = usual(8)
    made.resource_logs[0].scope_logs[0].log_records.add(body=any_value("<13>Nov 23 06:16:34 web-1 app[7]: said"))
    made.resource_logs[0].scope_logs[0].log_records.add(
        body=any_value("<13>Nov 23 06:16:34 web-1 app[7]: said"),
        attributes=pairs({"appname": "app", "message": "said", "proc_id": "7", "hostname": "web-1", "priority": 13}),
    )
    assert events_of(made.SerializeToString(), True) == events_of(as_json(made), False)
    assert b'"MESSAGE":"said","SYSLOG_IDENTIFIER":"app","_HOSTNAME":"web-1"' in b"".join(
        events_of(as_json(made), False)
    )
    for empty in (b"", usual(0).SerializeToString()):
        assert events_of(empty, True) == []
    for text in (
        b"{}",
        b'{"resourceLogs":null}',
        b'{"resourceLogs":[{"resource":null,"scopeLogs":[]}]}\n',
        as_json(usual(0)),
    ):
        assert events_of(text, False) == []


def test_what_a_record_says_goes_before_what_is_about_it() -> None:
    """Also with names of severities, and with a body of nothing."""
    about = b'{"attributes":[{"key":"a","value":{"intValue":"1"}}]}'
    head = b'{"resourceLogs":[{"resource":%b,"scopeLogs":[{"logRecords":[' % about
    for log, wanted in {
        b'{"attributes":[{"key":"a","value":{"boolValue":true}}]}': b'{"a":true}',
        b'{"severityNumber":"SEVERITY_NUMBER_WARN2","body":{"intValue":7}}': b'{"message":7,"log.level":"warn","a":1}',
        b'{"severityNumber":77,"body":{"intValue":null}}': b'{"message":0,"log.level":"","a":1}',
        b"{}": b'{"a":1}',
    }.items():
        assert events_of(head + log + b"]}]}]}", False) == [wanted]


def with_body(text: str) -> bytes:
    return b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":%b}]}]}]}' % text.encode()


@given(floats)
def test_floats(number: float) -> None:
    """As orjson writes them: in protobuf, in JSON, and in a text that is JSON."""
    events_of(request([LogRecord(body=any_value(number))]).SerializeToString(), True)
    for written in (repr(number), f"{number:.3e}", f"{number:f}") if number - number == 0 else ():
        same(with_body(json.dumps({"stringValue": f'{{"a":{written}}}'})), False)
        same(with_body(f'{{"doubleValue":{written}}}'), False)


@pytest.mark.long
@pytest.mark.parametrize("as_protobuf", [True, False])
def test_large_bodies_in_steps(as_protobuf: bool) -> None:
    """No step makes more than a chunk; with an odd record last Python makes the rest, and each event comes once."""
    made = usual(4000)
    body = made.SerializeToString() if as_protobuf else as_json(made)
    steps, whole = natively(body, as_protobuf)
    assert whole
    assert len(steps) > 5
    assert max(sum(map(len, some)) for some in steps) < CHUNK_BYTES
    assert [event for some in steps for event in some] == same(body, as_protobuf)
    made.resource_logs[1].scope_logs[0].log_records.add(attributes=[*pairs({"a": 1}), *pairs({"a": 2})])
    body = made.SerializeToString() if as_protobuf else as_json(made)
    steps, whole = natively(body, as_protobuf)
    assert not whole
    assert sum(map(len, steps)) > 4000
    assert len(same(body, as_protobuf)) == 8001


@pytest.mark.long
def test_long_records_and_resources() -> None:
    """Around the bounds of the kernel and of Python's readers, which are not the same."""
    for size in (1 << 10, 17 << 10, 33 << 10, 65 << 10, 257 << 10, 1100 << 10):
        for unit in ("x", "\x01", "[", "é", "{"):
            made = usual(2)
            made.resource_logs[1].scope_logs[0].log_records[1].body.string_value = unit * (size // len(unit.encode()))
            same(made.SerializeToString(), True)
            same(as_json(made), False)
            made = usual(2)
            made.resource_logs[1].resource.attributes[1].value.string_value = unit * (size // len(unit.encode()))
            same(made.SerializeToString(), True)
            same(as_json(made), False)
            same(as_json(made).replace(b"[{", b"[" + b" " * size + b"{"), False)
