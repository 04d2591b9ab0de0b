"""Two installations on a host: each run acts on the one that its script is part of, or on the one that is named, or is
refused; on a host of stand-ins, see ``stubbed``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.install.stubbed import Stubbed

pytestmark = [pytest.mark.install, pytest.mark.xdist_group("install")]

SECOND = ("--no-systemd", "--prefix", "/opt/second", "--config-dir", "/etc/second", "--data-dir", "/var/lib/second")
PURGE = ("--uninstall", "--purge")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Release 1 is installed with default folders, and runs; release 2, over release 1, has folders of its own and no
    systemd. To be copied."""
    host = Stubbed(tmp_path_factory.mktemp("both"))
    for release, options in (("1", ()), ("1", SECOND), ("2", SECOND)):
        done = host.run(host.release(release), *options)
        assert done.code == 0, done.text
    host.calls()
    return host.folder


@pytest.fixture
def host(both: Path, tmp_path: Path) -> Stubbed:
    """Two installations."""
    shutil.copytree(both, tmp_path / "host", symlinks=True)
    return Stubbed(tmp_path / "host")


def split(host: Stubbed) -> tuple[dict[str, bytes | str], dict[str, bytes | str]]:
    """The files of the first installation, and of the second."""
    files = host.files()
    second = {name for name in files if "second" in name.split("/")}
    return {name: data for name, data in files.items() if name not in second}, {name: files[name] for name in second}


def running(host: Stubbed) -> tuple[str, ...]:
    """The first one's agent and sockets, and its user."""
    return (*map(host.state, ("vedette.service", "vedette-udp.socket")), str((host.folder / "run/users").exists()))


def test_removed_by_its_own_script(host: Stubbed) -> None:
    """The second installation's script, without a prefix, purges that one and nothing else."""
    first, state = split(host)[0], running(host)
    done = host.run("/opt/second/current", *PURGE)
    assert done.code == 0, done.text
    assert split(host) == (first, {})
    assert running(host) == state
    assert not (host.folder / "var/lib/second").exists()


def test_rolled_back_by_its_own_script(host: Stubbed) -> None:
    """--rollback of the second moves its link; of the first, which has no release before, nothing is touched. --upgrade
    by the installed script is about the second, too."""
    first, link = split(host)[0], host.folder / "opt/second/current"
    assert link.readlink().name.startswith("2-")
    done = host.run("/opt/second/current", "--upgrade")
    assert done.code == 0, done.text
    assert "nothing changed" in done.text
    done = host.run("/opt/second/current", "--rollback")
    assert done.code == 0, done.text
    assert link.readlink().name.startswith("1-")
    assert split(host)[0] == first


def test_a_release_in_no_installation(host: Stubbed) -> None:
    """A release that was copied out is part of none: without a prefix nothing is done."""
    shutil.copytree(host.prefix / host.current(), host.folder / "srv/loose")
    before = host.files()
    for options in (PURGE, ("--rollback",), ()):
        done = host.run("/srv/loose", *options)
        assert done.code == 2, done.text
        assert "--prefix" in done.text
    assert host.files() == before


def test_a_copy_of_an_installation(host: Stubbed) -> None:
    """What is in a copy names the folders of the original: refused, also when the copy is named."""
    shutil.copytree(host.prefix, host.folder / "opt/copy", symlinks=True)
    before = host.files()
    for script, options in (("/opt/copy/current", PURGE), ("/srv/1", (*PURGE, "--prefix", "/opt/copy"))):
        done = host.run(script, *options)
        assert done.code == 2, done.text
        assert "copied or moved from /opt/vedette" in done.text
    assert host.files() == before


def test_behind_a_link(host: Stubbed) -> None:
    """A link to an installation is that installation, and its units are its own."""
    (host.folder / "opt/link").symlink_to("/opt/vedette")
    done = host.run("/opt/link/current")
    assert done.code == 0, done.text
    second = split(host)[1]
    done = host.run("/opt/link/current", *PURGE)
    assert done.code == 0, done.text
    assert split(host) == ({"opt/link": "/opt/vedette"}, second)
    assert list(host.units.iterdir()) == []


def test_not_from_here_to_there(host: Stubbed) -> None:
    """The release of one installation is not installed as another: that takes the zip."""
    before = host.files()
    done = host.run("/opt/second/current", "--prefix", "/opt/vedette")
    assert done.code == 2, done.text
    assert "take the zip" in done.text
    assert host.files() == before


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--rollback",)])
def test_systemd_runs_one(host: Stubbed, options: tuple[str, ...]) -> None:
    """A second one under systemd would take the units over: refused, with the name of the one that has them. Once that
    is removed, it is installed."""
    third = ("--prefix", "/opt/third", "--config-dir", "/etc/third", "--data-dir", "/var/lib/third")
    before, state = host.files(), running(host)
    done = host.run("/srv/2", *third, *options)
    assert done.code == 19, done.text
    assert "systemd runs the installation in /opt/vedette" in done.text
    assert host.files() == before
    assert running(host) == state
    if options:
        return
    assert host.run("/opt/vedette/current", "--uninstall").code == 0
    assert host.run("/srv/2", *third).code == 0
    assert b"/opt/third/current/" in (host.units / "vedette.service").read_bytes()


def test_folders_of_another(host: Stubbed) -> None:
    """Configuration and data of an installation that is there are not shared, and not purged by another one, not even
    when they are named; after its removal another may take them over."""
    before = host.files()
    for folder in ("--config-dir", "--data-dir"):
        other = [word for word in SECOND if word != "/opt/second"]
        other[other.index(folder) + 1] = {"--config-dir": "/etc/vedette", "--data-dir": "/var/lib/vedette"}[folder]
        other.insert(2, "/opt/third")
        done = host.run("/srv/2", *other)
        assert done.code == 2, done.text
        assert "is of the installation in" in done.text
    assert host.files() == before
    first = split(host)[0]
    done = host.run("/opt/second/current", *PURGE, "--config-dir", "/etc/vedette", "--data-dir", "/var/lib/vedette")
    assert done.code == 0, done.text
    assert "/var/lib/vedette stays: it is of the installation in /opt/vedette" in done.text
    assert split(host)[0] == first
    assert host.run("/opt/vedette/current", "--uninstall").code == 0
    third = ("--no-systemd", "--prefix", "/opt/third")
    assert host.run("/srv/2", *third).code == 0
    assert host.run("/opt/third/current", *PURGE).code == 0
    assert not host.config.exists()
    assert not (host.folder / "var/lib/vedette").exists()


@pytest.mark.parametrize(
    ("option", "folder"),
    [
        ("--prefix", "/var/lib/vedette/third"),
        ("--data-dir", "/etc/vedette/data"),
        ("--config-dir", "/opt/second/etc"),
        ("--data-dir", "/opt/second"),
    ],
)
def test_within_another(host: Stubbed, option: str, folder: str) -> None:
    """No installation begins within a folder of another one, or around it: it would go with that one's."""
    before = host.files()
    third = [word.replace("second", "third") for word in SECOND]
    third[third.index(option) + 1] = folder
    done = host.run("/srv/2", *third)
    assert done.code == 2, done.text
    assert "lies in a folder of the installation in" in done.text
    assert host.files() == before


def test_what_lies_within_is_not_purged(host: Stubbed) -> None:
    """Where one was put into another's data by hand, that data stays when the outer one is purged."""
    inner = host.folder / "var/lib/vedette/inner"
    inner.mkdir()
    (inner / "installed").write_text("prefix=/var/lib/vedette/inner\n")
    done = host.run("/opt/vedette/current", *PURGE)
    assert done.code == 0, done.text
    assert "/var/lib/vedette stays: it lies in a folder of the installation in" in done.text
    assert (inner / "installed").exists()
    assert not host.config.exists()


def test_systemd_is_not_left_by_an_option(host: Stubbed) -> None:
    """--no-systemd on an installation that systemd runs would remove the program and leave the units."""
    before = host.files()
    for options in ((), ("--uninstall",), ("--rollback",)):
        done = host.run("/srv/1", "--no-systemd", *options)
        assert done.code == 2, done.text
        assert "systemd runs the installation" in done.text
    assert host.files() == before
