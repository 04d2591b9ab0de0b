"""An agent that archives to a real store, and is killed: every line is found in the end, once."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.archive import s3
from tests.e2e.agent import KILLS, Agent, chance, reborn, vedette
from tests.waits import until
from vedette.rawlog.segment import segments

LINES = 12_000
SETTINGS = """
[[input]]
type = "file"
name = "in"
paths = ["{file}"]
[raw_log]
max_bytes = "1MiB"
[archive]
url = "{url}"
{options}
"""


def _line(i: int) -> bytes:
    return b"%d %s\n" % (i, b"".join(hashlib.sha512(b"%d/%d" % (i, j)).hexdigest().encode() for j in range(3)))


def _found(agent: Agent, pattern: str = "") -> Counter[str]:
    arguments = ("logs", "search", "-c", agent.config, "--json", "-n", 2 * LINES, pattern or "^")
    rows: list[dict[str, Any]] = [json.loads(line) for line in vedette(*arguments).stdout.splitlines()]
    return Counter(row["raw"].split(" ")[0] for row in rows)


@pytest.mark.peer
@pytest.mark.long
def test_killed_while_it_archives(tmp_path: Path) -> None:
    """Kills, and a store that fails in between: search and export through the archive give every line once, more
    than the budget of the disk holds; the store has one object a segment."""
    rng = chance()
    with s3.s3(tmp_path / "s3") as store:
        file = tmp_path / "in.log"
        file.touch()
        url, options = f"s3://{s3.BUCKET}/p", f'options_file = "{store.options}"'
        agent = Agent(tmp_path / "a", SETTINGS.format(file=file, url=url, options=options), segment_bytes=32 << 10)
        agent.up()
        try:
            step = LINES // (KILLS + 1)
            modes: list[s3.Mode] = ["500", "half", "pass", "slow", "cut"]
            for number in range(KILLS + 1):
                with file.open("ab") as lines:
                    lines.writelines(map(_line, range(number * step, (number + 1) * step)))
                store.proxy.mode = modes[number % len(modes)]
                if number < KILLS:
                    seen = len(store.proxy.requests) + rng.randrange(4)
                    until("requests", lambda n=seen: agent.alive() and len(store.proxy.requests) >= n)
                    agent.kill()
                    reborn(agent, rng)
                    agent.ready()
            store.proxy.mode = "pass"
            total = (KILLS + 1) * step
            agent.settled(total)
            until("the archive", lambda: not agent.status()["archive"]["waiting"])
            assert agent.status()["archive"]["segments"] > len(segments(agent.data / "raw"))
            wanted = Counter({str(i): 1 for i in range(total)})
            assert _found(agent) == wanted
            vedette("logs", "export", "-c", agent.config, "--format", "raw", "-o", tmp_path / "out")
            assert json.loads((tmp_path / "out" / "manifest.json").read_text())["events"] == total
            rows = vedette("archive", "list", "-c", agent.config, "--agent", "edge-1").stdout.splitlines()
            assert len(rows) == agent.status()["archive"]["segments"]
            assert "archive  s3://" in vedette("status", "-c", agent.config).stdout
        finally:
            agent.kill()
        vedette("archive", "verify", "-c", agent.config)
        vedette("archive", "restore", "-c", agent.config, "--agent", "edge-1", tmp_path / "restored")
        arguments = ("logs", "search", "--data-dir", tmp_path / "restored", "-c", tmp_path / "none.toml")
        assert vedette(*arguments, "-n", 1, "^0 ").stdout
