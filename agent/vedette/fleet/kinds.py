"""The kinds of requests that an agent answers: a row each. None runs a program, or reads a file by name."""

from __future__ import annotations

from collections.abc import Mapping

from vedette.fleet import ask, evidence, huntjob
from vedette.fleet.job import Kind, Limits

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("ask", "viewer", ask.validate_question, ask.question, Limits(4 << 20, 30.0, 0.5, 2)),
        Kind("evidence", "analyst", evidence.validate, evidence.run, Limits(32 << 20, 300.0, 0.2, 1)),
        Kind("hunt", "analyst", huntjob.validate, huntjob.run, Limits(8 << 20, 24 * 3600.0, 0.5, 1)),
        Kind("do", "operator", ask.validate_action, ask.action, Limits(64 << 10, 300.0, 0.5, 1)),
    )
}
