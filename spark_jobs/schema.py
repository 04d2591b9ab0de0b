"""Columns of the landing, as the agents and the landing write them, and of the tables that the jobs make.

Every read names its schema: Spark never infers one, so a file with columns of a later version is read by the columns
known here, and a file without some of them gives nulls. ``ALERTS`` equals ``LANDED_ALERT`` of the agent's
``outbox/envelope.py``, ``STATUS`` its ``STATUS`` and ``BAD`` its ``BAD`` (``tests/spark_jobs/test_schema.py``).
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA_VERSION = 1
"""Newest ``schema_version`` whose columns are all known here."""

_STRING, _INT, _LONG, _TIME = StringType(), IntegerType(), LongType(), TimestampType()


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


_RAW_REF = _struct(log_id=_STRING, offset=_LONG, length=_INT)
_LANDED = _struct(received_at=_TIME, ingest=_struct(collector_id=_STRING, topic=_STRING)).fields

ALERTS = StructType(
    [
        *_struct(
            schema_version=_INT,
            alert_id=_STRING,
            parent_id=_STRING,
            seq=_LONG,
            kind=_STRING,
            rule_id=_STRING,
            rule_title=_STRING,
            rule_digest=_STRING,
            level=_STRING,
            tags=ArrayType(_STRING),
            agent_id=_STRING,
            site=_STRING,
            fleet=_STRING,
            host=_STRING,
            event_time=_TIME,
            detected_at=_TIME,
            received_date=_STRING,
            source=_STRING,
            logsource=_struct(product=_STRING, category=_STRING, service=_STRING),
            fields=MapType(_STRING, _STRING),
            entities=ArrayType(_struct(kind=_STRING, value=_STRING)),
            raw=_STRING,
            raw_ref=_RAW_REF,
            contributing=ArrayType(_struct(rule_id=_STRING, event_time=_TIME, raw_ref=_RAW_REF)),
            group_by=MapType(_STRING, _STRING),
            count=_LONG,
            first_time=_TIME,
            last_time=_TIME,
            bundle=_STRING,
            flags=ArrayType(_STRING),
        ).fields,
        *_LANDED,
    ]
)
"""One landed alert. ``received_date`` is the edge's UTC date of detection, ``YYYY-MM-DD``: a copy that is sent again
has the same one, however late it comes."""

STATUS = StructType(
    [
        *_struct(
            agent_id=_STRING,
            fleet=_STRING,
            site=_STRING,
            state=_STRING,
            version=_STRING,
            bundle=_STRING,
            plan_digest=_STRING,
            seq_high=_LONG,
            payload=_STRING,
        ).fields,
        *_LANDED,
    ]
)
"""One heartbeat or last will; ``payload`` is its whole JSON text."""

BAD = _struct(topic=_STRING, reason=_STRING, payload=BinaryType(), received_at=_TIME)
"""What the landing could not read."""

COUNTS = _struct(
    window_start=_TIME,
    fleet=_STRING,
    site=_STRING,
    host=_STRING,
    rule_id=_STRING,
    rule_title=_STRING,
    level=_STRING,
    alerts=_LONG,
    matches=_LONG,
    date=_STRING,
)
"""Counts of one batch in one 5-minute window of event time; sum over batches. ``alerts`` are alerts proper (a fold is
none), ``matches`` how often the rule matched: an alert stands for one match, of a correlation, too, and a fold for as
many as its ``count``. ``date`` is that of the window."""

BAD_FILES = _struct(path=_STRING, reason=_STRING, rows=_LONG, date=_STRING)
"""A landed file, or ``rows`` of it (null: all of it), that the alerts table does not hold. ``date`` is the file's."""
