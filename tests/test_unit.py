"""The systemd unit as it is shipped, by systemd's own judgement; without a systemd that runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[1] / "packaging" / "vedette.service"
EXPOSURE = 2.0
"""Of ``systemd-analyze security``: 0 is none, 10 is all."""

pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there."""
    made = tmp_path / "vedette.service"
    made.write_text(UNIT.read_text().replace("/opt/vedette/current/bin/vedette", "/bin/true"))
    return made


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *map(str, words)], capture_output=True, text=True, check=False)


def test_every_line_is_understood(unit: Path) -> None:
    """``verify`` has nothing to say about the unit, and would about a line that it does not know."""
    assert "vedette.service" not in analyze("verify", unit).stderr
    unit.write_text(unit.read_text().replace("PrivateTmp=", "PrivateTemp="))
    assert "PrivateTemp" in analyze("verify", unit).stderr


def test_exposure(unit: Path) -> None:
    """The exposure is 2.0 at most, and without the hardening it would not be."""
    done = analyze("security", "--offline=yes", f"--threshold={EXPOSURE * 10:.0f}", unit)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd cannot judge a unit that is not loaded")
    found = re.search(r"Overall exposure level for vedette.service: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert (done.returncode, float(found[1]) <= EXPOSURE) == (0, True), done.stdout
    unit.write_text(unit.read_text().replace("ProtectSystem=strict\n", "").replace("NoNewPrivileges=yes\n", ""))
    assert analyze("security", "--offline=yes", f"--threshold={float(found[1]) * 10:.0f}", unit).returncode != 0
