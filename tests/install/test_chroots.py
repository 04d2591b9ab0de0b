"""Old distributions without Python: the zip installs and the agent works, in a root folder of each.

The root folders are those of ``booted.root``; a distribution that is unavailable is skipped with the reason.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.install.booted import mount, root
from tests.install.conftest import RULE_ID, call

pytestmark = [pytest.mark.boot]

ALL = os.environ.get("VEDETTE_BOOT") == "all"
EVENT = "<38>Nov 20 10:00:00 h p: install-test-marker"


@pytest.fixture(params=["bullseye", "bionic", "xenial"] if ALL else [])
def chroot(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A throw-away layer over the distribution's root folder."""
    lower = root(request.param)
    mount("-t", "tmpfs", "-o", "size=1g", "vedette-test", tmp_path)
    for part in ("upper", "work", "root"):
        (tmp_path / part).mkdir()
    options = f"lowerdir={lower},upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    try:
        mount("-t", "overlay", "-o", options, "overlay", tmp_path / "root")
        yield tmp_path / "root"
    finally:
        subprocess.run(["umount", "-l", tmp_path / "root"], check=False)
        subprocess.run(["umount", "-l", tmp_path], check=False)


def test_installed_and_judging(chroot: Path, zip_file: Path, starter: tuple[Path, str]) -> None:
    """Neither Python nor unzip is there; the zip installs, and the rules of the bundle judge an event."""
    inside = chroot / "root"
    (inside / "vedette.zip").write_bytes(zip_file.read_bytes())
    (inside / "starter.vbundle").write_bytes(starter[0].read_bytes())
    (inside / "event").write_text(EVENT + "\n")
    script = """
        mount -t proc proc /proc || exit 99
        command -v python3 unzip && exit 98
        sh /root/vedette.zip --no-systemd || exit
        vedette version || exit
        vedette scan --rules /root/starter.vbundle --trusted-key "$1" /root/event
    """
    done = call("unshare", "-mpf", "chroot", chroot, "/bin/sh", "-c", script, "sh", starter[1])
    assert done.code in (0, 1), done.text
    assert RULE_ID in done.text
