"""The records of hunts, added up over hosts; what is no record counts for nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.region.anything import spoiled
from vedette.bundle.manifest import rfc3339
from vedette.fleet.replies import Part, ReplyRefused, packed, records
from vedette.region.hunts import MAX_MATCHES, HostFindings, Hunted, added
from vedette.system.foreign import COUNT

RULE = {"type": "rule", "id": "r1", "title": "Needle", "level": "high", "kind": "detection", "count": 3}
MATCH = {"type": "match", "rule_id": "r1", "rule_title": "Needle", "level": "high", "kind": "detection", "fields": {}}
PROGRESS = {"type": "progress", "events": 10, "matches": 2, "oldest": 100, "reached": 150, "until": 200}
END = {**PROGRESS, "type": "end", "events": 20, "matches": 3, "gone": 7, "not_run": ["x"], "undecided": []}


def host(*records: dict[str, Any]) -> HostFindings:
    made = HostFindings()
    made.take(records)
    return made


def test_while_it_runs_and_at_its_end() -> None:
    """By title while a host runs, by rule once it has ended; a record that comes late takes nothing back."""
    running = host(MATCH, {**PROGRESS, "rules": {"Needle": 2, "Other": 1}})
    assert running.progress is not None
    assert (running.progress.share, running.progress.ended) == (0.5, False)
    ended = host(MATCH, RULE, END, PROGRESS, {**PROGRESS, "events": 21})
    assert ended.progress is not None
    assert (ended.progress.events, ended.progress.share, ended.progress.ended) == (20, 1.0, True)
    counts, hosts = added([running, ended])
    needle = Hunted("r1", "Needle", "high", "detection")
    assert (counts[needle], hosts[needle], counts[Hunted("", "Other", "", "")]) == (5, 2, 1)
    assert ended.notes == ["7 events were deleted before they were looked at", "not run: x"]


@pytest.mark.parametrize(
    "record",
    [
        {}, {"type": 7}, {"type": "match", "fields": [1]}, {"type": "rule", "count": -1},
        {"type": "rule", "count": "9"},
        {"type": "progress", "events": "many", "rules": [1], "until": None},
        {"type": "end", "not_run": 7, "undecided": ["x", {"events": "x"}], "gone": "all"},
    ],
)  # fmt: skip
def test_what_is_no_record(record: dict[str, Any]) -> None:
    """An agent may say anything."""
    made = host(record)
    counts, _ = added([made])
    assert counts.total() == 0
    assert made.matches == []
    assert isinstance(made.notes, list)


def test_bounds() -> None:
    """Of one host so many matches are kept, however many it sends."""
    assert len(host(*[MATCH] * (MAX_MATCHES + 50)).matches) == MAX_MATCHES


def test_a_record_may_say_anything() -> None:
    """In a reply that its host has signed: what is counted and shown are texts and counts, and each reply is read."""
    rng, hosts = random.Random(5), list[HostFindings]()
    good = {**MATCH, "input": "in", "offset": 1, "time": 1}
    for _ in range(300):
        line = spoiled(rng, rng.choice([good, RULE, {**PROGRESS, "rules": {"Needle": 2}}, END])) + b"\n"
        made = HostFindings()
        try:
            made.take(records(Part(0, packed(line), len(line))))
        except ReplyRefused:
            continue
        hosts.append(made)
        assert all(isinstance(note, str) for note in made.notes)
        if (last := made.progress) is not None:
            assert rfc3339(max(last.oldest, last.reached))
            assert 0 <= last.share <= 1
    assert len(hosts) > 250, "what nests is cut, not refused"
    counts, _ = added(hosts)
    assert all(isinstance(name, str) for rule in counts for name in rule)
    assert all(0 <= count <= len(hosts) * COUNT for count in counts.values())
