"""What an owner's function or pattern does at an event, it does in each life of the agent again: the agent lives on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.agent import Agent
from tests.e2e.test_correlation import line
from tests.e2e.test_functions import ALLOW, door_of, given
from tests.waits import until

STAB = """
import ctypes, os, resource, signal

@udf(result_type=DataTypes.INT())
def hostile(door):
    libc, agent = ctypes.CDLL(None), os.getppid()
    for pipe in (3, 4):
        libc.fcntl(pipe, 8, agent), libc.fcntl(pipe, 10, int(signal.SIGKILL))
        libc.fcntl(pipe, 4, libc.fcntl(pipe, 3) | 0o20000)
    for deed in (
        lambda: resource.prlimit(agent, resource.RLIMIT_NOFILE, (10, 10)),
        lambda: os.setpriority(os.PRIO_PROCESS, agent, 19),
        lambda: os.sched_setaffinity(agent, {0}),
        lambda: os.kill(agent, signal.SIGKILL),
    ):
        try:
            deed()
        except OSError:
            pass
    return door
"""


@pytest.mark.long
def test_a_function_that_stabs_at_its_agent(tmp_path: Path) -> None:
    """By the pipes that they share, by limits and by signals: in three lives, two of them ended by SIGKILL from
    outside, every event has its rows, and the agent has the limits and the priority that it had."""
    statements = {
        "Hostile": "SELECT src, hostile(door) AS door, ts FROM door WHERE ev = 'fail'",
        "Friendly": "SELECT src, last(src) AS host, ts FROM door WHERE ev = 'fail'",
    }
    door = door_of(tmp_path, ALLOW, statements)
    with (door.rules / "functions" / "own.py").open("a") as file:
        file.write(STAB)
    agent = door.agent.up()
    try:
        for life in range(3):
            door.add(*(line(100 * life + second, "fail", f"10.0.{life}.{second}", second % 4) for second in range(20)))
            wanted = 2 * 20 * (life + 1)
            until("rows of both statements", lambda wanted=wanted: given(door).total() >= wanted)
            assert agent.alive()
            limits = Path(f"/proc/{agent.process.pid}/limits").read_text()
            assert "Max open files            10 " not in limits
            if life < 2:
                agent.kill()
                agent.up()
        status = agent.status()
    finally:
        agent.kill()
    assert set(given(door).values()) == {1}
    assert status["rules"]["quarantined"] == []
    assert "seccomp" in status["statement_state"]["functions"]["isolation"]


@pytest.mark.long
def test_a_pattern_that_backtracks(tmp_path: Path) -> None:
    """Lines at which a pattern of ``multiline`` takes for ever, in each life: all are stored once, each an event."""
    path = tmp_path / "a.log"
    lines = ["a" * 60 + f"cd{number}" for number in range(90)]
    agent = Agent(
        tmp_path / "a",
        f'[[input]]\nname = "in"\ntype = "file"\npaths = ["{path}"]\n'
        "multiline = { start = '^(a|aa|b)*(?<!x)c(?!d)', timeout = \"100ms\" }\n",
        rules=None,
    )
    path.touch()
    agent.up()
    try:
        for life in range(3):
            with path.open("a") as file:
                file.writelines(f"{one}\n" for one in lines[30 * life : 30 * (life + 1)])
            until("the lines", lambda life=life: agent.input()["stored"] >= 30 * (life + 1))
            agent.kill()
            if life < 2:
                agent.up()
        stored = [one.raw.decode() for one in agent.stored()]
    finally:
        agent.kill()
    assert [one.rstrip("\n") for one in stored] == lines
