"""Windows event XML, which Sysmon for Linux writes to syslog: ``<Event><System>…</System><EventData>…``.

Read are the elements of ``System`` (``EventID``, ``Channel``, ``Computer`` …, the provider's name as ``Provider_Name``,
the time as ``TimeCreated``), every ``<Data Name="N">VALUE</Data>`` as field ``N``, and every other element of
``EventData`` and ``UserData`` that has none within under its own name; nameless data are the list ``Data``. What
``System`` says goes before data of that name. Entities (``&lt; &gt; &amp; &quot; &apos; &#10;``) are undone and a CDATA
section is taken out of its brackets. Not a general XML reader: no DTD, no namespaces, no nesting; it needs none of
them, and no DTD can make it expand anything. Field names and categories: ``eventlog.py``.
"""

from __future__ import annotations

import re

from vedette.decode.formats import eventlog
from vedette.decode.formats.base import Fields, Seen
from vedette.decode.values import text_of

_DATA = re.compile(
    r"<(?:[\w-]{1,64}:)?(?!(?:Event|User)Data\b)([A-Za-z_][\w.-]{0,127})((?:\s[^<>]{0,1024}?)?)"
    r"(?:/>|>(?:<!\[CDATA\[((?:(?!<!\[CDATA\[).)*?)\]\]>|([^<]*+))</)",
    re.S,
)
_NAME = re.compile(r"""\sName=(?:"([^"<>]{0,256})"|'([^'<>]{0,256})')""")
_SYSTEM = re.compile(
    r"<(EventID|Version|Level|Task|Opcode|Keywords|EventRecordID|Channel|Computer)(?:\s[^<>]{0,256})?>([^<]{0,1024})<"
)
_PROVIDER = re.compile(r"""<Provider(?=\s)[^<>]{0,512}?\sName=["']([^"'<>]{0,256})["']""")
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
    head, data = parts(message)
    fields = {**data, **head}
    complete(fields, {})
    return fields


def parts(message: str) -> tuple[Fields, Fields]:
    """What ``System`` says, and data; of no more than some of its elements, too."""
    fields: Fields = {}
    start = message.find("<System")
    end = message.find("</System>", start) if start >= 0 else -1
    head, rest = (message[start:end], message[:start] + message[end:]) if end >= 0 else (message, message)
    for element in _SYSTEM.finditer(head):
        fields.setdefault(element[1], unescape(element[2]))
    for name, pattern in (("Provider_Name", _PROVIDER), ("TimeCreated", _TIME), ("ExecutionProcessID", _EXECUTION)):
        if match := pattern.search(head):
            fields[name] = unescape(match[1])
    data: Fields = {}
    nameless: list[str] = []
    last = max(rest.rfind("</EventData>"), rest.rfind("</UserData>"))  # what is rendered stands behind
    for i, item in enumerate(_DATA.finditer(rest, 0, len(rest) if last < 0 else last)):
        if i == MAX_DATA:
            break
        element_name, attributes, cdata, text = item.groups()
        named = _NAME.search(attributes)
        name = (named[1] or named[2] or "") if named else "" if element_name in ("Data", "Param") else element_name
        value = cdata if cdata is not None else unescape(text or "")
        if name:
            data[unescape(name)] = value
        else:
            nameless.append(value)
    if nameless:
        data["Data"] = nameless
    return fields, data


def complete(fields: Fields, event: Seen) -> None:
    """Add what names of ``fields`` and ``event`` are, too: Sysmon's of the security log's process creation, and
    ``Data``, which has no names, of ``param1``, ``param2`` …"""
    if not (_PARAMETERS.isdisjoint(fields) and _PARAMETERS.isdisjoint(event)):
        seen = {**fields, **event}
        fields.setdefault("Data", [seen[name] for name in sorted(_PARAMETERS & seen.keys(), key=_number)])
    if text_of(event.get("EventID", fields.get("EventID"))) == "4688":
        seen = {**fields, **event}
        if (text_of(seen.get("Channel")) or "security").lower() == "security":
            for own, name in eventlog.AS_SYSMON.items():
                if own in seen:
                    fields.setdefault(name, seen[own])


_PARAMETERS = frozenset(f"param{number}" for number in range(1, 65))


def _number(name: str) -> int:
    return int(name.removeprefix("param"))
