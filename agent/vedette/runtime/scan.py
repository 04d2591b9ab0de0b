"""Offline evaluation: the engine of the live path over files, and over what Python hands it.

Log sources are ignored unless the engine routes; there is no raw log, no outbox and no clock. Lines are read in
chunks of ``CHUNK_BYTES``; a line longer than ``MAX_EVENT`` is cut there, as an input would cut it. Audit records of one
event are joined over chunks; an event that nothing has completed is evaluated after ``GATHER_BYTES``, as far as the
agent looks for its records, or at the end.

Correlations and statements are evaluated when all is read: a ``Timeline`` keeps what they need of the matches, sorts it
by time (and where times are equal, as it was read), and lets every window come to its end. Nothing is late and nothing
suppressed.
"""

from __future__ import annotations

import codecs
import io
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from datetime import tzinfo
from typing import Any, BinaryIO, NamedTuple, cast

import orjson

from vedette.decode.decoder import Record
from vedette.decode.values import from_json
from vedette.engine.join import GATHER_BYTES, REST, Joiner
from vedette.engine.match import Context, Engine, Match
from vedette.model.event import CHUNK_BYTES, MAX_EVENT, Chunk, Frame, LogSource
from vedette.model.times import HOUR, bsd_time, time_of, written_time
from vedette.plan.aggregates import number_of
from vedette.plan.ir import Rule
from vedette.plan.plan import Plan
from vedette.state.clock import Clock
from vedette.state.correlate import MAX_ENTRIES, Correlator
from vedette.state.firing import Firing, shown_group
from vedette.state.graph import Item, scalar
from vedette.stream.reader import Event
from vedette.stream.statements import Read, Selected, Statements
from vedette.stream.userfunctions import Functions
from vedette.system.compressed import Ahead, Readable

HEAD_BYTES = 4096
"""Of a file, looked at to tell what it holds."""
MAX_WHOLE = 512 << 20
"""Bytes of JSON over several lines, which is held in memory."""


class Detection(NamedTuple):
    """A rule that matched an event; ``line`` counts from 1 (in a JSON array: the index from 0)."""

    rule: Rule
    line: int
    record: Record
    fields: dict[str, str]
    """The fields that the rule tests or wants shown, as texts."""

    def to_row(self, file: str) -> dict[str, Any]:
        """What ``vedette scan`` prints."""
        return {
            "rule_id": self.rule.id,
            "rule_title": self.rule.title,
            "level": self.rule.level,
            "kind": "detection",
            "file": file,
            "line": self.line,
            "fields": self.fields,
        }


class Correlated(NamedTuple):
    """A correlation that fired; ``line`` is that of the event that completed it, in ``file``."""

    firing: Firing
    file: str
    line: int
    group: dict[str, str]

    def to_row(self) -> dict[str, Any]:
        """What ``vedette scan`` prints."""
        c, fields = self.firing.correlation, dict[str, Any](self.group)
        if c.kind.row.numeric:
            fields[c.kind.value] = self.firing.metric
        return {
            "rule_id": c.id,
            "rule_title": c.title,
            "level": c.level,
            "kind": "correlation",
            "file": self.file,
            "line": self.line,
            "fields": {**fields, "count": self.firing.count},
        }


class Stated(NamedTuple):
    """A row that a statement gives; ``line`` is that of the newest event behind it, in ``file``."""

    selected: Selected
    file: str
    line: int

    def to_row(self) -> dict[str, Any]:
        """What ``vedette scan`` prints."""
        one = self.selected.statement
        return {
            "rule_id": one.id,
            "rule_title": self.selected.head("title") or one.title,
            "level": self.selected.head("level") or one.level,
            "kind": "correlation" if one.stateful else "detection",
            "file": self.file,
            "line": self.line,
            "fields": self.selected.fields,
        }


class Timeline:
    """What correlations and statements need of the matches of one scan."""

    def __init__(
        self, plan: Plan, time_field: str = "", zone: tzinfo | None = None, functions: Functions | None = None
    ) -> None:
        """``time_field``: the field that says when an event happened; empty: what its decoder finds. ``functions`` runs
        user functions; without it statements that call some do not run (``without_functions``)."""
        self._plan, self._field, self._zone = plan, time_field, zone
        self._correlator = Correlator(plan.correlations, Clock(0), max_bytes=1 << 62)
        self._grouped = {rule.id: self._correlator.graph.grouped(rule.id) for rule in plan.rules}
        self._items: list[tuple[int, int, list[Item]]] = []
        self._places: list[tuple[str, int, dict[str, Any]]] = []
        self._timeless = 0
        self._statements = Statements(
            plan.statements, plan.lookups, max_bytes=1 << 62, functions=functions, modules=plan.modules
        )
        self._rows: list[tuple[int, int, Read]] = []

    @property
    def without_functions(self) -> list[str]:
        """The titles of statements that do not run."""
        return [one.title for one in self._statements.refused]

    def failures(self) -> list[str]:
        """Statements that were given up, and why; of others how many rows failed."""
        given_up = [f"{one.title}: {error}" for one, error in self._statements.failures()]
        counts = self._statements.status()["statements"]
        return given_up + [f"{one['title']}: {one['failed']} rows failed" for one in counts if one["failed"]]

    def add(self, found: Detection, file: str) -> None:
        """One match, in the order in which they were read."""
        rule_id, event = found.rule.id, found.record
        if self._statements.wants(rule_id):
            self._select(rule_id, event, file, found.line)
        if not self._correlator.graph.wants(rule_id):
            return
        time = event.event_time if not self._field else _time_in(event, self._field, self._zone)
        if time is None:
            self._timeless += 1
            return
        values = {name: scalar(event.get(name)) for name in self._grouped[rule_id]}
        items = self._correlator.graph.prepare(rule_id, event)
        place = self._place(file, found.line)
        self._places[place][2].update(values)
        if self._items and self._items[-1][1] == place:
            self._items[-1][2].extend(items)
        else:
            self._items.append((time, place, items))

    def _place(self, file: str, line: int) -> int:
        if not self._places or self._places[-1][:2] != (file, line):
            self._places.append((file, line, {}))
        return len(self._places) - 1

    def _select(self, rule_id: str, event: Record, file: str, line: int) -> None:
        """Rows for statements; their time is that of the table, else the event's."""
        time = event.event_time if not self._field else _time_in(event, self._field, self._zone)
        place = self._place(file, line)
        for one in self._statements.read(
            rule_id, Event(event, place, input=file, host=lambda: event.host, time=lambda: time)
        ):
            at = one.row[one.time] if one.time else time
            self._rows.append((at if at is not None else 0, place, one))

    def correlate(self) -> Iterator[Correlated | Stated]:
        """What fires, by time; then what statements give."""
        clock = self._correlator.clock
        for time, place, items in sorted(self._items, key=lambda item: item[:2]):
            clock.move(1, time)
            yield from self._fired(self._correlator.add(items, 1, time, place, 0))
        yield from self._fired(self._correlator.finish())
        self._statements.feed(row for _, _, row in sorted(self._rows, key=lambda item: item[:2]))
        for one in self._statements.finish():
            yield Stated(one, *self._places[one.offset][:2])

    def _fired(self, fired: Iterable[Firing]) -> Iterator[Correlated]:
        for one in fired:
            if one.correlation.id not in self._plan.silent:
                file, line, values = self._places[one.event.offset]
                yield Correlated(one, file, line, shown_group(one, values.get))

    def unused(self) -> Iterator[str]:
        """Why matches were not used, one text a reason."""
        if self._timeless:
            where = f"the field {self._field!r} of the event" if self._field else "the event"
            yield f"{self._timeless} matches, because {where} holds no time"
        for node in self._correlator.nodes:
            if node.ungrouped:
                yield f"{node.ungrouped} matches of {node.c.title!r}, because they lack a field to group by"
        if self._correlator.groups.cut:
            yield f"{self._correlator.groups.cut} of the oldest matches of groups that hold more than {MAX_ENTRIES}"


def _time_in(event: Record, field: str, zone: tzinfo | None) -> int | None:
    """The time in a field that is known to hold one: any number counts from 1970, whatever its unit by its size.

    A syslog line without such a field has the time of its header.
    """
    value = scalar(event.get(field))
    if value is None and event.header is not None:
        return event.header.timestamp
    value = value.strip() if isinstance(value, str) else value
    if (time := time_of(value, zone)) is not None:
        return time
    if (number := number_of(value)) is not None:
        unit = next((unit for limit, unit in ((1e11, 1_000_000), (1e14, 1000), (1e17, 1)) if abs(number) < limit), None)
        return round(number * unit) if unit else round(number / 1000)
    if not isinstance(value, str):
        return None
    written = written_time(value, zone)
    if written is None and _BSD.fullmatch(value):
        return bsd_time(value.encode(), 0, event.received_at // HOUR, zone)
    return written


def lines(file: Readable, codec: str = "auto", seen_at: int = 0, name: str = "scan") -> Iterator[Chunk]:
    """The lines of ``file`` as chunks; a last line without its newline is one too.

    ``seen_at`` (UTC microseconds, 0: unknown) tells the year of times that have none.
    """
    rest = b""
    skipping = False
    while data := file.read(CHUNK_BYTES):
        if skipping:  # the rest of a line that was cut
            end = data.find(b"\n") + 1
            if not end:
                continue
            data, skipping = data[end:], False
        data = rest + data
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        if end:
            yield Chunk(name, codec, seen_at, _cut(data[:end]))
        if len(rest) > MAX_EVENT:
            yield Chunk(name, codec, seen_at, rest[:MAX_EVENT] + b"\n")
            rest, skipping = b"", True
    if rest:
        yield Chunk(name, codec, seen_at, rest + b"\n")


def _cut(data: bytes) -> bytes:
    """``data`` with every line at most ``MAX_EVENT`` long."""
    if len(data) <= MAX_EVENT:
        return data
    return b"".join(line[:MAX_EVENT] + b"\n" for line in data[:-1].split(b"\n"))


_BSD = re.compile(r"[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}")
_ARRAY = re.compile(rb"\s*\[\s*[{\]]")
_OBJECT = re.compile(rb"\s*\{[ \t\r]*\n")


def as_utf8(file: Readable) -> Readable:
    """``file`` behind its byte order mark; one that says so is UTF-16 and read as UTF-8."""
    ahead = Ahead(file, len(codecs.BOM_UTF8))
    if ahead.head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return cast(Readable, codecs.EncodedFile(cast(BinaryIO, ahead), "utf-8", "utf-16", "replace"))
    ahead.head = ahead.head.removeprefix(codecs.BOM_UTF8)
    return ahead


def events(
    file: Readable, codec: str = "auto", seen_at: int = 0, *, is_json: bool = False
) -> tuple[int, Iterator[Chunk]]:
    """What ``file`` holds, and the number of the first event: lines from 1, or the elements of one JSON array from 0.

    JSON over several lines is recognized by its beginning, wherever lines could be JSON; what turns out to be none is
    lines.
    With ``is_json``, or when ``codec`` is ``json``, an array that begins and is none raises ValueError, and so does any
    JSON over several lines of more than ``MAX_WHOLE`` bytes.
    """
    ahead, is_json = Ahead(file, HEAD_BYTES), is_json or codec == "json"
    array = _ARRAY.match(ahead.head) or (is_json and ahead.head.lstrip()[:1] == b"[")
    if codec not in ("auto", "json") or not (array or _OBJECT.match(ahead.head)):
        return 1, lines(ahead, codec, seen_at)
    whole_file = _Whole(ahead)
    data = whole_file.data
    if whole_file.more:
        if _is_json(data.lstrip().partition(b"\n")[0]):
            return 1, lines(whole_file, codec, seen_at)
        raise ValueError(f"JSON of more than {MAX_WHOLE >> 20} MiB in one piece: write one event a line")
    try:
        whole = from_json(data)
    except ValueError as error:
        if is_json and array and not _is_json(data.lstrip().partition(b"\n")[0]):
            raise ValueError(f"not a JSON array: {error}") from error
        return 1, lines(io.BytesIO(data), codec, seen_at)
    return (0, elements(whole, seen_at)) if isinstance(whole, list) else (1, elements([whole], seen_at))


class _Whole:
    """The first ``MAX_WHOLE`` bytes of a file, and whether there are ``more``; as a file, all of it."""

    def __init__(self, file: Readable) -> None:
        parts, size = list[bytes](), 0
        while size <= MAX_WHOLE and (part := file.read(CHUNK_BYTES)):
            parts.append(part)
            size += len(part)
        self.data, self.more = b"".join(parts), size > MAX_WHOLE
        self._file, self._head = file, io.BytesIO(self.data)

    def read(self, size: int = -1) -> bytes:
        return self._head.read(size) or self._file.read(size)


def _is_json(data: bytes) -> bool:
    try:
        from_json(data)
    except ValueError:
        return False
    return True


def elements(items: Iterable[Any], seen_at: int = 0, name: str = "scan") -> Iterator[Chunk]:
    """JSON values as one chunk each."""
    for item in items:
        data = orjson.dumps(item)[:MAX_EVENT]
        yield Chunk(name, "json", seen_at, data, array("I", [len(data)]))


def chunk_of(
    events: Iterable[bytes | str | Mapping[str, Any]], codec: str = "auto", seen_at: int = 0
) -> Iterator[Chunk]:
    """Events from Python as chunks: bytes and texts as they are, mappings as JSON. ``seen_at``: as for ``lines``."""
    ends, parts, size = array("I"), [], 0
    for event in events:
        match event:
            case bytes():
                data = event
            case str():
                data = event.encode()
            case _:
                data = orjson.dumps(dict(event), default=str)
        parts.append(data[:MAX_EVENT] or b"\n")
        size += len(parts[-1])
        ends.append(size)
        if size >= CHUNK_BYTES:
            yield Chunk("scan", codec, seen_at, b"".join(parts), ends)
            ends, parts, size = array("I"), [], 0
    if parts:
        yield Chunk("scan", codec, seen_at, b"".join(parts), ends)


def evaluate(
    engine: Engine,
    chunks: Iterable[Chunk],
    *,
    first: int = 1,
    logsource: LogSource = LogSource(),
    zone: tzinfo | None = None,
    silent: bool = False,
) -> Iterator[Detection]:
    """The detections in ``chunks``, in the order in which events are complete; the first event has number ``first``.

    Rules that only correlations look at are left out unless ``silent``.
    """
    context, rules = Context(zone, logsource), engine.plan.rules
    hidden = frozenset[str]() if silent else engine.plan.silent
    joiner, waiting, contexts, offset = Joiner(), dict[int, int](), dict[str, Context](), 0

    def found(matches: Iterable[Match], number: int) -> Iterator[Detection]:
        for match in matches:
            if rules[match.rule].id not in hidden:
                yield Detection(rules[match.rule], number, match.record, engine.shown(match.rule, match.record))

    def given_up(before: int) -> Iterator[Detection]:
        """Events that begin before this offset wait for no further records."""
        while (left := engine.due(joiner, contexts, before=before)) is not None:
            yield from found(engine.matches(left.frame.chunk, left, context), waiting[left.frame.offset])
            joiner.evaluated()

    for chunk in chunks:
        yield from given_up(offset - GATHER_BYTES)
        contexts[chunk.input] = context
        seen, number = 0, first
        for event in engine.candidates(Frame(offset, chunk), joiner, context):
            if not (matches := engine.matches(event.frame.chunk, event, context)):
                continue
            if event.frame.offset < offset:
                yield from found(matches, waiting[event.frame.offset])
                continue
            number, seen = _number(chunk, event.start, seen, number), event.start
            yield from found(matches, number)
        before, waiting = waiting, {}
        for at in joiner.offsets():
            if at >= offset:
                number, seen = _number(chunk, at - offset, seen, number), at - offset
            waiting[at] = number if at >= offset else before[at]
        first, offset = first + len(chunk), offset + len(chunk.data)
    yield from given_up(REST)


def _number(chunk: Chunk, start: int, seen: int, number: int) -> int:
    """The number of the event at ``start``, counted on or back from the one at ``seen``, which has ``number``."""
    if chunk.ends is not None:
        return number + chunk.index(start) - chunk.index(seen)
    return number + chunk.data.count(b"\n", seen, start) - chunk.data.count(b"\n", start, seen)
