"""The audit record: what it promises of a line, and that a change in it is found."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from tests.fleet.conftest import Synced
from tests.readers import reader_of
from vedette.fleet.audit import FIRST, Audit, Head, verify
from vedette.system.folders import locked_within


def record(path: Path, lines: int = 3) -> Audit:
    audit = Audit(path, lambda: 1_795_824_000_000_000)
    for i in range(lines):
        audit.append("asked", operator="alice", number=i)
    return audit


def test_a_chain(tmp_path: Path) -> None:
    """Each line names the digest of the one before; the head is that of the newest."""
    audit = record(tmp_path / "audit.jsonl")
    rows = [*audit.lines()]
    assert [row["seq"] for row in rows] == [1, 2, 3]
    assert rows[0] == {
        "prev": FIRST, "seq": 1, "time": "2026-11-28T00:00:00Z", "event": "asked", "operator": "alice", "number": 0
    }  # fmt: skip
    assert verify(audit.path) == (audit.head(), None)
    assert verify(audit.path, audit.head()) == (audit.head(), None)
    assert Audit(tmp_path / "none").head() == Head(0, FIRST)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda rows: [rows[0], rows[1].replace(b"alice", b"mallo"), rows[2]], 3),
        (lambda rows: [rows[0], rows[2]], 2),
        (lambda rows: rows[1:], 1),
        (lambda rows: [rows[0], rows[0], *rows[1:]], 2),
        (lambda rows: [rows[0], b"{}", rows[2]], 2),
        (lambda rows: [rows[0], b"not json", rows[2]], 2),
    ],
)
def test_a_change_is_found(tmp_path: Path, change: object, line: int) -> None:
    """A line that was changed, removed, repeated or replaced breaks the chain, and where is named."""
    path = record(tmp_path / "audit.jsonl").path
    rows = path.read_bytes().splitlines()
    path.write_bytes(b"".join(row + b"\n" for row in change(rows)))  # type: ignore[operator]  # a lambda of the table
    fault = verify(path)[1]
    assert fault is not None
    assert fault.line == line


def test_a_rewritten_record_is_found_by_a_known_head(tmp_path: Path) -> None:
    """Who writes the whole file again, or cuts its end off, is found by a head that was kept elsewhere."""
    audit = record(tmp_path / "audit.jsonl")
    known = audit.head()
    path = audit.path
    whole = path.read_bytes()
    path.write_bytes(b"".join(line + b"\n" for line in whole.splitlines()[:2]))
    fault = verify(path, known)[1]
    assert fault is not None
    assert "lines were removed" in fault.reason
    path.unlink()
    for i in range(3):
        audit.append("asked", operator="mallory", number=i)
    fault = verify(path, known)[1]
    assert fault is not None
    assert "rewritten" in fault.reason


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_torn_line_goes_with_the_next(tmp_path: Path, cut: int) -> None:
    """A crash in the middle of a line leaves the record whole: the line had not been promised."""
    audit = record(tmp_path / "audit.jsonl", 2)
    before = audit.head()
    with audit.path.open("ab") as file:
        file.write((b'{"prev":"' + b"0" * 100)[:cut])
    assert audit.head() == before
    audit.append("asked", number=3)
    assert [row["seq"] for row in audit.lines()] == [1, 2, 3]
    assert verify(audit.path)[1] is None


def test_a_record_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """A file whose newest line is none of a record is not written to."""
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"hello\n")
    with pytest.raises(ValueError, match="newest line"):
        Audit(path).append("asked")
    assert path.read_bytes() == b"hello\n"
    with pytest.raises(ValueError, match="prev is not a name"):
        Audit(tmp_path / "other").append("asked", prev="x")


def test_a_line_is_on_disk_when_append_returns(tmp_path: Path, synced: Synced) -> None:
    """The record is synced when the whole line is in it, and its folder after the first line."""
    path = tmp_path / "audit.jsonl"
    for folder in {tmp_path: [".audit.jsonl.lock", "audit.jsonl"]}, {}:
        synced.clear()
        Audit(path).append("asked")
        assert synced == {path: path.read_bytes(), **folder}


def test_a_writer_has_the_record_alone(tmp_path: Path) -> None:
    """Between the newest line, which it has read, and its own no other process can write."""
    path = tmp_path / "audit.jsonl"

    def clock() -> int:
        with pytest.raises(BlockingIOError, match="no"):
            locked_within(tmp_path, ".audit.jsonl.lock", "no")
        return 0

    Audit(path, clock).append("asked")


def test_who_reads_it_does_not_hold_it(tmp_path: Path) -> None:
    """A reader who locks the record, and all else that he can open, does not make a writer wait."""
    path = tmp_path / "fleet" / "audit.jsonl"
    path.parent.mkdir(mode=0o750)
    record(path, 1)
    with reader_of(path.parent):
        assert record(path, 1).head().seq == 2


def _writer(path: str) -> None:
    for i in range(20):
        Audit(Path(path)).append("asked", number=i)


def test_several_writers(tmp_path: Path) -> None:
    """Processes that write at the same time make one chain."""
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_writer, args=(str(path),)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    head, fault = verify(path)
    assert (head.seq, fault) == (60, None)
    assert all(json.loads(line)["event"] == "asked" for line in path.read_bytes().splitlines())
