"""Large bodies in pieces: the same events as at once, whatever JSON or protobuf it is; and what is none is refused."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.proto", reason="an environment from before: make environment")
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.deep import examples
from tests.inputs.push.reading import objects, read
from vedette.inputs.push import pieces, wire
from vedette.inputs.push.base import LOKI_PATH, PROTOBUF, Refused
from vedette.model.event import MAX_EVENT

OTLP, HEC, LINES = "/v1/logs", "/services/collector", "/events"
plain = (
    st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=9) | st.sampled_from(['},{"', "\\", '"', "]"])
)
value = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
record = st.fixed_dictionaries(
    {},
    optional={
        "body": st.builds(lambda text: {"stringValue": "a" + text}, st.text(max_size=90)),
        "severityText": st.text(min_size=1),
    },
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bodies are large ones."""
    monkeypatch.setattr(pieces, "LIMIT", 64)
    monkeypatch.setattr(pieces, "FREE", 64)
    monkeypatch.setattr(pieces, "WHOLE", 0)
    monkeypatch.setattr(wire, "SMALL", 64)
    monkeypatch.setattr(wire, "WHOLE", 0)


def test_expressions() -> None:
    """A run of children ends where a child does, wherever the window ends; hostile texts take no longer than others."""
    text = b'{"a":[1,{"b":"]}\\""}],"c":{}},2,"x,y",[[[[[[[[1]]]]]]]],'
    for most in range(len(text) + 1):
        found = pieces._children(text, 0, most)
        assert found is not None
        assert found.end() in (0, 30, 32, 38)


steps = examples(30)


@steps
@given(
    st.lists(st.tuples(st.text(max_size=20), st.lists(record, max_size=5)), max_size=4), st.booleans(), st.booleans()
)
def test_otlp(small: None, scopes: list[tuple[str, list[Any]]], indent: bool, late: bool) -> None:
    """Resource and scope before the records or behind them, printed in whatever way."""

    def ordered(about: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
        return {**inner, **about} if late else {**about, **inner}

    attributes = [{"key": "service.name", "value": {"stringValue": "shop" * 30}}]
    body = {
        "resourceLogs": [
            ordered(
                {"resource": {"attributes": attributes}},
                {
                    "scopeLogs": [
                        ordered({"scope": {"name": name}}, {"logRecords": records}) for name, records in scopes
                    ]
                },
            )
        ]
    }
    found, _ = read(OTLP, json.dumps(body, indent=2 if indent else None, ensure_ascii=indent).encode())
    expected = [
        {
            **({"message": one["body"]["stringValue"]} if "body" in one else {}),
            **({"log.level": one["severityText"]} if one.get("severityText") else {}),
            **({"otel.scope.name": name} if name else {}),
            "service.name": "shop" * 30,
        }
        for name, records in scopes
        for one in records
    ]
    assert objects(found) == expected


@steps
@given(st.lists(st.dictionaries(st.text(max_size=5), value, max_size=4), min_size=1, max_size=9), st.integers(0, 2))
def test_values_that_follow_each_other(small: None, events: list[Any], how: int) -> None:
    """HEC's events, and an array's: as many as there are, each what it was."""
    texts = [json.dumps(event, indent=how or None) for event in events]
    found = [body[start:end] for body in ["".join(texts).encode()] for start, end in filter(None, pieces.values(body))]
    assert [orjson.loads(one) for one in found] == events
    array, _ = read(LINES, ("[" + " , ".join(texts) + "]").encode())
    assert objects(array) == events
    lines, _ = read(LINES, "\n".join(map(json.dumps, events)).encode())
    assert objects(lines) == events


@steps
@given(st.lists(st.tuples(st.text(max_size=30), st.lists(st.text(max_size=90), max_size=6)), max_size=3))
def test_loki(small: None, streams: list[tuple[str, list[str]]]) -> None:
    """Each line has its stream's labels."""
    body = {"streams": [{"values": [["1", line] for line in lines], "stream": {"job": job}} for job, lines in streams]}
    found, _ = read(LOKI_PATH, body)
    assert [one["job"] for one in objects(found)] == [job for job, lines in streams for _ in lines]


@steps
@given(st.lists(st.tuples(st.text(max_size=30), st.lists(st.text(max_size=90), max_size=6)), max_size=3), st.booleans())
def test_protobuf(small: None, scopes: list[tuple[str, list[str]]], late: bool) -> None:
    """The same events as at once, also where a resource comes behind its records."""
    made = ExportLogsServiceRequest()
    of_resource = made.resource_logs.add()
    of_resource.resource.attributes.add(key="service.name").value.string_value = "shop" * 30
    for name, texts in scopes:
        of_scope = of_resource.scope_logs.add()
        of_scope.scope.name = name
        for text in texts:
            of_scope.log_records.add().body.string_value = text
    body = made.SerializeToString()
    if late:
        inner = of_resource.SerializeToString()
        cut = 1 + 1 + of_resource.resource.ByteSize() + (of_resource.resource.ByteSize() > 127)
        body = wire._field(1, inner[cut:] + inner[:cut])
    found, _ = read(OTLP, body, PROTOBUF)
    again = [ExportLogsServiceRequest.FromString(part) for part in wire.messages(body, (1, 2, 2)) if part is not None]
    records = [log for one in again for r in one.resource_logs for s in r.scope_logs for log in s.log_records]
    assert [log.body.string_value for log in records] == [text for _, texts in scopes for text in texts]
    assert [one["service.name"] for one in objects(found)] == ["shop" * 30] * len(records)
    assert [one.get("otel.scope.name", "") for one in objects(found)] == [name for name, texts in scopes for _ in texts]


@steps
@given(st.text('[]{},:"\\ a1', max_size=120) | st.binary(max_size=80).map(lambda text: text.decode("latin-1")))
def test_what_is_no_json(small: None, text: str) -> None:
    """Is refused, and JSON of another make is not read as something else."""
    body = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},%b]}]}]}' % text.encode()
    try:
        expected: Any = orjson.loads(body)
    except ValueError:
        expected = None
    try:
        found, _ = read(OTLP, body)
    except Refused:
        return
    assert expected is not None
    assert len(found) == len(expected["resourceLogs"][0]["scopeLogs"][0]["logRecords"])


def test_a_record_that_is_too_long() -> None:
    """Is the bytes that were sent, and is cut; the others are read."""
    long = orjson.dumps({"body": {"stringValue": "x" * (MAX_EVENT + 9)}})
    found, _ = read(OTLP, b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[%b,{"body":{"stringValue":"a"}}]}]}]}' % long)
    assert found == [long[: MAX_EVENT + 1], b'{"message":"a"}']
    assert read(HEC, b'{"event":"%b"}' % (b"x" * MAX_EVENT))[0] == [b'{"event":"%b"}' % (b"x" * MAX_EVENT)]


@pytest.mark.parametrize(
    ("path", "kind", "body", "status"),
    [
        (
            OTLP,
            "application/json",
            b'{"resourceLogs":[{"resource":{"a":"%b"},"x":[]}]}' % (b"x" * 500_000),
            413,
        ),
        (OTLP, "application/json", b'{"resourceLogs":[' + b"{" * 9000 + b"}" * 9000 + b"]}", 400),
        (OTLP, PROTOBUF, wire._field(1, wire._field(2, wire._field(2, b"\x32\x00" * 200_000))), 413),
        (OTLP, PROTOBUF, wire._field(1, wire._field(2, b"\x0a\x00" * 200_000)), 413),
        (OTLP, PROTOBUF, wire._field(1, b"\x0b" * 300_000), 400),
        (OTLP, PROTOBUF, b"\x0a\xff\xff\xff\x7f" + b"x" * 300_000, 400),
        (OTLP, PROTOBUF, wire._field(1, wire._field(2, wire._field(2, b"\x32\x03\x0a\x01a" * 3000) * 30)), 400),
    ],
)
def test_bounds(path: str, kind: str, body: bytes, status: int) -> None:
    """What is beside records, values of one record, depth, names given twice."""
    with pytest.raises(Refused) as caught:
        read(path, body, kind)
    assert caught.value.status == status
