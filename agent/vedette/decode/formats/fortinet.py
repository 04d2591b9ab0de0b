"""FortiGate's syslog: ``date=… time=… devname="…" devid="…" logid="…" type="event" …``, pairs and nothing else.

Fields keep FortiGate's names; generic ones are added (``src_ip`` …). ``service`` of the source is the log's ``type``.
"""

from __future__ import annotations

from datetime import tzinfo
from functools import lru_cache

from vedette.decode.formats.base import Fields, Format, Seen, add_names, source, union
from vedette.decode.programs import key_values
from vedette.decode.provenance import Gives, Provenance, renamed
from vedette.model.event import Source
from vedette.model.times import iso_time, time_of

STARTS = rb"(?:date=\d{4}-\d\d-\d\d time=[\d:]{8} )?(?:tz=\S{1,16} )?dev(?:name|id)="
_NAMES = {"srcip": "src_ip", "dstip": "dst_ip", "srcport": "src_port", "dstport": "dst_port", "devname": "hostname"}
_TYPES = ("event", "traffic", "utm", "anomaly")


def read(message: str) -> Fields:
    """The pairs of one message, and generic names."""
    fields: Fields = dict(key_values(message))
    add_names(fields, _NAMES)
    return fields


@lru_cache(maxsize=8)
def _source(kind: str) -> Source:
    return source("fortigate", "firewall" if kind == "traffic" else "", kind)


def _source_of(fields: Seen) -> Source:
    kind = fields.get("type")
    return _source(kind if kind in _TYPES else "")


def _time(fields: Seen, zone: tzinfo | None) -> int | None:
    time = time_of(fields.get("eventtime"), zone) if "eventtime" in fields else None
    return iso_time(f"{fields.get('date')} {fields.get('time')}", zone) if time is None else time


GIVES = Gives("`date=… devname=`", renamed(_NAMES, how=Provenance.VERBATIM), Provenance.VERBATIM)
_ANY = union(*(_source(kind) for kind in ("", *_TYPES)))
FORMAT = Format("fortinet", STARTS, read, GIVES, _ANY, _source_of, _time, structured=False)
