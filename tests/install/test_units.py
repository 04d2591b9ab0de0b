"""The units: systemd understands every line, and rates the agent well protected.

What older versions make of them is tried on the booted hosts of ``test_boot.py``.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.install.conftest import ROOT, call

pytestmark = pytest.mark.install

PACKAGING = ROOT / "packaging"
SINCE = sorted(int(path.stem.split("-")[1]) for path in (PACKAGING / "systemd").glob("since-*.conf"))
OLDEST = 239
"""The version of systemd that install.sh asks for."""
DROP_INS = {
    "ProtectHostname": 242,
    "RestrictSUIDSGID": 242,
    "ProtectKernelLogs": 244,
    "ProtectClock": 245,
    "ProtectProc": 247,
}
"""The version of systemd that brought a setting (its NEWS)."""


def units(folder: Path, version: int) -> Path:
    """The unit files as install.sh writes them for a version of systemd."""
    (folder / "vedette.service.d").mkdir(parents=True)
    for name in (
        "vedette.service",
        "vedette-udp.socket",
        "vedette-tcp.socket",
        "vedette-watch.service",
        "vedette-upgrade.service",
        "vedette-upgrade.path",
    ):
        text = (PACKAGING / name).read_text().replace("/opt/vedette/current/bin/vedette", "/bin/true")
        (folder / name).write_text(text)
    for path in (PACKAGING / "systemd").glob("since-*.conf"):
        if version >= int(path.stem.split("-")[1]):
            shutil.copyfile(path, folder / "vedette.service.d" / f"50-{path.name}")
    return folder / "vedette.service"


def analyze(*arguments: str | Path) -> tuple[int, str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    done = call("systemd-analyze", *arguments)
    return done.code, done.text


@pytest.mark.long
@pytest.mark.parametrize("version", [OLDEST, *SINCE])
def test_every_line_is_understood(tmp_path: Path, version: int) -> None:
    """`systemd-analyze verify` says nothing about any of the units, whatever drop-ins are there."""
    unit = units(tmp_path / "units", version)
    others = [unit.parent / f"vedette-{name}" for name in ("watch.service", "upgrade.service", "upgrade.path")]
    for path in [*sorted(unit.parent.glob("*.socket")), unit, *others]:
        _, text = analyze("verify", path)
        assert "vedette" not in text, text


@pytest.mark.long
def test_a_mistake_would_be_seen(tmp_path: Path) -> None:
    """A setting that systemd does not know, in a drop-in, is told: the test above does look at drop-ins."""
    unit = units(tmp_path / "units", 252)
    drop_in = unit.parent / "vedette.service.d/50-since-242.conf"
    drop_in.write_text(drop_in.read_text() + "MemoryMost=1G\n")
    assert "MemoryMost" in analyze("verify", unit)[1]


@pytest.mark.parametrize("version", [OLDEST, 252])
def test_exposure(tmp_path: Path, version: int) -> None:
    """`systemd-analyze security` rates the agent 2.0 or less, with the drop-ins and without."""
    code, text = analyze("security", "--offline=true", "--threshold=20", units(tmp_path / "units", version))
    if "unrecognized option" in text:
        pytest.skip("this systemd cannot judge a unit that is not loaded")
    assert code == 0, text


def test_each_setting_is_in_the_drop_in_of_its_version() -> None:
    """No drop-in holds a setting that its version of systemd does not know, and the base unit none that is newer."""
    for path in (PACKAGING / "systemd").glob("since-*.conf"):
        for key in re.findall(r"(?m)^(\w+)=", path.read_text()):
            assert DROP_INS[key] <= int(path.stem.split("-")[1]), (path.name, key)
    base = dict(re.findall(r"(?m)^(\w+)=(.*)$", (PACKAGING / "vedette.service").read_text()))
    assert not base.keys() & DROP_INS.keys()
    assert base["ProtectSystem"] == "strict"
    assert (base["Type"], base["Restart"], base["CapabilityBoundingSet"]) == ("notify", "always", "")
