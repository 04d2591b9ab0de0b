"""FortiGate's syslog: ``date=… time=… devname="…" devid="…" logid="…" type="event" …``, pairs and nothing else.

Fields keep FortiGate's names; generic ones are added (``src_ip`` …). ``service`` of the source is the log's ``type``.
"""

from __future__ import annotations

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
    return iso_time(f"{fields.get('date')} {fields.get('time')}", zone) if time is None else time
