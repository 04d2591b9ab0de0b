"""The kernel's audit into the real agent: the starter rules see what is run on this very host."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.e2e.agent import RULES, Agent
from tests.inputs.auditing import auditing
from tests.waits import until

TITLE = "Program Run from a Folder That Everybody May Write"


@pytest.mark.long
@pytest.mark.peer
def test_a_program_in_tmp(tmp_path: Path) -> None:
    """A program run from /tmp is one alert, also after a kill; what was run while the agent was dead is counted."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        program = Path(folder) / "prog"
        program.write_bytes(Path("/bin/true").read_bytes())
        program.chmod(0o755)
        rule = f"-a always,exit -F arch=b64 -S execve -F path={program} -k vedette-test"
        rules = tmp_path / "rules"
        rules.mkdir()
        shutil.copy(RULES / "linux" / "auditd_program_in_writable_folder.yml", rules)
        agent = Agent(tmp_path / "a", rules=rules)
        agent.configure('[[input]]\nname = "in"\ntype = "audit"\n')

        def alerts() -> int:
            return sum(alert["rule_title"] == TITLE for alert in agent.alerts())

        with auditing(rule):
            agent.up()
            try:
                until("the socket", lambda: agent.said("audit_opened", all=True))
                subprocess.run([program], check=True)
                until("the alert", lambda: alerts() == 1)
                agent.kill()
                for _ in range(5):
                    subprocess.run([program], check=True)
                agent.up()
                until("the socket", lambda: len(agent.said("audit_opened", all=True)) == 2)
                subprocess.run([program], check=True)
                until("the alert", lambda: alerts() == 2)
                missed = agent.input()["dropped"]["missed"]
                assert 3 <= missed <= 5
            finally:
                agent.kill()
