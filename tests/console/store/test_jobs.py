"""Background work: one runner has a job at a time, and a runner that dies loses it."""

from __future__ import annotations

import pytest

from vedette_console.store.database import Database
from vedette_console.store.jobs import MAX_BYTES, Jobs


def test_the_life_of_a_job(database: Database) -> None:
    """Waiting, running with progress, done with a result; what is over stays so."""
    jobs = Jobs(database)
    first = jobs.add("backtest", "ann", {"rules": ["a"]})
    second = jobs.add("hunt", "bob", {})
    assert (first.state, first.request, first.over) == ("waiting", {"rules": ["a"]}, False)
    assert jobs.claim("report") is None
    claimed = jobs.claim("backtest", "hunt")
    assert claimed is not None
    assert (claimed.id, claimed.state) == (first.id, "running")
    assert jobs.renew(first.id, {"done": 5})
    assert jobs.renew(first.id)
    assert jobs.get(first.id).progress == {"done": 5}
    assert jobs.end(first.id, "done", result={"alerts": 3})
    assert not jobs.end(first.id, "failed")
    assert (jobs.get(first.id).state, jobs.get(first.id).result) == ("done", {"alerts": 3})
    assert [job.id for job in jobs.of()] == [second.id, first.id]
    assert [job.id for job in jobs.of("hunt", "bob")] == [second.id]
    assert jobs.of("hunt", "ann") == []
    with pytest.raises(KeyError):
        jobs.get("none")


def test_a_runner_that_dies_loses_its_job(database: Database) -> None:
    """Its lease runs out, then another has it with the progress; the dead one is refused when it comes back."""
    dead, living = Jobs(database), Jobs(database)
    job = dead.add("hunt", "ann", {})
    assert dead.claim("hunt") is not None
    dead.renew(job.id, {"at": 1})
    assert living.claim("hunt") is None
    database.run("UPDATE jobs SET leased = 1")
    again = living.claim("hunt")
    assert again is not None
    assert again.progress == {"at": 1}
    assert not dead.renew(job.id)
    assert living.renew(job.id)


def test_given_back_at_the_end(database: Database) -> None:
    """A console that stops releases its jobs: the next has them at once."""
    stopping, next_one = Jobs(database), Jobs(database)
    job = stopping.add("hunt", "ann", {})
    stopping.claim("hunt")
    stopping.release(job.id)
    assert next_one.claim("hunt") is not None


def test_cancelled(database: Database) -> None:
    """Whoever runs it learns so by the next renewal."""
    jobs = Jobs(database)
    job = jobs.add("hunt", "ann", {})
    jobs.claim("hunt")
    assert jobs.end(job.id, "cancelled")
    assert not jobs.renew(job.id)


def test_a_result_that_is_too_large(database: Database) -> None:
    """Fails the job, with the reason."""
    jobs = Jobs(database)
    job = jobs.add("hunt", "ann", {})
    jobs.end(job.id, "done", result={"x": "y" * MAX_BYTES})
    assert jobs.get(job.id).state == "failed"
    assert "bytes" in jobs.get(job.id).error


def test_old_ones_are_forgotten(database: Database) -> None:
    """Only those that are over."""
    jobs = Jobs(database)
    done, waiting = jobs.add("hunt", "ann", {}), jobs.add("hunt", "ann", {})
    jobs.end(done.id, "done")
    assert jobs.forget(2**62) == 1
    assert [job.id for job in jobs.of()] == [waiting.id]
