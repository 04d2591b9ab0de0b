"""The demo of a fleet (``make demo-fleet``) ends well, and shows what docs/fleet.md shows of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.peer, pytest.mark.long]
ROOT = Path(__file__).parents[2]


def shown() -> list[str]:
    """The commands of the week in docs/fleet.md, by their first words."""
    page = (ROOT / "docs" / "fleet.md").read_text()
    week = page.partition("\n## An operator's week\n")[2].partition("\n## ")[0]
    return re.findall(r"(?m)^\$ vedette \S+ \S+", week)


def test_the_week() -> None:
    """Each command that the page shows of it was run, the bad changes came back, and what was planted was found."""
    assert len(shown()) > 8
    done = subprocess.run([sys.executable, "-m", "demo.fleet"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert [one for one in shown() if one not in done.stdout] == []
    assert "all run bundle 1 again" in done.stdout
