"""The formats of messages that are neither a program's words nor plain ``key=value``: a table, searched in order.

A row says how a format begins, which fields it gives and where its events belong: all that rules, prefilter and docs
ask of a format before one of its events comes. What reads its events is ``formats/MODULE.py``, imported with the first
of them (``base.late``); but the audit log's is always there, as its records are joined before they are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from vedette.decode.access import REQUEST
from vedette.decode.formats import auditd, eventlog
from vedette.decode.formats.base import (
    Format,
    Gives,
    Provenance,
    Seen,
    Shape,
    first_time,
    late,
    named,
    renamed,
    source,
    union,
)
from vedette.model.event import Source

# --- Common Event Format

CEF_STARTS = rb" ?CEF: ?\d{1,2}\|"
CEF_HEADER = ("deviceVendor", "deviceProduct", "deviceVersion", "deviceEventClassId", "name", "severity")


def _pairs(text: str, between: str | None = None) -> dict[str, str]:
    """By what stands before ``=`` what stands behind it, of blank-separated pairs or of those ``between`` separates."""
    pairs = (pair.partition("=") for pair in text.split(between))
    return {name.strip(): value for name, _, value in pairs if value}


def _lists(text: str) -> dict[str, tuple[str, ...]]:
    """``NAME=blank-separated; …``."""
    return {name: tuple(values.split()) for name, values in _pairs(text, ";").items()}


def _numbered(short: str, full: str, count: int) -> dict[str, str]:
    plain = {f"{short}{i}": f"{full}{i}" for i in range(1, count + 1)}
    return plain | {f"{key}Label": f"{name}Label" for key, name in plain.items()}


CEF_NAMES: Mapping[str, str] = {
    **_pairs("""
    act=deviceAction app=applicationProtocol art=agentReceiptTime cat=deviceEventCategory cnt=baseEventCount
    dhost=destinationHostName dlat=destinationGeoLatitude dlong=destinationGeoLongitude dmac=destinationMacAddress
    dntdom=destinationNtDomain dpid=destinationProcessId dpriv=destinationUserPrivileges
    dproc=destinationProcessName dpt=destinationPort dst=destinationAddress dtz=deviceTimeZone
    duid=destinationUserId duser=destinationUserName dvc=deviceAddress dvchost=deviceHostName
    dvcmac=deviceMacAddress dvcpid=deviceProcessId end=endTime fname=fileName fsize=fileSize in=bytesIn msg=message
    out=bytesOut outcome=eventOutcome proto=transportProtocol request=requestUrl rt=deviceReceiptTime
    shost=sourceHostName slat=sourceGeoLatitude slong=sourceGeoLongitude smac=sourceMacAddress sntdom=sourceNtDomain
    spid=sourceProcessId spriv=sourceUserPrivileges sproc=sourceProcessName spt=sourcePort src=sourceAddress
    start=startTime suid=sourceUserId suser=sourceUserName agt=agentAddress ahost=agentHostName aid=agentId
    amac=agentMacAddress at=agentType atz=agentTimeZone av=agentVersion mrt=managerReceiptTime
    """),
    **_numbered("cs", "deviceCustomString", 6),
    **_numbered("cn", "deviceCustomNumber", 3),
    **_numbered("cfp", "deviceCustomFloatingPoint", 4),
    **_numbered("c6a", "deviceCustomIPv6Address", 4),
}
"""The dictionary of the standard: short key to full name. (``message`` is the whole event's.)"""

CEF_GENERIC_NAMES: Mapping[str, str] = _pairs("""
    sourceAddress=src_ip destinationAddress=dst_ip sourcePort=src_port destinationPort=dst_port sourceUserName=user
    destinationUserName=target_user transportProtocol=protocol deviceAction=action requestMethod=cs-method
    requestClientApplication=cs-user-agent
""")
"""Full names to rules' names."""

CEF = Format(
    "cef",
    CEF_STARTS,
    late("cef"),
    Gives(
        "`CEF:n|`, also behind two words",
        (
            *named(["cefVersion", "hostname"]),
            *named([*CEF_HEADER, "cef_severity"], Provenance.ESCAPED),
            *renamed(CEF_NAMES, CEF_GENERIC_NAMES),
        ),
        Provenance.ESCAPED,
    ),
    time_of=first_time("rt", "end", "start"),
)

# --- Log Event Extended Format

LEEF_STARTS = rb" ?LEEF: ?[12](?:\.\d)?\|"
LEEF_HEADER = ("leefVersion", "deviceVendor", "deviceProduct", "deviceVersion", "deviceEventClassId")
LEEF_NAMES: Mapping[str, str] = _pairs("""
    src=src_ip dst=dst_ip srcPort=src_port dstPort=dst_port usrName=user proto=protocol
""")

LEEF = Format(
    "leef",
    LEEF_STARTS,
    late("leef"),
    Gives(
        "`LEEF:1.0|`, `LEEF:2.0|`, also behind two words",
        (*named([*LEEF_HEADER, "eventId"]), *renamed(LEEF_NAMES, how=Provenance.VERBATIM)),
        Provenance.VERBATIM,
    ),
    time_of=first_time("devTime"),
)

# --- Windows event XML

EVENT_XML = Format(
    "eventxml",
    rb"\s{0,8}(?:<\?xml[^>]{0,200}>\s{0,8})?<Event[ >]",
    late("eventxml"),
    Gives(
        "`<Event`",
        renamed(
            {"Provider": "Provider_Name", "Execution": "ExecutionProcessID", "param": "Data", "Param": "Data"},
            eventlog.AS_SYSMON,
        ),
        Provenance.ESCAPED,
    ),
    eventlog.ANY,
    eventlog.source_of,
    first_time("TimeCreated", "UtcTime"),
)

# --- Windows events as text

RENDERED: Mapping[str, tuple[str, ...]] = _lists("""
    Security ID=SubjectUserSid TargetUserSid TargetSid MemberSid;
    Account Name=SubjectUserName TargetUserName MemberName; Account Domain=SubjectDomainName TargetDomainName;
    Logon ID=SubjectLogonId TargetLogonId; Logon GUID=LogonGuid; Logon Type=LogonType; Elevated Token=ElevatedToken;
    Impersonation Level=ImpersonationLevel; Status=Status; Failure Reason=FailureReason; Sub Status=SubStatus;
    Caller Process ID=ProcessId; Caller Process Name=ProcessName; Process ID=ProcessId; Process Name=ProcessName;
    New Process ID=NewProcessId; New Process Name=NewProcessName; Creator Process ID=ProcessId;
    Creator Process Name=ParentProcessName; Process Command Line=CommandLine; Token Elevation Type=TokenElevationType;
    Mandatory Label=MandatoryLabel; Workstation Name=WorkstationName Workstation; Source Workstation=Workstation;
    Source Network Address=IpAddress; Client Address=IpAddress; Network Address=IpAddress;
    Source Address=IpAddress SourceAddress; Source Port=IpPort SourcePort; Client Port=IpPort; Port=IpPort;
    Destination Address=DestAddress; Destination Port=DestPort; Application Name=Application; Direction=Direction;
    Logon Process=LogonProcessName; Authentication Package=AuthenticationPackageName PackageName;
    Logon Account=TargetUserName; Package Name (NTLM only)=LmPackageName; Key Length=KeyLength;
    Transited Services=TransmittedServices; Error Code=Status; Service Name=ServiceName; Service ID=ServiceSid;
    Service File Name=ServiceFileName ImagePath; Service Type=ServiceType;
    Service Start Type=ServiceStartType StartType; Service Account=ServiceAccount AccountName; User ID=TargetSid;
    Ticket Options=TicketOptions; Ticket Encryption Type=TicketEncryptionType; Failure Code=Status; Result Code=Status;
    Pre-Authentication Type=PreAuthType; Supplied Realm Name=TargetDomainName; Task Name=TaskName;
    Task Content=TaskContent; Object Server=ObjectServer; Object Type=ObjectType; Object Name=ObjectName;
    Handle ID=HandleId; Accesses=AccessList; Access Mask=AccessMask; Properties=Properties; Share Name=ShareName;
    Share Path=ShareLocalPath; Group Name=TargetUserName; Group Domain=TargetDomainName;
    Relative Target Name=RelativeTargetName; Target Server Name=TargetServerName; Privileges=PrivilegeList;
    SAM Account Name=SamAccountName; New Account Name=NewTargetUserName; Old Account Name=OldTargetUserName;
    Caller Computer Name=TargetDomainName; Session Name=SessionName
""")
"""The labels of such a text, and the names that their values have in the event's data."""
SNARE_HEAD = (
    *("Criticality", "Channel", "SnareCounter", "TimeCreated", "EventID", "Provider_Name", "User", "SIDType"),
    *("EventType", "Computer", "Category"),
)
_SAID = Gives(
    "`MSWinEventLog` and a tab",
    (*named((*SNARE_HEAD, "ScriptBlockText")), *renamed(RENDERED, eventlog.AS_SYSMON, how=Provenance.VERBATIM)),
    Provenance.VERBATIM,
)
SNARE = Format(
    "snare", rb"\s?MSWinEventLog(?:\t|#011)", late("rendered", "read_snare"), _SAID, eventlog.ANY, eventlog.source_of,
    late("rendered", "time_of"),
)  # fmt: skip
EVENTREPORTER = Format(
    "eventreporter", rb"\[(?:AUS\] |AUF\] |INF\] |WRN\] |ERR\] |NON\] )[A-Z][a-z]{2} [A-Z][a-z]{2} ",
    late("rendered", "read_reported"),
    _SAID._replace(recognized="`[AUF] Www Mmm dd …`"), eventlog.ANY, eventlog.source_of, late("rendered", "time_of"),
)  # fmt: skip

# --- FortiGate

FORTINET_NAMES = _pairs("srcip=src_ip dstip=dst_ip srcport=src_port dstport=dst_port devname=hostname")
FORTINET_TYPES = ("event", "traffic", "utm", "anomaly")


@lru_cache(maxsize=8)
def fortinet_source(kind: str) -> Source:
    """Return the log source of a message of one of ``FORTINET_TYPES``, or of another: empty."""
    return source("fortigate", "firewall" if kind == "traffic" else "", kind)


FORTINET = Format(
    "fortinet",
    rb"(?=(?:date|timestamp|type|tz|logver|logid|itime|idseq|devname|devid)=)"
    rb"(?:\w{1,32}=(?:\"[^\"]{0,128}\"|[^\s\"]{0,128}) ){0,24}?dev(?:name|id)=",
    late("fortinet"),
    Gives("`devname=` among pairs", renamed(FORTINET_NAMES, how=Provenance.VERBATIM), Provenance.VERBATIM),
    union(*(fortinet_source(kind) for kind in ("", *FORTINET_TYPES))),
    late("fortinet", "source_of"),
    late("fortinet", "time_of_message"),
    structured=False,
)

# --- error logs of web servers

APACHE = Format(
    "apache_error",
    rb"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})? \d{4}\] \[",
    late("weblog", "read_apache"),
    Gives(
        "`[Www Mmm dd …] [`",
        (
            *named(["timestamp", "module", "level", "pid", "tid", "src_ip", "src_port", "code"]),
            *named(["c-ip", "cs-referer", "user", "cs-username"]),
        ),
    ),
    source("", "", "apache"),
    time_of=late("weblog", "apache_time"),
    structured=False,
)
NGINX = Format(
    "nginx_error",
    rb"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[[a-z]{4,6}\] \d{1,10}#\d{1,10}:",
    late("weblog", "read_nginx"),
    Gives(
        "`yyyy/mm/dd hh:mm:ss [level]`",
        (
            *named(["timestamp", "level", "pid", "tid", "connection", "user", "src_ip", "c-ip", *sorted(REQUEST)]),
            *named(["cs-host", "cs-referer", "s-sitename", "upstream", "cs-username"]),
        ),
    ),
    source("", "", "nginx"),
    time_of=late("weblog", "nginx_time"),
    structured=False,
)

FORMATS: Mapping[str, Format] = MappingProxyType(
    {row.name: row for row in (auditd.FORMAT, CEF, LEEF, EVENT_XML, SNARE, EVENTREPORTER, FORTINET, APACHE, NGINX)}
)
"""Text, recognized by how a message begins."""

# --- Windows events as JSON


def _by_own(**names: str) -> dict[str, str]:
    """From each blank-separated name to the key."""
    return {own: name for name, owns in names.items() for own in owns.split()}


BEAT_NAMES = _by_own(
    EventID="event_id", Channel="log_name channel", Provider_Name="provider source_name provider_name",
    Computer="computer computer_name", EventRecordID="record_id", TimeCreated="system_time time_created",
)  # fmt: skip
"""Of Winlogbeat, Vector, OpenTelemetry; of several the last counts."""
FLAT_NAMES = _by_own(
    EventID="EventId", Channel="EventLog LogName", Provider_Name="Provider EventSourceName ProviderName SourceName",
    Computer="MachineName Hostname", EventRecordID="RecordId RecordNumber", TimeCreated="TimeGenerated EventTime",
)  # fmt: skip
"""Of NXLog, Fluent Bit, Azure Monitor, Get-WinEvent, likewise."""
_SOURCE = {"Source": "Provider_Name"}
TOGETHER = {"LogName": {"Id": "EventID"}, "EventLog": _SOURCE, "EntryType": _SOURCE}
"""By a name what others say beside it, and only there: of Get-WinEvent, Azure Monitor, Get-EventLog."""
UNNAMED = _by_own(
    Data="EventData UserData event_data user_data param StringInserts string_inserts Properties ParameterXml"
    " ReplacementStrings"
)
"""What may have data without names."""
WINDOWS_NAMES = (
    *("winlog", "win", "EventID", "event_data", "event_id", "System", "LogName", "RawXml"),
    *("winlog.event_id", "winlog.channel", "code", "event.code"),
)

WINDOWS = Shape(
    "windows",
    late("windows", "fits"),
    late("windows"),
    Gives(
        "`Event.System`, `System`, `winlog`, `win`, `event_data`, `EventID`, `LogName` with `ProviderName`, `event_id`"
        " with `channel` and `computer`, `properties.RawXml`, also as dotted names; ECS: `event.code` and a Windows"
        " `event.provider`, `event.module` or `host.os`; `Image` (`SourceImage`, `NewProcessName`, `ScriptBlockText`)"
        " with a field such as `CommandLine`",
        renamed(
            BEAT_NAMES,
            FLAT_NAMES,
            {sign: tuple(table.values()) for sign, table in TOGETHER.items()},
            UNNAMED,
            {"event.code": "EventID", "event.provider": "Provider_Name", "event.module": "Provider_Name"},
            {"SystemTime": "TimeCreated"},
            eventlog.AS_SYSMON,
        ),
        Provenance.ESCAPED,
    ),
    (*WINDOWS_NAMES, *eventlog.ACTORS),
    eventlog.ANY,
    late("windows", "source_of"),
    ("TimeCreated", "TimeCreated.value"),
)

# --- Zeek

ZEEK_TELLING: Mapping[str, tuple[str, ...]] = _lists("""
    conn=conn_state; dns=qtype_name rcode_name trans_id; http=trans_depth; ssl=cipher established;
    x509=certificate.serial certificate.version; kerberos=request_type; dce_rpc=named_pipe operation;
    smb_mapping=share_type; smb_files=times.modified prev_name; rdp=security_protocol keyboard_layout;
    ssh=auth_attempts hasshVersion kex_alg; ftp=reply_code; smtp=mailfrom helo;
    ntlm=ntlm_version server_nb_computer_name; snmp=community; files=fuid mime_type; notice=note; weird=peer notice;
    intel=seen.indicator; dhcp=msg_types lease_time; software=software_type
""")
ZEEK_CATEGORIES = {"dns": "dns", "http": "proxy webserver", "conn": "firewall"}

ZEEK_NAMES = {"id.orig_h": "src_ip", "id.orig_p": "src_port", "id.resp_h": "dst_ip", "id.resp_p": "dst_port"}
ZEEK_HTTP_NAMES: Mapping[str, tuple[str, ...]] = _lists("""
    method=cs-method; host=cs-host; uri=cs-uri c-uri; user_agent=cs-user-agent c-useragent;
    referrer=cs-referer cs-referrer; status_code=sc-status; username=cs-username
""")
ZEEK_DNS_NAMES = {"qtype_name": ("record_type",), "answers": ("answer",)}


@lru_cache(maxsize=64)
def zeek_source(service: str) -> Source:
    """Return the log source of a Zeek log of this name; empty: of one that nothing tells."""
    return source("zeek", ZEEK_CATEGORIES.get(service, ""), service)


ZEEK_ANY = union(*(zeek_source(name) for name in ("", *ZEEK_TELLING)))

ZEEK = Shape(
    "zeek",
    late("zeek", "fits"),
    late("zeek"),
    Gives(
        "`ts` and `uid` with `id.orig_h`, or `_path`",
        renamed(
            ZEEK_NAMES,
            ZEEK_HTTP_NAMES,
            ZEEK_DNS_NAMES,
            {"uri": ("cs-uri-stem", "c-uri-stem", "cs-uri-query", "c-uri-query")},
        ),
    ),
    ("ts",),
    ZEEK_ANY,
    late("zeek", "source_of"),
    ("ts",),
)

# --- access logs as JSON

NGINX_JSON_NAMES: Mapping[str, tuple[str, ...]] = _lists("""
    remote_addr=c-ip src_ip; remote_user=cs-username user; request_method=cs-method; request_uri=cs-uri;
    status=sc-status; body_bytes_sent=sc-bytes; bytes_sent=sc-bytes; http_referer=cs-referer;
    http_referrer=cs-referer; http_user_agent=cs-user-agent; http_host=cs-host; server_protocol=cs-version;
    http_cookie=cs-cookie
""")
TRAEFIK_NAMES: Mapping[str, tuple[str, ...]] = _lists("""
    ClientHost=c-ip src_ip; ClientUsername=cs-username user; RequestMethod=cs-method; RequestPath=cs-uri;
    RequestHost=cs-host; RequestProtocol=cs-version; DownstreamStatus=sc-status; DownstreamContentSize=sc-bytes;
    request_User-Agent=cs-user-agent; request_Referer=cs-referer
""")
CADDY_NAMES: Mapping[str, tuple[str, ...]] = _lists("""
    remote_ip=c-ip src_ip; client_ip=c-ip src_ip; method=cs-method; uri=cs-uri; host=cs-host; proto=cs-version
""")
CADDY_TOP_NAMES: Mapping[str, tuple[str, ...]] = _lists("""
    status=sc-status; size=sc-bytes; user_id=cs-username user
""")
CADDY_HEADERS = {"User-Agent": "cs-user-agent", "Referer": "cs-referer", "Cookie": "cs-cookie"}
_URI = {"cs-uri": ("cs-uri-stem", "cs-uri-query")}
_WEB = source("", "webserver")

NGINX_JSON = Shape(
    "nginx_json",
    late("weblog", "is_nginx"),
    late("weblog", "read_nginx_json"),
    Gives(
        "`remote_addr`, `status` and `request` or `request_uri`",
        renamed({"request": tuple(sorted(REQUEST))}, NGINX_JSON_NAMES, _URI),
    ),
    ("remote_addr",),
    source("", "webserver", "nginx"),
    times=("time_iso8601", "msec"),
)
CADDY = Shape(
    "caddy",
    late("weblog", "is_caddy"),
    late("weblog", "read_caddy"),
    Gives(
        "`status` and a `request` with `method` and `uri`",
        renamed(CADDY_NAMES, CADDY_HEADERS, CADDY_TOP_NAMES, _URI),
    ),
    ("uri",),
    _WEB,
)
TRAEFIK = Shape(
    "traefik",
    late("weblog", "is_traefik"),
    late("weblog", "read_traefik"),
    Gives("`DownstreamStatus` and `RequestMethod`", renamed(TRAEFIK_NAMES, _URI)),
    ("DownstreamStatus",),
    _WEB,
    times=("StartUTC",),
)

# --- services

SURICATA_NAMES = {"dest_ip": "dst_ip", "dest_port": "dst_port", "proto": "protocol"}
CLIENTS = (
    *("remote_ip", "remoteIp", "remoteIP", "remote_addr", "remoteAddr", "remote_address", "remoteAddress"),
    *("remote_host", "client_ip", "clientIp", "clientIP", "ClientIP", "client_addr", "clientAddr", "client_address"),
    *("clientAddress", "source_ip", "sourceIp", "sourceIP", "sourceIPAddress", "srcip", "rhost"),
)
"""Names of the peer's address in what applications log, best first."""
USERS = ("username", "userName", "user_name", "login", "principalName")
SAMBA = ("Authentication", "Authorization", "KDC Authorization", "passwordChange", "groupChange", "dsdbChange")

SERVICES = (
    Shape("kubernetes_audit", late("services", "is_kubernetes"), late("services", "nothing"),
          Gives("`auditID`, `verb` and `apiVersion` or `stage`"), ("auditID",),
          source("kubernetes", "application", "audit"), times=("requestReceivedTimestamp", "stageTimestamp")),
    Shape("opencanary", late("services", "is_opencanary"), late("services", "nothing"),
          Gives("`logtype`, `node_id` and `logdata`"), ("node_id",),
          source("opencanary", "application"), times=("utc_time",)),
    Shape("okta", late("services", "is_okta"), late("services", "nothing"),
          Gives("`eventType`, `displayMessage` and `actor`"), ("displayMessage",),
          source("okta", "", "okta"), times=("published",)),
    Shape("suricata", late("services", "is_suricata"), late("services", "suricata"),
          Gives("`event_type`, `flow_id` and `timestamp`", renamed(SURICATA_NAMES)),
          ("flow_id",), source("suricata"), times=("timestamp",)),
    Shape("samba_audit", late("services", "is_samba"), late("services", "samba"),
          Gives("`type` and an object of that name such as `Authentication`",
                renamed({"remoteAddress": ("src_ip", "src_port"), "clientAccount": "user", "account": "user"})),
          SAMBA, source("", "", "samba"), times=("timestamp",)),
    Shape("postgresql", late("services", "is_postgresql"), late("services", "postgresql"),
          Gives("`error_severity` and `backend_type`",
                renamed({"remote_host": "src_ip", "remote_port": "src_port", "dbname": "database"})),
          ("error_severity",), source("", "", "postgresql"), times=("timestamp",)),
    Shape("client", late("services", "names_a_client"), late("services", "client"),
          Gives("no other, and `remote_ip`, `remoteAddr`, `client_ip`, `sourceIPAddress` …, or MongoDB's `attr`",
                renamed(dict.fromkeys((*CLIENTS, "remote", "client"), ("src_ip", "src_port")),
                        dict.fromkeys(USERS, "user"))),
          ("attr", *CLIENTS)),
)  # fmt: skip

SHAPES: Mapping[str, Shape] = MappingProxyType(
    {row.name: row for row in (WINDOWS, ZEEK, NGINX_JSON, CADDY, TRAEFIK, *SERVICES)}
)
"""JSON objects, recognized by the names that they hold; the first that fits."""

# --- which of them a message is

_STARTS = re.compile(b"|".join(b"(?P<%s>%s)" % (row.name.encode(), row.starts) for row in FORMATS.values()))
_PREFIXED = re.compile(rb"(?:\S{1,255} ){1,2}?(?:(?P<cef>%s)|(?P<leef>%s))" % (CEF_STARTS, LEEF_STARTS))
"""CEF and LEEF behind a date and a host that are no syslog header."""


FIRST = frozenset(b"%c" % code for code in b"\t\n\v\f\r <CLMadilnt[0123456789")
"""First bytes of a message in one of ``FORMATS``: looked at before ``_STARTS``, as most messages are in none."""


PREFIXED = b"EF:", 520
"""Bytes in a message that is in one behind other words, and within how many bytes they stand."""


def format_at(raw: bytes, start: int) -> Format | None:
    """The format of the message of ``raw`` that begins at ``start``."""
    match = _STARTS.match(raw, start) if raw[start : start + 1] in FIRST else None
    mark, within = PREFIXED
    if match is None and raw.find(mark, start, start + within) >= 0:
        match = _PREFIXED.match(raw, start)
    return FORMATS[match.lastgroup] if match is not None and match.lastgroup is not None else None


def shape_of(event: Seen) -> Shape | None:
    """The make of a JSON object."""
    for shape in SHAPES.values():
        if shape.fits(event):
            return shape
    return None
