"""Web access logs: the Common Log Format, with or without the combined format's referer and user agent.

``[VHOST[:PORT] ]CLIENT IDENT USER [dd/Mmm/yyyy:hh:mm:ss +zzzz] "REQUEST" STATUS BYTES [ "REFERER" "USER-AGENT"]``,
then anything; of a line that a relay has cut what there is. HAProxy's log of requests and mod_ssl's (``[TIME] CLIENT
PROTOCOL CIPHER "REQUEST" BYTES``) have the same fields, under the names of Sigma's ``webserver`` category (W3C extended
log format), and ``src_ip`` and ``user`` beside them. ``-`` is no value. Values stand as in the line: the server's own
escapes (``\\"``, ``\\xhh``) are not undone.

A client shapes the request, and all that servers answer is read: ``METHOD URI [VERSION]`` with any number of blanks
between and behind them. Of another request there is ``cs-request`` alone. ``cs-uri-stem`` is the path that is served:
without a scheme and host before it (``GET http://h/x``), a query or a ``#`` behind it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain

from vedette.decode.computed import Cut, Part
from vedette.decode.formats.base import Gives, named

_TIME = r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}"
_STAMPED = re.compile(rf"\[{_TIME}".encode())
_HEADER = re.compile(rb"[{<]|(?:[A-Z][a-z]{2} [ \d]\d |\d{4}-\d\d-\d\d[T ])\d\d:")
_LINE = re.compile(
    r"(?:(?P<host>\S{1,255}) (?=[0-9a-fA-F]{1,4}[.:][0-9a-fA-F.:]{1,45} ))?"
    rf"(?P<client>\S{{1,255}}) (?P<ident>\S{{1,255}}) (?P<user>.{{1,65536}}?) \[(?P<time>{_TIME})\] "
    r'"(?P<request>(?:[^"\\]++|\\.)*+)(?:" (?P<status>\d{3}|-) (?P<bytes>\d+|-)(?: [\d.-]{1,20}){0,3}'
    r'(?: "(?P<referer>(?:[^"\\]++|\\.)*+)" "(?P<agent>(?:[^"\\]++|\\.)*+)")?)?',
    re.S,
)
_TLS_START = re.compile(rf"\[{_TIME}\] \S{{1,255}} \S{{1,32}} \S{{1,64}} \"".encode())
_TLS = re.compile(
    rf"\[(?P<time>{_TIME})\] (?P<client>\S{{1,255}}) \S{{1,32}} \S{{1,64}} "
    r'"(?P<request>(?:[^"\\]++|\\.)*+)(?:" (?P<bytes>\d+|-))?',
    re.S,
)
_HAPROXY = re.compile(
    r"(?P<client>\S{1,64}):\d{1,5} \[[^\]]{1,64}\] \S+ \S+ \S+ (?P<status>-1|\d{3}) (?P<bytes>\+?\d+) "
    r'[^"]*"(?P<request>[^"]*)'
)
_METHOD = re.compile(r"[\w!#$%&'*+.^`|~-]{1,64}")
_VERSION = re.compile(r"HTTP/[\d.]{1,5}")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://[^/?#]*")
CLIENT = (
    r"\[?(?P<src_ip>[\d.]{7,15}|[0-9A-Fa-f:.]{2,45}(?=:\d{5}\])|[0-9A-Fa-f:.]{2,45}(?=\]))"
    r"\]?(?::(?P<src_port>\d{1,5}))?"
)
"""The ``IP[:PORT]`` of Apache's error log. IPv6 without brackets: five digits at its end are a port."""

_NAMES = {
    "host": ("cs-host",),
    "client": ("c-ip", "src_ip"),
    "user": ("cs-username", "user"),
    "time": ("timestamp",),
    "request": ("cs-request",),
    "status": ("sc-status",),
    "bytes": ("sc-bytes",),
    "referer": ("cs-referer",),
    "agent": ("cs-user-agent",),
    "method": ("cs-method",),
    "uri": ("cs-uri",),
    "stem": ("cs-uri-stem",),
    "query": ("cs-uri-query",),
    "version": ("cs-version",),
}
NAMES = frozenset(chain.from_iterable(_NAMES.values()))
"""All that ``read`` gives."""
_STEM = (Cut("#"), Cut("?"))
_QUERY = (Cut("?", after=True),)
URI = {"cs-uri-stem": Part((_STEM,), unless=":"), "cs-uri-query": Part((_QUERY,))}
"""All that ``uri_fields`` gives, as parts of the URI."""
_REST = Cut(" ", after=True)
_TARGETS = ((_REST,), (_REST, Cut(" ", last=True)))
REQUEST = {
    "cs-request": Part(),
    "cs-method": Part(((Cut(" "),),)),
    "cs-uri": Part(_TARGETS),
    "cs-uri-stem": Part(tuple((*target, *_STEM) for target in _TARGETS), unless=":"),
    "cs-uri-query": Part(tuple((*target, *_QUERY) for target in _TARGETS)),
    "cs-version": Part(((_REST, Cut(" ", after=True, last=True)),)),
}
"""All that ``request_fields`` gives, as parts of the request."""
GIVES = Gives("its time and quote", named(sorted(NAMES)))
PROXY_GIVES = Gives("", (*GIVES.fields, *named(["c-uri", "action"])))


def looks_like(raw: bytes) -> bool:
    """Whether ``raw`` begins like a line of an access log, up to the quote of its request."""
    if raw[:1] == b"[":
        return _TLS_START.match(raw) is not None
    at = raw.find(b'] "')  # a client's name may hold anything but the quote
    return at > 31 and _STAMPED.match(raw, at - 27, at) is not None and _HEADER.match(raw) is None


def read(message: str) -> dict[str, str]:
    """The fields of one line; empty when it is none."""
    line = next((line for pattern in (_LINE, _TLS, _HAPROXY) if (line := pattern.match(message))), None)
    if line is None:
        return {}
    return as_fields(line.groupdict()) | request_fields(line["request"])


def request_fields(request: str) -> dict[str, str]:
    """The fields of a request's first line: ``cs-request``, and its parts where it has them."""
    fields = as_fields({"request": request})
    method, _, rest = request.partition(" ")
    target = rest.strip(" ")
    before, _, version = target.rpartition(" ")
    if _VERSION.fullmatch(version):
        target = before.rstrip(" ")
    elif target[:1] == "/" or method == "CONNECT" or _ORIGIN.match(target):
        version = ""
    else:
        return fields
    if not target or not _METHOD.fullmatch(method):
        return fields
    return fields | as_fields({"method": method, "uri": target, "version": version}) | uri_fields(target)


def uri_fields(uri: str) -> dict[str, str]:
    """The path of a URI, and its query where it has any."""
    origin = _ORIGIN.match(uri)
    stem = (uri[origin.end() :] if origin else uri).partition("#")[0].partition("?")[0]
    return as_fields({"stem": stem, "query": uri.partition("?")[2]})


def as_fields(groups: Mapping[str, str | None]) -> dict[str, str]:
    """Return the parts of a line (keys of ``_NAMES``) under the names that they have as fields."""
    return {name: value for group, value in groups.items() if value and value != "-" for name in _NAMES.get(group, ())}
