"""Windows events as JSON, in the shapes that collectors write.

* EVTX dumps: ``{"Event": {"System": {…}, "EventData": {…}}}``, ``EventData`` also as a list of ``{"@Name", "#text"}``;
* Winlogbeat: ``{"winlog": {"channel", "event_id", "event_data": {…}}}``, its older form with ``event_data`` on top;
* NXLog and others: all names on top, with ``EventID`` and ``Channel``;
* any of these in part, also with dotted names in place of objects (``winlog.event_data.Image``), or with no more than
  names of the Elastic Common Schema: see ``eventlog.py``.

What lies within is given by its own name as well (``CommandLine``, ``EventID``, ``Channel``, ``Provider_Name``), as
Sigma's rules ask for it. Sources by ``eventlog.py``.

Where one name lies in several places, the order of an event's names means nothing. What is on top goes first, then
data: ``user_data`` before ``event_data`` before ``UserData`` before ``EventData``, and in each a name of its own before
a ``Data`` of that name. Then ``System``, ``winlog``'s own names, NXLog's, and last what dotted names give, likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vedette.decode.formats import eventlog
from vedette.decode.formats.base import Fields, Seen
from vedette.decode.formats.table import BEAT_NAMES, NXLOG_NAMES
from vedette.model.event import Source


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> Any:
    """An element's text, where its attributes make it an object."""
    if isinstance(value, dict):
        for key in ("#text", "text", "Value", "value"):
            if key in value:
                return value[key]
        return None
    return value


def _attribute(value: Any, name: str) -> Any:
    element = _object(value)
    for place in (element, _object(element.get("#attributes")), _object(element.get("_attributes"))):
        for key in (name, f"@{name}"):
            if key in place:
                return place[key]
    return None


def fits(event: Seen) -> bool:
    """Whether ``event`` is a Windows event."""
    if "winlog" in event or "EventID" in event or "event_data" in event:
        return True
    if "System" in _object(event.get("Event")) or ("System" in event and "EventData" in event):
        return True
    return not _DOTTED.isdisjoint(event) or eventlog.tells(event) or bool(eventlog.in_ecs(event))


_DOTTED = frozenset({"winlog.event_id", "winlog.channel"})
_SECTIONS = ("event_data", "user_data")
"""The later goes before the earlier."""


def _data(value: Any, fields: Fields) -> None:
    """The named values of an ``EventData``."""
    values = _object(value)
    if _plain(values):
        fields.update(values)
        return
    data = values.get("Data")
    nameless = []
    listed = isinstance(data, list | dict)
    for item in data if isinstance(data, list) else [data] * listed:
        name = _attribute(item, "Name")
        if isinstance(name, str):
            fields[name] = _text(item)
        else:
            nameless.append(_text(item))
    if nameless:
        fields["Data"] = nameless
    for key, inner in values.items():
        if not (key.startswith(("#", "@", "_attr")) or (key == "Data" and listed)):
            fields[key] = _text(inner) if isinstance(inner, dict) and "#text" in inner else inner


def _plain(values: Mapping[str, Any]) -> bool:
    """Whether nothing in ``values`` is but a named value, at less cost than by a loop over them."""
    names = "\0".join(("", *values, ""))
    special = "\0#" in names or "\0@" in names or "\0_attr" in names or "\0Data\0" in names
    return not special and dict not in map(type, values.values())


def _system(system: Mapping[str, Any], fields: Fields) -> None:
    for name in ("EventID", "Channel", "Computer", "Level", "EventRecordID", "Task", "Opcode", "Keywords", "Version"):
        if name in system and (value := _text(system[name])) is not None:
            fields[name] = value
    if isinstance(provider := _attribute(system.get("Provider"), "Name"), str):
        fields["Provider_Name"] = provider
    if isinstance(time := _attribute(system.get("TimeCreated"), "SystemTime"), str):
        fields["TimeCreated"] = time


def _winlog(beat: Mapping[str, Any], fields: Fields) -> None:
    """Add what Winlogbeat's object holds."""
    for key, name in BEAT_NAMES.items():
        if key in beat:
            fields.setdefault(name, beat[key])
    for section in _SECTIONS:
        if section in beat:
            _data(beat[section], fields)


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
    fields: Fields = {}
    root = _object(event.get("Event")) or event
    if system := _object(root.get("System")):
        _system(system, fields)
    for section in ("EventData", "UserData"):
        if section in root:
            _data(root[section], fields)
    _winlog(_object(event.get("winlog")) or event, fields)
    for own, name in NXLOG_NAMES.items():
        if own in event:
            fields.setdefault(name, event[own])
    if not _DOTTED.isdisjoint(event):
        dotted: Fields = {}
        _winlog(_undotted(event), dotted)
        fields = {**dotted, **fields}
    elif "EventID" not in event and "EventID" not in fields:
        fields.update(eventlog.in_ecs(event))
    if str(event.get("EventID", fields.get("EventID"))) == "4688":
        eventlog.name_as_sysmon(fields, {**fields, **event})
    return fields


def source_of(event: Seen, further: Callable[[], Seen]) -> Source:
    """Where ``event`` belongs."""
    if "EventID" in event and "Channel" in event:
        return eventlog.source_of(event)
    return eventlog.source_of({**further(), **event})
