"""Loki's push API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inputs.push.reading import objects, read
from vedette.inputs.push.base import Refused

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


def test_protobuf_is_not_read() -> None:
    """Loki's own agents send Snappy by default: the status says that it is not taken."""
    with pytest.raises(Refused) as caught:
        read(PUSH, b"\x00", "application/x-protobuf")
    assert caught.value.status == 415
