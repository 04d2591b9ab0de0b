"""Values of indicators as feeds write them: refanged, checked, in one form each; ``Refused`` says why one is not taken.

A value that would match what every host sees is refused: a domain of one label, an address that is private or of the
host itself, a network wider than ``WIDEST``.
"""

from __future__ import annotations

import ipaddress
import re

from vedette.model.event import network as as_network

KINDS = {
    "ip": "ip",
    "net": "cidr",
    "domain": "domain",
    "url": "text",
    "email": "nocase",
    "md5": "nocase",
    "sha1": "nocase",
    "sha256": "nocase",
    "sha512": "nocase",
}
"""Kinds of indicators; of each the kind of its lookup's key."""
DIGITS = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}
WIDEST = {4: 8, 6: 16}
"""The shortest prefix of a network, by version."""
MAX_VALUE = 2048
_FANGS = (
    (re.compile(r"\[\.\]|\(\.\)|\{\.\}|\[dot\]|\(dot\)|\\\.", re.IGNORECASE), "."),
    (re.compile(r"\[@\]|\[at\]|\(at\)", re.IGNORECASE), "@"),
    (re.compile(r"\[:\]"), ":"),
    (re.compile(r"\[://\]"), "://"),
    (re.compile(r"^(?:hxxp|h\*\*p|meow)(s?)(?=:)", re.IGNORECASE), r"http\1"),
    (re.compile(r"^fxp(?=:)", re.IGNORECASE), "ftp"),
)
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_URL = re.compile(r"(https?|ftp)://([^\s/?#\\]+)([^\s\\]*)", re.IGNORECASE)
_EMAIL = re.compile(r"[^\s@\"<>]{1,64}@([^\s@]+)")
_HEX = re.compile(r"[0-9a-f]*")
_LOCAL = tuple(
    ipaddress.ip_network(network)
    for network in ("0.0.0.0/8", "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
                "224.0.0.0/3", "::/127", "fc00::/7", "fe80::/10", "ff00::/8", "::ffff:0:0/96")
)  # fmt: skip
"""Networks of hosts' own; documentation's are taken, for examples."""


class Refused(ValueError):
    """The value is no indicator; the text is the reason, the same for all values of its sort."""


def refang(text: str) -> str:
    """``hxxp://evil[.]example`` as it is on the wire."""
    for fang, plain in _FANGS:
        text = fang.sub(plain, text)
    return text


def canonical(kind: str, text: object) -> tuple[str, str]:
    """Kind and value of an indicator; an address with a prefix is a network, a network of one address that address.
    Raises Refused."""
    if not isinstance(text, str) or not (text := text.strip()):
        raise Refused("no text for a value")
    if len(text) > MAX_VALUE:
        raise Refused(f"a value of more than {MAX_VALUE} characters")
    if not text.isprintable():
        raise Refused("control characters in a value")
    text = refang(text)
    if kind in ("ip", "net"):
        return _network(text)
    if kind in DIGITS:
        value = text.lower()
        if len(value) != DIGITS[kind] or not _HEX.fullmatch(value):
            raise Refused(f"not {DIGITS[kind]} hex digits for {kind}")
        return kind, value
    return kind, {"domain": _domain, "url": _url, "email": _email}[kind](text)


def _network(text: str) -> tuple[str, str]:
    try:
        network = as_network(text)
    except ValueError:
        raise Refused("not an address or network") from None
    if network.prefixlen < WIDEST[network.version]:
        raise Refused("a network wider than /8 (IPv6: /16)")
    if any(local.version == network.version and network.subnet_of(local) for local in _LOCAL):  # type: ignore[arg-type]  # of one version
        raise Refused("an address that is private or local")
    if network.num_addresses == 1:
        return "ip", str(network.network_address)
    return "net", str(network)


def _domain(text: str) -> str:
    value = text.removeprefix("*.").rstrip(".").lower()
    if not value.isascii():
        try:
            value = value.encode("idna").decode()
        except UnicodeError:
            raise Refused("not a domain name") from None
    if not _DOMAIN.fullmatch(value) or len(value) > 253:
        raise Refused("not a domain name")
    if "." not in value:
        raise Refused("a domain of one label")
    if value.rpartition(".")[2].isdigit():
        raise Refused("an address where a domain is expected")
    return value


def _url(text: str) -> str:
    match = _URL.fullmatch(text)
    if match is None:
        raise Refused("not a URL of http, https or ftp")
    return f"{match[1].lower()}://{match[2].lower()}{match[3]}"


def _email(text: str) -> str:
    match = _EMAIL.fullmatch(text)
    if match is None:
        raise Refused("not an e-mail address")
    _domain(match[1])
    return text.lower()
