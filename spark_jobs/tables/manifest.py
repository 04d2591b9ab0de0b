"""The set of tables: which belong together, how each one stood when it was noted, and who is writing.

``_set.json`` under the folder of the tables holds, as JSON,

* ``tables``: of each table its id in Delta, its version and its rows, when a batch, or upkeep, was last done;
* ``writers``: who has begun to write and not ended: a job, or of ingest the query (``alerts:ID``), or the file that is
  tried again (``alerts FILE``). A kill leaves the name here until that very work is done again;
* ``batches``: of each query of ingest the number of its last batch, and a hash of Spark's plan of it;
* ``dropped``: of each table the newest day that retention took, of ``alerts`` also the newest on which one that it took
  is counted, if that is later;
* ``frozen``: days whose counts say more than the alerts that reconcile had of them: nobody makes them again.

A table that is lost, another one than was noted, or older is refused by whoever opens the tables (``check``): a backup
of some of them is no backup of the set. Of ``TOGETHER`` a newer one is refused as well, but while somebody writes, as
it may hold what the others lack. Other tables may be newer: their rows are added once, or merged, whoever wrote last.

A writer puts its name down first, writes, looks how the tables stand, has the disk synced, and then notes that, in one
step with taking its name out (``writing``). So the note is never ahead of the disk, and behind it only under a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from spark_jobs.tables import storage
from spark_jobs.tables.schema import (
    AGENTS,
    ALERTS,
    DEAD_LETTERS,
    ENTITY_SITE_5M,
    HEARTBEATS,
    HOST_1H,
    RULES,
    SEQS,
    TABLES,
    WIN_5M,
    Table,
)
from spark_jobs.tables.tables import State, Tables

NAME = "_set.json"

TOGETHER = (ALERTS, HOST_1H, ENTITY_SITE_5M, WIN_5M, RULES)
"""Alerts, and what is counted of them."""

LANDED = (ALERTS, HEARTBEATS, AGENTS, SEQS, DEAD_LETTERS)
"""What can be made again from the landing alone."""

MAINTAIN = "maintain"
RECONCILE = "reconcile"
"""The writer after which nobody else opens the tables until it is done."""


class Done(NamedTuple):
    """A batch that is in the tables."""

    number: int
    plan: str


@dataclass(slots=True)
class Manifest:
    """The content of ``_set.json``; empty where there is none."""

    tables: dict[str, State] = field(default_factory=dict)
    writers: list[str] = field(default_factory=list)
    batches: dict[str, Done] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    frozen: list[str] = field(default_factory=list)

    @property
    def ingests(self) -> list[str]:
        """Checkpoints of the queries of ingest that have begun to write and not ended."""
        names = (re.split("[: ]", name)[0] for name in self.writers if name not in (MAINTAIN, RECONCILE))
        return sorted(set(names))


class Problem(NamedTuple):
    """Why a table does not belong to the set; ``newer``: only that it has more than was noted."""

    table: Table
    text: str
    newer: bool = False

    @property
    def landed(self) -> bool:
        """Whether it takes the landing to mend it, and not alerts alone. What is newer would take a batch that is not
        in the others for done."""
        return self.newer or self.table in LANDED


def read(root: str) -> Manifest:
    """What is noted of the tables under ``root``. Raises ValueError for a damaged file."""
    path = f"{root}/{NAME}"
    content = storage.text(path)
    if not content:
        return Manifest()
    try:
        said = json.loads(content)
        states = {name: State(**state) for name, state in said.pop("tables").items()}
        batches = {query: Done(*done) for query, done in said.pop("batches").items()}
        return Manifest(states, batches=batches, **said)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path}: cannot be read ({error}); restore it, or delete it and run vedette-spark reconcile "
            f"--tables {root}"
        ) from error


def check(tables: Tables, *, newer: bool = True, whole: bool = False) -> None:
    """Raise ValueError, in one line, when the tables are no set any more. ``newer`` False: one that has more than was
    noted is no matter. ``whole``: without a note, either all of ``TOGETHER`` are there or none."""
    while True:
        manifest = read(tables.root)
        if RECONCILE in manifest.writers:
            raise ValueError(f"{tables.root}: reconcile was interrupted, or runs; run it (again) to its end")
        wrong = [problem for problem in problems(tables, manifest, whole) if newer or not problem.newer]
        # Newer by a batch that has begun, or ended, since the note was read?
        if not any(problem.newer for problem in wrong) or read(tables.root) == manifest:
            break
    if wrong:
        landed = any(problem.landed for problem in wrong)
        said = ", ".join(f"{problem.table.name} {problem.text}" for problem in wrong)
        raise ValueError(f"{tables.root}: {said}; {_remedy(tables.root, landed)}")


def problems(tables: Tables, manifest: Manifest, whole: bool = False) -> list[Problem]:
    """What does not fit to ``manifest``, as ``check`` has it."""
    if whole and not manifest.tables and not {*manifest.writers} - {RECONCILE}:
        missing = [table for table in TOGETHER if not tables.exists(table)]
        return [Problem(table, "is lost") for table in missing] if len(missing) < len(TOGETHER) else []
    wrong = []
    for name, noted in manifest.tables.items():
        if (table := TABLES.get(name)) is None:
            continue
        there = tables.state(table)
        if (why := _lost(there, noted)) is not None:
            wrong.append(Problem(table, why))
        elif there and there.version > noted.version and table in TOGETHER and not manifest.writers:
            wrong.append(Problem(table, f"is newer than the set ({_compared(there, noted)})", newer=True))
    return wrong


@contextmanager
def writing(tables: Tables, who: str, which: Collection[Table]) -> Iterator[Manifest]:
    """Note that ``who`` writes, and at the end how the tables ``which`` stand, with the ``batches`` that are put into
    the manifest yielded. Where the work fails, the name stays.

    Raises ValueError when one of the tables was lost meanwhile, but during ``RECONCILE``: it notes what is there.
    """
    with _changing(tables.root) as manifest:
        manifest.writers = sorted({*manifest.writers, who})
    more = Manifest()
    yield more
    with _changing(tables.root) as manifest:
        states = {table.name: tables.state(table) for table in which}
        storage.settle(tables.root)  # what others write from now on is not noted, as it may not be on the disk
        for name, noted in manifest.tables.items() if RECONCILE not in manifest.writers else ():
            if name in states and (why := _lost(states[name], noted)) is not None:
                raise ValueError(f"{tables.root}: {name} {why}; {_remedy(tables.root, TABLES[name] in LANDED)}")
        manifest.tables = {name: state for name, state in (manifest.tables | states).items() if state is not None}
        manifest.batches |= more.batches
        manifest.writers = [name for name in manifest.writers if name != who]


def withdraw(root: str, who: str) -> None:
    """Note that ``who`` has begun to write, and has written nothing."""
    with _changing(root) as manifest:
        manifest.writers = [name for name in manifest.writers if name != who]


def begin_again(root: str) -> None:
    """Forget the ``batches``, and who else has begun; until ``writing`` as ``RECONCILE`` has ended, ``check``
    refuses."""
    with _changing(root) as manifest:
        manifest.writers, manifest.batches = [RECONCILE], {}


def dropping(root: str, name: str, day: str) -> None:
    """Note that retention takes of a table what is of days up to ``day``."""
    with _changing(root) as manifest:
        manifest.dropped[name] = max(day, manifest.dropped.get(name, ""))


def freeze(root: str, days: Collection[str]) -> None:
    """Note that the counts of these days stay as they are, and of no others."""
    with _changing(root) as manifest:
        manifest.frozen = sorted(days)


@contextmanager
def _changing(root: str) -> Iterator[Manifest]:
    """The manifest, stored when the context ends well; nobody else changes it meanwhile."""
    with storage.locked(root, "set"):
        manifest = read(root)
        yield manifest
        _store(root, manifest)


def _store(root: str, manifest: Manifest) -> None:
    said = asdict(manifest) | {"tables": {name: state._asdict() for name, state in manifest.tables.items()}}
    storage.store(f"{root}/{NAME}", json.dumps(said, indent=1) + "\n")


def _lost(there: State | None, noted: State) -> str | None:
    """Why ``there`` is not what was noted, or went on from it; None when it is."""
    if there is None:
        return f"is lost ({noted.rows:,} rows are noted)"
    if there.id != noted.id:
        return f"was created again ({there.rows:,} rows, {noted.rows:,} are noted)"
    return f"is older than the set ({_compared(there, noted)})" if there.version < noted.version else None


def _compared(there: State, noted: State) -> str:
    return f"version {there.version} of {there.rows:,} rows, {noted.version} of {noted.rows:,} is noted"


def _remedy(root: str, landed: bool = False) -> str:
    command = f"vedette-spark reconcile --tables {root}" + (" --landing DIR" if landed else "")
    return f"restore all tables and _checkpoints from one backup, or run {command}"
