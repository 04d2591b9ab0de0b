"""The region's Spark jobs: what has landed into tables, and tables into findings; on ``local[*]`` and on a cluster.

In reading order: ``tables`` (their schema, and the one way in and out of them), ``intake`` (landed rows, batch by
batch), ``jobs`` (one module each, listed in ``__main__``; ``job`` is what they share), ``findings``,
``backtest``, ``common`` (parts of several jobs), ``report``, ``export`` (what is shown). Each room says what it may
import.

Only ``backtest``, ``coverage`` of rule files, ``filters``, ``notify`` and joins with lookups import ``vedette``, when
they run: for all else a cluster needs this package, pyspark, click, pyarrow and, for its default tables, deltalake.
"""

from __future__ import annotations

import sys


def run() -> None:
    """The command ``vedette-spark``; ends the program."""
    try:
        from spark_jobs.__main__ import run as start
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("spark_jobs"):
            raise
        sys.exit(f"vedette-spark: {error}; the region's jobs need more: pip install 'vedette[region]'")
    start()
