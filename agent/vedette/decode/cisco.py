"""Cisco's syslog: ``%FACILITY-SEVERITY-MNEMONIC: text`` of IOS, NX-OS and ASA.

The tag gives ``cisco_tag`` (the whole of it, without ``%``), its parts ``cisco_facility``, ``cisco_severity`` and
``mnemonic`` and, where that is digits, ``message_number``. A keyword searches the tag as well as the message. Rows of
``PROGRAMS`` by ``program_key``; the phrases below are what these rows look for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vedette.decode.formats.base import Gives, named

_TAG = re.compile(
    r"%(?P<cisco_tag>(?P<cisco_facility>[A-Za-z][\w]{0,31}(?:[-/][A-Za-z][\w]{0,31}){0,3}?)-(?P<cisco_severity>[0-7])-"
    r"(?P<mnemonic>(?P<message_number>\d{1,8})|[A-Za-z0-9_]{1,64}))",
    re.ASCII,
)

GIVES = Gives("`%FACILITY-SEVERITY-MNEMONIC:`", named(_TAG.groupindex))

FACILITIES: Mapping[str, str] = {
    **dict.fromkeys(("asa", "pix", "ftd", "fwsm"), "%asa"),
    **dict.fromkeys(("bgp", "ip-tcp", "tcp"), "%bgp"),
    "ldp": "%ldp",
    **dict.fromkeys(("aaa", "sec_login", "parser", "sys", "tacacs", "radius", "ssh", "login", "dot1x"), "%aaa"),
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


def _end(prefix: str) -> str:
    """``interface:address/port`` as fields of one end."""
    return rf"(?:[\w./-]{{1,64}}:)?(?P<{prefix}_ip>[0-9A-Fa-f.:]{{2,45}})/(?P<{prefix}_port>\d{{1,5}})"


_SRC = _end("src")
_DST = _end("dst")
_PAREN_SRC = r"(?P<src_ip>[0-9A-Fa-f.:]{2,45})\((?P<src_port>\d{1,5})\)"
_PAREN_DST = r"(?P<dst_ip>[0-9A-Fa-f.:]{2,45})\((?P<dst_port>\d{1,5})\)"

ASA = (
    rf"(?P<action>Built|Teardown) (?:(?P<direction>inbound|outbound) )?(?P<protocol>\w{{1,16}}) connection \d+ "
    rf"for {_SRC}(?: \([^)]{{0,64}}\))?(?:\([^)]{{0,64}}\))? to {_DST}",
    rf"(?P<action>Deny) (?:(?P<direction>inbound|outbound) )?(?P<protocol>\w{{1,16}}) (?:\(no connection\) )?"
    rf"(?:src |from ){_SRC}(?:\([^)]{{0,64}}\))? (?:dst |to ){_DST}(?:\([^)]{{0,64}}\))?"
    r"(?: by access-group \"(?P<rule_name>[^\"]{0,128})\")?",
    rf"(?P<direction>Inbound|Outbound) (?P<protocol>\w{{1,16}}) connection (?P<action>denied) from {_SRC} to {_DST}",
    r"access-list (?P<rule_name>\S{1,128}) (?P<action>permitted|denied|est-allowed) (?P<protocol>\w{1,16}) "
    r"[\w.-]{1,64}/(?P<src_ip>[0-9A-Fa-f.:]{2,45})\((?P<src_port>\d{1,5})\)(?:\([^)]{0,64}\))? -> "
    r"[\w.-]{1,64}/(?P<dst_ip>[0-9A-Fa-f.:]{2,45})\((?P<dst_port>\d{1,5})\)",
    rf"Login (?P<action>denied|permitted) from {_SRC} to (?:[\w.-]{{1,64}}:)?(?P<dst_ip>[0-9A-Fa-f.:]{{2,45}})/"
    r"(?P<service>\w{1,16})"
    r" for user \"(?P<user>[^\"]{0,256})\"",
    rf"(?P<protocol>TCP|UDP) (?:access (?P<action>denied|permitted) by ACL|request discarded) from {_SRC} to {_DST}",
    r"AAA user authentication (?P<action>Rejected|Successful) : (?:reason = (?P<reason>[^:]{0,256}) : )?"
    r"(?:server = \S{1,64} : |local database : )?user = (?P<user>\S{1,256})(?: : user IP = (?P<src_ip>\S{1,64}))?",
    r"User '(?P<user>[^']{0,256})' executed the '(?P<command>.*)' command",
    r"User '(?P<user>[^']{0,256})', running '[^']{0,64}' from IP (?P<src_ip>[^\s,]{1,64}), executed '(?P<command>.*)'",
)

IOS = (
    r"Login (?P<action>failed|Success) \[user: (?P<user>[^\]]{0,256})\] \[Source: (?P<src_ip>[^\]]{1,64})\] "
    r"\[localport: (?P<dst_port>\d{1,5})\](?: \[Reason: (?P<reason>[^\]]{0,256})\])?",
    r"User:(?P<user>\S{1,256}) +logged command:(?P<command>.*)",
    r"Configured from (?P<method>\S{1,64}) by (?P<user>\S{1,256}) on (?P<tty>\S{1,64})(?: \((?P<src_ip>[^)]{1,64})\))?",
    rf"list (?P<rule_name>\S{{1,128}}) (?P<action>denied|permitted) (?P<protocol>\w{{1,16}}) {_PAREN_SRC}"
    rf"(?: \([^)]{{0,64}}\))? -> {_PAREN_DST}",
    r"Authentication failure for SNMP req from host (?P<src_ip>\S{1,64})",
    r"neighbor (?P<dst_ip>[0-9A-Fa-f.:]{2,45}) (?P<action>Up|Down)",
)
"""IOS and NX-OS."""
