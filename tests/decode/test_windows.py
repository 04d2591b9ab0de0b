"""Windows events in JSON: every collector's shape, with or without channel, provider and event id."""

from __future__ import annotations

import json
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.decode.test_formats import selected
from vedette.decode.decoder import from_mapping, record
from vedette.decode.formats import eventlog
from vedette.model.event import Source


@pytest.mark.parametrize(
    ("event", "category", "wanted"),
    [
        ({"Event": {"System": {"EventID": {"#text": 1}, "Channel": "Microsoft-Windows-Sysmon/Operational",
                               "Provider": {"#attributes": {"Name": "P"}}, "Computer": "ws1",
                               "TimeCreated": {"#attributes": {"SystemTime": "2026-11-20T10:00:00.25Z"}}},
                    "EventData": {"CommandLine": "x", "Image": "y"}}},
         "process_creation", {"CommandLine": "x", "EventID": 1, "Provider_Name": "P", "Event.EventData.Image": "y"}),
        ({"Event": {"System": {"EventID": 4104, "Channel": "Microsoft-Windows-PowerShell/Operational"},
                    "EventData": {"Data": [{"@Name": "ScriptBlockText", "#text": "iex"}, "bare"]}}},
         "ps_script", {"ScriptBlockText": "iex", "Data": ["bare"]}),
        ({"winlog": {"channel": "Security", "event_id": 4688,
                     "event_data": {"NewProcessName": "c:\\x.exe", "SubjectUserName": "bob"}}},
         "process_creation", {"EventID": 4688, "Image": "c:\\x.exe", "User": "bob", "winlog.event_id": 4688}),
        ({"EventID": 13, "Channel": "Microsoft-Windows-Sysmon/Operational", "TargetObject": "HKLM"},
         "registry_set", {"TargetObject": "HKLM"}),
        ({"event_id": 800, "log_name": "Windows PowerShell", "event_data": {"param1": "x"}},
         "ps_classic_script", {"param1": "x", "Channel": "Windows PowerShell"}),
    ],
)  # fmt: skip
def test_windows_json(event: dict[str, Any], category: str, wanted: dict[str, Any]) -> None:
    """Every collector's shape gives the plain names; product and category come from channel and event id."""
    r = from_mapping(event)
    assert selected(r, wanted) == wanted
    assert r.source.products == {"windows"}
    assert category in r.source.categories


def _shapes(event: dict[str, Any]) -> list[dict[str, Any]]:
    """A flat event as other collectors write it."""
    data = {name: value for name, value in event.items() if name not in eventlog.PLACED_BY}
    system = {name: event[name] for name in ("EventID", "Channel") if name in event}
    beat = {"event_id": "EventID", "channel": "Channel", "provider_name": "Provider_Name"}
    winlog = {own: event[name] for own, name in beat.items() if name in event}
    provider = {"Provider": {"@Name": event["Provider_Name"]}} if "Provider_Name" in event else {}
    dotted = {f"winlog.{own}": value for own, value in winlog.items()}
    return [
        event,
        {"Event": {"System": system | provider, "EventData": data}},
        {"winlog": {**winlog, "event_data": data}},
        {**winlog, "event_data": data},
        dotted | {f"winlog.event_data.{name}": value for name, value in data.items()},
    ]


@pytest.mark.parametrize(
    ("event", "services"),
    [
        ({"EventID": 1, "Image": "C:\\x.exe", "CommandLine": "x"}, {"sysmon": "process_creation"}),
        ({"EventID": "13", "Image": "C:\\x.exe", "TargetObject": "HKLM"}, {"sysmon": "registry_set"}),
        ({"EventID": 4104, "ScriptBlockText": "iex"}, {"powershell": "ps_script"}),
        ({"EventID": 4688, "NewProcessName": "C:\\x.exe"}, {"security": "process_creation"}),
        ({"EventID": 4625, "LogonType": 3}, {"security": ""}),
        ({"EventID": 7045, "ServiceName": "x"}, {"system": ""}),
    ],
)
@pytest.mark.parametrize("said", [{}, {"Channel": ""}, {"Channel": None}, {"Channel": "ForwardedEvents"}])
def test_windows_events_that_do_not_say_their_channel(
    event: dict[str, Any], services: dict[str, str], said: dict[str, Any]
) -> None:
    """Whatever the collector's shape, they are of every log source that they may be of, and give their fields."""
    for shape in _shapes(event | said):
        r = from_mapping(shape)
        assert r.source.products == {"windows"}, shape
        assert services.keys() <= r.source.services, shape
        assert {*services.values()} - {""} <= r.source.categories, shape
        assert selected(r, event) == event, shape
    assert from_mapping({"EventID": 4688, "NewProcessName": "C:\\x.exe"}).get("Image") == "C:\\x.exe"


def test_what_a_windows_event_says_is_believed() -> None:
    """The provider alone tells the service, and a process of the kernel's is none of Sysmon's."""
    said = {"EventID": 1, "Provider_Name": "Microsoft-Windows-Sysmon"}
    for shape in _shapes(said):
        assert from_mapping(shape).source == Source(
            frozenset({"windows"}), frozenset({"process_creation"}), frozenset({"sysmon"})
        )
    other = from_mapping({"EventID": 1, "Provider_Name": "Microsoft-Windows-Kernel-General"}).source
    assert "system" in other.services
    assert not other.categories
    assert not {"sysmon", "security"} & other.services
    assert not from_mapping({"EventID": 1, "Channel": "Application"}).source.categories
    assert from_mapping({"EventID": 1, "Image": "/usr/bin/id", "CommandLine": "id"}).source.products == {"linux"}


@given(
    st.dictionaries(
        st.sampled_from([*eventlog.TELLING, *eventlog.ACTORS, "User"]), st.sampled_from(["x", "C:\\a.exe"])
    ),
    st.sampled_from([1, 3, "11", 12, 22, 400, 4103, 4104, 4624, 4688, 7045, 99]),
    st.sampled_from([
        ("Microsoft-Windows-Sysmon/Operational", "Microsoft-Windows-Sysmon"),
        ("Security", "Microsoft-Windows-Security-Auditing"),
        ("Windows PowerShell", "PowerShell"),
        ("Microsoft-Windows-PowerShell/Operational", "Microsoft-Windows-PowerShell"),
        ("System", "Service Control Manager"),
        ("Application", "MsiInstaller"),
    ]),
)  # fmt: skip
def test_what_is_left_out_excludes_nothing(fields: dict[str, Any], event_id: Any, origin: tuple[str, str]) -> None:
    """An event from which the channel, or channel and provider, are taken is of all log sources that it was of."""
    channel, provider = origin
    whole = {**fields, "EventID": event_id, "Channel": channel, "Provider_Name": provider}
    source = from_mapping(whole).source
    for left_out in (("Channel",), ("Channel", "Provider_Name")):
        for shape in _shapes({name: value for name, value in whole.items() if name not in left_out}):
            rest = from_mapping(shape).source
            assert all(a <= b for a, b in zip(source, rest, strict=True)), (shape, source, rest)


@pytest.mark.parametrize(
    ("event", "wanted"),
    [
        ({"event": {"code": "1", "provider": "Microsoft-Windows-Sysmon"},
          "process": {"executable": "C:\\x.exe", "command_line": "x"}}, "process_creation"),
        ({"event.code": 1, "event.module": "sysmon", "process.executable": "C:\\x.exe"}, "process_creation"),
        ({"event": {"code": "4104"}, "host": {"os": {"type": "windows"}}}, "ps_script"),
        ({"Image": "C:\\x.exe", "CommandLine": "x"}, "process_creation"),
        ({"ScriptBlockText": "x"}, "ps_script"),
    ],
)  # fmt: skip
def test_windows_events_by_other_names(event: dict[str, Any], wanted: str) -> None:
    """ECS names alone, or Sigma's fields without an event id: the category follows from the fields."""
    r = from_mapping(event)
    assert (r.source.products, wanted in r.source.categories) == ({"windows"}, True)


@pytest.mark.parametrize("event", [{"event": {"code": "106023", "module": "cisco"}}, {"Image": "nginx:1"}, {"event": 3},
                                   {"event": {"code": None}}, {"CommandLine": "x"}, {"win": {"score": 3}},
                                   {"event_id": "Ev1", "channel": "general"}, {"System": {"load": 1}}])  # fmt: skip
def test_what_is_no_windows_event(event: dict[str, Any]) -> None:
    """ECS of other products, and a name that others use too, say nothing of Windows."""
    assert not from_mapping(event).source.products


def test_windows_time() -> None:
    """An event's time is that of its system part."""
    system = {"EventID": 1, "TimeCreated": {"#attributes": {"SystemTime": "2026-11-20T10:00:00Z"}}}
    assert from_mapping({"Event": {"System": system}}).event_time == 1_795_168_800_000_000


@pytest.mark.parametrize(
    "event",
    [
        {"EventID": 1, "Image": "x", "UtcTime": "2026-11-20 10:00:00.000"},
        "<Event><System/><EventData><Data Name='UtcTime'>2026-11-20 10:00:00.000</Data></EventData></Event>",
        {"EventID": 1, "UtcTime": "2026-11-20 10:00:00.900", "TimeCreated": "2026-11-20 10:00:00 UTC"},
        "<Event><System><TimeCreated SystemTime='2026-11-20T11:00:00+01:00'/></System><Data Name='UtcTime'>2026-11-20"
        " 10:00:00.900</Data></Event>",
    ],
)
def test_times_in_a_zone(event: Any) -> None:
    """Sysmon's UtcTime is UTC whatever the input's zone; what the log says goes before it."""
    text = event if isinstance(event, str) else json.dumps(event)
    shown = record(text.encode(), "auto", received_at=1_795_600_000_000_000, zone=ZoneInfo("Asia/Tokyo"))
    assert shown.event_time == 1_795_168_800_000_000
