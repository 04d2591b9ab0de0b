"""Where a record of Kafka came from: its topic, partition, key and headers as an event's origin, and as fields. Pure.

    kafka:TOPIC/PARTITION[?k=KEY][&h.NAME=VALUE…]

with key, names and values percent-encoded. The fields are ``kafka.topic``, ``kafka.partition``, ``kafka.key`` and
``kafka.headers.NAME``.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl, quote

PREFIX = "kafka:"
MAX_VALUE = 256
"""Bytes of a key or a header that are kept."""


def origin(topic: str, partition: int, key: bytes | None = None, headers: Iterable[tuple[str, bytes]] = ()) -> str:
    """``key`` and ``headers``: those that are to be fields."""
    pairs = [] if key is None else [f"k={quote(key[:MAX_VALUE], safe='')}"]
    pairs += (f"h.{quote(name, safe='')}={quote(value[:MAX_VALUE], safe='')}" for name, value in headers)
    return f"{PREFIX}{topic}/{partition}" + ("?" + "&".join(pairs) if pairs else "")


def fields(origin: str) -> dict[str, str | int]:
    """Return the fields of an origin that begins with PREFIX; total."""
    place, _, query = origin.removeprefix(PREFIX).partition("?")
    topic, _, partition = place.partition("/")
    result: dict[str, str | int] = {"kafka.topic": topic}
    if partition.isdecimal() and partition.isascii():
        result["kafka.partition"] = int(partition)
    for name, value in parse_qsl(query, keep_blank_values=True, errors="replace") if query else ():
        result["kafka.key" if name == "k" else f"kafka.headers.{name.removeprefix('h.')}"] = value
    return result
