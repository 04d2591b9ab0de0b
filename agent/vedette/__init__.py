"""Vedette, an edge security rule agent: what its commands do, importable.

>>> from vedette import compile_rules, evaluate, read_log
>>> plan = compile_rules("rules/sigma")                      # doctest: +SKIP
>>> for found in evaluate(plan, open("auth.log", "rb")):     # doctest: +SKIP
...     print(found.line, found.rule.title, found.fields)
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from vedette.version import __version__

if TYPE_CHECKING:
    from vedette.api import (
        Correlated,
        Detected,
        Detection,
        Detector,
        Engine,
        Plan,
        Stated,
        compile_rules,
        correlate,
        evaluate,
        load_rules,
        read_log,
    )

__all__ = [
    "Correlated", "Detected", "Detection", "Detector", "Engine", "Plan", "Stated", "__version__", "compile_rules",
    "correlate", "evaluate", "load_rules", "read_log",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # The agent imports this package without the API's parts (PEP 562).
    if name in __all__ or name == "judge":
        from vedette import api

        if name != "judge":
            return getattr(api, name)
        warnings.warn("vedette.judge is called vedette.evaluate now", DeprecationWarning, stacklevel=2)
        return api.evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
