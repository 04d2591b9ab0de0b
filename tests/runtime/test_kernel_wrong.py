"""An agent whose native kernel leaves out a rule wrongly says so, and misses no further event."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from tests.life import Life, engine, lines
from tests.waits import eventually
from vedette.engine import kernel
from vedette.engine.native import Native
from vedette.engine.proof import LEFT_OUT_SAMPLE

LINE = b"<13>Nov 21 02:40:00 web1 app: evil"


@pytest.mark.skipif(kernel.LOADED is None, reason=f"the native kernel is {kernel.why_not}")
def test_a_rule_that_is_left_out_wrongly(begin: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample's event is an alert, the log names the rule and no event, the status counts; then all are found."""
    monkeypatch.setattr(Native, "_direct", lambda self: [(0, 2, False, "what no line holds")])
    life = begin(engine("evil"))
    judge = life.pipeline.evaluator.engine

    async def work() -> None:
        life.give(lines(*[LINE] * LEFT_OUT_SAMPLE))
        await eventually("the log", lambda: [entry for entry in logged if entry["event"] == "kernel_wrong"])
        life.give(lines(*[LINE] * 3))

    with capture_logs() as logged:
        life.live(work)
    assert life.titled() == [("Marker evil", LINE.decode())] * 4
    (entry,) = [entry for entry in logged if entry["event"] == "kernel_wrong"]
    assert entry["log_level"] == "error"
    assert judge.plan.rules[0].id in entry["reason"]
    assert "web1" not in str(logged)
    assert judge.kernel()["wrong"] == 1
