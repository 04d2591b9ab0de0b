"""``vedette check`` of inputs, and ``vedette status``: what they say first, and with which exit code."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.test_main import RULE, SYSLOG, WRITTEN_OUT, config, ended, vedette
from vedette.plan.plan import Plan
from vedette.runtime.agent.control import Control
from vedette.state.state import State


@pytest.fixture
def paths(tmp_path: Path) -> str:
    """Settings of rules that run."""
    (tmp_path / "one.yml").write_text(RULE)
    return f'[rules]\npaths = ["{tmp_path}/one.yml"]\n'


def test_check_looks_at_what_inputs_read(tmp_path: Path, paths: str) -> None:
    """A file that is not there yet is named, and no mistake; a folder in its place, the agent's own and a certificate
    that is missing are."""
    absent = tmp_path / "none" / "*.log"
    file = '[[input]]\ntype = "file"\nname = "f"\npaths = ["{}"]\n'
    done = ended(vedette("check", "-c", config(tmp_path, file.format(absent) + paths)), 0)
    assert f"input f: waiting: {absent}: no file matches yet" in done.stderr
    done = ended(vedette("check", "-c", config(tmp_path, file.format(tmp_path) + paths)), 1)
    assert f"input f: failing: {tmp_path}: it is not a regular file" in done.stderr
    own = config(tmp_path, "")
    done = ended(vedette("check", "-c", config(tmp_path, file.format(own) + paths)), 1)
    assert f"input f: failing: {own}: it is the agent's own" in done.stderr
    tls = f'tls = {{ address = "127.0.0.1:0", cert = "{tmp_path}/c.pem", key = "{tmp_path}/k.pem" }}\n'
    done = ended(vedette("check", "-c", config(tmp_path, SYSLOG + tls + paths)), 1)
    assert f"input s: failing: {tmp_path}/c.pem: No such file or directory" in done.stderr


def test_check_looks_at_where_alerts_are_written(tmp_path: Path, paths: str) -> None:
    """A folder that can be made is none of its mistakes; a file in its place is."""
    (tmp_path / "landing").touch()
    uplink = '[uplink]\npath = "{}"\n'
    ended(vedette("check", "-c", config(tmp_path, SYSLOG + paths + uplink.format(tmp_path / "new" / "landing"))), 0)
    done = ended(vedette("check", "-c", config(tmp_path, SYSLOG + paths + uplink.format(tmp_path / "landing"))), 1)
    assert f"uplink: {tmp_path}/landing is no folder: alerts would wait in the outbox" in done.stderr


def test_check_refuses_alerts_that_come_back(tmp_path: Path, paths: str) -> None:
    """A sink that sends to the agent's own input is a mistake, for ``run`` as well."""
    own = '[[input]]\ntype = "syslog"\nname = "in"\nudp = "0.0.0.0:5514"\n'
    sink = '[[sink]]\ntype = "syslog"\nname = "out"\naddress = "localhost:5514"\ntransport = "udp"\n'
    for command in ("check", "run"):
        done = ended(vedette(command, "-c", config(tmp_path, own + sink + paths)), 2)
        assert "sink[0].address: udp://localhost:5514 is where input in takes in" in done.stderr


def test_check_without_journalctl(tmp_path: Path, paths: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said with what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    path = config(tmp_path, f'[[input]]\ntype = "journal"\nname = "j"\n{paths}')
    assert "input j: failing: there is no journalctl" in ended(vedette("check", "-c", path), 1).stderr


STATUS = {
    "agent_id": "a1", "fleet": "f", "site": "s", "version": "0.1", "plan_digest": "0" * 64, "identity_broken": [],
    "problems": ["Bad \x1b[2J\n\u202e"], "started_at": 1_795_000_000_000_000, "last_event": None, "last_alert": None,
    "input_states": [{"name": "in", "state": "failing", "reason": "Bad \x1b[2J\n\u202e"},
                     {"name": "web", "state": "waiting", "reason": "no file matches yet"}],
    "inputs": {"in": {"received": 1, "stored": 1, "judged": 1, "bytes_in": 9, "cut": 0, "dropped": {}, "lost": {}}},
    "totals": {}, "backlog": {}, "lag_events": 0, "lag_seconds": 0.0,
    "config": {"error": "Bad \x1b[2J\n\u202e", "needs_restart": ["Bad \x1b[2J\n\u202e"]},
    "alerts": {"made": 0, "receipted": 0, "in_outbox": 0, "lost": 0},
    "lookups": {"in_use": [], "incoming": [], "refused": []},
    "rulesets": [],
    "rules": {"origin": "rules", "formats": [], "running": 1, "correlations": 0, "statements": 0, "always_candidates":
              0, "error": "Bad \x1b[2J\n\u202e", "waiting": {}, "undecided": {}, "quarantined": [],
              "dead": ["Bad \x1b[2J\n\u202e"], "dead_count": 1},
    "correlation_state": {**State(Plan((), (), (), ())).status(), "started_empty": ["Bad \x1b[2J\n\u202e"]},
    "statement_state": {},
    "raw_log": {"bytes": 1, "max_bytes": 2, "full": False, "damaged": 0},
    "cache": {"failure": "", "on": False}, "kernel": {"why_not": ""}, "budgets": {},
    "disk": {"failing": {}, "store_rebuilt": None},
    "uplink": {"type": "mqtt", "reason": "Bad \x1b[2J\n\u202e"},
    "sinks": [{"name": "s", "type": "webhook", "to": "x", "waiting": 1, "delivered": 2, "refused": 3, "dropped": 4,
               "failing": True, "error": "Bad \x1b[2J\n\u202e"}],
    "row_sinks": [{"name": "s", "type": "webhook", "to": "x", "made": 10, "waiting": 1, "waiting_bytes": 5,
                   "max_waiting": 9, "delivered": 2, "refused": 3, "dropped": 4, "failing": True,
                   "error": "Bad \x1b[2J\n\u202e"}],
    "plugins": [{"plugin": "a:b", "kind": "sinks", "used": "sink s", "faults": 1, "quarantined": True,
                 "error": "Bad \x1b[2J\n\u202e"}],
}  # fmt: skip


def statuses(folder: Path, status: object) -> tuple[Result, Result]:
    """What the command makes of the answer ``status``, for people and as JSON."""

    async def answer() -> object:
        return status

    async def main() -> tuple[Result, Result]:
        served = Control(folder / "control.sock", {"status": answer})
        await served.start()
        try:
            plain = await asyncio.to_thread(vedette, "status", "--data-dir", folder)
            return plain, await asyncio.to_thread(vedette, "status", "--data-dir", folder, "--json")
        finally:
            await served.stop()

    return asyncio.run(main())


def test_status_of_another_release(tmp_path: Path) -> None:
    """After an upgrade the agent of the release before runs until its restart: said so, without a traceback."""
    before = {name: value for name, value in STATUS.items() if name != "correlation_state"}
    plain, as_json = statuses(tmp_path, before)
    assert "the running agent is of another release, without 'correlation_state'" in ended(plain, 2).stderr
    assert json.loads(ended(as_json, 1).stdout) == before
    plain, as_json = statuses(tmp_path, {name: value for name, value in STATUS.items() if name != "problems"})
    assert "the running agent is of another release, without 'problems'" in ended(plain, 2).stderr
    ended(as_json, 1)


def test_status_writes_out_what_acts_on_a_terminal(tmp_path: Path) -> None:
    """For people each thing stays on its line; ``--json`` gives the same values, escaped."""
    plain, as_json = statuses(tmp_path, STATUS)
    assert ended(plain, 1).output.count(WRITTEN_OUT) == 11
    assert json.loads(ended(as_json, 1).output) == STATUS
    assert "\u202e" not in as_json.output


def test_status_begins_with_what_counts(tmp_path: Path) -> None:
    """OK or NOT OK with the reasons, since when it is up, the last event and alert; a row an input, with what it waits
    for or why it fails. The exit code is that of the first line."""
    plain, as_json = statuses(tmp_path, {**STATUS, "problems": ["input in: closed", "sink s: away"]})
    lines = ended(plain, 1).stdout.splitlines()
    assert lines[0] == "NOT OK: input in: closed; sink s: away"
    assert lines[1] == "up       since 2026-11-18T11:06:40Z; last event none since then, last alert none"
    rows = {line.split()[0]: (line, after) for line, after in pairwise(lines)}
    assert rows["in"][0].split()[1:] == ["1", "1", "1", "0", "0"]
    assert rows["in"][1] == f"         FAILING: {WRITTEN_OUT}"
    assert rows["web"] == (f"{'web':<16}{0:>12}{0:>12}{0:>12}{0:>9}  0", "         waiting: no file matches yet")
    times = {"last_event": 1_795_000_001_000_000, "last_alert": 1_795_000_002_000_000}
    plain, as_json = statuses(tmp_path, {**STATUS, **times, "problems": []})
    lines = ended(plain, 0).stdout.splitlines()
    assert lines[0] == "OK"
    assert lines[1].endswith("last event 2026-11-18T11:06:41Z, last alert 2026-11-18T11:06:42Z")
    ended(as_json, 0)


def test_status_of_an_agent_that_does_not_run(tmp_path: Path) -> None:
    """That is not OK, and said in the first line; there is no JSON of it."""
    reason = f"NOT OK: no agent runs: {tmp_path}/control.sock: no agent answers"
    assert ended(vedette("status", "--data-dir", tmp_path), 1).stdout.startswith(reason)
    as_json = ended(vedette("status", "--data-dir", tmp_path, "--json"), 1)
    assert (as_json.stdout, as_json.stderr.startswith(reason)) == ("", True)
