"""Containers of records as careless writers send them: marked, in UTF-16, long, two at once, with slips."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differences import walk
from tests.inputs.intake import Bin
from tests.inputs.push.reading import read
from tests.inputs.test_batches import objects
from tests.inputs.test_tail import append
from tests.inputs.test_tail_events import following
from tests.waits import eventually
from vedette.decode.codecs import builtin
from vedette.inputs.batches import events_of, split
from vedette.inputs.framing import Run
from vedette.inputs.push.base import Request
from vedette.inputs.push.lines import LINES
from vedette.inputs.records import Part
from vedette.inputs.settings import KafkaInput
from vedette.inputs.tailed import Tailed
from vedette.model.event import CHUNK_BYTES, MAX_EVENT, Chunk, Flag
from vedette.runtime.offline.scan import as_utf8
from vedette.runtime.offline.scan import events as scanned

MARK = b"\xef\xbb\xbf"
EVIL = b'{"who":"evil"}'
GRAPH = (
    b'{"@odata.context":"https://graph.microsoft.com/v1.0/$metadata#auditLogs/signIns",'
    b'"@odata.nextLink":"https://graph.microsoft.com/v1.0/auditLogs/signIns?$skiptoken=%b","value":[%b]}'
)


def of(run: Run | None) -> list[bytes]:
    if run is None:
        return []
    return run.data[:-1].split(b"\n") if run.ends is None else list(events_of(run))


def by_kafka(payload: bytes) -> list[Chunk]:
    part = Part(("t", 0))
    message = SimpleNamespace(value=lambda: payload, offset=lambda: 7)
    part.add(message, builtin("auto").kinds, False, frozenset())
    settings = KafkaInput("k", brokers=("192.0.2.9:9092",), topics=("t",))
    return [chunk for chunk, _ in part.chunks(settings, 1) if chunk is not None]


def by_file(data: bytes) -> list[bytes]:
    """Read in pieces as an input reads it."""
    file = Tailed("x", (0, 0), "x", None, True)
    events: list[bytes] = []
    for at in range(0, len(data), CHUNK_BYTES):
        file.feed(data[at : at + CHUNK_BYTES], 0.0)
        events += of(file.take())
    file.end()
    return [*events, *of(file.take())]


def by_scan(data: bytes) -> list[bytes]:
    chunks = scanned(as_utf8(io.BytesIO(data)))[1]
    return [chunk.data[start:end] for chunk in chunks for start, end in chunk.spans()]


def by_push(payload: bytes) -> list[bytes]:
    events = {kind: read("/events", payload, kind)[0] for kind in ("application/json", "application/x-ndjson")}
    assert events["application/json"] == events["application/x-ndjson"]
    return events["application/json"]


def by_all_ways(payload: bytes, events: list[bytes]) -> None:
    assert of(split(payload)) == events
    assert [event for chunk in by_kafka(payload) for event in events_of(Run(chunk.data, chunk.ends, ()))] == events
    assert by_push(payload) == events
    assert by_file(payload) == events
    assert by_scan(payload) == events


@walk(
    ("name", "payload"),
    [
        ("a container", b'{"Records":[{"who":"ok"},%b]}' % EVIL),
        ("an array", b'[{"who":"ok"},%b]' % EVIL),
        ("Microsoft Graph", GRAPH % (b"a" * 1200, b'{"who":"ok"},' + EVIL)),
        ("Microsoft Graph, very long", GRAPH % (b"a" * 300_000, b'{"who":"ok"},' + EVIL)),
    ],
)
def test_marked_wide_and_long(name: str, payload: bytes) -> None:
    """A byte order mark before it, UTF-16, and where in its line the array begins, hide no record."""
    events = [b'{"who":"ok"}', EVIL]
    by_all_ways(payload, events)
    by_all_ways(MARK + payload, events)
    for encoding in ("utf-16-le", "utf-16-be"):
        for mark in ("\ufeff", ""):
            wide = (mark + payload.decode() + "\n").encode(encoding)
            assert by_file(wide) == by_scan(wide) == events
    lines = MARK + payload + b"\n" + payload + b"\n"
    by_all_ways(lines, events * 2)


def test_a_mark_before_lines() -> None:
    """It is no part of the first, and what is no batch stays as it is."""
    assert of(split(MARK + b'{"a":1}\n{"b":2}')) == [b'{"a":1}', b'{"b":2}']
    assert by_push(MARK + b'{"a":1}\n{"b":2}') == [b'{"a":1}', b'{"b":2}']
    assert split(MARK + b'{"a":1}') is None


def test_a_container_behind_another_line() -> None:
    """Whatever the first line is, each that is a container is its records, by every way in."""
    by_all_ways(b'{"a":1}\n{"Records":[{"who":"ok"},%b]}\n' % EVIL, [b'{"a":1}', b'{"who":"ok"}', EVIL])
    text = b'text\n{"Records":[{"who":"ok"},%b]}\n' % EVIL
    events = [b"text", b'{"who":"ok"}', EVIL]
    assert by_file(text) == by_scan(text) == read("/events", text, "text/plain")[0] == events


async def test_files_gone_on_with(tmp_path: Path) -> None:
    """Behind a restart, too, records are events, whatever the file's first line is and however long."""
    path, bin = tmp_path / "graph.json", Bin()
    line = GRAPH % (b"a" * 1200, b'{"who":"ok"},' + EVIL) + b"\n"
    append(path, MARK + line)
    for count in (2, 4):
        async with following(bin, path):
            await eventually("its records", lambda count=count: len(bin.events) == count)
        append(path, line)
    assert bin.events == [b'{"who":"ok"}', EVIL] * 2


PAD = b'{"pad":"%b"}' % (b"x" * 500)
LARGE = b'{"Records":[%b]}' % b",".join([PAD] * 1500 + [EVIL] + [PAD] * 1500)
LONG = b'{"a":"%b"}' % (b"x" * (MAX_EVENT + 9))


def test_two_large_containers() -> None:
    """One a line, each longer than an event may be: all their records are events."""
    events = [*[PAD] * 1500, EVIL, *[PAD] * 1500] * 2
    assert len(LARGE) > MAX_EVENT
    by_all_ways(LARGE + b"\n" + LARGE + b"\n", events)
    by_all_ways(LARGE + b"\n" + EVIL + b"\n" + LARGE, [*events[:3001], EVIL, *events[:3001]])


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b'{"Records":[%b,%b]}\n{"Records":[%b]}\n' % (EVIL, LONG, EVIL), 3),
        (b"%b\n%b\n" % (LONG, EVIL), 2),
        (b'{"Records":[%b,%b]}' % (EVIL, LONG), 2),
    ],
)
def test_what_is_cut_is_flagged(payload: bytes, count: int) -> None:
    """A record that is too long is cut and flagged, and so is a line that is none."""
    run = split(payload)
    assert run is not None
    for kind in ("application/json", "application/x-ndjson"):
        marks = lengths = 0
        for some in LINES.read(Request("POST", "/events", {}, {"content-type": kind}, payload)):
            events = of(some) if isinstance(some, Run) else some
            lengths += len(events)
            marks += len(some.marks) if isinstance(some, Run) else sum(len(event) > MAX_EVENT for event in events)
        assert (lengths, marks) == (count, 1)
    (chunk,) = by_kafka(payload)
    for one in (run, chunk):
        assert [bits for _, bits in one.marks] == [Flag.CUT]
        assert one.data[one.marks[0][0] :].startswith(LONG[:99])
        assert len(one.ends or ()) == count


def test_a_long_line_of_text() -> None:
    """Is cut where any is, wherever it stands, and of a file no more is kept of it."""
    file = Tailed("x", (0, 0), "x", None, True)
    for _ in range(40):
        file.feed(b"x" * CHUNK_BYTES, 0.0)
        assert file.unfinished <= MAX_EVENT
    file.feed(b"\n{}\n", 0.0)
    run = file.take()
    assert run is not None
    assert [len(event) for event in of(run)] == [MAX_EVENT, 2]
    assert run.marks == ((0, Flag.CUT),)


SLIPS = [b'{"n":NaN}', b'{"n":"caf\xe9"}', b'{"n":"a\x01"}', b'{"n":"\\ud800"}', b'{"n":-Infinity,"x":[{},{}]}',
         b'{"n":nan}', b'{"n":01}', b'{"n":"\\x"}', b'{"n":1,}']  # fmt: skip
"""Records with a writer's slip, of which some can be read as JSON all the same."""


@walk("slip", SLIPS)
def test_a_slip_in_a_record(slip: bytes) -> None:
    """Hides no other record of its batch, wherever it stands, and however much is in the batch."""
    for records in ([slip, EVIL], [EVIL, slip], [EVIL, slip, EVIL], [slip] * 3, [b'{"a":[{},{}]}', slip, EVIL]):
        array = b" ,\n".join(records)
        for payload in (b"[%b]" % array, b'{"Records":[%b]}' % array, b'{"kind":"EventList","items":[%b]}' % array):
            assert of(split(payload)) == records
            assert by_push(payload) == records
    many = [b'{"number":%d,"list":[{},{}]}' % number for number in range(30_000)]
    large = b'{"pad":"%b",%b' % (b"x" * 20_000, slip[1:])
    deep = b'{"deep":%b,%b' % (b"[" * 20 + b"]" * 20, slip[1:])
    for records in ([*many, slip, *many, EVIL], [large, EVIL], [EVIL, deep, large, EVIL]):
        payload = b"[%b]" % b",".join(records)
        assert of(split(payload)) == records
    by_all_ways(b'{"Records":[%b,%b]}' % (slip, EVIL), [slip, EVIL])


def test_a_slip_beside_the_records() -> None:
    """Hides none, nor what stands beside it."""
    watch = (
        b'{"messageType":"DATA\x01","owner":"1","logGroup":"caf\xe9","logStream":"s",'
        b'"logEvents":[{"id":"1","timestamp":1,"message":"a"},{"id":"2","timestamp":1,"message":"b"}]}'
    )
    events = of(split(watch))
    assert [json.loads(event)["message"] for event in events] == ["a", "b"]
    assert {json.loads(event)["owner"] for event in events} == {"1"}
    for slip in (b"NaN", b'"a\x01"', b'"\xe9"'):
        (event,) = of(split(b'{"_raw":"<13>Nov 20 10:00:00 web1 sshd[7]: x","_time":1,"n":%b}' % slip))
        assert json.loads(event)["SYSLOG_IDENTIFIER"] == "sshd"


@pytest.mark.parametrize(
    "payload",
    [
        b'[{"n":NaN},7]', b'[{"n":NaN},[]]', b'[{"n":NaN},{"a":1}', b'[{"n":NaN},{"a":1}]]', b'[{"n":NaN},{"a":1}] x',
        b"[{foo,1},{bar,2}]", b"[{'a': 1}, {'b': 2}]", b'[{"n":NaN},,{}]', b'[{"n":NaN},]', b'[{"a"},{"b"}]',
        b'[{"n":NaN},{"a":"]', b"[{NaN}]",
    ],
)  # fmt: skip
def test_what_only_looks_like_an_array(payload: bytes) -> None:
    """Is one event: its brackets do not close, or not all in it are objects."""
    assert split(payload) is None
    assert read("/events", payload, "application/json")[0] == [payload]


@given(st.lists(objects, min_size=1, max_size=5), st.integers(0, 5), st.sampled_from(SLIPS), st.booleans())
def test_a_slip_among_any_records(values: list[object], at: int, slip: bytes, ascii_only: bool) -> None:
    """Whatever the others are, they are the events that they are without it."""
    records = [json.dumps(value, ensure_ascii=ascii_only).encode() for value in values]
    records.insert(at, slip)
    assert of(split(b"[%b]" % b", ".join(records))) == records
