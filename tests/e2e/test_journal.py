"""systemd's journal into the real agent: what journald took is in the raw log, once, whatever happens."""

from __future__ import annotations

import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.agent import KILLS, Agent, chance, reborn, say
from tests.inputs.journald import Journald, journald
from tests.waits import until
from vedette.decode.decoder import record

ENTRIES = 6_000
TITLE = "Account with User ID 0 Created"


@pytest.mark.long
@pytest.mark.peer
def test_killed_in_the_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The agent is killed at random while entries come, journald is killed too, and once the host has booted meanwhile:
    every entry is stored once, in order, and a rule that one of them matches makes one alert of it."""
    rng = chance()
    with journald() as real, ThreadPoolExecutor(1) as writer:
        agent = Agent(tmp_path / "a")
        # It sees that journal as the host's own, and the boot of that host.
        agent.program = ("nsenter", "-m", "-t", str(real.pid), sys.executable, "-m", "vedette")
        agent.configure('[[input]]\nname = "in"\ntype = "journal"\n')
        agent.up()
        try:
            for i in range(KILLS + 1):
                work = writer.submit(_log, real, i)
                if i == KILLS:
                    break
                time.sleep(rng.uniform(0.0, 1.0))
                agent.kill()
                work.result()
                if rng.random() < 0.5 or i == 0:
                    real.kill()
                    real.start(boot=str(uuid.uuid4()) if i == 0 else "")
                    agent.program = ("nsenter", "-m", "-t", str(real.pid), *agent.program[4:])
                reborn(agent, rng)
                agent.ready()
            work.result()
            real.log("new user: name=x, UID=0, GID=0, home=/root, shell=/bin/sh", identifier="useradd")
            real.log("last")
            until("journald", lambda: real.messages()[-1] == "last")
            written = real.messages()  # killed, journald has lost what it had not read yet
            assert len(written) > ENTRIES // 2
            until("the alert", lambda: any(alert["rule_title"] == TITLE for alert in agent.alerts()))
            agent.settled(len(written))
            found = [record(event.raw, "syslog") for event in agent.stored()]
        finally:
            agent.kill()
    assert [one.get("message") for one in found if one.get("program") == "test"] == written
    assert not agent.said("journal_gap", all=True)
    assert sum(alert["rule_title"] == TITLE for alert in agent.alerts()) == 1
    say(capsys, f"journal, {KILLS} kills, a boot: {len(written)} entries stored once, in order")


def _log(real: Journald, part: int) -> None:
    """A part of the entries, within a second."""
    size = ENTRIES // (KILLS + 1) + 1
    for i in range(size):
        real.log(f"entry {part}.{i}" if i % 7 else f"entry {part}.{i}\n  of two lines", PRIORITY="5")
        if i % 50 == 0:
            time.sleep(40 / size)
