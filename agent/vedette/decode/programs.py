"""Well-known programs: from a syslog program's name to its log sources and the fields of its messages.

A table: one row per program. ``patterns`` (``phrases.py``) are tried in order at the start of the message; the named
groups of the first that fits become fields. A row with ``pairs`` gives the message's ``key=value`` pairs as well;
``names`` adds a generic name to a pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from itertools import chain, islice
from typing import Any

from vedette.decode import access, cisco, peers, phrases
from vedette.decode.formats import auditd
from vedette.decode.formats.base import NOWHERE, Field, Gives, Provenance, named, renamed, source
from vedette.decode.syslog import add
from vedette.model.event import Source

Fields = dict[str, str | list[str]]


_NOTHING = Gives("")
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
    patterns: tuple[str, ...] = ()
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
        return tuple(re.compile(pattern, re.S) for pattern in self.patterns)

    @property
    def gives(self) -> Gives:
        """The fields that ``read`` gives: the groups of the patterns, pairs and their further names."""
        own: list[Field] = [*named(chain.from_iterable(map(_GROUP.findall, self.patterns)))]
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
    for match in islice(_PAIR.finditer(message), _MAX_PAIRS):
        name, value = match.groups()
        if but and any(start <= match.start() < end for start, end in but):
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
    """The key of ``app`` in ``PROGRAMS``: ``cron`` of ``/usr/sbin/CRON``, ``sshd`` of ``sshd(pam_unix)``."""
    return _remembered(app) if len(app) <= MAX_KEPT else _program_name(app)


def _program_name(app: str) -> str:
    if app.startswith("%"):
        return cisco.program_key(app)
    name = app.partition("(")[0].rpartition("/")[2].lower()
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


_remembered = lru_cache(maxsize=4096)(_program_name)


def _row(
    services: str,
    *patterns: str,
    product: str = "",
    categories: str = "",
    pairs: bool = True,
    names: Mapping[str, str] | None = None,
    reader: Callable[[str], dict[str, Any]] | None = None,
    reads: Gives = access.GIVES,
    remote: bool = True,
) -> Program:
    says = reads if reader else _NOTHING
    return Program(source(product, categories, services), patterns, pairs, names or {}, reader, says, remote)


_linux = partial(_row, product="linux")

_SSHD_ROW = _linux("sshd auth", *phrases.SSHD, *phrases.PAM)
_CRON_ROW = _linux("cron", *phrases.CRON, pairs=False, remote=False)
_ACCOUNT_ROW = _linux("auth", *phrases.ACCOUNTS, remote=False)
_AUDIT_ROW = _linux("auditd", pairs=False, reader=auditd.read, reads=auditd.GIVES, remote=False)
_DOVECOT_ROW = _row("dovecot mail", *phrases.DOVECOT, names={"rip": "src_ip"})
_MAIL_ROW = _row("mail", *phrases.DOVECOT, names={"rip": "src_ip"})

ACCESS_LOG = "access_log"
"""The program of a line of an access log that an input has known by its content, where nothing names the server."""

PROGRAMS: Mapping[str, Program] = {
    "sshd": _SSHD_ROW,
    "sshd-session": _SSHD_ROW,
    "sshd-auth": _SSHD_ROW,
    "dropbear": _linux("sshd auth", *phrases.DROPBEAR),
    "sudo": _linux("sudo auth", *phrases.SUDO, pairs=False, remote=False),
    "pkexec": _linux("auth", *phrases.PKEXEC, pairs=False, remote=False),
    "doas": _linux("auth", *phrases.DOAS, pairs=False, remote=False),
    "su": _linux("su auth", *phrases.SU, remote=False),
    "runuser": _linux("auth", *phrases.SU, remote=False),
    "login": _linux("login auth", *phrases.LOGIN),
    "systemd-logind": _linux("auth", *phrases.LOGIND),
    "polkitd": _linux("auth", *phrases.POLKITD, remote=False),
    **dict.fromkeys(("cron", "crond", "anacron", "crontab"), _CRON_ROW),
    **dict.fromkeys(
        (
            *("useradd", "usermod", "userdel", "groupadd", "groupmod", "groupdel", "gpasswd", "newgrp"),
            *("passwd", "chpasswd", "chage", "chfn", "chsh"),
        ),
        _ACCOUNT_ROW,
    ),
    "kernel": _linux("kernel", *phrases.KERNEL, names=phrases.NETFILTER, remote=False),
    **dict.fromkeys(("audit", "auditd", "audispd"), _AUDIT_ROW),
    "sysmon": _linux("sysmon", remote=False),
    "rsyslogd": _linux("rsyslog", remote=False),
    "systemd": _linux("systemd", *phrases.SYSTEMD, remote=False),
    "clamd": _linux("clamav", remote=False),
    "freshclam": _linux("clamav", remote=False),
    "guacd": _linux("guacamole"),
    **dict.fromkeys(
        ("fail2ban", "fail2ban-server", "fail2ban.actions", "fail2ban.filter"), _linux("fail2ban", *phrases.FAIL2BAN)
    ),
    "mosquitto": _row("mosquitto", *phrases.MOSQUITTO, categories="iot", remote=False),
    "dnsmasq": _row("dnsmasq", *phrases.DNSMASQ, categories="dns", remote=False),
    **dict.fromkeys(
        ("pdns", "pdns_server", "pdns_recursor", "pdns-recursor"),
        _row("pdns", *phrases.PDNS, categories="dns", remote=False),
    ),
    "unbound": _row("unbound", *phrases.UNBOUND, categories="dns", remote=False),
    "named": _row("named", *phrases.NAMED, categories="dns"),
    "vsftpd": _linux("vsftpd", *phrases.VSFTPD),
    "proftpd": _row("proftpd", *phrases.PROFTPD),
    "dovecot": _DOVECOT_ROW,
    **dict.fromkeys(("imap-login", "pop3-login", "auth-worker"), _MAIL_ROW),
    **dict.fromkeys(("smtpd", "postscreen", "submission", "smtps"), _row("postfix mail", *phrases.POSTFIX)),
    **dict.fromkeys(("sendmail", "sm-mta", "sm-acceptingconnections"), _row("sendmail mail", *phrases.SENDMAIL)),
    **dict.fromkeys(
        ("imapd", "imapd-ssl", "pop3d", "pop3d-ssl", "courieresmtpd", "courierpop3login", "imaplogin"),
        _row("courier mail", *phrases.COURIER),
    ),
    **dict.fromkeys(
        ("timsieved", "sieve", "imap", "imaps", "pop3", "pop3s", "nntp"), _row("cyrus mail", *phrases.CYRUS)
    ),
    "roundcube": _row("roundcube mail", *phrases.ROUNDCUBE),
    "sogod": _row("sogo mail"),
    "webmin": _row("webmin auth", *phrases.WEBMIN),
    **dict.fromkeys(("openvpn", "ovpn-server"), _row("openvpn vpn", *phrases.OPENVPN, pairs=False)),
    "haproxy": _row("haproxy", *phrases.HAPROXY, categories="webserver", pairs=False, reader=access.read),
    "asterisk": _row("asterisk"),
    "slapd": _row("slapd", *phrases.SLAPD, remote=False),
    "suhosin": _row("suhosin", *phrases.SUHOSIN, categories="webserver"),
    "danted": _row("dante", *phrases.DANTE),
    ACCESS_LOG: _row("", categories="webserver", pairs=False, reader=access.read),
    "nginx": _row("nginx", *phrases.NGINX, categories="webserver", pairs=False, reader=access.read),
    **dict.fromkeys(
        ("apache", "apache2", "httpd"),
        _row("apache", *phrases.APACHE, categories="webserver", pairs=False, reader=access.read),
    ),
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
