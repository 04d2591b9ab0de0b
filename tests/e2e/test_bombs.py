"""Bundles made to stop an agent: real processes with 600 MB of memory each."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bundle import bombs
from tests.bundle.conftest import Author
from tests.e2e.agent import Agent, vedette
from tests.e2e.test_rules import rule
from tests.waits import DEADLINE
from vedette.bundle.attempts import LIMIT
from vedette.bundle.manifest import MANIFEST
from vedette.bundle.seal import MAX_BODY, MAX_BUNDLE, seal

pytestmark = [pytest.mark.peer, pytest.mark.long]
MEMORY = 600_000_000
LIMITED = f"import resource; resource.setrlimit(resource.RLIMIT_%s, ({MEMORY}, {MEMORY}))\n"
MAIN = "from vedette.cli.main import main\nmain()"
COMMAND = (sys.executable, "-c", LIMITED % "AS" + MAIN)
AGENT = (sys.executable, "-c", LIMITED % "DATA" + MAIN)
"""The agent's store takes more address space than that, and is no memory of its own."""


def bound(count: int) -> bytes:
    """As large as a bundle may be, and of as many small entries as its directory can count without zip64."""
    size = MAX_BODY // count - 2 * 20 - 76
    return bombs.archive([bombs.Entry(b"rules/%08d.yml" % number, bytes(size)) for number in range(count)])


BOMBS: dict[str, Callable[[], bytes]] = {
    "entries": bombs.crowd,
    "entries at the bound": lambda: bound(0xFFFE),
    "zip64 that counts few": lambda: bombs.zip64(b"", 1),
    "zip64 that counts many": lambda: bombs.zip64(b"", 1 << 62, size=1 << 62),
    "zip64 that points away": lambda: bombs.zip64(b"PK\1\2" * 100, 100, offset=1 << 40),
    "deflated": lambda: bombs.archive([bombs.Entry(b"rules/a.yml", bombs.inflating(), 8, size=0xFFFFFFFF)]),
    "deflated in the manifest": lambda: bombs.archive([bombs.Entry(MANIFEST.encode(), bombs.inflating(1 << 30), 8)]),
    "overlapping": lambda: bombs.overlapping(10_000),
    "too large": lambda: bytes(MAX_BUNDLE + 1),
    "a deep manifest": lambda: bombs.archive([bombs.Entry(MANIFEST.encode(), b"[" * (8 << 20))]),
    "a wide manifest": lambda: bombs.archive([bombs.Entry(MANIFEST.encode(), b"[" + b"{}," * (2 << 20) + b"{}]")]),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(name: str, tmp_path: Path) -> None:
    """Unsigned, and signed by somebody, `bundle verify` and `bundle show` refuse it in little memory."""
    author, path = Author(tmp_path / "key.pem"), tmp_path / "bomb.vbundle"
    bomb = BOMBS[name]()
    verify, show = ("verify", path, "--trusted-key", author.public), ("show", path)
    for data, command, code in ((bomb, verify, 1), (bomb, show, 2), (seal(bomb, author.key), verify, 1)):
        path.write_bytes(data)
        arguments = [*COMMAND, "bundle", *map(str, command)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert "Error" not in done.stderr


def built(folder: Path, author: Author, version: int) -> Path:
    """A bundle for the test's agents."""
    rules, path = folder / f"rules{version}", folder / f"b{version}.vbundle"
    rule(rules, f"v{version}", version)
    vedette("bundle", "build", rules, "-o", path, "--version", version)
    vedette("bundle", "sign", path, "--key", author.path, "--fleet", "f1")
    return path


class Small(Agent):
    """An agent with 600 MB that is given the bundle in ``bundle_file``."""

    program = AGENT

    def __init__(self, folder: Path, author: Author) -> None:
        self.bundle_file = folder / "given.vbundle"
        super().__init__(folder, rules=None)
        self.configure(
            f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{self.port}"\n'
            f'[bundles]\nfile = "{self.bundle_file}"\ntrusted_keys = ["{author.public}"]\n'
        )

    def lives(self, data: bytes | None = None) -> tuple[str, str]:
        """One life of it, with ``data`` as the bundle that it is given: what runs, and what it says of the last one."""
        if data is not None:
            self.bundle_file.write_bytes(data)
        self.up()
        found = self.status()
        assert self.stop() == 0
        return found["bundle"], found["rules"]["error"] or ""


@pytest.fixture
def author(tmp_path: Path) -> Author:
    return Author(tmp_path / "key.pem")


def test_a_bomb_at_each_start(tmp_path: Path, author: Author) -> None:
    """An agent that is given a bomb starts with the rules that it has, and says what is wrong with the bomb."""
    agent = Small(tmp_path / "a", author)
    assert agent.lives(built(tmp_path, author, 1).read_bytes()) == ("rules-1", "")
    for name in ("entries", "overlapping", "too large"):
        bundle, error = agent.lives(BOMBS[name]())
        assert bundle == "rules-1"
        assert str(agent.bundle_file) in error
    bundle, error = agent.lives(seal(BOMBS["entries"](), author.key))
    assert bundle == "rules-1"
    assert "entries" in error


def test_what_killed_a_start_is_not_tried_for_ever(tmp_path: Path, author: Author) -> None:
    """A bundle that kills the agent as it loads costs it LIMIT starts; from then on the one before runs, and the status
    says why; another bundle ends that. A death that was none of the bundle's doing costs nothing."""
    agent = Small(tmp_path / "a", author)
    agent.lives(built(tmp_path, author, 1).read_bytes())
    assert agent.lives(built(tmp_path, author, 2).read_bytes()) == ("rules-2", "")
    trying = agent.data / "bundles" / "trying"
    assert not trying.exists()

    deadly = (
        "import os, signal\nfrom vedette.runtime.rulesets import bundled\nvalidate = bundled.validate\n"
        "bundled.validate = lambda b, *a: os.kill(os.getpid(), signal.SIGKILL) if b.version == 2 else validate(b, *a)\n"
    )
    for deaths in range(1, LIMIT):
        agent.program = [*AGENT[:2], deadly + AGENT[2]]
        agent.start()
        assert agent.ended() == -signal.SIGKILL
        assert trying.read_text().split()[1] == str(deaths)
    agent.program = AGENT
    assert agent.lives() == ("rules-2", "")
    assert not trying.exists()

    agent.program = [*AGENT[:2], deadly + AGENT[2]]
    for _ in range(LIMIT):
        agent.start()
        assert agent.ended() == -signal.SIGKILL
    for _ in range(2):
        bundle, error = agent.lives()
        assert bundle == "rules-1"
        assert f"died {LIMIT} times" in error
    assert agent.lives(built(tmp_path, author, 3).read_bytes()) == ("rules-3", "")
