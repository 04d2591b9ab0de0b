"""Windows events as the text that Event Viewer shows, behind the head that a shipper gives them: Snare, EventReporter.

* **Snare** (also NXLog's ``to_syslog_snare``): ``MSWinEventLog``, then, behind a tab each (``#011`` where a relay has
  escaped it): criticality, log, counter, time, event ID, source, user, SID type, type, computer, category, data and
  text, of which the last two may be one;
* **EventReporter**: ``[AUF] TIME: COMPUTER/SOURCE (ID) - "TEXT"``.

The text names its values by labels (``Account Name:``), many of them more than once: under a heading (``Subject:``). By
label and heading they get the names that they have in the event's data (``table.RENDERED``). A label that comes twice
under a heading is perhaps part of another's value: it gives all of them. Of an address the last is the event's, as the
names that others choose stand before it; of a share's access, which ends with such a name, the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import tzinfo

from vedette.decode.formats import eventxml
from vedette.decode.formats.base import Fields, Seen
from vedette.decode.formats.table import RENDERED, SNARE_HEAD
from vedette.decode.values import text_of
from vedette.model.times import dated

MAX_LABELS = 512
"""Half of them the first, half the last: a name can hide none."""
HEADINGS = frozenset(
    (
        *("Subject", "Creator Subject", "Target Subject", "New Logon", "Account For Which Logon Failed", "Target"),
        *(
            "Account Whose Credentials Were Used",
            "Target Account",
            "New Account",
            "Account That Was Locked Out",
            "User",
        ),
        *("Member", "Group", "New Group", "Deleted Group", "Target Server", "Target Computer", "Logon Information"),
        *("Process Information", "Network Information", "Failure Information", "Service Information", "Object"),
        *("Detailed Authentication Information", "Account Information", "Additional Information", "Attributes"),
        *("Task Information", "Access Request Information", "Share Information", "Changed Attributes"),
        *("Application Information", "Filter Information", "Certificate Information", "Source Handle Information"),
    )
)
SYSMON = frozenset(
    (
        *(
            "RuleName",
            "UtcTime",
            "ProcessGuid",
            "ProcessId",
            "Image",
            "FileVersion",
            "Description",
            "Product",
            "Company",
        ),
        *("OriginalFileName", "CommandLine", "CurrentDirectory", "User", "LogonGuid", "LogonId", "TerminalSessionId"),
        *("IntegrityLevel", "Hashes", "ParentProcessGuid", "ParentProcessId", "ParentImage", "ParentCommandLine"),
        *("ParentUser", "TargetFilename", "CreationUtcTime", "PreviousCreationUtcTime", "Protocol", "Initiated"),
        *("SourceIsIpv6", "SourceIp", "SourceHostname", "SourcePort", "SourcePortName", "DestinationIsIpv6"),
        *("DestinationIp", "DestinationHostname", "DestinationPort", "DestinationPortName", "ImageLoaded", "Signed"),
        *("Signature", "SignatureStatus", "SourceProcessGuid", "SourceProcessId", "SourceThreadId", "SourceImage"),
        *("TargetProcessGuid", "TargetProcessId", "TargetImage", "NewThreadId", "StartAddress", "StartModule"),
        *("StartFunction", "GrantedAccess", "CallTrace", "SourceUser", "TargetUser", "EventType", "TargetObject"),
        *("Details", "NewName", "PipeName", "Operation", "EventNamespace", "Query", "Consumer", "Filter", "QueryName"),
        *("QueryStatus", "QueryResults", "Archived", "IsExecutable", "Hash", "Contents", "Device", "ClientInfo"),
    )
)
"""The labels of Sysmon's texts, which are the names themselves."""


def _labels(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\S)({'|'.join(map(re.escape, sorted(words, key=len, reverse=True)))}):(?=\s|$)")


_WINDOWS = _labels(HEADINGS | RENDERED.keys())
_SYSMON = _labels(SYSMON)
_SCRIPT = re.compile(r"Creating Scriptblock text \(\d{1,5} of \d{1,5}\):\s?")
_SCRIPT_END = "ScriptBlock ID: "
_EXPLAINED = (
    "This event is generated",
    "Token Elevation Type indicates",
    "Pre-authentication types",
    "Certificate infor",
)
"""How what follows the last value begins."""
_COUNTER = 64
"""Characters of the counter, which follows the text."""
_REPORTED = re.compile(
    r"\[(AU[SF]|INF|WRN|ERR|NON)\] (\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}): "
    r"([^/\s]{1,255})/([^()]{1,255}) \((\d{1,10})\) - "
)
_TIME = re.compile(r"\w{3} (\w{3}) +(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})")
_NOTHING = ("", "-", "N/A")
_ADDRESSES = ("IpAddress", "IpPort", "SourceIp", "DestinationIp", "SourceAddress", "DestAddress")
_SHARES = ("5140", "5145")
_OWN_SUBJECT = ("4634", "4647")
"""Events whose ``Subject`` is what they are about."""


def read_snare(message: str) -> Fields:
    """The fields of one message of Snare's."""
    message = message.strip()
    tab = "\t" if message.startswith("MSWinEventLog\t") else "#011"
    parts = message.split(tab, len(SNARE_HEAD) + 1)[1:]
    fields: Fields = {name: part for name, part in zip(SNARE_HEAD, parts, strict=False) if part not in _NOTHING}
    text = parts[-1].rstrip() if len(parts) > len(SNARE_HEAD) else ""
    end = text.rfind(tab)
    return _complete(fields, text[:end] if len(text) - _COUNTER < end and " " not in text[end:] else text)


def read_reported(message: str) -> Fields:
    """The fields of one message of EventReporter's."""
    head = _REPORTED.match(message)
    if head is None:
        return {}
    names = ("EventType", "TimeCreated", "Computer", "Provider_Name", "EventID")
    return _complete(dict(zip(names, head.groups(), strict=True)), message[head.end() :].strip('"\r\n'))


def _complete(fields: Fields, text: str) -> Fields:
    fields = {**fields, **said(text, text_of(fields.get("EventID")), text_of(fields.get("Provider_Name")))}
    eventxml.complete(fields, {})
    return fields


def said(text: str, event_id: str, provider: str) -> Fields:
    """What a text says by its labels."""
    script = _SCRIPT.search(text) if event_id == "4104" else None
    if script is not None:
        end = text.rfind(_SCRIPT_END, script.end())
        return {"ScriptBlockText": text[script.end() : len(text) if end < 0 else end].rstrip()}
    is_sysmon = provider.lower().endswith("sysmon")
    labels = list((_SYSMON if is_sysmon else _WINDOWS).finditer(text))
    del labels[MAX_LABELS // 2 : -MAX_LABELS // 2]
    fields: Fields = {}
    seen: set[tuple[str, str]] = set()
    addresses: set[str] = set()
    heading = ""
    for i, label in enumerate(labels):
        last = i + 1 == len(labels)
        value = text[label.end() : _explained(text) if last else labels[i + 1].start()].strip()
        name = label[1]
        if not is_sysmon and name in HEADINGS and (not value or name not in RENDERED):
            heading = name
            continue
        twice = (heading, name) in seen
        seen.add((heading, name))
        for field in (name,) if is_sysmon else _names(name, heading, event_id):
            if field in _ADDRESSES:
                if event_id not in _SHARES or field not in addresses:
                    addresses.add(field)
                    fields[field] = value
            elif twice:
                before = fields.get(field, [])
                fields[field] = [*(before if isinstance(before, list) else [before]), value]
            elif value not in _NOTHING:
                fields[field] = value
    return {name: value for name, value in fields.items() if name not in _ADDRESSES or value not in _NOTHING}


def _explained(text: str) -> int:
    """Where the last value ends."""
    places = [place for words in _EXPLAINED if (place := text.rfind(f"  {words}")) >= 0]
    return max(places, default=len(text))


def _names(label: str, heading: str, event_id: str) -> list[str]:
    """The names of a value: of those that go by who it is about the one that the heading says."""
    names = RENDERED[label]
    who = "Member" if heading == "Member" else "Target"
    if heading in ("Subject", "Creator Subject") and event_id not in _OWN_SUBJECT:
        who = "Subject"
    about = [name for name in names if name.startswith(("Subject", "Member"))]
    if not about:
        return list(names)
    return [
        name for name in names if (name in about) == (who != "Target") and (who == "Target" or name.startswith(who))
    ]


def time_of(fields: Seen, zone: tzinfo | None) -> int | None:
    match = _TIME.fullmatch(text_of(fields.get("TimeCreated")))
    return None if match is None else dated(match[4], match[1], match[2], match[3], zone=zone)
