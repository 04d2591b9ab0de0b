"""The region's Spark jobs: landing in, tables and findings out. The same code on ``local[*]`` and on a cluster.

In reading order: ``schema`` (columns of the landing, of every table and of the lookups), ``tables`` (the one way in and
out of the tables; ``tables_delta``, ``tables_parquet``, ``tables_spark`` are its backends, ``arrow`` their types), then
ingest: ``landing`` and ``sources`` (landed rows, the bad files set aside), ``frames`` (its arithmetic), ``enrich``
(lookups), ``batch`` (one micro-batch), ``stream`` (running queries), ``ingest`` (the job). ``summary`` and ``render``
are a day's summary, ``simulate`` and ``simulated`` make a fleet's alerts of any size, ``given`` reads words of the
command line, ``storage`` asks file systems, ``session`` opens Spark, ``__main__`` lists the commands.

Nothing here imports ``vedette``: a cluster needs this package, pyspark, pyarrow and, for its default tables, deltalake.
"""
