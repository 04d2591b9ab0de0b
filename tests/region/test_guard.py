"""One message at which a reader fails ends no service."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from vedette.region.guard import Guard


def test_what_nobody_foresaw() -> None:
    """Is passed over, and logged once a topic; an error of the host goes on to the service."""
    guard, read = Guard(), list[str]()
    with capture_logs() as logs:
        for topic in ("a", "a", "b"):
            with guard.over(topic):
                read.append(topic)
                raise RecursionError("too deep")
    assert read == ["a", "a", "b"]
    assert [(entry["topic"], entry["reason"]) for entry in logs] == [
        ("a", "RecursionError: too deep"), ("b", "RecursionError: too deep"),
    ]  # fmt: skip
    with pytest.raises(OSError, match="full"), guard.over("a"):
        raise OSError("full")
