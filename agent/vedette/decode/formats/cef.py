r"""Common Event Format: ``CEF:0|VENDOR|PRODUCT|VERSION|CLASS|NAME|SEVERITY|KEY=VALUE KEY=VALUE``.

ArcSight Common Event Format, implementation standard 26. In the header ``\|`` and ``\\`` are escapes; in the extension
``\=``, ``\\``, ``\|``, ``\n`` and ``\r``. A value ends before the next ``KEY=`` or at the end, without blanks. An
extension key is a field under its short name, its full name (``FULL_NAMES``) and, where rules have one, its generic
name (``src_ip``). Undone escapes are all of the kind that the prefilter tolerates: a backslash before the character, or
a line break, of which no literal is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vedette.decode.formats.base import Fields, Format, first_time
from vedette.decode.provenance import Gives, Provenance, named, renamed

STARTS = rb" ?CEF: ?\d{1,2}\|"
_START = re.compile(r" ?(?:(?:\S{1,255} )?(\S{1,255}) )?CEF: ?(\d{1,2})\|")
_PART = re.compile(r"((?:[^\\|]++|\\.)*+)\|", re.S)
_LAST_PART = re.compile(r"((?:[^\\|]++|\\.)*+)(?:\||$)", re.S)
_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z_]\w{0,127}(?:\.[^\s=\\|]{1,127})?(?:\[\d{1,4}\])?)=")
_ESCAPE = re.compile(r"\\([\\|=nr])")
_PLAIN = {"n": "\n", "r": "\r"}

_HEADER = ("deviceVendor", "deviceProduct", "deviceVersion", "deviceEventClassId", "name", "severity")
MAX_KEYS = 512


def _undo(text: str) -> str:
    return _ESCAPE.sub(lambda m: _PLAIN.get(m[1], m[1]), text) if "\\" in text else text


def read(message: str) -> Fields:
    """The fields of one message; empty when it has not all seven parts of the header."""
    start = _START.match(message)
    if start is None:
        return {}
    fields: Fields = {"cefVersion": start[2]}
    if start[1]:
        fields["hostname"] = start[1]
    at = start.end()
    for name in _HEADER:
        part = (_LAST_PART if name == "severity" else _PART).match(message, at)
        if part is None:
            return {}
        fields[name] = _undo(part[1])
        at = part.end()
    fields["cef_severity"] = fields["severity"]
    fields |= extension(message[at:].rstrip("\r\n\0"))
    return fields


def extension(text: str) -> Fields:
    """The keys of an extension, and their other names."""
    keys = []
    for key in _KEY.finditer(text):
        keys.append(key)
        if len(keys) == MAX_KEYS:
            break
    fields: Fields = {}
    for i, key in enumerate(keys):
        end = keys[i + 1].start() if i + 1 < len(keys) else len(text)
        fields[key[1]] = _undo(text[key.end() : end].strip())
    for table in (FULL_NAMES, GENERIC_NAMES):
        for name in list(fields):
            if (other := table.get(name)) is not None and fields[name] != "":
                fields.setdefault(other, fields[name])
    return fields


def _numbered(short: str, full: str, count: int) -> dict[str, str]:
    plain = {f"{short}{i}": f"{full}{i}" for i in range(1, count + 1)}
    return plain | {f"{key}Label": f"{name}Label" for key, name in plain.items()}


FULL_NAMES: Mapping[str, str] = {
    "act": "deviceAction",
    "app": "applicationProtocol",
    "art": "agentReceiptTime",
    "cat": "deviceEventCategory",
    "cnt": "baseEventCount",
    "dhost": "destinationHostName",
    "dlat": "destinationGeoLatitude",
    "dlong": "destinationGeoLongitude",
    "dmac": "destinationMacAddress",
    "dntdom": "destinationNtDomain",
    "dpid": "destinationProcessId",
    "dpriv": "destinationUserPrivileges",
    "dproc": "destinationProcessName",
    "dpt": "destinationPort",
    "dst": "destinationAddress",
    "dtz": "deviceTimeZone",
    "duid": "destinationUserId",
    "duser": "destinationUserName",
    "dvc": "deviceAddress",
    "dvchost": "deviceHostName",
    "dvcmac": "deviceMacAddress",
    "dvcpid": "deviceProcessId",
    "end": "endTime",
    "fname": "fileName",
    "fsize": "fileSize",
    "in": "bytesIn",
    "msg": "message",
    "out": "bytesOut",
    "outcome": "eventOutcome",
    "proto": "transportProtocol",
    "request": "requestUrl",
    "rt": "deviceReceiptTime",
    "shost": "sourceHostName",
    "slat": "sourceGeoLatitude",
    "slong": "sourceGeoLongitude",
    "smac": "sourceMacAddress",
    "sntdom": "sourceNtDomain",
    "spid": "sourceProcessId",
    "spriv": "sourceUserPrivileges",
    "sproc": "sourceProcessName",
    "spt": "sourcePort",
    "src": "sourceAddress",
    "start": "startTime",
    "suid": "sourceUserId",
    "suser": "sourceUserName",
    "agt": "agentAddress",
    "ahost": "agentHostName",
    "aid": "agentId",
    "amac": "agentMacAddress",
    "at": "agentType",
    "atz": "agentTimeZone",
    "av": "agentVersion",
    "mrt": "managerReceiptTime",
    **_numbered("cs", "deviceCustomString", 6),
    **_numbered("cn", "deviceCustomNumber", 3),
    **_numbered("cfp", "deviceCustomFloatingPoint", 4),
    **_numbered("c6a", "deviceCustomIPv6Address", 4),
}
"""The dictionary of the standard: short key to full name. (``message`` is the whole event's.)"""

GENERIC_NAMES: Mapping[str, str] = {
    "sourceAddress": "src_ip",
    "destinationAddress": "dst_ip",
    "sourcePort": "src_port",
    "destinationPort": "dst_port",
    "sourceUserName": "user",
    "destinationUserName": "target_user",
    "transportProtocol": "protocol",
    "deviceAction": "action",
    "requestMethod": "cs-method",
    "requestClientApplication": "cs-user-agent",
}
"""Full names to rules' names."""

GIVES = Gives(
    "`CEF:n|`, also behind two words",
    (
        *named(["cefVersion", "hostname"]),
        *named([*_HEADER, "cef_severity"], Provenance.ESCAPED),
        *renamed(FULL_NAMES, GENERIC_NAMES),
    ),
    Provenance.ESCAPED,
)
FORMAT = Format("cef", STARTS, read, GIVES, time_of=first_time("rt", "end", "start"))
