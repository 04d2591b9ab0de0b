"""Events set aside: in a file of their own, bounded, with what it takes to judge them again."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

from vedette.api import compile_rules
from vedette.model.counters import Counters
from vedette.model.event import Chunk, Frame
from vedette.runtime.pipeline.failures import DeadLetters, Failures

RULE = compile_rules(text="title: t\nlogsource: {product: x}\ndetection: {s: {f: a}, condition: s}\n").rules[0]


def put(letters: DeadLetters, data: bytes, offset: int = 100, start: int = 0) -> None:
    frame = Frame(offset, Chunk("web", "json", 7, data, origins=("192.0.2.1",)))
    letters.put(RULE, "too long", frame, "0" * 32, start, len(data))


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_row_has_all_it_takes(tmp_path: Path) -> None:
    """The event, where it lies in the raw log, how it was read, and which rule failed on it."""
    letters = DeadLetters(tmp_path / "quarantine", 1 << 20)
    put(letters, b'{"f": "x"}\n')
    put(letters, b"\xff\n", 200)
    put(letters, b"first\nsecond\n", 300, 6)
    first, second, third = rows(letters.file)
    assert first == {
        "rule_id": RULE.id,
        "rule_title": "t",
        "rule_digest": RULE.digest,
        "reason": "too long",
        "input": "web",
        "codec": "json",
        "origin": "192.0.2.1",
        "received_at": 7,
        "log_id": "0" * 32,
        "offset": 100,
        "length": 11,
        "raw": '{"f": "x"}\n',
    }
    assert base64.b64decode(str(second["raw_base64"])) == b"\xff\n"
    assert (third["offset"], third["length"], third["raw"]) == (306, 7, "second\n")
    assert (letters.events, letters.lost) == (3, 0)


def test_the_folder_is_bounded(tmp_path: Path) -> None:
    """The newest events stay, the oldest go, and no event is larger than the bound."""
    letters = DeadLetters(tmp_path, 4000)
    for number in range(50):
        put(letters, b'{"n": %d}\n' % number)
        assert letters.bytes() <= 4000
    kept = [
        json.loads(str(row["raw"]))["n"]
        for name in ("events.1.ndjson", "events.ndjson")
        for row in rows(tmp_path / name)
    ]
    assert kept == list(range(kept[0], 50))
    assert len(kept) > 5
    put(letters, b"x" * 4000)
    assert letters.lost == 1
    assert letters.bytes() <= 4000


def test_a_disk_that_takes_nothing(tmp_path: Path) -> None:
    """Is counted and told, and stops nothing."""
    (tmp_path / "file").write_text("")
    letters = DeadLetters(tmp_path / "file" / "quarantine", 4000)
    put(letters, b"a\n")
    assert (letters.events, letters.lost, letters.bytes()) == (1, 1, 0)


def test_quarantine_is_for_a_rule_as_it_was(tmp_path: Path) -> None:
    """Over a start, too; a rule of that id with another meaning is evaluated. Whenever the list changes, also when all
    are released, it is to be stored."""
    letters, counters = DeadLetters(tmp_path, 4000), Counters()
    first = Failures(counters, letters, "0" * 32)
    first.quarantine(RULE, 10, "too long", 7)
    assert first.changed
    again = Failures(counters, letters, "0" * 32, first.quarantined)
    assert again.muted([RULE]) == {RULE.id}
    assert again.muted([replace(RULE, digest="of another meaning")]) == set()
    assert not again.changed
    assert (again.release(), again.changed, again.quarantined) == (1, True, {})
    again.changed = False
    assert (again.release(), again.changed) == (0, False)
