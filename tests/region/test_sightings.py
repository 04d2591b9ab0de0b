"""Which agents' ids two machines have, by their heartbeats; and whose have not."""

from __future__ import annotations

from typing import Any

import pytest

from vedette.region import sightings
from vedette.region.sightings import LIVES, NOTED, Sighting, Sightings

SECOND = 1_000_000
START = 1_795_228_874 * SECOND
AGENT = "f1", "edge-1"


class Ear:
    """Hears heartbeats of lives, given as letters, at seconds; a log id is a letter, too."""

    def __init__(self) -> None:
        self.sightings = Sightings()

    def hear(self, life: str, at: int, *, time: int | None = None, agent: tuple[str, str] = AGENT) -> Sighting:
        started = START + (ord(life) - ord("a")) * SECOND
        heartbeat = {"raw_log": {"log_id": life * 32}, "started_at": started, "time": START + (time or at) * SECOND}
        return self.sightings.heard(agent, heartbeat, START + at * SECOND)


def test_two_machines() -> None:
    """One that comes back after another one is noted, with both; it begins once, is over after NOTED, and may begin
    again."""
    ear = Ear()
    assert ear.hear("a", 100) == ear.hear("b", 101) == Sighting()
    found = ear.hear("a", 102)
    assert found.begins
    assert found.note == (
        "two machines or processes have this agent's id: "
        "raw log aaaaaaaa, started 2026-11-21T02:41:14Z and raw log bbbbbbbb, started 2026-11-21T02:41:15Z"
    )
    assert ear.hear("a", 103) == ear.hear("b", 104) == Sighting(found.note)
    late = 105 + NOTED // SECOND
    assert ear.hear("b", late) == Sighting()
    assert ear.hear("a", late + 1).begins


def test_a_clock_that_is_set_right() -> None:
    """What was noted while it was ahead is over NOTED after it was set back."""
    ear, year = Ear(), 365 * 86_400
    for life, at in (("a", 100), ("b", 101), ("a", 102)):
        ear.hear(life, year + at)
    assert ear.hear("a", 200, time=year + 103).note
    assert ear.hear("a", 201 + NOTED // SECOND, time=year + 104) == Sighting()


def test_one_machine() -> None:
    """Restarts, a folder that moves to another host and stays there, and another agent's heartbeats are not noted."""
    ear = Ear()
    assert {ear.hear(life, 100 + ord(life)) for life in "abcdefghijklmn"} == {Sighting()}
    assert {ear.hear("m", 300, agent=("f1", "edge-2")), ear.hear("n", 301)} == {Sighting()}


def test_what_a_broker_sends_again() -> None:
    """A heartbeat that came before, or comes later than those of the next life, is no other machine's."""
    ear = Ear()
    for time in (100, 110, 120):
        ear.hear("a", time)
    ear.hear("t", 130)  # it started at 19
    assert ear.hear("a", 140, time=110) == ear.hear("a", 141, time=120) == Sighting()
    assert ear.hear("a", 142, time=15) == ear.hear("t", 143) == Sighting()
    assert ear.hear("b", 144, time=18) == ear.hear("t", 145) == Sighting()  # older than all, and never heard before


@pytest.mark.parametrize(
    "heartbeat",
    [{}, {"state": "lost"}, {"raw_log": 1}, {"raw_log": {"log_id": 7}, "started_at": "x", "time": None}],
)
def test_what_says_nothing(heartbeat: dict[str, Any]) -> None:
    """A last will, and what is no agent's heartbeat, changes nothing and is not noted."""
    ear = Ear()
    ear.hear("a", 100)
    assert ear.sightings.heard(AGENT, heartbeat, START) == Sighting()
    assert ear.hear("a", 101) == Sighting()


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an agent the newest lives are kept, of agents those heard last; times beyond any date are shown as none."""
    monkeypatch.setattr(sightings, "AGENTS", 10)
    ear = Ear()
    for number in range(100):
        ear.hear("a", 100, agent=("f1", f"edge-{number}"))
    assert len(ear.sightings._agents) == 10
    for life in range(100):
        heartbeat = {"raw_log": {"log_id": f"{life}"}, "started_at": life, "time": 1000 + life}
        ear.sightings.heard(AGENT, heartbeat, START)
    assert len(ear.sightings._agents[AGENT].lives) == LIVES
    far = {"raw_log": {"log_id": "x"}, "started_at": 1 << 62, "time": 1 << 63}
    ear.sightings.heard(AGENT, far, START)
    near = {"raw_log": {"log_id": "99"}, "started_at": 99, "time": 1 << 64}
    assert "started ?" in ear.sightings.heard(AGENT, near, START).note
