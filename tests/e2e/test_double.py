"""The real agent after two things broke at once: its store and its raw log, and often a third, or a kill at the start.

The template is that of ``test_torn``: 900 events and a tailed file, all judged; the newest alerts have no receipt. Each
case damages a copy of it at random. What can still be read is the measure: every alert of it is there once, under the
id it had, and what cannot be read is in the account.
"""

from __future__ import annotations

import shutil
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.e2e.agent import KILLS, Agent, chance, not_back, say, vedette
from tests.e2e.test_torn import ATTACK, RAW, STORE, Damage, Template, configured, send
from tests.e2e.test_torn import template as template  # the fixture
from tests.waits import until
from vedette.rawlog import read
from vedette.rawlog.machine import bind
from vedette.rawlog.segment import segments
from vedette.runtime.reported import Reported

CASES = max(5, KILLS)


def _old_copy(data: Path, rng: Random) -> None:
    """As a backup is put back: the store as it was when half of the lines had come."""
    shutil.rmtree(data / "store")
    shutil.copytree(data.parent / "earlier" / "store", data / "store")


def _no_folder(data: Path, rng: Random) -> None:
    shutil.rmtree(data / "store")


def _emptied(data: Path, rng: Random) -> None:
    (data / "store" / "data.mdb").write_bytes(b"")


STORES: dict[str, Damage] = {
    **{name: damage for name, damage in STORE.items() if name != "lock file"},
    "no folder": _no_folder,
    "emptied": _emptied,
    "old copy": _old_copy,
}


def _hundred(data: Path, rng: Random) -> None:
    with segments(data / "raw")[-1].path.open("ab") as file:
        file.write(rng.randbytes(100))


RAWS: dict[str, Damage] = {**RAW, "100 bytes of garbage": _hundred, "100 bytes of garbage again": _hundred}


def _shown_stale(data: Path, rng: Random) -> None:
    shutil.copy(data.parent / "earlier" / "shown", data / "shown")


SHOWN: dict[str, Damage] = {
    "shown as it was": lambda data, rng: None,
    "shown gone": lambda data, rng: (data / "shown").unlink(),
    "shown stale": _shown_stale,
    "shown garbage": lambda data, rng: (data / "shown").write_bytes(rng.randbytes(3000)) and None,
}


FIRST = [
    ("emptied", "100 bytes of garbage", "shown as it was"),
    ("no file", "cut last frame of last segment", "shown as it was"),
    ("old copy", "flip body of last segment", "shown stale"),
    ("no folder", "middle segment gone", "shown gone"),
]
"""The cases before the random ones."""


class Known(NamedTuple):
    """What the template held: each event's input by its offset, each alert by its id, and what was shown last."""

    events: dict[int, str]
    alerts: dict[str, int]
    shown: dict[str, Any]


def _events(data: Path) -> dict[int, str]:
    """Offset and input of every event that can be read, in whichever log it is."""
    found = {}
    for log_id in {segment.log_id for segment in segments(data / "raw")}:
        for frame in read.frames(data / "raw", log_id=log_id, on_gap=lambda gap: None):
            found |= {frame.offset + start: frame.chunk.input for start, _ in frame.chunk.spans()}
    return found


def _sums(status: dict[str, Any], counter: str) -> int:
    counts = (one[counter] for one in status["inputs"].values())
    return sum(sum(value.values()) if isinstance(value, dict) else value for value in counts)


def _adds_up(status: dict[str, Any]) -> None:
    """The account as an operator checks it."""
    assert status["identity_broken"] == []
    assert _sums(status, "received") == _sums(status, "stored") + _sums(status, "dropped")
    waiting = sum(status["backlog"].values())
    assert _sums(status, "stored") == _sums(status, "judged") + waiting + _sums(status, "lost"), status["inputs"]
    alerts = status["alerts"]
    assert alerts["made"] == alerts["receipted"] + alerts["in_outbox"] + alerts["lost"]


def _start(agent: Agent, rng: Random) -> list[dict[str, Any]]:
    """Start, for a half of the cases after up to two kills; what was shown meanwhile, life by life."""
    seen = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        agent.start()
        if rng.random() < 0.5:
            time.sleep(rng.uniform(0.0, 1.5))  # anywhere in the start
        else:
            agent.ready()
            time.sleep(rng.uniform(0.0, 0.3))
            seen.append(agent.status())
        agent.kill()
    agent.up()
    return seen


def _settled(agent: Agent) -> dict[str, Any] | None:
    """The status once all is judged and receipted, the new event too. An agent that has ended because it found at work
    what the check of its store did not see is started again, as its service is."""
    if not agent.running():
        assert "the store is damaged" in agent.text(), agent.text()[-4000:]
        agent.up()
        send(agent, ATTACK + b" after")
    try:
        status = agent.status()
    except ConnectionError:
        return None
    done = not status["backlog"] and not status["alerts"]["in_outbox"]
    return status if done and any(row["raw"].endswith(" after") for row in agent.alerts()) else None


@pytest.mark.long
def test_two_things_break(template: Template, capsys: pytest.CaptureFixture[str]) -> None:
    """A store that is lost in any way, and a raw log that is damaged in any way: every alert of an event that can be
    read is landed under its id, what cannot be read is lost in the account, which adds up, and no counter goes back but
    ``judged``, for the stated reason."""
    rng = chance()
    data = template.folder / "template"
    shown = Reported(data / "shown")
    assert shown.last is not None
    known = Known(_events(data), template.offsets, shown.last)
    shown.close()
    rebuilt = lost = kills = 0
    for number in range(CASES):
        names = rng.choice(sorted(STORES)), rng.choice(sorted(RAWS)), rng.choice([*SHOWN, *["shown as it was"] * 2])
        names = FIRST[number] if number < len(FIRST) else names
        what = f"case {number}: {', '.join(names)}"
        agent = configured(template.folder, template.port)
        shutil.rmtree(agent.data)
        agent.log.unlink()
        shutil.copytree(data, agent.data)
        bind(agent.data / "raw")  # a copy of this machine's own
        for damage, name in zip((STORES, RAWS, SHOWN), names, strict=True):
            damage[name](agent.data, rng)
        readable = _events(agent.data)
        try:
            seen = _start(agent, rng)
            kills += len(seen)
            send(agent, ATTACK + b" after")
            status = until(f"all to be judged and receipted: {what}", lambda agent=agent: _settled(agent))
            said = vedette("status", "-c", agent.config, code=None).stdout  # its code is 1 while the raw log is damaged
            assert "adds up" in said, what
            assert agent.stop() == 0, what
        finally:
            agent.kill()
        for one in (*seen, status):
            _adds_up(one)
        for before, after in pairwise([*seen, status]):
            not_back(before, after)
        ids = {row["alert_id"] for row in agent.alerts()}
        missing = {alert: offset for alert, offset in known.alerts.items() if alert not in ids}
        assert not [offset for offset in missing.values() if offset in readable], (what, missing)
        gone = {offset for offset in known.events if offset not in readable}
        assert set(missing.values()) <= gone, what
        told = agent.said("store_rebuilt", all=True)
        begin = 0
        if told:
            rebuilt += 1
            assert status["disk"]["store_rebuilt"]["reason"], what
            begin = status["disk"]["store_rebuilt"]["judged_from"] or 0
        if names[2] == "shown as it was":
            not_back(known.shown, status, *(("judged", "candidates", "matches", "memory") if told else ()))
            # Of a frame or compacted frame in whose middle judging began nobody knows how many events had been judged.
            least = sum(offset >= begin for offset in gone) if told else 0
            assert least <= _sums(status, "lost") <= (len(gone) if least else 0), (what, status["inputs"])
            lost += _sums(status, "lost")
    say(capsys, f"double faults: {CASES} cases, {kills} killed, {rebuilt} stores made again, {lost} events told lost")
