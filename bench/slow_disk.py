"""Run ``vedette`` on a slow disk: ``python -m bench.slow_disk MILLISECONDS run -c …``.

Every fsync of the agent takes so much longer, and so does every transaction of the store, which LMDB syncs itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any


def _delayed(call: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def slow(*arguments: Any, **named: Any) -> Any:
        time.sleep(seconds)
        return call(*arguments, **named)

    return slow


def main() -> None:
    from vedette.cli.main import main as vedette
    from vedette.store.store import Store

    seconds = float(sys.argv[1]) / 1000
    os.fsync = _delayed(os.fsync, seconds)
    Store.commit = _delayed(Store.commit, seconds)  # type: ignore[method-assign]
    sys.argv = ["vedette", *sys.argv[2:]]
    vedette()


if __name__ == "__main__":
    main()
