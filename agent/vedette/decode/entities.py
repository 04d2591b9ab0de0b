"""Who and what an event is about: typed entities out of its fields, by one table for all taxonomies.

A field's name is compared in lower case without ``_ - . @`` and blanks, so that ``src_ip``, ``SrcIp``, ``src.ip`` and
``source.ip`` need few rows; nested objects count by their dotted names. Every value is checked for what its row says it
is: an address must parse, a hash must be hex of a known length; a host that is an address becomes an ``ip``. What fails
is left out, never passed on. In texts (command lines) only URLs are looked for. Entities are in the order of the
fields, without doubles, at most ``MAX_ENTITIES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from vedette.decode.values import Value
from vedette.model.event import Entity, address

MAX_ENTITIES = 32
MAX_VALUES = 1024
"""Values of one event that are looked at."""
MAX_KEPT = 256
"""Characters of a name or a value up to which what it means is remembered, of the last few thousand."""

_TABLE = {
    "ip": """
        ip ipaddr ipaddress ipaddresses src srcip source sourceip sourceaddress srcaddr srcipaddr dst dstip dest destip
        destinationip destinationaddress dstaddr dstipaddr clientip clientaddress client clientipaddress cip sip rip lip
        remoteip remoteaddr remoteaddress rhost hostip serverip hostaddress calleripaddress idorigh idresph
        sourceipaddress destinationipaddress actorip xforwardedfor originip attackerip addr
        """,
    "user": """
        user username userid targetuser byuser account accountname acct suser duser srcuser dstuser ruser csusername
        targetusername subjectusername targetuserid sourceuser sourceusername sourceuserid destinationuser loginname
        usereffectivename actor subjectuser initiatinguser useridentityusername login parentuser usr
        """,
    "host": """
        host hostname hosts computer computername workstation workstationname destinationhostname dsthost desthost
        destinationhost sourcehostname srchost sourcehost hosthostname agenthostname observername machine machinename
        servername destinationaddressname shost dhost dvchost
        """,
    "hash": """
        hash hashes md5 sha1 sha256 sha512 imphash filehash filehashmd5 filehashsha1 filehashsha256 filehashsha512
        processhashmd5 processhashsha1 processhashsha256 processpeimphash hashmd5 hashsha1 hashsha256 dllhashsha256
        """,
    "domain": """
        domain dnsdomain query queryname dnsquery dnsquestionname cshost destinationdomain urldomain rdns
        tlsclientservername tlssni sni servernameindication requestedhost
        """,
    "url": "url uri curi urloriginal urlfull httprequestreferrer csreferer csreferrer referer referrer requesturl",
    "user_agent": "useragent csuseragent cuseragent useragentoriginal httpuseragent ua",
    "device": """
        device deviceid devicename clientid serial serialnumber sensor sensorid sensorname imei deveui machineid
        gatewayid gateway nodeid assetid thingname iface
        """,
    "text": "command commandline processcommandline parentcommandline processargs cmd cmdline argv scriptblocktext",
}
KINDS = tuple(kind for kind in _TABLE if kind != "text")
"""Kinds of entities; what texts are looked through for is among them."""
_KINDS = {name: kind for kind, names in _TABLE.items() for name in names.split()}

_SEPARATORS = str.maketrans("", "", "_-.@ ")
NOTHING = frozenset({"", "-", "?", "none", "null", "unknown", "(unknown)", "n/a", "na", "(null)"})
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?")
_DOMAIN = re.compile(r"(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.){1,32}[A-Za-z][A-Za-z0-9-]{1,62}\.?")
OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
FOUR = re.compile(rf"{OCTET}(?:\.{OCTET}){{3}}")
"""An IPv4 address."""
_HEX = re.compile(r"(?:(?:MD5|SHA-?1|SHA-?256|SHA-?384|SHA-?512|IMPHASH)[=:] ?)?([0-9A-Fa-f]{32,128})", re.I)
_HASH_LENGTHS = frozenset({32, 40, 64, 96, 128})
_URL = re.compile(r"(?:https?|ftp|tftp|mqtts?|wss?)://[^\s\"'<>|;`)\\]{1,2048}", re.I)
_URL_HOST = re.compile(r"[a-z]+://(?:[^/@\s]*@)?(\[[0-9a-f:.]+\]|[^/:?#\s]+)", re.I)


def entities(fields: Mapping[str, Value], host: str | None) -> tuple[Entity, ...]:
    """The entities of an event with these ``fields`` (flat or nested) that happened on ``host``."""
    unique: dict[Entity, None] = {}
    if host:
        unique.update(dict.fromkeys(of_host(host)))
    nested = len(fields) > MAX_VALUES or not _NESTED.isdisjoint(map(type, fields.values()))
    for name, value in leaves(fields) if nested else fields.items():
        kind = _kind_of(name) if len(name) <= MAX_KEPT else _KINDS.get(name.lower().translate(_SEPARATORS))
        if kind is None or (type(value) is not str and type(value) is not int):
            continue
        for entity in _read_again(kind, str(value)):
            unique[entity] = None
        if len(unique) >= MAX_ENTITIES:
            break
    return tuple(unique)[:MAX_ENTITIES]


def of_field(name: str, text: str) -> Iterable[Entity]:
    """The entities of one field's value."""
    kind = _kind_of(name) if len(name) <= MAX_KEPT else _KINDS.get(name.lower().translate(_SEPARATORS))
    return () if kind is None else _read_again(kind, text)


def of_host(host: str) -> Iterable[Entity]:
    """The entity that a host is."""
    return _of_host(host) if len(host) <= MAX_KEPT else _host(host)


def kind_of(name: str) -> str | None:
    """The kind of entity that a field of this name holds; None: none, or texts."""
    kind = _kind_of(name) if len(name) <= MAX_KEPT else None
    return None if kind == "text" else kind


_NESTED = frozenset({dict, list})


MAX_NAME = 4096
TOO_LONG = ".".join("x" * 100)
"""Stands for a longer name of a nested value: each of an event that nests a thousand long ones would take a megabyte.
It has more parts than ``redact.DEPTH``, so it counts as redacted."""


def below(name: str, key: str) -> str:
    """The dotted name of what an object of this ``name`` has as ``key``."""
    return f"{name}.{key}" if len(name) + len(key) < MAX_NAME else TOO_LONG


def leaves(fields: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """Names and values, those within objects and lists by their dotted names, in order; at most ``MAX_VALUES`` values
    are visited."""
    stack: list[tuple[str, Value]] = list(reversed(list(fields.items())))
    for _ in range(MAX_VALUES):
        if not stack:
            return
        name, value = stack.pop()
        if isinstance(value, dict):
            stack.extend((below(name, key), inner) for key, inner in reversed(list(value.items())))
        elif isinstance(value, list):
            stack.extend((name, inner) for inner in reversed(value[:MAX_VALUES]))
        else:
            yield name, value


@lru_cache(maxsize=1024)
def _of_host(host: str) -> dict[Entity, None]:
    return dict.fromkeys(_host(host))


@lru_cache(maxsize=4096)
def _kind_of(name: str) -> str | None:
    """By the name of a field; None: its values are not looked at."""
    return _KINDS.get(name.lower().translate(_SEPARATORS))


def _read_again(kind: str, text: str) -> Iterable[Entity]:
    """The entities of a value of this kind: an attacker's address or name comes again and again."""
    return _remembered(kind, text) if len(text) <= MAX_KEPT else _read(kind, text)


def _read(kind: str, text: str) -> tuple[Entity, ...]:
    text = text.strip()
    return () if text.lower() in NOTHING else tuple(_CHECKS[kind](text))


_remembered = lru_cache(maxsize=4096)(_read)


def _ip(text: str) -> Iterator[Entity]:
    if FOUR.fullmatch(text):  # as ``ipaddress`` writes it, which takes ten times as long
        yield Entity("ip", text)
        return
    if re.fullmatch(r"[\d.]{7,15}:\d{1,5}", text):
        text = text.partition(":")[0]
    if parsed := address(text):
        yield Entity("ip", str(parsed))


def _host(text: str) -> Iterator[Entity]:
    address = list(_ip(text))
    if address:
        yield from address
    elif len(text) <= 253 and _HOST.fullmatch(text):
        yield Entity("host", text.lower().removesuffix("."))


def _user(text: str) -> Iterator[Entity]:
    if len(text) <= 256 and text.isprintable():
        yield Entity("user", text)


def _hash(text: str) -> Iterator[Entity]:
    for match in _HEX.finditer(text[:2048]):
        if len(match[1]) in _HASH_LENGTHS:
            yield Entity("hash", match[1].lower())


def _domain(text: str) -> Iterator[Entity]:
    if len(text) <= 253 and _DOMAIN.fullmatch(text):
        yield Entity("domain", text.lower().removesuffix("."))
    else:
        yield from _ip(text)


def _text(text: str) -> Iterator[Entity]:
    for match in _URL.finditer(text[:65536]):
        yield Entity("url", match[0])
        if place := _URL_HOST.match(match[0]):
            yield from _domain(place[1])


def _user_agent(text: str) -> Iterator[Entity]:
    yield Entity("user_agent", text[:1024])


def _device(text: str) -> Iterator[Entity]:
    if len(text) <= 256 and text.isprintable():
        yield Entity("device", text)


_CHECKS: Mapping[str, Callable[[str], Iterator[Entity]]] = {
    "ip": _ip,
    "user": _user,
    "host": _host,
    "hash": _hash,
    "domain": _domain,
    "url": _text,
    "user_agent": _user_agent,
    "device": _device,
    "text": _text,
}
