"""Windows event logs and Sysmon: from a channel and an event id to Sigma's log sources.

The Sigma taxonomy (specification 2.1, appendix "taxonomy") as a table. Sysmon for Linux has the same event ids under a
provider of its own. ``Security`` 4688 is a process creation too; its names are also given in Sysmon's (``AS_SYSMON``).

Many shippers leave names out. An event that does not say its channel belongs to every service that its provider may
write to, to all when it names none, and to the categories of its event id in these; one without an event id, too, to
the categories that its fields tell (``TELLING``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from vedette.decode.formats.base import Seen, source, union
from vedette.decode.values import text_of
from vedette.model.event import Source

_REGISTRY = {
    "create": "registry_event registry_add",
    "delete": "registry_event registry_delete",
    "set": "registry_event registry_set",
    "rename": "registry_event registry_rename",
}
"""By the verb of Sysmon's ``EventType``: keys that come and go have one event id."""
_SYSMON = {
    "1": "process_creation",
    "2": "file_change",
    "3": "network_connection",
    "4": "sysmon_status",
    "5": "process_termination",
    "6": "driver_load",
    "7": "image_load",
    "8": "create_remote_thread",
    "9": "raw_access_thread",
    "10": "process_access",
    "11": "file_event",
    "12": "registry_event registry_add registry_delete",
    **{f"12{verb}": categories for verb, categories in _REGISTRY.items()},
    "13": "registry_event registry_set",
    "14": "registry_event registry_rename",
    "15": "create_stream_hash",
    "16": "sysmon_status",
    "17": "pipe_created",
    "18": "pipe_created",
    "19": "wmi_event",
    "20": "wmi_event",
    "21": "wmi_event",
    "22": "dns_query",
    "23": "file_delete",
    "24": "clipboard_capture",
    "25": "process_tampering",
    "26": "file_delete_detected",
    "27": "file_block_executable",
    "28": "file_block_shredding",
    "29": "file_executable_detected",
    "255": "sysmon_error",
}
_POWERSHELL = {"4103": "ps_module", "4104": "ps_script"}
_CLASSIC = {"400": "ps_classic_start", "600": "ps_classic_provider_start", "800": "ps_classic_script"}

_CATEGORIES: Mapping[str, Mapping[str, str]] = {
    "sysmon": _SYSMON,
    "security": {"4688": "process_creation"},
    "powershell": _POWERSHELL,
    "powershell-classic": _CLASSIC,
}
"""By service and event id; several are separated by blanks."""

MICROSOFT = "microsoft-windows-"
_SERVICES: Mapping[str, str] = {
    "application": "application",
    "dns server": "dns-server",
    "hardware events": "",
    "msexchange management": "msexchange-management",
    "openssh/operational": "openssh",
    "powershellcore/operational": "powershell",
    "security": "security",
    "system": "system",
    "windows powershell": "powershell-classic",
    "microsoft-iis-configuration/operational": "iis-configuration",
    "microsoft-servicebus-client/admin": "servicebus-client",
    "microsoft-servicebus-client/operational": "servicebus-client",
    **{
        MICROSOFT + channel: service
        for channel, service in {
            "applocker/exe and dll": "applocker",
            "applocker/msi and script": "applocker",
            "applocker/packaged app-deployment": "applocker",
            "applocker/packaged app-execution": "applocker",
            "application-experience/program-telemetry": "application-experience",
            "application-experience/program-compatibility-assistant": "application-experience",
            "appmodel-runtime/admin": "appmodel-runtime",
            "appxdeploymentserver/operational": "appxdeployment-server",
            "appxpackaging/operational": "appxpackaging-om",
            "bitlocker/bitlocker management": "bitlocker",
            "bits-client/operational": "bits-client",
            "capi2/operational": "capi2",
            "certificateservicesclient-lifecycle-system/operational": "certificateservicesclient-lifecycle-system",
            "codeintegrity/operational": "codeintegrity-operational",
            "dhcp-server/operational": "dhcp",
            "diagnosis-scripted/operational": "diagnosis-scripted",
            "dns client events/operational": "dns-client",
            "dns-server/analytical": "dns-server-analytic",
            "dns-server/audit": "dns-server-audit",
            "driverframeworks-usermode/operational": "driver-framework",
            "windows firewall with advanced security/firewall": "firewall-as",
            "hyper-v-worker": "hyper-v-worker",
            "kernel-eventtracing": "kernel-event-tracing",
            "kernel-shimengine/operational": "kernel-shimengine",
            "kernel-shimengine/diagnostic": "kernel-shimengine",
            "ldap-client/debug": "ldap",
            "lsa/operational": "lsa-server",
            "ntfs/operational": "ntfs",
            "ntlm/operational": "ntlm",
            "powershell/operational": "powershell",
            "printservice/admin": "printservice-admin",
            "printservice/operational": "printservice-operational",
            "security-mitigations/kernel mode": "security-mitigations",
            "security-mitigations/user mode": "security-mitigations",
            "sense/operational": "sense",
            "shell-core/operational": "shell-core",
            "smbclient/security": "smbclient-security",
            "sysmon/operational": "sysmon",
            "taskscheduler/operational": "taskscheduler",
            "terminalservices-localsessionmanager/operational": "terminalservices-localsessionmanager",
            "vhdmp/operational": "vhdmp",
            "windows defender/operational": "windefend",
            "wmi-activity/operational": "wmi",
        }.items()
    },
}
"""Channels in lower case to services."""

AS_SYSMON: Mapping[str, str] = {
    "NewProcessName": "Image",
    "ParentProcessName": "ParentImage",
    "SubjectUserName": "User",
    "SubjectLogonId": "LogonId",
}

BY_PROVIDER: Mapping[str, str] = {
    "security": "security",
    "microsoft-windows-security-auditing": "security",
    "microsoft-windows-eventlog": "security system",
    "sysmon": "sysmon",
    "powershell": "powershell powershell-classic",
    "service control manager": "system",
}
"""Providers (and Elastic's modules) in lower case to services, beside those whose channels begin with their name."""

_REGISTERED = "registry_event registry_add registry_delete registry_set registry_rename"
TELLING: Mapping[str, str] = {
    "CommandLine": "process_creation",
    "NewProcessName": "process_creation",
    "ImageLoaded": "driver_load image_load",
    "TargetFilename": "file_event file_change file_delete file_delete_detected file_executable_detected"
    " create_stream_hash file_block_executable file_block_shredding",
    "DestinationIp": "network_connection",
    "DestinationHostname": "network_connection",
    "TargetObject": _REGISTERED,
    "PipeName": "pipe_created",
    "QueryName": "dns_query",
    "CallTrace": "process_access",
    "StartAddress": "create_remote_thread",
    "ScriptBlockText": "ps_script",
}
"""Fields that events of these categories have and few others."""

ACTORS = ("Image", "SourceImage", "NewProcessName", "ScriptBlockText")
"""Fields of which an event without an event id has one, beside one of ``TELLING``."""

PLACED_BY = ("EventID", "Channel", "Provider_Name")
"""Fields that ``source_of`` asks for; of an event without ``Channel`` also those of ``TELLING``, and ``EventType`` of
what was done to the registry."""

_UNSAID = ("", "forwardedevents")
"""Channels that tell nothing."""


def source_of(fields: Seen) -> Source:
    """Where an event with these fields belongs."""
    event_id, channel, provider = (text_of(fields.get(name))[:256] for name in PLACED_BY)
    if event_id == "12":
        event_id += _verb(fields)
    if channel.lower() not in _UNSAID:
        return _place(event_id, channel, provider)
    kinds = {TELLING[name] for name in TELLING if name in fields} if not event_id else set()
    if _REGISTERED in kinds and (verb := _verb(fields)):
        kinds = kinds - {_REGISTERED} | {_REGISTRY[verb]}
    telling = " ".join(sorted(kinds))
    return _may_be(event_id, provider, telling, text_of(fields.get(ACTORS[0])).startswith("/"))


def _verb(fields: Seen) -> str:
    """A key of ``_REGISTRY``; empty: ``EventType`` says none."""
    return next((verb for verb in _REGISTRY if text_of(fields.get("EventType"))[:8].lower().startswith(verb)), "")


@lru_cache(maxsize=1024)
def _place(event_id: str, channel: str, provider: str) -> Source:
    provider = provider.lower()
    channel = channel.lower()
    if provider == "linux-sysmon" or channel == "linux-sysmon/operational":
        return _source("linux", "sysmon", event_id if event_id in _SYSMON else "")
    service = _SERVICES.get(channel.removeprefix("wineventlog:"), "")
    return _source("windows", service, event_id if event_id in _CATEGORIES.get(service, ()) else "")


@lru_cache(maxsize=1024)
def _may_be(event_id: str, provider: str, telling: str, posix: bool) -> Source:
    """All that an event of no channel may be; ``telling``: categories; ``posix``: its image has a path of Unix."""
    provider = provider.lower()
    if provider == "linux-sysmon" or (posix and not provider):
        services = {"sysmon"}
    elif provider:
        named = {service for channel, service in _SERVICES.items() if channel.startswith(f"{provider}/")}
        services = named.union(BY_PROVIDER.get(provider, "").split()) or {*_SERVICES.values()} - _CATEGORIES.keys()
    else:
        services = {*_SERVICES.values()}
    categories = " ".join([telling, *(_CATEGORIES.get(service, {}).get(event_id, "") for service in services)])
    product = "linux" if provider == "linux-sysmon" or (posix and not provider) else "windows"
    return source(product, categories, " ".join(services))


@lru_cache(maxsize=512)
def _source(product: str, service: str, event_id: str) -> Source:
    return source(product, _CATEGORIES.get(service, {}).get(event_id, ""), service)


LINUX = source("linux", " ".join(_SYSMON.values()), "sysmon")
WINDOWS = source(
    "windows",
    " ".join(category for table in _CATEGORIES.values() for category in table.values()),
    " ".join(_SERVICES.values()),
)
ANY = union(LINUX, WINDOWS)
"""All that ``source_of`` can give."""
