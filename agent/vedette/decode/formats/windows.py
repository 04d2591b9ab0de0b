"""Windows events as JSON, in the shapes that collectors write.

* ``{"Event": {"System": {…}, "EventData": {…}}}`` (EVTX dumps), also without ``Event`` (Velociraptor, OpenWEC) or with
  attributes beside their element (``Provider_attributes``); ``EventData`` also as a list of ``{"@Name", "#text"}``, and
  what is below ``UserData``'s own element as if it stood there;
* Winlogbeat: ``{"winlog": {"channel", "event_id", "event_data": {…}}}``; Vector, OpenTelemetry: these names on top;
* NXLog, Fluent Bit, Azure Monitor, Get-WinEvent and others: all names on top (``table.FLAT_NAMES``);
* Wazuh: ``{"data": {"win": {"system": {…}, "eventdata": {…}}}}``, all names with a small first letter;
* the event, or its data, as a text of XML (``_TEXTS``; ``eventxml.py``);
* any of these in part, also with dotted names in place of objects (``winlog.event_data.Image``), or with no more than
  names of the Elastic Common Schema: see ``eventlog.py``.

What lies within is given by its own name as well (``CommandLine``, ``EventID``, ``Channel``, ``Provider_Name``), as
Sigma's rules ask for it. Sources by ``eventlog.py``.

Where one name lies in several places, the order of an event's names means nothing. What is on top goes first, then
the head: ``System``, ``winlog``'s own names, those of ``FLAT_NAMES``, dotted names, Wazuh's, XML's. Then data:
``user_data`` before ``event_data`` before ``UserData`` before ``EventData``, and in each a name of its own before a
``Data`` of that name, or one that lies deeper; then those of dotted names, Wazuh's, XML's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vedette.decode.formats import eventlog, eventxml
from vedette.decode.formats.base import Fields, Seen
from vedette.decode.formats.table import BEAT_NAMES, FLAT_NAMES, TOGETHER, WINDOWS_NAMES
from vedette.decode.values import text_of
from vedette.model.event import Source

_VALUE = ("#text", "text", "Value", "value")
_VALUE_OR_NAME = (*_VALUE, "id", "name")
"""The latter of OpenTelemetry's ``event_id`` and ``provider``."""


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any, keys: tuple[str, ...] = _VALUE) -> Any:
    """An element's text, where its attributes make it an object."""
    if isinstance(value, dict):
        for key in keys:
            if key in value:
                return value[key]
        return None
    return value


def _attribute(value: Any, name: str, beside: Any = None) -> Any:
    """The attribute ``name`` of an element; ``beside``: its attributes, where they stand beside it."""
    element = _object(value)
    for place in (element, _object(element.get("#attributes")), _object(element.get("_attributes")), _object(beside)):
        for key in (name, f"@{name}"):
            if key in place:
                return place[key]
    return None


def fits(event: Seen) -> bool:
    """Whether ``event`` is a Windows event."""
    if _SIGNS.isdisjoint(event):
        return False
    if "winlog" in event or "EventID" in event or "event_data" in event:
        return True
    if "System" in _object(event.get("Event")) or ("System" in event and ("EventData" in event or _is_head(event))):
        return True
    if ("LogName" in event and "ProviderName" in event) or (
        "event_id" in event and "channel" in event and "computer" in event
    ):
        return True
    if "RawXml" in _object(event.get("properties")) or "system" in _wazuh(event):
        return True
    return not _DOTTED.isdisjoint(event) or tells(event) or bool(in_ecs(event))


def tells(fields: Seen) -> bool:
    """Whether an event without an event id or a channel is a Windows event all the same, by its names."""
    if "Image" in fields or "SourceImage" in fields or "NewProcessName" in fields or "ScriptBlockText" in fields:
        return any(name in fields for name in eventlog.TELLING)
    return False


def in_ecs(event: Seen) -> dict[str, object]:
    """``EventID`` and ``Provider_Name`` of a Windows event in the Elastic Common Schema alone, its objects nested or as
    dotted names; empty for any other event."""

    def named(first: str, rest: str) -> object:
        value = event.get(f"{first}.{rest}")
        inside = event.get(first)
        for part in rest.split(".") if value is None else ():
            inside = inside.get(part) if isinstance(inside, dict) else None
        return inside if value is None else value

    if ("event" not in event and "event.code" not in event) or (code := named("event", "code")) is None:
        return {}
    provider = named("event", "provider") or named("event", "module")
    name = text_of(provider)[:256].lower()
    kinds = (named("host", "os.type"), named("host", "os.family"), named("host", "os.platform"))
    if "windows" in kinds or name.startswith(eventlog.MICROSOFT) or name in eventlog.BY_PROVIDER:
        return {"EventID": code, "Provider_Name": provider} if provider else {"EventID": code}
    return {}


def _is_head(event: Seen) -> bool:
    system = event["System"]
    return "EventID" in _object(system) or (isinstance(system, str) and system.startswith("<Event"))


def _wazuh(event: Seen) -> Mapping[str, Any]:
    """Wazuh's object."""
    if "data" not in event and "win" not in event:
        return {}
    return _object(_object(event.get("data")).get("win")) or _object(event.get("win"))


_SIGNS = frozenset(WINDOWS_NAMES) | {"Event", "event", "properties", "data", *eventlog.ACTORS}
"""Names on top of which every Windows event has one."""
_DOTTED = frozenset({"winlog.event_id", "winlog.channel"})
_SECTIONS = ("event_data", "user_data")
_TEXTS = ("ParameterXml", "EventData", "UserData", "System", "RawXml")
"""Names of what may be a text of XML; the later goes before the earlier."""
_UNNAMED = ("StringInserts", "string_inserts", "Properties", "ReplacementStrings")
"""Lists of data without their names; the first counts."""
_HEAD = ("EventID", "Channel", "Computer", "Level", "EventRecordID", "Task", "Opcode", "Keywords", "Version")
_NAMES = {"ProviderName": "Provider_Name", "SystemTime": "TimeCreated", **{name: name for name in _HEAD}}
_DEPTH = 8
"""Objects in each other below ``UserData`` of which the values are named."""


def _data(value: Any, fields: Fields, depth: int = 0) -> None:
    """The named values of an ``EventData``; those of objects within, ``depth`` of them, too."""
    values = {"Data": value} if isinstance(value, list) else _object(value)
    if _plain(values):
        fields.update(values)
        return
    for key in sorted(values) if depth else ():
        if _is_name(key) and isinstance(inner := values[key], dict) and _text(inner) is None:
            _data(inner, fields, depth - 1)
    data = values.get("Data", values.get("data"))
    nameless: list[Any] = []
    listed = isinstance(data, list | dict)
    for item in data if isinstance(data, list) else [data] * listed:
        text = _text(item)
        if isinstance(name := _attribute(item, "Name"), str):
            fields[name] = text
        elif isinstance(item, dict) and text is None:  # OpenTelemetry's: the name is a key
            fields.update((key, inner) for key, inner in item.items() if key and _is_name(key))
            nameless += [item[""]] if "" in item else []
        else:
            nameless += text if isinstance(text, list) else [text]
    if nameless:
        fields["Data"] = nameless
    for key, inner in values.items():
        if not _is_name(key) or (listed and key in ("Data", "data")):
            continue
        if isinstance(inner, dict) and (depth or "#text" in inner) and (inner := _text(inner)) is None:
            continue
        fields[key] = inner


def _is_name(key: str) -> bool:
    return not key.startswith(("#", "@", "_attr")) and not key.endswith("_attributes")


def _plain(values: Mapping[str, Any]) -> bool:
    """Whether nothing in ``values`` is but a named value, at less cost than by a loop over them."""
    names = "\0".join(("", *values, ""))
    special = "\0#" in names or "\0@" in names or "_attr" in names or "\0Data\0" in names or "\0data\0" in names
    return not special and dict not in map(type, values.values())


def _system(system: Mapping[str, Any], fields: Fields) -> None:
    _named(system, _NAMES, fields)
    for element, name, field in (("Provider", "Name", "Provider_Name"), ("TimeCreated", "SystemTime", "TimeCreated")):
        value = system.get(element)
        value = _attribute(value, name, system.get(f"{element}_attributes")) if not isinstance(value, str) else value
        if isinstance(value, str | int | float):
            fields[field] = value


def _named(place: Mapping[str, Any], table: Mapping[str, str], fields: Fields) -> None:
    """What ``place`` has under the names of ``table``, of which the last counts."""
    if table.keys().isdisjoint(place):
        return
    for own, name in table.items():
        if own in place:
            value = place[own]
            if isinstance(value, dict):
                value = _text(value, _VALUE_OR_NAME)
            if value is not None and not isinstance(value, (list, dict)):
                fields[name] = value


def _capital(section: Mapping[str, Any]) -> dict[str, Any]:
    """A section of Wazuh's with the names that Windows gives."""
    return {name[:1].upper() + name[1:]: section[name] for name in sorted(section)}


def _undotted(event: Seen) -> dict[str, Any]:
    """Winlogbeat's object of dotted names."""
    beat: dict[str, Any] = {section: {} for section in _SECTIONS}
    for key, value in event.items():
        head, _, name = key.partition(".")
        section, _, inner = name.partition(".")
        if head == "winlog" and inner and section in _SECTIONS:
            beat[section][inner] = value
        elif head == "winlog" and name in BEAT_NAMES:
            beat[name] = value
    return beat


def read(event: Seen) -> Fields:
    """The names within ``event``, on top."""
    head: Fields = {}
    data: Fields = {}
    about = _object(event.get("properties"))
    root = _object(event.get("Event")) or (about if "RawXml" in about else event)
    for name in _TEXTS:
        if name in root and isinstance(text := root[name], str) and text.lstrip().startswith("<"):
            system, values = eventxml.parts(text)
            head.update(system)
            data.update(values)
    if wazuh := _wazuh(event):
        for section in sorted(wazuh):
            values = _capital(_object(wazuh[section]))
            if section == "system":
                _system(values, head)
            else:
                _data(values, data, _DEPTH)
    beat = _object(event.get("winlog")) or event
    if not _DOTTED.isdisjoint(event):
        dotted = _undotted(event)
        _data(dotted["event_data"], data)
        _data(dotted["user_data"], data, _DEPTH)
        _named(dotted, BEAT_NAMES, head)
    if "EventData" in root:
        _data(root["EventData"], data)
    if "UserData" in root:
        _data(root["UserData"], data, _DEPTH)
    if "event_data" in beat:
        _data(beat["event_data"], data)
    if "user_data" in beat:
        _data(beat["user_data"], data, _DEPTH)
    _named(root, FLAT_NAMES, head)
    _named(beat, BEAT_NAMES, head)
    for sign, table in TOGETHER.items():
        if sign in root:
            _named(root, table, head)
    if "System" in root:
        _system(_object(root["System"]), head)
    for name in _UNNAMED:
        if name in event and "Data" not in data and isinstance(listed := event[name], list):
            data["Data"] = [_text(value) for value in listed]
    if "EventID" not in event and "EventID" not in head:
        head.update(in_ecs(event))
    data.update(head)
    eventxml.complete(data, event)
    return data


def source_of(event: Seen, further: Callable[[], Seen]) -> Source:
    """Where ``event`` belongs."""
    if "EventID" in event and "Channel" in event and ("EventType" in event or text_of(event["EventID"]) != "12"):
        return eventlog.source_of(event)
    return eventlog.source_of({**further(), **event})
