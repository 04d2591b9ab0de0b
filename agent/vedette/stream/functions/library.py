"""All scalar functions of SQL: the rows of the families' files, and those of Flink that are refused."""

from __future__ import annotations

from vedette.stream.functions import arithmetic, cast, compare, tables
from vedette.stream.functions.table import Library, Refused

_FAMILIES = (compare, arithmetic, cast, tables)

_CLOCK = "a replay must give the same; use the event's time (a column, or METADATA received_at)"
_CHANCE = "a replay must give the same; there is no chance in a rule"
REFUSED: dict[str, Refused] = {
    **dict.fromkeys(
        ("NOW", "PROCTIME", "CURRENT_TIMESTAMP", "CURRENT_TIME", "CURRENT_DATE", "CURRENT_ROW_TIMESTAMP",
         "LOCALTIME", "LOCALTIMESTAMP", "UNIX_TIMESTAMP"),
        Refused(_CLOCK),
    ),
    **dict.fromkeys(("RAND", "RAND_INTEGER"), Refused(_CHANCE)),
    "UUID": Refused(f"{_CHANCE}; MD5 of columns names an event"),
    "CURRENT_WATERMARK": Refused("rows behind the watermark are dropped by each operator itself"),
}  # fmt: skip

LIBRARY = Library({name: row for family in _FAMILIES for name, row in family.FUNCTIONS.items()}, REFUSED)
