"""Zeek's logs as JSON: ``product: zeek``, ``service``: the log's name.

The name stands in ``_path`` where Zeek streams its logs (and Corelight always); else the fields that only one log has
tell it (``ZEEK_TELLING``). Fields keep Zeek's names (``id.orig_h``, ``query`` …); generic names are added: ``src_ip``,
``src_port``, ``dst_ip``, ``dst_port``, and for HTTP those of Sigma's web categories.
"""

from __future__ import annotations

from collections.abc import Callable

from vedette.decode import access
from vedette.decode.computed import compute
from vedette.decode.formats.base import Fields, Seen
from vedette.decode.formats.table import (
    ZEEK_ANY,
    ZEEK_DNS_NAMES,
    ZEEK_HTTP_NAMES,
    ZEEK_NAMES,
    ZEEK_TELLING,
    zeek_source,
)
from vedette.model.event import Source


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
        return path if path in ZEEK_TELLING else ""
    if name := _telling(event):
        return name
    if "query" in event and "trans_id" in event:
        return "dns"
    for name, keys in ZEEK_TELLING.items():
        if any(key in event for key in keys):
            return name
    return ""


def read(event: Seen) -> Fields:
    """Generic names for the fields of ``event``."""
    fields: Fields = {name: event[own] for own, name in ZEEK_NAMES.items() if own in event}
    service = service_of(event)
    for own, names in (ZEEK_HTTP_NAMES if service == "http" else ZEEK_DNS_NAMES if service == "dns" else {}).items():
        if own in event:
            fields.update((name, event[own]) for name in names)
    uri = event.get("uri")
    if service == "http" and isinstance(uri, str):
        compute(fields, uri, _uri_fields, _URI_PARTS)
    return fields


def _uri_fields(uri: str) -> Fields:
    fields = access.uri_fields(uri)
    return {**fields, **{_of_client(name): value for name, value in fields.items()}}


def _of_client(name: str) -> str:
    return name.replace("cs-", "c-")


_URI_PARTS = {**access.URI, **{_of_client(name): part for name, part in access.URI.items()}}


def source_of(event: Seen, further: Callable[[], Seen]) -> Source:
    """Where ``event`` belongs: of a log that nothing tells, to each."""
    service = service_of(event)
    return zeek_source(service) if service or isinstance(event.get("_path"), str) else ZEEK_ANY
