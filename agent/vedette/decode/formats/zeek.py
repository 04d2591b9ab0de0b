"""Zeek's logs as JSON: ``product: zeek``, ``service``: the log's name.

The name stands in ``_path`` where Zeek streams its logs (and Corelight always); else the fields that only one log has
tell it (``_TELLING``). Fields keep Zeek's names (``id.orig_h``, ``query`` …); generic names are added: ``src_ip``,
``src_port``, ``dst_ip``, ``dst_port``, and for HTTP those of Sigma's web categories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from vedette.decode.computed import Cut, Part, compute
from vedette.decode.formats.base import Fields, Seen, Shape, source, union
from vedette.decode.provenance import Gives, renamed
from vedette.model.event import Source

_TELLING: Mapping[str, tuple[str, ...]] = {
    "conn": ("conn_state",),
    "dns": ("qtype_name", "rcode_name", "trans_id"),
    "http": ("trans_depth",),
    "ssl": ("cipher", "established"),
    "x509": ("certificate.serial", "certificate.version"),
    "kerberos": ("request_type",),
    "dce_rpc": ("named_pipe", "operation"),
    "smb_mapping": ("share_type",),
    "smb_files": ("times.modified", "prev_name"),
    "rdp": ("security_protocol", "keyboard_layout"),
    "ssh": ("auth_attempts", "hasshVersion", "kex_alg"),
    "ftp": ("reply_code",),
    "smtp": ("mailfrom", "helo"),
    "ntlm": ("ntlm_version", "server_nb_computer_name"),
    "snmp": ("community",),
    "files": ("fuid", "mime_type"),
    "notice": ("note",),
    "weird": ("peer", "notice"),
    "intel": ("seen.indicator",),
    "dhcp": ("msg_types", "lease_time"),
    "software": ("software_type",),
}
_CATEGORIES = {"dns": "dns", "http": "proxy webserver", "conn": "firewall"}

_NAMES = {"id.orig_h": "src_ip", "id.orig_p": "src_port", "id.resp_h": "dst_ip", "id.resp_p": "dst_port"}
_HTTP = {
    "method": ("cs-method",),
    "host": ("cs-host",),
    "uri": ("cs-uri", "c-uri"),
    "user_agent": ("cs-user-agent", "c-useragent"),
    "referrer": ("cs-referer", "cs-referrer"),
    "status_code": ("sc-status",),
    "username": ("cs-username",),
}
_DNS = {"qtype_name": ("record_type",), "answers": ("answer",)}


def fits(event: Seen) -> bool:
    """Whether ``event`` is a line of a Zeek log."""
    if "ts" not in event:
        return False
    return ("id.orig_h" in event and "uid" in event) or isinstance(event.get("_path"), str) or _telling(event) in _ALONE


_ALONE = frozenset({"x509", "files", "notice", "software"})
"""Logs that may lack the connection's names."""


def _telling(event: Seen) -> str:
    if "certificate.serial" in event:
        return "x509"
    if "fuid" in event and "id.orig_h" not in event:
        return "files"
    if "note" in event and "msg" in event:
        return "notice"
    return "software" if "software_type" in event else ""


def service_of(event: Seen) -> str:
    """The log's name; empty when nothing tells it."""
    path = event.get("_path")
    if isinstance(path, str):
        return path if path in _TELLING else ""
    if name := _telling(event):
        return name
    if "query" in event and "trans_id" in event:
        return "dns"
    for name, keys in _TELLING.items():
        if any(key in event for key in keys):
            return name
    return ""


def read(event: Seen) -> Fields:
    """Generic names for the fields of ``event``."""
    fields: Fields = {name: event[own] for own, name in _NAMES.items() if own in event}
    service = service_of(event)
    for own, names in (_HTTP if service == "http" else _DNS if service == "dns" else {}).items():
        if own in event:
            fields.update((name, event[own]) for name in names)
    uri = event.get("uri")
    if service == "http" and isinstance(uri, str):
        compute(fields, uri, _uri_fields, _URI_PARTS)
    return fields


def _uri_fields(uri: str) -> Fields:
    stem, _, query = uri.partition("?")
    fields: Fields = {"cs-uri-stem": stem, "c-uri-stem": stem}
    return {**fields, "cs-uri-query": query, "c-uri-query": query} if query else fields


_STEM = Part(((Cut("?"),),))
_QUERY = Part(((Cut("?", after=True),),))
_URI_PARTS = {"cs-uri-stem": _STEM, "c-uri-stem": _STEM, "cs-uri-query": _QUERY, "c-uri-query": _QUERY}


@lru_cache(maxsize=64)
def _source(service: str) -> Source:
    return source("zeek", _CATEGORIES.get(service, ""), service)


_ANY = union(*(_source(name) for name in ("", *_TELLING)))


def source_of(event: Seen, further: Callable[[], Seen]) -> Source:
    """Where ``event`` belongs: of a log that nothing tells, to each."""
    service = service_of(event)
    return _source(service) if service or isinstance(event.get("_path"), str) else _ANY


_URI = {"uri": ("cs-uri-stem", "c-uri-stem", "cs-uri-query", "c-uri-query")}
GIVES = Gives("`ts` and `uid` with `id.orig_h`, or `_path`", renamed(_NAMES, _HTTP, _DNS, _URI))
SHAPE = Shape("zeek", fits, read, GIVES, ("ts",), _ANY, source_of, ("ts",))
