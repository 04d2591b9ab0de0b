"""All scalar functions of SQL: the rows of the families' files, and those of Flink that are refused."""

from __future__ import annotations

from vedette.stream.functions import (
    arithmetic,
    cast,
    collection,
    compare,
    hash,
    ip,
    json,
    pattern,
    tables,
    text,
    time,
)
from vedette.stream.functions.table import Library, Refused

FAMILIES = (compare, arithmetic, cast, text, pattern, time, json, collection, hash, ip, tables)

_CLOCK = "a replay must give the same; use the event's time (a column, or METADATA received_at)"
_CHANCE = "a replay must give the same; there is no chance in a rule"
REFUSED: dict[str, Refused] = {
    **dict.fromkeys(
        ("NOW", "CURRENT_TIMESTAMP", "CURRENT_TIME", "CURRENT_DATE", "CURRENT_ROW_TIMESTAMP",
         "LOCALTIME", "LOCALTIMESTAMP"),
        Refused(_CLOCK),
    ),
    **dict.fromkeys(("RAND", "RAND_INTEGER"), Refused(_CHANCE)),
    "PROCTIME": Refused("it stands in SELECT, or as a column of CREATE TABLE: PROCTIME() AS p, p AS PROCTIME()"),
    "UUID": Refused(f"{_CHANCE}; MD5 of columns names an event"),
    "CURRENT_WATERMARK": Refused("rows behind the watermark are dropped by each operator itself"),
}  # fmt: skip

LIBRARY = Library({name: row for family in FAMILIES for name, row in family.FUNCTIONS.items()}, REFUSED)
