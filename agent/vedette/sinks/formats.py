"""An alert as one line of text: JSON, and ArcSight's CEF; and as a message of syslog (RFC 5424). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from vedette.sinks.base import Outgoing
from vedette.sinks.templates import summary, written

Row = Mapping[str, Any]

FACILITIES = {
    "user": 1, "daemon": 3, "auth": 4, "authpriv": 10, "local0": 16, "local1": 17, "local2": 18, "local3": 19,
    "local4": 20, "local5": 21, "local6": 22, "local7": 23,
}  # fmt: skip
_SEVERITY = {"critical": 2, "high": 3, "medium": 4, "low": 5, "informational": 6}
_CEF_SEVERITY = {"critical": 10, "high": 8, "medium": 5, "low": 3, "informational": 1}
_CEF_ENTITY = {"ip": "src", "user": "suser", "domain": "destinationDnsDomain", "url": "request", "hash": "fileHash",
               "user_agent": "requestClientApplication"}  # fmt: skip
BEGINS = (*(b'{"schema_version":%d,"alert_id":"' % version for version in range(1, 100)), b"CEF:0|Vedette|Vedette|")
"""How the lines below begin, of every version; no other program's lines do, be they JSON with a ``schema_version``."""
ROW_BEGINS = (b'{"',)
"""How the lines of a file of rows begin."""
MAX_CEF = 1023
"""Characters of one CEF value, the shortest bound among its dictionary's texts that are used here."""


def json_line(row: Row) -> bytes:
    """The row, as ``vedette alerts --json`` prints it."""
    return orjson.dumps(row)


def formed(alert: Outgoing, form: str, version: str) -> bytes:
    """A row's JSON object, or an alert in the form ``json`` or ``cef``."""
    return alert.line or (cef(alert.row, version) if form == "cef" else json_line(alert.row))


def cef(row: Row, version: str) -> bytes:
    """``CEF:0|Vedette|Vedette|VERSION|RULE|TITLE|SEVERITY|EXTENSION``. Of several entities of a kind the first has
    the key of CEF's dictionary; all of them are in ``cs2``."""
    extension: dict[str, str] = {
        "rt": str(row["event_time"] // 1000),
        "externalId": row["alert_id"],
        "dvchost": row["host"] or row["agent_id"],
        "deviceExternalId": row["agent_id"],
        "cat": row["kind"],
        "cnt": str(row["count"]),
        "msg": row["raw"],
        "cs1Label": "tags",
        "cs1": ",".join(row["tags"]),
        "cs2Label": "entities",
        "cs2": ",".join(f"{entity['kind']}:{entity['value']}" for entity in row["entities"]),
        "cs3Label": "fields",
        "cs3": orjson.dumps({**row["group_by"], **row["fields"]}).decode(),
        "cs4Label": "site",
        "cs4": f"{row['fleet']}/{row['site']}",
    }
    for entity in row["entities"]:
        if (key := _CEF_ENTITY.get(entity["kind"])) is not None:
            extension.setdefault(key, entity["value"])
    head = "|".join(
        _CEF_HEAD.sub(r"\\\g<0>", " ".join(part.split()))
        for part in ("Vedette", "Vedette", version, row["rule_id"], row["rule_title"])
    )
    body = " ".join(f"{key}={_cef_value(text)}" for key, text in extension.items() if text)
    return f"CEF:0|{head}|{_CEF_SEVERITY.get(row['level'], 1)}|{body}".encode()


_CEF_HEAD = re.compile(r"[\\|]")


def _cef_value(text: str) -> str:
    text = text[:MAX_CEF].replace("\\", "\\\\").replace("=", "\\=")
    return text.replace("\r\n", "\\n").replace("\n", "\\n").replace("\r", "\\n")


def syslog_message(row: Row, message: bytes, facility: str) -> bytes:
    """RFC 5424 with the host of the event, ``vedette`` as the program, and the kind of the alert, or ``row``, as MSGID;
    a row has no time of its own."""
    priority = FACILITIES[facility] * 8 + _SEVERITY.get(row["level"], 6)
    host = re.sub(r"[^\x21-\x7e]", "", row["host"] or row["agent_id"])[:255] or "-"
    time = written(row["event_time"]) if "event_time" in row else "-"
    return f"<{priority}>1 {time} {host} vedette - {row['kind']} - ".encode() + message


def short(row: Row) -> Row:
    """The row without what makes it long, where a datagram has no room for it."""
    return {**row, "raw": "", "contributing": [], "fields": {}, "rule_title": summary(row)[:200]}
