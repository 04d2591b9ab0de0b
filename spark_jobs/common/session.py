"""The Spark session: what these jobs need set, and nothing that the caller has set already.

Started by ``spark-submit``, the master and every setting are the command line's; a local master gets those of ``LOCAL``
that the command line does not give, as far as Spark takes them then. Started by plain ``vedette-spark``, the session
is local unless a master is given, and a local one keeps to the loopback interface and opens no web page. In both cases
times are UTC, and a date of any year is read and written as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Listing a local folder takes less than starting a task that lists it.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
    # A join with a side of so many bytes, or so many to each task, sorts neither side.
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "32m",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "32m",
    # What a task hands to the driver is held three times over, and lost for good when the heap has no room for it.
    "spark.sql.files.maxPartitionBytes": "8m",
    # Opening a file counts as so many bytes; with the default, 4 MB, a task would take two small files and no more.
    "spark.sql.files.openCostInBytes": "65536",
    # Unlike Java, ICU reads the case of all characters there are before it changes the first: two seconds.
    "spark.sql.icu.caseMappings.enabled": "false",
    # On two cores G1, the default, takes a sixth more CPU (`docs/scale.md`).
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    # Where in this code each column was made, for the message of an error in it: some calls into the JVM for each
    # column, and a stack trace there (decision 93).
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # Reuse generated code between micro-batches, which have the same plans. Spark caches 100 classes by default, about
    # as many as one batch needs, and puts the stage id, which varies, into their names.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.codegen.useIdInClassName": "false",
    # A failed job is reported by its exception; the executor's own log of it would be one stack trace a bad file.
    "spark.log.level": "FATAL",
}
"""Settings of a session on this host alone; each gives way to the caller's."""

SMALL = {
    # A JVM that lives for seconds never earns back its optimising compiler, nor a collector with threads; and a heap
    # and a space for classes that grow bit by bit are collected whole at each step.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m "
    "-XX:InitialRAMPercentage=100",
    # Nor do plans over few rows earn back the code that is made and compiled for each.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""More of these, of a session that has little to look at and then ends."""

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Settings that the backend ``delta-spark`` needs, beside its jars."""

QUERIES = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Settings that the jobs' results depend on; the caller's setting does not count. An event time before 1900, which any
agent can send, would otherwise make its whole file unreadable."""


def untuned(properties: Mapping[str, str]) -> list[str]:
    """The settings of ``LOCAL`` that a session with these properties lacks; none where it is not local."""
    local = properties.get("spark.master", "").startswith("local")
    return [key for key in LOCAL if key not in properties] if local else []


def open_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None, small: bool = False
) -> SparkSession:
    """The session for job ``name``; ``settings`` are Spark properties that win over all others. ``small``: a local one
    that this opens gets those of ``SMALL``, too.

    ``master`` None: that of ``spark-submit``, or ``local[*]``. Memory of the driver counts only when this starts the
    JVM, which it does unless ``spark-submit`` did.
    """
    builder = SparkSession.builder.appName(f"vedette-{name}")
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not submitted:
        master = "local[*]"
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local") and not submitted:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            # Spark's workers are this Python, not the first python3 on the path, which may be of another version.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            for key, value in {**LOCAL, **(SMALL if small else {})}.items():
                builder = builder.config(key, value)
            # The Python workers import what the driver does, from wherever it was started.
            builder = builder.config("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if submitted:
        properties = spark.conf.getAll
        for key in untuned(properties):
            if spark.conf.isModifiable(key):
                spark.conf.set(key, LOCAL[key])
    for key, value in QUERIES.items():
        spark.conf.set(key, value)
    return spark
