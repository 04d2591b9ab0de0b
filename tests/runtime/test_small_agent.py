"""What an agent with one syslog input, Sigma rules and the MQTT uplink loads: it pays for nothing it does not use."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from bench.send import tcp
from tests.broker import own_port
from tests.e2e.agent import Agent
from tests.e2e.test_rules import rule
from tests.waits import until

MOST_MODULES, MOST_LINES = 170, 29_650
PROGRAM = """
import atexit, json, sys

def count():
    files = {name: module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "vedette"}
    lines = {name: len(open(path).read().splitlines()) for name, path in files.items() if path.endswith(".py")}
    open(report, "w").write(json.dumps(lines))

report = sys.argv.pop(1)
atexit.register(count)
from vedette.cli.main import main
main(prog_name="vedette")
"""
"""The command line, which reports at its end the modules that it has loaded and how many lines each has."""
NOT_ASKED = ("archive", "fleet", "kafka.client", "lookup.table", "region", "response.decide", "stream.network", "udf")
"""Rooms and modules that this configuration does not ask for."""


def loaded(folder: Path) -> dict[str, int]:
    """Run an agent until an event has made an alert; its modules of Vedette and the lines of each."""
    agent = Agent(folder / "agent", rules=rule(folder / "rules", "small", 1).parent)
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n'
        f'[broker]\nurl = "mqtt://127.0.0.1:{own_port()}"\n[uplink]\ntype = "mqtt"\n'
    )
    report = folder / "loaded.json"
    agent.program = (sys.executable, "-c", PROGRAM, str(report))
    try:
        agent.up()
        tcp(("127.0.0.1", agent.port), b"<13>Nov 20 10:00:00 web1 app: marker-small\n")
        until("an alert", lambda: agent.alive() and agent.status()["alerts"]["made"])
        assert agent.stop() == 0
    finally:
        agent.kill()
    lines: dict[str, int] = json.loads(report.read_text())
    return lines


def test_a_small_agent_loads_little(tmp_path: Path) -> None:
    """At most so many modules and lines, and none of a room that nothing asks for; what is over is listed."""
    lines = loaded(tmp_path)
    by_room = Counter[str]()
    for name, count in lines.items():
        by_room[".".join(name.split(".")[1:2])] += count
    sizes = f"{len(lines)} modules, {sum(lines.values())} lines: {dict(by_room.most_common())}"
    rooms = tuple(f"vedette.{room}." for room in NOT_ASKED)
    assert not [name for name in lines if f"{name}.".startswith(rooms)], sizes
    assert len(lines) <= MOST_MODULES, f"{sizes}\n{sorted(lines)}"
    assert sum(lines.values()) <= MOST_LINES, f"{sizes}\n{sorted(lines.items(), key=lambda row: -row[1])}"
