"""The account of a strict rule set adds up at every moment, and what the raw log gives up for it is counted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.rawlog.samples import NOW, lines, noise, open_log
from tests.settings import SegmentedLog
from vedette.inputs.settings import FileInput
from vedette.rawlog.log import RawLog
from vedette.runtime.strict.account import Account, Accounts, Sent

SMALL = SegmentedLog(max_bytes=40_000, segment_bytes=8_000)


def append(log: RawLog, accounts: Accounts, number: int) -> None:
    chunk = lines(noise(number), b"short", input="auth" if number % 3 else "web")
    accounts.stored(chunk.input, len(chunk), log.append(chunk).offset)


def evaluated(log: RawLog, account: Account, offset: int, rows_wait: bool = False) -> Sent:
    """What a process sends that has evaluated up to ``offset``, a frame's end."""
    counters: dict[str, Any] = account.counters.snapshot()
    for header in log.headers(account.committed):
        if header.offset < offset:
            counters["inputs"][header.input]["judged"] += header.events
    done: Any = None
    return Sent(account, offset, counters, [], b"", False, False, None, rows_wait, done)


def sums(account: Account) -> tuple[int, int, int, int]:
    rows = account.status().values()
    lost = sum(sum(row["lost"].values()) for row in rows)
    return (*(sum(row[name] for row in rows) for name in ("stored", "judged", "backlog")), lost)


@pytest.mark.parametrize("seed", range(5))
def test_adds_up(tmp_path: Path, seed: int) -> None:
    """Over appends, commits, losses and restarts stored = judged + backlog + lost; nothing is lost to a set that keeps
    up or that stays within its backlog."""
    rng, log = Random(seed), open_log(tmp_path, SMALL)
    accounts = Accounts(log, {})
    quick, slow = accounts.begin("quick", 0, 1 << 30), accounts.begin("slow", 0, 12_000)
    for number in range(120):
        append(log, accounts, number)
        quick.take(evaluated(log, quick, log.end))
        if rng.random() < 0.05:
            ends = [header.end for header in log.headers(slow.committed)]
            slow.take(evaluated(log, slow, rng.choice(ends)))
        needed = asyncio.run(accounts.release(log.end, NOW))
        log.maintain(needed, NOW)
        assert not quick.broken()
        assert not slow.broken()
        if rng.random() < 0.1:
            generation, accounts = slow.generation, Accounts(log, accounts.rows([]))
            quick, slow = accounts.begin("quick", 0, 1 << 30), accounts.begin("slow", 0, 12_000)
            slow.generation = generation
    assert sums(quick) == (240, 240, 0, 0)
    assert sum(sums(slow)[1:]) == 240
    assert sums(slow)[3] > 0
    assert slow.generation > 0
    assert log.size() <= SMALL.max_bytes
    log.close()


def test_within_its_backlog_the_log_waits(tmp_path: Path) -> None:
    """Nothing is deleted that a set within its backlog has not evaluated, until the log is full."""
    log = open_log(tmp_path, SMALL)
    accounts = Accounts(log, {})
    behind = accounts.begin("behind", 0, 1 << 30)
    number = 0
    while not log.full():
        append(log, accounts, number)
        number += 1
        if not log.full():
            assert asyncio.run(accounts.release(log.end, NOW)) == 0
    assert behind.generation == 0
    needed = asyncio.run(accounts.release(log.end, NOW))
    assert 0 < needed == behind.committed
    log.maintain(needed, NOW)
    assert not log.full()
    assert not behind.broken()
    log.close()


def test_what_is_being_committed_is_not_lost(tmp_path: Path) -> None:
    """A set that is far behind keeps its place while what it sent is being committed: it is evaluated already."""
    log = open_log(tmp_path, SMALL)
    accounts = Accounts(log, {})
    behind = accounts.begin("behind", 0, 0)
    number = 0
    while not log.full():
        append(log, accounts, number)
        number += 1
    behind.committing = True
    assert asyncio.run(accounts.release(log.end, NOW)) == behind.committed == 0
    behind.committing = False
    assert asyncio.run(accounts.release(log.end, NOW)) > 0
    log.close()


def test_what_a_kill_left(tmp_path: Path) -> None:
    """A row of a commit is gone on with: events behind its cursor are backlog, those that are gone are lost as
    missing; a set without a row begins where it is told."""
    log = open_log(tmp_path, SMALL)
    accounts = Accounts(log, {})
    account = accounts.begin("set", 0, 0)
    for number in range(30):
        append(log, accounts, number)
    row = accounts.rows([])
    log.maintain(log.end, NOW)
    again = Accounts(log, row)
    account = again.begin("set", 0, 0)
    stored, judged, backlog, lost = sums(account)
    assert (stored, judged) == (60, 0)
    assert backlog == sum(log.backlog(log.start).values())
    assert lost == 60 - backlog > 0
    assert not account.broken()
    assert sums(again.begin("new", log.end, 0)) == (0, 0, 0, 0)
    log.close()


def test_what_is_read_again_is_not_lost_to_a_set(tmp_path: Path) -> None:
    """What the log has lost of a file comes once more, of other inputs it is missing."""
    log = open_log(tmp_path, SMALL)
    accounts = Accounts(log, {})
    accounts.begin("set", 0, 0)
    for number in range(3):
        append(log, accounts, number)
    accounts.stored("web", 7, log.end)  # which were in the end that is lost
    row = accounts.rows([])
    assert sums(Accounts(log, row, [FileInput("web", paths=("/w",))]).begin("set", 0, 0)) == (6, 0, 6, 0)
    assert sums(Accounts(log, row, [FileInput("auth", paths=("/w",))]).begin("set", 0, 0)) == (13, 0, 6, 7)
    log.close()


def test_rows_that_wait(tmp_path: Path) -> None:
    """Whether rows wait is known from a commit on, over a restart and before the set begins again."""
    log = open_log(tmp_path, SMALL)
    accounts = Accounts(log, {})
    account = accounts.begin("set", 0, 0)
    append(log, accounts, 0)
    sent = evaluated(log, account, log.end, rows_wait=True)
    rows = accounts.rows([sent])
    assert not accounts.rows_wait  # not committed yet
    account.take(sent)
    assert accounts.rows_wait
    again = Accounts(log, rows)
    assert again.rows_wait
    account = again.begin("set", 0, 0)
    assert again.rows_wait
    account.take(evaluated(log, account, log.end))
    assert not again.rows_wait
    again.forget("set")
    log.close()
