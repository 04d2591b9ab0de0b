"""The real agent on what a power cut or a bad disk leaves: files cut off or with flipped bits, anywhere.

A template is made once by a real agent: several raw log segments, one of them compacted, a store with alerts in outbox
and ring, a tailed file. Each case is a copy of it with damage of one class; the agent must start on it, say what it
found, keep its account, lose no more than what the damage took, and go on judging."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from bench import traffic
from tests.e2e.agent import KILLS, Agent, chance, few, say
from tests.waits import until
from vedette.rawlog import read
from vedette.rawlog.machine import bind
from vedette.rawlog.segment import Segment, SegmentFile, Unit, segments
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
    """``lines``: what the input ``in`` stored; ``tailed``: of the input ``file``; ``alerts``: their ids, ``offsets``
    with the offsets of their events. In ``template`` is what the agent left, in ``earlier`` an older store of it."""

    folder: Path
    port: int
    lines: list[bytes]
    tailed: list[bytes]
    alerts: frozenset[str]
    offsets: dict[str, int]


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
    stored, from_file = agent.stored(), agent.stored("file")
    assert len(segments(agent.data / "raw")) >= 4
    (agent.data / "control.sock").unlink()
    shutil.copytree(agent.data, agent.folder / "template")
    agent.up()  # to know all alerts, and what they are called
    try:
        agent.settled(900)
    finally:
        agent.kill()
    offsets = {alert["alert_id"]: alert["raw_ref"]["offset"] for alert in agent.alerts()}
    lines_in, lines_of_file = [e.raw for e in stored], [e.raw for e in from_file]
    return Template(agent.folder, agent.port, lines_in, lines_of_file, frozenset(offsets), offsets)


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
RAW |= {"first segment gone": _gone(0), "middle segment gone": _gone(2), "garbage at the end": _garbage}


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
}


def started(template: Template, damage: Damage, rng: Random) -> tuple[Agent, dict[str, object]]:
    """The template with the damage, in its own place, started and settled with one more event."""
    agent = configured(template.folder, template.port)
    shutil.rmtree(agent.data)
    agent.log.unlink()
    shutil.copytree(template.folder / "template", agent.data)
    bind(agent.data / "raw")  # a copy of this machine's own
    damage(agent.data, rng)
    agent.up()
    known = len(agent.alerts())
    send(agent, ATTACK + b" after")
    status = until(
        "the new alert",
        lambda: (
            agent.alive()
            and len(agent.alerts()) > known
            and not (one := agent.status())["backlog"]
            and not one["alerts"]["in_outbox"]
            and one
        ),
    )
    assert status["identity_broken"] == []
    return agent, status


def cases(found: dict[str, Damage], rng: Random) -> list[str]:
    """As many as are wanted; all before any comes again."""
    names: list[str] = []
    while len(names) < max(2, KILLS):
        names += rng.sample(sorted(found), len(found))
    return names[: max(2, KILLS)]


@pytest.mark.long
def test_raw_log(template: Template, capsys: pytest.CaptureFixture[str]) -> None:
    """Damage anywhere in the raw log: what is left is read in order, what is gone is counted as lost or said to be cut,
    and set aside; events that stayed are as they were."""
    rng = chance()
    told = []
    for name in cases(RAW, rng):
        agent, _ = started(template, RAW[name], rng)
        agent.kill()
        gaps: list[read.Gap] = []
        kept = [
            frame.chunk.data[start:end]
            for log_id in sorted({segment.log_id for segment in segments(agent.data / "raw")})
            for frame in read.frames(agent.data / "raw", log_id=log_id, on_gap=gaps.append)
            for start, end in frame.chunk.spans()
            if frame.chunk.input == "in"
        ]
        assert kept.count(ATTACK + b" after") == 1, name
        kept.remove(ATTACK + b" after")
        position = 0
        for line in kept:  # what is left, in its order
            position = template.lines.index(line, position) + 1
        missing = len(template.lines) - len(kept)
        if missing:
            said = agent.said("raw_log_cut") or agent.said("raw_log_damaged") or gaps or "gone" in name
            assert said, name
        assert missing < 400, name
        assert template.alerts <= {alert["alert_id"] for alert in agent.alerts()}
        told.append(f"{name}: {missing} of {len(template.lines)} events gone")
    say(capsys, "torn raw log: " + "; ".join(told[:6]) + f"; {len(told)} cases")


@pytest.mark.long
def test_store(template: Template, capsys: pytest.CaptureFixture[str]) -> None:
    """Damage anywhere in the store: the agent starts, also where reading it would kill it; no event and no alert is
    missing, and each alert is there once under the id that it had."""
    rng = chance()
    rebuilt, names = 0, cases(STORE, rng)
    for name in names:
        agent, _ = started(template, STORE[name], rng)
        agent.kill()
        told = agent.said("store_damaged")
        rebuilt += len(told)
        if told:
            assert name == "no file" or Path(told[0]["set_aside"]).is_dir()
        assert [event.raw for event in agent.stored()] == [*template.lines, ATTACK + b" after"], name
        assert [event.raw for event in agent.stored("file")] == template.tailed, name
        alerts = [alert for alert in agent.alerts() if not alert["raw"].endswith(" after")]
        assert {alert["alert_id"] for alert in alerts} == template.alerts, name
    say(capsys, f"torn store: {len(names)} cases, {rebuilt} made again; {len(template.alerts)} alerts each")
