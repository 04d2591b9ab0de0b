"""What reads bytes that somebody else has written: a table of targets for hypothesis and atheris alike.

A target takes any bytes and returns; what the reader promises is asserted inside, and the exceptions that it promises
(ValueError of a decoder, for one) are part of that. Whatever else comes out is a defect. ``seeds`` are good inputs to
start from.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgpack
import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fleet.asking import FLEET, OPERATORS, Authority, asked, signed
from vedette.bundle.manifest import Manifest
from vedette.bundle.seal import key_text, seal
from vedette.bundle.trust import inspect, verify
from vedette.config.read import ConfigError, parse
from vedette.decode import syslog
from vedette.decode.codecs import CODECS
from vedette.decode.decoder import record
from vedette.decode.entities import entities
from vedette.delivery import envelope, receipts, topics
from vedette.delivery.batch import DICTIONARIES, press, split_batch
from vedette.engine.artifact import Artifact
from vedette.engine.cache import Cache
from vedette.engine.match import Engine
from vedette.fleet.operators import read_operators
from vedette.fleet.replies import Part, ReplyRefused, packed
from vedette.fleet.replies import pack as pack_reply
from vedette.fleet.replies import records as reply_records
from vedette.fleet.replies import unpack as unpack_reply
from vedette.fleet.requests import read as read_request
from vedette.inputs.batches import events_of, split
from vedette.inputs.framing import Lines, StreamFramer
from vedette.inputs.push.base import LOKI_PATH, PROTOBUF, Refused, Request
from vedette.inputs.push.loki import LOKI
from vedette.inputs.push.loki_protobuf import PushRequest
from vedette.inputs.push.snappy import unpack
from vedette.model.event import MAX_EVENT, Alert, Chunk, Contribution, Cursor, Entity, FilePosition, RawRef
from vedette.plan.plan import Plan
from vedette.rawlog import checkpoint, format
from vedette.region.build import build as build_bundle
from vedette.rules.build import from_rules, from_text
from vedette.rules.ruleset import RuleSet
from vedette.rules.sql.frontend import Sql
from vedette.runtime.rulesets.arrivals import announcement

ROOT = Path(__file__).parents[2]
LOG = "00112233445566778899aabbccddeeff"
NOW = 1_795_228_874_000_000


class Target(NamedTuple):
    """``run`` on any bytes; ``seeds`` are good ones."""

    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


# --- framing


def _framed(framer: StreamFramer, pieces: tuple[bytes, ...]) -> list[tuple[bytes, list[int]]] | None:
    """The runs, as far as they do not depend on where the stream was cut; None after a malformed count."""
    try:
        for piece in pieces:
            framer.feed(piece)
            assert framer.buffered <= sum(map(len, pieces)) + len(pieces) + 1
            assert framer.unfinished <= MAX_EVENT + 16
        framer.end()
    except ValueError:
        return None
    events = []
    for run in framer.take():
        events.append((bytes(run.data), list(run.ends) if run.ends is not None else []))
    assert framer.buffered == 0
    return events


def framing(data: bytes) -> None:
    """However a stream is cut into reads, its messages are the same; nothing but a malformed count is an error."""
    at = data[0] * len(data) // 256 if data else 0
    whole, parts = _framed(StreamFramer(), (data,)), _framed(StreamFramer(), (data[:at], data[at:]))
    assert (whole is None) == (parts is None)
    if whole is not None and parts is not None:
        assert b"".join(run[0] for run in whole) == b"".join(run[0] for run in parts)


def lines(data: bytes) -> None:
    framer = Lines(64)
    for start in range(0, len(data), 50):
        framer.feed(data[start : start + 50])
    assert framer.buffered <= len(data) + len(data) // 50 + 2


# --- events


def header(data: bytes) -> None:
    parsed = syslog.parse(data, NOW)
    assert parsed is None or 0 <= parsed.message_start <= len(data)
    if parsed is not None:
        syslog.unfold(parsed, data)
    usual = syslog.usual(data)
    for host in (False, True) if usual is not None else ():
        syslog.without_time(usual, data, host, True)
    assert usual is None or syslog.of_usual(usual, data, NOW, None) == parsed


def decoder(codec: str) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        event = record(data, codec, origin="10.0.0.9", received_at=NOW)
        fields = dict(event.fields())
        assert all(event.get(name) == value for name, value in fields.items())
        assert all(isinstance(text, str) for text in event.keywords())
        assert event.host is None or isinstance(event.host, str)
        assert event.event_time is None or isinstance(event.event_time, int)
        assert event.source is not None
        entities(fields, event.host)

    return run


def batch(data: bytes) -> None:
    """The events of an MQTT payload are parts of it, in order, none empty."""
    at = 0
    run = split(data)
    for part in events_of(run) if run else ():
        assert part
        at = data.index(part, at) + len(part)


def _push() -> bytes:
    request = PushRequest()
    entry = request.streams.add(labels=b'{job="x\\n", a=`b`}').entries.add(line=b"Nov 23 06:16:34 h app[1]: x")
    entry.timestamp.seconds = 1_790_000_000
    entry.metadata.add(name=b"n", value=b"v")
    request.streams.add(labels=b"{}").entries.add()
    packed: bytes = request.SerializeToString()
    return packed


MOST = 1 << 20
"""Bytes that a push may have unpacked."""


def _literal(data: bytes) -> bytes:
    """As a Snappy block of one literal, so that what lies behind it is reached."""
    size, length = len(data), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes((*length, size)) + (b"\xfc" + (len(data) - 1).to_bytes(4, "little") + data if data else b"")


def loki(data: bytes) -> None:
    """A push in protobuf, packed and not: nothing but a refusal, and no more than it may have."""
    for body in (data, _literal(data)):
        reading = LOKI.read(Request("POST", LOKI_PATH, {}, {"content-type": PROTOBUF}, body, MOST))
        with suppress(Refused):
            for events in reading:
                assert all(isinstance(orjson.loads(event), dict) for event in events)
    with suppress(ValueError, OverflowError):
        turns: Generator[list[bytes], None, bytes] = unpack(data, MOST)
        for _ in turns:
            pass


_DETECTIONS = (
    "{a|contains: x, b|exists: true}", "{a: 'é/'}", "{n.x|re: '^[a-z]+$'}", "{n|gte: 7}",
    "{a|startswith: X, a|endswith: y}",
    "{cs-uri-query|contains: c}", "{cs-uri-stem: /a}", "{src_ip|cidr: 10.0.0.0/8}", "{user: null}", "{b|fieldref: a}",
    "{EventID: 1, Image|endswith: cmd.exe}", "{a|re|i: 'x.?y'}", "['x', 'y?z']", "{b: true}", "{source.ip: 10.1.2.3}",
)  # fmt: skip
_OBJECTS = (
    b'{"a":"xy","b":true,"n":{"x":"abc"},"u":"\\u00e9\\/"}\n{"a":"zy","b":false,"n":{"x":"1"},"u":""}',
    b'{"remote_addr":"10.1.2.3","status":1,"request":"GET /a?b=c HTTP/1.1","remote_user":"-"}',
    b'{"ts":1,"uid":"C","id.orig_h":"10.1.2.3","trans_depth":1,"uri":"/a?c","n":7.5}',
    b'{"client_ip":"10.1.2.3:22","a":["x",["y",null]],"b":[{"x":1},{"x":-0}]}',
    b'{"EventID":1,"Channel":"Security","Image":"C:\\\\cmd.exe","n":1e400}',
    b'<13>Oct 11 22:14:15 h app[1]: {"a":"xy","b":1}\n<13>Oct 11 22:14:15 h sshd[1]: x y',
)


@cache
def _engines() -> tuple[Engine, Engine]:
    """With the native kernel and without it: not, of what and what not each."""
    rule = "title: Rule {0}\nid: 6a1f0000-0000-4000-8000-{0:012}\nlogsource: {{category: any}}\n"
    rule += "detection:\n  s: {1}\n  condition: {2}s\nlevel: low\n"
    cases = [(one, negated) for one in _DETECTIONS for negated in ("", "not ")]
    plan = from_text("---\n".join(rule.format(i, one, negated) for i, (one, negated) in enumerate(cases)))
    assert not plan.refused
    on, off = (Engine(plan, route=False, kernel=kernel, cache=Cache(0)) for kernel in (True, False))
    return on, off


def native(data: bytes) -> None:
    """Lines of objects: the native kernel, which learns from them, leaves out no match and adds none; it does not
    panic."""
    on, off = _engines()
    chunk = Chunk("fuzz", "auto", NOW, data.rstrip(b"\n") + b"\n")
    expected = [(match.start, match.rule) for match in off.evaluate(chunk)]
    for _ in range(3):
        assert [(match.start, match.rule) for match in on.evaluate(chunk)] == expected
    assert not on.kernel().get("panics")
    assert not on.kernel_wrong


# --- the raw log


def _sealed(data: bytes) -> bytes:
    """``data`` with the sizes that it has and true checksums, so that what lies behind them is reached."""
    if len(data) < format.FRAME_HEADER:
        return data
    out = bytearray(data)
    meta_size = struct.unpack_from("<I", out, 4)[0] % (len(out) - format.FRAME_HEADER + 1)
    body_size = len(out) - format.FRAME_HEADER - meta_size
    struct.pack_into("<I", out, 4, meta_size)
    struct.pack_into("<I", out, 12, body_size)
    seed, body = crc32(bytes.fromhex(LOG)), format.FRAME_HEADER + meta_size
    struct.pack_into("<II", out, 56, crc32(out[format.FRAME_HEADER : body], seed), crc32(out[body:], seed))
    struct.pack_into("<I", out, 64, crc32(out[:64], seed))
    return bytes(out)


def frame(data: bytes) -> None:
    coder = format.Coder(LOG)
    for each in (data, _sealed(data)):
        with suppress(ValueError):
            head = coder.header(each)
            body = format.FRAME_HEADER + head.meta_size
            meta, rest = each[format.FRAME_HEADER : body], each[body : head.size]
            coder.verify_meta(head, meta)
            coder.verify(head, rest)
            if head.compacted:
                coder.unpack(head, meta)
            else:
                chunk = coder.chunk(head, coder.meta(head, meta), rest)
                assert len(chunk.data) == head.raw_size
                assert sum(1 for _ in chunk.spans()) == len(chunk)


def segment(data: bytes) -> None:
    with suppress(ValueError):
        head = format.decode_segment(data)
        format.verify_checkpoint(head, data)
    with suppress(ValueError):
        checkpoint.decode(data)
    format.parse_segment_name(data.decode("latin-1"))


# --- what comes from the broker


def _refuses(read: Callable[[bytes], object], error: type[Exception] = ValueError) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        with suppress(error):
            read(data)

    return run


def reply(data: bytes) -> None:
    """A part of a host's answer, as it came and as its records, whoever has signed it."""
    with suppress(ReplyRefused):
        unpack_reply(data, FLEET, _AUTHORITY.pem)
    with suppress(ReplyRefused):
        assert len(reply_records(Part(0, data, len(_RECORDS)))) <= len(_RECORDS)


def alerts(data: bytes) -> None:
    """As the landing reads a batch: each alert by itself."""
    for one in split_batch(data)[1]:
        with suppress(ValueError):
            envelope.decode_row(one)


def status(data: bytes) -> None:
    with suppress(ValueError):
        envelope.status_row(data, fleet="f1", agent_id="a1", received_at=NOW, collector_id="c", topic="t")
    with suppress(ValueError):
        topics.parse(data.decode("utf-8", "replace"))


def plan(data: bytes) -> None:
    with suppress(ValueError):
        assert Plan.from_bytes(data).to_bytes()


def sql(data: bytes) -> None:
    """A file of SQL is rules and refusals, each with a place in the file; a plan of them is one that an agent reads."""
    data = data[:4096]  # each statement is compiled by itself
    rules = RuleSet()
    Sql(rules).add(data, "fuzz.sql")
    lines = data.count(b"\n") + 1
    assert all(1 <= one.line <= lines and one.reason for one in rules.refused)
    if rules.statements:
        Plan.from_bytes(from_rules(rules).to_bytes())


def configuration(data: bytes) -> None:
    with suppress(ConfigError):
        parse(data.decode("utf-8", "replace"))


_SIGNER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
_TRUSTED = key_text(_SIGNER.public_key())


def sealed(data: bytes) -> None:
    """What nobody signed is not taken, whatever it is; what was signed is no larger than its file."""
    with suppress(ValueError):
        verify(data, [_TRUSTED], "0.1.0")
        assert data in _SEALED
    with suppress(ValueError):
        assert sum(map(len, verify(seal(data, _SIGNER), [_TRUSTED], "0.1.0").parts.values())) < len(data)


# --- seeds

_SYSLOG = (
    b"<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for root from 203.0.113.9 port 22 ssh2",
    b'<165>1 2026-11-20T10:00:00.003Z h.example app 7 ID47 [x@1 a="1" b="\\"]"] \xef\xbb\xbfhi',
    b"<189>12: fw1: *Nov 20 10:00:00.123 UTC: %SEC-6-IPACCESSLOGP: list 1 denied tcp 10.0.0.1(1) -> 10.0.0.2(2)",
)
_EVENTS = (
    *_SYSLOG,
    b'type=EXECVE msg=audit(1795228874.123:7): argc=2 a0="ls" a1=6C73202D6C',
    b"CEF:0|Vendor|Product|1.0|100|A \\| name|5|src=10.0.0.1 msg=a\\=b c cs1Label=x cs1=y",
    b"LEEF:2.0|Vendor|Product|1.0|100|^|src=10.0.0.1^dst=10.0.0.2",
    b'203.0.113.9 - bob [20/Nov/2026:10:00:00 +0000] "GET /a?b=%27 HTTP/1.1" 404 12 "-" "curl/8"',
    b'{"@timestamp": "2026-11-20T10:00:00Z", "host": {"name": "h"}, "a": [1, {"b": null}], "u": "\\u00e9\\/"}',
    b'date=2026-11-20 time=10:00:00 devname="fw1" type=event msg="a b"',
    b"<Event xmlns='x'><System><EventID>1</EventID></System><EventData><Data Name='a'>b&lt;</Data></EventData></Event>",
)
_RULE = """
title: A rule
id: 6a1f0000-0000-4000-8000-000000000001
logsource: {product: linux}
detection:
  a: {Image|endswith: /sh, User|re: '^ro+t$'}
  b: {CommandLine|contains: [curl, wget]}
  condition: a and not b
level: high
"""
_PLAN = from_text(_RULE).to_bytes()
_BUNDLE = build_bundle(
    name="starter", version=3, created=NOW, expires=NOW + 10**12, plan=_PLAN, databases={"prefilter": b"\xdb" * 40},
    sources={"linux/a.yml": _RULE.encode()}, rules=[{"id": "r", "title": "t", "level": "high"}], tests=[],
    hyperscan_version="5.4.12",
)  # fmt: skip
_SEALED = (seal(_BUNDLE, _SIGNER, "f1", "stable"), seal(_BUNDLE, _SIGNER))


def _frames() -> tuple[bytes, ...]:
    coder, events = format.Coder(LOG), (b"alpha", b"-", b"beta")
    some = (
        Chunk("auth", "syslog", NOW, b"one\ntwo\n", file=FilePosition("/var/log/a", 1, "ab", 8)),
        Chunk(
            "plant", "mqtt", NOW, b"".join(events), ends=array("I", accumulate(map(len, events))),
            origins=("plant/0", "plant/1", "plant/2"), origin_of=array("H", range(3)), message_ids=array("H", range(3)),
        ),
    )  # fmt: skip
    return tuple(
        b"".join(coder.encode(chunk, events=len(chunk), offset=100, first_event=7, durable=50)) for chunk in some
    )


_CHECKPOINT = checkpoint.encode(checkpoint.Checkpoint(Cursor(LOG, 7), {"stored": {"in": 3}}, (), 9))
_SEGMENT = format.encode_segment(format.SegmentHeader(LOG, 3, 1 << 40, 9, NOW, 77), _CHECKPOINT)
_TOML = (ROOT / "packaging" / "vedette.toml").read_bytes()
_CONFIG = b"""[agent]
id = "a"
[[input]]
name = "in"
type = "syslog"
tcp = "127.0.0.1:5514"
[raw_log]
max_bytes = "1GiB"
fsync = "interval:200ms"
[[suppress]]
by = ["src"]
for = "10m"
"""

_AUTHORITY = Authority()
_RECORDS = b'{"n":1}\n{"n":[2,{"m":"x"}]}\n'

_ALERT = envelope.encode(
    Alert(
        "c" * 32, 7, "r1", "A rule", "d" * 32, "high", "a1", "s1", "f1", NOW, NOW, "2026-11-21", "in", "raw",
        RawRef(LOG, 9, 3), tags=("attack.t1110",), fields={"user": "root"}, entities=(Entity("ip", "10.0.0.1"),),
        contributing=(Contribution("r2", NOW, RawRef(LOG, 1, 2)),), group_by={"user": "root"}, count=2,
    )
)  # fmt: skip

_BATCH = envelope.pack_batch(LOG, [_ALERT] * 3)
_PRESS = press(DICTIONARIES)
assert _PRESS is not None
_PRESSED = _PRESS(_BATCH)

_SQL = (
    b"-- title: t\nINSERT INTO alerts SELECT window_start, host, COUNT(DISTINCT user) AS n FROM "
    b"TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '10' MINUTES)) WHERE action = 'x' "
    b"GROUP BY window_start, window_end, host HAVING COUNT(*) > 5",
    b"CREATE TABLE t (a INT, b ROW<c STRING, d ARRAY<INT>>, ts TIMESTAMP_LTZ(3) METADATA FROM "
    b"'event_time', f AS a + 1, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = "
    b"'vedette');\nCREATE VIEW v AS SELECT * FROM t;\nSELECT l.a AS x FROM v AS l LEFT JOIN v AS r ON "
    b"l.a = r.a AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '8' HOUR",
    b"SELECT x FROM events MATCH_RECOGNIZE (PARTITION BY `user` ORDER BY event_time MEASURES "
    b"FIRST(A.x) AS x PATTERN (A+? B{2,3} C) WITHIN INTERVAL '1' HOUR DEFINE A AS A.x = '1', B AS "
    b"B.x < LAST(A.x, 1))",
    b"SELECT `user` FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY event_time) AS n "
    b"FROM events) WHERE n = 1; SELECT COUNT(*) OVER (ORDER BY event_time ROWS BETWEEN 9 PRECEDING "
    b"AND CURRENT ROW) AS c FROM events",
    b"SELECT CASE WHEN a IN ('x', 'y') THEN CAST(b AS DECIMAL(9, 2)) ELSE NULL END AS c FROM events "
    b"WHERE NOT (a LIKE 'a%' OR b BETWEEN 1 AND 2) AND EXTRACT(HOUR FROM event_time) = 3",
)
TARGETS: dict[str, Target] = {
    "framing": Target(framing, (b"".join(b"%d %s" % (len(s), s) for s in _SYSLOG), b"\n".join(_SYSLOG) + b"\n")),
    "lines": Target(lines, (b"\n".join(_SYSLOG), b"a\r\nb\0c\n")),
    "header": Target(header, _SYSLOG),
    **{f"decode-{codec}": Target(decoder(codec), _EVENTS) for codec in sorted(CODECS)},
    "frame": Target(frame, _frames()),
    "segment": Target(segment, (_SEGMENT, _CHECKPOINT)),
    "alert": Target(_refuses(envelope.decode), (_ALERT, msgpack.packb({"alert_id": "c", "seq": 1, "raw_ref": {}}))),
    "alerts": Target(_refuses(alerts), (_BATCH, _PRESSED)),
    "seq": Target(envelope.seq_of, (_ALERT, msgpack.packb({"new": [[{}]], "seq": 1}))),
    "receipt": Target(_refuses(receipts.unpack_receipt), (receipts.pack_receipt(LOG, [(1, 3), (7, 7)]),)),
    "status": Target(status, (b'{"agent_id": "a1", "fleet": "f1", "seq_high": 7}', b"vedette/v1/f1/a1/status")),
    "announcement": Target(
        _refuses(announcement), (orjson.dumps({"version": 3, "sha256": "ab" * 32, "size": 100, "created": "x"}),)
    ),
    "request": Target(_refuses(read_request), (signed(asked()), signed(asked(agents=None, group="site = vienna")))),
    "operators": Target(_refuses(lambda data: read_operators(data, FLEET)), (OPERATORS.to_bytes(),)),
    "reply": Target(
        reply, (pack_reply("ab" * 16, Part(0, packed(_RECORDS), len(_RECORDS)), _AUTHORITY.agent()), packed(_RECORDS))
    ),
    "native": Target(native, _OBJECTS),
    "loki": Target(loki, (_push(), b"\x0a\x00a\x15\x01")),
    "batch": Target(batch, (b'[{"a": 1}, {"b": "}, {"}]', b'{"a": 1}\n{"b": 2}\n', b'[{"a": [{"c": 1}, {"d": 2}]}]')),
    "bundle": Target(_refuses(inspect), (_BUNDLE, *_SEALED)),
    "sealed": Target(sealed, (_BUNDLE, *_SEALED)),
    "manifest": Target(_refuses(Manifest.from_bytes), (inspect(_BUNDLE).manifest_bytes,)),
    "plan": Target(plan, (_PLAN,)),
    "artifact": Target(_refuses(Artifact.from_bytes), (Artifact(_PLAN, {}, "5.4.12").to_bytes(),)),
    "sql": Target(sql, _SQL),
    "configuration": Target(configuration, (_CONFIG, _TOML)),
}
