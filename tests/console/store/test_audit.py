"""The audit log: a chain in which whatever is changed, removed, inserted or cut is found."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_console.store.audit import BATCH, MAX_WHAT, START, Audit, Entry, as_json, digest, from_json, verify
from vedette_console.store.database import Database, open_database


def chain(length: int) -> list[Entry]:
    """A log of that many rows."""
    entries: list[Entry] = []
    for seq in range(1, length + 1):
        bare = Entry(seq, seq, "ann", "triage", {"n": seq}, "done", "", entries[-1].hash if entries else START, "")
        entries.append(replace(bare, hash=digest(bare)))
    return entries


def test_rows_follow_each_other(database: Database) -> None:
    """Each holds the hash of the one before, and comes back as it was written, whatever text it holds."""
    audit = Audit(database)
    audit.add("ann", "triage", {"finding": "x", "n": 1.5, "deep": {"ü": [1, None]}}, address="192.0.2.1")
    audit.add("bob\0", "hunt", {"nul": "a\0b", "lone": "\ud800", "object": {1, 2}.__class__}, outcome="refused: \ud800")
    last = audit.add("ann (token x)", "export")
    rows = [*audit.all()]
    assert [row.seq for row in rows] == [1, 2, 3]
    assert rows[0].previous == START
    assert [row.previous for row in rows[1:]] == [row.hash for row in rows[:-1]]
    assert audit.verify().head == last.hash
    assert audit.verify().broken is None
    assert rows[0].what == {"finding": "x", "n": 1.5, "deep": {"ü": [1, None]}}


def test_read(database: Database) -> None:
    """The newest first, by user (also by their tokens), act and time, in pages."""
    audit = Audit(database)
    for number in range(6):
        audit.add(("ann", "ann (token x)", "anna")[number % 3], ("hunt", "export")[number % 2], {"n": number})
    assert [row.what["n"] for row in audit.read(limit=2)] == [5, 4]
    assert [row.what["n"] for row in audit.read(before=5, limit=2)] == [3, 2]
    assert [row.what["n"] for row in audit.read(who="ann")] == [4, 3, 1, 0]
    assert [row.what["n"] for row in audit.read(who="anna", act="export")] == [5]
    middle = audit.read(limit=3)[2].at
    assert all(row.at < middle for row in audit.read(until=middle))
    assert audit.read(who="%") == []


def test_a_long_log(database: Database) -> None:
    """More rows than one batch are read whole; details that are too long are cut, and say so."""
    audit = Audit(database)
    with database.transaction("audit"):
        for _ in range(BATCH + 5):
            audit.add("ann", "read")
    audit.add("ann", "note", {"text": "x" * (MAX_WHAT + 1)})
    assert audit.verify().rows == BATCH + 6
    assert [*audit.read(limit=1)[0].what] == ["cut"]


def test_several_write_at_once(url: str) -> None:
    """Threads and processes share one chain without a gap or a fork."""
    from vedette_console.store.store import migrate

    databases = [open_database(url) for _ in range(2)]
    migrate(databases[0])

    def write(database: Database) -> None:
        for _ in range(25):
            Audit(database).add("ann", "read")

    threads = [threading.Thread(target=write, args=(database,)) for database in databases * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    verdict = Audit(databases[0]).verify()
    assert (verdict.rows, verdict.broken) == (100, None)
    for database in databases:
        database.close()


@pytest.mark.parametrize(
    ("tampered", "reason"),
    [
        ("UPDATE audit SET who = 'bob' WHERE seq = 3", "it was changed"),
        ("UPDATE audit SET at = at + 1 WHERE seq = 3", "it was changed"),
        ("UPDATE audit SET what = '{}' WHERE seq = 3", "it was changed"),
        ("UPDATE audit SET outcome = 'failed' WHERE seq = 3", "it was changed"),
        ("UPDATE audit SET address = 'x' WHERE seq = 3", "it was changed"),
        ("UPDATE audit SET previous = hash WHERE seq = 3", "it does not follow the row before"),
        ("DELETE FROM audit WHERE seq = 3", "row 3 is missing"),
    ],
)
def test_tampering_in_the_database_is_found(database: Database, tampered: str, reason: str) -> None:
    """At the row where it was done, or the first after one that is gone."""
    audit = Audit(database)
    for number in range(5):
        audit.add("ann", "triage", {"n": number})
    database.run(tampered)
    verdict = audit.verify()
    assert (verdict.rows, verdict.reason) == (2, reason)
    assert verdict.broken == (4 if "DELETE" in tampered else 3)


def test_a_cut_end_and_another_log_are_found_by_a_noted_hash() -> None:
    """Without one, a log that was written anew as a whole is as good as any."""
    log = chain(5)
    noted = {5: log[4].hash}
    assert verify(log, noted=noted).broken is None
    cut = verify(log[:3], noted=noted)
    assert (cut.broken, cut.reason) == (4, "the log ends before row 5, which was noted")
    anew = [replace(log[0], who="bob", hash="")]
    anew[0] = replace(anew[0], hash=digest(anew[0]))
    for old in log[1:]:
        bare = replace(old, previous=anew[-1].hash, hash="")
        anew.append(replace(bare, hash=digest(bare)))
    assert verify(anew).broken is None
    assert verify(anew, noted=noted).broken == 5


@given(
    st.integers(0, 9), st.sampled_from(["who", "act", "outcome", "address", "hash", "previous"]), st.text(min_size=1)
)
def test_any_change_is_found(row: int, field: str, text: str) -> None:
    """Of any field of any row, also of its own hash."""
    log = chain(10)
    log[row] = replace(log[row], **{field: getattr(log[row], field) + text})
    assert verify(log).broken == row + 1


@given(st.permutations(range(5)))
def test_any_other_order_is_found(order: list[int]) -> None:
    """Rows stand in the order in which they were written."""
    log = chain(5)
    assert (verify([log[i] for i in order]).broken is None) == (order == sorted(order))


def test_an_export_comes_back() -> None:
    """Its lines are verified as the log is; what is no line says so."""
    log = chain(3)
    lines = [as_json(entry) for entry in log]
    assert [from_json(line) for line in lines] == log
    bad: list[Callable[[], object]] = [lambda: from_json("{}"), lambda: from_json("[]"), lambda: from_json("x")]
    for read in bad:
        with pytest.raises(ValueError):  # noqa: PT011
            read()
    assert json.loads(lines[0])["previous"] == START
