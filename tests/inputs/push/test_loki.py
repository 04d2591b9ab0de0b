"""Loki's push API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inputs.push.reading import objects, read
from vedette.inputs.push.base import Refused

cramjam = pytest.importorskip("cramjam", reason="needs cramjam, of the extra dev")
PUSH = "/loki/api/v1/push"


def test_streams() -> None:
    """A line is an event: its text's fields, its time, metadata, and the labels of its stream by ECS's names."""
    body = {
        "streams": [
            {
                "stream": {"host": "web-1", "filename": "/var/log/auth.log", "job": "auth"},
                "values": [
                    ["1790000000000000001", "Nov 23 06:16:34 web-1 sshd[42]: Failed password for root"],
                    ["1790000000000000002", '{"level": "warn", "user": "bob"}', {"trace_id": "abc"}],
                ],
            },
            {"stream": {"service_name": "shop"}, "values": [["1790000000000000003", "hello"]]},
        ]
    }
    events, said = read(PUSH, body)
    labels = {"host.name": "web-1", "log.file.path": "/var/log/auth.log", "job": "auth"}
    assert objects(events) == [
        {"@timestamp": 1790000000000000001, **labels, "SYSLOG_IDENTIFIER": "sshd", "_HOSTNAME": "web-1", "_PID": "42",
         "MESSAGE": "Failed password for root"},
        {"@timestamp": 1790000000000000002, **labels, "trace_id": "abc", "level": "warn", "user": "bob"},
        {"@timestamp": 1790000000000000003, "service.name": "shop", "message": "hello"},
    ]  # fmt: skip
    assert said.status == 204


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"streams": {}},
        {"streams": [1]},
        {"streams": [{"stream": {}, "values": [["1"]]}]},
        {"streams": [{"stream": {}, "values": [["soon", "line"]]}]},
        {"streams": [{"stream": {}, "values": [["1", 5]]}]},
        {"streams": [{"stream": {}, "values": [["1", "line", 5]]}]},
    ],
)
def test_refused(body: Any) -> None:
    """What is no push is refused, with the place."""
    with pytest.raises(Refused):
        read(PUSH, body)


def packed(streams: list[tuple[str, list[tuple[int, bytes, dict[str, str]]]]]) -> bytes:
    """A push as Loki's own agents send it: labels, and time, line and metadata of each entry."""
    from vedette.inputs.push.loki_protobuf import PushRequest

    request = PushRequest()
    for labels, entries in streams:
        stream = request.streams.add(labels=labels.encode())
        for time, line, more in entries:
            entry = stream.entries.add(line=line)
            entry.timestamp.seconds, entry.timestamp.nanos = divmod(time, 1_000_000_000)
            for name, value in more.items():
                entry.metadata.add(name=name.encode(), value=value.encode())
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def test_protobuf() -> None:
    """Protobuf in Snappy gives the events that its JSON gives, and a line that is not UTF-8 spoils no other."""
    labels = {"host": "web-1", "filename": 'C:\\log "1"\n', "job": "auth", "path": "é"}
    line = "Nov 23 06:16:34 web-1 sshd[42]: Failed password for root"
    body = {
        "streams": [
            {"stream": labels, "values": [["1790000000000000001", line], ["1790000000000000002", "x", {"t": "abc"}]]},
            {"stream": {}, "values": [["1790000000000000003", "caf\ufffd"]]},
        ]
    }
    selector = '{host="web-1",filename="C:\\\\log \\"1\\"\\n", job=`auth`, path="\\u00e9"}'
    push = packed(
        [
            (selector, [(1790000000000000001, line.encode(), {}), (1790000000000000002, b"x", {"t": "abc"})]),
            ("{}", [(1790000000000000003, b"caf\xe9", {})]),
        ]
    )
    events, said = read(PUSH, push, "application/x-protobuf")
    assert objects(events) == objects(read(PUSH, body)[0])
    assert said.status == 204


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 400, "no Snappy block"),
        (b"\x01\x00\xff", 400, "no PushRequest"),
        (bytes(cramjam.snappy.compress_raw(bytes(9 << 20))), 413, "at most 8388608"),
        (packed([('{job="x"', [])]), 400, r"streams\[0\]\.labels"),
        (packed([("job", [])]), 400, "labels"),
        (packed([('{job="x"} | json', [])]), 400, "labels"),
    ],
)
def test_protobuf_refused(body: bytes, status: int, reason: str) -> None:
    """What is no push, or too large when it is unpacked, is refused with the reason."""
    with pytest.raises(Refused, match=reason) as caught:
        read(PUSH, body, "application/x-protobuf")
    assert caught.value.status == status


def test_another_type() -> None:
    """A type that is neither gets 415."""
    with pytest.raises(Refused) as caught:
        read(PUSH, b"x", "text/plain")
    assert caught.value.status == 415
