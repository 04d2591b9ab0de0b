"""No input, sink or strict decoder of a plugin kills its agent, or its process, for ever: it goes into quarantine, and
the first line of the status says so."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bench.send import tcp
from tests.e2e.agent import Agent, vedette
from tests.e2e.test_deaths import GATE, lines
from tests.e2e.test_rules import mark, rule
from tests.e2e.test_strict import configured, evaluated, running
from tests.waits import pauses, until
from vedette.runtime.agent.deaths import AFTER_BESIDE
from vedette.runtime.strict.supervisor import CONDEMNED_AFTER

pytestmark = pytest.mark.peer

CODE = """
import os, signal, sys, time

def crash(where):
    if where == {where!r} and ({anywhere} or any("strict.worker" in word for word in sys.orig_argv)):
        {how}

crash("import")

class Input:
    def __init__(self, options):
        crash("constructor")

    def run(self, feed):
        feed.put([b"<13>Nov 20 10:00:00 web1 app: by a plugin"])
        crash("run")
        while not feed.wait(60):
            pass

class Sink:
    def __init__(self, options):
        crash("constructor")

    def send(self, alerts):
        crash("send")

    def close(self):
        pass

class Decoder:
    fields = {{"gate": "verbatim"}}

    def read(self, message):
        if "bad" in message:
            crash("read")
        return {{"gate": message.split()[0]}}
"""
POINTS = "[vedette.inputs]\ndeadly = deadly:Input\n[vedette.sinks]\ndeadly = deadly:Sink\n"
POINTS += "[vedette.decoders]\ndeadly = deadly:Decoder\n"
SINK = '[[sink]]\ntype = "deadly"\nname = "tickets"\n'
INPUT = '[[input]]\ntype = "deadly"\nname = "till"\n'


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, how: str, *, anywhere: bool = True) -> None:
    """The package ``deadly``, whose code ends the process at ``where`` by ``how``."""
    info = folder / "deadly-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (folder / "deadly.py").write_text(CODE.format(where=where, how=how, anywhere=anywhere))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


def lives(agent: Agent, used: str) -> tuple[dict[str, Any], int]:
    """Start it after each death until ``used`` is in quarantine; the status then, and how often it died."""
    deaths = 0
    for pause in pauses():
        if not agent.running():
            deaths += 1
            agent.start()
        elif agent.said("agent_started"):
            with suppress(OSError, ValueError):  # it has died meanwhile
                status = agent.status()
                if any(row["used"] == used and row["quarantined"] for row in status["plugins"]):
                    return status, deaths
        time.sleep(pause)
    raise AssertionError(f"nothing is in quarantine after {deaths} deaths:\n{agent.text()[-4000:]}")


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "where", "how"),
    [
        ("sink", "send", "os.abort()"),
        ("input", "run", "os.abort()"),
        ("input", "constructor", "os.kill(os.getpid(), signal.SIGKILL)"),
        ("input", "import", "os._exit(3)"),
        ("sink", "constructor", "os._exit(3)"),
        ("sink", "import", "os.abort()"),
    ],
)
def test_a_plugin_that_kills_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, where: str, how: str
) -> None:
    """After some deaths in a row, with events and alerts between, the plugin is left out, in the next life, too; all
    else goes on, and a release has it run again."""
    installed(tmp_path / "site", monkeypatch, where, how)
    table, used = (SINK, "sink tickets") if kind == "sink" else (INPUT, "input till")
    agent = Agent(tmp_path / "a", rules=rule(tmp_path / "rules", "site", 3).parent)
    agent.configure(
        f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n{table}'
        '[plugins]\nallow = ["deadly"]\n'
    )
    agent.start()
    try:
        if kind == "sink":
            agent.ready()
            tcp(("127.0.0.1", agent.port), lines("one"))
            until("the first death", lambda: not agent.running())
        status, deaths = lives(agent, used)
        assert deaths == AFTER_BESIDE
        (plugin,) = status["plugins"]
        assert plugin["error"] == f"the agent died {AFTER_BESIDE} times in a row while it was at work"
        shown = vedette("status", "-c", agent.config, code=1).stdout.splitlines()[0]
        assert shown.startswith("NOT OK: ")
        assert used in shown
        died = [row["deaths"] for row in agent.said("agent_died", all=True) if row["stage"] == "beside"]
        assert died == [*range(1, AFTER_BESIDE + 1)]
        tcp(("127.0.0.1", agent.port), lines("two"))
        until("the other input", lambda: agent.status()["alerts"]["receipted"] == (2 if kind == "sink" else 1))
        assert agent.stop() == 0
        (plugin,) = agent.up().status()["plugins"]
        assert plugin["quarantined"]
        agent.signal(signal.SIGHUP)
        until("the release", lambda: agent.said("quarantine_released"))
        assert agent.stop() == 0
        agent.start()
        until("it runs again, and dies", lambda: not agent.running())
    finally:
        agent.kill()


@pytest.mark.long
def test_deaths_of_another_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that is at work while the agent is killed from outside goes on, where a life between ends by a stop."""
    installed(tmp_path / "site", monkeypatch, "nowhere", "pass")
    agent = Agent(tmp_path / "a", rules=rule(tmp_path / "rules", "site", 3).parent)
    agent.configure(f'{INPUT}[plugins]\nallow = ["deadly"]\n')
    try:
        for count in range(1, 2 * AFTER_BESIDE):
            agent.up()
            until("its event", lambda count=count: agent.input("till")["judged"] >= count)
            if count % AFTER_BESIDE:
                agent.kill()
            else:
                assert agent.stop() == 0
        (plugin,) = agent.up().status()["plugins"]
        assert not plugin["quarantined"]
    finally:
        agent.kill()


@pytest.mark.long
@pytest.mark.parametrize(("where", "how"), [("read", "os.abort()"), ("import", "os.kill(os.getpid(), signal.SIGKILL)")])
def test_a_decoder_that_kills_a_strict_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, how: str
) -> None:
    """A decoder plugin of which only processes of a strict set die: the set goes on without it, on every event, and no
    rule is blamed."""
    installed(tmp_path / "packages", monkeypatch, where, how, anywhere=False)
    path = rule(tmp_path / "set", "site", 3)
    agent = Agent(tmp_path / "a", rules=rule(tmp_path / "own", "own", 1).parent)
    path.write_text(path.read_text() + GATE)
    configured(
        agent, path.parent, more='format = "deadly"\n',
        last='[plugins]\nallow = ["deadly"]\n',
    )  # fmt: skip
    agent.up()
    try:
        tcp(("127.0.0.1", agent.port), lines("bad", "one", "two"))
        mark(agent, "own")
        until("the set's alerts", lambda: [row["rule_title"] for row in agent.alerts()].count("Marker site") == 3)
        row = running(agent)
        assert (row["deaths"], row["quarantined"]) == (CONDEMNED_AFTER + (where == "read"), [])
        assert row["without_plugins"] == ["deadly:deadly 1.0"]
        problem = "rule set site does without the plugin deadly:deadly 1.0, which killed its process again and again"
        assert problem in agent.status()["problems"]
        assert evaluated(agent)["judged"] == 4
        assert agent.running()
    finally:
        agent.kill()
