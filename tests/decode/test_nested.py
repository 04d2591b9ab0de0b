"""Values nested as deep as JSON may be, wherever one stands: nothing raises, and what lies beside is read as ever."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

from tests.decode.test_formats import _JSON, NOW, read
from tests.decode.test_shippers import SHIPPERS
from vedette.api import Engine, compile_rules
from vedette.decode.entities import entities
from vedette.decode.formats.table import SHAPES, shape_of
from vedette.decode.redact import Redaction, Rule
from vedette.decode.values import to_json
from vedette.model.event import Chunk
from vedette.runtime.offline.evaluation import evaluate

DEPTH = 1_010
"""Beyond it Python gives up; JSON is read up to 1,024."""
NESTS = (
    b"[" * DEPTH + b'"x"' + b"]" * DEPTH,
    b'{"a":' * DEPTH + b'"x"' + b"}" * DEPTH,
    b'[{"a":' * (DEPTH // 2) + b'"x"' + b"}]" * (DEPTH // 2),
)
BESIDE = "besidethenest"
MARK = b'"\\u0000"'
EVENTS: list[dict[str, Any]] = [
    *_JSON,
    *(event for _, event, _ in SHIPPERS if isinstance(event, dict)),
    {"logtype": 3000, "node_id": "a", "logdata": {"USERNAME": "b"}, "utc_time": "2026-11-20 10:00:00"},
    {"DownstreamStatus": 200, "RequestMethod": "GET", "RequestPath": "/", "ClientHost": "192.0.2.1", "StartUTC": "x"},
    {
        "type": "Authentication",
        "Authentication": {"remoteAddress": "ipv4:192.0.2.1:5", "clientAccount": "a", "account": "b"},
    },
    {
        "error_severity": "LOG",
        "backend_type": "x",
        "remote_host": "192.0.2.1",
        "remote_port": 5,
        "dbname": "a",
        "user": "b",
    },
    {"remote_ip": "192.0.2.1", "username": "kim", "time": "2026-11-20T10:00:00Z"},
    {"attr": {"remote": "192.0.2.1:5", "client": "x"}, "ctx": "conn1", "t": {"$date": "2026-11-20T10:00:00Z"}},
    {"event": {"code": 1, "provider": "x", "module": "sysmon"}, "host": {"os": {"type": "windows", "family": "x"}}},
    {"EventID": 12, "EventType": "SetValue", "Image": "a", "TargetObject": "b", "CommandLine": "c"},
    {"EventID": 4688, "Channel": "Security", "NewProcessName": "a", "param1": "b", "param2": "c"},
    {"MESSAGE": "x", "SYSLOG_IDENTIFIER": "sshd", "_HOSTNAME": "h", "_PID": "1", "__REALTIME_TIMESTAMP": "1"},
    {"timestamp": "x", "hostname": "y", "message": "z", "src_ip": "192.0.2.1", "user": "u", "md5": "v", "url": "w"},
]
RULES = """title: beside
id: 00000000-0000-4000-8000-000000000001
logsource: {product: linux}
detection: {keywords: [besidethenest], condition: keywords}
---
title: within
id: 00000000-0000-4000-8000-000000000002
logsource: {product: windows}
fields: [EventID, Channel, Image, src_ip, user]
detection:
  a: {src_ip|cidr: 192.0.2.0/24}
  b: {EventID|gt: 1}
  c: {CommandLine|re: 'c.?'}
  d: {Image|fieldref: Channel}
  e: {user: null}
  condition: 1 of them
"""


def nested(event: Any) -> Iterator[Any]:
    """``event`` with one or another of its values, also objects and lists, being ``"\\0"``."""
    yield "\0"
    for key, value in event.items() if isinstance(event, dict) else enumerate(event) if isinstance(event, list) else ():
        for changed in nested(value):
            copy = event.copy()
            copy[key] = changed
            yield copy


def lines() -> list[bytes]:
    """Every event with every value nested deep, by turns of one kind."""
    copies = (to_json({**copy, "beside": BESIDE}) for event in EVENTS for copy in nested(event) if copy != "\0")
    return [copy.replace(MARK, nest) for copy, nest in zip(copies, cycle(NESTS), strict=False)]


def test_nested_values() -> None:
    """Every face of a record, entities and what is withheld, of JSON of every make, alone and behind a header."""
    assert {shape.name for event in EVENTS if (shape := shape_of(event))} == SHAPES.keys()
    redaction = Redaction([Rule(fields=("user", "a.b"), kinds=("host",))])
    for raw in lines():
        for line, codec in ((raw, "auto"), (raw, "json"), (b"<38>Nov 20 10:00:00 web1 app[7]: " + raw, "auto")):
            r = read(line, codec, origin="10.0.0.9")
            fields = r.fields()
            assert r.source
            assert isinstance(r.host, str)
            assert r.event_time is None or isinstance(r.event_time, int)
            assert r.get("beside") == BESIDE
            assert BESIDE in r.keywords()
            assert all(r.get(name) is value for name, value in fields.items())
        entities(fields, r.host)
        redaction.case(r.text, fields, host=r.host).raw()


def test_rules_on_nested_values() -> None:
    """With the kernel and without it, with routing and without: the events that match, and what they show."""
    plan, events = compile_rules(text=RULES), lines()
    for route in (True, False):
        answers = []
        for kernel, prefilter in ((True, True), (False, True), (True, False)):
            engine = Engine(plan, route=route, kernel=kernel, prefilter=prefilter)
            found = evaluate(engine, (Chunk("in", "auto", NOW, event + b"\n") for event in events))
            answers.append([(each.line, each.rule.title, each.fields) for each in found])
        assert answers[0] == answers[1] == answers[2]
        assert {title for _, title, _ in answers[0]} == {"beside", "within"}
        assert route or sum(title == "beside" for _, title, _ in answers[0]) == len(events)
