"""tools/packages.sh keeps packages from starting their services only while it installs, and leaves no trace of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.install.conftest import ROOT, Done, alone, call

pytestmark = [pytest.mark.install, pytest.mark.long]

OURS = "#!/bin/sh\n# of Vedette's tools/packages.sh\nexit 101\n"


def run(folder: Path, policy: str | None, apt_get: str) -> Done:
    """With ``folder`` as /usr/sbin, so that programs are missing, and a stand-in for apt-get."""
    (folder / "bin").mkdir()
    (folder / "bin/apt-get").write_text(f"#!/bin/sh\ncat /usr/sbin/policy-rc.d >&2\n{apt_get}\n")
    (folder / "bin/apt-get").chmod(0o755)
    (folder / "sbin").mkdir()
    if policy is not None:
        (folder / "sbin/policy-rc.d").write_text(policy)
    script = 'mount --bind "$1/sbin" /usr/sbin || exit 99\nPATH=$1/bin:$PATH exec sh "$2"'
    return call(*alone(), "sh", "-c", script, "sh", folder, ROOT / "tools/packages.sh")


@pytest.mark.parametrize("policy", [None, OURS])
@pytest.mark.parametrize("apt_get", ["exit 0", "exit 100", "kill -INT $PPID", "kill -TERM $PPID"])
def test_no_policy_is_left(tmp_path: Path, policy: str | None, apt_get: str) -> None:
    """Done, failed or stopped, and also what an earlier run left that was killed."""
    done = run(tmp_path, policy, apt_get)
    assert "exit 101" in done.text, "in force while packages are installed"
    assert (done.code == 0) == (apt_get == "exit 0")
    assert list((tmp_path / "sbin").iterdir()) == []


def test_a_policy_of_the_host_stays(tmp_path: Path) -> None:
    """It is the host's own, and holds for us, too."""
    assert run(tmp_path, "#!/bin/sh\nexit 101\n", "exit 0").code == 0
    assert (tmp_path / "sbin/policy-rc.d").read_text() == "#!/bin/sh\nexit 101\n"
