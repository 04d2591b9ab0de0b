"""The region's Spark jobs: landing in, tables and summaries out. The same code on ``local[*]`` and on a cluster.

In reading order: ``schema`` (columns of the landing and of the tables), ``tables`` (how a table lies on disk and why
writing it twice changes nothing), ``landing`` (reading landed files, the bad ones set aside), ``counts`` (the
streaming job), ``summary`` and ``render`` (the day's summary), ``session`` (settings), ``__main__`` (the commands).

Nothing here imports ``vedette``: a cluster needs this package and pyspark only.
"""
