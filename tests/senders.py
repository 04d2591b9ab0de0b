"""Programs that tests of pushes start: built by ``make otelcol`` and ``make promtail``, or others of this host."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_BUILT = Path(__file__).parents[1] / "build"


def _program(name: str) -> str | None:
    built = _BUILT / name / name
    return os.environ.get(f"VEDETTE_{name.upper()}") or shutil.which(name) or (str(built) if built.exists() else None)


COLLECTOR, PROMTAIL = _program("otelcol"), _program("promtail")
needs_collector = pytest.mark.skipif(
    COLLECTOR is None, reason="no OpenTelemetry Collector: make otelcol, or VEDETTE_OTELCOL=PROGRAM"
)
needs_promtail = pytest.mark.skipif(PROMTAIL is None, reason="no Promtail: make promtail, or VEDETTE_PROMTAIL=PROGRAM")
