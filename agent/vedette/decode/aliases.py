"""One field, several names: the Elastic Common Schema's beside Sigma's.

``Record.get`` tries the name that was asked for, then its other names in this order. A row is an ECS name and the names
it has in Sigma's taxonomies (generic, Sysmon's, web, Zeek's) and in systemd's journal. Names of one row find each
other only through the ECS name: ``source.ip`` finds ``src_ip`` and ``SourceIp``, these two find ``source.ip``, but not
each other. ``host`` is no ECS name but an object of it: it finds ``hostname``, which does not find it.
"""

from __future__ import annotations

from collections.abc import Mapping

ECS: Mapping[str, tuple[str, ...]] = {
    "source.ip": ("src_ip", "c-ip", "SourceIp", "id.orig_h"),
    "source.port": ("src_port", "SourcePort", "id.orig_p"),
    "source.domain": ("src_host", "SourceHostname"),
    "destination.ip": ("dst_ip", "DestinationIp", "id.resp_h"),
    "destination.port": ("dst_port", "DestinationPort", "id.resp_p"),
    "destination.domain": ("dst_host", "DestinationHostname"),
    "network.transport": ("protocol", "Protocol", "proto"),
    "user.name": ("user", "User", "cs-username"),
    "user.target.name": ("target_user", "TargetUserName"),
    "group.name": ("group",),
    "host.name": ("hostname", "Computer"),
    "host.hostname": ("hostname", "Computer"),
    "process.name": ("program", "comm", "_COMM"),
    "process.pid": ("pid", "ProcessId"),
    "process.executable": ("Image", "exe", "_EXE"),
    "process.command_line": ("CommandLine", "command", "proctitle", "_CMDLINE"),
    "process.title": ("proctitle",),
    "process.working_directory": ("CurrentDirectory", "pwd", "cwd"),
    "process.parent.pid": ("ParentProcessId",),
    "process.parent.executable": ("ParentImage",),
    "process.parent.command_line": ("ParentCommandLine",),
    "container.id": ("CONTAINER_ID",),
    "container.name": ("CONTAINER_NAME",),
    "systemd.unit": ("_SYSTEMD_UNIT",),
    "file.path": ("TargetFilename",),
    "url.original": ("cs-uri", "c-uri"),
    "url.path": ("cs-uri-stem", "c-uri-stem"),
    "url.query": ("cs-uri-query", "c-uri-query"),
    "url.domain": ("cs-host",),
    "http.request.method": ("cs-method",),
    "http.request.referrer": ("cs-referer", "cs-referrer"),
    "http.response.status_code": ("sc-status",),
    "http.response.bytes": ("sc-bytes",),
    "user_agent.original": ("cs-user-agent", "c-useragent"),
    "dns.question.name": ("query", "QueryName"),
    "dns.question.type": ("record_type",),
    "event.code": ("EventID", "mnemonic"),
    "event.provider": ("Provider_Name",),
    "winlog.event_id": ("EventID",),
    "winlog.channel": ("Channel",),
    "winlog.provider_name": ("Provider_Name",),
    "log.level": ("level",),
    "log.syslog.priority": ("priority",),
    "log.syslog.facility.name": ("facility",),
    "log.syslog.severity.name": ("severity",),
    "log.syslog.appname": ("program",),
    "log.syslog.procid": ("pid",),
    "log.syslog.msgid": ("msgid",),
    "log.syslog.hostname": ("hostname",),
    "log.syslog.version": ("version",),
}

_TURNED: dict[str, tuple[str, ...]] = {}
for _name, _others in ECS.items():
    for _other in _others:
        _TURNED[_other] = (*_TURNED.get(_other, ()), _name)

ALIASES: Mapping[str, tuple[str, ...]] = {**ECS, **_TURNED, "host": ("hostname", "host.name")}
"""Every name that has others, with these."""
