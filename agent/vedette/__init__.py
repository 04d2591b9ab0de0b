"""Vedette, an edge security rule agent: what its commands do, importable.

>>> from vedette import compile_rules, judge, read_log
>>> plan = compile_rules("rules/sigma")                      # doctest: +SKIP
>>> for found in judge(plan, open("auth.log", "rb")):        # doctest: +SKIP
...     print(found.line, found.rule.title, found.fields)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vedette.api import Correlated, Detection, Engine, Plan, compile_rules, correlate, judge, load_rules, read_log

__version__ = "0.1.0"
__all__ = [
    "Correlated", "Detection", "Engine", "Plan", "__version__", "compile_rules", "correlate", "judge", "load_rules",
    "read_log",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # The agent imports this package without the API's parts (PEP 562).
    if name in __all__:
        from vedette import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
