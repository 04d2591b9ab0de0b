"""The region's Spark jobs: landing in, tables and findings out. The same code on ``local[*]`` and on a cluster.

In reading order: ``schema`` (columns of the landing, of every table and of the lookups), ``tables`` (the one way in and
out of the tables; ``tables_delta``, ``tables_parquet``, ``tables_spark`` are its backends, ``arrow`` their types), then
ingest: ``landing`` and ``sources`` (landed rows, unreadable files as dead letters), ``frames`` (its arithmetic),
``enrich`` (lookups), ``batch`` (one micro-batch), ``stream`` (running queries), ``ingest`` (the job). Jobs over the
tables: ``campaigns`` (``entities``: who is part of the furniture; ``islands``, ``sessions``), ``baselines`` (``weeks``,
``robust``; ``anomalies``, ``newness``), ``noise``, ``coverage``, ``maintain``; ``period`` are the days they look at.
``report`` (``ask`` and the figures that it asks for, ``page``, ``text``) and ``export`` (``ocsf``, ``ecs``) show them.
``backtest`` runs the agent's engine over raw logs. ``simulate`` and ``simulated`` make a fleet's alerts of any size,
``given`` reads words of the command line, ``storage`` asks file systems, ``session`` opens Spark, ``__main__`` lists
the commands.

Only ``backtest``, and ``coverage`` of rule files, import ``vedette``, when they run: for all else a cluster needs this
package, pyspark, pyarrow and, for its default tables, deltalake.
"""
