"""The real agent on what a power cut or a bad disk leaves: its raw log, its store, or both, cut off, gone, or with
flipped bits, anywhere; often with a kill at the start as well.

A template is left once by a real agent: several raw log segments, one of them compacted, a store with alerts in outbox
and ring, a tailed file. Each case damages a copy of it. What can still be read is the measure: the agent starts, keeps
it and each of its alerts once, under the id it had; says what it lost, in an account that adds up; and goes on."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench import traffic
from tests.e2e.agent import KILLS, Agent, chance, few, not_back, say, vedette
from tests.waits import until
from vedette.rawlog import read
from vedette.rawlog.machine import bind
from vedette.rawlog.segment import Segment, SegmentFile, Unit, segments
from vedette.runtime.pipeline.lives import Reported
from vedette.store.store import Store

SETTINGS = """
[[input]]
name = "in"
type = "syslog"
tcp = "127.0.0.1:{port}"
[[input]]
name = "file"
type = "file"
paths = ["{file}"]
format = "syslog"
logsource = {{ product = "linux" }}
"""
ATTACK = b"<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for root from 203.0.113.9 port 22 ssh2"
Damage = Callable[[Path, Random], None]


@dataclass(frozen=True)
class Template:
    """An agent's ``folder``, in which ``template`` is what it left, and ``earlier`` an older store of it; its events by
    log and offset, its alerts with the offsets of their events, and what it had shown last."""

    folder: Path
    port: int
    events: dict[tuple[int, int], tuple[str, bytes]]
    alerts: dict[str, int]
    shown: dict[str, Any]


def configured(folder: Path, port: int = 0) -> Agent:
    agent = Agent(folder, rules=few(folder / "rules"), port=port, segment_bytes=24 << 10)
    agent.configure(SETTINGS.format(port=agent.port, file=folder / "tailed"))
    return agent


def send(agent: Agent, *lines: bytes) -> None:
    with socket.create_connection(("127.0.0.1", agent.port)) as connection:
        connection.sendall(b"".join(line + b"\n" for line in lines))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """What a killed agent left. The newest alerts are in the outbox: the landing was in the way."""
    agent = configured(tmp_path_factory.mktemp("torn"))
    tailed = [ATTACK + b" file %d" % number for number in range(20)]
    (agent.folder / "tailed").write_bytes(b"".join(line + b"\n" for line in tailed))
    lines = b"".join(traffic.blocks(21, 900, attack_rate=0.05)).splitlines()[:900]
    lines[::30] = [ATTACK + b" %d" % number for number in range(30)]
    agent.up()
    try:
        for start in range(0, 900, 3):  # frames of few events
            send(agent, *lines[start : start + 3])
            if start == 750:
                agent.settled(start, "in")
                shutil.move(agent.landing, agent.folder / "kept-landing")
                agent.landing.write_text("in the way")
            if start == 450:
                _copy_store(agent)
            until("the frame", lambda start=start: agent.input()["stored"] >= start + 3)
        until("all to be judged", lambda: not agent.status()["backlog"])
        until("the alerts", lambda: agent.status()["alerts"]["in_outbox"] >= 4)
        until("the commit", lambda: _committed(agent.data) == agent.status()["raw_log"]["end"])
        until("compaction", lambda: agent.said("segment_compacted"))
    finally:
        agent.kill()
    agent.landing.unlink()
    shutil.move(agent.folder / "kept-landing", agent.landing)
    assert len(segments(agent.data / "raw")) >= 4
    (agent.data / "control.sock").unlink()
    shutil.copytree(agent.data, agent.folder / "template")
    left = _events(agent.data)
    agent.up()  # to know all alerts, and what they are called
    try:
        agent.settled(900)
    finally:
        agent.kill()
    alerts = {alert["alert_id"]: alert["raw_ref"]["offset"] for alert in agent.alerts()}
    reported = Reported(agent.folder / "template" / "shown")
    assert reported.last is not None
    reported.close()
    return Template(agent.folder, agent.port, left, alerts, reported.last)


def _events(data: Path) -> dict[tuple[int, int], tuple[str, bytes]]:
    """Input and bytes of every event that can be read, in whichever log it is."""
    events = {}
    for log_id in {segment.log_id for segment in segments(data / "raw")}:
        for frame in read.frames(data / "raw", log_id=log_id, on_gap=lambda gap: None):
            for start, end in frame.chunk.spans():
                events[log_id, frame.offset + start] = (frame.chunk.input, frame.chunk.data[start:end])
    return events


def _copy_store(agent: Agent) -> None:
    """Of a running agent: as it is after some commit."""
    earlier = agent.folder / "earlier"
    (earlier / "store").mkdir(parents=True)
    agent.settled(450, "in")
    with Store.open(agent.data / "store", readonly=True) as store:
        store._env._env.copy(str(earlier / "store"))
    shutil.copy(agent.data / "shown", earlier / "shown")


def _committed(data: Path) -> int:
    with Store.open(data / "store", readonly=True) as store:
        cursor = store.load().cursor
    return cursor.offset if cursor else 0


# --- damage


def flip(path: Path, position: int, bit: int = 16) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ bit]))


def _units(segment: Segment) -> list[Unit]:
    with SegmentFile(segment) as file:
        return [item for item in file.units(file.begin(), segment.base) if isinstance(item, Unit)]


def _segment(which: int) -> Callable[[Path], Segment]:
    return lambda data: segments(data / "raw")[which]


def _at(which: int, place: str, cut: bool) -> Damage:
    """Damage to a segment: a byte flipped, or all cut off, at a ``place`` of a class."""

    def damage(data: Path, rng: Random) -> None:
        segment = _segment(which)(data)
        units = _units(segment)
        with SegmentFile(segment) as file:
            begin = file.begin()
        unit = units[-1] if place.startswith("last") else rng.choice(units)
        meta = unit.position + 68
        low, high = {
            "segment header": (0, 80),
            "checkpoint": (80, max(81, begin)),
            "frame header": (unit.position, meta),
            "metadata": (meta, meta + unit.header.meta_size),
            "body": (meta + unit.header.meta_size, unit.after),
            "last frame": (unit.position + 1, unit.after),
            "last boundary": (unit.position, unit.position + 1),
        }[place]
        position = rng.randrange(low, high)
        if cut:
            os.truncate(segment.path, position)
        else:
            flip(segment.path, position, 1 << rng.randrange(8))

    return damage


def _gone(which: int) -> Damage:
    return lambda data, rng: _segment(which)(data).path.unlink()


def _garbage(data: Path, rng: Random) -> None:
    with _segment(-1)(data).path.open("ab") as file:
        file.write(rng.randbytes(rng.randrange(1, 5000)))


RAW: dict[str, Damage] = {
    f"{'cut' if cut else 'flip'} {place} of {name} segment": _at(which, place, cut)
    for name, which in (("first", 0), ("middle", 2), ("last", -1))
    for place in ("segment header", "checkpoint", "frame header", "metadata", "body", "last frame", "last boundary")
    for cut in (False, True)
}
RAW |= {"first segment gone": _gone(0), "middle segment gone": _gone(2)}
RAW |= {f"garbage at the end, {number}": _garbage for number in range(3)}


def _store(data: Path) -> Path:
    return data / "store" / "data.mdb"


def _store_flip(page: int) -> Damage:
    """A bit of the ``page``-th page; -1: of any."""

    def damage(data: Path, rng: Random) -> None:
        pages = _store(data).stat().st_size // 4096
        number = page if page >= 0 else rng.randrange(2, pages)
        flip(_store(data), 4096 * number + rng.randrange(4096), 1 << rng.randrange(8))

    return damage


def _store_page(data: Path, rng: Random) -> None:
    """A page of zeros, or one in another's place."""
    pages = _store(data).stat().st_size // 4096
    whole = bytearray(_store(data).read_bytes())
    to, source = rng.randrange(2, pages), rng.randrange(2, pages)
    whole[4096 * to : 4096 * to + 4096] = rng.choice((bytes(4096), whole[4096 * source : 4096 * source + 4096]))
    _store(data).write_bytes(whole)


def _store_cut(data: Path, rng: Random) -> None:
    size = _store(data).stat().st_size
    os.truncate(_store(data), rng.choice((0, 1, 4095, 4096, 8192, size // 2, size - 4096, rng.randrange(size))))


def _store_lock(data: Path, rng: Random) -> None:
    (data / "store" / "lock.mdb").write_bytes(rng.randbytes(8192))


def _old_copy(data: Path, rng: Random) -> None:
    """As a backup is put back: the store as it was when half of the lines had come."""
    shutil.rmtree(data / "store")
    shutil.copytree(data.parent / "earlier" / "store", data / "store")


STORE: dict[str, Damage] = {
    "flip in first meta page": _store_flip(0),
    "flip in second meta page": _store_flip(1),
    "flip in a page": _store_flip(-1),
    "flip in a page again": _store_flip(-1),
    "page lost or misplaced": _store_page,
    "cut": _store_cut,
    "cut again": _store_cut,
    "lock file": _store_lock,
    "no file": lambda data, rng: _store(data).unlink(),
    "no folder": lambda data, rng: shutil.rmtree(data / "store"),
    "emptied": lambda data, rng: os.truncate(_store(data), 0),
    "old copy": _old_copy,
}


def _shown_stale(data: Path, rng: Random) -> None:
    shutil.copy(data.parent / "earlier" / "shown", data / "shown")


def _shown_garbage(data: Path, rng: Random) -> None:
    (data / "shown").write_bytes(rng.randbytes(3000))


AS_IT_WAS = "as it was"


def _nothing(data: Path, rng: Random) -> None:
    """No damage."""


SHOWN: dict[str, Damage] = {
    "gone": lambda data, rng: (data / "shown").unlink(),
    "stale": _shown_stale,
    "garbage": _shown_garbage,
}
FIRST = [
    ("emptied", "garbage at the end, 0", AS_IT_WAS),
    ("no file", "cut last frame of last segment", AS_IT_WAS),
    ("old copy", "flip body of last segment", "stale"),
    ("no folder", "middle segment gone", "gone"),
    ("flip in a page", AS_IT_WAS, AS_IT_WAS),
    (AS_IT_WAS, "flip body of middle segment", AS_IT_WAS),
]
"""The cases before the random ones."""
CASES = len(FIRST) + 2 * KILLS


def _drawn(rng: Random) -> tuple[str, str, str]:
    """Damage of the raw log alone, of the store alone, or of both and often of what was shown."""
    store, raw = rng.choice(sorted(STORE)), rng.choice(sorted(RAW))
    match rng.randrange(4):
        case 0:
            return AS_IT_WAS, raw, AS_IT_WAS
        case 1:
            return store, AS_IT_WAS, AS_IT_WAS
        case _:
            return store if store != "lock file" else "no file", raw, rng.choice([*SHOWN, AS_IT_WAS, AS_IT_WAS])


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
def test_what_breaks(template: Template, capsys: pytest.CaptureFixture[str]) -> None:
    """A store that is lost in any way, a raw log that is damaged in any way, or both: every alert of an event that can
    be read is landed under its id, what can be read stays as it is, what a file gives again is stored once, what cannot
    be read is lost in the account, and no counter goes back but ``judged``, for the stated reason."""
    rng = chance()
    data = template.folder / "template"
    rebuilt = lost = kills = 0
    for number in range(CASES):
        names = FIRST[number] if number < len(FIRST) else _drawn(rng)
        what = f"case {number}: {', '.join(names)}"
        agent = configured(template.folder, template.port)
        shutil.rmtree(agent.data)
        agent.log.unlink()
        shutil.copytree(data, agent.data)
        bind(agent.data / "raw")  # a copy of this machine's own
        for damage, name in zip((STORE, RAW, SHOWN), names, strict=True):
            damage.get(name, _nothing)(agent.data, rng)
        readable = _events(agent.data)
        assert readable.items() <= template.events.items(), what
        gone = {offset for log_id, offset in template.events.keys() - readable.keys()}
        assert not gone or names[1] != AS_IT_WAS
        assert len(gone) < 400, what
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
        for shown in (*seen, status):
            _adds_up(shown)
        for before, after in pairwise([*seen, status]):
            not_back(before, after)
        events = _events(agent.data)
        assert readable.items() <= events.items(), what
        stored = Counter(events.values())
        assert max((n for (name, _), n in stored.items() if name == "file"), default=1) == 1, what
        assert stored["in", ATTACK + b" after"] >= 1, what
        ids = {row["alert_id"] for row in agent.alerts()}
        missing = {offset for alert, offset in template.alerts.items() if alert not in ids}
        assert missing <= (gone if names[0] != AS_IT_WAS else set()), (what, missing)
        again = bool(agent.said("store_rebuilt", all=True))
        for damaged in agent.said("store_damaged", all=True):
            assert names[0] in ("no file", "no folder") or Path(damaged["set_aside"]).is_dir(), what
        unseen = "boundary" in names[1] and names[0] != AS_IT_WAS  # whole frames that no store tells of any more
        if gone and "gone" not in names[1] and not unseen:
            assert agent.said("raw_log_cut", all=True) or agent.said("raw_log_damaged", all=True), what
        begin = 0
        if again:
            rebuilt += 1
            assert status["disk"]["store_rebuilt"]["reason"], what
            begin = status["disk"]["store_rebuilt"]["judged_from"] or 0
        if names[2] == AS_IT_WAS:
            not_back(template.shown, status, *(("judged", "candidates", "matches", "memory") if again else ()))
            # Of a frame or compacted frame in whose middle judging began nobody knows how many events had been judged.
            least = sum(offset >= begin for offset in gone) if again else 0
            assert least <= _sums(status, "lost") <= (len(gone) if least else 0), (what, status["inputs"])
            lost += _sums(status, "lost")
    say(capsys, f"torn: {CASES} cases, {kills} killed, {rebuilt} stores made again, {lost} events told lost")
