"""Which release runs here, with which add-ons, and how to get what is not there."""

from __future__ import annotations

from pathlib import Path

from vedette import __version__
from vedette.system import installation


def test_which_release_runs(tmp_path: Path) -> None:
    """It is read off the place of the code, also through a link; a clone is none."""
    package = tmp_path / "releases/0.2.0-0123456789ab/packages/vedette"
    package.mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/0.2.0-0123456789ab")
    found = installation.running(tmp_path / "current/packages/vedette")
    assert found == installation.Installed("0.2.0-0123456789ab", tmp_path)
    assert installation.running(tmp_path / "site-packages/vedette") is None
    assert installation.running() is None


def test_its_add_ons(tmp_path: Path) -> None:
    """Those that are whole; what a run that was killed has left is none."""
    release = tmp_path / "releases/0.2.0-0123456789ab"
    for name in ("kafka", "archive", ".new.1", ".gone.other"):
        (release / "addons" / name).mkdir(parents=True)
        (release / "addons" / name / "ADDON").touch()
    (release / "addons" / "half").mkdir()
    found = installation.running(release / "packages/vedette")
    assert found is not None
    assert found.addons == ("archive", "kafka")


def test_how_to_get_one() -> None:
    """By the installer where it was installed so, else by pip."""
    assert installation.bring("archive", None) == 'pip install "vedette[archive]"'
    said = installation.bring("archive", installation.Installed("0.2.0-0123456789ab", Path("/opt/vedette")))
    assert said.startswith(f"sh /opt/vedette/current/install.sh --with FOLDER/vedette-{__version__}-linux-")
