"""Windows event XML, which Sysmon for Linux writes to syslog: ``<Event><System>…</System><EventData>…``.

Read are the elements of ``System`` (``EventID``, ``Channel``, ``Computer`` …, the provider's name as ``Provider_Name``,
the time as ``TimeCreated``) and every ``<Data Name="N">VALUE</Data>`` as field ``N``; nameless data are the list
``Data``. Entities (``&lt; &gt; &amp; &quot; &apos; &#10;``) are undone and a CDATA section is taken out of its
brackets. Not a general XML reader: no DTD, no namespaces, no nesting; it needs none of them, and no DTD can make it
expand anything. Field names and categories: ``eventlog.py``.
"""

from __future__ import annotations

import re

from vedette.decode.formats import eventlog
from vedette.decode.formats.base import Fields

_DATA = re.compile(
    r"""<Data(?:\s+Name=(?:"([^"<>]{0,256})"|'([^'<>]{0,256})'))?\s*(?:/>|>(?:<!\[CDATA\[((?:(?!<!\[CDATA\[).)*?)\]\]>|([^<]*+))</Data>)""",
    re.S,
)
_SYSTEM = re.compile(
    r"<(EventID|Version|Level|Task|Opcode|Keywords|EventRecordID|Channel|Computer)(?:\s[^<>]{0,256})?>([^<]{0,1024})<"
)
_PROVIDER = re.compile(r"""<Provider\s[^<>]{0,512}?Name=["']([^"'<>]{0,256})["']""")
_TIME = re.compile(r"""<TimeCreated\s[^<>]{0,256}?SystemTime=["']([^"'<>]{0,64})["']""")
_EXECUTION = re.compile(r"""<Execution\s[^<>]{0,256}?ProcessID=["'](\d{1,20})["']""")
_ENTITY = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#(?:x([0-9A-Fa-f]{1,6})|([0-9]{1,7})));")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
MAX_DATA = 512


def _character(match: re.Match[str]) -> str:
    if match[1]:
        return _NAMED[match[1]]
    code = int(match[2], 16) if match[2] else int(match[3])
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def unescape(text: str) -> str:
    """``text`` with its entities undone."""
    return _ENTITY.sub(_character, text) if "&" in text else text


def read(message: str) -> Fields:
    """The fields of one event."""
    fields: Fields = {}
    head, separator, data = message.partition("</System>")
    if not separator:
        head = data = message
    for element in _SYSTEM.finditer(head):
        fields.setdefault(element[1], unescape(element[2]))
    for name, pattern in (("Provider_Name", _PROVIDER), ("TimeCreated", _TIME), ("ExecutionProcessID", _EXECUTION)):
        if match := pattern.search(head):
            fields[name] = unescape(match[1])
    nameless: list[str] = []
    for i, item in enumerate(_DATA.finditer(data)):
        if i == MAX_DATA:
            break
        double, single, cdata, text = item.groups()
        name = double or single
        value = cdata if cdata is not None else unescape(text or "")
        if name:
            fields[unescape(name)] = value
        else:
            nameless.append(value)
    if nameless:
        fields["Data"] = nameless
    eventlog.name_as_sysmon(fields, fields)
    return fields
