"""OTLP's two readers of one body, the kernel's and Python's, and what they are given."""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.inputs.push.reading import read, split
from tests.inputs.push.test_otlp import LOGS, any_value, pairs
from vedette.inputs.push import otlp, otlp_native
from vedette.inputs.push.base import PROTOBUF, Refused

Outcome = list[bytes] | tuple[object, ...]


def outcome(act: Callable[[], list[bytes]]) -> Outcome:
    """The events, or what was raised."""
    try:
        return act()
    except Refused as refused:
        return Refused, refused.status, refused.reason
    except (TypeError, ValueError, RecursionError) as error:
        return type(error), str(error)


def by_python(body: bytes, as_protobuf: bool) -> list[bytes]:
    steps = otlp.read_protobuf(body) if as_protobuf else otlp.read_json(body)
    return [event for some in steps for event in some]


def same(body: bytes, as_protobuf: bool) -> Outcome:
    """What both readers make of a body."""
    naive = outcome(lambda: by_python(body, as_protobuf))
    kind = PROTOBUF if as_protobuf else "application/json"
    assert outcome(lambda: read(LOGS, body, kind)[0]) == naive
    return naive


def natively(body: bytes, as_protobuf: bool) -> tuple[list[list[bytes]], bool]:
    """What the kernel makes by itself, step by step, and whether it is all."""
    assert otlp._KERNEL is not None
    steps, steps_done = otlp_native.events(otlp._KERNEL, body, not as_protobuf), list[list[bytes]]()
    while True:
        try:
            steps_done.append(split(next(steps)))
        except StopIteration as done:
            return steps_done, done.value[1]


def events_of(body: bytes, as_protobuf: bool) -> list[bytes]:
    """The events of a body that the kernel must read to its end."""
    steps, whole = natively(body, as_protobuf)
    events = [event for some in steps for event in some]
    assert whole, body[:300]
    assert events == by_python(body, as_protobuf)
    return events


def usual(count: int = 3) -> ExportLogsServiceRequest:
    """As exporters make them."""
    request = ExportLogsServiceRequest()
    for number in range(2):
        of_resource = request.resource_logs.add(schema_url="https://opentelemetry.io/schemas/1.37.0")
        of_resource.resource.attributes.extend(pairs({"service.name": f"shop-{number}", "k8s.pod.name": "p", "n": 1}))
        of_scope = of_resource.scope_logs.add(schema_url="https://opentelemetry.io/schemas/1.37.0")
        of_scope.scope.name, of_scope.scope.version = "lib", "1.2"
        of_scope.scope.attributes.extend(pairs({"service.name": "the scope's"}))
        for i in range(count):
            bodies = [
                "user bob logged in",
                '{"user":"bob","n":[1,{"a":1.50}]}',
                {"user": "bob", "n": {"a": [1, 2.5]}},
                7,
            ]
            of_scope.log_records.add(
                time_unix_nano=1790000000000000000 + i,
                severity_number=i % 24 + 1,
                severity_text="INFO" if i % 2 else "",
                body=any_value(bodies[i % 4]),
                attributes=pairs(
                    {
                        "http.method": "GET",
                        "http.status_code": 200,
                        "ok": True,
                        "ratio": 0.5,
                        "tags": ["a", 1],
                        "log.level": "x",
                    }
                ),
                trace_id=bytes(range(16)),
                span_id=bytes(8),
                event_name="login",
                flags=1,
            )
    return request
