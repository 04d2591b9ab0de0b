"""The table of protocols: whose a request is, and that each row is documented and says no in its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.inputs.http_listen import PROTOCOLS, protocol_of
from vedette.inputs.push.base import Protocol, Refused, Request

GUIDE = (Path(__file__).parents[3] / "docs" / "guide.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/v1/logs", "otlp"),
        ("POST", "/services/collector", "hec"),
        ("POST", "/services/collector/event/1.0", "hec"),
        ("POST", "/services/collector/raw", "hec"),
        ("POST", "/services/collector/ack", "hec"),
        ("GET", "/services/collector/health", "hec"),
        ("POST", "/_bulk", "bulk"),
        ("PUT", "/logs-app-default/_bulk", "bulk"),
        ("GET", "/", "bulk"),
        ("HEAD", "/", "bulk"),
        ("POST", "/loki/api/v1/push", "loki"),
        ("GET", "/ready", "loki"),
        ("POST", "/", "lines"),
        ("PUT", "/events", "lines"),
        ("GET", "/health", "lines"),
        ("GET", "/v1/logs", None),
        ("POST", "/v1/traces", None),
        ("POST", "/a/b/_bulk", None),
        ("DELETE", "/", None),
    ],
)
def test_whose_a_request_is(method: str, path: str, name: str | None) -> None:
    """By method and path, one row's or nobody's."""
    row = protocol_of(method, path)
    assert (row.name if row else None) == name
    assert sum(1 for row in PROTOCOLS if row.paths.fullmatch(f"{method} {path}")) == (name is not None)


@pytest.mark.parametrize("row", PROTOCOLS, ids=lambda row: row.name)
def test_a_row(row: Protocol) -> None:
    """It has tests and a line in the guide, and each refusal has its status and a reason."""
    assert (Path(__file__).parent / f"test_{row.name}.py").is_file()
    assert f"| `{row.name}` |" in GUIDE
    for status in (400, 401, 403, 413, 415, 429):
        said = row.refuse(Refused(status, "that is why"), Request("POST", "/", {}, {}, b""))
        assert said.status == status
        assert b"that is why" in said.body
