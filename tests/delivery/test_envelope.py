"""The alert's schema: what is encoded comes back, bounds hold, and what does not fit is named."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.delivery import envelope, receipts
from vedette.delivery.batch import split_batch
from vedette.delivery.columns import EARLIEST, LATEST
from vedette.model.event import Alert, Contribution, Entity, LogSource, RawRef

LOG = "ab" * 16
FULL = Alert(
    alert_id="c" * 32,
    seq=7,
    rule_id="5d6a1b0e-0000-4000-8000-000000000001",
    rule_title="Many failed logins",
    rule_digest="d" * 32,
    level="high",
    agent_id="web1",
    site="vienna",
    fleet="shops",
    event_time=1_763_690_400_000_001,
    detected_at=1_763_690_400_500_000,
    received_date="2025-11-21",
    source="syslog",
    raw="<38>Nov 21 02:00:00 web1 sshd[7]: Failed password für root",
    raw_ref=RawRef(LOG, 1 << 40, 59),
    kind="correlation",
    parent_id="e" * 32,
    host="web1",
    tags=("attack.t1110",),
    logsource=LogSource("linux", "", "sshd"),
    fields={"user": "root", "src_ip": "203.0.113.9"},
    entities=(Entity("ip", "203.0.113.9"), Entity("user", "root")),
    contributing=(Contribution("r1", 1_763_690_399_000_000, RawRef(LOG, 5, 9)),),
    group_by={"src_ip": "203.0.113.9"},
    count=12,
    first_time=1_763_690_300_000_000,
    last_time=1_763_690_400_000_001,
    bundle="starter 3",
    flags=("cut", "dup"),
)
LEAST = Alert("a", 1, "r", "t", "d", "low", "a", "s", "f", 0, 0, "1970-01-01", "in", "", RawRef(LOG, 0, 0))

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TIME = st.integers(EARLIEST, LATEST)
REFS = st.builds(RawRef, TEXT, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 31) - 1))
MAPS = st.dictionaries(TEXT, TEXT, max_size=5)
ALERTS = st.builds(
    Alert,
    alert_id=st.text("0123456789abcdef", min_size=32, max_size=32),
    seq=st.integers(0, envelope.MAX_SEQ),
    agent_id=TEXT.filter(bool),
    event_time=TIME,
    detected_at=st.integers(0, LATEST),
    received_date=st.integers(0, LATEST).map(envelope.received_date),
    raw=TEXT,
    raw_ref=REFS,
    kind=st.sampled_from(envelope.KINDS),
    parent_id=st.none() | TEXT,
    host=st.none() | TEXT,
    tags=st.lists(TEXT, max_size=3).map(tuple),
    logsource=st.builds(LogSource, TEXT, TEXT, TEXT),
    fields=MAPS,
    entities=st.lists(st.builds(Entity, TEXT, TEXT), max_size=3).map(tuple),
    contributing=st.just(()) | st.lists(st.builds(Contribution, TEXT, TIME, REFS), max_size=3).map(tuple),
    group_by=st.just({}) | MAPS,
    count=st.integers(1, 1 << 40),
    first_time=st.none() | TIME,
    last_time=st.none() | TIME,
    bundle=st.none() | TEXT,
    flags=st.lists(TEXT, max_size=3).map(tuple),
    **dict.fromkeys(("rule_id", "rule_title", "rule_digest", "level", "site", "fleet", "source"), TEXT),
)


def test_columns_are_the_designs() -> None:
    """The columns are those of the design, in its order, and a row has exactly these keys."""
    names = [
        *("schema_version", "alert_id", "parent_id", "seq", "kind", "rule_id", "rule_title", "rule_digest", "level"),
        *("tags", "agent_id", "site", "fleet", "host", "event_time", "detected_at", "received_date", "source"),
        *("logsource", "fields", "entities", "raw", "raw_ref", "contributing", "group_by", "count", "first_time"),
        *("last_time", "bundle", "flags"),
    ]
    assert [column.name for column in envelope.ALERT] == names
    assert [column.name for column in envelope.LANDED_ALERT] == [*names, "received_at", "ingest", "stated_site"]
    assert list(envelope.to_row(FULL)) == names


@pytest.mark.parametrize("alert", [FULL, LEAST], ids=["full", "least"])
def test_an_alert_comes_back(alert: Alert) -> None:
    """Decoding gives the alert that was encoded, and its row."""
    data = envelope.encode(alert)
    assert envelope.decode(data) == alert
    assert envelope.decode_row(data) == envelope.own_row(data) == envelope.to_row(alert)


@settings(max_examples=100)
@given(ALERTS)
def test_any_alert_comes_back(alert: Alert) -> None:
    """Any alert within the bounds comes back equal, of the bytes that its row has."""
    data = envelope.encode(alert)
    assert envelope.decode(data) == alert
    assert data == msgpack.packb(envelope.to_row(alert))
    numbered = envelope.renumbered(data)
    for seq in (0, 1, 300, 1 << 40):
        assert numbered(seq) == envelope.encode(replace(alert, seq=seq))


@pytest.mark.parametrize("data", [b"", b"\x81", b"\x01", msgpack.packb({"a": 1}), msgpack.packb([1])])
def test_only_an_alert_is_renumbered(data: bytes) -> None:
    """What is no encoded alert is refused."""
    with pytest.raises(ValueError, match="not an encoded alert"):
        envelope.renumbered(data)


def test_received_date_is_the_edges_utc_date() -> None:
    """``received_date`` is a UTC date, on both sides of midnight."""
    midnight = 1_763_683_200_000_000
    assert envelope.received_date(midnight) == "2025-11-21"
    assert envelope.received_date(midnight - 1) == "2025-11-20"


def test_the_id_is_of_its_parts() -> None:
    """The id is fixed for all time by its parts, and no two splits of the same text share one."""
    assert envelope.alert_id("web1", LOG, "r1", 42, "203.0.113.9") == "258c4f9296c984ba9f29a1ad9feaec2c"
    ids = {
        envelope.alert_id(*parts)
        for parts in [
            ("a", "b", "c", 1, ""), ("ab", "", "c", 1, ""), ("a", "bc", "", 1, ""), ("a", "b", "c", 11, ""),
            ("a", "b", "c1", 1, ""), ("a", "b", "c", 1, "\udcff"), ("a", "b", "c", 1, "1"),
        ]
    }  # fmt: skip
    assert len(ids) == 7


def test_bounds_hold() -> None:
    """Text is cut at a character, lists and maps at their bounds, and lone surrogates become question marks."""
    big = replace(
        FULL,
        raw="é" * 3000,
        host="h" * 5000,
        fields={"bad": "a\ud800b", **{f"f{i}": "€" * 1000 for i in range(100)}},
        entities=(Entity("user", "u" * 2000),) * 40,
        contributing=FULL.contributing * 30,
        tags=("t",) * 100,
    )
    row = envelope.decode_row(envelope.encode(big))
    alone = replace(big, kind="detection", contributing=(), group_by={})
    assert envelope.encode(alone) == msgpack.packb(envelope.to_row(alone))
    assert row["raw"] == "é" * 1024
    assert row["fields"]["bad"] == "a?b"
    assert row["fields"]["f0"] == "€" * 341
    assert len(row["fields"]) == 64
    assert [len(row[name]) for name in ("host", "entities", "contributing", "tags")] == [1024, 32, 20, 64]


def test_with_every_bound_spent_an_alert_fits() -> None:
    """The longest alert that the encoder makes is read, and a batch that ends with it is one message."""
    long = "€" * 2000
    alert = replace(
        FULL,
        **dict.fromkeys(("rule_id", "rule_title", "host", "raw"), long),
        tags=(long,) * 99,
        logsource=LogSource(long, long, long),
        fields={f"{n} {long}": long for n in range(99)},
        group_by={f"{n} {long}": long for n in range(99)},
        entities=(Entity("user", long),) * 99,
        contributing=(Contribution(long, LATEST, RawRef(LOG, (1 << 63) - 1, (1 << 31) - 1)),) * 99,
        flags=("flag",) * 99,
        count=1 << 50,
    )
    data = envelope.encode(alert)
    assert envelope.decode_row(data)["count"] == envelope.MAX_COUNT
    assert envelope.MAX_ALERT // 2 < len(data) <= envelope.MAX_ALERT
    least = envelope.encode(LEAST)
    batch = envelope.pack_batch(LOG, [least] * (envelope.BATCH_BYTES // len(least)) + [data])
    assert len(split_batch(batch)[1]) > 200


@pytest.mark.parametrize(
    ("data", "seq"),
    [
        (msgpack.packb({"a": [[1]] * 999, "seq": 7}), 7),
        (msgpack.packb({"seq": 1 << 53}), None),
        (msgpack.packb({"seq": -1}), None),
        (msgpack.packb({"seq": [7]}), None),
        (msgpack.packb({"a": 7}), None),
        (msgpack.packb([7]), None),
        (b"\x81", None),
        (b"\xc1", None),
        (b"", None),
        (b"\x82\x91\x91\x01\x01\xa3seq\x07", None),
    ],
)
def test_the_seq_of_what_cannot_be_read(data: bytes, seq: int | None) -> None:
    """The seq is found behind keys of any content, and nothing else is taken for one."""
    assert envelope.seq_of(data) == seq


def test_a_dead_letter_is_bounded() -> None:
    """What is longer than its bound is cut, and the reason has size and digest of the whole."""
    payload = bytes(envelope.MAX_DEAD_LETTER + 1)
    whole = envelope.dead_letter(payload[1:], topic="t", reason="r", received_at=0)
    assert (whole["payload"], whole["reason"]) == (payload[1:], "r")
    row = envelope.dead_letter(payload, topic="t" * 9000, reason="r" * 9000, received_at=0)
    assert row["payload"] == payload[1:]
    assert row["reason"].endswith(f"(cut: 65537 bytes in all, SHA-256 {sha256(payload).hexdigest()})")
    assert max(len(row["topic"]), len(row["reason"])) <= envelope.MAX_VALUE


@given(st.text(max_size=40), st.integers(0, 50))
def test_cut_is_the_longest_whole_beginning(text: str, limit: int) -> None:
    """``cut`` keeps the longest beginning that fits and splits no character."""
    clean = text.encode("utf-8", "replace").decode()
    kept = envelope.cut(text, limit)
    assert clean.startswith(kept)
    assert len(kept.encode()) <= limit
    assert kept == clean or len(clean[: len(kept) + 1].encode()) > limit


def test_a_newer_minor_is_read() -> None:
    """Keys that this reader does not know are left out; a nullable column that is absent is null."""
    row = {**envelope.to_row(FULL), "new": [1, {"deep": b""}]}
    row["raw_ref"] = {**row["raw_ref"], "newer": 1}
    del row["host"]
    assert envelope.decode(msgpack.packb(row)) == replace(FULL, host=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seq": None}, "seq: missing"),
        ({"seq": "1"}, "seq: expects int64, not str"),
        ({"count": True}, "count: expects int64, not bool"),
        ({"seq": 1 << 63}, "seq: 9223372036854775808 is out of range"),
        ({"event_time": LATEST + 1}, "event_time: .* out of range for timestamp"),
        ({"tags": "attack"}, "tags: expects a list, not str"),
        ({"tags": ["a", 1]}, r"tags\[1\]: expects string, not int"),
        ({"fields": {"a": 1}}, "fields: expects a map of strings"),
        ({"raw_ref": {"log_id": LOG, "offset": 0}}, r"raw_ref.length: missing"),
        ({"entities": [{"kind": "ip", "value": b""}]}, r"entities\[0\].value: expects string, not bytes"),
        ({"tags": ["t"] * 64 + ["u"]}, "65 exceeds max_array_len"),
        ({"entities": [{"kind": "ip", "value": ""}] * 33}, "entities: 33 in it, at most 32"),
        ({"contributing": [{}] * 21}, "contributing: 21 in it, at most 20"),
        ({"fields": {str(n): "" for n in range(65)}}, "65 exceeds max_map_len"),
        ({"raw": "é" * 1025}, "2050 exceeds max_str_len"),
        ({"rule_title": "é" * 600}, "rule_title: 1200 bytes, at most 1024"),
        ({"fields": {"f": "v" * 1025}}, "fields: 1025 bytes, at most 1024"),
        ({"new": msgpack.ExtType(1, b"x")}, "max_ext_len"),
        ({"new": [[[]] * 64] * 64 + [0]}, "65 exceeds max_array_len"),
        ({"event_time": float("nan")}, "event_time: expects timestamp, not float"),
        ({"seq": -1}, "seq: expects 0 to 9007199254740991, not -1"),
        ({"seq": 1 << 53}, "seq: expects 0 to 9007199254740991, not 9007199254740992"),
        ({"count": 0}, "count: expects 1 to"),
        ({"count": (1 << 40) + 1}, "count: expects 1 to"),
        ({"received_date": "2026-02-30"}, "received_date: expects YYYY-MM-DD"),
        ({"kind": "rumour"}, "kind: expects one of detection, correlation, fold"),
        ({"alert_id": ""}, "alert_id, agent_id: must not be empty"),
        ({"received_date": "../../etc"}, "received_date: expects YYYY-MM-DD"),
        ({"schema_version": 2}, "schema_version: 2 is newer than 1"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, Any], message: str) -> None:
    """A missing or badly typed key raises ValueError that says which and why."""
    with pytest.raises(ValueError, match=message):
        envelope.decode_row(msgpack.packb({**envelope.to_row(FULL), **change}))


@pytest.mark.parametrize("ranges", [None, [[1]], [[2, 1]], [[-1, 1]], [[1, 1 << 63]], [["1", 2]], [[1, 1]] * 10_001])
def test_a_malformed_receipt_is_refused(ranges: Any) -> None:
    """Ranges that are none, turned round, negative or too many raise ValueError."""
    with pytest.raises(ValueError, match=r"ranges|exceeds"):
        receipts.unpack_receipt(msgpack.packb({"log_id": LOG, "ranges": ranges}))


@given(st.lists(st.integers(0, 30)))
def test_ranges_cover_exactly(seqs: list[int]) -> None:
    """``ranges`` covers exactly the given seqs, ascending, with a gap between any two runs."""
    runs = receipts.ranges(seqs)
    assert [seq for first, last in runs for seq in range(first, last + 1)] == sorted(set(seqs))
    assert all(second[0] > first[1] + 1 for first, second in pairwise(runs))


def status(payload: bytes) -> dict[str, Any]:
    """A status row as the landing makes it."""
    return envelope.status_row(
        payload, fleet="shops", agent_id="web1", received_at=5, collector_id="land1", topic="t/status"
    )


def test_status_rows() -> None:
    """A heartbeat's known keys become columns, odd ones null, and the payload is kept whole."""
    payload = b'{"agent_id":"web1","state":"up","version":"0.1.0","seq_high":9,"bundle":3,"other":[1]}'
    row = status(payload)
    assert list(row) == [column.name for column in envelope.STATUS]
    assert (row["state"], row["version"], row["seq_high"], row["bundle"], row["site"]) == ("up", "0.1.0", 9, None, None)
    assert row["payload"].encode() == payload
    assert row["ingest"] == {"collector_id": "land1", "topic": "t/status"}
    highest = {said: status(b'{"seq_high":%d}' % said)["seq_high"] for said in (envelope.MAX_SEQ, 1 << 53, 1 << 63, -1)}
    assert [said for said, seq_high in highest.items() if seq_high == said] == [envelope.MAX_SEQ]


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"agent_id":"web2"}', b'{"fleet":"other"}', b"\xff"])
def test_a_wrong_status_is_refused(payload: bytes) -> None:
    """A status that is no JSON object, or of another agent than its topic's, raises ValueError."""
    with pytest.raises(ValueError, match=r"JSON|is not the topic's"):
        status(payload)
