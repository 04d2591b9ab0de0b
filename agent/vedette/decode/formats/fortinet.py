"""FortiGate's syslog: ``date=… time=… devname="…" devid="…" logid="…" type="event" …``, pairs and nothing else, in any
order, as FortiAnalyzer forwards them, too (``logver=… timestamp=… tz="UTC+2:00" devname="…" …``).

Fields keep FortiGate's names; generic ones are added (``src_ip`` …). ``service`` of the source is the log's ``type``.
"""

from __future__ import annotations

import re
from datetime import tzinfo

from vedette.decode.formats.base import Fields, Seen, add_names
from vedette.decode.formats.table import FORTINET_NAMES, FORTINET_TYPES, fortinet_source
from vedette.decode.programs import key_values
from vedette.model.event import Source
from vedette.model.times import iso_time, time_of


def read(message: str) -> Fields:
    """The pairs of one message, and generic names."""
    fields: Fields = dict(key_values(message))
    add_names(fields, FORTINET_NAMES)
    return fields


def source_of(fields: Seen) -> Source:
    kind = fields.get("type")
    return fortinet_source(kind if kind in FORTINET_TYPES else "")


def time_of_message(fields: Seen, zone: tzinfo | None) -> int | None:
    time = time_of(fields.get("eventtime"), zone) if "eventtime" in fields else None
    if time is not None:
        return time
    offset = _OFFSET.match(str(fields.get("tz")))
    local = f"{fields.get('date')} {fields.get('time')}"
    return iso_time(f"{local}{offset[1]}{offset[2]:0>2}:{offset[3]}" if offset else local, zone)


_OFFSET = re.compile(r"(?:UTC)?([+-])(\d{1,2}):?(\d\d)$")
