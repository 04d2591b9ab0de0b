"""A module of ours as a process of its own, where it can do the agent no harm.

The child gets our module path: the Python of an installed agent finds its packages by no other way, and what stands in
the environment or in the host's own folders must not reach it.
"""

from __future__ import annotations

import json
import sys

_START = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def command(module: str, *arguments: str) -> list[str]:
    """What to execute for ``python -m MODULE ARGUMENTS``."""
    return [sys.executable, "-I", "-S", "-B", "-c", _START, json.dumps(sys.path), module, *arguments]
