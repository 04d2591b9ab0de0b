"""Log Event Extended Format 1.0 and 2.0: ``LEEF:V|VENDOR|PRODUCT|VERSION|EVENT ID|[DELIMITER|]KEY=VALUE…``.

IBM QRadar's log event extended format. Attributes are separated by a tab; version 2.0 may name another character, as
itself or as hex (``0x5E``, ``x5E``). Some senders of version 1.0 separate by ``|`` without saying so: that is taken
when the text has no tab. Nothing is escaped: values stand as in the event. An attribute is a field under its own name
and, where rules have one, its generic name.
"""

from __future__ import annotations

import re

from vedette.decode.formats.base import Fields, add_names
from vedette.decode.formats.table import LEEF_NAMES

_START = re.compile(
    r" ?(?:\S{1,255} ){0,2}?LEEF: ?(?P<leefVersion>[12](?:\.\d)?)\|(?P<deviceVendor>[^|]*+)\|"
    r"(?P<deviceProduct>[^|]*+)\|(?P<deviceVersion>[^|]*+)\|(?P<deviceEventClassId>[^|]*+)\|"
)
_DELIMITER = re.compile(r"(?:0?x([0-9A-Fa-f]{2,4})|([^\w\s|=])|\t?)\|")
_ATTRIBUTE = re.compile(r"\s*([A-Za-z_][\w.\-]{0,127})=(.*)", re.S)
MAX_KEYS = 512


def read(message: str) -> Fields:
    """The fields of one message; empty when its header is broken."""
    start = _START.match(message)
    if start is None:
        return {}
    fields: Fields = {**start.groupdict(), "eventId": start["deviceEventClassId"]}
    text = message[start.end() :].rstrip("\r\n\0")
    delimiter = "\t"
    if start["leefVersion"].startswith("2") and (explicit := _DELIMITER.match(text)):
        text = text[explicit.end() :]
        delimiter = chr(int(explicit[1], 16)) if explicit[1] else explicit[2] or "\t"
    elif "\t" not in text and "|" in text:
        delimiter = "|"
    for part in text.split(delimiter, MAX_KEYS)[:MAX_KEYS]:
        if attribute := _ATTRIBUTE.match(part):
            fields[attribute[1]] = attribute[2]
    add_names(fields, LEEF_NAMES)
    return fields
