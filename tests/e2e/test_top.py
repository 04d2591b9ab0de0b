"""``vedette top`` of a real agent: on a terminal (a pseudo-terminal), and as text."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import traffic
from tests.e2e.agent import VEDETTE, Agent, vedette
from tests.waits import DEADLINE, until
from vedette.cli.top import ENTER, HOME, LEAVE

LINES = 20_000
INTERVAL = 0.3


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A running agent that has made alerts."""
    folder = tmp_path_factory.mktemp("top")
    log = folder / "app.log"
    log.write_bytes(b"".join(traffic.blocks(13, LINES, attack_rate=0.01)))
    agent = Agent(
        folder / "a",
        f'[[input]]\nname = "in"\ntype = "file"\npaths = ["{log}"]\nformat = "syslog"\n'
        'logsource = { product = "linux" }\n',
    )
    agent.up()
    try:
        agent.settled(LINES)
        yield agent
    finally:
        agent.kill()


class Terminal:
    """``vedette top`` on a pseudo-terminal."""

    def __init__(self, config: Path, rows: int, columns: int, interval: float) -> None:
        self._master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [*VEDETTE, "top", "-c", str(config), "--interval", str(interval)],
            stdin=self.slave, stdout=self.slave, stderr=self.slave, env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        self.text = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> str:
        while select.select([self._master], [], [], 0)[0]:
            self.text += os.read(self._master, 1 << 16).decode()
        return self.text

    def frames(self) -> list[list[str]]:
        """What was drawn, as text, a list of lines each, but the last, which may be drawn in part."""
        bare = re.sub(r"\x1b\[\??[0-9]*[a-zKJ]|\x1b\[m", "", self.read().replace("\x1b[H", "\f"))
        return [frame.replace("\r", "").rstrip("\n").split("\n") for frame in bare.split("\f")[1:-1]]

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def reads(self) -> int:
        """How often the program has read anything."""
        said = Path(f"/proc/{self.process.pid}/io").read_text()
        return int(said.partition("syscr: ")[2].split()[0])

    def end(self) -> int:
        code = self.process.wait(DEADLINE)
        self.read()
        assert termios.tcgetattr(self.slave) == self.before
        assert self.text.count(ENTER) == self.text.count(LEAVE) == 1
        assert self.text.endswith(LEAVE)
        os.close(self._master)
        os.close(self.slave)
        return code


@contextmanager
def watching(agent: Agent, rows: int = 60, columns: int = 120, interval: float = INTERVAL) -> Iterator[Terminal]:
    shown = Terminal(agent.config, rows, columns, interval)
    try:
        until("a page", lambda: "agent edge-1" in shown.read())
        yield shown
    finally:
        shown.process.kill()
        shown.process.wait()


@pytest.mark.long
def test_on_a_terminal(agent: Agent) -> None:
    """It has what it promises, fits, follows the size, and leaves nothing behind."""
    with watching(agent) as shown:
        until("a page with rates", lambda: any("/s evaluated" in "".join(frame) for frame in shown.frames()))
        page = shown.frames()[-1]
        text = "\n".join(page)
        for part in ("agent edge-1", "alerts ", "uplink", "input", "rules by cost", "rules by alerts", "correlations:"):
            assert part in text
        assert "newest alerts" in text
        assert f"in{'':<18}" in text
        shown.resize(20, 50)
        until("a page of the new size", lambda: max(map(len, shown.frames()[-1])) <= 50)
        assert len(shown.frames()[-1]) <= 20
        shown.press("q")
        assert shown.end() == 0


@pytest.mark.long
def test_held_still(agent: Agent) -> None:
    """The space bar holds it, and lets it go on: where it looks seldom, each other key draws the page again."""
    with watching(agent, interval=3600) as shown:
        shown.press("x")
        until("the page again", shown.frames)
        for key in " xxx x":
            before = shown.reads()
            shown.press(key)
            until("the key to be read", lambda before=before: shown.reads() > before)
        until("all pages but the last", lambda: len(shown.frames()) == 3)
        shown.press("q")
        assert shown.end() == 0
        assert shown.text.count(HOME) == 4


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_leaves_the_terminal_as_it_was(agent: Agent, number: signal.Signals) -> None:
    with watching(agent) as shown:
        shown.process.send_signal(number)
        assert shown.end() == (0 if number == signal.SIGINT else 128 + number)


@pytest.mark.long
def test_an_agent_that_goes_and_comes(agent: Agent) -> None:
    """It says that none answers, and goes on with the next one."""
    with watching(agent) as shown:
        agent.kill()
        until("the reason", lambda: "no agent answers" in shown.read())
        drawn = len(shown.frames())
        agent.up()
        until("the page", lambda: any("agent edge-1" in "".join(frame) for frame in shown.frames()[drawn + 1 :]))
        shown.press("q")
        assert shown.end() == 0


@pytest.mark.long
def test_as_text(agent: Agent) -> None:
    """Without a terminal: so many pages, without any control character; 2 when no agent answers."""
    done = vedette("top", "-c", agent.config, "--interval", "0.3", "--count", "2")
    assert done.stdout.count("agent edge-1") == 2
    assert done.stdout.isprintable() or not re.search(r"[^\n\x20-\x7e…]", done.stdout)
    assert "newest alerts" in done.stdout
    none = vedette("top", "--data-dir", agent.folder, code=2)
    assert "no agent answers" in none.stderr
