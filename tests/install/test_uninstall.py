"""Removing takes what belongs to this installation and nothing else: on a host of stand-ins, see ``stubbed``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.install.stubbed import Stubbed

pytestmark = [pytest.mark.install, pytest.mark.xdist_group("install")]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Release 1 is installed with default folders, and runs. To be copied."""
    host = Stubbed(tmp_path_factory.mktemp("first"))
    done = host.run(host.release("1"))
    assert done.code == 0, done.text
    host.calls()
    return host.folder


@pytest.fixture
def host(first: Path, tmp_path: Path) -> Stubbed:
    """A host on which release 1 is installed and runs."""
    shutil.copytree(first, tmp_path / "host", symlinks=True)
    return Stubbed(tmp_path / "host")


@pytest.mark.parametrize("purge", [(), ("--purge",)])
def test_a_wrong_prefix(host: Stubbed, purge: tuple[str, ...]) -> None:
    """--uninstall with a prefix where nothing is leaves another installation alone: its units run on, and --purge
    takes neither its configuration nor its data nor the user; whose the units are is said."""
    before, process = host.files(), host.state("vedette.service")
    done = host.run("/srv/1", "--uninstall", *purge, "--prefix", "/opt/vedete")
    assert done.code == 0, done.text
    assert "another installation" in done.text
    assert host.files() == before
    assert (host.folder / "run/users").exists()
    assert (host.folder / "var/log/vedette-install.log").exists()
    assert host.state("vedette.service") == process
    assert host.calls() == []


def test_folders_that_are_named(host: Stubbed) -> None:
    """Folders that are given by option are purged, whoever has the units."""
    for folder in ("opt/etc", "opt/data"):
        (host.folder / folder).mkdir()
        (host.folder / folder / ".vedette").touch()
    done = host.run(
        "/srv/1", "--uninstall", "--purge", "--prefix", "/opt/vedete",
        "--config-dir", "/opt/etc", "--data-dir", "/opt/data",
    )  # fmt: skip
    assert done.code == 0, done.text
    assert [path.name for path in (host.folder / "opt").iterdir()] == ["vedette"]
    assert host.config.exists()
    assert (host.folder / "run/users").exists()
    assert host.state("vedette.service")


def test_purged_in_two_steps(host: Stubbed) -> None:
    """What --uninstall leaves, --uninstall --purge removes afterwards, with the same prefix and no other."""
    assert host.run("/srv/1", "--uninstall").code == 0
    assert host.state("vedette.service") == host.state("vedette-udp.socket") == ""
    assert list(host.units.iterdir()) == []
    assert host.run("/srv/1", "--uninstall", "--purge", "--prefix", "/opt/vedete").code == 0
    assert host.config.exists()
    assert (host.folder / "var/lib/vedette").exists()
    assert host.run("/srv/1", "--uninstall", "--purge").code == 0
    assert host.files() == {}
    assert not (host.folder / "run/users").exists()
    assert not (host.folder / "var/log/vedette-install.log").exists()


def test_interrupted(host: Stubbed) -> None:
    """Stopped while it removes the units, a second run removes the rest."""
    rm = '#!/bin/sh\n[ "$*" != "-f /etc/systemd/system/vedette-udp.socket" ] || kill -KILL $PPID\nexec /bin/rm "$@"\n'
    host.tool("rm", rm)
    assert host.run("/srv/1", "--uninstall").code != 0
    assert (host.units / "vedette-tcp.socket").exists()
    (host.folder / "srv/bin/rm").unlink()
    assert host.run("/srv/1", "--uninstall").code == 0
    assert list(host.units.iterdir()) == []
