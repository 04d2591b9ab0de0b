r"""Web servers' other logs: error logs of Apache and nginx, access logs as JSON (nginx, Caddy, Traefik).

* Apache: ``[Www Mmm dd hh:mm:ss[.µs] yyyy] [[MODULE:]LEVEL] [pid P[:tid T]] [client IP[:PORT]] TEXT[, referer: R]``
* nginx: ``yyyy/mm/dd hh:mm:ss [LEVEL] P#T: [*C ]TEXT, client: IP, server: S, request: "…", host: "…", referrer: "…"``
* JSON: nginx as one configures it (the variables' own names), Caddy (``request`` as an object), Traefik
  (``RequestMethod`` …).

Fields have the names of Sigma's ``webserver`` category, cut out of the line as they stand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any

from vedette.decode.access import CLIENT, REQUEST, URI, request_fields, uri_fields
from vedette.decode.computed import WHOLE, Traced, compute
from vedette.decode.formats.base import Fields, Seen
from vedette.decode.formats.table import CADDY_HEADERS, CADDY_NAMES, CADDY_TOP_NAMES, NGINX_JSON_NAMES, TRAEFIK_NAMES
from vedette.model.times import dated, iso_time

_APACHE = re.compile(
    r"\[(?P<timestamp>[^\]]{20,40})\] \[(?:(?P<module>[\w.-]{0,64}):)?(?P<level>[a-z0-9]{1,16})\]"
    r"(?: \[pid (?P<pid>\d{1,10})(?::tid (?P<tid>\d{1,20}))?\])?"
    rf"(?: \[(?:client|remote) {CLIENT}\])?"
    r"(?: \[client [^\]\s]{1,64}\])?(?: (?P<code>AH\d{5}):)?"
)
_REFERER = re.compile(r", referer: (\S+)\s*$")
_APACHE_USER = re.compile(
    r"user (?P<user>\S{1,256}?)(?: not found| in realm .{0,256}? not found|: authentication failure)"
)

_NGINX_HEAD = re.compile(
    r"(?:(?P<timestamp>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) )?\[(?P<level>[a-z]{4,6})\] (?P<pid>\d{1,10})#(?P<tid>\d{1,10}):"
    r'(?: \*(?P<connection>\d{1,20}))?(?: user "(?P<user>[^"]{0,256})")?'
)
_NGINX_TAIL = re.compile(
    r", client: (?P<src_ip>[^\s,]{1,64})(?:, server: (?P<server>[^,]{0,256}))?"
    r'(?:, request: "(?P<request>(?:[^"\\]++|\\.)*+)")?(?:, (?:sub)?request: "[^"]*")?'
    r'(?:, upstream: "(?P<upstream>[^"]*)")?(?:, host: "(?P<host>[^"]*)")?(?:, referrer: "(?P<referer>[^"]*)")?'
)
_APACHE_TIME = re.compile(r"\w{3} (\w{3}) ([ \d]\d) (\d\d:\d\d:\d\d(?:\.\d{1,6})?) (\d{4})")


def read_apache(message: str) -> Fields:
    """The fields of a line of Apache's error log."""
    head = _APACHE.match(message)
    if head is None:
        return {}
    fields: Fields = {name: value for name, value in head.groupdict().items() if value}
    if "src_ip" in fields:
        fields["c-ip"] = fields["src_ip"]
    if referer := _REFERER.search(message, max(head.end(), len(message) - 2048)):
        fields["cs-referer"] = referer[1]
    if user := _APACHE_USER.search(message, head.end(), head.end() + 512):
        fields["user"] = fields["cs-username"] = user["user"]
    return fields


def read_nginx(message: str) -> Fields:
    """The fields of a line of nginx's error log."""
    head = _NGINX_HEAD.match(message)
    if head is None:
        return {}
    fields: Fields = {name: value for name, value in head.groupdict().items() if value}
    at = message.find(", client: ", head.end())
    # A path or a referrer may say so as well: which of them is the server's cannot be said.
    if at >= 0 and message.find(", client: ", at + 1) < 0 and (tail := _NGINX_TAIL.match(message, at)):
        groups = {name: value for name, value in tail.groupdict().items() if value}
        fields["src_ip"] = fields["c-ip"] = groups["src_ip"]
        if "request" in groups:
            fields |= request_fields(groups["request"])
        for name, field in (("host", "cs-host"), ("referer", "cs-referer"), ("server", "s-sitename")):
            if name in groups:
                fields[field] = groups[name]
        if "upstream" in groups:
            fields["upstream"] = groups["upstream"]
    if "user" in fields:
        fields["cs-username"] = fields["user"]
    return fields


def apache_time(fields: Seen, zone: tzinfo | None) -> int | None:
    match = _APACHE_TIME.fullmatch(str(fields.get("timestamp", "")))
    return None if match is None else dated(match[4], match[1], match[2], match[3], zone=zone)


def nginx_time(fields: Seen, zone: tzinfo | None) -> int | None:
    return iso_time(str(fields.get("timestamp", "")).replace("/", "-"), zone)


# --- access logs as JSON


def _name(fields: Fields, event: Mapping[str, Any], table: Mapping[str, tuple[str, ...]]) -> None:
    for own, names in table.items():
        value = event.get(own)
        if isinstance(value, Traced):
            value.give(fields, dict.fromkeys(names, WHOLE))
        elif value not in (None, "", "-"):
            fields.update((name, value) for name in names)


def _with_uri(fields: Fields) -> Fields:
    uri = fields.get("cs-uri")
    if isinstance(uri, str):
        compute(fields, uri, uri_fields, URI)
    return fields


def read_nginx_json(event: Seen) -> Fields:
    """The names of nginx's variables as Sigma's."""
    fields: Fields = {}
    if isinstance(request := event.get("request"), str):
        compute(fields, request, request_fields, REQUEST)
    _name(fields, event, NGINX_JSON_NAMES)
    return _with_uri(fields)


def read_traefik(event: Seen) -> Fields:
    """Traefik's names as Sigma's."""
    fields: Fields = {}
    _name(fields, event, TRAEFIK_NAMES)
    return _with_uri(fields)


def read_caddy(event: Seen) -> Fields:
    """Caddy's names as Sigma's."""
    request = event.get("request")
    if not isinstance(request, dict):
        return {}
    fields: Fields = {}
    _name(fields, request, CADDY_NAMES)
    headers = request.get("headers")
    for name, field in CADDY_HEADERS.items():
        if isinstance(headers, dict) and name in headers:
            fields[field] = headers[name]
    _name(fields, event, CADDY_TOP_NAMES)
    return _with_uri(fields)


def is_nginx(event: Seen) -> bool:
    return "remote_addr" in event and "status" in event and ("request" in event or "request_uri" in event)


def is_caddy(event: Seen) -> bool:
    request = event.get("request")
    return isinstance(request, dict) and "status" in event and "method" in request and "uri" in request


def is_traefik(event: Seen) -> bool:
    return "DownstreamStatus" in event and "RequestMethod" in event
