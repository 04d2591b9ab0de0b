"""STIX 2.1 objects, of bundles and of TAXII's envelopes, to entries.

Indicators with a pattern of STIX give values (``pattern.py``); relationships ``indicates`` and the objects they point
at give the names of threats; every other object is passed over. A bundle is read object by object: what it holds in
memory is one object, of at most ``MAX_OBJECT`` bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import ijson

from vedette.lookup.gather import is_open
from vedette.model.times import iso_time
from vedette.region.feeds.entry import Entry, Found, Indicates, LeftOut, Threat, joined, plain
from vedette.region.feeds.pattern import compared, kind_of
from vedette.region.feeds.values import Refused, canonical

MAX_OBJECT = 64 << 20
THREATS = ("malware", "threat-actor", "intrusion-set", "campaign", "tool", "attack-pattern", "infrastructure")
TYPES = ("indicator", "relationship", *THREATS)
"""Types of objects that say something here."""


class Bounded:
    """A file whose reader may take ``MAX_OBJECT`` bytes without giving anything for them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.taken = file, 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.taken += len(data)
        if self.taken > MAX_OBJECT:
            raise ValueError(f"an object of more than {MAX_OBJECT >> 20} MiB")
        return data


def items(file: IO[bytes], prefix: str) -> Iterator[Any]:
    """What lies at ``prefix`` of a JSON document, one after the other. Raises ValueError."""
    file.seek(0)
    source = Bounded(file)
    with _json():
        for item in ijson.items(source, prefix, use_float=True):
            source.taken = 0
            yield item


def shape(file: IO[bytes]) -> Iterator[tuple[str, str, Any]]:
    """A JSON document as ijson's events: prefix, what begins or is there, value. Raises ValueError."""
    file.seek(0)
    with _json():
        yield from ijson.parse(file, use_float=True)


@contextmanager
def _json() -> Iterator[None]:
    try:
        yield
    except ijson.JSONError as error:
        raise ValueError(f"not JSON: {' '.join(str(error).split())[:120]}") from None


def bundle(file: IO[bytes], left: LeftOut) -> Iterator[Found]:
    """The entries of a bundle. Raises ValueError for what is none."""
    if next((value for prefix, _, value in shape(file) if prefix == "type"), None) != "bundle":
        raise ValueError('not a STIX bundle: its "type" is not "bundle"')
    yield from objects(items(file, "objects.item"), left)


def objects(rows: Iterable[Any], left: LeftOut) -> Iterator[Found]:
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("id"), str) or not isinstance(row.get("type"), str):
            left.add("not a STIX object", row.get("id") if isinstance(row, dict) else row)
            continue
        kind = row["type"]
        if kind not in TYPES:
            continue
        if (modified := time_of(row, "modified") or time_of(row, "created")) is None:
            left.add("an object without the time of its version", row["id"])
        elif kind == "indicator":
            if (entry := _entry(row, modified, left)) is not None:
                yield entry
        elif kind == "relationship":
            if row.get("relationship_type") == "indicates":
                source, target = plain(row.get("source_ref")), plain(row.get("target_ref"))
                yield Indicates(plain(row["id"]), modified, row.get("revoked") is True, source, target)
        else:
            yield Threat(plain(row["id"]), modified, row.get("revoked") is True, plain(row.get("name")))


def time_of(row: Mapping[str, Any], key: str) -> int | None:
    text = row.get(key)
    return iso_time(text) if isinstance(text, str) else None


def _entry(row: Mapping[str, Any], modified: int, left: LeftOut) -> Entry | None:
    name, revoked = plain(row["id"]), row.get("revoked") is True
    since, until = time_of(row, "valid_from"), time_of(row, "valid_until")
    values = () if revoked else _values(row, name, left)
    times = ("valid_from", since), ("valid_until", until)
    if not revoked and any(time is None and key in row and not is_open(row[key]) for key, time in times):
        left.add("an indicator with a bad time of validity", name)
        values = ()
    if not revoked and since is not None and until is not None and until <= since:
        left.add("an indicator whose validity ends before it begins", name)
        values = ()
    confidence = row.get("confidence")
    if type(confidence) is not int or not 0 <= confidence <= 100:
        confidence = None
    return Entry(
        name, modified, values, since, until, confidence, plain(row.get("name")),
        joined((*_texts(row, "indicator_types"), *_texts(row, "labels"))), _reference(row) or name,
    )  # fmt: skip


def _values(row: Mapping[str, Any], name: str, left: LeftOut) -> tuple[tuple[str, str], ...]:
    """None, so that the entry replaces an earlier version of it, where nothing can be taken."""
    pattern = row.get("pattern")
    if row.get("pattern_type", "stix") != "stix" or not isinstance(pattern, str):
        left.add(f"a pattern of type {plain(row.get('pattern_type'))[:20] or 'none'}", name)
        return ()
    try:
        pairs = compared(pattern)
    except Refused as refused:
        left.add(str(refused), name)
        return ()
    values: dict[tuple[str, str], None] = {}
    for path, text in pairs:
        kind = kind_of(path)
        if kind is None:
            left.add(f"no lookup for {plain(path)[:60]}", name)
            continue
        try:
            values[canonical(kind, text)] = None
        except Refused as refused:
            left.add(str(refused), f"{name}: {text}")
    return tuple(values)


def _texts(row: Mapping[str, Any], key: str) -> list[Any]:
    texts = row.get(key)
    return texts if isinstance(texts, list) else []


def _reference(row: Mapping[str, Any]) -> str:
    for reference in _texts(row, "external_references"):
        if isinstance(reference, dict) and (url := plain(reference.get("url"))):
            return url
    return ""
