"""The real agent after two things broke at once, one of them the end of its raw log: what it reads again is no loss.

The template is what a killed agent left that had read 6,000 lines of 60 files, all of them evaluated. Each case loses
the store of a copy in any way, and the end of the raw log. In a half of them the agent is killed while it recovers, or
while it reads again. Afterwards every line is stored and evaluated once, and so says the account.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench import traffic
from tests.e2e.agent import KILLS, Agent, chance, few, not_back, say
from tests.e2e.test_double import SHOWN, STORES
from tests.waits import until
from vedette.rawlog import read
from vedette.rawlog.segment import segments
from vedette.store.store import Store

CASES = max(2, KILLS)
FILES, LINES = 60, 6000
SETTINGS = """
[[input]]
name = "in"
type = "file"
paths = ["{folder}/files/*"]
format = "syslog"
logsource = {{ product = "linux" }}
"""
FIRST = [("no folder", 3, "shown as it was"), ("old copy", 1, "shown as it was"), ("no file", 0, "shown stale")]
"""The cases before the random ones: of the store, segments that go besides the one that is cut, of what was shown."""


def _agent(folder: Path) -> Agent:
    agent = Agent(folder, rules=few(folder / "rules"), segment_bytes=24 << 10)
    agent.configure(SETTINGS.format(folder=folder))
    return agent


def _lines(data: Path) -> Counter[bytes]:
    """The lines that can be read in the raw log."""
    found: Counter[bytes] = Counter()
    for log_id in {segment.log_id for segment in segments(data / "raw")}:
        for frame in read.frames(data / "raw", log_id=log_id, on_gap=lambda gap: None):
            found.update(frame.chunk.data.splitlines())
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files, ``template`` of the data, and ``earlier``, an older store of it."""
    folder = tmp_path_factory.mktemp("again")
    agent = _agent(folder)
    lines = b"".join(traffic.blocks(5, LINES, attack_rate=0.01)).splitlines()[:LINES]
    lines = [line + b" %d" % number for number, line in enumerate(lines)]
    (folder / "files").mkdir()
    agent.up()
    try:
        for number in range(FILES):
            part = lines[number::FILES]
            (folder / "files" / str(number)).write_bytes(b"".join(line + b"\n" for line in part))
            if number == FILES // 2:
                agent.settled(FILES // 2 * len(part))
                (folder / "earlier" / "store").mkdir(parents=True)
                with Store.open(agent.data / "store", readonly=True) as store:
                    store._env._env.copy(str(folder / "earlier" / "store"))
                shutil.copy(agent.data / "shown", folder / "earlier" / "shown")
        agent.settled(LINES)
    finally:
        agent.kill()
    (agent.data / "control.sock").unlink()
    shutil.copytree(agent.data, folder / "template")
    return folder


def _cut(data: Path, gone: int, rng: Random) -> None:
    """The last segments go, and the one before ends anywhere."""
    parts = segments(data / "raw")
    for segment in parts[len(parts) - gone :]:
        segment.path.unlink()
    last = parts[-1 - gone].path
    os.truncate(last, rng.randrange(last.stat().st_size))


def _lives(agent: Agent, rng: Random) -> list[dict[str, Any]]:
    """Start, for a half of the cases after up to two kills; what was shown meanwhile, life by life."""
    seen = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        agent.start()
        if rng.random() < 0.5:
            time.sleep(rng.uniform(0.0, 1.5))  # anywhere in the start
        else:
            agent.ready()
            seen.append(agent.status())
        agent.kill()
    agent.up()
    return seen


@pytest.mark.long
def test_what_is_read_again_is_not_lost(template: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 6,000 lines that are stored once none counts as lost, received twice or not evaluated; over a second kill
    nothing goes back."""
    rng = chance()
    again = kills = 0
    for number in range(CASES):
        names = rng.choice(sorted(STORES)), rng.randrange(6), rng.choice(sorted(SHOWN))
        store, gone, shown = FIRST[number] if number < len(FIRST) else names
        if store == "old copy":  # nothing else says that it is one
            shown = "shown as it was"
        what = f"case {number}: {store}, {gone} segments gone, {shown}"
        agent = _agent(template)
        shutil.rmtree(agent.data)
        agent.log.unlink(missing_ok=True)
        shutil.copytree(template / "template", agent.data)
        STORES[store](agent.data, rng)
        SHOWN[shown](agent.data, rng)
        _cut(agent.data, gone, rng)
        missing = LINES - _lines(agent.data).total()
        try:
            seen = _lives(agent, rng)
            kills += len(seen)
            rebuilt = agent.said("store_rebuilt", all=True)
            if rebuilt:
                until(f"all to be stored: {what}", lambda agent=agent: _lines(agent.data).total() >= LINES)
            status = agent.settled()
            assert agent.stop() == 0, what
        finally:
            agent.kill()
        stored, counts = _lines(agent.data), status["inputs"]["in"]
        if rebuilt:
            again += missing
            assert set(stored.values()) == {1}, what
        assert stored.total() == (LINES if rebuilt else LINES - missing), what
        assert counts["received"] == counts["stored"] == counts["judged"] == LINES, (what, missing, counts)
        assert status["inputs"].keys() == {"in"}, (what, missing, status["inputs"])
        assert counts["lost"] == counts["dropped"] == {}, (what, missing, counts)
        for before, after in pairwise([*seen, status]):
            not_back(before, after)
    say(capsys, f"read again: {CASES} cases, {kills} killed, {again} lines stored again, none of them counted as lost")
