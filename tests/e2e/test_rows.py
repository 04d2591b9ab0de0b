"""Rows of statements to sinks, in the real agent: statements changed under load, kills, a receiver that is away."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import KILLS, Agent, chance
from tests.e2e.tuned import tuned
from tests.sinks.kit import Server, answers, serving
from tests.waits import until

TABLES = """
CREATE TABLE door (n BIGINT, kind STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time')
WITH ('connector' = 'vedette', 'product' = 'door');
CREATE TABLE lake (n BIGINT, kind STRING, version INT) WITH ('connector' = 'sink', 'name' = 'lake');
"""


def statements(version: int) -> str:
    """Two that split the events, and union them again in one sink."""
    return TABLES + "".join(
        f"INSERT INTO lake SELECT n, UPPER(kind), {version} FROM door WHERE kind = '{kind}';\n" for kind in "ab"
    )


class Door:
    """An agent that tails a file of numbered events, each of which makes a row."""

    def __init__(self, folder: Path, sinks: str, version: int = 1) -> None:
        self.rules, self.log, self.lines = folder / "rules", folder / "in.log", 0
        self.rules.mkdir()
        self.log.touch()
        self.agent = Agent(folder / "a", rules=self.rules)
        self.agent.program = tuned(rules_poll=0.1, files_poll=0.01)
        self.sinks = sinks
        self.configure(sinks)
        self.adopt(version)

    def configure(self, sinks: str) -> None:
        self.agent.configure(
            f'[uplink]\ntype = "none"\n[[input]]\ntype = "file"\nname = "in"\npaths = ["{self.log}"]\n'
            f'format = "json"\nlogsource = {{product = "door"}}\n{sinks}'
        )

    def adopt(self, version: int) -> None:
        """Another version of the statements, by one rename."""
        new = self.rules / "etl.new"
        new.write_text(statements(version))
        new.rename(self.rules / "etl.sql")

    def write(self, count: int) -> None:
        with self.log.open("a") as file:
            for _ in range(count):
                self.lines += 1
                file.write(json.dumps({"n": self.lines, "kind": "ab"[self.lines % 2]}) + "\n")

    def sink(self) -> dict[str, Any]:
        self.agent.alive()
        sink: dict[str, Any] = next(row for row in self.agent.status()["row_sinks"] if row["name"] == "lake")
        settled = sink["delivered"] + sink["refused"] + sink["dropped"] + sink["waiting"]
        assert sink["made"] == settled, sink
        return sink

    def done(self) -> dict[str, Any]:
        """The sink once every line is a row, and no row waits."""
        self.agent.settled(self.lines)

        def over() -> dict[str, Any] | None:
            sink = self.sink()
            return sink if sink["made"] >= self.lines and not sink["waiting"] else None

        sink: dict[str, Any] = until("every row to be delivered", over)
        return sink


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    door = Door(tmp_path, f'[[sink]]\ntype = "file"\nname = "lake"\ntakes = "rows"\npath = "{tmp_path}/lake.ndjson"\n')
    try:
        yield door
    finally:
        door.agent.kill()


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "lake.ndjson").read_bytes().splitlines()]


def check(rows: list[dict[str, Any]], lines: int, versions: int) -> None:
    """Each event in a row or more, by one statement; the versions follow each other with a clean cut."""
    version_of = dict[int, int]()
    for row in rows:
        assert row["kind"] == "AB"[row["n"] % 2]
        assert version_of.setdefault(row["n"], row["version"]) == row["version"]
    assert sorted(version_of) == [*range(1, lines + 1)]
    in_order = [version_of[n] for n in range(1, lines + 1)]
    assert in_order == sorted(in_order)
    assert sorted(set(in_order)) == [*range(1, versions + 1)]


def test_changed_under_load(door: Door, tmp_path: Path) -> None:
    """The folder of rules changes twice while events come: every event is in exactly one row, by the old statements or
    the new ones with a clean cut, in order, and the account adds up."""
    # Over 3 s: 60,000 events, so that both changes fall among them.
    door.agent.up()
    for version in (2, 3):
        door.write(20_000)
        until("some rows", lambda: door.sink()["made"] > door.lines - 18_000)
        door.adopt(version)
        until("the change", lambda v=version: len(door.agent.said("rules_loaded")) >= v)
    door.write(20_000)
    sink = door.done()
    rows = written(tmp_path)
    assert (sink["made"], sink["delivered"], sink["refused"], sink["dropped"]) == (60_000, 60_000, 0, 0)
    check(rows, 60_000, 3)
    assert len(rows) == 60_000


def test_killed_under_load(door: Door, tmp_path: Path) -> None:
    """Killed at random while rows are made and delivered and statements change: every event is in a row, none by two
    statements, and the account adds up."""
    # Over 3 s: a life more than there are kills.
    luck = chance()
    for kill in range(KILLS):
        door.agent.up()
        door.write(8_000)
        made = door.lines - luck.randrange(8_000)
        until("some rows", lambda made=made: door.sink()["made"] >= made)
        door.adopt(kill + 2)
        door.write(luck.randrange(1, 2_000))
        until("more rows", lambda: luck.randrange(4) == 0 or door.sink()["made"] >= door.lines)
        door.agent.kill()
    door.agent.up()
    door.write(1_000)
    sink = door.done()
    assert (sink["made"], sink["delivered"], sink["refused"], sink["dropped"]) == (door.lines, door.lines, 0, 0)
    rows = written(tmp_path)
    version_of = dict[int, int]()
    for row in rows:
        assert version_of.setdefault(row["n"], row["version"]) == row["version"]
    assert sorted(version_of) == [*range(1, door.lines + 1)]
    assert max(Counter(row["n"] for row in rows).values()) <= KILLS + 1


@contextmanager
def posted(tmp_path: Path, bound: str) -> Iterator[tuple[Door, Server]]:
    with serving() as server:
        sink = f'[[sink]]\ntype = "webhook"\nname = "lake"\ntakes = "rows"\nurl = "{server.url}"\n'
        door = Door(tmp_path, f'{sink}max_waiting = "{bound}"\n')
        try:
            yield door, server
        finally:
            door.agent.kill()


def test_the_receiver_is_away_and_the_bound_reached(tmp_path: Path) -> None:
    """Rows of a receiver that is away wait within the sink's bound, over a kill; beyond it the oldest are dropped and
    counted, nothing else waits, and the receiver gets all others once it is back."""
    with posted(tmp_path, "16KiB") as (door, server):
        server.act = answers(503)
        door.agent.up()
        door.write(30_000)
        door.agent.settled(door.lines)
        until("rows to be dropped", lambda: door.sink()["dropped"])
        door.agent.kill()
        door.agent.up()
        until("its place", lambda: door.sink()["dropped"])
        server.requests.clear()
        server.act = answers(200)
        sink = door.done()
        rows = [json.loads(line) for request in server.requests for line in request.body.splitlines()]
        assert sink["made"] == 30_000 == sink["delivered"] + sink["dropped"]
        assert sink["refused"] == 0 < sink["dropped"]
        assert len({row["n"] for row in rows}) >= sink["delivered"] - 2_000  # one batch may have been read before


def test_a_store_that_is_made_again(tmp_path: Path) -> None:
    """Rows that wait for a receiver that is away are made again when the store is lost: each event is in a row."""
    with posted(tmp_path, "64MiB") as (door, server):
        door.agent.program = tuned(segment_bytes=4096, rules_poll=0.1, files_poll=0.01)
        door.agent.up()
        door.write(500)
        door.done()
        server.act = answers(503)
        for _ in range(6):
            door.write(300)
            door.agent.settled(door.lines)
        door.agent.kill()
        (door.agent.data / "store" / "data.mdb").write_bytes(b"")
        server.act = answers(200)
        door.agent.up()
        assert door.agent.said("store_rebuilt")

        def accepted() -> set[int]:
            with server.lock:
                return {json.loads(line)["n"] for request in server.accepted for line in request.body.splitlines()}

        until("each event", lambda: door.sink()["waiting"] == 0 and accepted() == {*range(1, door.lines + 1)})
        assert door.agent.status()["identity_broken"] == []
