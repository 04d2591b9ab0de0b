"""The OpenTelemetry Collector that tests start: what ``make otelcol`` has built, or another of this host."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_BUILT = Path(__file__).parents[1] / "build" / "otelcol" / "otelcol"
COLLECTOR = os.environ.get("VEDETTE_OTELCOL") or shutil.which("otelcol") or (str(_BUILT) if _BUILT.exists() else None)
needs_collector = pytest.mark.skipif(
    COLLECTOR is None, reason="no OpenTelemetry Collector: make otelcol, or VEDETTE_OTELCOL=PROGRAM"
)
