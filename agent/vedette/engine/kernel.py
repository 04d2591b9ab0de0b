"""The native kernel, ``vedette._kernel`` (``agent/kernel``): whether this process uses it, else why not.

It decides which rules an event surely does not match, and makes the events of OTLP; without it Python does the same,
with the same alerts.
``VEDETTE_KERNEL=off`` in the environment switches it off.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

SWITCH = "VEDETTE_KERNEL"


def _load() -> tuple[ModuleType | None, str | None]:
    if os.environ.get(SWITCH, "").lower() == "off":
        return None, f"switched off by {SWITCH}"
    try:
        return importlib.import_module("vedette._kernel"), None
    except ModuleNotFoundError:
        return None, "not built"
    except ImportError as error:
        return None, f"cannot be loaded: {error}"


LOADED, why_not = _load()
"""The module, or None and the reason."""
