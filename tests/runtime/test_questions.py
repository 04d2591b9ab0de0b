"""What the agent answers about its rule sets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vedette.runtime.agent import questions


async def test_a_set_whose_plan_cannot_be_read(tmp_path: Path) -> None:
    """Damaged or missing: it is named with the reason, and every other set is answered for."""
    (tmp_path / "damaged").write_bytes(b"no plan")
    running: dict[str, Any] = {
        name: SimpleNamespace(isolated=SimpleNamespace(plan=tmp_path / name), figures={})
        for name in ("damaged", "missing")
    }
    for name, answer in zip(running, await questions.strict(running), strict=True):
        assert (answer.name, answer.plan) == (name, None)
        assert answer.error.startswith(f"the plan of rule set {name} cannot be read: ")
