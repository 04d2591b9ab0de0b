"""MISP's events, as exports and feed folders have them, to entries: attributes of the event and of its objects.

An attribute counts with ``to_ids``, when it is not deleted. It holds from when it was first seen, else from the event's
date; a sighting of type "expiration" ends it. Confidence is by the taxonomy ``misp:confidence-level``. Events are read
one after the other; one in memory has at most ``stix.MAX_OBJECT`` bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

from vedette.model.times import iso_time
from vedette.region.feeds.entry import Entry, LeftOut, joined, plain
from vedette.region.feeds.stix import items, shape
from vedette.region.feeds.values import Refused, canonical
from vedette.system.foreign import items as listed
from vedette.system.foreign import table, text

MANIFEST = "manifest.json"
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TYPES: dict[str, tuple[str, ...]] = {
    "ip-src": ("ip",),
    "ip-dst": ("ip",),
    "ip-src|port": ("ip", ""),
    "ip-dst|port": ("ip", ""),
    "domain": ("domain",),
    "hostname": ("domain",),
    "hostname|port": ("domain", ""),
    "domain|ip": ("domain", "ip"),
    "url": ("url",),
    "email": ("email",),
    "email-src": ("email",),
    "email-dst": ("email",),
    "email-reply-to": ("email",),
    **{kind: (kind,) for kind in ("md5", "sha1", "sha256", "sha512")},
    **{f"filename|{kind}": ("", kind) for kind in ("md5", "sha1", "sha256", "sha512")},
    "malware-sample": ("", "md5"),
}
"""Of attributes the kinds of the parts of their values, "" for one that is none."""
LEVELS = {"completely-confident": 100, "usually-confident": 75, "fairly-confident": 50, "rarely-confident": 25,
          "unconfident": 0}  # fmt: skip
_LEVEL = re.compile(r'misp:confidence-level="([a-z-]+)"')
SECOND = 1_000_000


class Listed(NamedTuple):
    """An event of a manifest."""

    uuid: str
    changed: int


def manifest(file: IO[bytes], left: LeftOut) -> list[Listed]:
    """The events of a feed folder. Raises ValueError."""
    listing = next(items(file, ""), None)
    if not isinstance(listing, dict):
        raise ValueError(f"{MANIFEST}: expects an object with an entry for each event")
    events = []
    for uuid, about in listing.items():
        changed = stamp(about.get("timestamp")) if isinstance(about, dict) else None
        if not UUID.fullmatch(uuid.lower()) or changed is None:
            left.add("an entry of the manifest without UUID or timestamp", uuid)
        else:
            events.append(Listed(uuid, changed))
    return events


def export(file: IO[bytes], left: LeftOut) -> Iterator[Entry]:
    """The entries of one event, of a list of them, or of what MISP's search answers. Raises ValueError."""
    prefixes = ("Event", "response.item.Event", "item.Event", "response.Event")
    began = False
    for prefix, what, _ in shape(file):
        if prefix in prefixes and what == "start_map":
            for event in items(file, prefix):
                yield from entries(event, left)
            return
        if (prefix, what) in (("", "start_array"), ("response", "start_array")):
            began = True
    if not began:
        raise ValueError('not an export of MISP: there is no "Event"')


def entries(event: Any, left: LeftOut) -> Iterator[Entry]:
    if not isinstance(event, dict):
        left.add("an event that is no object", event)
        return
    date = event.get("date")
    began = iso_time(f"{date}T00:00:00Z") if isinstance(date, str) else None
    name = plain(event.get("uuid"))
    lists = [event.get("Attribute"), *(table(part).get("Attribute") for part in listed(event.get("Object")))]
    for attributes in lists:
        for attribute in listed(attributes):
            if not isinstance(attribute, dict):
                left.add("an attribute that is no object", name)
            elif attribute.get("to_ids") in (True, 1, "1") and attribute.get("deleted") not in (True, 1, "1"):
                yield from _entry(attribute, event, name, began, left)


def _entry(
    attribute: Mapping[str, Any], event: Mapping[str, Any], event_id: str, began: int | None, left: LeftOut
) -> Iterator[Entry]:
    name = plain(attribute.get("uuid")) or f"{event_id}/{plain(attribute.get('id'))}"
    changed = stamp(attribute.get("timestamp")) or stamp(event.get("timestamp")) or began
    values = _values(attribute, name, left)
    if not values:
        return
    if changed is None:
        left.add("an attribute without a time", name)
        return
    tags = [*_tags(attribute), *_tags(event)]
    since, last = iso_seen(attribute.get("first_seen")), iso_seen(attribute.get("last_seen"))
    since = began if since is None else since
    until = _expired(attribute)
    if until is not None and since is not None and until <= since:
        since = None
    yield Entry(
        name, max(changed, last or 0), values, since, until, _confidence(tags),
        plain(event.get("info")) or plain(attribute.get("comment")), joined(tags),
        f"misp:{event_id}" if event_id else "",
    )  # fmt: skip


def _values(attribute: Mapping[str, Any], name: str, left: LeftOut) -> tuple[tuple[str, str], ...]:
    kind, value = plain(attribute.get("type")), attribute.get("value")
    if kind not in TYPES:
        left.add(f"no lookup for attributes of type {kind[:40]}", name)
        return ()
    parts = value.split("|") if isinstance(value, str) else [""]
    if len(parts) < len(TYPES[kind]):
        parts = [*parts, *[""] * (len(TYPES[kind]) - len(parts))]
    if len(TYPES[kind]) == 1:
        parts = ["|".join(parts)]  # a URL may have one
    values: dict[tuple[str, str], None] = {}
    for part_kind, part in zip(TYPES[kind], parts, strict=False):
        if not part_kind:
            continue
        try:
            values[canonical(part_kind, part)] = None
        except Refused as refused:
            left.add(str(refused), f"{name}: {part}")
    return tuple(values)


def _tags(row: Mapping[str, Any]) -> list[str]:
    return [plain(table(tag).get("name")) for tag in listed(row.get("Tag"))]


def _confidence(tags: list[str]) -> int | None:
    """Of the attribute's own tags, which come first."""
    for tag in tags:
        if (match := _LEVEL.fullmatch(tag)) is not None and match[1] in LEVELS:
            return LEVELS[match[1]]
    return None


def _expired(attribute: Mapping[str, Any]) -> int | None:
    """The newest sighting of type 2, unless it was seen (type 0) after that."""
    last = {"0": 0, "2": 0}
    for sighting in map(table, listed(attribute.get("Sighting"))):
        if (kind := text(sighting.get("type"))) in last:
            last[kind] = max(last[kind], stamp(sighting.get("date_sighting")) or 0)
    return last["2"] if last["2"] > last["0"] else None


def stamp(value: object) -> int | None:
    """Microseconds of MISP's seconds since 1970, mostly texts of at most ten digits; None for what is no such time."""
    digits = text(value)
    if not digits.isascii() or not digits.isdigit() or len(digits) > 10:
        return None
    return int(digits) * SECOND or None


def iso_seen(value: object) -> int | None:
    """``first_seen`` and ``last_seen``."""
    return iso_time(value) if isinstance(value, str) else None
