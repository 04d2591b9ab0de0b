"""What well-known programs say: from a syslog program's name to its log sources and the fields of its messages.

A table: one row per program. ``patterns`` are tried in order at the start of the message, and the named groups of the
first that fits become fields, cut out as they stand. Field names are Sigma's generic ones where there is one:
``user`` acts (or tries to log in), ``target_user`` is acted on, ``src_ip``/``src_port`` is the peer, ``command`` what
is run. A row with ``pairs`` gives the message's ``key=value`` pairs as well; ``names`` adds a generic name to a pair.

Every pattern is linear in the message: a run that may be long ends at a literal or is atomic. Where a sender chooses
part of a text (the user name of a failed login), the pattern reads what follows it from the end, so that a crafted
name cannot pose as the peer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from vedette.inputs import access
from vedette.inputs.syslog import add

Fields = dict[str, str | list[str]]


_PAM_NAMES = {"rhost": "src_ip"}


class Program(NamedTuple):
    """One row: the Sigma services and categories of a program's messages, and how they are read."""

    services: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()
    pairs: bool = True
    names: Mapping[str, str] = _PAM_NAMES
    reader: Callable[[str], dict[str, str]] | None = None

    def read(self, message: str) -> Fields:
        """The fields of ``message``, without ``message`` itself."""
        fields: Fields = {}
        if self.pairs and "=" in message:
            fields = key_values(message)
            for pair, name in self.names.items():
                if fields.get(pair):
                    fields[name] = fields[pair]
        for pattern in self.patterns:
            if match := pattern.match(message):
                fields.update((name, value) for name, value in match.groupdict().items() if value is not None)
                break
        if self.reader is not None:
            fields.update(self.reader(message))
        return fields


NO_PROGRAM = Program()

_MAX_PAIRS = 256
_PAIR = re.compile(
    r"""(?:^|(?<=[\s,;|(\[{<&?]))([A-Za-z_][\w.-]{0,63})=("(?:[^"\\]++|\\.)*+"|'[^']*+'|[^\s,;|)\]]*+)""", re.S
)


def key_values(message: str) -> Fields:
    """``key=value`` pairs, at most the first 256; values may be quoted (the quotes are not part of the value)."""
    fields: Fields = {}
    for i, match in enumerate(_PAIR.finditer(message)):
        if i == _MAX_PAIRS:
            break
        name, value = match.groups()
        if len(value) > 1 and value[0] in "\"'" and value[0] == value[-1]:
            value = value[1:-1]
        add(fields, name, value)
    return fields


def program_name(app: str) -> str:
    """The key of ``app`` in ``PROGRAMS``: ``cron`` of ``/usr/sbin/CRON``, ``sshd`` of ``sshd(pam_unix)``."""
    return app.partition("(")[0].rpartition("/")[2].lower()


_IP = r"(?P<src_ip>[0-9A-Fa-f:.%\w-]{1,255})"
_ADDRESS = r"(?P<src_ip>(?=[0-9A-Fa-f]*[.:])[0-9A-Fa-f:.]{2,45}(?<!:))"
_FROM = rf"from {_IP}(?: port (?P<src_port>\d+))?"
_INVALID = r"(?:invalid user |illegal user )?"

_PAM_HEAD = r"pam_\w+\((?P<pam_service>[^:)]*):(?P<pam_type>\w+)\): "
_BY = r"(?: by (?P<by_user>[^\s(]*)\(uid=(?P<by_uid>\d+)\))?"
_PAM = (
    _PAM_HEAD + r"session (?P<action>opened|closed) for user (?P<user>[^\s(]+)(?:\(uid=(?P<uid>\d+)\))?" + _BY,
    _PAM_HEAD + r"password changed for (?P<user>\S+)",
    _PAM_HEAD,
    r"session (?P<action>opened|closed) for user (?P<user>\S+)" + _BY,
)
_NOTE = r"(?:error: |fatal: |\[ID \d+ \S+\] )?"
_SSHD = (
    rf"{_NOTE}(?:Failed|Accepted|Postponed|Partial) (?P<auth_method>[^\s/]+)\S* for {_INVALID}(?P<user>.*) {_FROM}"
    r"(?: ssh\d?(?:: (?P<key_type>\S+) (?P<key_fingerprint>\S+))?)?",
    rf"{_NOTE}(?:Invalid|Illegal) user (?P<user>.*) {_FROM}",
    rf"{_NOTE}(?:Connection (?:closed|reset) by|Disconnected from|Disconnecting)"
    rf"(?: (?:authenticating |invalid )?user (?P<user>.*?))? {_ADDRESS} port (?P<src_port>\d+)",
    rf"{_NOTE}Connection (?:closed|reset) by {_ADDRESS}",
    rf"{_NOTE}maximum authentication attempts exceeded for {_INVALID}(?P<user>.*) {_FROM}",
    rf"{_NOTE}User (?P<user>.*) from {_IP} not allowed because (?P<reason>.*)",
    rf"{_NOTE}(?P<user>ROOT) LOGIN REFUSED FROM {_ADDRESS}(?: port (?P<src_port>\d+))?",
    rf"{_NOTE}PAM: (?>(?P<reason>.*?) for ){_INVALID}(?P<user>.*) from {_IP}",
    rf"{_NOTE}Unable to negotiate with {_ADDRESS} port (?P<src_port>\d+): (?P<reason>.*)",
    rf"{_NOTE}Bad protocol version identification '(?P<identification>.*)' {_FROM}",
    rf"{_NOTE}kex_exchange_identification: (?P<reason>.*)",
    rf"{_NOTE}(?:banner exchange|ssh_dispatch_run_fatal): Connection from {_ADDRESS} port (?P<src_port>\d+): "
    r"(?P<reason>.*)",
    rf"{_NOTE}(?:Did not receive identification string|Received disconnect|Connection) "
    rf"from {_ADDRESS}(?: port (?P<src_port>\d+))?",
    rf"{_NOTE}Timeout before authentication for (?:connection from )?{_ADDRESS}(?: port (?P<src_port>\d+))?",
    rf"{_NOTE}reverse mapping checking getaddrinfo for (?P<src_host>\S+) \[(?P<src_ip>[^\]]+)\]",
    rf"{_NOTE}Authentication refused: (?P<reason>bad ownership or modes for \w+ (?P<path>.*))",
)

_SUDO = (
    r"\s*(?P<user>[^\s:]+) : (?:TTY=|(?>(?P<reason>.*?) ; TTY=))(?P<tty>\S+) ; "
    r"(?>PWD=(?P<pwd>.*?) ; USER=)(?P<target_user>\S+) ;(?>.*? COMMAND=)(?P<command>.*)",
    *_PAM,
)

_SU = (
    r"(?P<result>Successful|FAILED|pam_authenticate\S*) su for (?P<target_user>\S+) by (?P<user>\S+)",
    r"(?P<result>FAILED SU )?\(to (?P<target_user>\S+)\) (?P<user>\S+) on (?P<tty>\S+)",
    r"(?P<result>[+-]) (?P<tty>\S+) (?P<user>[^\s:]+)[:-](?P<target_user>\S+)",
    r"'su (?P<target_user>[^']*)' (?P<result>failed) for (?P<user>\S+) on (?P<tty>\S+)",
    r"BAD SU (?P<user>\S+) to (?P<target_user>\S+) on (?P<tty>\S+)",
    *_PAM,
)

_CRON = (
    r"\((?P<user>[^)]{1,256})\) (?P<action>CMD|CMDOUT|CMDEND) \((?P<command>.*)\)\s*$",
    r"\((?P<user>[^)]{1,256})\) (?P<action>[A-Za-z ]{1,40}) \((?P<detail>.*)\)\s*$",
    *_PAM,
)

_ACCOUNTS = (
    r"new user: name=(?P<user>[^,]*), UID=(?P<uid>\d+), GID=(?P<gid>\d+), "
    r"home=(?P<home>[^,]*), shell=(?P<shell>[^,\s]*)",
    r"(?:new group|group added to \S+): name=(?P<group>[^,\s]*)",
    r"(?P<action>add|delete) '(?P<user>[^']*)' (?:to|from) (?:shadow )?group '(?P<group>[^']*)'",
    r"user (?P<user>\S+) (?P<action>added|removed) by (?P<by_user>\S+) (?:to|from) group (?P<group>\S+)",
    r"(?P<action>change|lock|unlock) user '(?P<user>[^']*)' (?P<attribute>\w+)"
    r"(?: from '(?P<old>[^']*)' to '(?P<new>[^']*)')?",
    r"(?P<action>delete) user '(?P<user>[^']*)'",
    r"(?P<action>delete|remove)d? group '(?P<group>[^']*)'",
    r"change group '(?P<group>[^']*)'",
    r"password for '?(?P<user>[^\s']+)'? changed by '?(?P<by_user>[^\s']+)'?",
    *_PAM,
)

_STAMP = r"(?:\[ *\d+\.\d+\] )?"
_KERNEL = (
    _STAMP + r"(?P<process>[^\s\[]{1,64})\[(?P<process_id>\d+)\]:? (?P<fault>segfault|trap \S+|general protection)",
    _STAMP + r"(?:Memory cgroup out|Out) of memory: Kill(?:ed)? process (?P<process_id>\d+) \((?P<process>[^)]*)\)",
    _STAMP + r"device (?P<device>\S+) (?P<action>entered|left) promiscuous mode",
    _STAMP + r"(?P<device>[^\s:]{1,64}): (?P<action>entered|left) promiscuous mode",
    _STAMP + r"(?P<module>[^\s:]{1,64}): (?:loading out-of-tree module taints kernel|module verification failed)",
    _STAMP + r"usb (?P<device>[\d.-]+): (?P<action>New USB device found|USB disconnect)",
)
_NETFILTER = {"SRC": "src_ip", "DST": "dst_ip", "SPT": "src_port", "DPT": "dst_port", "PROTO": "protocol"}

_LOGIN = (
    r"FAILED LOGIN (?:SESSION|\(?\d+\)?) (?:on '?(?P<tty>[^\s']+)'? )?(?:FROM '?(?P<src_ip>[^\s']+)'? )?"
    r"FOR '?(?P<user>[^',]*)'?, (?P<reason>.*)",
    r"(?P<user>ROOT) LOGIN +ON '?(?P<tty>[^\s']+)'?(?: FROM '?(?P<src_ip>[^\s']+)'?)?",
    *_PAM,
)
_LOGIND = (r"(?P<action>New|Removed) session (?P<session>\S+?)(?: of user (?P<user>.*?))?\.?$", *_PAM)

_TIME = r"(?:\d{10}: )?"
_MOSQUITTO = (
    _TIME + r"New client connected from (?P<src_ip>\S+):(?P<src_port>\d+) as "
    r"(?>(?P<client_id>.*) \(p)\d, c\d, k\d+(?:, u'(?P<user>.*)')?\)",
    _TIME + r"New connection from (?P<src_ip>\S+):(?P<src_port>\d+) on port (?P<dst_port>\d+)",
    _TIME + r"Denied (?P<action>PUBLISH|SUBSCRIBE) from (?>(?P<client_id>.*) \(d)\d, q\d, r\d, m\d+, '(?P<topic>.*)',",
    _TIME + r"Client (?>(?P<client_id>.*?)(?: \[(?P<src_ip>[^\]\s]+):(?P<src_port>\d+)\])? disconnected)"
    r"(?:, (?P<reason>.*))?",
    _TIME + r"(?:Socket error on client|Bad socket read/write on client) (?P<client_id>[^\s,:]+)",
)
_DNSMASQ = (r"(?:\d+ \S+ )?query\[(?P<record_type>\w+)\] (?P<query>\S+) from (?P<src_ip>\S+)",)
_VSFTPD = (
    r"(?:\[pid \d+\] )?\[(?P<user>[^\]]*)\] (?P<result>OK|FAIL) (?P<action>[A-Z ]+): Client \"(?P<src_ip>[^\"]*)\"",
    r"(?:\[pid \d+\] )?CONNECT: Client \"(?P<src_ip>[^\"]*)\"",
)
_NGINX = (r"(?:[\d/]{10} [\d:]{8} )?\[(?P<level>\w+)\] \d+#\d+: (?>.*?, client: )(?P<src_ip>[^,\s]+)",)
_APACHE = (r"(?>.*?\[client )(?P<src_ip>[\d.]+|[0-9A-Fa-f:]+)",)
_NAMED = (r"client (?:@\S+ )?(?P<src_ip>[^\s#]+)#(?P<src_port>\d+)(?: \((?P<query>[^)]*)\))?: ",)
_DROPBEAR = (
    r"(?:Bad password attempt|Password auth succeeded) for '(?P<user>.*)' from (?P<src_ip>\S+):(?P<src_port>\d+)",
)


def _row(
    services: str,
    *patterns: str,
    categories: str = "",
    pairs: bool = True,
    names: Mapping[str, str] | None = None,
    reader: Callable[[str], dict[str, str]] | None = None,
) -> Program:
    compiled = tuple(re.compile(pattern, re.S) for pattern in patterns)
    return Program(
        frozenset(services.split()), frozenset(categories.split()), compiled, pairs, names or _PAM_NAMES, reader
    )  # fmt: skip


_SSHD_ROW = _row("sshd auth", *_SSHD, *_PAM)
_CRON_ROW = _row("cron", *_CRON, pairs=False)
_ACCOUNT_ROW = _row("auth", *_ACCOUNTS)
_AUDIT_ROW = _row("auditd", names={"addr": "src_ip", "acct": "user"})

PROGRAMS: Mapping[str, Program] = {
    "sshd": _SSHD_ROW,
    "sshd-session": _SSHD_ROW,
    "sshd-auth": _SSHD_ROW,
    "dropbear": _row("sshd auth", *_DROPBEAR),
    "sudo": _row("sudo auth", *_SUDO, pairs=False),
    "su": _row("su auth", *_SU),
    "login": _row("login auth", *_LOGIN),
    "systemd-logind": _row("auth", *_LOGIND),
    "polkitd": _row("auth"),
    "cron": _CRON_ROW,
    "crond": _CRON_ROW,
    "anacron": _CRON_ROW,
    "crontab": _CRON_ROW,
    **dict.fromkeys(
        ("useradd", "usermod", "userdel", "groupadd", "groupmod", "groupdel", "gpasswd", "passwd", "chpasswd", "chage"),
        _ACCOUNT_ROW,
    ),
    "kernel": _row("kernel", *_KERNEL, names=_NETFILTER),
    "audit": _AUDIT_ROW,
    "auditd": _AUDIT_ROW,
    "audispd": _AUDIT_ROW,
    "rsyslogd": _row("rsyslog"),
    "systemd": _row("systemd"),
    "clamd": _row("clamav"),
    "freshclam": _row("clamav"),
    "guacd": _row("guacamole"),
    "mosquitto": _row("mosquitto", *_MOSQUITTO, categories="iot"),
    "dnsmasq": _row("dnsmasq", *_DNSMASQ, categories="dns"),
    "named": _row("named", *_NAMED, categories="dns"),
    "vsftpd": _row("vsftpd", *_VSFTPD),
    "dovecot": _row("dovecot mail", names={"rip": "src_ip"}),
    "nginx": _row("nginx", *_NGINX, categories="webserver", pairs=False, reader=access.read),
    **dict.fromkeys(
        ("apache", "apache2", "httpd"),
        _row("apache", *_APACHE, categories="webserver", pairs=False, reader=access.read),
    ),
}
"""Keys are what ``program_name`` gives."""
