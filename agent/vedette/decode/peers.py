"""Who and from where, of a message that no pattern of its program reads: what daemons of all kinds say of logins.

``read`` looks at every address of a message and at the words before it: ``from``, ``rhost=``, ``client [`` … name the
peer; ``to``, ``on``, ``server``, ``relay=`` … anything but the peer; ``IP:``, ``host`` or no word at all leave it open.
The address is ``src_ip`` when it is the only one that can be meant; a wrong peer is worse than none, so that

* two peers that differ give none: one of them may be a name that a client chose;
* ``from ADDRESS … from …`` gives none: what comes first may be a name;
* any other address in question (one that no word names, too) contradicts the one that a word names;
* the value of a key (``nas_ip=``) or label (``Device:``) that is not known, NAME[ADDRESS] behind a word that is not,
  and whatever a client chose (what its browser calls itself, a name in quotes that it logs in with) is no peer;
* an address that no word names counts only where a login, an access or an attack is spoken of, beside a verdict;
* addresses in URLs and paths, behind ``@``, of networks and in longer names are none.

Values are cut out as they stand: without brackets and port, of an IPv4-mapped address the IPv4 part. ``FORMS`` are the
layouts whose words do not tell. Time is linear in the message; one of more than ``MAX_MESSAGE`` characters tells
nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain, islice
from typing import NamedTuple

from vedette.decode.aliases import ALIASES
from vedette.decode.computed import Part
from vedette.decode.entities import FOUR
from vedette.decode.values import lowered

FIELDS = ("src_ip", "src_port", "user")
"""All that ``read`` gives."""

NAMES = frozenset({*FIELDS, *(other for field in FIELDS for other in ALIASES.get(field, ()))})
"""These fields under all of their names."""

MAX_ADDRESSES = 16
"""Addresses of a message that are looked at; with more it speaks of too many."""
_NOBODY = frozenset({"0.0.0.0", "::", "255.255.255.255"})
MAX_PLAIN = 1024
"""Characters of a message in which a user is looked for, or an address that no word names; what is longer tells more
than a login."""
MAX_MESSAGE = 8192
"""Length up to which a message is read, in characters: in longer ones the peer may be named anywhere."""
MAX_CANDIDATES = 64
"""Texts of a message that are looked at as addresses, times among them; with more it speaks of too many."""
MAX_BEFORE = 64
"""Characters before an address in which its word is looked for."""

_PEER = "peer"
_OTHER = "other"
_OPEN = "open"
_ROLES = {
    _PEER: """
        from rhost rip remote client clients peer attacker hacker intruder offender source src origin originating
        source.ip connecting caller calling visitor callerip caller_ip cip c-ip srcip src_ip src-ip src-addr sourceip
        source_ip source-ip saddr
        source-address sourceaddress srcaddr clientip client_ip client-ip clientaddr client_addr client_address
        clientaddress clienthost remoteip remote_ip remote-ip remoteaddr remote_addr remote-addr remote_address
        remoteaddress remotehost remote_host peerip peer_ip peeraddr peer_addr from_ip fromip fromhost from_host
        attackerip attacker_ip calleripaddress callerid_ip raddr viewer
        userip user_ip user-ip clientipaddress client_ip_address sourceipaddress source_ip_address remoteipaddress
        remote_ip_address peeraddress peer_address senderip sender_ip originip origin_ip
        """,
    _OTHER: """
        to on at by in into via lip local localaddress localaddr local_addr localip local_ip laddr dst dest
        destination dstip dst_ip dst-ip destip dest_ip destinationip destination_ip daddr dstaddr server servers
        serverip server_ip relay listen listening listener bind bound binding interface i upstream backend vserver vip
        proxy gateway nameserver dns ntp target against radius tacacs tacacs+ ldap ldaps kdc kerberos nas router
        controller switch domain realm sip sips resolver master slave primary replica forwarder towards nat nat_ip natip
        assigned pool network subnet netmask mask version release reach reaching contact contacting resolve resolving
        x-real-ip x-forwarded-for x_forwarded_for forwarded forwarded-for xff http https through endpoint callid virtual
        call-id firmware ping
        """,
    _OPEN: """
        ip ips ipv4 ipv6 ip-address ip_address ipaddress ipaddr ip_addr addr address host hostname hostip host_ip
        udp tcp tls ws wss af_inet af_inet6 action for is was the unknown blocking blocked block banning banned ban
        cli dropping dropped rejecting rejected denied refused
        """,
}
_ROLE = {word: role for role, words in _ROLES.items() for word in words.split()}

_OF_SOMEONE = """
    ip ips ipv4 ipv6 ip-address ip_address ipaddress ipaddr ip_addr addr address host hostname hostip
"""
_NOUNS = frozenset(_OF_SOMEONE.split())
"""Whose they are the word before them says."""
_NOBODYS = frozenset({"a", "an", "and", "or", "with", "this", "that", "having", "whose", "auth"})
"""Words before such a noun, or a label, that say nothing of whose it is."""


_ACCESS = (
    *("login", "logon", "logged", "log in", "auth", "passw", "credential", "account", "sasl", "user", "access", "spam"),
    *("attempt", "attack", "hack", "intru", "brute", "abus", "violat", "rcon", "probe", "blacklist", "rbl", "exploit"),
)
_REFUSAL = (
    *("denied", "deny", "reject", "illegal", "unauthor", "forbidden", "not allowed", "not permitted", "block", "ban "),
    *("banned", "disallow", "blacklist"),
)
_VERDICT = (
    *_REFUSAL,
    *("fail", "invalid", "incorrect", "wrong", "bad ", "unknown", "refus", "mismatch", "not found", "no such", "error"),
    *(
        "not exist",
        "nonexist",
        "non-exist",
        "doesn't",
        "lock",
        "rbl",
        "too many",
        "too much",
        "success",
        "accepted",
        "drop",
    ),
    *("logged in", "disabled", "expired", "exceeded", "attack", "hack", "exploit", "not match", "incorrect"),
)
_TRAFFIC = (
    *("connect", "session", "handshake", "ssl", "scan", "malformed", "suspicious", "request", "query", "refus"),
    *("failure from", "failures from", "failed from", "registr", "tls ", "packet", "smtp", "ftp", "telnet", "dropped"),
    *("[client ", "src_ip="),
)
_OUTGOING = (
    "connection refused",
    "connect to",
    "to connect",
    "not connect",
    "t connect",
    "unreachable",
    "no route to",
    "said: ",
    "refused to talk",
)
"""Words about a server that was called, not about a caller."""

_V4 = re.compile(r"[0-9][0-9]{0,2}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(?![\w-]|\.\w)")
_NOT_BEFORE = frozenset("_.@-/")
_V6 = re.compile(r"(?<![\w.:@])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}?(?=(?::\d{5}|%[\w.-]{1,32})?(?![\w:%]|\.\d))")
_PORT = re.compile(r"(?:%[\w.-]{1,32})?[\])>'\"]{0,2}(?::|#| port |\()(\d{1,5})(?![\w.])|/(\d{3,5})(?![\w.])")
_NETWORK = re.compile(r"/\d{1,2}(?![\w.])")
_KEY = re.compile(r"([A-Za-z_][\w.-]*)=[\"'\[(<]{0,2}\Z")
_LABEL = re.compile(r"(?<![\w.-])[A-Za-z_][\w-]*[\"']?:[ \"'\[(<]{0,3}\Z")
_BROWSER = "Mozilla/"
_AGENT = re.compile(_BROWSER + r"[^\"]*")
"""The name that a browser calls itself by, with versions; without quotes no one knows where it ends."""
_WORDS = re.compile(r"->|=>|//|(?<![\w.@+-])\w(?:[\w.@+]|-(?!>))*")
_MAPPED = "::ffff:"
_FROM_A_NAME = re.compile(r" from [\[('\"<]?[\w-]+\.[\w.-]*[A-Za-z]")

_QUOTED = (
    r"(?:'([^']{1,256})'|\"([^\"]{1,256})\"|`([^'`]{1,256})['`]|\[([^\]\[]{1,256})\]"
    r"|<([^<>@\s]{1,256}(?:@[^<>\s]{1,256})?)>)"
)
_NAME = r"([^\s'\"`()\[\]<>,;:=|]{1,256})"
_QUOTED_USERS = (
    rf"\b(?:user(?:[ _]?(?:name|id))?|login(?: ?name)?|account|acct|uname)(?: (?:is|was))?[ :=]{{1,3}}{_QUOTED}",
    rf"\b(?:for|as)(?: user(?:name)?| account| login)?:? {_QUOTED}",
)
_USERS = (
    *_QUOTED_USERS,
    rf"\b(?:username|user name|user|login|account)[=:] ?{_NAME}",
    rf"\b(?:user|username|account) {_NAME} (?:from |not found|failed|logged|doesn't|does not|is |was |has )",
)
"""Whom a text in lower case names."""
_USER_BEFORE = re.compile(
    rf"\b(?:for|by|as|user|username|account|login)(?: (?:invalid|unknown|illegal))? {_NAME}(?: with)? from \W{{0,3}}\Z"
)
_NO_USERS = """
    a an the user users name login logon account attempt attempts request connection access session for from failed
    failure failures invalid unknown illegal authentication password not is was with by at on to and or error
"""
_NO_USER = frozenset(_NO_USERS.split())

_FORM_ALONE = " authenticator failed for "
"""Its messages have one layout: where that is not met, a client's name broke it."""
_IP = r"(?P<src_ip>[0-9A-Fa-f.:]{2,45})"
FORMS = (
    # Asterisk: what a client calls itself stands before, and its Call-ID behind "failed for" as well
    ('RemoteAddress="IPV', rf'.*,RemoteAddress="IPV[46]/\w{{2,4}}/{_IP}/(?P<src_port>\d{{1,5}})"'),
    (
        " failed for '",
        r"(?>.*? failed for ')(?:.* failed for '|"
        r"\[?(?P<src_ip>[\d.]{7,15}|[0-9A-Fa-f:.]{2,45}(?=[\]']))\]?(?::(?P<src_port>\d{1,5}))?')",
    ),
    # Exim: H=NAME (HELO) [IP]:PORT I=[OURS]; the HELO may hold an address, and so may what follows. Or it delivers
    (
        "H=",
        rf"(?:[^<]{{0,96}} )?(?:[=*-]>|>>|==|\*\*) |(?:.{{0,512}}? )?H=(?:[^\s(\[]{{1,255}} )?"
        rf"(?:\((?>[^\s()]{{0,255}}(?:\(\))?)\) )?\[{_IP}\](?::(?P<src_port>\d{{1,5}}))?+(?!:? [A-Z][A-Za-z]* [a-z])",
    ),
    (
        _FORM_ALONE,
        rf"(?!.*\) \[.*\) \[).{{0,64}}? authenticator failed for "
        rf"(?:[^\s(\[]{{1,255}} )?(?:\([^\s()]{{0,255}}\) )?\[{_IP}\]"
        r"(?::(?P<src_port>\d{1,5}))?(?: I=\[[^\]]{1,64}\]\S{0,6})?(?: U=\S{1,255})?: "
        r"(?:.{0,512}\(set_id=(?P<user>.*)\))?",
    ),
    # squid's own access log: TIME DURATION CLIENT RESULT/STATUS BYTES
    ("/", rf"(?:\w{{1,16}}: )?(?:\d{{10}}\.\d{{3}})? {{0,16}}\d{{1,10}} {_IP} [A-Z_]{{3,32}}/\d{{3}} \d"),
    # 3proxy: TIME SERVICE.PORT ERROR USER CLIENT:PORT TARGET:PORT …
    (
        ":",
        r"(?:\S{1,32} ){0,2}(?:PROXY|SOCK[45S]?|SOCKS[45]?|POP3P|SMTPP|FTPPR|TCPPM|UDPPM|ADMIN|DNSPR)\.\d{1,5} "
        r"\d{5} "
        rf"(?:-|(?P<user>\S{{1,256}})) {_IP}:(?P<src_port>\d{{1,5}}) ",
    ),
    # pure-ftpd: (USER@HOST) [LEVEL]
    ("@", rf"\((?:\?|(?P<user>[^\s()]{{1,256}}))@{_IP}\) \[[A-Z]{{4,8}}\] "),
    # MySQL: 'USER'@'HOST'
    ("'@'", rf".*'@'.*'@'|.{{0,128}}?(?:user|connection) (?:.{{0,300}} )??'(?P<user>[^']{{0,128}})'@'{_IP}'(?: |$)"),
    # Zimbra: [ip=WHOSE CONNECTION;oip=THE CLIENT'S;]
    (";oip=", rf"(?:(?!;ua=).){{0,512}}?;oip={_IP};(?:.{{0,1024}}?\baccount=(?P<user>[^;\s]{{1,256}});)?"),
    # Drupal: SITE|TIME|TYPE|IP|URI|REFERER|UID|LINK|MESSAGE
    ("|user|", rf"[^|]{{1,255}}\|\d{{10}}\|user\|{_IP}\|"),
    # Oracle's messaging server: tr="TCP|OURS|PORT|THEIRS|PORT"
    (' tr="', rf'.{{0,512}}? tr="\w{{3,4}}\|[^|"]{{1,64}}\|\d{{1,5}}\|{_IP}\|(?P<src_port>\d{{1,5}})"'),
    # lighttpd: what a client calls itself stands before
    (" IP: ", rf".* username: (?P<user>.*) IP: {_IP}\s*\Z"),
    # Froxlor: before a login its user is the address
    ('{"source":"login"', rf'.*\{{"source":"login","action":"\d{{1,5}}","user":"{_IP}"\}}[ \[\]]*\Z'),
    # SOGo, whose client may have come by way of others: of private networks, or it may have named one itself
    (
        "SOGoRootPage ",
        rf".{{0,64}}?SOGoRootPage Login from '(?:{_IP}"
        r"(?:, (?:10|127|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.[\d.]{3,11})*' for user '(?P<user>[^']{0,256})')?",
    ),
    # scanlogd: SOURCE[:PORT] to TARGET ports …
    (" ports ", r"(?P<src_ip>[\d.]{7,15}|[0-9A-Fa-f:]{2,45})(?::(?P<src_port>\d{1,5}))? to \S{1,64} ports \d"),
    # NSD: ratelimit block ZONE type TYPE target NETWORK query IP TYPE
    (" ratelimit ", rf".{{0,64}}? ratelimit (?:block|unblock) .{{1,512}}? query {_IP} "),
    # Samba's audit: user [DOMAIN]\[USER] … remote host [ipv4:IP:PORT]
    (
        "remote host [",
        r".* remote host \[.* remote host \[|"
        rf".{{0,128}}?user \[[^\]]{{0,256}}\]\\\[(?P<user>[^\]]{{0,256}})\] .{{1,512}} remote host \[ipv[46]:{_IP}:"
        r"(?P<src_port>\d{1,5})\]",
    ),
)
"""(What a message must hold, the layout from its start: where what tells the peer stands twice, one without a peer)."""


@cache
def forms() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return ``FORMS``, compiled with the first message with an address."""
    return tuple((needle, re.compile(pattern, re.S)) for needle, pattern in FORMS)


@cache
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, patterns))


class _Address(NamedTuple):
    text: str
    start: int
    end: int


PLAIN = {"src_ip": Part(unless="[:")}
"""The parts of an address that ``plain`` gives."""
ENDPOINT = {**PLAIN, "src_port": Part((), unless="[:")}
"""The parts of a text that ``endpoint`` gives."""


def plain(address: str) -> str:
    """An address without brackets and zone and, when it is IPv4-mapped, as IPv4; any other text as it is."""
    if address[:1] == "[" and address[-1:] == "]":
        address = address[1:-1]
    if "%" in address and ":" in address:
        address = address.partition("%")[0]
    if address[:7].lower() == _MAPPED and "." in address:
        address = address[7:]
    return address


_ENDPOINT = re.compile(
    r"(?:(?P<v4>[\d.]{7,15})|\[(?P<v6>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>\d{1,5}))?|(?P<bare>[0-9A-Fa-f:.]{2,45})"
)


def endpoint(text: str) -> dict[str, str]:
    """``src_ip`` and ``src_port`` of ``ADDRESS[:PORT]``; empty for any other text."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or not _is_address(address := plain(match["v4"] or match["v6"] or match["bare"])):
        return {}
    return {"src_ip": address, "src_port": match["port"]} if match["port"] else {"src_ip": address}


def read(message: str, user_known: bool = False) -> dict[str, str]:
    """``src_ip``, ``src_port`` and, unless it is known, ``user``, as far as ``message`` tells them."""
    if len(message) > MAX_MESSAGE:
        return {}
    addresses: list[_Address] = []
    lower = lowered(message)
    if message.count(".") >= 3 or "::" in message or message.count(":") >= 7:
        for needle, form in forms():
            if needle in message and (match := form.match(message)):
                return _of_form(match)
            if needle is _FORM_ALONE and needle in message:
                return {}
        # A browser's name without quotes may end anywhere: an address behind it is no peer, but contradicts others.
        spans = [(a, b) for a, b in claimed(message, lower) if message[a - 1] == '"' or message[a : a + 8] != _BROWSER]
        addresses = list(islice(_addresses(message, spans), MAX_ADDRESSES + 1))
    fields: dict[str, str] = {}
    peer = _peer(message, lower, addresses) if 0 < len(addresses) <= MAX_ADDRESSES else None
    if peer is not None:
        fields["src_ip"] = peer.text
        if port := _PORT.match(message, peer.end):
            fields["src_port"] = port[1] or port[2]
    elif addresses:
        return fields
    if user_known or len(message) > MAX_PLAIN or not (_speaks_of(lower, _ACCESS) and _speaks_of(lower, _VERDICT)):
        return fields
    if user := _user(message, lower, peer):
        fields["user"] = user
    return fields


def claimed(message: str, lower: str = "") -> list[tuple[int, int]]:
    """Where ``message`` has what a client chose: its browser, the names in quotes it logs in with."""
    spans = [match.span() for match in _AGENT.finditer(message)] if _BROWSER in message else []
    lower = lower or lowered(message)
    for pattern in _compiled(_QUOTED_USERS) if any(map(message.__contains__, "'\"`[<")) else ():
        spans += (match.span(match.lastindex or 0) for match in pattern.finditer(lower))
    return spans


def agree(pairs: Mapping[str, str | list[str]]) -> bool:
    """Whether all of ``pairs`` whose names are a peer's have one address between them."""
    named = (value for name, value in pairs.items() if _ROLE.get(name.lower()) is _PEER)
    values = set(chain.from_iterable([value] if isinstance(value, str) else value for value in named))
    return len(values) < 2 or sum(map(_is_address, values)) < 2


def _speaks_of(lower: str, words: tuple[str, ...]) -> bool:
    return any(map(lower.__contains__, words))  # faster than a pattern


def _of_form(match: re.Match[str]) -> dict[str, str]:
    fields = {name: value for name, value in match.groupdict().items() if value}
    fields["src_ip"] = plain(fields.get("src_ip", ""))
    return fields if _is_address(fields["src_ip"]) else {}


def _peer(message: str, lower: str, addresses: list[_Address]) -> _Address | None:
    """The one of ``addresses`` that can be meant, None for none or more."""
    peers: dict[str, _Address] = {}
    named: dict[str, _Address] = {}
    bare: dict[str, _Address] = {}
    for address in addresses:
        role = _role(message, address)
        if role is not _OTHER:
            (peers if role is _PEER else named if role is _OPEN else bare).setdefault(address.text, address)
    if len({**peers, **named, **bare}) != 1:
        return None
    if peers:
        if not any(_speaks_of(lower, words) for words in (_ACCESS, _REFUSAL, _TRAFFIC)):
            return None
    else:
        peers = named or bare
        if len(message) > MAX_PLAIN or _speaks_of(lower, _OUTGOING):
            return None
        verdict = _speaks_of(lower, _ACCESS) and _speaks_of(lower, _VERDICT)
        if not verdict and not (peers is named and _speaks_of(lower, _REFUSAL)):
            return None
    peer = next(iter(peers.values()))
    if peer.text in _NOBODY or message.rfind(_BROWSER, 0, peer.start) > message.rfind('"', 0, peer.start):
        return None
    return None if _FROM_A_NAME.search(message, peer.end) else peer


def _is_address(text: str) -> bool:
    if FOUR.fullmatch(text):  # nearly all, in a tenth of the time
        return True
    if ":" not in text:
        parts = text.split(".")
        return len(parts) == 4 and all(part.isdigit() and len(part) < 4 and int(part) < 256 for part in parts)
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return any("0" <= char <= "9" for char in text)


def _addresses(message: str, claimed: list[tuple[int, int]]) -> Iterator[_Address]:
    """The addresses of ``message`` but for ``claimed``, first all of IPv4, with where they begin (a mapped one's
    prefix) and end."""
    fours = _V4.finditer(message) if message.count(".") >= 3 else iter(())
    sixes = _V6.finditer(message) if "::" in message or message.count(":") >= 7 else iter(())
    candidates = list(islice(chain(fours, sixes), MAX_CANDIDATES + 1))
    for match in candidates if len(candidates) <= MAX_CANDIDATES else ():
        text, (start, end) = match[0], match.span()
        if not _is_address(text) or _NETWORK.match(message, end) or any(a <= start < b for a, b in claimed):
            continue
        if ":" in text:
            yield _Address(text, start, end)
            continue
        before = message[start - 1 : start] if start else ""
        if before not in _NOT_BEFORE and not before.isalnum() and message[max(0, start - 3) : start].lower() != "rv:":
            mapped = message[max(0, start - 7) : start].lower() == _MAPPED
            yield _Address(text, start - 7 if mapped else start, end)


def _role(message: str, address: _Address) -> str:
    """Say what the words before ``address`` make of it: the peer, another, open, or empty: no word says so."""
    start = address.start
    floor = max(0, start - MAX_BEFORE)
    before = message[floor:start]
    if key := _KEY.search(before):
        return _ROLE.get(key[1].lower(), _OTHER)
    bracketed = before[-1:] in ("[", "(", "<")
    label = _LABEL.search(before) is not None
    role = ""
    noun = -1
    of_a_name = False
    for match in reversed(list(_WORDS.finditer(message, floor, start))):
        word = match[0].lower()
        meaning = _ROLE.get(word)
        if meaning is _OPEN:
            role = _OPEN
            noun = match.start() if word in _NOUNS and message[match.end() : match.end() + 1] != "=" else -1
        elif meaning is not None:
            return meaning
        elif word in ("->", "=>", "//"):
            return _OTHER
        elif bracketed and not role and not word.endswith("."):
            bracketed, of_a_name = False, message[match.end() : start] in ("[", "(", "<")  # NAME[ADDRESS]
            if label and not _speaks_of(word, _VERDICT):
                return _OTHER
        elif (of_a_name and not role) or (
            not _speaks_of(word, _VERDICT)
            and word not in _NOBODYS
            and (
                (label and not role)
                or (noun >= 0 and word != "user" and word[-1].isalpha() and message[match.end() : noun].isspace())
            )
        ):
            return _OTHER
        else:
            break
    if role or not message[:start].rstrip(" ")[-1:].isalnum():
        return role
    return _OTHER


def _user(message: str, lower: str, peer: _Address | None) -> str | None:
    """Whom ``message`` names, as one who logs in, from ``peer``."""
    start = 0 if peer is None else peer.start
    if (before := _USER_BEFORE.search(lower, max(0, start - 300), start)) and before[1] not in _NO_USER:
        return message[slice(*before.span(1))]
    for pattern in _compiled(_USERS):
        if match := pattern.search(lower):
            user = message[slice(*match.span(match.lastindex or 0))].rstrip(".")
            if user and user.lower() not in _NO_USER and (peer is None or user != peer.text):
                return user
    return None
