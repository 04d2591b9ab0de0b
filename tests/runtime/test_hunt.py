"""A retro-hunt's process over a stored log: the matches of ``vedette scan``, and its bounds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from bench import traffic
from tests.conftest import hunts_awake
from tests.e2e.agent import vedette
from tests.rawlog.samples import NOW, open_log
from tests.settings import SegmentedLog
from tests.waits import DEADLINE, until
from vedette.archive.archiver import Archiver, Pace
from vedette.archive.index import Index
from vedette.archive.stores import open_store
from vedette.config.settings import ArchiveSettings
from vedette.decode.decoder import Record
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.fleet.hunt import Hunt, packed
from vedette.fleet.huntfolder import Checkpoint, Input, Order
from vedette.model.event import Chunk, LogSource
from vedette.plan.plan import Plan
from vedette.rawlog import read
from vedette.rawlog.segment import segments
from vedette.rules import build
from vedette.runtime.offline.evaluation import evaluate
from vedette.runtime.offline.hunt import Worker
from vedette.runtime.offline.timeline import Timeline
from vedette.system import child


@pytest.fixture(autouse=True)
def prompt(request: pytest.FixtureRequest) -> Iterator[None]:
    """Also where the machine is busy, but for the one test of how they are scheduled."""
    with nullcontext() if request.function is test_it_gives_way_and_ends_with_its_parent else hunts_awake():
        yield


ROOT = Path(__file__).parents[2]
SIGMA = [
    ROOT / "rules" / "sigma" / f"{name}.yml"
    for name in (
        "linux/account_created", "linux/sshd_failed_root_password", "linux/sshd_unknown_user",
        "linux/sshd_password_guessing", "linux/sshd_user_from_many_addresses", "web/path_traversal",
        "web/sql_injection", "web/known_web_shell",
    )
]  # fmt: skip
"""Rules that find something in the traffic."""
SECOND = 1_000_000
LINES = 6_000
"""Of each input."""
INPUTS = {"auth": "syslog", "web": "access", "audit": "auditd"}
SMALL = SegmentedLog(max_bytes=64 << 20, segment_bytes=50_000)
AUDIT = """title: ran from a hidden place
id: 1c1c1c1c-0000-4000-8000-000000000001
level: high
logsource: {product: linux, service: auditd}
detection:
  ran: {type: EXECVE, a1|contains: payload}
  file: {type: PATH, name|startswith: /tmp/hidden}
  condition: ran and file
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Detections, correlations, a statement, and a rule about audit records."""
    rules = build.load([*SIGMA, ROOT / "rules" / "sql" / "linux" / "login_without_logout.sql"])
    build.add(rules, AUDIT)
    made = build.from_rules(rules)
    assert made.correlations
    assert made.statements
    return made


def streams(count: int) -> dict[str, list[bytes]]:
    """By input its lines, attacks among them; the records of an audit event lie far apart."""

    def of(kind: str) -> list[bytes]:
        return list(traffic.lines(7, count, attack_rate=0.02, start=NOW, per_second=100, kind=kind))

    audit = []
    for i in range(count // 100):
        audit.append(b'type=EXECVE msg=audit(%d.5:%d): a0="sh" a1="payload"' % (NOW // SECOND + i, i))
        if i % 3:
            audit.append(b'type=PATH msg=audit(%d.5:%d): name="/tmp/hidden/x"' % (NOW // SECOND + i, i))
        if i >= 5:
            audit.append(b"type=PROCTITLE msg=audit(%d.5:%d): proctitle=6C73" % (NOW // SECOND + i, i - 5))
    return {"auth": of("syslog"), "web": of("access"), "audit": audit}


def store(folder: Path, lines: dict[str, list[bytes]], frames: int = 40) -> None:
    """Each input in so many frames, by turns; the log has many segments."""
    log = open_log(folder, SMALL)
    for i in range(frames):
        for name, codec in INPUTS.items():
            part = lines[name][len(lines[name]) * i // frames : len(lines[name]) * (i + 1) // frames]
            if part:
                log.append(Chunk(name, codec, NOW + (i + 1) * 60 * SECOND, b"".join(one + b"\n" for one in part)))
    log.close()


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    store(folder, streams(LINES))
    assert len(segments(folder)) > 5
    return folder


def order(folder: Path, plan: Plan, raw: Path, *, until: int = 1 << 61, **bounds: Any) -> Path:
    """The folder of a hunt that nobody has begun."""
    folder.mkdir()
    (folder / "plan").write_bytes(packed(Artifact.without_databases(plan).to_bytes()))
    inputs = tuple(Input(name, "UTC", LogSource(), False) for name in INPUTS)
    given = {"cpu": 1.0, "seconds": 600.0, "every": 0.02, **bounds}
    Order(Hunt("h", NOW, until, 20), str(raw), str(folder / "none"), inputs=inputs, **given).save(folder)
    return folder


def start(folder: Path, memory: int = 1 << 30) -> subprocess.Popen[bytes]:
    command = child.command("vedette.runtime.offline.hunt", str(folder), memory=memory)
    with (folder / "stderr").open("ab") as errors:
        return subprocess.Popen(command, stderr=errors)


def stopped(process: subprocess.Popen[bytes]) -> int:
    """Its exit code."""
    return process.wait(DEADLINE)


def report(folder: Path) -> dict[str, Any]:
    found = Checkpoint.load(folder)
    assert found is not None
    return found.report


def hunt(folder: Path, memory: int = 1 << 30) -> dict[str, Any]:
    """To its end."""
    assert stopped(start(folder, memory)) == 0, (folder / "stderr").read_text()
    return report(folder)


def scanned(plan: Plan, raw: Path) -> list[dict[str, Any]]:
    """The rows of ``vedette scan`` over the chunks of a log."""
    engine, timeline, rows = Engine(plan), Timeline(plan), []
    chunks = (frame.chunk for frame in read.frames(raw))
    for found in evaluate(engine, chunks, zone=UTC, silent=True):
        timeline.add(found, "")
        if found.rule.id not in plan.silent:
            rows.append(found.to_row(""))
    return rows + [one.to_row() for one in timeline.correlate()]


def counts(answer: dict[str, Any]) -> dict[str, int]:
    return {one["id"]: one["count"] for one in answer["rules"]}


def test_the_matches_of_scan(tmp_path: Path, plan: Plan, raw: Path) -> None:
    """Detections, correlations, statements and joined audit events: as often as scan finds them; the first of each kind
    with the fields that scan shows."""
    rows = scanned(plan, raw)
    found = hunt(order(tmp_path / "hunt", plan, raw))
    assert found["state"] == "done"
    assert not found["gone"]
    assert not found["damaged"]
    assert not found["failed"]
    assert counts(found) == Counter(row["rule_id"] for row in rows)
    kinds = Counter(row["kind"] for row in rows)
    assert kinds["detection"] > 100
    assert kinds["correlation"] > 3
    assert any(row["rule_title"] == "ran from a hidden place" for row in rows)
    detections = [row for row in rows if row["kind"] == "detection"][:20]
    assert [(row["rule_id"], row["fields"]) for row in found["first"][:20]] == [
        (row["rule_id"], row["fields"]) for row in detections
    ]
    frames = evaluate(Engine(plan), (frame.chunk for frame in read.frames(raw)), zone=UTC, silent=True)
    times = [one.record.event_time for one in frames if one.rule.id not in plan.silent]
    assert [row["event_time"] for row in found["first"][:20]] == times[:20]
    fired = [row for row in found["first"] if row["rule_id"] in {one.id for one in plan.correlations}]
    assert fired
    assert all(min(filter(None, times)) <= row["event_time"] <= max(filter(None, times)) for row in fired)
    assert sum(found["hosts"].values()) == kinds["detection"]
    assert found["events"] == sum(len(frame.chunk) for frame in read.frames(raw))


@pytest.mark.long
def test_the_command_scan_says_the_same(tmp_path: Path, plan: Plan, raw: Path) -> None:
    """``vedette scan`` over the files from which the log came."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "audit.yml").write_text(AUDIT)
    found = counts(hunt(order(tmp_path / "hunt", plan, raw)))
    said = Counter[str]()
    for name, lines in streams(LINES).items():
        file = tmp_path / f"{name}.log"
        file.write_bytes(b"".join(line + b"\n" for line in lines))
        os.utime(file, (NOW // SECOND + 3000, NOW // SECOND + 3000))
        options = [word for path in (*SIGMA, rules) for word in ("--rules", path)]
        done = vedette("scan", *options, "--route", "--format", INPUTS[name], file)
        said.update(row["rule_id"] for row in map(json.loads, done.stdout.splitlines()) if row["kind"] == "detection")
    detections = {rule.id for rule in plan.detections}
    assert said
    assert said == {rule: count for rule, count in found.items() if rule in detections}


def test_what_retention_deletes(tmp_path: Path, plan: Plan, raw: Path) -> None:
    """Events that go before they are looked at are counted; the others are evaluated."""
    log = tmp_path / "raw"
    shutil.copytree(raw, log)
    folder = order(tmp_path / "hunt", plan, log, cpu=0.05)
    process = start(folder)
    until("a checkpoint", lambda: (found := Checkpoint.load(folder)) is not None and found.place is not None)
    process.kill()
    process.wait()
    before = Checkpoint.load(folder)
    assert before is not None
    assert before.place is not None
    every = segments(log)
    ahead = [one for one in every if one.base > before.place[2]]
    gone = sum(len(frame.chunk) for frame in read.frames(log) if ahead[0].base <= frame.offset < ahead[2].base)
    for segment in [*(one for one in every if one.base < ahead[0].base), *ahead[:2]]:
        segment.path.unlink()
    order_file = folder / "order.json"
    order_file.write_bytes(order_file.read_bytes().replace(b'"cpu":0.05', b'"cpu":1.0'))
    found = hunt(folder)
    left = sum(len(frame.chunk) for frame in read.frames(log))
    assert found["state"] == "done"
    assert found["gone"] >= gone > 0
    assert found["events"] == before.report["events"] + left


def test_damage_is_counted(tmp_path: Path, plan: Plan, raw: Path) -> None:
    """A frame that cannot be read is counted by its events, and is not taken for one that retention deleted."""
    log = tmp_path / "raw"
    shutil.copytree(raw, log)
    path = segments(log)[2].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    whole, found = hunt(order(tmp_path / "whole", plan, raw)), hunt(order(tmp_path / "hunt", plan, log))
    assert found["damaged"] > 0
    assert not found["gone"]
    assert found["damaged"] + found["events"] >= whole["events"]


def test_only_the_time_that_was_asked(tmp_path: Path, plan: Plan, raw: Path) -> None:
    """Frames received before ``until``, no others."""
    limit = NOW + 11 * 60 * SECOND
    found = hunt(order(tmp_path / "hunt", plan, raw, until=limit))
    assert found["events"] == sum(len(f.chunk) for f in read.frames(raw) if f.chunk.received_at < limit)
    assert found["oldest"] == NOW + 60 * SECOND
    assert found["reached"] < limit


def test_two_logs(tmp_path: Path, plan: Plan) -> None:
    """A log that was begun again after a loss has offsets and event numbers of its own: both are looked at, and nothing
    counts as deleted."""
    log, lines = tmp_path / "raw", streams(2_000)
    store(tmp_path / "earlier", lines)
    last = segments(tmp_path / "earlier")[-1].path
    log.mkdir()
    (log / last.name).write_bytes(last.read_bytes()[:10])
    store(log, lines)
    for one in segments(tmp_path / "earlier"):
        one.path.rename(log / one.path.name)
    assert len({segment.log_id for segment in segments(log)}) == 2
    found = hunt(order(tmp_path / "hunt", plan, log))
    assert found["events"] == 2 * sum(map(len, lines.values()))
    assert not found["gone"]


HOSTILE = """title: hostile
id: 1c1c1c1c-0000-4000-8000-000000000002
level: low
logsource: {product: linux}
detection:
  s: {message|re: 'x(?=a)(a|aa)+$'}
  condition: s
"""


def test_a_hostile_pattern(tmp_path: Path) -> None:
    """A pattern that takes exponential time is given up after a few events, which the report names."""
    log = open_log(tmp_path / "raw")
    line = b"<13>Nov 21 06:00:00 web1 sshd[7]: " + b"x" + b"a" * 60 + b"!"
    for i in range(30):
        log.append(Chunk("auth", "syslog", NOW + i, (line + b"\n") * 10))
    log.close()
    rules = build.load([])
    build.add(rules, HOSTILE)
    made = build.from_rules(rules)
    assert not made.refused
    found = hunt(order(tmp_path / "hunt", made, tmp_path / "raw"))
    assert found["state"] == "done"
    assert found["events"] == 300
    assert [one["title"] for one in found["undecided"]] == ["hostile"]
    assert found["undecided"][0]["events"] == 300


@pytest.mark.parametrize("waits", [False, True])
def test_an_event_at_which_a_decoder_raises(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """It alone is left out and counted, also one that waits for further records at the end of the log."""
    audit = [line + b' a2="boom"' * (i == 1) for i, line in enumerate(streams(600)["audit"])]
    audit = [line for line in audit if not waits or b"PROCTITLE" not in line]
    store(tmp_path / "raw", {"auth": [], "web": [], "audit": audit}, 1)
    whole = counts(hunt(order(tmp_path / "whole", plan, tmp_path / "raw")))
    real = Record.get

    def raising(record: Record, field: str) -> Any:
        if b"boom" in record.raw:
            raise RecursionError("too deep")
        return real(record, field)

    monkeypatch.setattr(Record, "get", raising)
    monkeypatch.setattr("vedette.runtime.offline.hunt.RESIDENT_BYTES", 1 << 40)  # this process has others' memory
    folder = order(tmp_path / "hunt", plan, tmp_path / "raw")
    worker = Worker(folder)
    worker.run()
    worker._journal._file.close()
    found = report(folder)
    assert (found["state"], found["failed"]) == ("done", 1)
    assert [*counts(found).values()] == [count - 1 for count in whole.values()]


def test_bounds(tmp_path: Path, plan: Plan, raw: Path) -> None:
    """It ends when its time is over, with what it has; with too little memory it fails and leaves nothing behind."""
    found = hunt(order(tmp_path / "slow", plan, raw, cpu=0.02, seconds=3.0))
    assert found["state"] == "failed"
    assert "longer than 3 s" in found["reason"]
    assert found["events"] > 0
    folder = order(tmp_path / "small", plan, raw)
    process = start(folder, memory=64 << 20)
    assert stopped(process) != 0


def test_it_gives_way_and_ends_with_its_parent(tmp_path: Path, plan: Plan, raw: Path) -> None:
    """Scheduled as idle; of a parent that is killed it does not remain."""
    folder = order(tmp_path / "hunt", plan, raw, cpu=0.02)
    command = child.command("vedette.runtime.offline.hunt", str(folder), memory=1 << 30)
    script = f"import subprocess, sys; p = subprocess.Popen({command!r}); print(p.pid, flush=True); p.wait()"
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    until("giving way", lambda: os.sched_getscheduler(pid) == os.SCHED_IDLE)
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))  # else it may get no time beside other tests
    until("work", lambda: (found := Checkpoint.load(folder)) is not None and found.place is not None)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    until("its end", lambda: _ended(pid))
    assert report(folder)["state"] == "running"  # not at the log's end


def test_one_process_a_folder(tmp_path: Path, plan: Plan, raw: Path) -> None:
    """A second process leaves the hunt alone."""
    folder = order(tmp_path / "hunt", plan, raw, cpu=0.02)
    first = start(folder)
    until("work", lambda: Checkpoint.load(folder) is not None)
    assert stopped(start(folder)) != 0
    assert "another process works at this hunt" in (folder / "stderr").read_text()
    first.kill()
    first.wait()


@pytest.mark.long
def test_a_hunt_reads_the_archive(tmp_path: Path, raw: Path, plan: Plan) -> None:
    """What has left the host is looked at in the archive, with the same report; what it does not give is counted."""
    data, mount = tmp_path / "data", tmp_path / "mnt"
    mount.mkdir()
    shutil.copytree(raw, data / "raw")
    settings = ArchiveSettings(str(mount))
    archiver = Archiver(Index(data / "archive", settings, "edge-1"), "edge-1", "", Pace(0, lambda seconds: False))
    archiver.find(open_store(settings))
    for segment in segments(data / "raw")[:-1]:
        archiver.archive(segment, open_store(settings))
        segment.path.unlink()
    whole = hunt(order(tmp_path / "whole", plan, raw))
    archive: Any = "edge-1", {**asdict(settings), "options_file": None}
    read = hunt(order(tmp_path / "archived", plan, data / "raw", archive=archive))
    same = ("events", "bytes", "matches", "rules", "first", "gone", "damaged", "unreachable")
    assert {key: read[key] for key in same} == {key: whole[key] for key in same}
    next((mount / "edge-1").glob("*.seg")).unlink()
    read = hunt(order(tmp_path / "lacking", plan, data / "raw", archive=archive))
    assert read["unreachable"] > 0
    assert read["unreachable"] + read["events"] == whole["events"]
    assert read["gone"] == 0


def _ended(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True
