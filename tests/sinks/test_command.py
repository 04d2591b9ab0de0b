"""Commands with an alert on standard input, and what bounds them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.kit import hostile, outgoing
from tests.waits import eventually
from vedette.config.read import ConfigError, parse
from vedette.sinks import opening
from vedette.sinks.base import Answer, Verdict
from vedette.sinks.settings import CommandSink


async def ran(*command: str, **settings: Any) -> Answer:
    receiver = opening.opened(CommandSink("c", command=command, **settings), "1")
    (answer,) = await receiver.deliver([hostile()])
    await receiver.close()
    return answer


def script(folder: Path, text: str) -> str:
    path = folder / "command"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def test_the_alert_is_on_standard_input(tmp_path: Path) -> None:
    """As a line of JSON; arguments stand as they are, no shell reads them, and the environment holds nothing else."""
    program = script(tmp_path, f'cat > {tmp_path}/got; printf "%s\\n" "$@" > {tmp_path}/args; env > {tmp_path}/env')
    answer = await ran(program, "$(touch /tmp/no)", "a b; c", "*")
    assert answer == (Verdict.TAKEN, "exit code 0", 0.0)
    assert json.loads((tmp_path / "got").read_text()) == json.loads(json.dumps(hostile().row))
    assert (tmp_path / "args").read_text() == "$(touch /tmp/no)\na b; c\n*\n"
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "LANG", "VEDETTE_ALERT_ID"}


@pytest.mark.parametrize(
    ("text", "verdict", "said"),
    [
        ("exit 0", Verdict.TAKEN, "exit code 0"),
        ("echo bad record >&2; exit 65", Verdict.REFUSED, "exit code 65: bad record"),
        ("exit 75", Verdict.LATER, "exit code 75"),
        ("kill -9 $$", Verdict.LATER, "exit code -9"),
    ],
)
async def test_exit_codes(text: str, verdict: Verdict, said: str, tmp_path: Path) -> None:
    """It need not read what it is given."""
    assert await ran(script(tmp_path, text)) == (verdict, said, 0.0)


async def test_a_program_that_is_not_there() -> None:
    answer = await ran("/nowhere/at/all")
    assert answer.verdict is Verdict.LATER
    assert "No such file" in answer.text


async def test_time(tmp_path: Path) -> None:
    """One that takes too long is killed, with what it has started."""
    pid = tmp_path / "pid"
    answer = await ran(script(tmp_path, f"sleep 3600 & echo $! > {pid}; wait"), timeout=1.0)
    assert answer == (Verdict.LATER, "ran for more than 1 s and was killed", 0.0)
    await eventually("the end of the process", lambda: _gone(int(pid.read_text())))


async def test_what_it_leaves_running_goes(tmp_path: Path) -> None:
    """The command's end is the end of its group, also where that holds its output open."""
    pid = tmp_path / "pid"
    answer = await ran(script(tmp_path, f"sleep 3600 & echo $! > {pid}"))
    assert answer.verdict is Verdict.TAKEN
    await eventually("the end of the process", lambda: _gone(int(pid.read_text())))


def _gone(pid: int) -> bool:
    """Ended, waited for or not."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


async def test_memory() -> None:
    """Its address space is bounded; what it prints is not kept."""
    hungry = "import sys; sys.stdin.read(); x = bytearray(300 << 20)"
    answer = await ran(sys.executable, "-c", hungry, max_memory=200 << 20)
    assert answer.verdict is Verdict.LATER
    assert "MemoryError" in answer.text
    loud = "import sys; [sys.stdout.write('x' * 65536) for _ in range(400)]"
    answer = await ran(sys.executable, "-c", loud)
    assert answer.verdict is Verdict.TAKEN
    assert len(answer.text) < 600


async def test_cancelled(tmp_path: Path) -> None:
    """A stop of the agent ends it."""
    pid = tmp_path / "pid"
    command = (script(tmp_path, f"echo $$ > {pid}; sleep 3600"),)
    receiver = opening.opened(CommandSink("c", command=command, timeout=3600.0), "1")
    task = asyncio.create_task(receiver.deliver([outgoing()]))
    await eventually("the process", lambda: pid.exists() and pid.read_text().endswith("\n"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually("the end of the process", lambda: _gone(int(pid.read_text())))


def test_it_is_off_unless_allowed() -> None:
    """Only programs of ``agent.allow_commands`` may be named."""
    sink = '[[sink]]\ntype = "command"\nname = "c"\ncommand = ["/usr/bin/mail", "root"]\n'
    with pytest.raises(ConfigError, match=r"'/usr/bin/mail' is not in agent\.allow_commands"):
        parse(sink)
    with pytest.raises(ConfigError, match=r"not in agent\.allow_commands"):
        parse(f'[agent]\nallow_commands = ["/usr/bin/mai"]\n{sink}')
    assert parse(f'[agent]\nallow_commands = ["/usr/bin/mail"]\n{sink}').sink[0].to == "/usr/bin/mail"
