"""Cisco's syslog: ``%FACILITY-SEVERITY-MNEMONIC: text`` of IOS, NX-OS and ASA.

The tag gives ``cisco_tag`` (the whole of it, without ``%``), its parts ``cisco_facility``, ``cisco_severity`` and
``mnemonic`` and, where that is digits, ``message_number``. A keyword searches the tag as well as the message. Rows of
``PROGRAMS`` by ``program_key``; the phrases below are what these rows look for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

from vedette.decode.formats.base import Gives, named

_TAG = re.compile(
    r"%(?P<cisco_tag>(?P<cisco_facility>\d?[A-Za-z][\w]{0,31}(?:[-/][A-Za-z][\w]{0,31}){0,3}?)-(?P<cisco_severity>[0-7A-Z])-"
    r"(?P<mnemonic>(?P<message_number>\d{1,8})|[A-Za-z0-9_]{1,64}))",
    re.ASCII,
)

GIVES = Gives("`%FACILITY-SEVERITY-MNEMONIC:`", named(_TAG.groupindex))

FACILITIES: Mapping[str, str] = {
    **dict.fromkeys(("asa", "pix", "ftd", "fwsm"), "%asa"),
    **dict.fromkeys(("bgp", "ip-tcp", "tcp"), "%bgp"),
    "ldp": "%ldp",
    **dict.fromkeys(("aaa", "sec_login", "parser", "sys", "tacacs", "radius", "ssh", "sshd", "login", "dot1x"), "%aaa"),
    **dict.fromkeys(("ha_em", "vshd", "authpriv"), "%aaa"),
}
"""By facility, whole or in parts (``ROUTING-BGP``). TCP's authentication is what protects BGP's sessions."""


def program_key(app: str) -> str:
    """The key in ``PROGRAMS`` of a tag that begins with ``%``; empty when it is none of Cisco's."""
    match = _TAG.fullmatch(app)
    if match is None:
        return ""
    facility = match["cisco_facility"].lower()
    return next((FACILITIES[part] for part in (facility, *facility.split("-")) if part in FACILITIES), "%cisco")


def tag(app: str) -> dict[str, str]:
    """The fields of a tag; none when it is none of Cisco's."""
    match = _TAG.fullmatch(app)
    return {} if match is None else {name: text for name, text in match.groupdict().items() if text}


_IP = r"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]{0,41})"


def _ip(prefix: str) -> str:
    return rf"(?P<{prefix}_ip>{_IP})"


def _end(prefix: str) -> str:
    """``interface:address/port (user)(address)`` as fields of one end, which needs no more than its address."""
    return rf"(?:[\w./-]{{1,64}}: ?)??{_ip(prefix)}(?:/(?P<{prefix}_port>\d{{1,5}}))?(?: ?\([^)]{{0,256}}\)){{0,2}}"


def _paren(prefix: str) -> str:
    """``address(port)``, of IOS with the interface behind it."""
    return rf"{_ip(prefix)}(?:\((?P<{prefix}_port>\d{{1,5}})\))?(?: ?\([^)]{{0,256}}\))?"


_SRC, _DST = _end("src"), _end("dst")
_LIST = rf"{_paren('src')}(?: [\w./-]{{1,64}})? ?-> {_paren('dst')}"
_USER = "(?P<user>[^>]{1,256}?)"

_BY_IP = r"(?:(?<!from )\bIP <|\bIP (?:= )?[0-9A-Fa-f]*[.:])"

ASA = (
    # A group or user may be named so: which address is the firewall's own word cannot be said.
    rf"(?:(?:DefaultWEBVPNGroup )?Group|Username|AAA user) .*{_BY_IP}.*{_BY_IP}",
    rf"(?P<action>Built|Teardown) (?:(?P<direction>inbound|outbound) )?(?P<protocol>ICMP) connection for faddr {_SRC} "
    rf"gaddr \S{{1,64}} laddr {_DST}",
    r"(?P<action>Built|Teardown) (?:(?P<direction>inbound|outbound) |\w{1,16} {1,2}stub |stub |dynamic |static )?"
    rf"(?P<protocol>\w{{1,16}}) (?:state-bypass )?(?:connection|translation)(?: \d+)? (?:for|from) {_SRC} to {_DST}",
    rf"(?P<action>Deny) (?:(?P<direction>inbound|outbound) )?(?:protocol )?(?P<protocol>[\w-]{{1,16}}) "
    r"(?:\(no connection\) |reverse path check |connection spoof |spoof |due to Land Attack |"
    rf"teardrop fragment \([^)]{{0,64}}\) )?(?:src |from )\(?{_SRC}\)? (?:dst |to ){_DST}"
    r"(?: type \w{1,8}, code \w{1,8},)?(?: by access-group \"(?P<rule_name>[^\"]{0,128})\")?",
    rf"(?P<direction>Inbound|Outbound) (?P<protocol>\w{{1,16}}) connection (?P<action>denied) from {_SRC} to {_DST}",
    rf"(?P<action>Denied) (?P<protocol>(?:IPv6-)?ICMP) type ?= ?\d+,(?: code ?= ?\d+)? from (?:laddr )?{_ip('src')}"
    rf" on interface \S{{1,64}}(?: to {_ip('dst')})?",
    rf"Denied invalid (?P<protocol>ICMP) code \d+, for {_SRC} to {_DST}",
    rf"No matching connection for ICMP error message: (?P<protocol>\w{{1,16}}) src {_SRC} dst {_DST}",
    r"(?P<protocol>ICMP) packet type \d+ (?P<action>denied) by (?P<direction>outbound) list "
    rf"(?P<rule_name>\S{{1,128}}) src {_SRC} dest {_DST}",
    r"access-list (?P<rule_name>\S{1,128}) (?P<action>permitted|denied|est-allowed) (?P<protocol>\w{1,16}) "
    rf"(?:for user '?(?P<user>[^' ]{{1,256}})'? )?[\w.-]{{1,64}}/{_paren('src')} -> [\w.-]{{1,64}}/{_paren('dst')}",
    rf"Login (?P<action>denied|permitted) from {_SRC} to (?:[\w.-]{{1,64}}:)??{_ip('dst')}/(?P<service>\w{{1,16}})"
    r" for user \"(?P<user>[^\"]{0,256})\"",
    rf"(?P<protocol>\w{{1,16}}) (?:access (?P<action>denied|permitted) by ACL|request discarded) from {_SRC} to {_DST}",
    r"AAA user authentication (?P<action>Rejected|Successful) : (?:reason = (?P<reason>[^:]{0,256}) : )?"
    r"(?:server = \S{1,64} : |local database : )?user = (?P<user>\S{1,256})(?: : user IP = (?P<src_ip>\S{1,64}))?",
    rf"User authentication (?P<action>succeeded|failed): IP(?: address:| =) {_ip('src')}, Uname: (?P<user>\S{{1,256}})",
    rf"Auth(?:entication|orization) (?P<action>\w{{1,16}}) for user '(?P<user>[^']{{0,256}})'(?!.*' from ) "
    rf"from {_SRC} to {_DST}",
    r"User '(?P<user>[^']{0,256})' executed (?:the '(?P<command>.*)' command|cmd: (?P<cmd>.*))",
    r"User '(?P<user>[^']{0,256})', running '[^']{0,64}' from IP (?P<src_ip>[^\s,]{1,64}), executed '(?P<command>.*)'",
    rf"(?:Group = (?P<group>[^,]{{0,128}}), )?(?:Username = (?P<user>[^,]{{0,256}}), )?IP = {_ip('src')}, "
    r"(?:.{0,512}?\bReason: (?P<reason>.*))?",
    rf"(?:DefaultWEBVPNGroup )?Group <?(?P<group>[^>]{{0,128}}?)>? User <?{_USER}>? IP <?{_ip('src')}>?(?: |$)",
    rf"Local: ?{_ip('dst')}:(?P<dst_port>\d{{1,5}}) Remote: ?{_ip('src')}:(?P<src_port>\d{{1,5}}) "
    r"Username: ?(?P<user>\S{1,256}) ",
    rf"IPSEC: An? (?:in|out)bound \S{{1,64}} SA \([^)]{{0,64}}\) between {_ip('dst')} and {_ip('src')} "
    r"\(user= ?(?P<user>[^)]{0,256})\)",
    rf"IPSEC: Received an? (?P<protocol>\S{{1,16}}) packet \([^)]{{0,128}}\) from {_ip('src')} "
    rf"\((?:user= ?)?(?P<user>[^)]{{0,256}})\) to {_ip('dst')}",
    rf"(?:Starting|Device completed|Device failed) SSL handshake with [\w ]{{1,32}} {_SRC}(?: to {_DST})?",
    r"Dynamic [Ff]ilter (?P<action>\w{1,16}) \w{1,8} ?listed (?P<protocol>\w{1,16}) traffic "
    rf"from {_SRC} to {_DST}",
    rf"(?:(?P<user>[^@\s]{{1,256}})@)?{_ip('src')}(?:\([^)]{{0,256}}\))? Accessed (?:JAVA )?URL (?:[^@\s]{{1,256}}@)?"
    rf"{_ip('dst')}:(?P<url>.*)",
    rf"(?P<action>Access denied) URL (?P<url>\S{{1,2048}}) SRC (?!.* SRC ){_ip('src')} DEST {_ip('dst')}",
)

IOS = (
    r"Login (?P<action>failed|Success) \[user: (?P<user>[^\]]{0,256})\] \[Source: (?P<src_ip>[^\]]{1,64})\] "
    r"(?!.*\] \[Source: )\[localport: (?P<dst_port>\d{1,5})\](?: \[Reason: (?P<reason>[^\]]{0,256})\])?",
    r"User:(?P<user>\S{1,256}) +logged command:(?P<command>.*)",
    r"Configured from (?P<method>\S{1,64}) by (?P<user>\S{1,256}) on (?P<tty>\S{1,64})(?: \((?P<src_ip>[^)]{1,64})\))?",
    r"(?: {0,2}\w{1,16}(?:/\d{1,3})?: \w{1,32}: {1,2})?(?:access-)?list (?P<rule_name>\S{1,128}) (?:\(\d+\) )?"
    r"(?P<action>denied|permitted|deny|permit) (?P<protocol>\w{1,16}) "
    rf"(?:[0-9A-Fa-f]{{2,4}}(?:[.-][0-9A-Fa-f]{{2,4}}){{2,5}} )?{_LIST}",
    r"Authentication failure for SNMP req from host (?P<src_ip>\S{1,64})",
    rf"neighbor {_ip('dst')} (?P<action>Up|Down)",
    r"New (?P<service>\w{1,16}) connection(?: for user (?P<user>[^,\s]{1,256}))?, source (?P<src_ip>\S{1,64}) "
    r"(?!.*, source )destination (?P<dst_ip>[^\s,]{1,64})(?:,[^,]{0,64}?)? (?P<action>ACCEPTED|REJECTED)",
    r"User (?P<user>\S{1,256}) has exited tty session \d+ ?\((?P<src_ip>[^)]{1,64})\)",
)
"""IOS, IOS-XR, NX-OS and small business switches."""

FTD = {
    "SrcIP": "src_ip", "DstIP": "dst_ip", "SrcPort": "src_port", "DstPort": "dst_port", "Protocol": "protocol",
    "User": "user", "AccessControlRuleAction": "action", "AccessControlRuleName": "rule_name", "URL": "url",
    "Message": "signature", "FileName": "file_name", "FileSHA256": "sha256", "ThreatName": "threat",
}  # fmt: skip
"""Of an event that Firepower Threat Defense sends as ``Key: value, …`` (430001 to 430005) what it is called, and in
general."""
FTD_GIVES = Gives("", named(dict.fromkeys(chain(FTD, FTD.values()))))
_PAIR = re.compile(r"(\w{2,32}): ([^,]*(?:,(?! \w{2,32}: )[^,]*)*)(?:, |$)")


def ftd(message: str) -> dict[str, Any]:
    """The fields of such an event; none of any other message."""
    fields: dict[str, Any] = {}
    for name, value in _PAIR.findall(message) if "SrcIP: " in message else ():
        if value and name in FTD:  # of a repeated key the first: what a client says of itself stands behind
            fields.setdefault(FTD[name], fields.setdefault(name, value))
    return fields
