"""Windows events as each shipper writes them: of all of them the same fields, log source, host and time."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.decode.test_formats import read, selected
from tests.decode.test_order import says, shuffled
from tests.differences import walk
from vedette.decode.decoder import from_mapping

TIME = 1_795_832_973_000_000
"""2026-11-28 02:29:33 UTC."""
_SERVICE = {"EventID": 7045, "Channel": "System", "Provider_Name": "Service Control Manager", "Computer": "w1"}
_XMLNS = "http://schemas.microsoft.com/win/2004/08/events/event"
_HEAD = (
    "<System><Provider Name='Service Control Manager' Guid='{555908d1-a6d7-4695-8e1e-26931d2012f4}' EventSourceName="
    "'SCM'/><EventID Qualifiers='16384'>7045</EventID><Level>4</Level><TimeCreated SystemTime="
    "'2026-11-28T02:29:33.0000000Z'/><Channel>System</Channel><Computer>w1</Computer></System>"
)
_DATA = "<EventData><Data Name='ImagePath'>C:\\a &amp; b.exe</Data><Data Name='StartType'>3</Data></EventData>"
_INFO = "<RenderingInfo Culture='en-US'><Message>m</Message><Level>Information</Level></RenderingInfo>"
_PATH = {"ImagePath": "C:\\a & b.exe"}
_TEXTS = {"EventID": "7045", "Channel": "System", "Provider_Name": "Service Control Manager", "Computer": "w1"}

SHIPPERS: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("Splunk, XmlWinEventLog", f"<Event xmlns='{_XMLNS}'>{_HEAD}{_DATA}{_INFO}</Event>", _TEXTS | _PATH),
    ("its elements in another order", f"<Event xmlns='{_XMLNS}'>{_DATA}{_HEAD}</Event>", _TEXTS | _PATH),
    ("Fluent Bit, winevtlog",
     {"ProviderName": "Service Control Manager", "ProviderGuid": "{555908D1}", "Qualifiers": 16384, "EventID": 7045,
      "Version": 0, "Level": 4, "Task": 0, "Opcode": 0, "Keywords": "0x8080000000000000",
      "TimeCreated": "2026-11-28 03:29:33 +0100", "EventRecordID": 9, "ActivityID": "", "ProcessID": 5, "ThreadID": 6,
      "Channel": "System", "Computer": "w1", "UserID": "", "Message": "m", "StringInserts": ["svc", "C:\\a.exe", 3]},
     _SERVICE | {"Data": ["svc", "C:\\a.exe", 3]}),
    ("Fluent Bit, render_event_as_xml",
     {"System": f"<Event xmlns='{_XMLNS}'>{_HEAD}{_DATA}</Event>", "Message": "m", "StringInserts": ["svc"]},
     _TEXTS | _PATH),
    ("NXLog",
     {"EventTime": "2026-11-28T02:29:33.000000+00:00", "Hostname": "w1", "Keywords": 36028797018963968,
      "EventID": 7045, "SourceName": "Service Control Manager", "ProviderGuid": "{555908d1}", "RecordNumber": 9,
      "Channel": "System", "ImagePath": "C:\\a & b.exe", "EventReceivedTime": "2026-11-28T02:29:35.000000+00:00",
      "SourceModuleType": "im_msvistalog"},
     _SERVICE | _PATH | {"EventRecordID": 9}),
    ("the evtx crate",
     {"Event": {"#attributes": {"xmlns": _XMLNS}, "System": {
         "Provider": {"#attributes": {"Name": "Service Control Manager"}}, "EventID": {
             "#attributes": {"Qualifiers": 16384}, "#text": 7045}, "Level": 4, "TimeCreated": {
                 "#attributes": {"SystemTime": "2026-11-28T02:29:33.000000Z"}}, "Channel": "System",
         "Computer": "w1", "Security": None}, "EventData": {"ImagePath": "C:\\a & b.exe"}}},
     _SERVICE | _PATH),
    ("the evtx crate, separate attributes",
     {"Event_attributes": {"xmlns": _XMLNS}, "Event": {"System": {
         "Provider_attributes": {"Name": "Service Control Manager"}, "EventID_attributes": {"Qualifiers": 16384},
         "EventID": 7045, "TimeCreated_attributes": {"SystemTime": "2026-11-28T02:29:33Z"}, "Channel": "System",
         "Computer": "w1"}, "EventData": {"Data": {"#text": ["svc", "C:\\a.exe"]}}}},
     _SERVICE | {"Data": ["svc", "C:\\a.exe"]}),
    ("Velociraptor",
     {"System": {"Provider": {"Name": "Service Control Manager", "Guid": "{555908d1}"}, "EventID": {"Value": 7045},
                 "TimeCreated": {"SystemTime": 1795832973.0}, "Channel": "System", "Computer": "w1"},
      "EventData": {"ImagePath": "C:\\a & b.exe"}, "Message": "m"},
     _SERVICE | _PATH),
    ("Velociraptor, UserData alone",
     {"System": {"Provider": {"Name": "Service Control Manager"}, "EventID": {"Value": 7045},
                 "TimeCreated": {"SystemTime": 1795832973}, "Channel": "System", "Computer": "w1"},
      "UserData": {"Own": {"Result": {"value": "0"}, "ImagePath": "C:\\a & b.exe"}}, "Message": ""},
     _SERVICE | _PATH | {"Result": "0"}),
    ("OpenWEC",
     {"System": {"Provider": {"Name": "Service Control Manager"}, "EventID": 7045, "EventIDQualifiers": 16384,
                 "TimeCreated": "2026-11-28T02:29:33Z", "Channel": "System", "Computer": "w1"},
      "UserData": "<Own xmlns='x'><ImagePath>C:\\a &amp; b.exe</ImagePath></Own>", "OpenWEC": {"Node": "n"}},
     _SERVICE | _PATH),
    ("Wazuh",
     {"timestamp": "2026-11-28T02:29:35.123+0000", "agent": {"name": "w1"}, "decoder": {"name": "windows_eventchannel"},
      "data": {"win": {"system": {"providerName": "Service Control Manager", "eventID": "7045", "level": "4",
                                  "systemTime": "2026-11-28T02:29:33.0000000Z", "channel": "System", "computer": "w1",
                                  "eventRecordID": "9"}, "eventdata": {"imagePath": "C:\\a & b.exe"}}}},
     _TEXTS | _PATH | {"EventRecordID": "9"}),
    ("Wazuh, UserData",
     {"win": {"system": {"providerName": "Service Control Manager", "eventID": "7045", "channel": "System",
                         "systemTime": "2026-11-28T02:29:33Z", "computer": "w1"},
              "logFileCleared": {"channel": "Security", "subjectUserName": "kim"}}},
     _TEXTS | {"SubjectUserName": "kim"}),
    ("Azure Monitor, Event",
     {"TimeGenerated": "2026-11-28T02:29:33Z", "Source": "Service Control Manager", "EventLog": "System",
      "Computer": "w1", "EventID": 7045, "EventData": f"<DataItem type='System.XmlData'>{_DATA}</DataItem>",
      "ParameterXml": "<Param>svc</Param><Param>C:\\a.exe</Param>", "Type": "Event"},
     _SERVICE | _PATH | {"Data": ["svc", "C:\\a.exe"]}),
    ("Azure Monitor, SecurityEvent",
     {"TimeGenerated": "2026-11-28T02:29:33Z", "EventSourceName": "Service Control Manager", "Channel": "System",
      "Computer": "w1", "EventID": 7045, "EventData": f"<EventData xmlns='{_XMLNS}'>{_DATA[11:]}"},
     _SERVICE | _PATH),
    ("Azure Monitor, WindowsEvent",
     {"TimeGenerated": "2026-11-28T02:29:39Z", "TimeCreated": "2026-11-28T02:29:33Z", "Channel": "System",
      "Provider": "Service Control Manager", "Computer": "w1", "EventID": 7045,
      "EventData": {"ImagePath": "C:\\a & b.exe"}},
     _SERVICE | _PATH),
    ("Azure diagnostics to an event hub",
     {"time": "2026-11-28T02:29:33Z", "category": "WindowsEventLogsTable", "properties": {
         "ProviderName": "Service Control Manager", "EventId": 7045, "Channel": "System", "Level": 4,
         "RawXml": f"<Event xmlns='{_XMLNS}'>{_HEAD}{_DATA}</Event>"}},
     _TEXTS | _PATH | {"EventID": 7045}),
    ("Winlogbeat",
     {"@timestamp": "2026-11-28T02:29:33.000Z", "winlog": {
         "api": "wineventlog", "event_id": "7045", "provider_name": "Service Control Manager", "channel": "System",
         "computer_name": "w1", "event_data": {"param2": "b", "param1": "a", "param10": "c"}}},
     _TEXTS | {"Data": ["a", "b", "c"], "param1": "a"}),
    ("Winlogbeat, its own time",
     {"winlog": {"event_id": "7045", "provider_name": "Service Control Manager", "channel": "System",
                 "computer_name": "w1", "time_created": "2026-11-28T02:29:33Z",
                 "user_data": {"xml_name": "EventXML", "Channel": "Security", "EventID": "1", "Computer": "x"}}},
     _TEXTS),
    ("Vector",
     {"timestamp": "2026-11-28T02:29:33Z", "host": "w1", "event_id": 7045, "record_id": 9, "level": "Information",
      "channel": "System", "provider_name": "Service Control Manager", "computer": "w1", "string_inserts": ["a", "b"]},
     _SERVICE | {"Data": ["a", "b"]}),
    ("OpenTelemetry's windowseventlog",
     {"@timestamp": 1795832973000000000, "channel": "System", "computer": "w1", "event_id": {
         "id": 7045, "qualifiers": 16384}, "provider": {"name": "Service Control Manager", "guid": "{555908d1}"},
      "system_time": "2026-11-28T02:29:33Z", "event_data": {"data": [{"ImagePath": "C:\\a & b.exe"}, {"": "x"}]}},
     _SERVICE | _PATH | {"Data": ["x"]}),
    ("Get-WinEvent | ConvertTo-Json",
     {"Id": 7045, "Level": 4, "RecordId": 9, "ProviderName": "Service Control Manager", "LogName": "System",
      "MachineName": "w1", "TimeCreated": "2026-11-28T03:29:33+01:00", "Properties": [{"Value": "a"}, {"Value": 3}]},
     _SERVICE | {"Data": ["a", 3], "EventRecordID": 9}),
    ("Get-WinEvent | ConvertTo-Json, PowerShell 5",
     {"Id": 7045, "LogName": "System", "ProviderName": "Service Control Manager", "MachineName": "w1",
      "TimeCreated": "/Date(1795832973000)/", "Properties": [{"Value": "a"}]}, _SERVICE | {"Data": ["a"]}),
    ("PowerShell 5, a date with more properties",
     {"Id": 7045, "LogName": "System", "ProviderName": "Service Control Manager", "MachineName": "w1", "TimeCreated": {
         "value": "/Date(1795832973000)/", "DisplayHint": 2, "DateTime": "Saturday, November 28, 2026 3:29:33 AM"}},
     _SERVICE),
    ("Get-EventLog | ConvertTo-Json, PowerShell 5",
     {"MachineName": "w1", "EventID": 7045, "EntryType": 4, "Source": "Service Control Manager", "InstanceId": 7045,
      "ReplacementStrings": ["a", "b"], "TimeGenerated": "/Date(1795832973000)/", "TimeWritten": "/Date(1)/"},
     {"EventID": 7045, "Provider_Name": "Service Control Manager", "Data": ["a", "b"]}),
    ("Kinesis Agent for Windows",
     {"EventId": 7045, "LogName": "System", "MachineName": "w1", "ProviderName": "Service Control Manager",
      "TimeCreated": "2026-11-28T02:29:33Z", "Index": 9, "EventData": ["a", "b"]},
     _SERVICE | {"Data": ["a", "b"]}),
)  # fmt: skip


@walk(("shipper", "event", "wanted"), SHIPPERS)
def test_an_event_of_every_shipper(shipper: str, event: Any, wanted: dict[str, Any]) -> None:
    """Fields, product and service, host and time, whatever the order of names."""
    text = event if isinstance(event, str) else json.dumps(event)
    shown = read(text)
    assert selected(shown, wanted) == wanted
    assert shown.source.products == {"windows"}
    assert shown.source.services == {"system"}
    assert (shown.host, shown.event_time) == ("w1", TIME)
    for seed in range(0 if isinstance(event, str) else 12):
        assert says(from_mapping(shuffled(Random(seed), event))) == says(shown), shipper


_CLEARED = {"EventID": 104, "Channel": "System", "Computer": "w1", "Provider_Name": "Microsoft-Windows-Eventlog"}
_HIS = {"EventID": 1, "Channel": "Security", "Computer": "x", "Provider_Name": "y", "SubjectUserName": "kim"}
_MINE = "<Provider Name='Microsoft-Windows-Eventlog'/><EventID>104</EventID><Channel>System</Channel>"
_CLEAR = {"LogFileCleared": {"#attributes": {"xmlns": "x"}, **_HIS}}
_BEAT = {"event_id": 104, "channel": "System", "computer_name": "w1", "provider_name": "Microsoft-Windows-Eventlog"}
_OURS = {"EventID": 104, "Channel": "System", "Computer": "w1", "Provider": {"Name": "Microsoft-Windows-Eventlog"}}


@walk(
    "event",
    [
        {"Event": {"System": _OURS, "EventData": _HIS}},
        {"Event": {"System": _OURS, "UserData": _CLEAR}},
        {"Event": {"System": _OURS, "EventData": {"Data": [{"@Name": name, "#text": _HIS[name]} for name in _HIS]}}},
        {"System": _OURS, "UserData": _CLEAR},
        {"winlog": {**_BEAT, "user_data": _HIS}},
        {"winlog": {**_BEAT, "event_data": _HIS}},
        {**_BEAT, "event_data": _HIS},
        {f"winlog.{name}": value for name, value in _BEAT.items()}
        | {f"winlog.user_data.{name}": value for name, value in _HIS.items()},
        {f"winlog.{name}": value for name, value in _BEAT.items()} | {"winlog": {"user_data": _HIS}},
        f"<Event><System>{_MINE}<Computer>w1</Computer></System><EventData>"
        + "".join(f"<Data Name='{name}'>{value}</Data>" for name, value in _HIS.items())
        + "</EventData></Event>",
        f"<Event><System>{_MINE}<Computer>w1</Computer></System><UserData><auto-ns2:LogFileCleared xmlns:auto-ns2='x'>"
        + "".join(f"<{name}>{value}</{name}>" for name, value in _HIS.items())
        + "</auto-ns2:LogFileCleared></UserData></Event>",
    ],
)
def test_what_system_says_goes_before_data(event: Any) -> None:
    """Its event id, channel, computer and provider; what else data say is there."""
    shown = read(event if isinstance(event, str) else json.dumps(event))
    wanted = {name: str(value) for name, value in _CLEARED.items()} | {"SubjectUserName": "kim"}
    assert {name: str(value) for name, value in selected(shown, wanted).items()} == wanted
    assert shown.host == "w1"
    assert shown.source.services == {"system"}


_ADD = {"registry_event", "registry_add"}
_DELETE = {"registry_event", "registry_delete"}
_SET = {"registry_event", "registry_set"}


@walk(
    ("event_id", "kind", "categories"),
    [
        (12, "CreateKey", _ADD),
        ("12", "CreateValue", _ADD),
        (12, "DeleteKey", _DELETE),
        (12, "DeleteValue", _DELETE),
        (12, "INFO", _ADD | _DELETE),
        (12, None, _ADD | _DELETE),
        (13, "SetValue", _SET),
        (14, "RenameKey", {"registry_event", "registry_rename"}),
        (None, "SetValue", _SET),
        (None, "deletevalue", _DELETE),
    ],
)
def test_what_was_done_to_the_registry(event_id: Any, kind: str | None, categories: set[str]) -> None:
    """Sysmon writes keys' creation and deletion under one event id; EventType tells them."""
    data = {"Image": "C:\\x.exe", "TargetObject": "HKLM"} | ({"EventType": kind} if kind else {})
    head = {"EventID": event_id, "Channel": "Microsoft-Windows-Sysmon/Operational"} if event_id else {}
    beat = {"event_id": event_id, "channel": "Microsoft-Windows-Sysmon/Operational"}
    events: list[Any] = [{**head, **data}]
    if event_id:
        events += [{"Event": {"System": head, "EventData": data}}, {**head, "EventData": data}]
        events += [{"winlog": {**beat, "event_data": data}}]
        system = "".join(f"<{name}>{value}</{name}>" for name, value in head.items())
        within = "".join(f"<Data Name='{name}'>{value}</Data>" for name, value in data.items())
        events.append(f"<Event><System>{system}</System><EventData>{within}</EventData></Event>")
    for event in events:
        shown = read(event if isinstance(event, str) else json.dumps(event))
        assert shown.source.categories == categories, event


_DEEP: Any = "x"
for _ in range(500):
    _DEEP = {"a": _DEEP}


@walk(
    "event",
    [
        {"System": _OURS, "UserData": _DEEP},
        {"winlog": {"event_id": 1, "user_data": _DEEP, "event_data": [[]]}},
        {"System": "<Event", "UserData": "<", "EventData": 1},
        {"data": {"win": {"system": [], "eventdata": "<", "": {}}}},
        {"EventID": {"Value": []}, "Properties": [None, [], {}], "event_data": {"data": [None, {}]}},
        "<Event><System>" + "<a " * 999,
        "<Event>" + ("<a" + " " * 1024) * 900,
        "<Event>" + "<System>" * 999 + "<![CDATA[" * 999,
    ],
)
def test_what_is_malformed_is_read_all_the_same(event: Any) -> None:
    """Nothing raises, nor goes deeper than Python can."""
    shown = read(event if isinstance(event, str) else json.dumps(event))
    assert shown.fields()
    assert shown.source.products <= {"windows"}
