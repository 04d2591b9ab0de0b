"""Web access logs: the Common Log Format, with or without the combined format's referer and user agent.

``[VHOST[:PORT] ]CLIENT IDENT USER [dd/Mmm/yyyy:hh:mm:ss +zzzz] "REQUEST" STATUS BYTES [ "REFERER" "USER-AGENT"]``,
then anything. Fields have the names of Sigma's ``webserver`` category (W3C extended log format), and ``src_ip`` and
``user`` beside them. ``-`` is no value. Values stand as in the line: the server's own escapes (``\\"``, ``\\xhh``) are
not undone. A request that is not ``METHOD URI VERSION`` gives ``cs-request`` alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain

from vedette.decode.computed import Cut, Part
from vedette.decode.formats.base import Gives, named

_SNIFF = re.compile(rb"[^\[{<]{5,700}?\[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] \"")
_LINE = re.compile(
    r"(?:(?P<host>\S{1,255}) (?=[0-9a-fA-F]{1,4}[.:][0-9a-fA-F.:]{1,45} ))?"
    r"(?P<client>\S{1,255}) (?P<ident>\S{1,255}) (?P<user>[^\[]{1,255}?) \[(?P<time>[^\]]{26})\] "
    r'"(?P<request>(?:[^"\\]++|\\.)*+)" (?P<status>\d{3}|-) (?P<bytes>\d+|-)'
    r'(?: "(?P<referer>(?:[^"\\]++|\\.)*+)" "(?P<agent>(?:[^"\\]++|\\.)*+)")?',
    re.S,
)
_REQUEST = re.compile(
    r"(?P<method>[A-Za-z-]{1,32}) (?P<uri>(?P<stem>[^?]*)(?:\?(?P<query>.*))?) (?P<version>HTTP/[\d.]{1,5})",
    re.S,
)
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
_TARGET = (Cut(" ", after=True), Cut(" ", last=True))
REQUEST = {
    "cs-request": Part(),
    "cs-method": Part(((Cut(" "),),)),
    "cs-uri": Part((_TARGET,)),
    "cs-uri-stem": Part(((*_TARGET, Cut("?")),)),
    "cs-uri-query": Part(((*_TARGET, Cut("?", after=True)),)),
    "cs-version": Part(((Cut(" ", after=True, last=True),),)),
}
"""All that ``request_fields`` gives, as parts of the request."""
GIVES = Gives("its time and quote", named(sorted(NAMES)))


def looks_like(raw: bytes) -> bool:
    """Whether ``raw`` begins like a line of an access log, up to the quote of its request."""
    return _SNIFF.match(raw) is not None


def read(message: str) -> dict[str, str]:
    """The fields of one line; empty when it is none."""
    line = _LINE.match(message)
    if line is None:
        return {}
    return _named(line.groupdict()) | request_fields(line["request"])


def request_fields(request: str) -> dict[str, str]:
    """The fields of a request's first line: ``cs-request``, and its parts where it has them."""
    parts = _REQUEST.fullmatch(request)
    return _named({"request": request, **(parts.groupdict() if parts else {})})


def _named(groups: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for group, value in groups.items() if value and value != "-" for name in _NAMES.get(group, ())}
