"""Syslog by RELP from a real rsyslogd into the real agent, which is killed and started again."""

from __future__ import annotations

import glob
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.e2e.agent import KILLS, Agent, chance, say
from tests.inputs.intake import rsyslogd
from tests.waits import DEADLINE, until
from vedette.model.event import Flag
from vedette.rawlog import read

OMRELP = glob.glob("/usr/lib*/rsyslog/omrelp.so") + glob.glob("/usr/lib*/*/rsyslog/omrelp.so")
ROUNDS = KILLS
BATCH = 1000
"""Lines written at a time; a kill falls anywhere in them."""
RELP = '[[input]]\nname = "in"\ntype = "relp"\n'
CLEAR = 'tcp = "127.0.0.1:{port}"\n'
TLS = 'tls = {{ address = "127.0.0.1:{port}", cert = "{cert}", key = "{key}", client_ca = "{ca}" }}\n'
RULE = """title: Line
id: 0b0dbd0a-5a3e-4d7c-8f43-0a5ed6d5a001
logsource: {product: linux}
detection:
    end: [relp 00 line]
    condition: end
"""


def _number(raw: bytes) -> int:
    return int(raw.rpartition(b" ")[2])


@pytest.mark.peer
@pytest.mark.long
@pytest.mark.skipif(not OMRELP, reason="rsyslog's omrelp is missing: apt-get install rsyslog-relp")
@pytest.mark.parametrize("secured", [False, True], ids=["clear", "tls"])
def test_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str], secured: bool) -> None:
    """Killed while rsyslog sends, in the clear and by TLS with certificates of both sides: every line is in the raw log
    once, and those that came again are counted as duplicates; what only may have come again would be flagged. Received
    = stored + duplicates, over all lives."""
    rng = chance()
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "line.yml").write_text(RULE)
    agent = Agent(tmp_path / "a", rules=rules)
    listener, more = CLEAR.format(port=agent.port), ""
    if secured:
        authority = Authority(tmp_path)
        cert, key = authority.issue("agent")
        listener = TLS.format(port=agent.port, cert=cert, key=key, ca=authority.ca)
        cert, key = authority.issue("sender")
        more = (
            f' tls="on" tls.caCert="{authority.ca}" tls.myCert="{cert}" tls.myPrivKey="{key}" tls.authMode="name"'
            ' tls.permittedPeer="agent"'
        )
    agent.configure(RELP + listener)
    agent.up()
    (tmp_path / "r").mkdir()
    action = (
        f'action(type="omrelp" target="127.0.0.1" port="{agent.port}" action.resumeRetryCount="-1"'
        f' action.resumeInterval="1" queue.type="LinkedList" queue.size="1000000"{more})'
    )
    written = 0
    try:
        with rsyslogd(tmp_path / "r", action, "omrelp") as log:

            def write() -> None:
                nonlocal written
                lines = "".join(f"relp {i % 100:02} line {i}\n" for i in range(written, written + BATCH))
                written += BATCH
                command = ["logger", "-u", str(log), "-t", "relp"]
                subprocess.run(command, input=lines, text=True, check=True, timeout=DEADLINE)

            for _ in range(ROUNDS):
                before = agent.input()["stored"]
                write()
                until("lines", lambda before=before: agent.input()["stored"] > before)
                time.sleep(rng.uniform(0.0, 0.4))
                agent.kill()
                write()
                agent.up()
            write()
            until("all lines", lambda: len({_number(event.raw) for event in agent.stored()}) == written)
        status = agent.settled()
    finally:
        agent.kill()
    stored = Counter(_number(event.raw) for event in agent.stored())
    assert sorted(stored) == list(range(written))
    flagged = Counter(
        _number(frame.chunk.data[start:end])
        for frame in read.frames(agent.data / "raw", 0)
        for start, end in frame.chunk.spans()
        if frame.chunk.flags(start) & Flag.DUP
    )
    assert stored - flagged == Counter(range(written))  # a line that is stored again says so
    counts = status["inputs"]["in"]
    assert counts["received"] == counts["stored"] + sum(counts["dropped"].values())
    assert set(counts["dropped"]) <= {"duplicate"}
    assert len(agent.alerts()) == sum(times for number, times in stored.items() if number % 100 == 0)
    say(
        capsys,
        f"relp{' over TLS' if secured else ''}, {ROUNDS} kills: {written} lines, none missing;"
        f" {counts['dropped'].get('duplicate', 0)} came again and were left out, {flagged.total()} stored and flagged",
    )
