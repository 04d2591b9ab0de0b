"""Audit records of one event, brought together: several lines of a chunk judged as one.

``auditd`` writes an event as several records with one id (``inputs/formats/auditd.py``); a rule may ask for the
argument in one and the file in another. The records of a chunk that have the same id, origin and host and begin
within ``MAX_BYTES`` of the first, at most ``MAX_RECORDS``, are one event: its text is the records', each on its line,
its place that of the first. A hit in any record is a hit of the event, with the rules of all hits; it is judged once.
Which records belong together depends on the chunk alone, not on what was hit.

Records in different chunks are not joined: each chunk judges what it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vedette.engine.prefilter import Candidate
from vedette.event import Chunk
from vedette.inputs import syslog
from vedette.inputs.formats import auditd, format_at

MAX_BYTES = 64 << 10
MAX_RECORDS = 64

CODECS = frozenset({"auto", "syslog", "auditd"})
"""Codecs whose events may be audit records."""


class Joined(NamedTuple):
    """An event of one or several records: ``chunk.data[start:end]`` is the first, ``raw`` all of them."""

    start: int
    end: int
    rules: frozenset[int]
    raw: bytes


def joined(chunk: Chunk, candidates: Iterable[Candidate]) -> Iterator[Joined]:
    """The events to judge, in order: ``candidates``, those of one audit event as one."""
    data = chunk.data
    if chunk.codec not in CODECS or b"audit(" not in data:
        for start, end, rules in candidates:
            yield Joined(start, end, rules, data[start:end])
        return
    first_of, members = _groups(chunk)
    found: dict[int, Candidate] = {}
    for candidate in candidates:
        start = first_of.get(candidate.start, candidate.start)
        known = found.get(start)
        if known is not None:
            found[start] = known._replace(rules=known.rules | candidate.rules)
        elif start == candidate.start:
            found[start] = candidate
        else:
            found[start] = Candidate(*members[start][0], candidate.rules)
    for start in sorted(found):
        _, end, rules = found[start]
        lines = members.get(start)
        yield Joined(start, end, rules, data[start:end] if lines is None else b"\n".join(data[s:e] for s, e in lines))


def _groups(chunk: Chunk) -> tuple[dict[int, int], dict[int, list[tuple[int, int]]]]:
    """Start of record to start of its event's first record; and the events of several records, by that start."""
    data, origin_of = chunk.data, chunk.origin_of
    open_groups: dict[tuple[bytes, str, int], list[tuple[int, int]]] = {}
    groups: list[list[tuple[int, int]]] = []
    number = at = done = 0
    while (at := data.find(b"audit(", at)) >= 0:
        start, end = chunk.bounds(at)
        record_id, host = _identity(data[start:end])
        if record_id is not None:
            origin = 0
            if origin_of is not None:
                if chunk.ends is None:
                    number, done = number + data.count(b"\n", done, start), start
                    origin = origin_of[number]
                else:
                    origin = origin_of[bisect_right(chunk.ends, start)]
            key = (record_id, host, origin)
            group = open_groups.get(key)
            if group is None or start - group[0][0] > MAX_BYTES or len(group) >= MAX_RECORDS:
                group = open_groups[key] = []
                groups.append(group)
            group.append((start, end))
        at = max(end, at + 1)
    several = [group for group in groups if len(group) > 1]
    first_of = {start: group[0][0] for group in several for start, _ in group}
    return first_of, {group[0][0]: group for group in several}


def _identity(line: bytes) -> tuple[bytes | None, str]:
    """The id of an audit record and the host it is from; no id for other events."""
    header = None if line.startswith((b"type=", b"node=")) else syslog.parse(line)
    made = format_at(line, 0 if header is None else header.message_start)
    if made is not auditd.FORMAT:
        return None, ""
    host = (header.host or "") if header is not None else line[:256].partition(b" ")[0].decode("utf-8", "replace")
    return auditd.record_id(line), host if header is not None or host.startswith("node=") else ""
