"""Named points at which an agent dies: a call that the process makes, at which ``faults.c`` ends it with SIGKILL before
or after the kernel did it. The product has no hook for any of them."""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.e2e.agent import Agent
from tests.e2e.faults import Faults

PATIENCE = 15.0
"""Seconds for a point to be reached; then the kill falls where the agent is, and counts as a random one."""
RANDOM = "at random"


class Call(NamedTuple):
    """The ``nth`` (1 to ``most``) such call on a path with ``part`` in it."""

    call: str
    part: str
    most: int = 1
    change: bool = False
    """Reached only when rules change."""


STORING: dict[str, Call] = {
    "before raw append": Call("before-write", "/data/raw/", 40),
    "after raw append": Call("after-write", "/data/raw/", 40),
    "before commit": Call("before-commit", "data.mdb", 5),
    "after commit": Call("after-commit", "data.mdb", 5),
}
ROTATION: dict[str, Call] = {
    "before rotation": Call("before-open", "/data/raw/", 3),
    "in rotation, segment made": Call("after-open", "/data/raw/", 3),
}
SWITCH: dict[str, Call] = {
    "plan switch, plan to be read": Call("before-read", ".vplan", change=True),
    "plan switch, plan read": Call("after-read", ".vplan", change=True),
    "plan switch, done and to be told": Call("before-say", "rules_loaded", change=True),
}
INSTALL: dict[str, Call] = {
    "bundle install, before a step": Call("before-rename", "/bundles/", 3, change=True),
    "bundle install, after a step": Call("after-rename", "/bundles/", 3, change=True),
    "bundle install, while it is written": Call("before-sync", "/bundles/", 2, change=True),
}


def fell(agent: Agent) -> bool:
    """Whether the agent dies within PATIENCE; if it does not, it is killed. It died by SIGKILL, and of nothing else."""
    deadline = time.monotonic() + PATIENCE
    while agent.running() and time.monotonic() < deadline:
        time.sleep(0.01)
    fired = not agent.running()
    agent.kill()
    assert agent.process is not None
    assert agent.process.returncode == -9, agent.text()[-4000:]
    return fired


def at_call(faults: Faults, point: Call, nth: int) -> None:
    """The agent dies at the ``nth`` such call from now on."""
    faults.set(f"{point.call} {nth} {point.part}")
