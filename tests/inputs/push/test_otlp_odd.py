"""OTLP that is odd, damaged or none: the native kernel reads it as Python does, or leaves it to Python."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.proto", reason="an environment from before: make environment")
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from tests.inputs.push.both import events_of, same, usual
from tests.inputs.push.test_otlp import any_value, as_json, pairs
from vedette.engine import kernel
from vedette.inputs.push.texts import ECS

pytestmark = pytest.mark.skipif(kernel.LOADED is None, reason=f"the native kernel: {kernel.why_not}")

ODD: list[Any] = [
    {"stringValue": None},
    {"stringValue": 5},
    {"stringValue": ["a"]},
    {"stringValue": "\u00e9\n"},
    {"intValue": 1.0},
    {"intValue": "x"},
    {"intValue": " 7 "},
    {"intValue": "1_0"},
    {"intValue": "007"},
    {"intValue": "-0"},
    {"intValue": -0.0},
    {"intValue": True},
    {"intValue": str(1 << 64)},
    {"intValue": str((1 << 64) - 1)},
    {"intValue": (1 << 64) - 1},
    {"intValue": str(-(1 << 63) - 1)},
    {"intValue": "-9223372036854775808"},
    {"intValue": None},
    {"intValue": ""},
    {"doubleValue": "NaN"},
    {"doubleValue": 1e300},
    {"doubleValue": 3},
    {"bytesValue": "aGk="},
    {"bytesValue": '{"a":1}'},
    {"boolValue": "true"},
    {"boolValue": None},
    {},
    None,
    [],
    "a",
    5,
    {"arrayValue": None},
    {"arrayValue": {}},
    {"arrayValue": {"values": None}},
    {"arrayValue": {"values": [{}, None]}},
    {"arrayValue": {"values": {}}},
    {"arrayValue": {"values": [], "more": 1}},
    {"kvlistValue": {}},
    {"kvlistValue": {"values": [{"key": "a"}]}},
    {"kvlistValue": {"values": [{"key": "a"}, {"key": "a", "value": {"intValue": "1"}}]}},
    {"kvlistValue": {"values": [{"value": {}}]}},
    {"kvlistValue": {"values": [{"key": None}]}},
    {"kvlistValue": None},
    {"other": 1},
    {"other": 1, "stringValue": "a"},
    {"stringValue": "a", "intValue": "1"},
    {"stringValueStrindex": 1},
    {"stringValue": "x" * 40_000},
    {"stringValue": "{" + " " * 40_000},
    {"arrayValue": {"values": [{"intValue": "1"}] * 3000}},
    {"stringValue": "{" * 9000 + "x" * 40_000},
    {"stringValue": "\x01" * 20_000},
]
deep: Any = {"stringValue": "a"}
for _ in range(25):
    deep = {"arrayValue": {"values": [deep]}}
    ODD.append(deep)
TEXTS: list[Any] = [
    None,
    "",
    "a",
    5,
    1.5,
    True,
    [],
    {},
    "SEVERITY_NUMBER_INFO",
    "SEVERITY_NUMBER_UNSPECIFIED",
    "17",
    17,
    -1,
    "1790000000000000000",
    "é",
]
MEMBERS: dict[str, list[Any]] = {
    "body": ODD,
    "attributes": [None, [], {}, 5, [None], ["a"], *([{"key": "a", "value": odd}] for odd in ODD)],
    **dict.fromkeys(("timeUnixNano", "observedTimeUnixNano", "severityNumber", "severityText", "traceId"), TEXTS),
    **dict.fromkeys(("spanId", "eventName", "flags", "droppedAttributesCount", "unknown", "trace_id"), TEXTS),
}
GOOD: dict[str, list[Any]] = {
    "body": [{"stringValue": "x"}, {"stringValue": '{"a":1}'}, {"intValue": "7"}, {"kvlistValue": {"values": []}}],
    "attributes": [[{"key": key, "value": {"stringValue": "v"}}] for key in ("a", "http.method", "message")],
    "timeUnixNano": ["1790000000000000000", 17],
    "severityNumber": [9, "17", "SEVERITY_NUMBER_INFO"],
    "severityText": ["INFO", "", None],
    "traceId": ["ab", None],
}
KEYS = [
    {"key": key, "value": {"stringValue": "v"}}
    for key in ("a", "http.method", "url.original", "http.url", "", "message")
]


def body_of(log: object, resource: object = None, scope: object = None) -> bytes:
    return json.dumps(
        {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": [log, {}]}]}]}
    ).encode()


@pytest.mark.parametrize("member", MEMBERS)
def test_odd_members_of_a_record(member: str) -> None:
    """Values of the wrong kind, of two kinds, of none, numbers in many forms: as Python reads them, or refuses them."""
    for odd in MEMBERS[member]:
        same(body_of({member: odd}), False)
        same(body_of({"attributes": KEYS[:2], member: odd, "severityNumber": 9}), False)
        same(body_of({"body": {"stringValue": "x"}, member: odd}, {"attributes": KEYS}, {"name": "n"}), False)


def one_of(members: dict[str, list[Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.sampled_from(sorted(members)).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from(members[name]))
    )


good, odd = one_of(GOOD), one_of(MEMBERS)


def field_name(pair: dict[str, Any]) -> str:
    """The name of an attribute's field. Attributes of one name are odd: the kernel leaves them to Python."""
    return ECS.get(pair["key"], pair["key"])


about = st.fixed_dictionaries(
    {}, optional={"attributes": st.lists(st.sampled_from(KEYS), max_size=3, unique_by=field_name)}
)
odd_about = st.fixed_dictionaries(
    {},
    optional={
        "attributes": st.lists(st.sampled_from(KEYS), max_size=3) | st.sampled_from([None, {}]),
        "name": st.sampled_from(TEXTS),
        "version": st.sampled_from(TEXTS),
        "droppedAttributesCount": st.sampled_from(TEXTS),
        "unknown": st.just([1]),
    },
)
LEVELS = {"resourceLogs": ("scopeLogs", "x"), "scopeLogs": ("logRecords", "resource"), "logRecords": ("", "scope")}


@st.composite
def documents(draw: st.DrawFn, odds: bool, name: str = "resourceLogs") -> str:
    """An object with the list of that name; with ``odds`` in whatever order, some of it twice, missing or wrong."""
    inner, said = LEVELS[name]
    count = draw(st.integers(0, 3))
    if inner:
        given = [draw(documents(odds, inner)) for _ in range(count)]
    else:
        given = [json.dumps(dict(draw(st.lists(good | odd if odds else good, max_size=4)))) for _ in range(count)]
    members = [f'"{name}":[{",".join(given)}]']
    if name != "resourceLogs" and draw(st.booleans()):
        members.insert(0, f'"{said}":{json.dumps(draw(about))}')
    if odds:
        more = ['"schemaUrl":"a"', '"schemaUrl":null', '"x":[{}]', f'"{name}":null', *members]
        members += draw(st.lists(st.sampled_from(more), max_size=1))
        members += [f'"{said}":{json.dumps(draw(odd_about))}'] if draw(st.integers(0, 5)) == 0 else []
        members = draw(st.permutations(members))
    return "{" + draw(st.sampled_from([",", " ,\n"])).join(members) + "}"


@settings(max_examples=100, deadline=None)
@given(documents(odds=True))
def test_any_document(text: str) -> None:
    """JSON of OTLP's names in whatever order, with members of the wrong kind, unknown, twice or missing."""
    same(text.encode(), False)


@settings(max_examples=100, deadline=None)
@given(documents(odds=False))
def test_any_good_document(text: str) -> None:
    """What is not odd is read by the kernel."""
    events_of(text.encode(), False)


def changed(body: bytes, chance: random.Random) -> bytes:
    """Cut, with bytes changed, left out, or some of it twice."""
    at, end = sorted((chance.randrange(len(body) + 1), chance.randrange(len(body) + 1)))
    match chance.randrange(5):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + bytes([chance.choice(b'\x00\x01\x0a\x12\x7f\x80\xff"\\{}[],: \t0-e')]) + body[at + 1 :]
        case 2:
            return body[:at] + body[min(end, at + chance.randrange(9)) :]
        case 3:
            return body[:end] + body[at:]
        case _:
            return body[:at] + bytes([chance.randrange(256)]) + body[at:]


@pytest.mark.parametrize("as_protobuf", [True, False])
def test_damaged_bodies(as_protobuf: bool) -> None:
    """A usual body, cut or changed in some places: the same events, or refused by the same words."""
    made, chance, refused = usual(2), random.Random(81), 0
    body = made.SerializeToString() if as_protobuf else as_json(made)
    for _ in range(2000):
        damaged = body
        for _ in range(chance.choice((1, 1, 2))):
            damaged = changed(damaged, chance)
        refused += isinstance(same(damaged, as_protobuf), tuple)
    assert 500 < refused < 1999


def test_messages_in_another_order_or_twice() -> None:
    """Protobuf whose fields come late, twice, unknown, or with another wire type."""
    log = LogRecord(body=any_value("x"), attributes=pairs({"a": 1})).SerializeToString()

    def field(number: int, value: bytes) -> bytes:
        assert len(value) < 128
        return bytes((number << 3 | 2, len(value))) + value

    resource = field(1, field(1, b"\x0a\x01r\x12\x03\x0a\x01v"))
    parts = [
        resource,
        field(2, field(2, log)),
        field(2, field(1, field(1, b"lib")) + field(2, log)),
        field(3, b"url"),
        field(3, b"\xff"),
        field(9, b"?"),
        b"\x08\x01",
        field(2, field(2, log) + field(1, field(1, b"late"))),
        b"\x4b\x4c",
        field(1, field(3, b"\x0a\x01e")),
        field(2, field(2, log + field(5, b"\x18\x05"))),
        field(2, field(2, log + b"\x30\x01")),
        field(2, field(2, b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")),
        field(2, field(2, b"\x10\xff\xff\xff\xff\x1f")),
        field(2, field(2, b"\x2a\x02\x10\x02")),
        field(2, field(2, b"\x2a\x04\x18\x01\x18\x02")),
    ]
    chance = random.Random(4)
    for _ in range(2000):
        same(b"".join(field(1, b"".join(chance.choices(parts, k=chance.randrange(4)))[:127]) for _ in range(2)), True)
