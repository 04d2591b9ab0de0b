"""The alert's one schema: its columns, its bytes on the wire and in the outbox, and the tables of the landing.

* An alert is a **msgpack map** from column name to value (structs are maps, times are integers). Every column of
  ``ALERT`` is written, null ones too. A reader leaves out keys it does not know and takes an absent nullable one for
  null, so columns may be added under one ``schema_version``; a version above this reader's is refused.
* A **batch** is a msgpack map ``{"v": 1, "log_id": str, "alerts": [bin, ...]}``: what the uplink publishes. Each
  alert is kept as its own bytes, so that one that cannot be read does not take the others with it: ``split_batch``,
  then ``decode_row`` for each.
* A **receipt** is a msgpack map ``{"log_id": str, "ranges": [[first seq, last seq], ...]}``, both ends included.
  ``log_id`` in both is ``Outbox.log_id``: it names the numbering that ``seq`` belongs to.
* The **landing** has four tables: ``LANDED_ALERT`` (``ALERT`` and who received it when), ``STATUS``, ``BAD``, ``SEQS``.

Bounds hold when an alert is encoded: ``raw`` 2 KiB, a field's value 1 KiB, 64 fields, 32 entities, 20 contributing
events; text is cut at a character, and what UTF-8 cannot encode becomes ``?``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgpack
import orjson

from vedette.event import Alert, Contribution, Entity, LogSource, RawRef
from vedette.outbox.columns import BINARY, INT32, INT64, MAP, STRING, TIMESTAMP, Column, List, Schema, Struct, fit

SCHEMA_VERSION = 1

MAX_RAW = 2048
MAX_VALUE = 1024
"""Bytes of UTF-8."""
MAX_FIELDS = 64
MAX_ENTITIES = 32
MAX_CONTRIBUTING = 20
MAX_BATCH = 10_000
"""Alerts that one batch may hold; ranges that one receipt may hold."""

KINDS = ("detection", "correlation", "fold")

_RAW_REF = Struct((Column("log_id", STRING, True), Column("offset", INT64, True), Column("length", INT32, True)))
_LOGSOURCE = Struct((Column("product", STRING), Column("category", STRING), Column("service", STRING)))
_ENTITY = Struct((Column("kind", STRING, True), Column("value", STRING, True)))
_CONTRIBUTION = Struct(
    (Column("rule_id", STRING, True), Column("event_time", TIMESTAMP, True), Column("raw_ref", _RAW_REF, True))
)

ALERT: Schema = (
    Column("schema_version", INT32, True),
    Column("alert_id", STRING, True),
    Column("parent_id", STRING),
    Column("seq", INT64, True),
    Column("kind", STRING, True),
    Column("rule_id", STRING, True),
    Column("rule_title", STRING, True),
    Column("rule_digest", STRING, True),
    Column("level", STRING, True),
    Column("tags", List(STRING), True),
    Column("agent_id", STRING, True),
    Column("site", STRING, True),
    Column("fleet", STRING, True),
    Column("host", STRING),
    Column("event_time", TIMESTAMP, True),
    Column("detected_at", TIMESTAMP, True),
    Column("received_date", STRING, True),
    Column("source", STRING, True),
    Column("logsource", _LOGSOURCE),
    Column("fields", MAP, True),
    Column("entities", List(_ENTITY), True),
    Column("raw", STRING, True),
    Column("raw_ref", _RAW_REF, True),
    Column("contributing", List(_CONTRIBUTION), True),
    Column("group_by", MAP, True),
    Column("count", INT64, True),
    Column("first_time", TIMESTAMP),
    Column("last_time", TIMESTAMP),
    Column("bundle", STRING),
    Column("flags", List(STRING), True),
)
"""What leaves the host; ``received_date`` is the UTC date of the event's receipt on the edge, ``YYYY-MM-DD``."""

_LANDED: Schema = (
    Column("received_at", TIMESTAMP, True),
    Column("ingest", Struct((Column("collector_id", STRING, True), Column("topic", STRING, True))), True),
)

LANDED_ALERT: Schema = (*ALERT, *_LANDED)

STATUS: Schema = (
    Column("agent_id", STRING, True),
    Column("fleet", STRING, True),
    Column("site", STRING),
    Column("state", STRING),
    Column("version", STRING),
    Column("bundle", STRING),
    Column("plan_digest", STRING),
    Column("seq_high", INT64),
    Column("payload", STRING, True),
    *_LANDED,
)
"""One heartbeat or last will: ``payload`` is its whole JSON text, the columns before it what most questions ask."""

BAD: Schema = (
    Column("topic", STRING, True),
    Column("reason", STRING, True),
    Column("payload", BINARY, True),
    Column("received_at", TIMESTAMP, True),
)
"""What came in and could not be read, and why."""

SEQS: Schema = (
    Column("agent_id", STRING, True),
    Column("fleet", STRING, True),
    Column("log_id", STRING, True),
    Column("first", INT64, True),
    Column("last", INT64, True),
    Column("received_at", TIMESTAMP, True),
)
"""A run of seqs that are on the region's disk, in ``alerts`` or ``bad``: what is in no run is missing. ``log_id`` is
the numbering's (``Outbox.log_id``)."""

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000


def alert_id(agent_id: str, log_id: str, rule_id: str, offset: int, group_key: str = "") -> str:
    """The alert's id, 32 hex digits: the same event, rule and group give the same id in every replay.

    ``offset`` is that of the completing event. BLAKE2b-128 (RFC 7693) over the parts, each with its length before it.
    """
    digest = blake2b(digest_size=16)
    for part in (agent_id, log_id, rule_id, str(offset), group_key):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "big") + data)
    return digest.hexdigest()


def cut(text: str, limit: int) -> str:
    """The longest beginning of ``text`` that is at most ``limit`` bytes of UTF-8 and splits no character."""
    if len(text) <= limit and text.isascii():
        return text
    data = text[:limit].encode("utf-8", "replace")
    return data[:limit].decode("utf-8", "ignore")


def received_date(received_at: int) -> str:
    """UTC date of ``received_at`` (UTC microseconds), ``YYYY-MM-DD``."""
    return _date(received_at // _DAY)


@lru_cache(maxsize=64)
def _date(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).strftime("%Y-%m-%d")


def to_row(alert: Alert) -> dict[str, Any]:
    """``alert`` as a row of ``ALERT``, with every bound kept."""
    return {
        "schema_version": SCHEMA_VERSION,
        "alert_id": alert.alert_id,
        "parent_id": alert.parent_id,
        "seq": alert.seq,
        "kind": alert.kind,
        "rule_id": cut(alert.rule_id, MAX_VALUE),
        "rule_title": cut(alert.rule_title, MAX_VALUE),
        "rule_digest": alert.rule_digest,
        "level": alert.level,
        "tags": [cut(tag, MAX_VALUE) for tag in alert.tags[:MAX_FIELDS]],
        "agent_id": alert.agent_id,
        "site": alert.site,
        "fleet": alert.fleet,
        "host": None if alert.host is None else cut(alert.host, MAX_VALUE),
        "event_time": alert.event_time,
        "detected_at": alert.detected_at,
        "received_date": alert.received_date,
        "source": alert.source,
        "logsource": {part: value or None for part, value in alert.logsource._asdict().items()},
        "fields": _bounded(alert.fields),
        "entities": [{"kind": kind, "value": cut(value, MAX_VALUE)} for kind, value in alert.entities[:MAX_ENTITIES]],
        "raw": cut(alert.raw, MAX_RAW),
        "raw_ref": alert.raw_ref._asdict(),
        "contributing": [
            {"rule_id": rule_id, "event_time": event_time, "raw_ref": raw_ref._asdict()}
            for rule_id, event_time, raw_ref in alert.contributing[:MAX_CONTRIBUTING]
        ],
        "group_by": _bounded(alert.group_by),
        "count": alert.count,
        "first_time": alert.first_time,
        "last_time": alert.last_time,
        "bundle": alert.bundle,
        "flags": list(alert.flags),
    }


def _bounded(texts: Mapping[str, str]) -> dict[str, str]:
    return {cut(k, MAX_VALUE): cut(v, MAX_VALUE) for k, v in list(texts.items())[:MAX_FIELDS]}


def encode(alert: Alert) -> bytes:
    """``alert`` as it lies in the outbox and travels."""
    data: bytes = msgpack.packb(to_row(alert))
    return data


def decode_row(data: bytes) -> dict[str, Any]:
    """The row of ``ALERT`` in ``data``; raises ValueError saying which key is missing or wrong."""
    document = _unpack(data)
    version = document.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ValueError(f"schema_version: {version} is newer than {SCHEMA_VERSION}, which this reader knows")
    row = fit(ALERT, document)
    if row["kind"] not in KINDS:
        raise ValueError(f"kind: expects one of {', '.join(KINDS)}, not {row['kind']!r}")
    if not row["alert_id"] or not row["agent_id"]:
        raise ValueError("alert_id, agent_id: must not be empty")
    if not _DATE.fullmatch(row["received_date"]):
        raise ValueError(f"received_date: expects YYYY-MM-DD, not {row['received_date']!r}")
    return row


def decode(data: bytes) -> Alert:
    """The alert in ``data``; raises ValueError as ``decode_row`` does."""
    row = decode_row(data)
    del row["schema_version"]
    logsource = row["logsource"] or {}
    return Alert(
        **{
            **row,
            "tags": tuple(row["tags"]),
            "logsource": LogSource(**{part: value or "" for part, value in logsource.items()}),
            "entities": tuple(Entity(**entity) for entity in row["entities"]),
            "raw_ref": RawRef(**row["raw_ref"]),
            "contributing": tuple(
                Contribution(c["rule_id"], c["event_time"], RawRef(**c["raw_ref"])) for c in row["contributing"]
            ),
            "flags": tuple(row["flags"]),
        }
    )


def pack_batch(log_id: str, alerts: Sequence[bytes]) -> bytes:
    """Encoded alerts as one message; ``log_id`` names their numbering."""
    data: bytes = msgpack.packb({"v": SCHEMA_VERSION, "log_id": log_id, "alerts": list(alerts)})
    return data


def split_batch(data: bytes) -> tuple[str, list[bytes]]:
    """``log_id`` and the encoded alerts of a batch, not yet read; raises ValueError."""
    document = _unpack(data)
    log_id, alerts = document.get("log_id"), document.get("alerts")
    if not isinstance(log_id, str):
        raise ValueError("log_id: missing or not a string")
    if not isinstance(alerts, list) or not all(type(item) is bytes for item in alerts):
        raise ValueError("alerts: missing or not a list of binaries")
    if len(alerts) > MAX_BATCH:
        raise ValueError(f"alerts: {len(alerts)} in one batch, at most {MAX_BATCH}")
    return log_id, alerts


def pack_receipt(log_id: str, ranges: Sequence[tuple[int, int]]) -> bytes:
    """The message that says alerts ``first..last`` of each range are on the region's disk."""
    data: bytes = msgpack.packb({"log_id": log_id, "ranges": [list(pair) for pair in ranges]})
    return data


def unpack_receipt(data: bytes) -> tuple[str, list[tuple[int, int]]]:
    """``log_id`` and the ranges of a receipt; raises ValueError."""
    document = _unpack(data)
    log_id, ranges = document.get("log_id"), document.get("ranges")
    if not isinstance(log_id, str):
        raise ValueError("log_id: missing or not a string")
    if not isinstance(ranges, list) or len(ranges) > MAX_BATCH:
        raise ValueError(f"ranges: missing, not a list, or more than {MAX_BATCH}")
    pairs = []
    for pair in ranges:
        match pair:
            case [int(first), int(last)] if 0 <= first <= last < 1 << 63:
                pairs.append((first, last))
            case _:
                raise ValueError(f"ranges: expects [first, last], not {pair!r}")
    return log_id, pairs


def ranges(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """``seqs`` (any order, doubles allowed) as ascending ``(first, last)`` runs without gaps."""
    runs: list[tuple[int, int]] = []
    for seq in sorted(set(seqs)):
        if runs and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return runs


def landed(row: Mapping[str, Any], *, received_at: int, collector_id: str, topic: str) -> dict[str, Any]:
    """A row of ``ALERT`` as a row of ``LANDED_ALERT``."""
    return {**row, "received_at": received_at, "ingest": {"collector_id": collector_id, "topic": topic}}


def status_row(
    payload: bytes, *, fleet: str, agent_id: str, received_at: int, collector_id: str, topic: str
) -> dict[str, Any]:
    """A row of ``STATUS``; ``fleet`` and ``agent_id`` are the topic's.

    Raises ValueError when ``payload`` is not a JSON object or names another agent or fleet. A key of an unexpected
    type leaves its column null: the payload is kept whole.
    """
    try:
        document = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"expects a JSON object, not {type(document).__name__}")
    for key, named in (("agent_id", agent_id), ("fleet", fleet)):
        if document.get(key, named) != named:
            raise ValueError(f"{key}: {document[key]!r} is not the topic's {named!r}")
    row: dict[str, Any] = {"agent_id": agent_id, "fleet": fleet}
    for key in ("site", "state", "version", "bundle", "plan_digest"):
        value = document.get(key)
        row[key] = value if isinstance(value, str) else None
    seq_high = document.get("seq_high")
    row["seq_high"] = seq_high if type(seq_high) is int and 0 <= seq_high < 1 << 63 else None
    row["payload"] = payload.decode("utf-8", "replace")
    return landed(row, received_at=received_at, collector_id=collector_id, topic=topic)


def bad_row(payload: bytes, *, topic: str, reason: str, received_at: int) -> dict[str, Any]:
    """A row of ``BAD``."""
    return {"topic": topic, "reason": cut(reason, MAX_VALUE), "payload": payload, "received_at": received_at}


def _unpack(data: bytes) -> dict[str, Any]:
    """The msgpack map in ``data``; raises ValueError."""
    try:
        document = msgpack.unpackb(data, strict_map_key=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"is not msgpack: {str(error) or type(error).__name__}") from error
    if not isinstance(document, dict):
        raise ValueError(f"expects a msgpack map, not {type(document).__name__}")
    return document
