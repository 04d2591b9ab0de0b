"""Where the cases of other engines lie, which are no part of this repository: ``../shared`` beside the checkout."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from sigma import modifiers

SHARED = Path(__file__).resolve().parents[3] / "shared"


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of ``data/NAME``; skips the test where they are not at hand."""
    path = SHARED / "data" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return rows


def oracle() -> ModuleType:
    """``tools/sqlite_oracle.py``; skips the test without it or without pySigma's SQLite backend."""
    path = SHARED / "tools" / "sqlite_oracle.py"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    pytest.importorskip("sigma.backends.sqlite", reason="pip install pysigma-backend-sqlite")
    spec = importlib.util.spec_from_file_location("sqlite_oracle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    match = module.match

    def with_its_own(*arguments: Any) -> Any:
        with patch.dict(modifiers.modifier_mapping, COMPARISONS):
            return match(*arguments)

    module.match = with_its_own  # type: ignore[attr-defined]
    return module


COMPARISONS: dict[str, Any] = {
    "gt": modifiers.SigmaGreaterThanModifier, "gte": modifiers.SigmaGreaterThanEqualModifier,
    "lt": modifiers.SigmaLessThanModifier, "lte": modifiers.SigmaLessThanEqualModifier,
    "minute": modifiers.SigmaTimestampMinuteModifier, "hour": modifiers.SigmaTimestampHourModifier,
    "day": modifiers.SigmaTimestampDayModifier, "week": modifiers.SigmaTimestampWeekModifier,
    "month": modifiers.SigmaTimestampMonthModifier, "year": modifiers.SigmaTimestampYearModifier,
}  # fmt: skip
"""As pySigma has them, whose backends know no others."""
