"""Containers of records: each record is an event, by every way in, and whatever else looks so is one event."""

from __future__ import annotations

import asyncio
import io
import json
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.differences import walk
from tests.inputs.intake import Bin
from tests.inputs.push.reading import read
from tests.inputs.test_batches import objects, split
from tests.inputs.test_tail import append
from tests.inputs.test_tail_events import following
from tests.waits import eventually
from vedette.decode.codecs import builtin
from vedette.decode.decoder import record
from vedette.inputs import file_reader
from vedette.inputs.batches import MAX_CONTAINER, Steps, array_of
from vedette.inputs.framing import Run
from vedette.inputs.records import Part
from vedette.inputs.settings import KafkaInput
from vedette.model.event import MAX_EVENT, Flag
from vedette.runtime.offline.scan import events as scanned

TRAIL = b'{"eventVersion":"1.09","eventName":"ConsoleLogin","sourceIPAddress":"192.0.2.7"}'
FLOW = b'{"time":"2026-11-28T02:29:33Z","category":"NetworkSecurityGroupEvent","properties":{"a":[1]}}'
AUDIT = b'{"level":"Metadata","auditID":"a-1","stage":"ResponseComplete","verb":"create","user":{"username":"kim"}}'
LOGIN = b'{"kind":"admin#reports#activity","id":{"time":"2026-11-28T02:29:33.000Z"},"events":[{"type":"login"}]}'
SIGN_IN = b'{"id":"66ea54eb","createdDateTime":"2026-11-28T02:29:33Z","userPrincipalName":"kim@example.com"}'

CONTAINERS: tuple[tuple[str, bytes, list[bytes]], ...] = (
    ("CloudTrail", b'{"Records":[%b,%b]}' % (TRAIL, TRAIL), [TRAIL, TRAIL]),
    ("CloudTrail, printed", b'{\n  "Records" : [\n %b ,\n %b\n ]\n}\n' % (TRAIL, FLOW), [TRAIL, FLOW]),
    ("Azure's event hub", b'{"records": [%b, %b]}' % (FLOW, FLOW), [FLOW, FLOW]),
    ("Kubernetes' webhook",
     b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[%b,%b]}' % (AUDIT, AUDIT),
     [AUDIT, AUDIT]),
    ("a list of Kubernetes", b'{"items":[%b],"metadata":{"resourceVersion":"{9"},"kind":"List"}\r\n' % AUDIT, [AUDIT]),
    ("Google's reports",
     b'{"kind":"admin#reports#activities","etag":"\\"x\\"","items":[%b],"nextPageToken":"A:1"}' % LOGIN, [LOGIN]),
    ("Microsoft Graph",
     b'{"@odata.context":"https://graph.example.com/v1.0/$metadata#auditLogs/signIns","value":[%b]}' % SIGN_IN,
     [SIGN_IN]),
    ("an array", b"[%b,%b]" % (SIGN_IN, TRAIL), [SIGN_IN, TRAIL]),
)  # fmt: skip


@walk(("writer", "payload", "events"), CONTAINERS)
def test_a_container_is_its_records(writer: str, payload: bytes, events: list[bytes]) -> None:
    """Of MQTT and Kafka, of a body by HTTP, of a file that is scanned, whatever the kind of body says."""
    assert split(payload) == events
    part = Part(("t", 0))
    message = SimpleNamespace(value=lambda: payload, offset=lambda: 7)
    part.add(message, builtin("auto").kinds, False, frozenset())
    ((chunk, offset),) = part.chunks(KafkaInput("k", brokers=("192.0.2.9:9092",), topics=("t",)), 1)
    assert chunk is not None
    assert [chunk.data[start:end] for start, end in chunk.spans()] == events
    assert offset == 8
    for kind in ("application/json", "application/x-ndjson", ""):
        found, said = read("/events", payload, kind)
        assert (found, said.body) == (events, b'{"events":%d}' % len(events))
    first, chunks = scanned(io.BytesIO(payload))
    assert first == 0
    assert [chunk.data[start:end] for chunk in chunks for start, end in chunk.spans()] == events


@walk(
    "payload",
    [
        b'{"Records":[]}',
        b'{"Records":[1,{}]}',
        b'{"Records":["a"]}',
        b'{"Records":{"a":[{}]}}',
        b'{"Records":[{"a":1}],"Records":[{"a":2}]}',
        b'{"Records":[{"a":1}],"user":"kim"}',
        b'{"user":"kim","Records":[{"a":1}]}',
        b'{"Records":[{"a":1}]',
        b'{"Records":[{"a":1}]}}',
        b'{"Records":[{"a":1}]} {"b":2}',
        b'{"items":[{"sku":1},{"sku":2}]}',
        b'{"order":7,"items":[{"sku":1}]}',
        b'{"apiVersion":"v1","items":[{"sku":1}]}',
        b'{"kind":"order","items":[{"sku":1}],"total":3}',
        b'{"kind":"order","metadata":{"a":[1]},"items":[{"sku":1}]}',
        b'{"value":[{"v":1},{"v":2}]}',
        b'{"@odata.context":"x","value":[1]}',
        b'{"kind":"EventList","value":[{"a":1}]}',
        b'{"events":[{"a":1}]}',
    ],
)
def test_what_only_looks_so_is_one_event(payload: bytes) -> None:
    """An event may have a list of objects under such a name."""
    assert split(payload) is None
    assert read("/events", payload, "application/json")[0] == [payload]


@given(st.lists(objects, min_size=1, max_size=5), st.sampled_from([None, 1]), st.booleans(), st.randoms())
def test_every_record_in_any_order(values: list[Any], indent: int | None, ascii_only: bool, random: Any) -> None:
    """Whatever is in the records, however it is printed, and in whichever order the names stand."""
    about = {"kind": "EventList", "apiVersion": 'a"]}', "metadata": {"x": "]"} if random.random() < 0.2 else {}}
    for names in permutations((*about, "items")):
        text = json.dumps({name: about.get(name, values) for name in names}, indent=indent, ensure_ascii=ascii_only)
        found = split(text.encode())
        if found is None:  # behind the list stands what could be its end
            assert names[-1] != "items"
            continue
        assert [json.loads(event) for event in found] == values


def test_lines_that_are_containers() -> None:
    """Of a body and of a file, as of a payload."""
    line = b'{"Records":[%b,%b]}' % (TRAIL, TRAIL)
    body = line + b"\n" + FLOW + b"\n" + AUDIT + b"\n"
    assert split(body) == [TRAIL, TRAIL, FLOW, AUDIT]
    assert read("/events", body, "application/json")[0] == [TRAIL, TRAIL, FLOW, AUDIT]
    assert read("/events", body, "application/x-ndjson")[0] == [TRAIL, TRAIL, FLOW, AUDIT]
    for kind in ("application/json", "application/x-ndjson"):
        assert read("/events", line + b"\n" + line, kind)[0] == [TRAIL] * 4
    assert split(line + b"\n" + line) == [TRAIL] * 4
    first, chunks = scanned(io.BytesIO(body))
    assert first == 1
    assert [chunk.data[start:end] for chunk in chunks for start, end in chunk.spans()] == [TRAIL, TRAIL, FLOW, AUDIT]


async def test_a_file_of_containers(tmp_path: Path) -> None:
    """A followed file of containers has records for events, also of a line beyond MAX_EVENT;
    its place is behind the line. So has one whose first line is another."""
    path, bin = tmp_path / "trail.json", Bin()
    many = MAX_EVENT * 2 // len(TRAIL)
    long = b'{"Records":[' + b",".join([TRAIL] * many) + b"]}"
    append(path, long + b"\n" + FLOW + b'\n{"Records":[' + TRAIL + b"," + FLOW)
    async with following(bin, path):
        await eventually("its records", lambda: len(bin.events) == many + 1)
    assert bin.events == [TRAIL] * many + [FLOW]
    assert bin.chunks[-1].file is not None
    assert bin.chunks[-1].file.position == len(long) + len(FLOW) + 2
    append(path, b"]}\n")
    async with following(bin, path):
        await eventually("the others", lambda: len(bin.events) == many + 3)
    assert bin.events[-2:] == [TRAIL, FLOW]
    other, lines = tmp_path / "other.json", Bin()
    append(other, FLOW + b'\n{"Records":[{},{}]}\n')
    async with following(lines, other):
        await eventually("its records", lambda: len(lines.events) == 3)


async def test_a_line_too_long_for_a_container(tmp_path: Path) -> None:
    """It is cut and flagged as any long line, and so is a record; the next line is read as ever."""
    path, bin = tmp_path / "trail.json", Bin()
    large = b'{"a":"' + b"x" * MAX_EVENT + b'"}'
    append(path, b'{"Records":[{"a":"' + b"x" * MAX_CONTAINER + b'"}]}\n{"Records":[' + large + b"," + TRAIL + b"]}\n")
    async with following(bin, path):
        await eventually("three events", lambda: len(bin.events) == 3)
    assert [len(event) for event in bin.events] == [MAX_EVENT, MAX_EVENT, len(TRAIL)]
    assert [bits for chunk in bin.chunks for _, bits in chunk.marks] == [Flag.CUT, Flag.CUT]


def test_an_item_of_a_list_is_kubernetes_audit() -> None:
    """The list has the version, not its items."""
    assert record(AUDIT, "auto").source.products == {"kubernetes"}


@pytest.mark.parametrize("text", ['{"kind":"x",' * 9999, '{"items":[{' + '"a":[' * 9999, '{"kind":"' + "\\" * 99999])
def test_hostile_text(text: str) -> None:
    """No time beyond a look at each byte, no exception."""
    assert array_of(text.encode()) in (b"", b"[")
    assert split(text.encode()) is None


@pytest.mark.parametrize("newline", [b"", b"\n"])
async def test_a_container_of_records_is_read_in_steps(
    newline: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that contains many records keeps others waiting for some kilobytes at a time, also at the file's end."""
    counts: list[int] = []

    async def counted(steps: Steps[Run | None]) -> Run | None:
        counts.append(0)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                run: Run | None = done.value
                return run
            counts[-1] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(file_reader, "in_steps", counted)
    record = b'{"a":' + b"[" * 9 + b"]" * 9 + b"}"
    line = b'{"Records":[' + b",".join([record] * 5000) + b"]}"
    path, bin = tmp_path / "trail.json", Bin()
    append(path, line + newline)
    async with following(bin, path):
        if not newline:
            append(path, b"\n")
        await eventually("the records", lambda: len(bin.events) == 5000)
    assert bin.events == [record] * 5000
    assert max(counts) > len(line) // (32 << 10)
