"""Notes of requests: a list reads what it shows, and what is over goes in time, with all that hosts replied."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.broker import own_port
from tests.console.fleet.kit import ADMIN, VIENNA
from tests.fleet.kit import FLEET
from tests.looptime import forward
from tests.waits import eventually
from vedette.mqtt.settings import MqttSettings
from vedette.system.folders import locked
from vedette.system.wallclock import WallClock, utc_now
from vedette_console.fleet import desk as desks
from vedette_console.fleet import notes
from vedette_console.fleet.desk import TIDY_SECONDS, Desk
from vedette_console.fleet.notes import Note, Notes
from vedette_console.fleet.service import Fleet
from vedette_console.settings import Settings

DAY, HOUR = 86_400_000_000, 3_600_000_000
NOW = utc_now()


def write(folder: Path, number: int, **more: Any) -> str:
    """A hunt that is over, ``number`` days old; its id."""
    id, created = f"{number:032x}", NOW - number * DAY
    note = Note(id, "hunt", "Needle", "ada", "otto", "case 17", created, created + DAY, FLEET, {"linz-1": "linz"})
    (folder / id / "linz-1").mkdir(parents=True)
    (folder / id / "linz-1" / "000000.part").write_bytes(b"lines of a host")
    replace(note, **{"state": "done", **more}).write(folder / id)
    return id


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of notes that were read."""
    ids, read = list[str](), Note.read

    def counted(folder: Path) -> Note:
        ids.append(folder.name)
        return read(folder)

    monkeypatch.setattr(Note, "read", counted)
    return ids


def test_a_list_reads_what_it_shows(tmp_path: Path, reads: list[str]) -> None:
    """Each note once, whatever there is, then those of the page; also what another process has written or removed."""
    ids = [write(tmp_path, number, sites={"a": "vienna" if number % 3 else "linz"}) for number in range(30)]
    hunts = Fleet(Settings("", requests=tmp_path), FLEET, lambda topic, data: None).hunts
    page = hunts.listed(ADMIN, 0, 5)
    assert ([row.id for row in page.items], page.total, page.next) == (ids[:5], 30, "5")
    reads.clear()
    page = hunts.listed(VIENNA, 18, 5)
    mine = [id for number, id in enumerate(ids) if number % 3]
    assert ([row.id for row in page.items], page.total, page.next) == (mine[18:], 20, None)
    assert reads == mine[18:]
    (tmp_path / ids[2]).rename(tmp_path / "elsewhere")
    ids = [*ids[:2], *ids[3:], write(tmp_path, 30)]
    page = hunts.listed(ADMIN, 1, 40)
    assert ([row.id for row in page.items], page.total) == (ids[1:], 30)


def test_a_damaged_one_hides_no_other(tmp_path: Path) -> None:
    """One that is not over, and nobody goes on with, is listed as expired; to who sees all of its hosts or some."""
    sites = {"vienna-1": "vienna", "linz-1": "linz"}
    ids = [write(tmp_path, 1, state="", sites=sites), write(tmp_path, 2, sites=sites)]
    write(tmp_path, 3, kind="evidence", sites=sites, more={"alert": "a-1"})
    (tmp_path / "ca.pem").touch()
    settings = Settings("", requests=tmp_path, authorities=tmp_path / "ca.pem")
    fleet = Fleet(settings, FLEET, lambda topic, data: None)
    for who in (ADMIN, VIENNA):
        assert fleet.evidence.of(who, "a-1") == []
        assert [(row.id, row.state) for row in fleet.hunts.listed(who).items] == [(ids[0], "expired"), (ids[1], "done")]


def test_what_is_over_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By age, and of each kind a user's oldest; what is at work stays, and so do others', requests of the command line
    and the record. One that is in its way out when the console is killed goes with the next look."""
    monkeypatch.setattr(notes, "NEWEST", 3)
    hunts = [write(tmp_path, number, by=("ada", "ada (token x)")[number % 2]) for number in (1, 2, 3, 4, 5)]
    others = [write(tmp_path, number, kind="ask") for number in (8, 9, 11)]
    bobs = write(tmp_path, 7, by="bob")
    (tmp_path / f"{99:032x}").mkdir()
    (tmp_path / f"{99:032x}" / "request.json").write_bytes(b"of the command line")
    (tmp_path / "audit.jsonl").touch()
    (tmp_path / write(tmp_path, 98)).rename(tmp_path / f".{98:032x}")
    kept = Notes(tmp_path, 10 * 86_400.0)
    assert kept.tidy({hunts[4]}, NOW) == [hunts[3], others[2]]
    stay = [*hunts[:3], hunts[4], bobs, *others[:2], f"{99:032x}", "audit.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(stay)
    assert [brief.id for brief in kept.listed(ADMIN, "hunt")] == [*hunts[:3], hunts[4], bobs]


def test_the_only_copy_of_evidence_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However old it is, and however many there are; what is stored in --evidence goes, and what no host answered."""
    monkeypatch.setattr(notes, "NEWEST", 1)
    folder, store = tmp_path / "requests", tmp_path / "evidence"
    alone, stored, silent, named = [
        write(folder, number, kind="evidence", more={"alert": alert})
        for number, alert in ((2, "a-2"), (20, "a-3"), (30, "a-4"), (40, "../a-5"))
    ]
    write(folder, 1, kind="evidence", more={"alert": "a-1"})
    (folder / silent / "linz-1" / "000000.part").unlink()
    (store / "a-3").mkdir(parents=True)
    (store / "a-3" / f"{stored}.manifest.json").touch()
    assert Notes(folder, 10 * 86_400.0).tidy((), NOW) == [silent]
    assert Notes(folder, 10 * 86_400.0, store).tidy((), NOW) == [stored]
    assert (folder / alone / "linz-1" / "000000.part").exists()
    assert (folder / named / "linz-1" / "000000.part").exists()


async def test_a_desk_tidies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its start and every hour; what it has at hand of a request goes, too. One that may not work in the folder,
    since another does, removes nothing."""
    monkeypatch.setattr(notes, "NEWEST", 1)
    settings = Settings("", requests=tmp_path, broker=MqttSettings(f"mqtt://127.0.0.1:{own_port()}"))
    loop, stays, first = asyncio.get_running_loop(), write(tmp_path, 1), write(tmp_path, 3)
    other = locked(tmp_path, "the other's")
    begun = [Desk(settings, lambda id: None, lambda asked: None) for _ in range(2)]
    try:
        await begun[0].start()
        assert "another console" in begun[0].fault
        os.close(other)
        await begun[1].start()
        await eventually("the first to go", lambda: not (tmp_path / first).exists())
        later = write(tmp_path, 4)
        begun[1]._recent[later] = begun[0]  # type: ignore[assignment]
        await eventually("the other to go", lambda: later not in begun[1]._recent or forward(loop, TIDY_SECONDS))
        assert [path.name for path in tmp_path.iterdir()] == [stays]
    finally:
        for desk in begun:
            await desk.stop()


async def test_a_clock_that_is_ahead_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at a start nor when it leaps: by age requests go once the clock has been right for six hours."""
    wall, monotonic, looks = NOW, 1, list[int | None]()

    def clock() -> WallClock:
        return WallClock(lambda: wall * 1000, lambda: monotonic * 1000, lambda: monotonic * 1000)

    def tidy(notes: Notes, at_work: object, now: int | None) -> list[str]:
        looks.append(now)
        return []

    async def look(hours: float) -> int | None:
        nonlocal wall, monotonic
        wall, monotonic, before = wall + round(hours * HOUR), monotonic + round(hours * HOUR), len(looks)
        await eventually("a look", lambda: len(looks) > before or forward(loop, TIDY_SECONDS))
        return looks[before]

    monkeypatch.setattr(desks, "WallClock", clock)
    monkeypatch.setattr(Notes, "tidy", tidy)
    loop = asyncio.get_running_loop()
    settings = Settings("", requests=tmp_path, broker=MqttSettings(f"mqtt://127.0.0.1:{own_port()}"))
    desk = Desk(settings, lambda id: None, lambda asked: None)
    await desk.start()
    try:
        await eventually("the look of the start", lambda: bool(looks))
        assert looks[0] is None
        assert await look(5.9) is None
        assert await look(0.2) == wall
        wall += 100 * DAY
        assert await look(1) == wall - 100 * DAY
        assert await look(5.9) == wall - 100 * DAY
        assert await look(0.2) == wall
    finally:
        await desk.stop()
