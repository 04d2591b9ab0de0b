"""Well-known programs: from a syslog program's name to its log sources and the fields of its messages.

A table: one row per program. ``patterns`` (``phrases.py``, of servers ``formats/servers.py``) are tried in order at the
start of the message; the named groups of the first that fits become fields. A row with ``pairs`` gives the message's
``key=value`` pairs as well; ``names`` adds a generic name to a pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from itertools import islice
from typing import Any

from vedette.decode import access, cisco, peers, phrases
from vedette.decode.formats import auditd
from vedette.decode.formats.base import NOWHERE, Field, Gives, Provenance, late, named, renamed, source
from vedette.decode.syslog import add
from vedette.model.event import Source

Fields = dict[str, str | list[str]]


_NOTHING = Gives("")
_servers = late("servers", "phrases")
_GROUP = re.compile(r"\(\?P<(\w+)>")


@cache
def _pam() -> tuple[re.Pattern[str], ...]:
    """Return the phrases of all programs: in any other layout ``rhost=`` may stand in a name that a client chose."""
    return tuple(re.compile(pattern, re.S) for pattern in phrases.PAM)


@dataclass(frozen=True, eq=False)
class Program:
    """One row: where a program's messages belong, and how they are read."""

    source: Source = NOWHERE
    """The log sources that its messages belong to."""
    patterns: tuple[str, ...] | str = ()
    """Of a server their name in ``formats/servers.py``, and the fields that their groups give."""
    pairs: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    reader: Callable[[str], dict[str, Any]] | None = None
    reads: Gives = _NOTHING
    """What ``reader`` gives."""
    remote: bool = True
    """Who and from where may be looked for in messages that no pattern fits (``peers.py``)."""

    @cached_property
    def compiled(self) -> tuple[re.Pattern[str], ...]:
        """The patterns, compiled with the program's first message: all rows together take as long as a tenth of the
        agent's start."""
        patterns = self.patterns
        texts = patterns if isinstance(patterns, tuple) else _servers(patterns.split()[0])
        return tuple(re.compile(pattern, re.S) for pattern in texts)

    @property
    def gives(self) -> Gives:
        """The fields that ``read`` gives: the groups of the patterns, pairs and their further names."""
        patterns = self.patterns
        names = patterns.split()[1:] if isinstance(patterns, str) else _GROUP.findall("".join(patterns))
        own: list[Field] = [*named(names)]
        if self.pairs:
            own += [*named(_GROUP.findall("".join(phrases.PAM))), *renamed(self.names, how=Provenance.VERBATIM)]
        own += self.reads.fields
        own += named(peers.FIELDS) if self.remote else ()
        return Gives("its name", tuple(dict.fromkeys(own)), Provenance.VERBATIM if self.pairs else self.reads.any)

    def read(self, message: str) -> tuple[Fields, bool]:
        """The fields of ``message``, without ``message`` itself; and whether ``peers.read`` may tell more."""
        match = None
        unread = False
        for pattern in self.compiled:
            if match := pattern.match(message):
                break
        else:
            if self.pairs:
                general = _pam()[: None if message.startswith("pam_") else 1]
                match = next((match for pattern in general if (match := pattern.match(message))), None)
            unread = self.remote
        fields = self._pairs(message, match) if self.pairs and "=" in message else {}
        if match is not None:
            for name, value in match.groupdict().items():
                if value is not None:
                    fields[name] = value.strip(" ")
        if self.reader is not None:
            fields.update(self.reader(message))
        if isinstance(address := fields.get("src_ip"), str):
            fields["src_ip"] = peers.plain(address)
        if isinstance(user := fields.get("user"), str) and user[:1] == "<" and user[-1:] == ">":
            fields["user"] = user[1:-1]
        return fields, unread and "src_ip" not in fields

    def _pairs(self, message: str, match: re.Match[str] | None) -> Fields:
        """The ``key=value`` pairs, but for those in what a client chose: in a text that ``match`` cut out, in a name in
        quotes. ``src_ip=`` amid words may stand in a name without quotes: ``peers.read`` looks at it."""
        if self is PAIRS:
            fields = key_values(message)
        else:
            document = self is NO_PROGRAM and starts_with_pair(message)
            chosen = peers.claimed(message) if self.remote and not document else []
            if match is not None:
                chosen += [match.span(group) for group in match.re.groupindex]
            fields = key_values(message, chosen)
            if ("src_ip" in fields or "source.ip" in fields) and not (document and peers.agree(fields)):
                fields.pop("src_ip", None)
                fields.pop("source.ip", None)
        for pair, name in self.names.items():
            if isinstance(fields.get(pair), str) and fields[pair]:  # two say nothing
                fields[name] = fields[pair]
        return fields


NO_PROGRAM = Program()
PAIRS = Program(names={"rhost": "src_ip"}, remote=False)
"""The row of codecs that read one format alone."""

_MAX_PAIRS = 256
_PAIR = re.compile(
    r"""(?:^|(?<=[\s,;|(\[{<&?]))([A-Za-z_][\w.-]{0,63})=("(?:[^"\\]++|\\.)*+"|'[^']*+'|[^\s,;|)\]]*+)""", re.S
)


def key_values(message: str, but: Sequence[tuple[int, int]] = ()) -> Fields:
    """``key=value`` pairs, at most the first 256; values may be quoted (the quotes are not part of the value).

    ``but``: where none begins.
    """
    fields: Fields = {}
    spans = iter(sorted(but))
    begin, until = next(spans, (len(message), 0)), 0
    for match in islice(_PAIR.finditer(message), _MAX_PAIRS):
        name, value = match.groups()
        while begin[0] <= match.start():
            begin, until = next(spans, (len(message), 0)), max(until, begin[1])
        if match.start() < until:
            continue
        if len(value) > 1 and value[0] in "\"'" and value[0] == value[-1]:
            value = value[1:-1]
        add(fields, name, value)
    return fields


def starts_with_pair(message: str) -> bool:
    """Whether ``message`` is pairs from its start, as devices write, and not words with pairs among them."""
    return message.find("=", 1, 65) > 0 and _PAIR.match(message) is not None


MAX_KEPT = 256
"""Characters of a name whose key is remembered; a sender may write a longer one."""


def program_name(app: str) -> str:
    """The key of ``app`` in ``PROGRAMS``: ``cron`` of ``/usr/sbin/CRON``, ``sshd`` of ``sshd(pam_unix)``, ``postfix``
    of ``postfix/qmgr``."""
    return _remembered(app) if len(app) <= MAX_KEPT else _program_name(app)


def _program_name(app: str) -> str:
    if app.startswith("%"):
        return cisco.program_key(app)
    if app.startswith("(") and app.endswith(")"):  # as squid's parts call themselves
        app = app[1:-1].rstrip("0123456789").rstrip("-")
    head, _, name = app.partition("(")[0].lower().rpartition("/")
    if name not in PROGRAMS and head.partition("/")[0] in PROGRAMS:
        return head.partition("/")[0]
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


_remembered = lru_cache(maxsize=4096)(_program_name)


def _row(
    services: str,
    *patterns: str,
    server: str = "",
    product: str = "",
    categories: str = "",
    pairs: bool = True,
    names: Mapping[str, str] | None = None,
    reader: Callable[[str], dict[str, Any]] | None = None,
    reads: Gives = access.GIVES,
    remote: bool = True,
) -> Program:
    says = reads if reader else _NOTHING
    return Program(source(product, categories, services), server or patterns, pairs, names or {}, reader, says, remote)


_linux = partial(_row, product="linux")

_SSHD_ROW = _linux("sshd auth", *phrases.SSHD, *phrases.PAM)
_CRON_ROW = _linux("cron", *phrases.CRON, pairs=False, remote=False)
_AUDIT_ROW = _linux("auditd", pairs=False, reader=auditd.read, reads=auditd.GIVES, remote=False)

_SERVERS = """
useradd usermod userdel groupadd groupmod groupdel gpasswd newgrp passwd chpasswd chage chfn chsh | auth | ACCOUNTS \
user uid gid home shell group attribute new action by_user old tty reason | linux alone
polkitd | auth | POLKITD session result target_user action user | linux alone
dropbear | sshd auth | DROPBEAR src_ip src_port user reason key_type key_fingerprint | linux
fail2ban fail2ban-server fail2ban.actions fail2ban.filter | fail2ban | FAIL2BAN jail action src_ip | linux
mosquitto | mosquitto | MOSQUITTO src_ip src_port client_id user dst_port action topic reason | iot alone
dnsmasq | dnsmasq | DNSMASQ record_type query src_ip | dns alone
pdns pdns_server pdns_recursor pdns-recursor | pdns | PDNS src_ip query record_type | dns alone
unbound | unbound | UNBOUND src_ip query record_type | dns alone
named | named | NAMED src_ip src_port query record_type | dns
vsftpd | vsftpd | VSFTPD user result action src_ip path command | linux
proftpd | proftpd | PROFTPD src_ip user reason |
dovecot | dovecot mail | DOVECOT action reason user auth_method src_ip dst_ip |
imap-login pop3-login auth-worker | mail | DOVECOT action reason user auth_method src_ip dst_ip |
smtpd postscreen submission smtps | postfix mail | POSTFIX src_host src_ip action src_port reason auth_method user |
postfix | postfix mail | POSTFIX_PARTS src_host src_ip action src_port reason dst_host dst_ip dst_port | alone
exim exim4 | exim mail | EXIM user dst_host dst_ip dst_port src_ip src_port auth_method |
sendmail sm-mta sm-acceptingconnections | sendmail mail | SENDMAIL dst_ip src_host src_ip |
imapd imapd-ssl pop3d pop3d-ssl courieresmtpd courierpop3login imaplogin | courier mail | COURIER user src_ip |
timsieved sieve imap imaps pop3 pop3s nntp | cyrus mail | CYRUS src_host src_ip auth_method |
roundcube | roundcube mail | ROUNDCUBE user src_ip |
webmin | webmin auth | WEBMIN user src_ip |
openvpn ovpn-server | openvpn vpn | OPENVPN src_ip src_port result user reason command | bare
smbd smbd_audit samba | samba | SAMBA service domain user auth_method status workstation src_ip src_port action result \
path |
postgres postgresql | postgresql | POSTGRES user database reason src_ip action src_host src_port identity auth_method \
parameter new statement level | bare alone
mysqld mariadbd mysql mariadb mysql-server_auditing | mysql | MYSQL reason user src_ip src_host database action result \
statement table |
redis redis-server | redis | REDIS src_ip src_port action | alone
suricata snort | suricata | IDS signature_id signature classification level protocol src_ip src_port dst_ip dst_port |
slapd | slapd | SLAPD src_ip src_port | alone
danted | dante | DANTE src_ip src_port |
suhosin | suhosin | SUHOSIN reason src_ip | webserver
haproxy | haproxy | HAPROXY src_ip src_port | webserver access
nginx | nginx | NGINX level src_ip | webserver access
apache apache2 httpd | apache | APACHE src_ip src_port | webserver access
"""
"""Names | services | phrases and what their groups give | categories, and how a row is read."""


def _of_servers() -> Iterator[tuple[str, Program]]:
    for line in _SERVERS.strip().splitlines():
        names, services, phrases_of, marks = (part.strip() for part in line.split("|"))
        words = set(marks.split())
        row = _row(
            services,
            server=phrases_of,
            product="linux" if "linux" in words else "",
            categories=" ".join(words - {"linux", "alone", "bare", "access"}),
            pairs=words.isdisjoint(("bare", "access")),
            reader=access.read if "access" in words else None,
            remote="alone" not in words,
        )
        yield from dict.fromkeys(names.split(), row).items()


ACCESS_LOG = "access_log"
"""The program of a line of an access log that an input has known by its content, where nothing names the server."""

PROGRAMS: Mapping[str, Program] = {
    "sshd": _SSHD_ROW,
    "sshd-session": _SSHD_ROW,
    "sshd-auth": _SSHD_ROW,
    "sudo": _linux("sudo auth", *phrases.SUDO, pairs=False, remote=False, reader=late("escalation", "sudo")),
    "pkexec": _linux("auth", *phrases.PKEXEC, pairs=False, remote=False, reader=late("escalation", "pkexec")),
    "doas": _linux("auth", *phrases.DOAS, pairs=False, remote=False, reader=late("escalation", "doas")),
    "su": _linux("su auth", *phrases.SU, remote=False),
    "runuser": _linux("auth", *phrases.SU, remote=False),
    "login": _linux("login auth", *phrases.LOGIN),
    "systemd-logind": _linux("auth", *phrases.LOGIND),
    **dict.fromkeys(("cron", "crond", "anacron", "crontab"), _CRON_ROW),
    "kernel": _linux("kernel", *phrases.KERNEL, names=phrases.NETFILTER, remote=False),
    **dict.fromkeys(("audit", "auditd", "audispd"), _AUDIT_ROW),
    "sysmon": _linux("sysmon", remote=False),
    "rsyslogd": _linux("rsyslog", remote=False),
    "systemd": _linux("systemd", *phrases.SYSTEMD, remote=False),
    "clamd": _linux("clamav", remote=False),
    "freshclam": _linux("clamav", remote=False),
    "guacd": _linux("guacamole"),
    "sogod": _row("sogo mail"),
    "asterisk": _row("asterisk"),
    "squid": _row("squid", categories="proxy", pairs=False, reader=late("servers", "squid"), reads=access.PROXY_GIVES),
    ACCESS_LOG: _row("", categories="webserver", pairs=False, reader=access.read),
    **dict(_of_servers()),
    "%asa": _row(
        *("asa", *cisco.ASA),
        product="cisco",
        categories="firewall",
        pairs=False,
        reader=cisco.ftd,
        reads=cisco.FTD_GIVES,
    ),
    "%aaa": _row("aaa", *cisco.IOS, product="cisco", pairs=False),
    "%bgp": _row("bgp", *cisco.IOS, product="cisco", pairs=False),
    "%ldp": _row("ldp", *cisco.IOS, product="cisco", pairs=False),
    "%cisco": _row("", *cisco.IOS, product="cisco", pairs=False),
}
"""Keys are what ``program_name`` gives."""

_NOUNS = """
    access_log apache audit cron crontab imap imaps kernel login named nntp passwd pop3 pop3s sieve smtps su submission
"""
_WORDS = frozenset(_NOUNS.split())
"""Programs that a text may be about."""


def is_tag(word: str, message: str) -> bool:
    """Whether a word before ``message``, without a colon (RFC 3164, 4.1.3), says which program wrote it."""
    name = program_name(word)
    row = PROGRAMS.get(name)
    own = row is not None and (name not in _WORDS or message[:1] == "[")
    return own or (row is not None and any(pattern.match(message) for pattern in row.compiled))
