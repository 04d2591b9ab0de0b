"""The alert's one schema: its columns, its bytes on the wire and in the outbox, and the tables of the landing.

* An alert is a **msgpack map** from column name to value (structs are maps, times are integers). Every column of
  ``ALERT`` is written, null ones too. A reader leaves out keys it does not know and takes an absent nullable one for
  null, so columns may be added under one ``schema_version``; a version above this reader's is refused.
* A **batch** is a msgpack map ``{"v": 1, "log_id": str, "alerts": [bin, ...]}``: what the uplink publishes, perhaps
  compressed (``delivery/batch.py``). ``log_id`` is ``Outbox.log_id``: it names the numbering that ``seq`` belongs to,
  here and in receipts.
* The **landing** has four tables: ``LANDED_ALERT`` (``ALERT`` and who received it when), ``STATUS``, ``DEAD_LETTER``,
  ``SEQS``.

Bounds hold when an alert is encoded: ``raw`` 2 KiB, any other text 1 KiB, 64 fields, 32 entities, 20 contributing
events; text is cut at a character, and what UTF-8 cannot encode becomes ``?``.

**A reader believes no bound**: it enforces each of them, and those of size and number before anything is allocated
for it (msgpack's own limits). What is beyond is refused like any other mistake. A column that is added under this
``schema_version`` keeps to these bounds, or older readers refuse the alert.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b, sha256
from itertools import islice
from typing import Any

import msgpack
import orjson

from vedette.delivery.columns import (
    BINARY,
    INT32,
    INT64,
    MAP,
    MAX_TEXT,
    STRING,
    TIMESTAMP,
    Column,
    List,
    Schema,
    Struct,
    fit,
)
from vedette.model.event import Alert, Contribution, Entity, LogSource, RawRef

SCHEMA_VERSION = 1

MAX_RAW = 2048
MAX_VALUE = MAX_TEXT
"""Bytes of UTF-8."""
MAX_FIELDS = 64
"""And tags, and flags."""
MAX_ENTITIES = 32
MAX_CONTRIBUTING = 20
MAX_COUNT = 1 << 40
"""Matches that one alert counts, so that sums of them fit 64 bits."""
MAX_SEQ = (1 << 53) - 1
"""No log reaches it; beyond it, sums and differences of numbers that landed would leave 64 bits."""
MAX_ALERT = 512 << 10
"""Bytes of one encoded alert; with every other bound spent it has less."""
BATCH_BYTES = 128 << 10
"""A batch ends with the alert that reaches this."""
MAX_BATCH = 1000
"""Alerts in one batch."""
MAX_MESSAGE = 1 << 20
"""Bytes of one message from an agent: a batch, a heartbeat. A larger one is not parsed."""
MAX_DEAD_LETTER = 64 << 10
"""Bytes of a message or an alert that are kept when it cannot be read."""

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
    Column("tags", List(STRING), True, MAX_FIELDS),
    Column("agent_id", STRING, True),
    Column("site", STRING, True),
    Column("fleet", STRING, True),
    Column("host", STRING),
    Column("event_time", TIMESTAMP, True),
    Column("detected_at", TIMESTAMP, True),
    Column("received_date", STRING, True),
    Column("source", STRING, True),
    Column("logsource", _LOGSOURCE),
    Column("fields", MAP, True, MAX_FIELDS),
    Column("entities", List(_ENTITY), True, MAX_ENTITIES),
    Column("raw", STRING, True, MAX_RAW),
    Column("raw_ref", _RAW_REF, True),
    Column("contributing", List(_CONTRIBUTION), True, MAX_CONTRIBUTING),
    Column("group_by", MAP, True, MAX_FIELDS),
    Column("count", INT64, True),
    Column("first_time", TIMESTAMP),
    Column("last_time", TIMESTAMP),
    Column("bundle", STRING),
    Column("flags", List(STRING), True, MAX_FIELDS),
)
"""What leaves the host; ``received_date`` is the UTC date of the event's receipt on the edge, ``YYYY-MM-DD``."""

_LANDED: Schema = (
    Column("received_at", TIMESTAMP, True),
    Column("ingest", Struct((Column("collector_id", STRING, True), Column("topic", STRING, True))), True),
    Column("stated_site", STRING),
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
    Column("payload", STRING, True, MAX_MESSAGE),
    *_LANDED,
)
"""One heartbeat or last will: ``payload`` is its whole JSON text, the columns before it what most questions ask."""

DEAD_LETTER: Schema = (
    Column("topic", STRING, True),
    Column("reason", STRING, True),
    Column("payload", BINARY, True),
    Column("received_at", TIMESTAMP, True),
)
"""What came in and could not be read, and why: at most ``MAX_DEAD_LETTER`` bytes of it, then the reason has size and
digest of the whole."""

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
    return AlertId(agent_id, log_id).of(rule_id, offset, group_key)


class AlertId:
    """``alert_id`` for the alerts of one agent and log: what those of a rule have in common is hashed once."""

    def __init__(self, agent_id: str, log_id: str) -> None:
        self._begun = blake2b(_part(agent_id) + _part(log_id), digest_size=16)
        self._rules: dict[str, Any] = {}

    def of(self, rule_id: str, offset: int, group_key: str = "") -> str:
        begun = self._rules.get(rule_id)
        if begun is None:
            begun = self._rules[rule_id] = self._begun.copy()
            begun.update(_part(rule_id))
        digest = begun.copy()
        digest.update(_part(str(offset)) + (_part(group_key) if group_key else _NO_PART))
        return str(digest.hexdigest())


def _part(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(4, "big") + data


_NO_PART = _part("")


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
    rule_id, title, tags = _rule(alert.rule_id, alert.rule_title, alert.tags)
    raw, host = alert.raw, alert.host
    return {
        "schema_version": SCHEMA_VERSION,
        "alert_id": alert.alert_id,
        "parent_id": alert.parent_id,
        "seq": alert.seq,
        "kind": alert.kind,
        "rule_id": rule_id,
        "rule_title": title,
        "rule_digest": alert.rule_digest,
        "level": alert.level,
        "tags": tags,
        "agent_id": alert.agent_id,
        "site": alert.site,
        "fleet": alert.fleet,
        "host": None if host is None else cut(host, MAX_VALUE),
        "event_time": alert.event_time,
        "detected_at": alert.detected_at,
        "received_date": alert.received_date,
        "source": alert.source,
        "logsource": _logsource(alert.logsource),
        "fields": _bounded(alert.fields),
        "entities": _entities(alert.entities),
        "raw": raw if len(raw) <= MAX_RAW and raw.isascii() else cut(raw, MAX_RAW),
        "raw_ref": _raw_ref(alert.raw_ref),
        "contributing": [
            {"rule_id": cut(rule_id, MAX_VALUE), "event_time": event_time, "raw_ref": _raw_ref(raw_ref)}
            for rule_id, event_time, raw_ref in alert.contributing[:MAX_CONTRIBUTING]
        ],
        "group_by": _bounded(alert.group_by),
        "count": min(alert.count, MAX_COUNT),
        "first_time": alert.first_time,
        "last_time": alert.last_time,
        "bundle": alert.bundle,
        "flags": list(alert.flags[:MAX_FIELDS]),
    }


@lru_cache(maxsize=4096)
def _rule(rule_id: str, title: str, tags: tuple[str, ...]) -> tuple[str, str, list[str]]:
    return cut(rule_id, MAX_VALUE), cut(title, MAX_VALUE), [cut(tag, MAX_VALUE) for tag in tags[:MAX_FIELDS]]


@lru_cache(maxsize=1024)
def _logsource(logsource: LogSource) -> dict[str, str | None]:
    return {part: cut(value, MAX_VALUE) or None for part, value in logsource._asdict().items()}


def _raw_ref(ref: RawRef) -> dict[str, Any]:
    return {"log_id": ref.log_id, "offset": ref.offset, "length": ref.length}


def _entities(entities: Sequence[Entity]) -> list[dict[str, str]]:
    return [{"kind": kind, "value": cut(value, MAX_VALUE)} for kind, value in entities[:MAX_ENTITIES]]


def _bounded(texts: Mapping[str, str]) -> dict[str, str]:
    return {cut(k, MAX_VALUE): cut(v, MAX_VALUE) for k, v in islice(texts.items(), MAX_FIELDS)} if texts else {}


def encode(alert: Alert) -> bytes:
    """``alert`` as it lies in the outbox and travels: ``to_row`` in msgpack. What many alerts have in common is packed
    once, in runs of columns, for an alert of one event by itself."""
    if alert.kind != "detection" or alert.contributing or alert.group_by:
        data: bytes = msgpack.packb(to_row(alert))
        return data
    pack, ref, host, raw = _pack, alert.raw_ref, alert.host, alert.raw
    return b"".join(
        (
            _BEGIN, pack(alert.alert_id),
            _PARENT_ID, pack(alert.parent_id),
            _SEQ, pack(alert.seq),
            _of_rule(
                alert.rule_id, alert.rule_title, alert.rule_digest, alert.level, alert.tags,
                alert.agent_id, alert.site, alert.fleet,
            ),
            _HOST, pack(None if host is None else cut(host, MAX_VALUE)),
            _EVENT_TIME, pack(alert.event_time),
            _DETECTED_AT, pack(alert.detected_at),
            _of_input(alert.received_date, alert.source, alert.logsource),
            _FIELDS, pack(_bounded(alert.fields)),
            _ENTITIES, pack(_entities(alert.entities)),
            _RAW, pack(raw if len(raw) <= MAX_RAW and raw.isascii() else cut(raw, MAX_RAW)),
            _of_log(ref.log_id), pack(ref.offset), _LENGTH, pack(ref.length),
            _of_one(alert.count, alert.first_time, alert.last_time, alert.bundle, alert.flags),
        )
    )  # fmt: skip


_packer = msgpack.Packer()
"""One for all: making one costs more than packing a number."""
_pack: Callable[[Any], bytes] = _packer.pack
_map: Callable[[int], bytes] = _packer.pack_map_header


def _keyed(*names: str) -> Iterator[bytes]:
    """What stands before the values of these columns."""
    return map(_pack, names)


_BEGIN = (
    msgpack.Packer().pack_map_header(len(ALERT)) + _pack("schema_version") + _pack(SCHEMA_VERSION) + _pack("alert_id")
)
_PARENT_ID, _SEQ, _HOST, _EVENT_TIME, _DETECTED_AT, _FIELDS, _ENTITIES, _RAW, _LENGTH = _keyed(
    "parent_id", "seq", "host", "event_time", "detected_at", "fields", "entities", "raw", "length"
)


def _run(columns: Mapping[str, Any]) -> bytes:
    """Columns that follow each other, with their names."""
    return b"".join(_pack(part) for column in columns.items() for part in column)


@lru_cache(maxsize=4096)
def _of_rule(
    rule_id: str, title: str, digest: str, level: str, tags: tuple[str, ...], agent_id: str, site: str, fleet: str
) -> bytes:
    rule_id, title, bounded = _rule(rule_id, title, tags)
    rule = {"kind": "detection", "rule_id": rule_id, "rule_title": title, "rule_digest": digest, "level": level}
    return _run({**rule, "tags": bounded, "agent_id": agent_id, "site": site, "fleet": fleet})


@lru_cache(maxsize=1024)
def _of_input(received_date: str, source: str, logsource: LogSource) -> bytes:
    return _run({"received_date": received_date, "source": source, "logsource": _logsource(logsource)})


@lru_cache(maxsize=4)
def _of_log(log_id: str) -> bytes:
    parts = len(_raw_ref(RawRef(log_id, 0, 0)))
    return _pack("raw_ref") + _map(parts) + _run({"log_id": log_id}) + _pack("offset")


@lru_cache(maxsize=64)
def _of_one(
    count: int, first_time: int | None, last_time: int | None, bundle: str | None, flags: tuple[str, ...]
) -> bytes:
    alone = {"contributing": (), "group_by": {}, "count": min(count, MAX_COUNT)}
    times = {"first_time": first_time, "last_time": last_time}
    return _run({**alone, **times, "bundle": bundle, "flags": flags[:MAX_FIELDS]})


def decode_row(data: bytes) -> dict[str, Any]:
    """The row of ``ALERT`` in ``data``; raises ValueError saying which key is missing, wrong or beyond its bound."""
    if len(data) > MAX_ALERT:
        raise ValueError(f"{len(data)} bytes, at most {MAX_ALERT}")
    document = unpack(data, items=MAX_FIELDS, text=MAX_RAW, binary=MAX_RAW)
    version = document.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ValueError(f"schema_version: {version} is newer than {SCHEMA_VERSION}, which this reader knows")
    row = fit(ALERT, document)
    if row["kind"] not in KINDS:
        raise ValueError(f"kind: expects one of {', '.join(KINDS)}, not {row['kind'][:80]!r}")
    if not row["alert_id"] or not row["agent_id"]:
        raise ValueError("alert_id, agent_id: must not be empty")
    if not 0 <= row["seq"] <= MAX_SEQ:
        raise ValueError(f"seq: expects 0 to {MAX_SEQ}, not {row['seq']}")
    if not 0 < row["count"] <= MAX_COUNT:
        raise ValueError(f"count: expects 1 to {MAX_COUNT}, not {row['count']}")
    if not _is_date(row["received_date"]):
        raise ValueError(f"received_date: expects YYYY-MM-DD, not {row['received_date'][:80]!r}")
    return row


def own_row(data: bytes) -> dict[str, Any]:
    """The same of what ``encode`` gave, in a third of the time: that its bounds are kept is not looked at again. Raises
    ValueError for what another version encoded, or nobody."""
    row = msgpack.unpackb(data)
    if not isinstance(row, dict) or row.keys() != _COLUMNS or row["schema_version"] != SCHEMA_VERSION:
        raise ValueError("not encoded by this version")
    return row


_COLUMNS = {column.name for column in ALERT}


@lru_cache(maxsize=64)
def renumbered(data: bytes) -> Callable[[int], bytes]:
    """What gives an encoded alert under another ``seq``. Raises ValueError when it is none."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(data)
    try:
        for _ in range(unpacker.read_map_header()):
            if unpacker.unpack() == "seq":
                begin = unpacker.tell()
                unpacker.skip()
                head, rest = data[:begin], data[unpacker.tell() :]
                return lambda seq: head + _pack(seq) + rest
            unpacker.skip()
    except (msgpack.UnpackException, ValueError) as error:
        raise ValueError(f"not an encoded alert: {error}") from error
    raise ValueError("not an encoded alert: it has no seq")


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def seq_of(data: bytes) -> int | None:
    """The seq of an alert that cannot be read otherwise; None when not even that can be. Other keys are skipped,
    nothing is allocated for them."""
    try:
        unpacker = flat(data)
        for _ in range(min(unpacker.read_map_header(), MAX_FIELDS)):
            if unpacker.unpack() == "seq":
                seq = unpacker.unpack()
                return seq if type(seq) is int and 0 <= seq <= MAX_SEQ else None
            unpacker.skip()
    except (ValueError, msgpack.UnpackException):
        pass
    return None


def flat(data: bytes) -> Any:
    """A reader of ``data`` part by part, whose ``unpack`` takes no list and no map with anything in it."""
    unpacker = msgpack.Unpacker(
        max_buffer_size=MAX_MESSAGE,
        max_str_len=MAX_VALUE,
        max_bin_len=MAX_ALERT,
        max_array_len=0,
        max_map_len=0,
        max_ext_len=0,
    )
    unpacker.feed(data)
    return unpacker


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


def landed(row: Mapping[str, Any], *, received_at: int, collector_id: str, topic: str) -> dict[str, Any]:
    """A row of ``ALERT`` as a row of ``LANDED_ALERT``, at the site that the agent states."""
    ingest = {"collector_id": collector_id, "topic": topic}
    return {**row, "received_at": received_at, "ingest": ingest, "stated_site": None}


def status_row(
    payload: bytes, *, fleet: str, agent_id: str, received_at: int, collector_id: str, topic: str
) -> dict[str, Any]:
    """A row of ``STATUS``; ``fleet`` and ``agent_id`` are the topic's.

    Raises ValueError when ``payload`` is longer than ``MAX_MESSAGE``, is not a JSON object or names another agent or
    fleet. A key of an unexpected type leaves its column null: the payload is kept whole.
    """
    if len(payload) > MAX_MESSAGE:
        raise ValueError(f"{len(payload)} bytes, at most {MAX_MESSAGE}")
    try:
        document = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError(f"expects a JSON object, not {type(document).__name__}")
    for key, named in (("agent_id", agent_id), ("fleet", fleet)):
        if (claimed := document.get(key, named)) != named:
            shown = repr(claimed[:80]) if isinstance(claimed, str) else type(claimed).__name__
            raise ValueError(f"{key}: {shown} is not the topic's {named!r}")
    row: dict[str, Any] = {"agent_id": agent_id, "fleet": fleet}
    for key in ("site", "state", "version", "bundle", "plan_digest"):
        value = document.get(key)
        row[key] = cut(value, MAX_VALUE) if isinstance(value, str) else None
    seq_high = document.get("seq_high")
    row["seq_high"] = seq_high if type(seq_high) is int and 0 <= seq_high <= MAX_SEQ else None
    row["payload"] = payload.decode("utf-8", "replace")
    return landed(row, received_at=received_at, collector_id=collector_id, topic=topic)


def dead_letter(payload: bytes, *, topic: str, reason: str, received_at: int) -> dict[str, Any]:
    """A row of ``DEAD_LETTER``: of more than ``MAX_DEAD_LETTER`` bytes the beginning, with size and digest in the
    reason."""
    reason = cut(reason, MAX_VALUE - 128)
    if len(payload) > MAX_DEAD_LETTER:
        reason = f"{reason} (cut: {len(payload)} bytes in all, SHA-256 {sha256(payload).hexdigest()})"
    return {
        "topic": cut(topic, MAX_VALUE),
        "reason": reason,
        "payload": payload[:MAX_DEAD_LETTER],
        "received_at": received_at,
    }


def unpack(data: bytes, *, items: int, text: int, binary: int) -> dict[str, Any]:
    """The msgpack map in ``data``, in which no list or map has more than ``items``, no string more than ``text`` bytes,
    no binary more than ``binary``, and nothing is an extension; raises ValueError."""
    try:
        document = msgpack.unpackb(
            data,
            strict_map_key=True,
            max_array_len=items,
            max_map_len=items,
            max_str_len=text,
            max_bin_len=binary,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"is not msgpack: {str(error) or type(error).__name__}") from error
    if not isinstance(document, dict):
        raise ValueError(f"expects a msgpack map, not {type(document).__name__}")
    return document
